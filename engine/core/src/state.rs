//! The state of a bid, an allocation, an offer.

pub(crate) mod account_funds;
pub mod account_usage;
pub(crate) mod bids;
pub(crate) mod idempotency;
pub(crate) mod last_settled;
pub(crate) mod meter;
pub(crate) mod scopes;
pub(crate) mod timers;

use crate::book::{BookPlace, Handle, Queued, Rank};
use crate::collections::dense_map::DenseMap;
use crate::collections::sorted_map::SortedSet;
use crate::event::{Bidder, NoticeReason};
use crate::state::meter::Terms;
use crate::state::scopes::ScopeId;
use crate::types::money::Price;
use crate::types::units::{AccountId, AllocationId, BidId, Micros, Seq, UnitId};
use std::cmp::Reverse;
use std::num::NonZeroU64;

/// The terms that the tenant asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BidTerms {
    pub(crate) tenant: AccountId,
    pub(crate) scope: ScopeId,
    pub(crate) ceiling: Price,
    /// The number of the command that last gave the bid a new ceiling or enlarged it (R2).
    pub(crate) seq: Seq,
    pub(crate) min_nodes: u32,
    pub(crate) max_nodes: u32,
    pub(crate) expiry: Expiry,
    /// True for CLOSE, false for REQUEUE (R7).
    pub(crate) closes: bool,
}

/// The time at which a bid stops searching, if it has one (R14). It is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry(Option<NonZeroU64>);

impl Expiry {
    pub(crate) fn at(at: Option<Micros>) -> Expiry {
        Expiry(at.and_then(|at| NonZeroU64::new(at.0)))
    }

    pub(crate) fn get(self) -> Option<Micros> {
        self.0.map(|at| Micros(at.get()))
    }
}

#[derive(Debug)]
pub(crate) struct Bid {
    pub(crate) terms: BidTerms,
    pub(crate) searching: bool,
    /// Nodes not under notice, by number.
    pub(crate) live: NodeList,
    /// Nodes under notice, by number.
    pub(crate) notices: NodeList,
    /// Other bids' nodes under notice on which this bid has a claim, by number.
    pub(crate) claims: NodeList,
    /// The queue in which the books have the bid; None if they do not have it.
    pub(crate) queued: Option<Queued>,
    /// The unmet demand that the books have for it, while it is in them.
    pub(crate) queued_nodes: u32,
    /// True if the books count it among the losing bids, while it is in them (R8).
    pub(crate) queued_losing: bool,
    /// The time until which a raise under notice keeps the ceiling from falling (R2); 0 if there was none.
    pub(crate) ceiling_locked_until: Micros,
    /// The handle in the ladder of its first market.
    handle: Option<Handle>,
    /// The handles in the ladders of its further markets.
    #[expect(clippy::box_collection, reason = "few bids look in several markets")]
    handles: Option<Box<Vec<Option<Handle>>>>,
    /// True if a market's book has it among the claimants that a free unit would rescue.
    pub(crate) is_rescuable: bool,
    /// True if the rescue has to be computed again.
    pub(crate) rescue_is_stale: bool,
    /// True if its account is funded (R19). Most are not, and then no step reads the account.
    pub(crate) is_funded: bool,
    /// True if it is counted in the account usage of its tenant, with `counted_nodes`.
    pub(crate) is_counted: bool,
    pub(crate) counted_nodes: u32,
}

impl Bid {
    pub(crate) fn new(terms: BidTerms, searching: bool) -> Bid {
        Bid {
            terms,
            searching,
            live: NodeList::default(),
            notices: NodeList::default(),
            claims: NodeList::default(),
            queued: None,
            queued_nodes: 0,
            queued_losing: false,
            ceiling_locked_until: Micros(0),
            handle: None,
            handles: None,
            is_rescuable: false,
            rescue_is_stale: false,
            is_funded: false,
            is_counted: false,
            counted_nodes: 0,
        }
    }

    /// Returns true if nothing can happen to the bid any more.
    pub(crate) fn has_ended(&self) -> bool {
        !self.searching && !self.holds_nodes() && self.claims.is_empty()
    }

    pub(crate) fn rank(&self) -> Rank {
        Rank { ceiling: Reverse(self.terms.ceiling), seq: self.terms.seq }
    }

    pub(crate) fn unmet(&self) -> u32 {
        if self.searching { self.room() } else { 0 }
    }

    /// Returns how many more nodes `max_nodes` leaves room for.
    pub(crate) fn room(&self) -> u32 {
        self.terms.max_nodes.saturating_sub(self.live.len() + self.claims.len())
    }

    pub(crate) fn holds_nodes(&self) -> bool {
        !self.live.is_empty() || !self.notices.is_empty()
    }

    pub(crate) fn queue(&self) -> Option<Queued> {
        if self.unmet() == 0 {
            return None;
        }
        let least = self.least();
        let waits = least > 1 && self.live.is_empty() && self.claims.is_empty();
        Some(if waits { Queued::Gang(least) } else { Queued::Plain })
    }

    /// Returns the number of nodes that the bid takes at least at entry (R12).
    pub(crate) fn least(&self) -> u32 {
        self.terms.min_nodes.min(self.terms.max_nodes)
    }

    /// Returns the number of nodes that the bid needs at once, if it is a waiting gang.
    pub(crate) fn gang(&self) -> Option<u32> {
        match self.queue()? {
            Queued::Plain => None,
            Queued::Gang(nodes) => Some(nodes),
        }
    }

