//! Price traces: `timestamp,instance_type,region,price_usd_per_hour`, one row for each change; a price
//! holds until the next row of its market.

use super::{Field, TraceError, open};
use indicatif::ProgressBar;
use kubebid_core::Price;
use kubebid_core::units::Micros;
use serde::Deserialize;
use std::io::Read;
use std::path::Path;

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
pub struct PriceTrace {
    rows: csv::DeserializeRecordsIntoIter<Box<dyn Read>, Row>,
    line: u64,
    last: Micros,
}

impl std::fmt::Debug for PriceTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PriceTrace").field("line", &self.line).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Row {
    timestamp: String,
    instance_type: String,
    region: String,
    price_usd_per_hour: String,
}

impl PriceTrace {
    /// Opens a trace. `bar` shows how much of the file has been read.
    pub fn open(path: &Path, bar: &ProgressBar) -> Result<PriceTrace, TraceError> {
        PriceTrace::of(open(path, bar)?)
    }

    /// Reads a trace from its text.
    pub fn of(text: Box<dyn Read>) -> Result<PriceTrace, TraceError> {
        let mut reader = csv::Reader::from_reader(text);
        // An unreadable file is an error here; below it would only give no rows.
        reader.headers()?;
        Ok(PriceTrace { rows: reader.into_deserialize(), line: 1, last: Micros(0) })
    }

    fn parse(&mut self, row: Row) -> Result<PriceChange, TraceError> {
        let field = |name, text| Field { line: self.line, name, text };
        let at = field("timestamp", &row.timestamp).time()?;
        let price = field("price_usd_per_hour", &row.price_usd_per_hour).dollars()?;
        if at < self.last {
            return Err(TraceError::Unsorted { line: self.line, value: row.timestamp });
        }
        self.last = at;
        Ok(PriceChange { at, instance_type: row.instance_type, region: row.region, price })
    }
}

impl Iterator for PriceTrace {
    type Item = Result<PriceChange, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.line += 1;
        Some(match self.rows.next()? {
            Ok(row) => self.parse(row),
            Err(error) => Err(error.into()),
        })
    }
}
