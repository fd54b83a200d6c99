//! I10, plain one-market bids: raising my ceiling never loses me a node; more supply never raises the price. Both at
//! the instant of the raise and of the supply: later, whoever waited longer may be protected for longer.
//! In random stories, after each command, whatever could be raised or added is, on a copy.

use crate::generate::{Family, story};
use kubebid_core::answer::Outcome;
use kubebid_core::event::NoticeReason;
use kubebid_core::state_dump::AllocationDump;
use kubebid_core::units::{AccountName, BidId, MarketId};
use kubebid_core::{Auction, Command, Exchange, Price, StampedCommand};
use market_sim::jsonl::{format_command, parse_command};

const STORIES: u64 = 60;
const LENGTH: u64 = 60;
const TICK: u64 = 10;

/// Stories whose bids name one market and have no minimum.
fn is_plain(family: Family) -> bool {
    match family {
        Family::Plain | Family::Ties | Family::Times | Family::Churn | Family::Amendments => true,
        Family::Gangs | Family::Markets | Family::Mixed | Family::Funds => false,
    }
}

#[test]
fn raising_a_ceiling_never_loses_a_node() {
    after_each_command(|exchange| {
        for bid in exchange.dump().bids {
            let view = exchange.view_bid(bid.bid).expect("a bid of the dump");
            if !view.searching && view.live.is_empty() && view.under_notice.is_empty() {
                continue;
            }
            for ceiling in [view.ceiling.0 + TICK, view.ceiling.0 * 21 / 20 / TICK * TICK + TICK, 5000] {
                if ceiling <= view.ceiling.0 {
                    continue;
                }
                let tenant = exchange.names().account(view.tenant).clone();
                let ceiling = Some(Price(ceiling));
                let raise = Command::AmendBid { tenant, bid: bid.bid, ceiling, max_nodes: None };
                let Some(raised) = with(exchange, &raise) else { continue };
                no_fewer(exchange, &raised, bid.bid)
                    .map_err(|complaint| format!("{complaint} by {raise:?}"))?;
            }
        }
        Ok(())
    });
}

/// Nodes and claims together, and nodes, also those under notice.
fn no_fewer(before: &Exchange, after: &Exchange, bid: BidId) -> Result<(), String> {
    let count = |exchange: &Exchange| {
        let view = exchange.view_bid(bid).expect("a bid stays");
        (view.live.len() + view.claims.len(), view.live.len() + view.under_notice.len())
    };
    let (had, has) = (count(before), count(after));
    let kept = has.0 >= had.0 && has.1 >= had.1;
    if kept { Ok(()) } else { Err(format!("bid {bid} had {had:?} and has {has:?}")) }
}

#[test]
fn more_supply_never_raises_the_price() {
    after_each_command(|exchange| {
        for market in exchange.dump().markets {
            let name = exchange.names().market(market.market).clone();
            if excused(exchange, market.market) {
                continue;
            }
            for reserve in (0..12).map(|step| Price(step * 100)) {
                let offer = Command::PutOffer {
                    provider: AccountName::new("somebody new"),
                    market: name.clone(),
                    capacity: 1,
                    reserve,
                };
                let Some(supplied) = with(exchange, &offer) else { continue };
                let (before, after) = (price(exchange, market.market), price(&supplied, market.market));
                if after > before {
                    return Err(format!("the price rose from {before} to {after} by {offer:?}"));
                }
            }
        }
        Ok(())
    });
}

/// Where it is not so, as the two tests below show: a market with nothing to sell, and notices whose holders do
/// not search for another node, or whose provider gave them, so that nobody bids against their claimants.
fn excused(exchange: &Exchange, market: MarketId) -> bool {
    let searches = |node: &AllocationDump| {
        let bid = exchange.view_bid(node.bid).expect("a node's bid");
        bid.searching && !bid.closes_on_preemption
    };
    let mut nodes = exchange.dump().allocations.into_iter().filter(|node| node.unit.market == market);
    let (numbers, supply) = exchange.market_numbers(market);
    let nothing = numbers.floor.is_none() && supply.allocated + supply.claimed == 0;
    let is_losing = |node: &AllocationDump| {
        let notice = exchange.view_allocation(node.allocation).and_then(|view| view.notice);
        searches(node) && notice.is_some_and(|notice| notice.reason == NoticeReason::Outbid)
    };
    nothing || nodes.any(|node| node.deadline.is_some() && !is_losing(&node))
}

