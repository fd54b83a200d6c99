//! Tests of charges and statements: debits are credits plus fees, and running nodes count.

use crate::world::{MARKET, SECOND, World, caller};
use futures_util::{StreamExt, stream};
use kubebid_proto::v1;
use prost::Message;

const HOUR: u64 = 3600;

async fn charges(world: &World, who: &str, request: v1::ListChargesRequest) -> Vec<v1::Charge> {
    world.api.list_charges(&caller(who), request).await.unwrap().charges
}

async fn statement(world: &World, who: &str, request: v1::GetStatementRequest) -> v1::GetStatementResponse {
    world.api.get_statement(&caller(who), request).await.unwrap()
}

/// A world in which t1 has run a node for an hour and a half and given it back. Its second node has run
/// since half past one.
async fn billed() -> World {
    let world = World::new().await;
    let fee = v1::MarketRules { fee_bps: Some(1000), ..Default::default() };
    let change = v1::ChangeRulesRequest { market: MARKET.to_owned(), rules: Some(fee) };
    world.api.change_rules(&world.admin.caller, change).await.unwrap();
    world.offer("p1", 2, SECOND).await;
    let request = v1::PlaceBidRequest {
        markets: vec![MARKET.to_owned()],
        ceiling_micros: 2 * SECOND,
        max_nodes: 1,
        labels: [("team".to_owned(), "vision".to_owned())].into(),
        ..Default::default()
    };
    world.place("t1", request).await;
    world.ready("t1", 1).await;
    world.at(HOUR * 3 / 2).await;
    world.release("t1", 1).await;
    world.bid("t1", 1, 2 * SECOND).await;
    world.ready("t1", 2).await;
    world.at(HOUR * 7 / 2).await;
    world
}

#[tokio::test]
async fn charges_have_hourly_segments_and_running_nodes_come_last() {
    let world = billed().await;
    let charges = charges(&world, "t1", v1::ListChargesRequest::default()).await;
    assert_eq!(charges.len(), 2);
    let (done, running) = (&charges[0], &charges[1]);
    assert_eq!(done.reason(), v1::charge::Reason::Released);
    assert_eq!((done.debit_micros, done.fee_micros, done.credit_micros), (1_500_000, 150_000, 1_350_000));
    assert_eq!(done.labels["team"], "vision");
    assert_eq!((running.reason, running.seq, running.allocation), (None, None, Some(2)));
    assert_eq!((running.from_us, running.to_us), (HOUR * 3 / 2 * SECOND, HOUR * 7 / 2 * SECOND));
    assert_eq!(
        (running.debit_micros, running.fee_micros, running.credit_micros),
        (2_000_000, 200_000, 1_800_000)
    );
    for charge in &charges {
        assert_eq!(
            charge.debit_micros,
            charge.segments.iter().map(|segment| segment.amount_micros).sum::<u64>()
        );
        assert_eq!(charge.segments[0].from_us, charge.from_us);
        assert_eq!(charge.segments.last().unwrap().to_us, charge.to_us);
        assert!(charge.segments.is_sorted_by(|a, b| a.to_us == b.from_us));
        assert!(charge.segments.iter().all(|segment| segment.mean_price_micros == SECOND));
    }
    let hours = |charge: &v1::Charge| charge.segments.iter().map(|s| s.to_us / SECOND).collect::<Vec<_>>();
    assert_eq!(hours(done), [HOUR, HOUR * 3 / 2]);
    assert_eq!(hours(running), [2 * HOUR, 3 * HOUR, HOUR * 7 / 2]);
}

#[tokio::test]
async fn the_provider_sees_what_it_earns_and_not_from_whom() {
    let world = billed().await;
    for charge in charges(&world, "p1", v1::ListChargesRequest::default()).await {
        assert_eq!((charge.bid, charge.tenant, charge.labels.len()), (None, None, 0));
        assert!(charge.allocation.is_some() && charge.credit_micros > 0);
    }
    assert!(charges(&world, "t2", v1::ListChargesRequest::default()).await.is_empty());
    assert!(charges(&world, "p2", v1::ListChargesRequest::default()).await.is_empty());
    let everybody = v1::ListChargesRequest { account: Some(String::new()), ..Default::default() };
    assert_eq!(charges(&world, "admin", everybody.clone()).await.len(), 2);
    let refused = world.api.list_charges(&caller("t1"), everybody).await.unwrap_err();
    assert_eq!(refused.code.word(), "FORBIDDEN");
}

