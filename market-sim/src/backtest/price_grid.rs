//! The markets of a trace on a time grid: the price, and what a strategy knows of it.

use super::STEP_MINUTES;
use crate::trace::{PriceChange, TraceError};
use kubebid_core::Price;
use kubebid_core::units::Micros;
use kubebid_strategy::{Quote, REFERENCE_HOURS, reference_micros};
use std::collections::BTreeMap;

const STEP: u64 = STEP_MINUTES * 60_000_000;
const DAY: usize = 24 * 60 / STEP_MINUTES as usize;
const WINDOW: usize = (REFERENCE_HOURS * 60 / STEP_MINUTES) as usize;

/// One market: an entry for every step from its first row to the end of the trace.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Region of the market.
    pub region: String,
    /// Time of the first step.
    pub begin: Micros,
    /// The price at each step.
    pub prices: Vec<Price>,
    /// The reference price at each step.
    pub reference: Vec<Price>,
    /// The lowest price of the same window, in place of the reserves.
    pub floor: Vec<Price>,
}

/// Reads the markets of one instance type, and of these regions, if there are any.
pub fn read_grids(
    trace: impl Iterator<Item = Result<PriceChange, TraceError>>,
    instance_type: &str,
    regions: &[String],
) -> Result<Vec<Grid>, TraceError> {
    let mut grids: BTreeMap<String, (Price, Grid)> = BTreeMap::new();
    let mut end = Micros(0);
    for change in trace {
        let PriceChange { at, instance_type: kind, region, price } = change?;
        end = at;
        if kind != instance_type || !(regions.is_empty() || regions.contains(&region)) {
            continue;
        }
        let begin = Micros(at.0.next_multiple_of(STEP));
        let (last, grid) = grids.entry(region.clone()).or_insert_with(|| {
            let (reference, floor) = (Vec::new(), Vec::new());
            (price, Grid { region, begin, prices: Vec::new(), reference, floor })
        });
        grid.hold(*last, at);
        *last = price;
    }
    let finished = grids.into_values().map(|(last, mut grid)| {
        grid.hold(last, Micros(end.0 + 1));
        grid.look_back();
        grid
    });
    // One day for the first reference price, and one day to bid in.
    let long: Vec<Grid> = finished.filter(|grid| grid.prices.len() > 2 * DAY).collect();
    if long.is_empty() {
        Err(TraceError::Empty("two days of prices of this type and region"))
    } else {
        Ok(long)
    }
}

impl Grid {
    /// Sets the price at every step before `end` that has none.
    fn hold(&mut self, price: Price, end: Micros) {
        let steps = end.0.saturating_sub(self.begin.0).div_ceil(STEP) as usize;
        self.prices.resize(steps.max(self.prices.len()), price);
    }

    fn look_back(&mut self) {
        let mut recent: Vec<Price> = Vec::with_capacity(WINDOW + 1);
        for (n, price) in self.prices.iter().enumerate() {
            self.floor.push(recent.first().copied().unwrap_or(*price));
            let median = recent.get(recent.len().saturating_sub(1) / 2).copied().unwrap_or(*price);
            self.reference.push(Price(reference_micros(median.0)));
            recent.insert(recent.partition_point(|other| other < price), *price);
            if let Some(old) = n.checked_sub(WINDOW) {
                recent.remove(recent.partition_point(|other| *other < self.prices[old]));
            }
        }
    }

    pub(super) fn quote(&self, step: usize, tick_micros: u64) -> Quote {
        Quote {
            reference_micros: Some(self.reference[step].0),
            floor_micros: Some(self.floor[step].0),
            tick_micros,
        }
    }

    /// Returns the first step with a whole day before it.
    pub(super) fn first(&self) -> usize {
        DAY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::PriceTrace;

    #[test]
    fn sixty_five_percent_of_the_reference_is_the_median_of_two_days() {
        let rows = "timestamp,instance_type,region,price_usd_per_hour\n\
            1970-01-01T00:00:00Z,g,a,1\n1970-01-02T00:00:00Z,g,a,3\n1970-01-02T12:00:00Z,x,b,1\n\
            1970-01-03T12:00:00Z,x,b,1\n";
        let trace = || PriceTrace::of(Box::new(std::io::Cursor::new(rows))).expect("a heading");
        let grids = read_grids(trace(), "g", &[]).expect("a trace");
        let grid = &grids[0];
        assert_eq!(grid.prices.len(), 2 * DAY + DAY / 2 + 1);
        assert_eq!((grid.prices[DAY - 1], grid.prices[DAY]), (Price(1_000_000), Price(3_000_000)));
        // A day after the price has changed the median follows.
        assert_eq!(grid.reference[2 * DAY], Price(reference_micros(1_000_000)));
        assert_eq!(grid.reference[2 * DAY + 1], Price(reference_micros(3_000_000)));
        assert_eq!(grid.floor[2 * DAY + DAY / 2], Price(1_000_000));
        assert!(read_grids(trace(), "g", &["b".to_owned()]).is_err());
    }
}
