//! Decides if a new ceiling is worth the place in the queue that it costs.

/// The present state of a bid whose ceiling is revised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The ceiling, micro-dollars per node-hour.
    pub ceiling_micros: u64,
    /// True if it has no node and no claim. A bid that holds nodes is not lowered: that only makes it easier to
    /// displace.
    pub waits: bool,
    /// The market's tick; of several markets the largest.
    pub tick_micros: u64,
    /// The market's increment in 1/10000 (R4); of several markets the largest.
    pub increment_bps: u64,
}

/// Returns the ceiling to amend the bid to, or `None` if the bid should stay as it is: the ceiling would move by no
/// more than the market's increment, which changes little and costs the bid its place among equals (R2), or a bid
/// that holds something would be lowered.
pub fn amendment_micros(standing: &Standing, wanted_micros: u64) -> Option<u64> {
    let ceiling = u128::from(standing.ceiling_micros);
    let share = (ceiling * u128::from(standing.increment_bps)).div_ceil(10_000);
    let increment = share.max(u128::from(standing.tick_micros));
    let moves = u128::from(standing.ceiling_micros.abs_diff(wanted_micros)) > increment;
    let lowers = wanted_micros < standing.ceiling_micros;
    (moves && (standing.waits || !lowers)).then_some(wanted_micros)
}
