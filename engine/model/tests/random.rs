//! Random markets from a seed: the invariants hold after each command, and nothing but the order of
//! commands matters.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at the events it is about")]

mod stream;

use kubebid_core::answer::{Answer, Outcome};
use kubebid_core::command::{Command, OnPreemption, PlaceBid, StampedCommand, TimeInForce};
use kubebid_core::event::{ChargeReason, DropCause, EndReason, Event, Fact};
use kubebid_core::state_dump::StateDump;
use kubebid_core::units::{AccountName, BidId, MarketId, Micros};
use kubebid_core::{Auction, Price, Reject};
use kubebid_model::{Model, invariants};
use std::collections::BTreeSet;
use stream::Stream;

const SEEDS: u64 = 24;
/// Each quote is tried on a copy of the market, several times.
const SEEDS_OF_QUOTES: u64 = 4;
const COMMANDS: usize = 180;

fn advance(at: Micros) -> StampedCommand {
    StampedCommand { at, key: None, command: Command::AdvanceTime }
}

/// Plays a stream. Calls back with each command and the state before and after it.
fn play(seed: u64, see: impl FnMut(&Model, &StampedCommand, &Answer, &Model)) {
    play_stream(Stream::new(seed), see);
}

fn play_stream(mut stream: Stream, mut see: impl FnMut(&Model, &StampedCommand, &Answer, &Model)) {
    let mut model = Model::new();
    for _ in 0..COMMANDS {
        let command = stream.next(&model.dump(), model.names());
        let before = model.clone();
        let answer = model.apply(&command);
        stream.see(&answer, model.names());
        see(&before, &command, &answer, &model);
    }
}

#[test]
fn the_invariants_hold_after_each_command() {
    for seed in 0..SEEDS {
        play(seed, |before, command, answer, after| {
            let verdict = invariants::check(after)
                .and_then(|()| invariants::check_step(before, command, answer, after));
            if let Err(broken) = verdict {
                panic!("seed {seed}, command {} {command:?}: {broken}\n{:#?}", answer.seq, answer.events);
            }
        });
    }
}

/// Returns the seeds of streams with funds: some, or those of `SEEDS_WITH_FUNDS`, as in `1000..1200`.
#[expect(clippy::disallowed_methods, reason = "which streams are played, not what they do")]
fn seeds_with_funds() -> std::ops::Range<u64> {
    let given = std::env::var("SEEDS_WITH_FUNDS").ok();
    let range = given.as_ref().and_then(|range| range.split_once(".."));
    range.map_or(0..SEEDS, |(from, to)| from.parse().expect("a number")..to.parse().expect("a number"))
}

#[test]
fn the_invariants_hold_with_funds() {
    for seed in seeds_with_funds() {
        play_stream(Stream::with_funds(seed), |before, command, answer, after| {
            let verdict = invariants::check(after)
                .and_then(|()| invariants::check_step(before, command, answer, after));
            if let Err(broken) = verdict {
                panic!("seed {seed}, command {} {command:?}: {broken}\n{:#?}", answer.seq, answer.events);
            }
        });
    }
}

#[test]
fn no_account_is_ever_overspent_if_none_is_cut() {
    for seed in seeds_with_funds() {
        play_stream(Stream::with_gifts(seed), |_, _, answer, after| {
            for funds in after.dump().funded {
                assert!(funds.available() >= 0, "seed {seed}, after {}: {funds:?}", answer.seq);
                assert!(
                    funds.funds.0 >= funds.reserved_amount(),
                    "seed {seed}, after {}: {funds:?}",
                    answer.seq
                );
            }
        });
    }
}

#[test]
fn the_streams_show_what_funds_do() {
    let mut seen = BTreeSet::new();
    for seed in seeds_with_funds() {
        play_stream(Stream::with_funds(seed), |_, _, answer, _| {
            for event in &answer.events {
                seen.insert(match &event.fact {
                    Fact::NoticeStarted { reason, .. } => format!("notice {}", reason.word()),
                    Fact::Charged { reason, .. } => format!("charge {}", reason.word()),
                    Fact::Rejected { reason } => format!("refused {reason}"),
                    fact => fact.kind().word().to_owned(),
                });
            }
        });
    }
    let wanted = [
        "notice FUNDS",
        "charge FUNDS",
        "notice_moved",
        "funded",
        "budget_set",
        "budget_renewed",
        "renewal_set",
        "refused NO_FUNDS",
        "refused BAD_AMOUNT",
        "refused KEY_REQUIRED",
        "refused BAD_RULE",
    ];
    let missing: Vec<&str> = wanted.into_iter().filter(|what| !seen.contains(*what)).collect();
    assert!(missing.is_empty(), "no stream shows {missing:?}");
}

#[test]
fn time_that_is_told_more_often_changes_nothing() {
    time_changes_nothing(0..SEEDS, Stream::new);
}

#[test]
fn time_that_is_told_more_often_changes_nothing_with_funds() {
    time_changes_nothing(seeds_with_funds(), Stream::with_funds);
}

