//! Decides if a new ceiling is worth the place in the queue that it costs.

/// A bid as it stands, on the slow beat that looks at its ceiling again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub ceiling_micros: u64,
    /// It has no node and no claim. What holds nodes is not lowered: that only makes it easier to displace.
    pub waits: bool,
    /// The market's tick and increment (R4); of several markets the largest of each.
    pub tick_micros: u64,
    pub increment_bps: u64,
}

/// The ceiling to amend the bid to, or `None` where it is better left alone: it moves by no more than the
/// market's increment, which would change little and lose the bid its place among equals (R2), or it would
/// lower a bid that holds something.
pub fn amendment_micros(standing: &Standing, wanted_micros: u64) -> Option<u64> {
    let ceiling = u128::from(standing.ceiling_micros);
    let share = (ceiling * u128::from(standing.increment_bps)).div_ceil(10_000);
    let increment = share.max(u128::from(standing.tick_micros));
    let moves = u128::from(standing.ceiling_micros.abs_diff(wanted_micros)) > increment;
    let lowers = wanted_micros < standing.ceiling_micros;
    (moves && (standing.waits || !lowers)).then_some(wanted_micros)
}
