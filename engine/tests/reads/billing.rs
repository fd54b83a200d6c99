//! Tests of charges and statements: debits are credits plus fees, and running nodes count.

use crate::world::{MARKET, SECOND, World, caller};
use kubebid_proto::v1;

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
    assert_eq!((sums(over.charged).0, sums(over.accrued).0, over.to_us), (1_500_000, 0, 2 * HOUR * SECOND));
}
