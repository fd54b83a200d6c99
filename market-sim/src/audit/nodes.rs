//! Nodes, their notices and the claims on them.

use super::bids::remove;
use super::money::Running;
use super::{Auditor, Lie};
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
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) node: Node,
    pub(super) start_by: Micros,
    pub(super) protected_until: Micros,
    pub(super) notice: Option<Notice>,
    pub(super) was_under_notice: bool,
    /// The lowest reserve since the award.
    pub(super) reserve: Price,
    pub(super) running: Option<Running>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    pub(super) reason: NoticeReason,
    deadline: Micros,
    claim: Option<Bidder>,
}

impl Nodes {
    pub(super) fn known(&self, id: AllocationId) -> Result<&Held, Lie> {
        self.nodes.get(&id).ok_or(Lie::UnknownAllocation)
    }

    pub(super) fn known_mut(&mut self, id: AllocationId) -> Result<&mut Held, Lie> {
        self.nodes.get_mut(&id).ok_or(Lie::UnknownAllocation)
    }

    fn the(&mut self, node: &Node) -> Result<&mut Held, Lie> {
        let held = self.nodes.get_mut(&node.allocation).ok_or(Lie::UnknownAllocation)?;
        if held.node == *node { Ok(held) } else { Err(Lie::NotThatNode) }
    }

