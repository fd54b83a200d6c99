//! Price traces: `timestamp,instance_type,region,price_usd_per_hour`, one row for each change; a price
//! holds until the next row of its market.

use super::TraceError;
use super::table::{Columns, Table};
use crate::file::{TRACE, open};
use indicatif::ProgressBar;
use kubebid_core::Price;
use kubebid_core::units::Micros;
use std::io::BufRead;
use std::path::Path;

pub(super) static COLUMNS: Columns = Columns {
    kind: "a price trace",
    wanted: &["timestamp", "instance_type", "region", "price_usd_per_hour"],
    optional: &[],
};

/// One row of a price trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceChange {
    /// The time from which the price holds.
    pub at: Micros,
    /// Instance type.
    pub instance_type: String,
    /// Region.
    pub region: String,
    /// Price per node-hour.
    pub price: Price,
}

/// The rows of a trace, read one by one: however long it is, it takes no memory.
#[derive(Debug)]
pub struct PriceTrace {
    table: Table,
    last: Micros,
    rounded: u64,
}

impl PriceTrace {
    /// Opens a trace. `bar` shows how much of the file has been read.
    pub fn open(path: &Path, bar: &ProgressBar) -> Result<PriceTrace, TraceError> {
        PriceTrace::of(open(path, &TRACE, bar)?)
    }

    /// Reads a trace from its text.
    pub fn of(text: Box<dyn BufRead>) -> Result<PriceTrace, TraceError> {
        Ok(PriceTrace { table: Table::of(text, &[&COLUMNS])?, last: Micros(0), rounded: 0 })
    }

    /// Returns the number of prices so far that had more than 6 decimals and were rounded.
    pub fn rounded(&self) -> u64 {
        self.rounded
    }

    fn read(&mut self) -> Result<Option<PriceChange>, TraceError> {
        let Some(row) = self.table.next_row()? else { return Ok(None) };
        let price = row.field("price_usd_per_hour").dollars()?;
        self.rounded += u64::from(price.rounded);
        Ok(Some(PriceChange {
            at: row.field("timestamp").time_after(&mut self.last)?,
            instance_type: row.field("instance_type").text.to_owned(),
            region: row.field("region").text.to_owned(),
            price: price.price,
        }))
    }
}

impl Iterator for PriceTrace {
    type Item = Result<PriceChange, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_counts_the_prices_that_it_rounds() {
        let text = "timestamp,instance_type,region,price_usd_per_hour\n\
            1970-01-01T00:00:01Z,g,a,0.1000000\n1970-01-01T00:00:02Z,g,a,0.1234567\n\
            1970-01-01T00:00:03Z,g,a,0.30000000000000004\n";
        let mut trace = PriceTrace::of(Box::new(text.as_bytes())).expect("a heading");
        let prices: Vec<u64> = trace.by_ref().map(|change| change.expect("a row").price.0).collect();
        assert_eq!((prices, trace.rounded()), (vec![100_000, 123_457, 300_000], 2));
    }
}
