//! The auditor's bids, and what they still want.

use super::Violation;
use foldhash::HashMap;
use kubebid_core::Price;
use kubebid_core::event::{Bidder, Node, Scope};
use kubebid_core::units::{AccountId, AllocationId, BidId, InstanceType, MarketId, Micros, Seq};

#[derive(Debug, Default)]
pub(super) struct Bids {
    bids: HashMap<BidId, Bid>,
    last: Option<BidId>,
}

#[derive(Debug)]
pub(super) struct Bid {
    pub(super) tenant: AccountId,
    pub(super) scope: Scope,
    pub(super) ceiling: Price,
    min_nodes: u32,
    pub(super) max_nodes: u32,
    searching: bool,
    pub(super) live: Vec<AllocationId>,
    pub(super) notices: Vec<AllocationId>,
    /// The number of its nodes that are under a provider's notice.
    pub(super) withdrawn: u32,
    /// The time until which a raise under notice keeps the ceiling from falling (R2).
    pub(super) locked_until: Micros,
    pub(super) claims: Vec<AllocationId>,
    pub(super) unmet: u32,
    pub(super) losing: Option<Price>,
}

/// A change of unmet demand, and of the ceiling with which the bid counts for H (R8).
pub(super) struct Change {
    pub(super) tenant: AccountId,
    pub(super) scope: Scope,
    pub(super) nodes: i64,
    pub(super) before: Option<Price>,
    pub(super) after: Option<Price>,
}

impl Bids {
    pub(super) fn len(&self) -> usize {
        self.bids.len()
    }

    pub(super) fn place(
        &mut self,
        bidder: Bidder,
        scope: &Scope,
        ceiling: Price,
        (min_nodes, max_nodes): (u32, u32),
    ) -> Result<(), Violation> {
        if self.last >= Some(bidder.bid) {
            return Err(Violation::BidTwice);
        }
        if min_nodes > max_nodes {
            return Err(Violation::MaxNodes { before: min_nodes, after: max_nodes });
        }
        self.last = Some(bidder.bid);
        let bid = Bid {
            tenant: bidder.tenant,
            scope: scope.clone(),
            ceiling,
            min_nodes,
            max_nodes,
            searching: true,
            live: Vec::new(),
            notices: Vec::new(),
            withdrawn: 0,
            locked_until: Micros(0),
            claims: Vec::new(),
            unmet: 0,
            losing: None,
        };
        self.bids.insert(bidder.bid, bid);
        Ok(())
    }

    /// Amends a bid, and returns it with the ceiling that it had.
    pub(super) fn amend(
        &mut self,
        by: Bidder,
        ceiling: Price,
        max_nodes: u32,
    ) -> Result<(Price, &Bid), Violation> {
        let bid = self.of(by)?;
        bid.max_nodes = max_nodes;
        let before = std::mem::replace(&mut bid.ceiling, ceiling);
        Ok((before, bid))
    }

    pub(super) fn close(&mut self, bidder: Bidder, max_nodes: u32) -> Result<(), Violation> {
        let bid = self.of(bidder)?;
        if !bid.searching {
            return Err(Violation::NotSearching);
        }
        (bid.searching, bid.max_nodes) = (false, max_nodes);
        Ok(())
    }

    pub(super) fn of(&mut self, bidder: Bidder) -> Result<&mut Bid, Violation> {
        let bid = self.bids.get_mut(&bidder.bid).ok_or(Violation::UnknownBid)?;
        if bid.tenant == bidder.tenant { Ok(bid) } else { Err(Violation::NotItsTenant) }
    }

    pub(super) fn holder(&mut self, node: &Node) -> Result<&mut Bid, Violation> {
        self.of(Bidder { bid: node.bid, tenant: node.tenant })
    }

    /// Forgets a closed bid without nodes and claims.
    pub(super) fn forget(&mut self, id: BidId) {
        let gone = |bid: &Bid| {
            !bid.searching && bid.live.is_empty() && bid.notices.is_empty() && bid.claims.is_empty()
        };
        if self.bids.get(&id).is_some_and(gone) {
            self.bids.remove(&id);
        }
    }

    /// Returns what the bid wants beyond what it has, and whether it counts as losing, where either changed.
    pub(super) fn recount(&mut self, id: BidId) -> Option<Change> {
        let bid = self.bids.get_mut(&id)?;
        let has = (bid.live.len() + bid.claims.len()) as u32;
        let unmet = if bid.searching { bid.max_nodes.saturating_sub(has) } else { 0 };
        // A bid that waits for several nodes at once sets no price (R12).
        let waits = bid.min_nodes.min(bid.max_nodes) > 1 && has == 0;
        // Neither does one that still has what it asks for, on units that their providers take back (R8).
        let after = (unmet > bid.withdrawn && !waits).then_some(bid.ceiling);
        let nodes = i64::from(unmet) - i64::from(std::mem::replace(&mut bid.unmet, unmet));
        let before = std::mem::replace(&mut bid.losing, after);
        let changed = nodes != 0 || before != after;
        changed.then(|| Change { tenant: bid.tenant, scope: bid.scope.clone(), nodes, before, after })
    }

    /// Returns the bids that look for nodes in a market of this type, in any order.
    #[expect(clippy::disallowed_methods, reason = "the caller counts them, and no order changes that")]
    pub(super) fn looking_in<'a>(
        &'a self,
        market: MarketId,
        kind: Option<&'a InstanceType>,
    ) -> impl Iterator<Item = &'a Bid> {
        self.bids.values().filter(move |bid| bid.looks_in(market, kind))
    }

    /// Returns a number that is above those of all bids so far.
    pub(super) fn next(&self) -> Seq {
        Seq(self.last.map_or(0, |last| last.0 + 1))
    }
}

impl Bid {
    /// Returns whether it names the market; where it names a type, the caller knows that.
    pub(super) fn looks_in(&self, market: MarketId, instance_type: Option<&InstanceType>) -> bool {
        match &self.scope {
            Scope::Markets(markets) => markets.contains(&market),
            Scope::InstanceType(kind) => instance_type == Some(kind),
        }
    }

    pub(super) fn searches(&self) -> bool {
        self.searching
    }

    pub(super) fn within_max_nodes(&self) -> Result<(), Violation> {
        let (max_nodes, live, claims) = (self.max_nodes, self.live.len() as u32, self.claims.len() as u32);
        if live + claims <= max_nodes {
            Ok(())
        } else {
            Err(Violation::TooManyNodes { max_nodes, live, claims })
        }
    }

    /// Updates the bid after an event that may change how many nodes it wants, by at most one.
    pub(super) fn set_max_nodes(&mut self, after: u32, could_be: [i64; 2]) -> Result<(), Violation> {
        let before = self.max_nodes;
        if !could_be.contains(&(i64::from(after) - i64::from(before))) {
            return Err(Violation::MaxNodes { before, after });
        }
        self.max_nodes = after;
        Ok(())
    }
}

pub(super) fn remove(list: &mut Vec<AllocationId>, id: AllocationId) -> bool {
    let found = list.iter().rposition(|other| *other == id);
    found.map(|at| list.swap_remove(at)).is_some()
}
