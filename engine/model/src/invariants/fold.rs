//! The events of one step, folded over the state before it: they give the state after it (I17), change `max_nodes` and
//! searches as stated (I21), and end each claim in one row of R15's table or with a charge (I28).

use super::{Verdict, require, step};
use crate::state::Model;
use kubebid_core::command::OnPreemption;
use kubebid_core::event::{ChargeReason, CloseReason, DropCause, EndReason, Event, Fact, Node};
use kubebid_core::money::Amount;
use kubebid_core::units::{AllocationId, BidId, UnitId};
use std::collections::{BTreeMap, BTreeSet};

/// The state that the events describe so far.
struct Fold<'a> {
    before: &'a Model,
    after: &'a Model,
    bids: BTreeMap<BidId, Search>,
    nodes: BTreeMap<AllocationId, Held>,
    claims: BTreeMap<AllocationId, BidId>,
    resting: BTreeSet<UnitId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Search {
    max_nodes: u32,
    searching: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    bid: BidId,
    /// None if the node is live. True if a rescission raises `max_nodes` (R7).
    notice: Option<bool>,
}

pub(super) fn check(before: &Model, events: &[Event], after: &Model) -> Verdict {
    let mut fold = Fold {
        before,
        after,
        bids: searches(before),
        nodes: nodes(before),
        claims: claims(before),
        resting: resting(before),
    };
    for place in 0..events.len() {
        fold.see(&events[place..])?;
    }
    let Fold { bids, nodes: held, claims: claimed, resting: rests, .. } = fold;
    require(bids == searches(after), || format!("I21: the events tell of {bids:?}"))?;
    require(held == nodes(after), || format!("I17: the events tell of {held:?}"))?;
    require(claimed == claims(after), || format!("I28: the events tell of the claims {claimed:?}"))?;
    require(rests == resting(after), || format!("R11: the events tell of {rests:?}"))
}

fn searches(model: &Model) -> BTreeMap<BidId, Search> {
    let search = |(id, bid): (&BidId, &crate::state::Bid)| {
        (*id, Search { max_nodes: bid.max_nodes, searching: bid.searching })
    };
    model.bids.iter().map(search).collect()
}

fn nodes(model: &Model) -> BTreeMap<AllocationId, Held> {
    let held = |(id, a): (&AllocationId, &crate::state::Allocation)| {
        (*id, Held { bid: a.bid, notice: a.notice.as_ref().map(|notice| notice.raises_max_nodes) })
    };
    model.allocations.iter().map(held).collect()
}

fn claims(model: &Model) -> BTreeMap<AllocationId, BidId> {
    let claimed = model.allocations.iter().filter_map(|(id, a)| Some((*id, a.claim()?.bid)));
    claimed.collect()
}

fn resting(model: &Model) -> BTreeSet<UnitId> {
    model.market_ids().flat_map(|market| model.resting_units(market)).collect()
}

