//! Short stories about prices under notice, locked ceilings, resting units, regrouping, and charges of claims.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at the events it is about")]

use kubebid_core::answer::{Answer, Outcome};
use kubebid_core::command::{
    CancelMode, Command, OnPreemption, PlaceBid, RestingUnits, RuleChange, StampedCommand, TimeInForce,
};
use kubebid_core::event::{DropCause, EndReason, Fact};
use kubebid_core::numbers::Supply;
use kubebid_core::state_dump::{AllocationDump, BidDump};
use kubebid_core::units::{
    AccountId, AccountName, AllocationId, BidId, MarketId, MarketName, Micros, UnitId, UnitName,
};
use kubebid_core::{Auction, Price, Reject};
use kubebid_model::{Model, invariants};

const EU: &str = "h100/eu";
const US: &str = "h100/us";
const CENT: u64 = 10_000;

/// Markets in which a node is protected for 900 s, with the default rules otherwise, and in which each command leaves the invariants intact.
struct Story {
    model: Model,
    now: Micros,
}

fn cents(cents: u64) -> Price {
    Price(cents * CENT)
}

impl Story {
    fn new() -> Story {
        let mut story = Story { model: Model::new(), now: Micros(0) };
        for market in [EU, US] {
            let rules = vec![RuleChange::number("min_runtime_us", 900 * 1_000_000)];
            story.ok(Command::OpenMarket { market: MarketName::new(market), rules });
        }
        story
    }

    fn apply(&mut self, command: Command) -> Answer {
        let before = self.model.clone();
        let command = StampedCommand { at: self.now, key: None, command };
        let answer = self.model.apply(&command);
        let verdict = invariants::check(&self.model)
            .and_then(|()| invariants::check_step(&before, &command, &answer, &self.model));
        assert_eq!(verdict, Ok(()), "{command:?}: {:#?}", answer.events);
        answer
    }

    fn ok(&mut self, command: Command) -> Vec<Fact> {
        let answer = self.apply(command);
        assert_eq!(answer.outcome, Outcome::Accepted);
        answer.events.into_iter().map(|event| event.fact).collect()
    }

    fn refused(&mut self, command: Command) -> Reject {
        match self.apply(command).outcome {
            Outcome::Rejected(reason) => reason,
            outcome => panic!("{outcome:?}"),
        }
    }

    fn wait(&mut self, seconds: u64) -> Vec<Fact> {
        self.now = self.now.after(Micros::seconds(seconds));
        self.ok(Command::AdvanceTime)
    }

    fn offer(&mut self, provider: &str, market: &str, capacity: u64, reserve: u64) -> Vec<Fact> {
        self.ok(Command::PutOffer {
            provider: AccountName::new(provider),
            market: MarketName::new(market),
            capacity,
            reserve: cents(reserve),
        })
    }

    /// Places a bid in both markets or in one, and returns its number.
    fn bid(&mut self, tenant: &str, markets: &[&str], ceiling: u64, nodes: (u32, u32)) -> BidId {
        self.bid_with(tenant, markets, ceiling, nodes, OnPreemption::Requeue)
    }

    fn bid_with(
        &mut self,
        tenant: &str,
        markets: &[&str],
        ceiling: u64,
        (min_nodes, max_nodes): (u32, u32),
        on_preemption: OnPreemption,
    ) -> BidId {
        let answer = self.apply(Command::PlaceBid(PlaceBid {
            tenant: AccountName::new(tenant),
            markets: Some(markets.iter().map(|name| MarketName::new(name)).collect()),
            instance_type: None,
            ceiling: cents(ceiling),
            min_nodes,
            max_nodes,
            time_in_force: TimeInForce::Gtc,
            expire_at: None,
            on_preemption,
        }));
        assert_eq!(answer.outcome, Outcome::Accepted);
        BidId(answer.seq.0)
    }

    /// Reports all nodes ready, and waits until none is protected.
    fn settle_in(&mut self) {
        for node in self.model.dump().allocations {
            self.apply(Command::ReportReady { allocation: node.allocation, by: None });
        }
        self.wait(900);
    }