    /// Deadlines are kept at their instant: whatever comes later comes too late.
    pub(super) fn none_overdue(&self, now: Micros) -> Result<(), Lie> {
        match self.deadlines.first() {
            Some((deadline, node)) if *deadline < now => {
                Err(Lie::Overdue { node: *node, deadline: *deadline })
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Auditor {
    pub(super) fn allocated(&mut self, node: &Node) -> Result<(), Lie> {
        let expected = self.nodes.last + 1;
        if node.allocation.0 != expected {
            return Err(Lie::AllocationNumber { expected });
        }
        self.nodes.last = expected;
        self.known(node.unit.market)?;
        let due =
            self.handed.iter().position(|(unit, _)| *unit == node.unit).map(|at| self.handed.remove(at));
        let reserve = self.offers.hold(node.unit, node.allocation)?;
        let bid = self.bids.holder(node)?;
        match due {
            Some((unit, due)) if due != node.bid => return Err(Lie::ClaimNotHonoured { unit, bid: due }),
            Some(_) => {}
            None if !bid.searches() && self.rescued != Some(node.bid) => return Err(Lie::NotSearching),
            None if self.offers.sells(node.unit.market, node.tenant) => return Err(Lie::OwnSupply),
            None => {}
        }
        if !bid.looks_in(node.unit.market) {
            return Err(Lie::OutOfScope);
        }
        if bid.ceiling < reserve {
            return Err(Lie::BelowReserve { ceiling: bid.ceiling, reserve });
        }
        bid.live.push(node.allocation);
        bid.within_max_nodes()?;
        let market = &mut self.markets[node.unit.market.0 as usize];
        market.live.add(bid.ceiling);
        market.supply.free -= 1;
        market.supply.allocated += 1;
        let start_by = self.now.after(market.rules.start_timeout);
        let protected_until = start_by.after(market.rules.min_runtime);
        let held = Held {
            node: *node,
            start_by,
            protected_until,
            notice: None,
            was_under_notice: false,
            reserve,
            running: None,
        };
        self.nodes.nodes.insert(node.allocation, held);
        self.sums.allocations += 1;
        self.recount(node.bid);
        Ok(())
    }

    pub(super) fn ready(&mut self, node: &Node) -> Result<(), Lie> {
        let reserve = self.offers.reserve(node.unit);
        let held = self.nodes.the(node)?;
        if held.running.is_some() {
            return Err(Lie::ReadyTwice);
        }
        let market = &mut self.markets[node.unit.market.0 as usize];
        held.protected_until = self.now.after(market.rules.min_runtime);
        // A reserve that was raised since the award may not count yet (R11).
        held.running = Some(Running::begin(market, self.now, (held.reserve, reserve)));
        Ok(())
    }

    pub(super) fn notice_started(
        &mut self,
        node: &Node,
        deadline: Micros,
        max_nodes: u32,
        reason: NoticeReason,
    ) -> Result<(), Lie> {
        let now = self.now;
        let held = self.nodes.the(node)?;
        if held.notice.is_some() {
            return Err(Lie::NoticeTwice);
        }
        let bid = self.bids.holder(node)?;
        let market = &mut self.markets[node.unit.market.0 as usize];
        if reason == NoticeReason::Outbid {
            if now < held.protected_until {
                return Err(Lie::Protected(held.protected_until));
            }
            if let Some(lowest) = market.live.lowest().filter(|lowest| *lowest < bid.ceiling) {
                return Err(Lie::NotTheLowest(lowest));
            }
            self.displaced = Some(node.allocation);
        }
        let due = now.after(market.rules.notice).max(held.protected_until);
        if deadline != due {
            return Err(Lie::Deadline(due));
        }
        held.notice = Some(Notice { reason, deadline, claim: None });
        held.was_under_notice = true;
        self.nodes.deadlines.insert((deadline, node.allocation));
        bid.set_max_nodes(max_nodes, [0, -1])?;
        remove(&mut bid.live, node.allocation);
        bid.notices += 1;
        market.live.remove(bid.ceiling);
        market.supply.allocated -= 1;
        market.supply.notice += 1;
        market.notices += 1;
        self.sums.notices += 1;
        self.recount(node.bid);
        Ok(())
    }

    pub(super) fn notice_rescinded(&mut self, node: &Node, max_nodes: u32) -> Result<(), Lie> {
        let held = self.nodes.the(node)?;
        let notice = held.notice.take().ok_or(Lie::NoNotice)?;
        if notice.claim.is_some() {
            return Err(Lie::StillClaimed);
        }
        self.nodes.deadlines.remove(&(notice.deadline, node.allocation));
        let bid = self.bids.holder(node)?;
        bid.set_max_nodes(max_nodes, [0, 1])?;
        bid.notices -= 1;
        bid.live.push(node.allocation);
        bid.within_max_nodes()?;
        let market = &mut self.markets[node.unit.market.0 as usize];
        market.live.add(bid.ceiling);
        market.supply.notice -= 1;
        market.supply.allocated += 1;
        self.sums.rescinded += 1;
        self.recount(node.bid);
        Ok(())
    }

    pub(super) fn claimed(
        &mut self,
        node: &Node,
        by: Bidder,
        was: Option<Bidder>,
        cause: ClaimCause,
    ) -> Result<(), Lie> {
        let held = self.nodes.the(node)?;
        let notice = held.notice.as_mut().ok_or(Lie::NoNotice)?;
        let before = notice.claim.replace(by);
        if before != was {
            return Err(Lie::NotThatClaim);
        }
        let reserve = self.offers.reserve(node.unit);
        let victim = match (cause, was) {
            (ClaimCause::Displaced | ClaimCause::PassedOn, _) => Some(self.bids.holder(node)?.ceiling),
            (ClaimCause::ClaimDisplaced, Some(was)) => Some(self.bids.of(was)?.ceiling),
            (ClaimCause::ClaimDisplaced, None) => return Err(Lie::NotThatClaim),
            (ClaimCause::Standing, _) => None,
        };
        let market = &mut self.markets[node.unit.market.0 as usize];
        match was {
            Some(was) => {
                let bid = self.bids.of(was)?;
                remove(&mut bid.claims, node.allocation);
                market.claims.remove(bid.ceiling);
            }
            None => market.supply.claimed += 1,
        }
        let bid = self.bids.of(by)?;
        let needed = victim.map_or(reserve, |ceiling| market.rules.needed(ceiling).max(reserve));
        if bid.ceiling < needed {
            return Err(Lie::CeilingNeeded(needed));
        }
        if !bid.searches() {
            return Err(Lie::NotSearching);
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

    pub(super) fn claim_dropped(&mut self, node: &Node, by: Bidder, cause: DropCause) -> Result<(), Lie> {
        let held = self.nodes.the(node)?;
        let notice = held.notice.as_mut().ok_or(Lie::NoNotice)?;
        if notice.claim.take() != Some(by) {
            return Err(Lie::NoClaim);
        }
        self.unclaim(node, by)?;
        self.recount(by.bid);
        if cause == DropCause::Rescued {
            // A node takes its place, also where the search has ended (R6).
            self.rescued = Some(by.bid);
        } else {
            self.bids.forget(by.bid);
        }
        Ok(())
    }

    /// A claim has gone from the books of its bid.
    fn unclaim(&mut self, node: &Node, by: Bidder) -> Result<(), Lie> {
        let bid = self.bids.of(by)?;
        remove(&mut bid.claims, node.allocation);
        let market = &mut self.markets[node.unit.market.0 as usize];
        market.claims.remove(bid.ceiling);
        market.supply.claimed -= 1;
        Ok(())
    }

    pub(super) fn ended(&mut self, node: &Node, max_nodes: u32, reason: EndReason) -> Result<(), Lie> {
        let now = self.now;
        self.nodes.the(node)?;
        let held = self.nodes.nodes.remove(&node.allocation).ok_or(Lie::UnknownAllocation)?;
        let notice = held.notice;
        let in_order = match reason {
            EndReason::Outbid | EndReason::CapacityWithdrawn | EndReason::ReserveRaised => notice
                .is_some_and(|notice| EndReason::from(notice.reason) == reason && notice.deadline == now),
            EndReason::Released | EndReason::UnitLost => true,
            EndReason::StartTimeout => held.running.is_none() && held.start_by == now,
        };
        if !in_order {
            return Err(Lie::WrongEnd { notice: notice.map(|notice| notice.reason), end: reason });
        }
        let market = &mut self.markets[node.unit.market.0 as usize];
        market.supply.free += 1;
        let bid = self.bids.holder(node)?;
        let ceiling = bid.ceiling;
        match notice {
            Some(notice) => {
                market.supply.notice -= 1;
                bid.notices -= 1;
                bid.set_max_nodes(max_nodes, [0, 0])?;
                self.nodes.deadlines.remove(&(notice.deadline, node.allocation));
            }
            None => {
                market.supply.allocated -= 1;
                market.live.remove(ceiling);
                remove(&mut bid.live, node.allocation);
                bid.set_max_nodes(max_nodes, [0, -1])?;
            }
        }
        let cap = (!bid.amended).then_some(ceiling);
        self.recount(node.bid);
        self.owe(&held, reason, cap);
        self.bids.forget(node.bid);
        let stays = self.offers.free(node.unit)?;
        if let Some(by) = notice.and_then(|notice| notice.claim) {
            self.unclaim(node, by)?;
            if !stays {
                return Err(Lie::StillClaimed);
            }
            self.handed.push((node.unit, by.bid));
        }
        Ok(())
    }
}
