//! The facts about a market that a strategy uses.

/// The present state of the markets of one bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    /// The reference price, if there is one; see [`crate::reference_micros`]. Of several markets it is the
    /// lowest: one of them is enough.
    pub reference_micros: Option<u64>,
    /// The lowest reserve on offer (R9), if anything is offered. Of several markets it is the lowest.
    pub floor_micros: Option<u64>,
    /// The tick: every price is a multiple of it; see [`shared_tick_micros`]. Greater than 0.
    pub tick_micros: u64,
}

impl Quote {
    /// Returns the highest multiple of the tick at or below a price.
    ///
    /// # Panics
    ///
    /// If the tick is 0.
    pub fn round_down_micros(&self, price_micros: u64) -> u64 {
        price_micros - price_micros % self.tick_micros
    }

    /// Returns the lowest multiple of the tick at or above a price; `None` beyond the highest `u64`, or if the tick
    /// is 0.
    pub fn round_up_micros(&self, price_micros: u64) -> Option<u64> {
        price_micros.checked_next_multiple_of(self.tick_micros)
    }
}

/// Returns the least common multiple of the ticks of some markets. `None` without markets, for a tick of 0, and if
/// the multiple is beyond the highest `u64`: then no one price suits them all.
pub fn shared_tick_micros(ticks: impl IntoIterator<Item = u64>) -> Option<u64> {
    ticks
        .into_iter()
        .try_fold(None, |shared: Option<u64>, tick| match shared {
            _ if tick == 0 => None,
            None => Some(Some(tick)),
            Some(shared) => Some(Some((shared / common_divisor(shared, tick)).checked_mul(tick)?)),
        })
        .flatten()
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
