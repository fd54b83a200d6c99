//! The auditor's nodes, their notices and the claims on them.

use super::bids::remove;
use super::meter::{Rate, Terms};
use super::money::Running;
use super::{Auditor, Violation};
use foldhash::HashMap;
use kubebid_core::Price;
use kubebid_core::event::{Bidder, ClaimCause, DropCause, EndReason, Node, NoticeReason};
use kubebid_core::units::{AllocationId, Micros};
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: HashMap<AllocationId, Held>,
    last: u64,
    deadlines: BTreeSet<(Micros, AllocationId)>,
    /// The time at which a raised reserve counts for a live node (R11).
    raises: BTreeSet<(Micros, AllocationId)>,
    /// Nodes whose terms changed since the last settlement.
    unsettled: Vec<AllocationId>,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) node: Node,
    pub(super) start_by: Micros,
    pub(super) protected_until: Micros,
    pub(super) notice: Option<Notice>,
    /// The reserve that counts for the bill and for R (R11).
    pub(super) reserve: Price,
    raise_at: Option<Micros>,
    pub(super) running: Option<Running>,
    /// The terms as last settled.
    pub(super) settled: Terms,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    pub(super) reason: NoticeReason,
    deadline: Micros,
    claim: Option<Bidder>,
    /// The price that the node had as last settled before the notice (R8).
    frozen: Price,
}

/// Returns true if the provider caused a notice (R8).
fn is_of_provider(reason: NoticeReason) -> bool {
    match reason {
        NoticeReason::CapacityWithdrawn | NoticeReason::ReserveRaised => true,
        NoticeReason::Outbid | NoticeReason::Funds => false,
    }
}

impl Held {
    /// Returns what decides the price of the node together with that of its tenant (R8).
    pub(super) fn terms(&self) -> Terms {
        let reserve = self.reserve;
        let rate = match self.notice {
            None => Rate::Live { reserve },
            Some(Notice { reason: NoticeReason::Outbid | NoticeReason::Funds, frozen, .. }) => {
                Rate::Outbid { frozen }
            }
            Some(Notice { frozen, .. }) => Rate::Withdrawn { reserve, frozen },
        };
        Terms { tenant: self.node.tenant, rate }
    }

    /// Returns whether a node under notice has a claim; `None` for a node without notice.
    pub(super) fn claimed(&self) -> Option<bool> {
        self.notice.map(|notice| notice.claim.is_some())
    }
}

impl Nodes {
    /// Returns the first raise that counts at `now` or before.
    pub(super) fn due_raise(&self, now: Micros) -> Option<(Micros, AllocationId)> {
        self.raises.first().copied().filter(|(at, _)| *at <= now)
    }

