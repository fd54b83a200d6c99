//! Data to set up nodes and to reach them: who reads it, repeats, limits, and its end.

use crate::world::{Caller, World, assert_refused, bid};
use kubebid_engine::store::{NodeData, NodeDataKey, NodeDataKind};
use kubebid_proto::v1;
use std::time::Duration;
use tonic::Code;
use v1::allocation::State;
use v1::place_bids_response::result::Outcome;
use v1::token::Role;

const CONFIG: &[u8] = b"ssh-ed25519 AAAA secret-of-t1\n\0\xff";
const HOUR: u64 = 3_600_000_000;

fn configured(key: &str, config: &[u8]) -> v1::PlaceBidRequest {
    v1::PlaceBidRequest { client_key: key.to_owned(), node_config: config.to_vec(), ..bid(2_000_000) }
}

fn access(address: &str) -> v1::NodeAccess {
    v1::NodeAccess {
        addresses: vec![address.to_owned()],
        ports: [("ssh".to_owned(), 2222)].into(),
        user: "ubuntu".to_owned(),
        notes: "SHA256:secret-of-p1".to_owned(),
    }
}

async fn ready(
    caller: &Caller,
    key: &str,
    access: Option<v1::NodeAccess>,
) -> Result<v1::ReportReadyResponse, tonic::Status> {
    let request = v1::ReportReadyRequest { client_key: key.to_owned(), allocation: 1, access };
    caller.allocations().report_ready(request).await.map(tonic::Response::into_inner)
}

async fn node(caller: &Caller, min_seq: u64) -> Result<v1::Allocation, tonic::Status> {
    let request = v1::GetAllocationRequest { allocation: 1, min_seq };
    let answer = caller.allocations().get_allocation(request).await?;
    Ok(answer.into_inner().allocation.unwrap())
}

