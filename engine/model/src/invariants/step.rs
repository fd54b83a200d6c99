//! The invariants of one step: what one command or one instant does to a settled state.

use super::{Verdict, require};
use crate::state::Model;
use kubebid_core::answer::{Answer, Auction};
use kubebid_core::command::{Command, StampedCommand};
use kubebid_core::event::{ClaimCause, Event, Fact, Node, NoticeReason};
use kubebid_core::units::{AccountId, BidId, MarketId, Micros};
use kubebid_core::{MarketState, Price};

/// Checks the invariants of a command: the state before it, the answer, and the state after it. Each instant that falls
/// due before the command is a step, and so is the command.
///
/// # Errors
/// The invariant that is broken, and how.
pub fn check_step(before: &Model, command: &StampedCommand, answer: &Answer, after: &Model) -> Verdict {
    require(answer.seq == after.seq, || format!("I17: {} is not {}", answer.seq, after.seq))?;
    require(before.now <= answer.at, || format!("R1: time runs back to {}", answer.at))?;
    let mut then = before.clone();
    let mut events = answer.events.as_slice();
    while let Some(due) = then.next_due().filter(|due| *due <= command.at) {
        let was = then.clone();
        let at_instant = advance(&mut then, due);
        let (first, rest) = events.split_at(at_instant.len().min(events.len()));
        require(first == at_instant, || format!("I9: at {due} alone: {at_instant:?}"))?;
        check_one(&was, first, &then)?;
        events = rest;
    }
    let at_command = advance(&mut then, command.at);
    require(at_command.is_empty(), || format!("R1: {at_command:?} at an instant that is not due"))?;
    check_one(&then, events, after)
}

fn advance(model: &mut Model, at: Micros) -> Vec<Event> {
    model.apply(&StampedCommand { at, key: None, command: Command::AdvanceTime }).events
}

/// Checks one settling.
fn check_one(before: &Model, events: &[Event], after: &Model) -> Verdict {
    after.bids_have_moved_with_reason(before)?;
    after.frozen_prices_are_of(before, events)?;
    after.closed_markets_have_not_grown_since(before)?;
    after.claims_and_gifts_are_lawful(events)?;
    super::funds::check_step(before, events, after)?;
    super::fold::check(before, events, after)
}

impl Model {
    /// Checks I12 for ceilings, I20, and that a search never begins again.
    fn bids_have_moved_with_reason(&self, before: &Model) -> Verdict {
        for (id, was) in &before.bids {
            let is = &self.bids[id];
            let moved = is.seq != was.seq;
            let earned = is.ceiling != was.ceiling || is.max_nodes > was.max_nodes;
            require(!moved || earned, || format!("I20: bid {id} has moved without a reason"))?;
            require(was.searching || !is.searching, || format!("R14: bid {id} searches again"))?;

            let mut held = before.allocations.values().filter(|a| a.bid == *id);
            let protected = held.any(|a| a.notice.is_none() && a.is_protected(self.now));
            let locked = self.now < was.ceiling_locked_until;
            let lowered = is.ceiling < was.ceiling;
            require(!lowered || !protected, || format!("I12: bid {id} was lowered under protection"))?;
            require(!lowered || !locked, || format!("I12: bid {id} was lowered soon after a raise"))?;
            let raised = is.ceiling > was.ceiling;
            let min_runtime = |market| self.now.after(before.rules(market).min_runtime);
            let ends = before.notices(*id).filter(|_| raised).map(|(unit, _)| min_runtime(unit.market));
            let end = ends.chain([was.ceiling_locked_until]).max();
            require(end == Some(is.ceiling_locked_until), || {
                format!("R2: the ceiling of bid {id} is locked until {}", is.ceiling_locked_until)
            })?;
        }
        Ok(())
    }

    /// Checks that a frozen price is the one that was in force before the notice, and never changes (I3).
    fn frozen_prices_are_of(&self, before: &Model, events: &[Event]) -> Verdict {
        for (id, a) in &self.allocations {
            let Some(notice) = &a.notice else { continue };
            let begun = events.iter().any(
                |event| matches!(&event.fact, Fact::NoticeStarted { node, .. } if node.allocation == *id),
            );
            let was = before.allocations.get(id);
            let was_frozen = was.and_then(|was| was.notice.as_ref()).map(|notice| notice.frozen_price);
            let born = || Some(price_of_claim(before, self, a.bid, &self.node(*id)));
            let frozen = if begun { was.map(|was| was.billed).or_else(born) } else { was_frozen };
            require(frozen == Some(notice.frozen_price), || {
                format!("I3: {id} has the frozen price {}, not {frozen:?}", notice.frozen_price)
            })?;
        }
        Ok(())
    }

    fn closed_markets_have_not_grown_since(&self, before: &Model) -> Verdict {
        for (number, was) in before.markets.iter().enumerate() {
            let is = &self.markets[number];
            let market = MarketId(number as u32);
            let total = |model: &Model| model.supply(market).total;
            let grew = total(self) > total(before);
            require(was.state == MarketState::Open || is.state == MarketState::Open || !grew, || {
                format!("R18: market {number} has more units than before, and is closed")
            })?;
        }
        Ok(())
    }

    /// Checks I22, and that a claim begins with a notice if and only if it displaces a node.
    fn claims_and_gifts_are_lawful(&self, events: &[Event]) -> Verdict {
        for (place, event) in events.iter().enumerate() {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only these two give something")]
            match &event.fact {
                Fact::Allocated { node } => self.is_no_seller(events, node, node.tenant)?,
                Fact::Claimed { node, by, cause, .. } => {
                    self.is_no_seller(events, node, by.tenant)?;
                    let displaced = *cause == ClaimCause::Displaced;
                    let begun = place > 0 && is_displacement(&events[place - 1].fact, node);
                    require(displaced == begun, || format!("R5: claim on {}", node.allocation))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks I22. An account that begins to sell with this command may have got something before it.
    fn is_no_seller(&self, events: &[Event], node: &Node, account: AccountId) -> Verdict {
        let market = node.unit.market;
        let begins = events.iter().any(|event| {
            matches!(&event.fact,
                Fact::OfferPut { provider, market: m, .. } if *provider == account && *m == market)
        });
        require(begins || !self.sells_in(account, market), || format!("I22: {}", node.allocation))
    }
}

fn is_displacement(fact: &Fact, of: &Node) -> bool {
    matches!(fact, Fact::NoticeStarted { node, reason: NoticeReason::Outbid, .. } if node == of)
}

/// Returns the price at which a claim that ends is charged, from the raw state before the step (R15).
pub(super) fn price_of_claim(before: &Model, after: &Model, bid: BidId, node: &Node) -> Price {
    let bid = before.bids.get(&bid).unwrap_or(&after.bids[&bid]);
    before.would_pay(bid, node.unit)
}