    fn node(&self, number: u64) -> AllocationDump {
        let found = self.model.dump().allocations.into_iter().find(|a| a.allocation == AllocationId(number));
        found.expect("not ended")
    }

    fn picture(&self, bid: BidId) -> BidDump {
        self.model.dump().bids.into_iter().find(|b| b.bid == bid).expect("placed")
    }

    fn unit_id(&self, number: u64) -> UnitId {
        UnitId { market: MarketId(0), provider: AccountId(0), number }
    }

    fn supply(&self) -> Supply {
        self.model.dump().markets[0].supply
    }
}

fn amend(tenant: &str, bid: BidId, ceiling: u64) -> Command {
    let tenant = AccountName::new(tenant);
    Command::AmendBid { tenant, bid, ceiling: Some(cents(ceiling)), max_nodes: None }
}

fn cancel(tenant: &str, bid: BidId, mode: CancelMode) -> Command {
    Command::CancelBid { tenant: AccountName::new(tenant), bid, mode }
}

fn unit(provider: &str, number: u64) -> UnitName {
    UnitName { market: MarketName::new(EU), provider: AccountName::new(provider), number }
}

fn resume(provider: &str, unit: UnitName) -> Command {
    Command::ResumeUnits { provider: AccountName::new(provider), units: RestingUnits::One(unit) }
}

fn resume_all(provider: &str) -> Command {
    let units = RestingUnits::AllIn(MarketName::new(EU));
    Command::ResumeUnits { provider: AccountName::new(provider), units }
}

/// Returns the cause of each dropped claim, with what it cost.
fn dropped(facts: &[Fact]) -> Vec<(DropCause, u128)> {
    let cost = |place: usize| match facts.get(place + 1) {
        Some(Fact::Charged { debit, .. }) => debit.0,
        _ => 0,
    };
    let drop = |(place, fact): (usize, &Fact)| match fact {
        Fact::ClaimDropped { cause, .. } => Some((*cause, cost(place))),
        _ => None,
    };
    facts.iter().enumerate().filter_map(drop).collect()
}

#[test]
fn a_node_pays_the_price_from_before_its_notice_and_a_raise_under_notice_locks_the_ceiling() {
    let mut story = Story::new();
    story.offer("p", EU, 1, 100);
    let t1 = story.bid("t1", &[EU], 200, (1, 1));
    story.bid("t2", &[EU], 190, (1, 1));
    assert_eq!(story.node(1).billed, cents(190));
    story.settle_in();

    story.ok(amend("t1", t1, 100));
    assert_eq!(story.node(1).billed, cents(190), "the demand of t2 is met, and the price is frozen");
    story.wait(299);
    let kept = story.ok(amend("t1", t1, 200));
    assert_eq!(dropped(&kept), [(DropCause::HolderRaised, 0)]);
    assert_eq!(story.node(1).billed, cents(190));
    let end = story.now.after(Micros::seconds(900));
    assert_eq!(story.picture(t1).ceiling_locked_until, end);

    story.wait(899);
    assert_eq!(story.refused(amend("t1", t1, 150)), Reject::Protected);
    story.wait(1);
    story.ok(amend("t1", t1, 150));
}

#[test]
fn a_raise_that_is_not_enough_to_stay_locks_the_ceiling_and_a_lock_never_ends_earlier() {
    let mut story = Story::new();
    story.offer("p", EU, 1, 100);
    let t1 = story.bid("t1", &[EU], 200, (1, 1));
    story.settle_in();
    story.bid("t2", &[EU], 300, (1, 1));
    story.ok(amend("t1", t1, 210));
    let end = story.picture(t1).ceiling_locked_until;
    assert_eq!(end, story.now.after(Micros::seconds(900)));
    assert_eq!(story.refused(amend("t1", t1, 50)), Reject::Protected, "before BELOW_RESERVE");

    let shorter = RuleChange::number("min_runtime_us", 1);
    story.ok(Command::ChangeRules { market: MarketName::new(EU), rules: vec![shorter] });
    story.ok(amend("t1", t1, 220));
    assert_eq!(story.picture(t1).ceiling_locked_until, end);
    story.ok(cancel("t1", t1, CancelMode::Release));
}

