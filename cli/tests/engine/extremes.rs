//! Nothing that is journaled may be impossible to apply: every command with the least and the most that its fields
//! carry, in a process with little memory, and once more at a restart.

use crate::process::{Engine, sqlite, token_of};
use kubebid_client::v1::cancel_bid_request::Mode;
use kubebid_client::v1::{self, token::Role};
use kubebid_client::{Client, Error};

const MEMORY: u64 = 512 << 20;
const MARKET: &str = "h100/eu";
/// The limits of an account are not what is tried here.
const FLAGS: [&str; 8] = [
    "--clock",
    "stepped",
    "--limit-refusals-per-second",
    "1000000",
    "--limit-units-per-command",
    "1000000",
    "--limit-units-offered",
    "10000000",
];
const SMALL: [u32; 4] = [0, 1, i32::MAX as u32, u32::MAX];
const LARGE: [u64; 5] = [0, 1, 1_000, i64::MAX as u64, u64::MAX];
/// A thousand years, the longest span that the market knows.
const SPAN_MAX: u64 = 1000 * 366 * 24 * 3_600_000_000;
const DEAREST: u64 = 50_000_000_000_000;

/// Taken or refused for what it says; an engine that is away is neither.
fn answered<T>(answer: Result<T, Error>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(Error::Refused(_)) => None,
        Err(other) => panic!("{other}"),
    }
}

/// Rules of which one is at an extreme.
fn rules() -> Vec<v1::MarketRules> {
    let none = v1::MarketRules::default();
    let mut all = Vec::new();
    for n in LARGE.into_iter().chain([SPAN_MAX, DEAREST, 1_000_000_000_000_000]) {
        all.push(v1::MarketRules { tick_micros: Some(n), ..none });
        all.push(v1::MarketRules { ceiling_max_micros: Some(n), ..none });
        all.push(v1::MarketRules { min_runtime_us: Some(n), ..none });
        all.push(v1::MarketRules { notice_us: Some(n), ..none });
        all.push(v1::MarketRules { start_timeout_us: Some(n), ..none });
        all.push(v1::MarketRules { min_charge_us: Some(n), ..none });
    }
    for n in SMALL.into_iter().chain([10_000, 1_000_000]) {
        all.push(v1::MarketRules { increment_bps: Some(n), ..none });
        all.push(v1::MarketRules { bid_nodes_max: Some(n), ..none });
        all.push(v1::MarketRules { fee_bps: Some(n), ..none });
    }
    all
}

fn bid(ceiling_micros: u64, max_nodes: u32) -> v1::PlaceBidRequest {
    v1::PlaceBidRequest {
        markets: vec![MARKET.to_owned()],
        ceiling_micros,
        max_nodes,
        ..v1::PlaceBidRequest::default()
    }
}

async fn change_rules(admin: &Client) {
    for (n, rules) in rules().into_iter().enumerate() {
        let open = v1::OpenMarketRequest { market: format!("h100/{n}"), rules: Some(rules) };
        answered(admin.open_market(open).await);
        let change = v1::ChangeRulesRequest { market: MARKET.to_owned(), rules: Some(rules) };
        answered(admin.change_rules(change).await);
    }
    // As much as is allowed of all that a node may cost.
    let most = v1::MarketRules {
        ceiling_max_micros: Some(DEAREST),
        bid_nodes_max: Some(u32::MAX),
        min_runtime_us: Some(SPAN_MAX),
        notice_us: Some(SPAN_MAX),
        start_timeout_us: Some(SPAN_MAX),
        min_charge_us: Some(366 * 24 * 3_600_000_000),
        fee_bps: Some(10_000),
        ..v1::MarketRules::default()
    };
    let change = v1::ChangeRulesRequest { market: MARKET.to_owned(), rules: Some(most) };
    assert!(answered(admin.change_rules(change).await).is_some());
}

