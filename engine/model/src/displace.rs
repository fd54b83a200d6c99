//! The next node for a bid: a free unit, a standing notice, or a displacement (R3, R4).

use crate::state::Model;
use kubebid_core::event::{ClaimCause, DropCause, NoticeReason};
use kubebid_core::units::{AllocationId, BidId, MarketId, Micros, Seq, UnitId};
use kubebid_core::{MarketRules, Price};
use std::cmp::Reverse;

/// The nodes that any bid could get in some markets at this moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    free: Vec<Free>,
    standing: Vec<Standing>,
    shelves: Vec<Shelf>,
}

/// A free unit. The fields are in the order of R2.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Free {
    reserve: Price,
    market: MarketId,
    place: Seq,
    unit: UnitId,
}

/// A standing notice. The fields are in the order of R6.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Standing {
    reserve: Price,
    market: MarketId,
    deadline: Micros,
    allocation: AllocationId,
}

/// The allocations and claims of one market that could be displaced.
#[derive(Clone, Debug)]
struct Shelf {
    market: MarketId,
    rules: MarketRules,
    passes_over: bool,
    live: Vec<Live>,
    claims: Vec<Claimed>,
}

#[derive(Clone, Debug)]
struct Live {
    ceiling: Price,
    allocation: AllocationId,
    protected: bool,
    reserve: Price,
}

#[derive(Clone, Debug)]
struct Claimed {
    ceiling: Price,
    taken: u64,
    allocation: AllocationId,
    reserve: Price,
}

/// A node that a bid could get, and the ceiling that it needs for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) needed: Price,
    pub(crate) market: MarketId,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Free(UnitId),
    Standing(AllocationId),
    /// The place of a live allocation.
    Place(AllocationId),
    /// The claim of a bid on this node under notice.
    Claim(AllocationId),
}

impl What {
    pub(crate) fn is_displacement(self) -> bool {
        match self {
            What::Place(_) | What::Claim(_) => true,
            What::Free(_) | What::Standing(_) => false,
        }
    }
}

/// Returns `ceiling_v + Δ(v)`, or the unit's reserve if that is higher (R4).
pub(crate) fn needed_ceiling(victim: Price, reserve: Price, rules: &MarketRules) -> Price {
    let share = (u128::from(victim.0) * u128::from(rules.increment_bps)).div_ceil(10_000);
    let increment = rules.tick.max(u64::try_from(share).unwrap_or(u64::MAX));
    reserve.max(Price(victim.0.saturating_add(increment)))
}

impl Book {
    /// Returns what a bid with this ceiling takes first. R3 decides between a free unit and a
    /// displacement.
    pub(crate) fn pick(&self, ceiling: Price) -> Option<Pick> {
        let displacement = self.displacement(ceiling);
        let rather = |reserve: Price| {
            reserve <= ceiling && displacement.is_none_or(|displacement| reserve <= displacement.needed)
        };
        if let Some(free) = self.free.iter().min().filter(|free| rather(free.reserve)) {
            return Some(Pick { needed: free.reserve, market: free.market, what: What::Free(free.unit) });
        }
        if let Some(notice) = self.standing.iter().min().filter(|notice| rather(notice.reserve)) {
            let what = What::Standing(notice.allocation);
            return Some(Pick { needed: notice.reserve, market: notice.market, what });
        }
        displacement
    }

    /// Returns the displacement with the lowest needed ceiling, in a tie that of the first market
    /// (R4).
    pub(crate) fn displacement(&self, ceiling: Price) -> Option<Pick> {
        let candidates = self.shelves.iter().filter_map(Shelf::candidate);
        candidates.filter(|pick| pick.needed <= ceiling).min_by_key(|pick| (pick.needed, pick.market))
    }

    /// Returns the book after a bid has taken this pick. The taker's new places are left out, because
    /// the same ceiling could not displace them.
    pub(crate) fn without(mut self, pick: Pick) -> Book {
        self.free.retain(|free| What::Free(free.unit) != pick.what);
        self.standing.retain(|notice| What::Standing(notice.allocation) != pick.what);
        for shelf in &mut self.shelves {
            shelf.live.retain(|live| What::Place(live.allocation) != pick.what);
            shelf.claims.retain(|claim| What::Claim(claim.allocation) != pick.what);
        }
        self
    }

