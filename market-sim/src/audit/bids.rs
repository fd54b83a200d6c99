//! Bids, and what they still want.

use super::Lie;
use foldhash::HashMap;
use kubebid_core::Price;
use kubebid_core::event::{Bidder, Node, Scope};
use kubebid_core::market_list::MarketList;
use kubebid_core::units::{AccountId, AllocationId, BidId, MarketId, Micros};

#[derive(Debug, Default)]
pub(super) struct Bids {
    bids: HashMap<BidId, Bid>,
    last: Option<BidId>,
    /// By tenant.
    wants: Vec<Wants>,
}

#[derive(Debug)]
pub(super) struct Bid {
    pub(super) tenant: AccountId,
    markets: Option<MarketList>,
    pub(super) ceiling: Price,
    pub(super) max_nodes: u32,
    searching: bool,
    pub(super) amended: bool,
    pub(super) live: Vec<AllocationId>,
    pub(super) notices: u32,
    pub(super) claims: Vec<AllocationId>,
    unmet: u32,
}

/// Whether a tenant wants nodes beyond those it has: then it may be billed less than others (R8).
#[derive(Clone, Copy, Debug, Default)]
struct Wants {
    unmet: u64,
    until: Micros,
}

/// A change of unmet demand.
pub(super) struct Change {
    pub(super) markets: MarketList,
    pub(super) nodes: i64,
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
    ) -> Result<(), Lie> {
        if self.last >= Some(bidder.bid) {
            return Err(Lie::BidTwice);
        }
        if min_nodes > max_nodes {
            return Err(Lie::MaxNodes { before: min_nodes, after: max_nodes });
        }
        self.last = Some(bidder.bid);
        let markets = match scope {
            Scope::Markets(markets) => Some(markets.clone()),
            Scope::InstanceType(_) => None,
        };
        let bid = Bid {
            tenant: bidder.tenant,
            markets,
            ceiling,
            max_nodes,
            searching: true,
            amended: false,
            live: Vec::new(),
            notices: 0,
            claims: Vec::new(),
            unmet: 0,
        };
        self.bids.insert(bidder.bid, bid);
        Ok(())
    }

    /// The bid and the ceiling it had.
    pub(super) fn amend(&mut self, by: Bidder, ceiling: Price, max_nodes: u32) -> Result<(Price, &Bid), Lie> {
        let bid = self.of(by)?;
        bid.amended = true;
        bid.max_nodes = max_nodes;
        let before = std::mem::replace(&mut bid.ceiling, ceiling);
        Ok((before, bid))
    }

    pub(super) fn close(&mut self, bidder: Bidder, max_nodes: u32) -> Result<(), Lie> {
        let bid = self.of(bidder)?;
        if !bid.searching {
            return Err(Lie::NotSearching);
        }
        (bid.searching, bid.max_nodes) = (false, max_nodes);
        Ok(())
    }

    pub(super) fn of(&mut self, bidder: Bidder) -> Result<&mut Bid, Lie> {
        let bid = self.bids.get_mut(&bidder.bid).ok_or(Lie::UnknownBid)?;
        if bid.tenant == bidder.tenant { Ok(bid) } else { Err(Lie::NotItsTenant) }
    }

    pub(super) fn holder(&mut self, node: &Node) -> Result<&mut Bid, Lie> {
        self.of(Bidder { bid: node.bid, tenant: node.tenant })
    }

    /// A closed bid of which nothing is left.
    pub(super) fn forget(&mut self, id: BidId) {
        let gone =
            |bid: &Bid| !bid.searching && bid.live.is_empty() && bid.notices == 0 && bid.claims.is_empty();
        if self.bids.get(&id).is_some_and(gone) {
            self.bids.remove(&id);
        }
    }

    /// What the bid wants beyond what it has, and by how much that changed.
    pub(super) fn recount(&mut self, id: BidId, now: Micros) -> Option<Change> {
        let bid = self.bids.get_mut(&id)?;
        let has = (bid.live.len() + bid.claims.len()) as u32;
        let unmet = if bid.searching { bid.max_nodes.saturating_sub(has) } else { 0 };
        let before = std::mem::replace(&mut bid.unmet, unmet);
        if unmet == before {
            return None;
        }
        let nodes = i64::from(unmet) - i64::from(before);
        let tenant = bid.tenant.0 as usize;
        if self.wants.len() <= tenant {
            self.wants.resize(tenant + 1, Wants::default());
        }
        let wants = &mut self.wants[tenant];
        wants.unmet = wants.unmet.wrapping_add_signed(nodes);
        wants.until = now;
        bid.markets.clone().map(|markets| Change { markets, nodes })
    }

    /// Whether the tenant has wanted nothing more since then.
    pub(super) fn content_since(&self, tenant: AccountId, then: Micros) -> bool {
        self.wants.get(tenant.0 as usize).is_none_or(|wants| wants.unmet == 0 && wants.until <= then)
    }
}

impl Bid {
    pub(super) fn looks_in(&self, market: MarketId) -> bool {
        self.markets.as_ref().is_none_or(|markets| markets.contains(&market))
    }

    pub(super) fn searches(&self) -> bool {
        self.searching
    }

    pub(super) fn within_max_nodes(&self) -> Result<(), Lie> {
        let (max_nodes, live, claims) = (self.max_nodes, self.live.len() as u32, self.claims.len() as u32);
        if live + claims <= max_nodes { Ok(()) } else { Err(Lie::TooManyNodes { max_nodes, live, claims }) }
    }

    /// After an event that may change how many nodes the bid wants, by at most one.
    pub(super) fn set_max_nodes(&mut self, after: u32, could_be: [i64; 2]) -> Result<(), Lie> {
        let before = self.max_nodes;
        if !could_be.contains(&(i64::from(after) - i64::from(before))) {
            return Err(Lie::MaxNodes { before, after });
        }
        self.max_nodes = after;
        Ok(())
    }
}

pub(super) fn remove(list: &mut Vec<AllocationId>, id: AllocationId) -> bool {
    let found = list.iter().rposition(|other| *other == id);
    found.map(|at| list.swap_remove(at)).is_some()
}
