//! The facts about a market that a strategy uses.

/// The markets of one bid, as they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    /// The reference price, where there is one; see [`crate::reference_micros`]. Of several markets the
    /// lowest: one of them is enough.
    pub reference_micros: Option<u64>,
    /// The lowest reserve on offer (R9), where anything is offered. Of several markets the lowest.
    pub floor_micros: Option<u64>,
    /// What every price has to be a multiple of; see [`shared_tick_micros`]. Greater than 0.
    pub tick_micros: u64,
}

impl Quote {
    /// The highest multiple of the tick at or below.
    ///
    /// # Panics
    ///
    /// If the tick is 0.
    pub fn round_down_micros(&self, price_micros: u64) -> u64 {
        price_micros - price_micros % self.tick_micros
    }

    /// The lowest multiple of the tick at or above; `None` beyond what can be expressed, or if the tick is 0.
    pub fn round_up_micros(&self, price_micros: u64) -> Option<u64> {
        price_micros.checked_next_multiple_of(self.tick_micros)
    }
}

/// The least tick that all of these markets share. `None` without markets, for a tick of 0, and when the
/// least common multiple cannot be expressed: then no one price suits them all.
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