    /// Returns every ceiling with which a bid can get more than with one just below it.
    pub(crate) fn thresholds(&self) -> Vec<Price> {
        let free = self.free.iter().map(|free| free.reserve);
        let standing = self.standing.iter().map(|notice| notice.reserve);
        let displaced = self.shelves.iter().flat_map(|shelf| {
            let live = shelf.live.iter().map(|live| (live.ceiling, live.reserve));
            let claims = shelf.claims.iter().map(|claim| (claim.ceiling, claim.reserve));
            live.chain(claims).map(|(ceiling, reserve)| needed_ceiling(ceiling, reserve, &shelf.rules))
        });
        free.chain(standing).chain(displaced).collect()
    }
}

impl Shelf {
    /// Returns the place that a challenger would have to take (R4). A dearer allocation never stands
    /// in for a cheaper, protected one.
    fn candidate(&self) -> Option<Pick> {
        let counts = |live: &&Live| !(self.passes_over && live.protected);
        let lowest = self.live.iter().filter(counts).map(|live| live.ceiling).min();
        let level = self.live.iter().filter(|live| Some(live.ceiling) == lowest);
        let newest = level.filter(|live| !live.protected).max_by_key(|live| live.allocation);
        let claim = self.claims.iter().min_by_key(|claim| (claim.ceiling, Reverse(claim.taken)));
        let place = |live: &Live| (live.ceiling, live.reserve, What::Place(live.allocation));
        let other = |claim: &Claimed| (claim.ceiling, claim.reserve, What::Claim(claim.allocation));
        let (victim, reserve, what) = match (newest, claim) {
            (Some(live), Some(claim)) if live.ceiling < claim.ceiling => place(live),
            (_, Some(claim)) => other(claim),
            (Some(live), None) => place(live),
            (None, None) => return None,
        };
        Some(Pick { needed: needed_ceiling(victim, reserve, &self.rules), market: self.market, what })
    }
}

impl Model {
    /// Returns what these markets have to give.
    pub(crate) fn book(&self, markets: &[MarketId]) -> Book {
        self.book_with(markets, None)
    }

    /// Returns the same as if the allocation `back`, which is under notice, were back in place.
    pub(crate) fn book_with(&self, markets: &[MarketId], back: Option<AllocationId>) -> Book {
        let mut book = Book::default();
        for unit in self.free_units().filter(|unit| markets.contains(&unit.market)) {
            let (reserve, market, place, _) = self.unit_priority(unit);
            book.free.push(Free { reserve, market, place, unit });
        }
        for market in markets {
            let rules = self.rules(*market).clone();
            let (passes_over, live, claims) = (self.passes_over, Vec::new(), Vec::new());
            let mut shelf = Shelf { market: *market, rules, passes_over, live, claims };
            for (id, a) in self.allocations.iter().filter(|(_, a)| a.unit.market == *market) {
                let (allocation, reserve) = (*id, self.offer_reserve(a.unit));
                let ceiling = self.bids[&a.bid].ceiling;
                let protected = a.is_protected(self.now);
                match (&a.notice, a.claim()) {
                    (None, _) => shelf.live.push(Live { ceiling, allocation, protected, reserve }),
                    (Some(_), None) if back == Some(allocation) => {
                        shelf.live.push(Live { ceiling, allocation, protected, reserve });
                    }
                    (Some(_), Some(claim)) => {
                        let (ceiling, taken) = (self.bids[&claim.bid].ceiling, claim.taken);
                        shelf.claims.push(Claimed { ceiling, taken, allocation, reserve });
                    }
                    (Some(notice), None) if self.stands(allocation) => {
                        let deadline = notice.deadline;
                        book.standing.push(Standing { reserve, market: *market, deadline, allocation });
                    }
                    (Some(_), None) => {}
                }
            }
            book.shelves.push(shelf);
        }
        book
    }

    /// Gives a bid what it has picked.
    pub(crate) fn give(&mut self, bid: BidId, pick: Pick) {
        match pick.what {
            What::Free(unit) => self.take_free(bid, unit),
            What::Standing(node) if self.allocations[&node].bid == bid => self.rescind(node),
            What::Standing(node) => self.make_claim(bid, node, ClaimCause::Standing),
            What::Place(node) => {
                let deadline = self.now.after(self.rules(pick.market).notice);
                self.start_notice(node, deadline, NoticeReason::Outbid);
                self.make_claim(bid, node, ClaimCause::Displaced);
            }
            What::Claim(node) if self.allocations[&node].bid == bid => {
                self.drop_claim(node, DropCause::HolderBack);
                self.rescind(node);
            }
            What::Claim(node) => self.make_claim(bid, node, ClaimCause::ClaimDisplaced),
        }
    }
}