#[test]
fn under_a_notice_by_the_provider_the_price_may_fall_and_never_rises() {
    let mut story = Story::new();
    story.offer("p", EU, 2, 100);
    story.bid("t1", &[EU], 300, (2, 2));
    let t2 = story.bid("t2", &[EU], 200, (1, 1));
    story.settle_in();
    assert_eq!(story.node(2).billed, cents(200));

    let withdrawn = Command::WithdrawUnit { provider: AccountName::new("p"), unit: unit("p", 2) };
    story.ok(withdrawn);
    let numbers = story.model.dump().markets[0].numbers;
    assert_eq!(numbers.highest_losing, cents(200), "t1 still has what it asks for");
    story.ok(amend("t2", t2, 250));
    assert_eq!((story.node(1).billed, story.node(2).billed), (cents(250), cents(200)));
    story.ok(amend("t2", t2, 150));
    assert_eq!((story.node(1).billed, story.node(2).billed), (cents(150), cents(150)));

    story.wait(300);
    let numbers = story.model.dump().markets[0].numbers;
    assert_eq!(numbers.highest_losing, cents(300), "the node has ended");
}

#[test]
fn a_unit_whose_node_does_not_start_rests_until_its_provider_resumes_it() {
    let mut story = Story::new();
    story.offer("p", EU, 2, 100);
    let t1 = story.bid("t1", &[EU], 300, (1, 2));
    story.ok(Command::ReportReady { allocation: AllocationId(2), by: None });
    let facts = story.wait(900);
    assert!(facts.contains(&Fact::UnitResting { unit: story.unit_id(1) }), "{facts:?}");
    assert_eq!(story.supply(), Supply { total: 2, allocated: 1, resting: 1, ..Supply::default() });
    assert_eq!(story.picture(t1).unmet, 1, "the unit is not given to the same bid again");

    story.offer("p", EU, 2, 200);
    assert_eq!(story.supply().resting, 1, "an offer resumes no unit");
    assert_eq!(story.refused(resume("p", unit("p", 3))), Reject::UnknownUnit);
    assert_eq!(story.refused(resume("t1", unit("p", 1))), Reject::NotYours);
    assert_eq!(story.refused(resume("p", unit("p", 2))), Reject::NotResting);
    let facts = story.ok(resume("p", unit("p", 1)));
    assert_eq!(facts[0], Fact::UnitResumed { unit: story.unit_id(1) });
    assert!(matches!(facts[1], Fact::Allocated { .. }), "{facts:?}");
    assert!(story.ok(resume_all("p")).is_empty(), "no unit rests");
}

#[test]
fn resting_units_are_withdrawn_first_and_leave_at_once() {
    let mut story = Story::new();
    story.offer("p", EU, 4, 100);
    story.bid("t1", &[EU], 300, (1, 3));
    story.wait(900);
    assert_eq!((story.supply().allocated, story.supply().resting), (1, 3));
    story.wait(900);
    assert_eq!((story.supply().allocated, story.supply().resting), (0, 4));
    story.ok(resume("p", unit("p", 3)));
    let removed = |facts: &[Fact]| -> Vec<u64> {
        let unit = |fact: &Fact| match fact {
            Fact::UnitRemoved { unit } => Some(unit.number),
            _ => None,
        };
        facts.iter().filter_map(unit).collect()
    };
    assert_eq!(removed(&story.offer("p", EU, 3, 100)), [4]);
    let lost = Command::ReportUnitLost { provider: AccountName::new("p"), unit: unit("p", 2) };
    assert_eq!(removed(&story.ok(lost)), [2]);
    assert_eq!(removed(&story.ok(Command::CloseMarket { market: MarketName::new(EU) })), [1]);
    let facts = story.wait(900);
    assert_eq!(removed(&facts), [3], "in a closing market no unit rests");
    assert!(facts.iter().any(|fact| matches!(fact, Fact::MarketEnded { .. })), "{facts:?}");
}

