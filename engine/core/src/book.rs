//! The order book of one market: bids that wait, nodes that are held, units that are free. It remembers and sorts; the
//! rules are in `rules/`.

mod demand;
mod head_queue;
mod held;
mod ladder;
mod rescues;
mod rivals;
mod supply;

pub(crate) use demand::{Demand, Queued};
pub(crate) use head_queue::HeadQueue;
pub(crate) use held::{Held, Live, Victim};
pub use ladder::{Handle, Ladder, Rank};
pub(crate) use rescues::Rescues;
pub(crate) use supply::Free;

use crate::collections::sorted_map::SortedSet;
use crate::types::money::Price;
use crate::types::units::{AllocationId, Micros};

/// The position of an allocation in its market's book, with everything that the book sorts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BookPlace {
    Live(Live),
    Claimed {
        ceiling: Price,
        number: u64,
        reserve: Price,
    },
    /// A notice without a claim that its holder does not want back. Any bid may claim it (R6).
    Standing {
        reserve: Price,
        deadline: Micros,
    },
    /// A notice without a claim that its holder wants back (R6).
    Orphan {
        ceiling: Price,
        returns: bool,
    },
    /// A notice without a claim whose unit leaves.
    Leaving,
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) free: Free,
    /// Standing notices: lowest reserve, earliest deadline, oldest first (R6).
    pub(crate) standing: SortedSet<(Price, Micros, AllocationId)>,
    pub(crate) held: Held,
    pub(crate) demand: Demand,
    pub(crate) rescues: Rescues,
    /// The number of allocations under notice.
    pub(crate) notices: u64,
}

impl Book {
    /// Moves an allocation from one place in the book to another; None stands for a place outside the
    /// book. Returns the handle by which the allocation is found at its new place.
    pub(crate) fn move_to(
        &mut self,
        id: AllocationId,
        from: Option<BookPlace>,
        to: Option<BookPlace>,
        handle: u32,
    ) -> u32 {
        if let (Some(BookPlace::Live(from)), Some(BookPlace::Live(to))) = (from, to) {
            return self.held.move_live(id, from, to, handle);
        }
        if let Some(from) = from {
            self.remove(id, from, handle);
        }
        to.map_or(0, |to| self.insert(id, to))
    }

    fn insert(&mut self, id: AllocationId, place: BookPlace) -> u32 {
        self.notices += u64::from(place.is_notice());
        match place {
            BookPlace::Live(live) => return self.held.insert_live(id, live),
            BookPlace::Claimed { ceiling, number, reserve } => {
                self.held.insert_claim(id, ceiling, number, reserve)
            }
            BookPlace::Standing { reserve, deadline } => {
                self.standing.insert((reserve, deadline, id));
            }
            BookPlace::Orphan { .. } | BookPlace::Leaving => {}
        }
        0
    }

    fn remove(&mut self, id: AllocationId, place: BookPlace, handle: u32) {
        match place {
            BookPlace::Live(live) => self.held.remove_live(live, handle),
            BookPlace::Claimed { ceiling, number, reserve } => {
                self.held.remove_claim(id, ceiling, number, reserve)
            }
            BookPlace::Standing { reserve, deadline } => {
                self.standing.remove((reserve, deadline, id));
            }
            BookPlace::Orphan { .. } | BookPlace::Leaving => {}
        }
        self.notices -= u64::from(place.is_notice());
    }
}

impl BookPlace {
    /// Returns true if the node is under notice and its unit is not leaving.
    pub(crate) fn is_notice_of_staying_unit(self) -> bool {
        match self {
            BookPlace::Live(_) | BookPlace::Leaving => false,
            BookPlace::Claimed { .. } | BookPlace::Standing { .. } | BookPlace::Orphan { .. } => true,
        }
    }

    fn is_notice(self) -> bool {
        match self {
            BookPlace::Live(_) => false,
            BookPlace::Claimed { .. }
            | BookPlace::Standing { .. }
            | BookPlace::Orphan { .. }
            | BookPlace::Leaving => true,
        }
    }
}
