//! Tests that an account learns nothing of other accounts: through every method, their things look as if
//! they did not exist.

use crate::fields::{self, Field, Value};
use crate::raw;
use crate::world::{Caller, MARKET, World, bid, refused};
use kubebid_proto::v1;
use std::collections::BTreeMap;
use tonic::Code;
use v1::event::Kind;
use v1::token::Role;

/// Names of things of one kind: first those of others, in several states, and last some that do not
/// exist.
struct Things {
    field: &'static str,
    names: Vec<Value>,
}

fn number(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Text(text) => text.clone(),
    }
}

/// An answer, without the name of the thing that was asked for and without values that change by
/// themselves.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Refused {
        code: Code,
        reason: String,
        field: Option<String>,
        limit: Option<String>,
        message: String,
        numbered: bool,
    },
    Answered(Vec<u8>),
}

async fn ask(caller: &Caller, method: &str, message: Vec<u8>, thing: &Value) -> (Told, Option<u64>) {
    match raw::call(caller, method, message).await {
        Err(status) => {
            let refused = refused(&status);
            let bare = |word: &str| word.trim_matches(['"', ',', ';']).to_owned();
            let words = refused.message.split(' ').map(|word| match bare(word) == number(thing) {
                true => "THIS",
                false => word,
            });
            let message = words.collect::<Vec<_>>().join(" ");
            let numbered = refused.seq.is_some();
            let crate::world::Refused { code, reason, field, limit, .. } = refused;
            (Told::Refused { code, reason, field, limit, message, numbered }, refused.seq)
        }
        Ok(answer) => (Told::Answered(answer.unwrap_or_default().to_vec()), None),
    }
}