fn time_changes_nothing(seeds: std::ops::Range<u64>, stream: fn(u64) -> Stream) {
    for seed in seeds {
        let (mut plain, mut patient) = (Model::new(), Model::new());
        let mut stream = stream(seed);
        let mut now = Micros(0);
        for _ in 0..COMMANDS {
            let command = stream.next(&plain.dump(), plain.names());
            let expected = plain.apply(&command);
            stream.see(&expected, plain.names());
            // Bids are named by command numbers, which must stay the same. So the patient bid
            // is tried on a copy.
            let mut events: Vec<Event> = Vec::new();
            let mut halfway = patient.clone();
            let half = Micros(now.0 + command.at.0.saturating_sub(now.0) / 2);
            events.extend(halfway.apply(&advance(half)).events);
            let split = halfway.dump();
            events.extend(halfway.apply(&advance(command.at)).events);
            let known = expected.events.iter().take(events.len());
            assert!(known.eq(events.iter()), "seed {seed}: {command:?}\n{events:#?}");
            assert!(split.totals.debits <= plain.dump().totals.debits);
            let repeated = patient.apply(&command);
            assert_eq!(repeated, expected, "seed {seed}: the same command, another answer");
            assert_eq!(patient.dump(), plain.dump());
            now = expected.at;
        }
    }
}

fn newcomer(
    market: MarketId,
    model: &Model,
    ceiling: Price,
    max_nodes: u32,
    min_nodes: u32,
) -> StampedCommand {
    let command = Command::PlaceBid(PlaceBid {
        tenant: AccountName::new("newcomer"),
        markets: Some(vec![model.names().market(market).clone()]),
        instance_type: None,
        ceiling,
        min_nodes,
        max_nodes,
        time_in_force: TimeInForce::Gtc,
        expire_at: None,
        on_preemption: OnPreemption::Requeue,
    });
    StampedCommand { at: Micros(0), key: None, command }
}

/// Returns the number of nodes and claims that the newcomer has after settling.
fn gets(model: &Model, bid: &StampedCommand) -> u32 {
    let mut model = model.clone();
    let answer = model.apply(bid);
    assert_eq!(answer.outcome, Outcome::Accepted, "{bid:?}");
    let dump: StateDump = model.dump();
    let bid = dump.bids.iter().find(|b| b.bid == BidId(answer.seq.0)).expect("placed");
    bid.held + bid.claimed
}

#[test]
fn quotes_are_exact() {
    for seed in 0..SEEDS_OF_QUOTES {
        play(seed, |_, _, answer, model| {
            for market in 0..model.dump().markets.len() as u32 {
                let market = MarketId(market);
                for nodes in [1, 2, 3] {
                    let Some(price) = model.entry_price(market, nodes) else { continue };
                    let what = format!("seed {seed}, after {}: {nodes} for {price}", answer.seq);
                    assert_eq!(gets(model, &newcomer(market, model, price, nodes, 1)), nodes, "{what}");
                    assert_eq!(gets(model, &newcomer(market, model, price, nodes, nodes)), nodes, "{what}");
                    let tick = stream::TICK;
                    if price.0 > tick {
                        let less = newcomer(market, model, Price(price.0 - tick), nodes, nodes);
                        assert_eq!(gets(model, &less), 0, "{what} less a tick");
                    }
                }
            }
        });
    }
}

/// The opposite may be true: a gang takes no orphans, so the node comes back before the gang evicts it.
#[test]
fn no_notice_is_started_and_then_rescinded_in_one_settlement() {
    for seed in 0..SEEDS {
        play(seed, |_, command, answer, _| {
            let mut started = Vec::new();
            for Event { at, fact } in &answer.events {
                match fact {
                    Fact::NoticeStarted { node, .. } => started.push((at, node)),
                    Fact::NoticeRescinded { node, .. } => {
                        let both = started.contains(&(at, node));
                        assert!(!both, "seed {seed}: {command:?}\n{:#?}", answer.events);
                    }
                    // The settling of an instant ends with its prices. Those of the
                    // command come after it.
                    Fact::PriceChanged { .. } => started.clear(),
                    _ => {}
                }
            }
        });
    }
}

/// Returns the words for what the events show, one by one.
fn shown(events: &[Event]) -> Vec<String> {
    let charged = |place: usize| {
        let next = events.get(place + 1).map(|event| &event.fact);
        matches!(next, Some(Fact::Charged { reason: ChargeReason::ClaimDropped, .. }))
    };
    let word = |(place, event): (usize, &Event)| match &event.fact {
        Fact::ClaimDropped { cause: DropCause::Rescued, .. } if charged(place) => {
            "claim RESCUED, charged".into()
        }
        Fact::ClaimDropped { cause, .. } => format!("claim {}", cause.word()),
        Fact::Ended { reason, .. } => format!("node {}", reason.word()),
        fact => fact.kind().word().to_owned(),
    };
    events.iter().enumerate().map(word).collect()
}

#[test]
fn the_streams_show_every_end_of_a_node_and_of_a_claim() {
    let mut seen = BTreeSet::new();
    let mut refused = BTreeSet::new();
    let with_funds = (0..SEEDS).map(Stream::with_funds);
    for stream in (0..4 * SEEDS).map(Stream::new).chain(with_funds) {
        play_stream(stream, |_, _, answer, _| {
            seen.extend(shown(&answer.events));
            if let Outcome::Rejected(reason) = answer.outcome {
                refused.insert(reason);
            }
        });
    }
    let claims = DropCause::ALL.iter().map(|cause| format!("claim {}", cause.word()));
    let nodes = EndReason::ALL.iter().map(|reason| format!("node {}", reason.word()));
    let others = ["claim RESCUED, charged", "unit_resting", "unit_resumed"].map(String::from);
    let missing: Vec<String> =
        claims.chain(nodes).chain(others).filter(|what| !seen.contains(what)).collect();
    assert!(missing.is_empty(), "no stream shows {missing:?}");
    for reason in [Reject::NotAGang, Reject::NotResting, Reject::Protected, Reject::BelowReserve] {
        assert!(refused.contains(&reason), "no stream shows {reason}");
    }
}