#[test]
fn only_a_searching_bid_with_a_minimum_above_one_can_regroup() {
    let mut story = Story::new();
    story.offer("p", EU, 2, 100);
    let gang = story.bid_with("t1", &[EU], 200, (2, 2), OnPreemption::Close);
    let plain = story.bid("t2", &[EU], 190, (1, 1));
    story.settle_in();
    let withdrawn = Command::WithdrawUnit { provider: AccountName::new("p"), unit: unit("p", 2) };
    story.ok(withdrawn);
    assert_eq!(story.picture(gang).max_nodes, 1);
    assert_eq!(story.refused(cancel("t2", gang, CancelMode::Regroup)), Reject::NotYours);
    assert_eq!(story.refused(cancel("t1", gang, CancelMode::Regroup)), Reject::NotAGang, "one node is left");
    story.ok(cancel("t1", gang, CancelMode::Keep));
    assert_eq!(story.refused(cancel("t1", gang, CancelMode::Regroup)), Reject::Closed);
    assert_eq!(story.refused(cancel("t2", plain, CancelMode::Regroup)), Reject::NotAGang);
}

#[test]
fn regrouping_ends_all_nodes_and_gives_back_what_notices_took_from_max_nodes() {
    let mut story = Story::new();
    story.offer("p", EU, 3, 100);
    let gang = story.bid_with("t1", &[EU], 200, (2, 3), OnPreemption::Close);
    story.settle_in();
    story.bid("t2", &[EU], 300, (1, 1));
    assert_eq!(story.picture(gang).max_nodes, 2);
    let facts = story.ok(cancel("t1", gang, CancelMode::Regroup));
    let ended = |fact: &Fact| match fact {
        Fact::Ended { node, max_nodes, reason: EndReason::Regrouped } => {
            Some((node.allocation.0, *max_nodes))
        }
        _ => None,
    };
    assert_eq!(facts.iter().filter_map(ended).collect::<Vec<_>>(), [(1, 2), (2, 2), (3, 3)]);
    let is = story.picture(gang);
    assert!(is.searching);
    assert_eq!((is.held, is.unmet, is.max_nodes), (2, 1, 3), "two units are free, and its minimum is two");
}

#[test]
fn a_claim_is_free_of_charge_if_its_bid_takes_a_unit_of_the_same_provider() {
    for (other, cost) in [("p", 0), ("q", 83_333)] {
        let mut story = Story::new();
        story.offer("p", EU, 1, 100);
        story.bid("t1", &[EU], 100, (1, 1));
        story.settle_in();
        story.bid("t2", &[EU, US], 200, (1, 1));
        let facts = story.offer(other, US, 1, 100);
        assert_eq!(dropped(&facts), [(DropCause::Rescued, cost)], "{other}");
    }
}

#[test]
fn an_account_that_begins_to_sell_pays_for_its_claims() {
    let mut story = Story::new();
    story.offer("p", EU, 1, 100);
    story.bid("t1", &[EU], 100, (1, 1));
    story.settle_in();
    story.bid("t2", &[EU], 200, (1, 1));
    let facts = story.offer("t2", EU, 1, 500);
    assert_eq!(dropped(&facts), [(DropCause::OwnSupply, 83_333)]);
}

#[test]
fn a_claim_that_is_lowered_away_costs_what_it_did_before_the_command() {
    let mut story = Story::new();
    story.offer("p", EU, 1, 100);
    story.bid("t1", &[EU], 110, (1, 1));
    story.settle_in();
    let t2 = story.bid("t2", &[EU], 200, (1, 1));
    story.bid("t3", &[EU], 150, (1, 1));
    let facts = story.ok(amend("t2", t2, 50));
    assert_eq!(dropped(&facts), [(DropCause::Lowered, 150 * CENT as u128 / 12)]);
}