/// Starts a market in which a tenant has a node of a provider. Returns both.
async fn rented() -> (World, Caller, Caller) {
    let world = World::start().await;
    let (t1, p1) = (world.tenant("t1").await, world.provider("p1").await);
    p1.offer(1, 1_000_000).await;
    t1.place(bid(2_000_000)).await.unwrap();
    (world, t1, p1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_config_is_for_the_tenant_and_the_provider_and_access_for_the_tenant() {
    let world = World::start().await;
    let (t1, t2) = (world.tenant("t1").await, world.tenant("t2").await);
    let (p1, p2) = (world.provider("p1").await, world.provider("p2").await);
    p2.offer(1, 1_900_000).await;
    p1.offer(1, 1_000_000).await;
    let placed = t1.place(configured("k", CONFIG)).await.unwrap();
    let other = t2.place(bid(2_000_000)).await.unwrap();

    // Before the node is ready, its provider has what it needs to set it up.
    let seen = node(&p1, other.seq).await.unwrap();
    assert_eq!((&seen.unit[..], seen.node_config(), seen.access.clone()), ("h100/eu:p1#1", CONFIG, None));
    let reported = ready(&p1, "r", Some(access("10.0.0.7"))).await.unwrap();

    let seen = node(&t1, reported.seq).await.unwrap();
    assert_eq!((seen.node_config(), seen.access.clone()), (CONFIG, Some(access("10.0.0.7"))));
    assert_eq!(t1.bid(placed.bid, reported.seq).await.node_config(), CONFIG);
    let seen = node(&p1, reported.seq).await.unwrap();
    assert_eq!((seen.node_config(), seen.access.clone()), (CONFIG, None), "access is for the holder alone");
    for stranger in [&t2, &p2] {
        assert_refused(node(stranger, reported.seq).await, Code::NotFound, "UNKNOWN_ALLOCATION");
    }
    let get = v1::GetBidRequest { bid: placed.bid, min_seq: 0 };
    assert_refused(p1.bids().get_bid(get).await, Code::PermissionDenied, "FORBIDDEN");
    assert_refused(t2.bids().get_bid(get).await, Code::NotFound, "UNKNOWN_BID");
    // The provider of a node reads the config of that node's bid, and of no other.
    let request = v1::GetAllocationRequest { allocation: 2, min_seq: reported.seq };
    assert_refused(p1.allocations().get_allocation(request).await, Code::NotFound, "UNKNOWN_ALLOCATION");
    let seen = p2.allocations().get_allocation(request).await.unwrap().into_inner().allocation.unwrap();
    assert_eq!((seen.node_config.clone(), seen.access.clone()), (None, None));

    // An administrator sees the bid and the node, and no secrets, also with a token of the tenant's account.
    for admin in [world.admin.clone(), world.caller("t1", &[Role::Admin]).await] {
        let seen = node(&admin, 0).await.unwrap();
        assert_eq!((seen.tenant(), seen.node_config.clone(), seen.access.clone()), ("t1", None, None));
        assert_eq!(admin.bid(placed.bid, 0).await.node_config, None);
    }
    // An account that rents and offers has tokens that do only one of both.
    for caller in [world.provider("t1").await, world.tenant("p1").await] {
        let seen = node(&caller, 0).await.unwrap();
        assert_eq!((seen.node_config.clone(), seen.access.clone()), (None, None));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_lists_nor_events_have_data_of_nodes() {
    let world = World::start().await;
    let t1 = world.caller("t1", &[Role::Tenant]).await;
    let p1 = world.provider("p1").await;
    p1.offer(1, 1_000_000).await;
    t1.place(configured("k", CONFIG)).await.unwrap();
    let seq = ready(&p1, "", Some(access("10.0.0.7"))).await.unwrap().seq;
    for caller in [&t1, &p1, &world.admin] {
        let account = Some(String::new()).filter(|_| std::ptr::eq(caller, &world.admin));
        let list =
            v1::ListAllocationsRequest { min_seq: seq, account: account.clone(), ..Default::default() };
        let list = caller.allocations().list_allocations(list).await.unwrap().into_inner();
        assert_eq!(list.allocations.len(), 1);
        assert_eq!((&list.allocations[0].node_config, &list.allocations[0].access), (&None, &None));
        let events = v1::ListEventsRequest { min_seq: seq, ..Default::default() };
        let events = caller.events().list_events(events).await.unwrap().into_inner();
        assert!(events.events.len() > 2, "{events:?}");
        let shown = format!("{events:?}{list:?}");
        assert!(!shown.contains("secret") && !shown.contains("10.0.0.7"), "{shown}");
    }
    let list = v1::ListBidsRequest { min_seq: seq, ..Default::default() };
    let list = t1.bids().list_bids(list).await.unwrap().into_inner();
    assert_eq!((list.bids.len(), &list.bids[0].node_config), (1, &None));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_config_is_part_of_what_a_client_key_stands_for() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let first = t1.place(configured("k", CONFIG)).await.unwrap();
    let again = t1.place(configured("k", CONFIG)).await.unwrap();
    assert_eq!((again.bid, again.repeated), (first.bid, true));
    for other in [&b"another"[..], b""] {
        let refused =
            assert_refused(t1.place(configured("k", other)).await, Code::AlreadyExists, "KEY_CONFLICT");
        assert_eq!(refused.message, "the client_key was used with another node_config");
    }
    t1.place(configured("plain", b"")).await.unwrap();
    assert_refused(t1.place(configured("plain", CONFIG)).await, Code::AlreadyExists, "KEY_CONFLICT");
    // A frame compares each of its bids.
    let bids =
        vec![configured("k", CONFIG), configured("k", b"x"), configured("f", b"x"), configured("g", b"")];
    let frames = futures_util::stream::iter([v1::PlaceBidsRequest { bids }]);
    let mut answers = t1.bids().place_bids(frames).await.unwrap().into_inner();
    let results = answers.message().await.unwrap().unwrap().results;
    let outcome = |at: usize| match results[at].outcome.clone().unwrap() {
        Outcome::Placed(placed) => Ok((placed.bid, placed.repeated)),
        Outcome::Refused(refusal) => Err(refusal.reason),
    };
    assert_eq!((outcome(0), outcome(1)), (Ok((first.bid, true)), Err("KEY_CONFLICT".to_owned())));
    let (with, without) = (outcome(2).unwrap().0, outcome(3).unwrap().0);
    assert_eq!(t1.bid(with, with).await.node_config(), b"x");
    assert_eq!(t1.bid(without, without).await.node_config, None);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_report_replaces_access_data_and_the_first_keys_repeat_does_not() {
    let world = World::start().await;
    let (t1, t2, p1) = (world.tenant("t1").await, world.tenant("t2").await, world.provider("p1").await);
    p1.offer(1, 1_000_000).await;
    t1.place(bid(2_000_000)).await.unwrap();
    // The tenant reports first, without access data; the provider's comes after it.
    let first = ready(&t1, "", None).await.unwrap();
    assert_eq!(node(&t1, first.seq).await.unwrap().access, None);
    let refused = ready(&p1, "late", None).await;
    assert_refused(refused, Code::FailedPrecondition, "ALREADY_READY");
    let a = ready(&p1, "a", Some(access("a"))).await.unwrap();
    assert!(a.seq > first.seq);
    assert_eq!(node(&t1, a.seq).await.unwrap().access, Some(access("a")));
    let again = ready(&p1, "a", Some(access("a"))).await.unwrap();
    assert_eq!((again.seq, a.repeated, again.repeated), (a.seq, false, true), "the first answer");
    assert_refused(ready(&p1, "a", Some(access("b"))).await, Code::AlreadyExists, "KEY_CONFLICT");
    assert_eq!(node(&t1, 0).await.unwrap().access, Some(access("a")));

    let b = ready(&p1, "b", Some(access("b"))).await.unwrap();
    ready(&p1, "a", Some(access("a"))).await.unwrap();
    assert_eq!(
        node(&t1, b.seq).await.unwrap().access,
        Some(access("b")),
        "a late repeat brings nothing back"
    );

    // Others learn nothing, and change nothing.
    assert_refused(ready(&t2, "", Some(access("c"))).await, Code::NotFound, "UNKNOWN_ALLOCATION");
    assert_eq!(node(&t1, 0).await.unwrap().access, Some(access("b")));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_reports_at_once_the_later_one_stays() {
    let (world, t1, p1) = rented().await;
    ready(&t1, "", None).await.unwrap();
    for _ in 0..10 {
        let (a, b) = tokio::join!(ready(&t1, "", Some(access("a"))), ready(&p1, "", Some(access("b"))));
        let (a, b) = (a.unwrap().seq, b.unwrap().seq);
        let later = if a > b { "a" } else { "b" };
        assert_eq!(node(&t1, a.max(b)).await.unwrap().access, Some(access(later)), "{a} {b}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_repeats_at_once_with_different_content_one_is_refused() {
    let (world, t1, p1) = rented().await;
    ready(&t1, "", None).await.unwrap();
    for key in ["k0", "k1", "k2", "k3"] {
        let (a, b) = tokio::join!(ready(&p1, key, Some(access("a"))), ready(&p1, key, Some(access("b"))));
        let kept = if a.is_ok() { "a" } else { "b" };
        assert_eq!(node(&t1, 0).await.unwrap().access, Some(access(kept)));
        let refused = if a.is_ok() { b } else { a };
        assert_refused(refused, Code::AlreadyExists, "KEY_CONFLICT");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_reports_key_is_compared_with_its_access_data() {
    let (world, _, p1) = rented().await;
    let first = ready(&p1, "r", Some(access("a"))).await.unwrap();
    let again = ready(&p1, "r", Some(access("a"))).await.unwrap();
    assert_eq!((again.seq, again.repeated), (first.seq, true));
    for other in [Some(access("b")), None] {
        assert_refused(ready(&p1, "r", other).await, Code::AlreadyExists, "KEY_CONFLICT");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_is_refused_by_its_field_before_it_is_numbered() {
    let world = World::start().await;
    let limits = v1::AccountLimits { commands_per_day: Some(65), ..Default::default() };
    let t1 = world.limited("t1", &[Role::Tenant], limits).await;
    let p1 = world.provider("p1").await;
    p1.offer(1, 1_000_000).await;
    let refused = t1.place(configured("", &[7; 16_385])).await;
    let refused = assert_refused(refused, Code::InvalidArgument, "BAD_FIELD");
    assert_eq!((refused.field.as_deref(), refused.seq), (Some("node_config"), None));
    assert_eq!(refused.message, "node_config has 16385 bytes; 16384 are allowed");
    let placed = t1.place(configured("", &[7; 16_384])).await.unwrap();
    assert_eq!(t1.bid(placed.bid, placed.seq).await.node_config().len(), 16_384);
    // It counts as 65 commands.
    let refused =
        assert_refused(t1.place(configured("", &[7; 16_384])).await, Code::ResourceExhausted, "LIMIT");
    assert_eq!(refused.limit.as_deref(), Some("commands_per_day"));

    let long = v1::NodeAccess { notes: "n".repeat(5_000), ..access("a") };
    let refused = assert_refused(ready(&p1, "", Some(long)).await, Code::InvalidArgument, "BAD_FIELD");
    assert_eq!((refused.field.as_deref(), refused.seq), (Some("access"), None));
    assert_eq!(node(&p1, 0).await.unwrap().state(), State::Starting);
    world.stop().await;
}

/// Waits until the content of this key is deleted.
async fn deleted(world: &World, key: NodeDataKey) {
    let wait = async {
        loop {
            let kept = world.engine.store().rows().node_data(key).await.unwrap().expect("the hash stays");
            if kept.content.is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), wait).await.expect("deleted in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_nodes_is_hidden_and_deleted_at_its_end_and_repeats_are_still_compared() {
    let world = World::start().await;
    let (t1, p1) = (world.tenant("t1").await, world.provider("p1").await);
    p1.offer(1, 1_000_000).await;
    let placed = t1.place(configured("k", CONFIG)).await.unwrap();
    let waits = t1.place(configured("w", b"waits")).await.unwrap();
    ready(&p1, "r", Some(access("a"))).await.unwrap();
    world.advance(HOUR).await;
    let cancel = v1::CancelBidRequest {
        bid: placed.bid,
        mode: v1::cancel_bid_request::Mode::Release.into(),
        ..Default::default()
    };
    let seq = t1.bids().cancel_bid(cancel).await.unwrap().into_inner().seq;
    for caller in [&t1, &p1] {
        let seen = node(caller, seq).await.unwrap();
        assert_eq!((seen.state(), seen.node_config.clone(), seen.access.clone()), (State::Ended, None, None));
    }
    deleted(&world, NodeDataKey::config(placed.bid)).await;
    deleted(&world, NodeDataKey::access(1)).await;
    assert_eq!(t1.bid(placed.bid, seq).await.node_config, None);
    assert_eq!(t1.bid(waits.bid, seq).await.node_config(), b"waits", "it holds the unit now");

    assert!(t1.place(configured("k", CONFIG)).await.unwrap().repeated);
    assert_refused(t1.place(configured("k", b"x")).await, Code::AlreadyExists, "KEY_CONFLICT");
    assert!(ready(&p1, "r", Some(access("a"))).await.unwrap().repeated);
    assert_refused(ready(&p1, "r", Some(access("b"))).await, Code::AlreadyExists, "KEY_CONFLICT");
    assert_eq!(t1.bid(placed.bid, seq).await.node_config, None, "a repeat brings nothing back");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_the_end_is_not_returned_and_is_deleted_too() {
    let world = World::start().await;
    let (t1, p1) = (world.tenant("t1").await, world.provider("p1").await);
    p1.offer(1, 1_000_000).await;
    let placed = t1.place(configured("k", CONFIG)).await.unwrap();
    ready(&t1, "", None).await.unwrap();
    assert_refused(ready(&p1, "late", None).await, Code::FailedPrecondition, "ALREADY_READY");
    let mode = v1::cancel_bid_request::Mode::Release.into();
    let cancel = v1::CancelBidRequest { bid: placed.bid, mode, ..Default::default() };
    let seq = t1.bids().cancel_bid(cancel).await.unwrap().into_inner().seq;
    assert_eq!(t1.bid(placed.bid, 0).await.node_config, None, "also before it is deleted");
    deleted(&world, NodeDataKey::config(placed.bid)).await;

    // Nothing ends after this.
    ready(&p1, "late", Some(access("a"))).await.unwrap();
    assert_eq!(node(&t1, seq).await.unwrap().access, None);
    deleted(&world, NodeDataKey::access(1)).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_content_of_many_rows_is_deleted_at_once() {
    let world = World::start().await;
    let rows = world.engine.store().rows();
    // The engine deletes nothing of commands that it does not know.
    let seq = 1_000_000;
    let one = NodeData::new(bytes::Bytes::from_static(CONFIG)).brought_by(seq);
    let numbers = (1_000..1_200).collect::<Vec<u64>>();
    let data: Vec<_> = numbers.iter().map(|number| (NodeDataKey::config(*number), one.clone())).collect();
    rows.put_node_data(&data).await.unwrap();
    rows.put_node_data(&[(NodeDataKey::access(1_000), one.clone())]).await.unwrap();
    rows.clear_node_data(NodeDataKind::Config, &numbers[1..]).await.unwrap();
    let kept = rows.kept_node_data(NodeDataKind::Config, 0, 1_000).await.unwrap();
    assert_eq!(kept, [(NodeDataKey::config(1_000), seq)]);
    assert_eq!(rows.node_data(NodeDataKey::access(1_000)).await.unwrap(), Some(one.clone()));
    let cleared = rows.node_data(NodeDataKey::config(1_199)).await.unwrap().unwrap();
    assert_eq!((cleared.content, cleared.sha256), (None, one.sha256));
    world.stop().await;
}
