//! All bids ever placed: active bids in full, and the terms of those that have ended.

use crate::collections::dense_map::{NONE, SlotIndex};
use crate::collections::slab::Slab;
use crate::state::{Bid, BidTerms};
use crate::types::units::BidId;
use std::ops::Index;

#[derive(Debug, Default)]
pub(crate) struct Bids {
    /// The slot of each bid in `active`, or in `ended` if the bit [`ENDED`] is set.
    places: SlotIndex<BidId>,
    active: Slab<Bid>,
    ended: Slab<BidTerms>,
}

/// The bit of a slot that tells ended bids from active ones.
const ENDED: u32 = 1 << 31;

/// A bid, active or ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BidRecord<'a> {
    /// An active bid: it searches, or has a node or a claim.
    Live(&'a Bid),
    /// An ended bid: nothing can happen to it any more.
    Ended(&'a BidTerms),
}

impl Bids {
    pub(crate) fn insert(&mut self, id: BidId, bid: Bid) {
        let place = self.active.put(bid);
        assert!(place & ENDED == 0, "two billion bids are not active at once");
        self.places.push(id, place);
    }

    /// Adds a bid that has ended. [`Bids::reactivate`] can undo that.
    pub(crate) fn insert_ended(&mut self, id: BidId, terms: BidTerms) {
        let place = self.put_ended(terms);
        self.places.push(id, place);
    }

    /// Makes an ended bid active again, without searching: it got a node or a claim after all.
    pub(crate) fn reactivate(&mut self, id: BidId) {
        let Some(place) = self.places.get(id).filter(|place| place & ENDED != 0) else { return };
        let terms = self.ended[place & !ENDED];
        self.ended.free(place & !ENDED);
        let place = self.active.put(Bid::new(terms, false));
        self.places.move_to(id, place);
    }

    pub(crate) fn record(&self, id: BidId) -> Option<BidRecord<'_>> {
        self.places.get(id).map(|place| self.at(place))
    }

    fn at(&self, place: u32) -> BidRecord<'_> {
        match place & ENDED {
            0 => BidRecord::Live(&self.active[place]),
            _ => BidRecord::Ended(&self.ended[place & !ENDED]),
        }
    }

    /// Returns an active bid.
    pub(crate) fn get(&self, id: BidId) -> Option<&Bid> {
        let place = self.places.get(id).filter(|place| place & ENDED == 0)?;
        Some(&self.active[place])
    }

    /// Returns an active bid.
    pub(crate) fn get_mut(&mut self, id: BidId) -> Option<&mut Bid> {
        let place = self.places.get(id).filter(|place| place & ENDED == 0)?;
        Some(&mut self.active[place])
    }

    /// Ends an active bid: only its terms are kept.
    pub(crate) fn end(&mut self, id: BidId) {
        let place = self.places.get(id).expect("an active bid");
        let ended = self.put_ended(self.active[place].terms);
        self.places.move_to(id, ended);
        self.active.free(place);
    }

    fn put_ended(&mut self, terms: BidTerms) -> u32 {
        let place = self.ended.put(terms);
        assert!(place < NONE & !ENDED, "two billion bids have not ended");
        place | ENDED
    }

    /// Returns all bids by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BidId, BidRecord<'_>)> {
        self.places.iter().map(|(id, place)| (id, self.at(place)))
    }
}

impl<'a> BidRecord<'a> {
    pub(crate) fn terms(self) -> &'a BidTerms {
        match self {
            BidRecord::Live(bid) => &bid.terms,
            BidRecord::Ended(terms) => terms,
        }
    }

    pub(crate) fn active(self) -> Option<&'a Bid> {
        match self {
            BidRecord::Live(bid) => Some(bid),
            BidRecord::Ended(_) => None,
        }
    }

    pub(crate) fn searching(self) -> bool {
        self.active().is_some_and(|bid| bid.searching)
    }

    pub(crate) fn unmet(self) -> u32 {
        self.active().map_or(0, Bid::unmet)
    }
}

impl Index<BidId> for Bids {
    type Output = Bid;

    fn index(&self, id: BidId) -> &Bid {
        self.get(id).expect("an active bid")
    }
}