async fn offer(provider: &Client) {
    for capacity in SMALL.into_iter().chain([100_000, 0, 3]) {
        for reserve_micros in [u64::MAX, i64::MAX as u64, 0, 100] {
            let market = MARKET.to_owned();
            let request = v1::PutOfferRequest { market, capacity, reserve_micros, ..Default::default() };
            answered(provider.put_offer(request).await);
        }
    }
    for number in LARGE {
        let unit = format!("{MARKET}:p#{number}");
        let request = v1::WithdrawUnitRequest { unit: unit.clone(), ..Default::default() };
        answered(provider.withdraw_unit(request).await);
        answered(provider.report_unit_lost(v1::ReportUnitLostRequest { unit, ..Default::default() }).await);
    }
}

async fn trade(tenant: &Client) {
    for ceiling in LARGE.into_iter().chain([DEAREST]) {
        for nodes in SMALL {
            let placed = answered(tenant.place_bid(bid(ceiling, nodes)).await);
            let all = v1::PlaceBidRequest {
                min_nodes: Some(nodes),
                expire_at_us: Some(ceiling),
                time_in_force: v1::place_bid_request::TimeInForce::Gtt.into(),
                ..bid(ceiling, nodes)
            };
            answered(tenant.place_bid(all).await);
            let Some(placed) = placed else { continue };
            for max_nodes in SMALL {
                let amend = v1::AmendBidRequest {
                    bid: placed.bid,
                    ceiling_micros: Some(ceiling),
                    max_nodes: Some(max_nodes),
                    ..Default::default()
                };
                answered(tenant.amend_bid(amend).await);
            }
            if ceiling != DEAREST {
                for mode in [Mode::Keep, Mode::Release] {
                    let cancel =
                        v1::CancelBidRequest { bid: placed.bid, mode: mode.into(), ..Default::default() };
                    answered(tenant.cancel_bid(cancel).await);
                }
            }
        }
    }
    for allocation in LARGE.into_iter().chain(2..20) {
        answered(tenant.report_ready(v1::ReportReadyRequest { allocation, ..Default::default() }).await);
    }
    for allocation in [0, 2, u64::MAX] {
        let release = v1::ReleaseAllocationRequest { allocation, ..Default::default() };
        answered(tenant.release_allocation(release).await);
    }
}

/// Nodes run meanwhile at the highest price.
async fn advance(admin: &Client) {
    for to_us in LARGE.into_iter().chain([1 << 62, SPAN_MAX, SPAN_MAX + 1]) {
        answered(admin.advance_time(v1::AdvanceTimeRequest { to_us }).await);
    }
    let mut now = admin.advance_time(v1::AdvanceTimeRequest { to_us: 0 }).await.expect("an answer").at_us;
    for _ in 0..2 {
        now += SPAN_MAX;
        let moved = admin.advance_time(v1::AdvanceTimeRequest { to_us: now }).await.expect("it is allowed");
        assert_eq!(moved.at_us, now);
    }
}

/// All that was done is in the tables.
async fn read(admin: &Client) {
    let seq = admin.advance_time(v1::AdvanceTimeRequest { to_us: 0 }).await.expect("an answer").seq;
    let account = Some("t".to_owned());
    let request = v1::GetStatementRequest { account, min_seq: seq, ..Default::default() };
    // A long step of time has many rows, and each try waits for them for as long as the client does.
    let mut late = None;
    for _ in 0..5 {
        match admin.get_statement(request.clone()).await {
            Ok(statement) => return assert!(statement.seq >= seq),
            Err(Error::Late(error)) => late = Some(error),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_at_its_extremes_can_be_applied_and_applied_again_in_512_mb() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Engine::start(&sqlite(folder.path()), folder.path(), &FLAGS);
    engine.limit_memory(MEMORY);
    let admin = engine.admin().await;
    let provider = engine.client(&token_of(&admin, "p", Role::Provider).await);
    let tenant = engine.client(&token_of(&admin, "t", Role::Tenant).await);
    let open = v1::OpenMarketRequest { market: MARKET.to_owned(), rules: None };
    admin.open_market(open).await.expect("the market opens");
    change_rules(&admin).await;
    offer(&provider).await;
    trade(&tenant).await;
    advance(&admin).await;
    read(&admin).await;
    assert_eq!(engine.ended(), None);
    // Killed, so that all of it is applied again.
    engine.restart(&FLAGS);
    engine.limit_memory(MEMORY);
    read(&engine.admin().await).await;
    assert_eq!(engine.ended(), None);
}
