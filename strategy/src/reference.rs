//! The reference price, of which a strategy bids a share.

/// The hours of market prices whose median makes the reference.
pub const REFERENCE_HOURS: u64 = 48;

/// The median as a share of the reference price, in percent; cost-optimized bids it.
pub(crate) const MEDIAN_PERCENT: u64 = 65;

/// Returns the reference for this time-weighted median of the market price over [`REFERENCE_HOURS`]: the
/// lowest price of which 65 % would have been enough for half of that time.
///
/// It is rounded up, so that 65 % of it is never below the median, and at most the highest `u64`.
pub fn reference_micros(median_micros: u64) -> u64 {
    let reference = (u128::from(median_micros) * 100).div_ceil(u128::from(MEDIAN_PERCENT));
    u64::try_from(reference).unwrap_or(u64::MAX)
}