/// A market that opens with these commands, all at the same instant.
fn played(commands: &[&str]) -> Exchange {
    let mut exchange = Exchange::new();
    let open = r#""OpenMarket", "market": "h100/eu", "rules": {"min_runtime_us": 0}"#;
    for command in [open].iter().chain(commands) {
        let line = format!(r#"{{"at_us": 0, "command": {command}}}"#);
        exchange.apply(&parse_command(&line).expect("a command"));
    }
    exchange
}

#[test]
fn the_first_supply_of_a_market_brings_its_price() {
    assert_eq!(price(&played(&[]), MarketId(0)), Price(0));
    let offer = r#""PutOffer", "provider": "p", "market": "h100/eu", "capacity": 1, "reserve": 100"#;
    assert_eq!(price(&played(&[offer]), MarketId(0)), Price(100));
}

#[test]
fn supply_that_rescues_one_who_would_not_search_again_may_raise_the_price() {
    let taken = [
        r#""PutOffer", "provider": "p", "market": "h100/eu", "capacity": 1, "reserve": 100"#,
        r#""PlaceBid", "tenant": "a", "markets": ["h100/eu"], "ceiling": 200, "max_nodes": 1, "on_preemption": "CLOSE""#,
        r#""ReportReady", "allocation": 1"#,
        r#""PlaceBid", "tenant": "b", "markets": ["h100/eu"], "ceiling": 500, "max_nodes": 1"#,
    ];
    // Nobody bids against b's claim: it will pay the reserve.
    assert_eq!(price(&played(&taken), MarketId(0)), Price(100));
    let more = r#""PutOffer", "provider": "q", "market": "h100/eu", "capacity": 1, "reserve": 200"#;
    // b takes the new unit, a keeps its own: the dearer of the two sets the price of both.
    let rescued = played(&[&taken[..], &[more]].concat());
    assert_eq!(price(&rescued, MarketId(0)), Price(200));
}

fn price(exchange: &Exchange, market: MarketId) -> Price {
    exchange.market_numbers(market).0.market_price
}

/// A copy that has executed one command more, at the same instant; none where it is refused.
fn with(exchange: &Exchange, command: &Command) -> Option<Exchange> {
    let mut copy = Exchange::restore(&exchange.snapshot()).expect("its own snapshot");
    let at = copy.now();
    let answer = copy.apply(&StampedCommand { at, key: None, command: command.clone() });
    (answer.outcome == Outcome::Accepted).then_some(copy)
}

/// Where it does not hold, panics with the shortest story it can find.
fn after_each_command(holds: impl Fn(&Exchange) -> Result<(), String>) {
    let play = |story: &[StampedCommand]| {
        let mut exchange = Exchange::new();
        story.iter().try_for_each(|command| {
            exchange.apply(command);
            holds(&exchange)
        })
    };
    for family in Family::ALL.into_iter().filter(|family| is_plain(*family)) {
        for seed in 1..=STORIES {
            let mut story = story(family, seed, LENGTH);
            if play(&story).is_ok() {
                continue;
            }
            while play(&story[..story.len() - 1]).is_err() {
                story.pop();
            }
            for n in (0..story.len()).rev() {
                let mut shorter = story.clone();
                (shorter[n].command, shorter[n].key) = (Command::AdvanceTime, None);
                if play(&shorter).is_err() {
                    story = shorter;
                }
            }
            let lines: Vec<String> = story.iter().map(format_command).collect();
            let complaint = play(&story).expect_err("the shortened story still fails");
            panic!("{family:?} with seed {seed}:\n{}\n\n{complaint}", lines.join("\n"));
        }
    }
}