/// Returns some values for the other fields of a request.
fn variations(field: &Field) -> Vec<Value> {
    if field.is_text() {
        return vec![Value::Text("x".to_owned())];
    }
    [1, 41, 1 << 31, 1 << 63, u64::MAX].map(Value::Number).to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn things_of_other_accounts_cannot_be_distinguished_from_missing_ones() {
    let world = World::start().await;
    // t1 has much of everything, t2 has little. A third account must not see a difference.
    let (t1, t2) = (world.tenant("t1").await, world.tenant("t2").await);
    let p1 = world.provider("p1").await;
    p1.offer(3, 1_000_000).await;
    let large = t1.place(v1::PlaceBidRequest { max_nodes: 9, ..bid(9_000_000) }).await.unwrap().bid;
    let small = t2.place(bid(2_000_000)).await.unwrap().bid;
    let unbounded = v1::PlaceBidRequest { markets: Vec::new(), instance_type: "none".to_owned(), ..bid(100) };
    let unbounded = t1.place(unbounded).await.unwrap().bid;
    let closed = t2.place(bid(100)).await.unwrap().bid;
    let cancel = v1::CancelBidRequest { bid: closed, mode: 1, ..Default::default() };
    t2.bids().cancel_bid(cancel).await.unwrap();
    t1.allocations()
        .report_ready(v1::ReportReadyRequest { allocation: 1, ..Default::default() })
        .await
        .unwrap();
    let release = v1::ReleaseAllocationRequest { allocation: 2, ..Default::default() };
    let seq = t1.allocations().release_allocation(release).await.unwrap().into_inner().seq;
    t1.bid(large, seq).await;

    // The limits let it make many wrong requests.
    let watcher = world.limited(
        "watcher",
        &[Role::Tenant, Role::Provider],
        v1::AccountLimits {
            nodes_wanted: Some(40),
            requests_per_second: Some(1_000_000),
            ceiling_micros: Some(u64::MAX >> 1),
            ..v1::AccountLimits::default()
        },
    );
    let watcher = watcher.await;
    let numbers = |numbers: &[u64]| numbers.iter().map(|number| Value::Number(*number)).collect::<Vec<_>>();
    let texts = |texts: &[&str]| texts.iter().map(|text| Value::Text((*text).to_owned())).collect::<Vec<_>>();
    let things = [
        // The last name of each list does not exist. Among the bids, 1 is the number of another
        // command.
        Things { field: "bid", names: numbers(&[large, small, unbounded, closed, 1, 987_654]) },
        Things { field: "bids", names: numbers(&[large, small, unbounded, closed, 1, 987_654]) },
        Things { field: "allocation", names: numbers(&[1, 2, 3, 987_654]) },
        Things { field: "allocations", names: numbers(&[1, 2, 3, 987_654]) },
        Things {
            field: "unit",
            names: texts(&["h100/eu:p1#1", "h100/eu:p1#2", "h100/eu:p1#3", "h100/eu:p1#987654"]),
        },
        Things { field: "account", names: texts(&["t1", "t2", "p1", "nobody"]) },
    ];
    let all = fields::all();
    let methods =
        all.iter().filter(|field| !field.method.contains("Admin") && !field.method.contains("Inject"));
    let mut refusals: BTreeMap<u64, (usize, String)> = BTreeMap::new();
    let (mut asked, mut commands) = (0, 0);
    for field in methods {
        let Some(things) = things.iter().find(|things| things.field == field.name()) else { continue };
        let others =
            all.iter().filter(|other| other.method == field.method && other.place() != field.place());
        let others: Vec<&Field> =
            others.filter(|other| !other.is_repeated() && (other.is_number() || other.is_text())).collect();
        let mut requests = vec![Vec::new()];
        for other in others {
            // Left out: with a key, a request for one thing would be a repeat of the request
            // for another; `min_seq` would wait.
            if !["client_key", "min_seq", "page_token", "cursor", "from_start"].contains(&other.name()) {
                requests.extend(variations(other).into_iter().map(|value| other.set(&[value])));
            }
        }
        for (n, rest) in requests.into_iter().enumerate() {
            world.engine.wait_projected(world.seq().await).await;
            let mut expected = None;
            for thing in things.names.iter().rev() {
                // The answer of a watch may contain what happened in the meantime.
                let message = [rest.clone(), field.set(std::slice::from_ref(thing))].concat();
                if field.method.contains("/Watch") {
                    continue;
                }
                let (told, seq) = ask(&watcher, field.method, message, thing).await;
                asked += 1;
                if let Some(seq) = seq {
                    refusals.insert(seq, (commands, format!("{} {n} {thing:?}", field.method)));
                }
                match &expected {
                    None => expected = Some(told),
                    Some(expected) => {
                        assert_eq!(&told, expected, "{} {} {thing:?} {n}", field.method, field.place())
                    }
                }
            }
            commands += 1;
        }
    }
    assert!(asked > 400, "only {asked} requests were made");

    // The account's own events must give the same reason as the answer to each command.
    let seq = world.seq().await;
    let mut said: BTreeMap<usize, (String, String)> = BTreeMap::new();
    let mut request = v1::ListEventsRequest { page_size: 1000, min_seq: seq, ..Default::default() };
    let mut seen = 0;
    loop {
        let page = watcher.events().list_events(request.clone()).await.unwrap().into_inner();
        for event in &page.events {
            let Some(Kind::Rejected(rejected)) = &event.kind else { continue };
            let (command, what) = &refusals[&event.seq];
            let before = said.entry(*command).or_insert_with(|| (rejected.reason.clone(), what.clone()));
            assert_eq!(rejected.reason, before.0, "the events of {what} and {}", before.1);
            seen += 1;
        }
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(seen, refusals.len());
    assert!(seen > 50, "only {seen} commands were refused");
    for list in [v1::ListBidsRequest::default()] {
        assert!(watcher.bids().list_bids(list).await.unwrap().into_inner().bids.is_empty());
    }
    assert_eq!(t1.bid(large, seq).await.max_nodes, 8, "nothing was changed");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn amending_the_bid_of_another_account_reveals_nothing_about_it() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let limits = v1::AccountLimits { nodes_wanted: Some(10), ..v1::AccountLimits::default() };
    let t2 = world.limited("t2", &[Role::Tenant], limits).await;
    let wanted = t1.place(v1::PlaceBidRequest { max_nodes: 500, ..bid(9_000_000) }).await.unwrap().bid;
    let none = v1::PlaceBidRequest { markets: Vec::new(), instance_type: "none".to_owned(), ..bid(100) };
    let unbounded = t1.place(none).await.unwrap().bid;
    for bid in [wanted, unbounded, 987_654] {
        for (ceiling_micros, max_nodes) in [
            (None, Some(500)),
            (None, Some(511)),
            (None, Some(1000)),
            (Some(1 << 63), None),
            (Some(100), Some(11)),
        ] {
            let amend = v1::AmendBidRequest { bid, ceiling_micros, max_nodes, ..Default::default() };
            let answer = t2.bids().amend_bid(amend).await;
            let refusal = refused(&answer.unwrap_err());
            assert_eq!(
                (&refusal.reason[..], refusal.seq.is_some()),
                ("UNKNOWN_BID", true),
                "{bid} {refusal:?}"
            );
        }
    }
    assert_eq!(t1.bid(wanted, 0).await.markets, [MARKET]);
    world.stop().await;
}
