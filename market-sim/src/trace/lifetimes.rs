//! Lifetimes: `start_time,instance_type,region,lifetime_s,…`, one row for each machine, sorted by start. As
//! supply: a market has as many nodes as machines of it are alive.

use super::table::{Columns, Table};
use super::{SupplyChange, TraceError};
use crate::agenda::{Agenda, Step};
use kubebid_core::units::Micros;
use std::cmp::Ordering;
use std::collections::BTreeMap;

pub(super) static COLUMNS: Columns = Columns {
    kind: "a supply trace of lifetimes",
    wanted: &["start_time", "instance_type", "region", "lifetime_s"],
    optional: &[],
};

/// Changes of supply: beginnings as they are read, ends in between. It keeps only the machines that are alive.
pub(super) struct Lifetimes {
    table: Table,
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
    pub(super) fn new(table: Table) -> Lifetimes {
        Lifetimes { table, last: Micros(0), next: None, ends: Agenda::new(), alive: BTreeMap::new() }
    }

    fn read(&mut self) -> Result<Option<(Micros, Micros, Market)>, TraceError> {
        let Some(row) = self.table.next_row()? else { return Ok(None) };
        let begins = row.field("start_time").time_after(&mut self.last)?;
        let market = (row.field("instance_type").text.to_owned(), row.field("region").text.to_owned());
        Ok(Some((begins, begins.after(row.field("lifetime_s").seconds()?), market)))
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