impl Fold<'_> {
    /// Folds the first of these events. The others tell how its command went on.
    fn see(&mut self, events: &[Event]) -> Verdict {
        match &events[0].fact {
            Fact::BidPlaced { bidder, max_nodes, .. } => {
                self.bids.insert(bidder.bid, Search { max_nodes: *max_nodes, searching: true });
                Ok(())
            }
            Fact::BidAmended { bidder, max_nodes, .. } => {
                self.amended(bidder.bid, *max_nodes);
                Ok(())
            }
            Fact::BidClosed { bidder, max_nodes, reason } => self.closed(bidder.bid, *max_nodes, *reason),
            Fact::Allocated { node } => {
                self.nodes.insert(node.allocation, Held { bid: node.bid, notice: None });
                Ok(())
            }
            Fact::NoticeStarted { node, max_nodes, .. } => {
                let took = self.closes(node.bid);
                let expected = self.bids[&node.bid].max_nodes - u32::from(took);
                self.nodes.insert(node.allocation, Held { bid: node.bid, notice: Some(took) });
                self.set_max_nodes("a notice", node, expected, *max_nodes)
            }
            Fact::NoticeRescinded { node, max_nodes } => {
                let took = self.nodes[&node.allocation].notice == Some(true);
                let expected = self.bids[&node.bid].max_nodes + u32::from(took);
                self.nodes.insert(node.allocation, Held { bid: node.bid, notice: None });
                self.set_max_nodes("a rescission", node, expected, *max_nodes)
            }
            Fact::Claimed { node, by, was, .. } => {
                let displaced = self.claims.insert(node.allocation, by.bid);
                require(displaced == was.map(|was| was.bid), || {
                    format!("I28: the claim of {displaced:?} on {} ended without a word", node.allocation)
                })
            }
            Fact::ClaimDropped { node, by, cause } => {
                let had = self.claims.remove(&node.allocation);
                require(had == Some(by.bid), || format!("I28: {} had no claim on {node:?}", by.bid))?;
                self.claim_is_charged_as_stated(node, by.bid, *cause, &events[1..])
            }
            Fact::Ended { node, max_nodes, reason } => self.ended(node, *max_nodes, *reason, &events[1..]),
            Fact::UnitResting { unit } => {
                require(self.resting.insert(*unit), || format!("R11: {unit:?} rests already"))
            }
            Fact::UnitResumed { unit } => {
                require(self.resting.remove(unit), || format!("R11: {unit:?} did not rest"))
            }
            Fact::UnitRemoved { unit } => {
                self.resting.remove(unit);
                Ok(())
            }
            Fact::MarketOpened { .. }
            | Fact::RulesChanged { .. }
            | Fact::MarketClosing { .. }
            | Fact::MarketEnded { .. }
            | Fact::OfferPut { .. }
            | Fact::UnitAdded { .. }
            | Fact::UnitLeaving { .. }
            | Fact::UnitBack { .. }
            | Fact::Ready { .. }
            | Fact::Charged { .. }
            | Fact::PriceChanged { .. }
            | Fact::NoticeMoved { .. }
            | Fact::Funded { .. }
            | Fact::BudgetSet { .. }
            | Fact::BudgetRenewed { .. }
            | Fact::RenewalSet { .. }
            | Fact::Rejected { .. }
            | Fact::Repeated { .. } => Ok(()),
        }
    }

    fn closes(&self, bid: BidId) -> bool {
        self.after.bids[&bid].on_preemption == OnPreemption::Close
    }

    fn amended(&mut self, bid: BidId, max_nodes: u32) {
        let search = self.bids.get_mut(&bid).expect("placed");
        if search.max_nodes != max_nodes {
            search.max_nodes = max_nodes;
            for held in self.nodes.values_mut().filter(|held| held.bid == bid) {
                held.notice = held.notice.map(|_| false);
            }
        }
    }

    fn closed(&mut self, bid: BidId, max_nodes: u32, reason: CloseReason) -> Verdict {
        let live = self.nodes.values().filter(|held| held.bid == bid && held.notice.is_none()).count();
        let claims = self.claims.values().filter(|claimer| **claimer == bid).count();
        let search = self.bids.get_mut(&bid).expect("placed");
        require(search.searching, || format!("R14: bid {bid} was closed before"))?;
        let expected = if reason == CloseReason::Ioc { (live + claims) as u32 } else { search.max_nodes };
        *search = Search { max_nodes: expected, searching: false };
        require(max_nodes == expected, || format!("I21: bid {bid} closed with {max_nodes}, not {expected}"))
    }

    fn ended(&mut self, node: &Node, max_nodes: u32, reason: EndReason, next: &[Event]) -> Verdict {
        let held = self.nodes.remove(&node.allocation);
        let held = held.ok_or_else(|| format!("I15: {} ended twice", node.allocation))?;
        let now = self.bids[&node.bid].max_nodes;
        let expected = match (held.notice, reason) {
            (None, EndReason::Released) => now - 1,
            (None, EndReason::UnitLost | EndReason::StartTimeout) => now - u32::from(self.closes(node.bid)),
            (Some(true), EndReason::Regrouped) => now + 1,
            (None | Some(_), _) => now,
        };
        self.set_max_nodes("an end", node, expected, max_nodes)?;
        let Some(heir) = self.claims.remove(&node.allocation) else { return Ok(()) };
        #[expect(clippy::wildcard_enum_match_arm, reason = "an allocation is looked for")]
        let given = next.iter().find_map(|event| match &event.fact {
            Fact::Allocated { node } => Some((node.bid, node.unit)),
            _ => None,
        });
        require(given == Some((heir, node.unit)), || format!("I16: {:?} was not given to {heir}", node.unit))
    }

    fn set_max_nodes(&mut self, what: &str, node: &Node, expected: u32, told: u32) -> Verdict {
        self.bids.get_mut(&node.bid).expect("placed").max_nodes = expected;
        require(told == expected, || {
            format!("I21: {what} of {} leaves {told} nodes, not {expected}", node.allocation)
        })
    }

    /// Checks I28 for a claim that was dropped: it is in a row of R15's table, or it is charged.
    fn claim_is_charged_as_stated(
        &self,
        node: &Node,
        by: BidId,
        cause: DropCause,
        next: &[Event],
    ) -> Verdict {
        let (charged, next) =
            match next.first().map(|event| &event.fact) {
                Some(Fact::Charged {
                    node: of, tenant, debit, reason: ChargeReason::ClaimDropped, ..
                }) if of == node && *tenant == self.after.bids[&by].tenant => (*debit, &next[1..]),
                _ => (Amount::ZERO, next),
            };
        let is_free = match cause {
            DropCause::HolderBack
            | DropCause::HolderRaised
            | DropCause::ReserveRaised
            | DropCause::CapacityWithdrawn
            | DropCause::UnitLost
            | DropCause::StartTimeout => true,
            DropCause::Lowered
            | DropCause::Shrunk
            | DropCause::Cancelled
            | DropCause::Expired
            | DropCause::Regrouped
            | DropCause::OwnSupply => false,
            DropCause::Rescued => next.first().is_some_and(|event| {
                matches!(&event.fact, Fact::Allocated { node: taken }
                    if taken.bid == by && taken.unit.provider == node.unit.provider)
            }),
        };
        let price = step::price_of_claim(self.before, self.after, by, node);
        let full = price.over(self.after.rules(node.unit.market).min_charge).round();
        let expected = if is_free { Amount::ZERO } else { full };
        require(charged == expected, || {
            format!("I28: {cause:?} of {by} on {} costs {charged}, not {expected}", node.allocation)
        })
    }
}