    /// Returns the handle in the ladder of the `at`-th of its markets, if the ladder has the bid.
    pub(crate) fn handle_in(&self, at: usize) -> Option<Handle> {
        let Some(further) = at.checked_sub(1) else { return self.handle };
        self.handles.as_ref()?.get(further).copied().flatten()
    }

    /// Returns the place for that handle.
    pub(crate) fn handle(&mut self, at: usize) -> &mut Option<Handle> {
        let Some(further) = at.checked_sub(1) else { return &mut self.handle };
        let handles = self.handles.get_or_insert_default();
        if handles.len() <= further {
            handles.resize(further + 1, None);
        }
        &mut handles[further]
    }
}

/// A short sorted list of allocation numbers. Most bids have one node, for which nothing is allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodeList {
    #[default]
    None,
    One(AllocationId),
    #[expect(clippy::box_collection, reason = "every bid has three lists, few have many nodes")]
    Many(Box<Vec<AllocationId>>),
}

impl NodeList {
    fn as_slice(&self) -> &[AllocationId] {
        match self {
            NodeList::None => &[],
            NodeList::One(id) => std::slice::from_ref(id),
            NodeList::Many(ids) => ids,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.as_slice().len() as u32
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, NodeList::None)
    }

    pub(crate) fn insert(&mut self, id: AllocationId) {
        match self {
            NodeList::None => *self = NodeList::One(id),
            NodeList::One(one) => {
                debug_assert_ne!(*one, id, "in a list once");
                *self = NodeList::Many(Box::new(vec![id.min(*one), id.max(*one)]));
            }
            NodeList::Many(ids) => {
                let at = ids.binary_search(&id).expect_err("in a list once");
                ids.insert(at, id);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: AllocationId) {
        match self {
            NodeList::None => unreachable!("in the list"),
            NodeList::One(one) => {
                assert_eq!(*one, id, "in the list");
                *self = NodeList::None;
            }
            NodeList::Many(ids) => {
                ids.remove(ids.binary_search(&id).expect("in the list"));
                if let [one] = ids[..] {
                    *self = NodeList::One(one);
                }
            }
        }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = AllocationId> {
        self.as_slice().iter().copied()
    }

    pub(crate) fn contains(&self, id: AllocationId) -> bool {
        self.as_slice().binary_search(&id).is_ok()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) bid: BidId,
    pub(crate) tenant: AccountId,
    pub(crate) unit: UnitId,
    /// The time at which the node ends if it was not reported ready (R11).
    pub(crate) start_by: Micros,
    pub(crate) ready: Option<Micros>,
    pub(crate) protected_until: Micros,
    pub(crate) notice: Option<Notice>,
    /// The reserve that counts for the holder's bill and R (R11).
    pub(crate) reserve: Price,
    /// The time at which the offer's higher reserve begins to count.
    pub(crate) raise_at: Option<Micros>,
    pub(crate) running: Option<Running>,
    /// The position in the book, and the handle there.
    pub(crate) place: Option<BookPlace>,
    pub(crate) handle: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    pub(crate) deadline: Micros,
    pub(crate) reason: NoticeReason,
    /// True if the notice lowered `max_nodes` by one, which a rescission gives back (R7).
    pub(crate) returns: bool,
    /// The price of the node as last settled before the notice (R8).
    pub(crate) frozen: Price,
    pub(crate) claim: Option<Claim>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) by: Bidder,
    /// The number of the claim. Claims are numbered in the order in which they are made, and the last
    /// one comes first (R4).
    pub(crate) number: u64,
}

/// A node that is being billed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub(crate) terms: Terms,
    /// The cost under earlier terms, less the meter's reading when the terms began.
    pub(crate) base: i128,
}

impl Notice {
    /// Returns true if the provider caused the notice.
    pub(crate) fn is_of_provider(self) -> bool {
        match self.reason {
            NoticeReason::CapacityWithdrawn | NoticeReason::ReserveRaised => true,
            NoticeReason::Outbid | NoticeReason::Funds => false,
        }
    }
}

impl Allocation {
    pub(crate) fn claim(&self) -> Option<Claim> {
        self.notice.and_then(|notice| notice.claim)
    }
}

/// The units that a provider sells in one market.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) reserve: Price,
    /// The command that set this reserve. Older offers come first (R2).
    pub(crate) place: Seq,
    pub(crate) last_number: u64,
    /// All units by number. The capacity is the number of those that are not leaving.
    pub(crate) units: DenseMap<u64, Unit>,
    pub(crate) free: SortedSet<u64>,
    /// Units that are not sold until the provider resumes them (R11). They are part of the capacity.
    pub(crate) resting: SortedSet<u64>,
    pub(crate) leaving: u64,
    /// The number of units under notice that are not leaving.
    pub(crate) notices: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unit {
    pub(crate) allocation: Option<AllocationId>,
    pub(crate) leaving: bool,
}

impl Offer {
    pub(crate) fn capacity(&self) -> u64 {
        self.units.len() as u64 - self.leaving
    }

    /// Counts the units that are for sale: neither leaving nor resting.
    pub(crate) fn for_sale(&self) -> u64 {
        self.capacity() - self.resting.len() as u64
    }

    /// Counts the units that are held, not under notice and not leaving.
    pub(crate) fn allocated(&self) -> u64 {
        self.for_sale() - self.free.len() as u64 - self.notices
    }
}