    /// Returns the time from which a raise counts for a node, or `None` for no raise.
    pub(super) fn raise(&mut self, id: AllocationId, at: Option<Micros>) {
        let Some(held) = self.nodes.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut held.raise_at, at) {
            self.raises.remove(&(before, id));
        }
        self.raises.extend(at.map(|at| (at, id)));
    }

    /// Notes that the terms of a node changed.
    pub(super) fn changed(&mut self, id: AllocationId) {
        self.unsettled.push(id);
    }

    /// Ends a settlement: the terms of now are the settled ones.
    pub(super) fn settle(&mut self) {
        for id in self.unsettled.drain(..) {
            if let Some(held) = self.nodes.get_mut(&id) {
                held.settled = held.terms();
            }
        }
    }

    pub(super) fn known(&self, id: AllocationId) -> Result<&Held, Violation> {
        self.nodes.get(&id).ok_or(Violation::UnknownAllocation)
    }

    pub(super) fn known_mut(&mut self, id: AllocationId) -> Result<&mut Held, Violation> {
        self.nodes.get_mut(&id).ok_or(Violation::UnknownAllocation)
    }

    fn the(&mut self, node: &Node) -> Result<&mut Held, Violation> {
        let held = self.nodes.get_mut(&node.allocation).ok_or(Violation::UnknownAllocation)?;
        if held.node == *node { Ok(held) } else { Err(Violation::NotThatNode) }
    }

    /// Deadlines are kept at their instant: whatever comes later comes too late.
    pub(super) fn none_overdue(&self, now: Micros) -> Result<(), Violation> {
        match self.deadlines.first() {
            Some((deadline, node)) if *deadline < now => {
                Err(Violation::Overdue { node: *node, deadline: *deadline })
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Auditor {
    pub(super) fn allocated(&mut self, node: &Node) -> Result<(), Violation> {
        let expected = self.nodes.last + 1;
        if node.allocation.0 != expected {
            return Err(Violation::AllocationNumber { expected });
        }
        self.nodes.last = expected;
        self.known(node.unit.market)?;
        let due =
            self.handed.iter().position(|(unit, _)| *unit == node.unit).map(|at| self.handed.remove(at));
        let reserve = self.offers.hold(node.unit, node.allocation)?;
        let bid = self.bids.holder(node)?;
        if self.timed_out.contains(&node.unit) {
            return Err(Violation::NotTimedOut);
        }
        if due.is_none() {
            self.claim_charges.given_up_for(&mut self.given_up, node.bid, Some(node.unit.provider));
        }
        match due {
            Some((unit, due)) if due != node.bid => {
                return Err(Violation::ClaimNotHonoured { unit, bid: due });
            }
            Some(_) => {}
            None if !bid.searches() && self.rescued != Some(node.bid) => return Err(Violation::NotSearching),
            None if self.offers.sells(node.unit.market, node.tenant) => return Err(Violation::OwnSupply),
            None => {}
        }
        let kind = self.types.of(node.unit.market);
        if !bid.looks_in(node.unit.market, kind) {
            return Err(Violation::OutOfScope);
        }
        if bid.ceiling < reserve {
            return Err(Violation::BelowReserve { ceiling: bid.ceiling, reserve });
        }
        bid.live.push(node.allocation);
        bid.within_max_nodes()?;
        let market = &mut self.markets[node.unit.market.0 as usize];
        market.live.add(bid.ceiling);
        market.reserves.add(reserve);
        market.supply.free -= 1;
        market.supply.allocated += 1;
        let start_by = self.now.after(market.rules.start_timeout);
        let protected_until = start_by.after(market.rules.min_runtime);
        let held = Held {
            node: *node,
            start_by,
            protected_until,
            notice: None,
            reserve,
            raise_at: None,
            running: None,
            settled: Terms { tenant: node.tenant, rate: Rate::Live { reserve } },
        };
        self.nodes.nodes.insert(node.allocation, held);
        self.sums.allocations += 1;
        self.recount(node.bid);
        Ok(())
    }

    pub(super) fn ready(&mut self, node: &Node) -> Result<(), Violation> {
        let held = self.nodes.the(node)?;
        if held.running.is_some() {
            return Err(Violation::ReadyTwice);
        }
        let market = &self.markets[node.unit.market.0 as usize];
        held.protected_until = self.now.after(market.rules.min_runtime);
        self.start_meter(node.allocation)
    }

    pub(super) fn notice_started(
        &mut self,
        node: &Node,
        deadline: Micros,
        max_nodes: u32,
        reason: NoticeReason,
    ) -> Result<(), Violation> {
        let now = self.now;
        let held = self.nodes.the(node)?;
        if held.notice.is_some() {
            return Err(Violation::NoticeTwice);
        }
        let bid = self.bids.holder(node)?;
        let market = &mut self.markets[node.unit.market.0 as usize];
        if reason == NoticeReason::Outbid {
            if now < held.protected_until {
                return Err(Violation::Protected(held.protected_until));
            }
            if let Some(lowest) = market.live.lowest().filter(|lowest| *lowest < bid.ceiling) {
                return Err(Violation::NotTheLowest(lowest));
            }
            self.displaced = Some(node.allocation);
        }
        // For want of funds a node leaves protected or not, and no later than is reserved (R19).
        let for_funds = reason == NoticeReason::Funds;
        let latest = now.after(market.rules.notice);
        let due = if for_funds { deadline.min(latest) } else { latest.max(held.protected_until) };
        if deadline != due {
            return Err(Violation::Deadline(due));
        }
        let frozen = held.settled.price(market.meter.tariff());
        held.notice = Some(Notice { reason, deadline, claim: None, frozen });
        let reserve = held.reserve;
        self.nodes.deadlines.insert((deadline, node.allocation));
        bid.set_max_nodes(max_nodes, [0, -1])?;
        remove(&mut bid.live, node.allocation);
        bid.notices.push(node.allocation);
        bid.withdrawn += u32::from(is_of_provider(reason));
        market.live.remove(bid.ceiling);
        market.reserves.remove(reserve);
        market.supply.allocated -= 1;
        market.supply.notice += 1;
        market.notices += 1;
        self.sums.notices += 1;
        self.nodes.raise(node.allocation, None);
        self.remeter(node.allocation)?;
        self.recount(node.bid);
        Ok(())
    }

    pub(super) fn notice_moved(&mut self, node: &Node, deadline: Micros) -> Result<(), Violation> {
        let held = self.nodes.the(node)?;
        let notice = held.notice.as_mut().ok_or(Violation::NoNotice)?;
        let was = std::mem::replace(&mut notice.deadline, deadline);
        if deadline >= was {
            return Err(Violation::Deadline(was));
        }
        self.nodes.deadlines.remove(&(was, node.allocation));
        self.nodes.deadlines.insert((deadline, node.allocation));
        Ok(())
    }

    pub(super) fn notice_rescinded(&mut self, node: &Node, max_nodes: u32) -> Result<(), Violation> {
        let held = self.nodes.the(node)?;
        let notice = held.notice.take().ok_or(Violation::NoNotice)?;
        if notice.claim.is_some() {
            return Err(Violation::StillClaimed);
        }
        let (reserve, protected_until) = (held.reserve, held.protected_until);
        self.nodes.deadlines.remove(&(notice.deadline, node.allocation));
        self.claim_charges.given_up_for(&mut self.given_up, node.bid, None);
        let bid = self.bids.holder(node)?;
        bid.set_max_nodes(max_nodes, [0, 1])?;
        remove(&mut bid.notices, node.allocation);
        bid.withdrawn -= u32::from(is_of_provider(notice.reason));
        bid.live.push(node.allocation);
        bid.within_max_nodes()?;
        let market = &mut self.markets[node.unit.market.0 as usize];
        market.live.add(bid.ceiling);
        market.reserves.add(reserve);
        market.supply.notice -= 1;
        market.supply.allocated += 1;
        self.sums.rescinded += 1;
        // A node that comes back bears a raise only after the delay (R11).
        let raised = self.offers.reserve(node.unit) > reserve;
        let at = self.now.after(market.rules.notice).max(protected_until);
        self.nodes.raise(node.allocation, raised.then_some(at));
        self.remeter(node.allocation)?;
        self.recount(node.bid);
        Ok(())
    }

    pub(super) fn claimed(
        &mut self,
        node: &Node,
        by: Bidder,
        was: Option<Bidder>,
        cause: ClaimCause,
    ) -> Result<(), Violation> {
        let held = self.nodes.the(node)?;
        let notice = held.notice.as_mut().ok_or(Violation::NoNotice)?;
        let before = notice.claim.replace(by);
        if before != was {
            return Err(Violation::NotThatClaim);
        }
        let reserve = self.offers.reserve(node.unit);
        let victim = match (cause, was) {
            (ClaimCause::Displaced | ClaimCause::PassedOn, _) => Some(self.bids.holder(node)?.ceiling),
            (ClaimCause::ClaimDisplaced, Some(was)) => Some(self.bids.of(was)?.ceiling),
            (ClaimCause::ClaimDisplaced, None) => return Err(Violation::NotThatClaim),
            (ClaimCause::Standing, _) => None,
        };
        let market = &mut self.markets[node.unit.market.0 as usize];
        match was {
            Some(was) => {
                let bid = self.bids.of(was)?;
                remove(&mut bid.claims, node.allocation);
                market.claims.remove(bid.ceiling);
            }
            None => {
                market.supply.claimed += 1;
                market.reserves.add(reserve);
            }
        }
        let bid = self.bids.of(by)?;
        let needed = victim.map_or(reserve, |ceiling| market.rules.needed(ceiling).max(reserve));
        if bid.ceiling < needed {
            return Err(Violation::CeilingNeeded(needed));
        }
        if !bid.searches() {
            return Err(Violation::NotSearching);
        }
        bid.claims.push(node.allocation);
        bid.within_max_nodes()?;
        market.claims.add(bid.ceiling);
        if let Some(was) = was {
            self.recount(was.bid);
            self.bids.forget(was.bid);
        }
        self.recount(by.bid);
        Ok(())
    }

    pub(super) fn claim_dropped(
        &mut self,
        node: &Node,
        by: Bidder,
        cause: DropCause,
    ) -> Result<(), Violation> {
        let held = self.nodes.the(node)?;
        let notice = held.notice.as_mut().ok_or(Violation::NoNotice)?;
        if notice.claim.take() != Some(by) {
            return Err(Violation::NoClaim);
        }
        self.unclaim(node, by)?;
        self.owe_for_claim(node, by, cause)?;
        self.recount(by.bid);
        if cause == DropCause::Rescued {
            // A node takes its place, also where the search has ended (R6).
            self.rescued = Some(by.bid);
        } else {
            self.bids.forget(by.bid);
        }
        Ok(())
    }

    /// Removes a claim from the books of its bid.
    fn unclaim(&mut self, node: &Node, by: Bidder) -> Result<(), Violation> {
        let bid = self.bids.of(by)?;
        remove(&mut bid.claims, node.allocation);
        let market = &mut self.markets[node.unit.market.0 as usize];
        market.claims.remove(bid.ceiling);
        market.reserves.remove(self.offers.reserve(node.unit));
        market.supply.claimed -= 1;
        Ok(())
    }

    pub(super) fn ended(&mut self, node: &Node, max_nodes: u32, reason: EndReason) -> Result<(), Violation> {
        let now = self.now;
        self.nodes.the(node)?;
        self.nodes.raise(node.allocation, None);
        let held = self.nodes.nodes.remove(&node.allocation).ok_or(Violation::UnknownAllocation)?;
        let notice = held.notice;
        let in_order = match reason {
            EndReason::Outbid
            | EndReason::CapacityWithdrawn
            | EndReason::ReserveRaised
            | EndReason::Funds => notice
                .is_some_and(|notice| EndReason::from(notice.reason) == reason && notice.deadline == now),
            EndReason::Released | EndReason::Regrouped | EndReason::UnitLost => true,
            EndReason::StartTimeout => held.running.is_none() && held.start_by == now,
        };
        if !in_order {
            return Err(Violation::WrongEnd { notice: notice.map(|notice| notice.reason), end: reason });
        }
        let market = &mut self.markets[node.unit.market.0 as usize];
        market.supply.free += 1;
        let bid = self.bids.holder(node)?;
        let is_regrouped = reason == EndReason::Regrouped;
        match notice {
            Some(notice) => {
                market.supply.notice -= 1;
                remove(&mut bid.notices, node.allocation);
                bid.withdrawn -= u32::from(is_of_provider(notice.reason));
                // With CLOSE, regrouping gives back what the notice took.
                bid.set_max_nodes(max_nodes, [0, i64::from(is_regrouped)])?;
                self.nodes.deadlines.remove(&(notice.deadline, node.allocation));
            }
            None => {
                market.supply.allocated -= 1;
                market.live.remove(bid.ceiling);
                market.reserves.remove(held.reserve);
                remove(&mut bid.live, node.allocation);
                bid.set_max_nodes(max_nodes, [0, if is_regrouped { 0 } else { -1 }])?;
            }
        }
        self.recount(node.bid);
        self.owe(&held, reason)?;
        if reason == EndReason::StartTimeout {
            self.timed_out.push(node.unit);
        }
        self.bids.forget(node.bid);
        let stays = self.offers.free(node.unit)?;
        if let Some(by) = notice.and_then(|notice| notice.claim) {
            self.unclaim(node, by)?;
            if !stays {
                return Err(Violation::StillClaimed);
            }
            self.handed.push((node.unit, by.bid));
        }
        Ok(())
    }
}