#[tokio::test]
async fn pages_of_charges_go_from_the_done_to_the_running() {
    let world = billed().await;
    let mut found = Vec::new();
    let mut request = v1::ListChargesRequest { page_size: 1, brief: true, ..Default::default() };
    loop {
        let page = world.api.list_charges(&caller("t1"), request.clone()).await.unwrap();
        found.extend(page.charges);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let allocations: Vec<_> = found.iter().map(|charge| charge.allocation).collect();
    assert_eq!(allocations, [Some(1), Some(2)]);
    assert!(found.iter().all(|charge| charge.segments.is_empty()));
    let done = v1::ListChargesRequest { final_only: true, ..Default::default() };
    assert_eq!(charges(&world, "t1", done).await.len(), 1);
    let labelled =
        v1::ListChargesRequest { labels: [("team".into(), "vision".into())].into(), ..Default::default() };
    assert_eq!(charges(&world, "t1", labelled).await.len(), 1);
    let past = v1::ListChargesRequest { to_us: HOUR * SECOND, ..Default::default() };
    assert!(charges(&world, "t1", past).await.is_empty());
}

#[tokio::test]
async fn a_statement_has_the_debits_of_a_tenant_and_the_credits_of_a_provider() {
    let world = billed().await;
    let tenant = statement(&world, "t1", v1::GetStatementRequest::default()).await;
    let provider = statement(&world, "p1", v1::GetStatementRequest::default()).await;
    let sums = |s: Option<v1::get_statement_response::Sums>| {
        let s = s.unwrap();
        (s.debit_micros, s.credit_micros, s.fee_micros, s.node_time_us / SECOND)
    };
    assert_eq!(sums(tenant.charged), (1_500_000, 0, 0, HOUR * 3 / 2));
    assert_eq!(sums(tenant.accrued), (2_000_000, 0, 0, 2 * HOUR));
    assert_eq!(sums(provider.charged), (0, 1_350_000, 150_000, HOUR * 3 / 2));
    assert_eq!(sums(provider.accrued), (0, 1_800_000, 200_000, 2 * HOUR));
    assert_eq!((tenant.account.as_str(), tenant.to_us), ("t1", HOUR * 7 / 2 * SECOND));

    let split = v1::GetStatementRequest { by_label: "team".into(), ..Default::default() };
    let split = statement(&world, "t1", split).await;
    let lines: Vec<_> = split
        .lines
        .iter()
        .map(|line| (line.label_value.as_deref(), sums(line.charged).0, sums(line.accrued).0))
        .collect();
    assert_eq!(lines, [(None, 0, 2_000_000), (Some("vision"), 1_500_000, 0)]);

    let over = v1::GetStatementRequest { to_us: 2 * HOUR * SECOND, ..Default::default() };
    let over = statement(&world, "t1", over).await;
    assert_eq!((sums(over.charged).0, sums(over.accrued).0, over.to_us), (2_000_000, 0, 2 * HOUR * SECOND));
    assert!(over.closed && !tenant.closed);
    let rest = v1::GetStatementRequest { from_us: 2 * HOUR * SECOND, ..Default::default() };
    let rest = statement(&world, "t1", rest).await;
    assert_eq!((sums(rest.charged).0, sums(rest.accrued).0), (0, 1_500_000));
    // Within the present hour the figures are not final: half an hour of the running node.
    let minutes = (HOUR * 3 + 900) * SECOND;
    let last = v1::GetStatementRequest { from_us: minutes, ..Default::default() };
    assert_eq!(sums(statement(&world, "t1", last).await.accrued).0, 250_000);
    let last = v1::GetStatementRequest { from_us: 3 * HOUR * SECOND, to_us: minutes, ..Default::default() };
    let last = statement(&world, "t1", last).await;
    assert_eq!((sums(last.accrued).0, last.closed), (250_000, false));
    let future = v1::GetStatementRequest { from_us: 9 * HOUR * SECOND, ..Default::default() };
    assert!(statement(&world, "t1", future).await.lines.is_empty());
}

#[tokio::test]
async fn a_period_that_ends_before_it_begins_is_refused() {
    let world = billed().await;
    let (from_us, to_us) = (2 * SECOND, SECOND);
    let refused = [
        world
            .api
            .get_statement(&caller("t1"), v1::GetStatementRequest { from_us, to_us, ..Default::default() })
            .await
            .err(),
        world
            .api
            .list_charges(&caller("t1"), v1::ListChargesRequest { from_us, to_us, ..Default::default() })
            .await
            .err(),
        world
            .api
            .list_events(&caller("t1"), v1::ListEventsRequest { from_us, to_us, ..Default::default() })
            .await
            .err(),
        world
            .api
            .list_price_history(
                &caller("t1"),
                v1::ListPriceHistoryRequest {
                    market: MARKET.to_owned(),
                    from_us,
                    to_us,
                    ..Default::default()
                },
            )
            .await
            .err(),
    ];
    for refused in refused {
        let refused = refused.expect("a refusal");
        assert_eq!((refused.code.word(), &refused.message[..23]), ("BAD_FIELD", "from_us is after to_us:"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_with_thousands_of_hours_are_read_in_pages_that_have_each_of_them_once() {
    const NODES: u64 = 12;
    const HOURS: u64 = 2500;
    let world = World::new().await;
    world.offer("p1", NODES as u32, SECOND).await;
    world.bid("t1", NODES as u32, 2 * SECOND).await;
    for node in 1..=NODES {
        world.ready("t1", node).await;
    }
    world.at(HOURS * HOUR).await;
    for node in 1..=NODES / 2 {
        world.release("t1", node).await;
    }
    let (mut found, mut pages, mut page_token) = (Vec::new(), 0, String::new());
    loop {
        let request = v1::ListChargesRequest { page_size: 1000, page_token, ..Default::default() };
        let page = world.api.list_charges(&caller("t1"), request).await.unwrap();
        let segments: usize = page.charges.iter().map(|charge| charge.segments.len()).sum();
        assert!(segments <= 10_000 && !page.charges.is_empty(), "{segments} segments");
        pages += 1;
        found.extend(page.charges);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert!(pages > 3, "{pages} pages");
    assert!(found.iter().all(|charge| charge.segments.len() == HOURS as usize));
    let allocations: Vec<u64> = found.iter().map(|charge| charge.allocation.unwrap()).collect();
    assert_eq!(allocations, (1..=NODES).collect::<Vec<_>>());
    let ended: Vec<bool> = found.iter().map(|charge| charge.reason.is_some()).collect();
    assert_eq!(ended, (1..=NODES).map(|node| node <= NODES / 2).collect::<Vec<_>>());
    // Without segments they fit into one page, also one that has room for the ended nodes only.
    for page_size in [1000, NODES as u32 / 2] {
        let brief = v1::ListChargesRequest { brief: true, page_size, ..Default::default() };
        let page = world.api.list_charges(&caller("t1"), brief).await.unwrap();
        assert_eq!(page.charges.len(), page_size.min(NODES as u32) as usize);
        assert_eq!(page.next_page_token.is_empty(), page_size == 1000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_with_thousands_of_lines_has_pages_of_them_and_the_sums_of_all_on_each() {
    const NODES: u32 = 4000;
    let world = World::new().await;
    world.offer("p1", NODES, SECOND).await;
    let nodes = stream::iter(0..NODES).map(|node| {
        let world = &world;
        async move {
            let labels = [("job".to_owned(), format!("{node:0>250}"))].into();
            let (markets, ceiling_micros) = (vec![MARKET.to_owned()], 2 * SECOND);
            let bid =
                v1::PlaceBidRequest { markets, ceiling_micros, max_nodes: 1, labels, ..Default::default() };
            world.place("t1", bid).await
        }
    });
    assert_eq!(nodes.buffer_unordered(64).count().await, NODES as usize);
    stream::iter(1..=u64::from(NODES)).for_each_concurrent(64, |node| world.ready("t1", node)).await;
    world.at(HOUR).await;
    let (mut values, mut pages, mut page_token) = (Vec::new(), 0, String::new());
    loop {
        let request = v1::GetStatementRequest { by_label: "job".into(), page_token, ..Default::default() };
        let page = statement(&world, "t1", request).await;
        assert!(page.encoded_len() < (1 << 20) + 1024, "{} bytes", page.encoded_len());
        assert_eq!(page.accrued.unwrap().debit_micros, u64::from(NODES) * SECOND);
        values.extend(page.lines.into_iter().filter_map(|line| line.label_value));
        pages += 1;
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert!(pages > 1, "{pages} pages");
    assert_eq!(values, (0..NODES).map(|node| format!("{node:0>250}")).collect::<Vec<_>>());
}
