//! All bids ever placed: those that count, and of those that ended what is left to tell.

use crate::numbered::{NONE, Places};
use crate::slab::Slab;
use crate::state::{Bid, BidTerms};
use crate::units::BidId;
use std::ops::Index;

#[derive(Debug, Default)]
pub(crate) struct Bids {
    /// In `counting`, or with [`ENDED`] in `ended`.
    places: Places<BidId>,
    counting: Slab<Bid>,
    ended: Slab<BidTerms>,
}

/// The bit that tells the two kinds of places apart.
const ENDED: u32 = 1 << 31;

/// A bid as it is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept<'a> {
    /// It searches, or has a node or a claim.
    Counting(&'a Bid),
    /// Nothing can happen to it any more.
    Ended(&'a BidTerms),
}

impl Bids {
    pub(crate) fn insert(&mut self, id: BidId, bid: Bid) {
        let place = self.counting.put(bid);
        assert!(place & ENDED == 0, "two billion bids do not count at once");
        self.places.push(id, place);
    }

    /// One to which nothing can happen any more, unless [`Bids::count_again`] says so.
    pub(crate) fn insert_ended(&mut self, id: BidId, terms: BidTerms) {
        let place = self.put_ended(terms);
        self.places.push(id, place);
    }

    /// A bid counts after all: it has a node or a claim, but does not search.
    pub(crate) fn count_again(&mut self, id: BidId) {
        let Some(place) = self.places.get(id).filter(|place| place & ENDED != 0) else { return };
        let terms = self.ended[place & !ENDED];
        self.ended.free(place & !ENDED);
        let place = self.counting.put(Bid::new(terms, false));
        self.places.move_to(id, place);
    }

    pub(crate) fn kept(&self, id: BidId) -> Option<Kept<'_>> {
        self.places.get(id).map(|place| self.at(place))
    }

    fn at(&self, place: u32) -> Kept<'_> {
        match place & ENDED {
            0 => Kept::Counting(&self.counting[place]),
            _ => Kept::Ended(&self.ended[place & !ENDED]),
        }
    }

    /// One that counts.
    pub(crate) fn get(&self, id: BidId) -> Option<&Bid> {
        let place = self.places.get(id).filter(|place| place & ENDED == 0)?;
        Some(&self.counting[place])
    }

    /// One that counts.
    pub(crate) fn get_mut(&mut self, id: BidId) -> Option<&mut Bid> {
        let place = self.places.get(id).filter(|place| place & ENDED == 0)?;
        Some(&mut self.counting[place])
    }

    /// From here on a bid that counts does not any more.
    pub(crate) fn end(&mut self, id: BidId) {
        let place = self.places.get(id).expect("a bid that counts");
        let ended = self.put_ended(self.counting[place].terms);
        self.places.move_to(id, ended);
        self.counting.free(place);
    }

    fn put_ended(&mut self, terms: BidTerms) -> u32 {
        let place = self.ended.put(terms);
        assert!(place < NONE & !ENDED, "two billion bids have not ended");
        place | ENDED
    }

    /// By number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BidId, Kept<'_>)> {
        self.places.iter().map(|(id, place)| (id, self.at(place)))
    }
}

impl<'a> Kept<'a> {
    pub(crate) fn terms(self) -> &'a BidTerms {
        match self {
            Kept::Counting(bid) => &bid.terms,
            Kept::Ended(terms) => terms,
        }
    }

    pub(crate) fn counting(self) -> Option<&'a Bid> {
        match self {
            Kept::Counting(bid) => Some(bid),
            Kept::Ended(_) => None,
        }
    }

    pub(crate) fn searching(self) -> bool {
        self.counting().is_some_and(|bid| bid.searching)
    }

    pub(crate) fn unmet(self) -> u32 {
        self.counting().map_or(0, Bid::unmet)
    }
}

impl Index<BidId> for Bids {
    type Output = Bid;

    fn index(&self, id: BidId) -> &Bid {
        self.get(id).expect("a bid that counts")
    }
}
