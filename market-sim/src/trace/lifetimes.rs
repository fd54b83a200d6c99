//! Lifetimes: `start_time,instance_type,region,lifetime_s,…`, one row for each machine, sorted by start. As
//! supply: a market has as many nodes as machines of it are alive.

use super::{Field, SupplyChange, TraceError};
use crate::agenda::{Agenda, Step};
use kubebid_core::units::Micros;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io::Read;

#[derive(Clone, Copy)]
pub(super) struct Columns {
    start: usize,
    instance_type: usize,
    region: usize,
    lifetime: usize,
}

impl Columns {
    pub(super) fn of(heading: &csv::StringRecord) -> Option<Columns> {
        let column = |name: &str| heading.iter().position(|heading| heading == name);
        let (start, lifetime) = (column("start_time")?, column("lifetime_s")?);
        Some(Columns { start, instance_type: column("instance_type")?, region: column("region")?, lifetime })
    }
}

/// Changes of supply: beginnings as they are read, ends in between. It keeps only the machines that are alive.
pub(super) struct Lifetimes {
    rows: csv::StringRecordsIntoIter<Box<dyn Read>>,
    columns: Columns,
    line: u64,
    last: Micros,
    /// The next machine, read but not begun: some end before it.
    next: Option<(Micros, Micros, Market)>,
    ends: Agenda<Market>,
    alive: BTreeMap<Market, u64>,
}

/// Instance type and region.
type Market = (String, String);

/// Machines that end at the same instant are taken by the name of their market.
impl Step for Market {
    fn rank(&self, other: &Market) -> Ordering {
        self.cmp(other)
    }
}

impl Lifetimes {
    pub(super) fn new(reader: csv::Reader<Box<dyn Read>>, columns: Columns) -> Lifetimes {
        let (ends, alive) = (Agenda::new(), BTreeMap::new());
        let rows = reader.into_records();
        Lifetimes { rows, columns, line: 1, last: Micros(0), next: None, ends, alive }
    }

    fn read(&mut self) -> Result<Option<(Micros, Micros, Market)>, TraceError> {
        self.line += 1;
        let Some(row) = self.rows.next().transpose()? else { return Ok(None) };
        let field = |name, column| Field { line: self.line, name, text: &row[column] };
        let Columns { start, instance_type, region, lifetime } = self.columns;
        let begins = field("start_time", start).time()?;
        if begins < self.last {
            return Err(TraceError::Unsorted { line: self.line, value: row[start].to_owned() });
        }
        self.last = begins;
        let lived = field("lifetime_s", lifetime);
        let seconds = lived.text.parse::<f64>().ok().filter(|seconds| (0.0..1e10).contains(seconds));
        let seconds = seconds.ok_or_else(|| lived.wrong("a number of seconds"))?;
        let market = (row[instance_type].to_owned(), row[region].to_owned());
        Ok(Some((begins, begins.after(Micros((seconds * 1e6) as u64)), market)))
    }

    fn change(&mut self, at: Micros, market: Market, more: i64) -> SupplyChange {
        let alive = self.alive.entry(market.clone()).or_default();
        *alive = alive.saturating_add_signed(more);
        SupplyChange { at, nodes: *alive, instance_type: market.0, region: market.1 }
    }
}

impl Iterator for Lifetimes {
    type Item = Result<SupplyChange, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next.is_none() {
            match self.read() {
                Ok(next) => self.next = next,
                Err(error) => return Some(Err(error)),
            }
        }
        let begins = self.next.as_ref().map(|(begins, ..)| *begins);
        let end = self.ends.next_at().filter(|end| begins.is_none_or(|begins| *end <= begins));
        if let Some(end) = end {
            let market = self.ends.take_due(end)?;
            return Some(Ok(self.change(end, market, -1)));
        }
        let (begins, ends, market) = self.next.take()?;
        self.ends.plan(ends, market.clone());
        Some(Ok(self.change(begins, market, 1)))
    }
}
