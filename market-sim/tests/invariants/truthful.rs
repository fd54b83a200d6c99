//! I13, one-node bids, offers first, `HighestLosing`: nobody gains more than Δ by bidding anything but what a node
//! is worth to it. Every book of a small grid, every lie.

use kubebid_core::command::{PlaceBid, RuleChange, RuleValue};
use kubebid_core::state_dump::AllocationState;
use kubebid_core::units::{AccountName, BidId, MarketName, Micros};
use kubebid_core::{Auction, Command, Exchange, Price, StampedCommand};

/// Around each other's Δ of 5 %, and far apart.
const PRICES: [u64; 8] = [100, 104, 105, 108, 110, 116, 140, 200];
const RESERVES: [u64; 5] = [0, 100, 106, 112, 150];
const MARKET: &str = "h100/eu";

#[test]
fn nobody_gains_more_than_the_increment_by_a_lie_about_one_unit() {
    for reserve in RESERVES {
        brute_force(&[reserve]);
    }
}

#[test]
fn nobody_gains_more_than_the_increment_by_a_lie_about_two_units_of_one_reserve() {
    for reserve in RESERVES {
        brute_force(&[reserve, reserve]);
    }
}

/// Of units with different reserves it is not so. Both tenants pay the dear unit's reserve where both ceilings reach
/// it; the one with the cheap unit escapes it by a ceiling just below, to which the other prefers the dear unit (R3).
#[test]
fn a_ceiling_just_below_a_dear_reserve_pays_with_two_units() {
    let empty = opened(&[0, 150]).snapshot();
    assert_eq!(paid(&empty, [Some(200), Some(200), None]), [Some(150), Some(150), None]);
    assert_eq!(paid(&empty, [Some(145), Some(200), None]), [Some(0), Some(150), None]);
}

/// Three tenants who bid one after another.
fn brute_force(reserves: &[u64]) {
    let empty = opened(reserves).snapshot();
    let all = || PRICES.into_iter();
    for worths in all().flat_map(|a| all().flat_map(move |b| all().map(move |c| [a, b, c]))) {
        let honest = paid(&empty, worths.map(Some));
        for liar in 0..worths.len() {
            let worth = worths[liar];
            let gain = |paid: Option<u64>| paid.map_or(0, |paid| worth as i64 - paid as i64);
            for lie in all().map(Some).chain([None]) {
                let mut ceilings = worths.map(Some);
                ceilings[liar] = lie;
                let (truth, lied) = (gain(honest[liar]), gain(paid(&empty, ceilings)[liar]));
                assert!(
                    lied - truth <= (worth.div_ceil(20)) as i64,
                    "reserves {reserves:?}, worths {worths:?}: tenant {liar} bids {lie:?} and gains {lied}, not {truth}"
                );
            }
        }
    }
}

fn submit(exchange: &mut Exchange, command: Command) -> u64 {
    exchange.apply(&StampedCommand { at: Micros(0), key: None, command }).seq.0
}

/// No protection behind readiness, no time to notice: what a bid brings is there at once.
fn opened(reserves: &[u64]) -> Exchange {
    let mut exchange = Exchange::new();
    let rule = |name: &str, value| RuleChange { name: name.into(), value: RuleValue::Number(value) };
    let rules =
        vec![rule("tick", 1), rule("min_runtime_us", 0), rule("notice_us", 0), rule("min_charge_us", 0)];
    submit(&mut exchange, Command::OpenMarket { market: MarketName::new(MARKET), rules });
    for (n, reserve) in reserves.iter().enumerate() {
        let provider = AccountName::new(&format!("p{n}"));
        let market = MarketName::new(MARKET);
        submit(&mut exchange, Command::PutOffer { provider, market, capacity: 1, reserve: Price(*reserve) });
    }
    exchange
}

/// What each tenant pays per node-hour in the end, where it has a node.
fn paid(empty: &[u8], ceilings: [Option<u64>; 3]) -> [Option<u64>; 3] {
    let mut exchange = Exchange::restore(empty).expect("its own snapshot");
    let bids = [0, 1, 2].map(|tenant: usize| {
        let ceiling = ceilings[tenant]?;
        let bid = submit(&mut exchange, one_node(tenant, ceiling));
        report_all_ready(&mut exchange);
        Some(BidId(bid))
    });
    bids.map(|bid| {
        let node = *exchange.view_bid(bid?).expect("a bid stays").live.first()?;
        Some(exchange.view_allocation(node).expect("a node of the bid").price.0)
    })
}

fn one_node(tenant: usize, ceiling: u64) -> Command {
    Command::PlaceBid(PlaceBid {
        tenant: AccountName::new(&format!("t{tenant}")),
        markets: Some(vec![MarketName::new(MARKET)]),
        instance_type: None,
        ceiling: Price(ceiling),
        min_nodes: 1,
        max_nodes: 1,
        time_in_force: Default::default(),
        expire_at: None,
        on_preemption: Default::default(),
    })
}

/// A node that becomes ready may be displaced, and whoever displaces it gets one that has to become ready.
fn report_all_ready(exchange: &mut Exchange) {
    loop {
        let starting = exchange.dump().allocations.into_iter();
        let mut starting = starting.filter(|node| node.state == AllocationState::Starting);
        let Some(node) = starting.next() else { return };
        submit(exchange, Command::ReportReady { allocation: node.allocation, by: None });
    }
}
