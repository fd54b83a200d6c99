//! Supply traces: `timestamp,instance_type,region,available`, one row for each change of the nodes there
//! are, or `timestamp,pool,capacity_gpus,running_gpus,pending_gpus`, where what does not run is to be had. Or
//! lifetimes of machines.

use super::TraceError;
use super::field::Field;
use super::lifetimes::{self, Lifetimes};
use super::table::{Columns, Table};
use crate::file::{TRACE, open};
use indicatif::ProgressBar;
use kubebid_core::units::Micros;
use std::io::BufRead;
use std::path::Path;

pub(super) static NODES: Columns = Columns {
    kind: "a supply trace",
    wanted: &["timestamp", "instance_type", "region", "available"],
    optional: &[],
};

pub(super) static GPUS: Columns = Columns {
    kind: "a supply trace of GPUs",
    wanted: &["timestamp", "pool", "capacity_gpus", "running_gpus"],
    optional: &[],
};

/// One row of a supply trace: a market has `nodes` nodes from `at` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupplyChange {
    /// The time of the row.
    pub at: Micros,
    /// Instance type.
    pub instance_type: String,
    /// Region.
    pub region: String,
    /// Nodes from then on.
    pub nodes: u64,
}

/// GPUs of a node in a trace that counts GPUs.
const GPUS_OF_A_NODE: f64 = 8.0;
/// The most nodes of a market.
const NODES_MAX: u32 = 1_000_000;
const GPUS_MAX: f64 = 8e6;

/// The changes of a trace, read one by one.
pub struct SupplyTrace(Box<dyn Iterator<Item = Result<SupplyChange, TraceError>>>);

impl std::fmt::Debug for SupplyTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SupplyTrace").finish_non_exhaustive()
    }
}

/// Each row a change.
struct Rows {
    table: Table,
    last: Micros,
}

impl SupplyTrace {
    /// Opens a trace. `bar` shows how much of the file has been read.
    pub fn open(path: &Path, bar: &ProgressBar) -> Result<SupplyTrace, TraceError> {
        SupplyTrace::of(open(path, &TRACE, bar)?)
    }

    /// Reads a trace from its text.
    pub fn of(text: Box<dyn BufRead>) -> Result<SupplyTrace, TraceError> {
        let table = Table::of(text, &[&lifetimes::COLUMNS, &NODES, &GPUS])?;
        Ok(SupplyTrace(if table.has(&lifetimes::COLUMNS) {
            Box::new(Lifetimes::new(table))
        } else {
            Box::new(Rows { table, last: Micros(0) })
        }))
    }
}

impl Iterator for SupplyTrace {
    type Item = Result<SupplyChange, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl Rows {
    fn read(&mut self) -> Result<Option<SupplyChange>, TraceError> {
        let counts_nodes = self.table.has(&NODES);
        let Some(row) = self.table.next_row()? else { return Ok(None) };
        let at = row.field("timestamp").time_after(&mut self.last)?;
        if counts_nodes {
            return Ok(Some(SupplyChange {
                at,
                instance_type: row.field("instance_type").text.to_owned(),
                region: row.field("region").text.to_owned(),
                nodes: row
                    .field("available")
                    .whole(0..=NODES_MAX, "a number of nodes from 0 to 1000000")?
                    .into(),
            }));
        }
        let gpus = |field: Field<'_>| field.number(0.0..=GPUS_MAX, "a number of GPUs from 0 to 8000000");
        let spare = gpus(row.field("capacity_gpus"))? - gpus(row.field("running_gpus"))?;
        Ok(Some(SupplyChange {
            at,
            instance_type: row.field("pool").text.to_owned(),
            region: "spare".to_owned(),
            nodes: (spare.max(0.0) / GPUS_OF_A_NODE) as u64,
        }))
    }
}

impl Iterator for Rows {
    type Item = Result<SupplyChange, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Result<Vec<(u64, u64)>, String> {
        let trace = SupplyTrace::of(Box::new(text.as_bytes())).map_err(|error| error.to_string())?;
        let changes = trace.map(|change| change.map(|change| (change.at.0 / 1_000_000, change.nodes)));
        changes.collect::<Result<_, _>>().map_err(|error| error.to_string())
    }

    #[test]
    fn nodes_are_counted_and_gpus_that_do_not_run_are_nodes_by_eight() {
        let nodes = "timestamp,instance_type,region,available\n1970-01-01T00:00:01Z,v100,a,3\n";
        assert_eq!(read(nodes), Ok(vec![(1, 3)]));
        let gpus = "timestamp,pool,capacity_gpus,running_gpus,pending_gpus\n\
            1970-01-01T00:00:01Z,all,100,60.5,\n1970-01-01T00:00:02Z,all,100,130,7\n";
        assert_eq!(read(gpus), Ok(vec![(1, 4), (2, 0)]));
    }

    #[test]
    fn a_market_has_the_machines_that_are_alive() {
        let lives = "start_time,instance_type,region,lifetime_s,end_kind\n\
            1970-01-01T00:00:01Z,n1,a,10,preempted\n1970-01-01T00:00:02Z,n1,a,3.5,user\n\
            1970-01-01T00:00:11Z,n1,a,1,preempted\n";
        assert_eq!(read(lives), Ok(vec![(1, 1), (2, 2), (5, 1), (11, 0), (11, 1), (12, 0)]));
        let bad = "start_time,instance_type,region,lifetime_s\n1970-01-01T00:00:01Z,n1,a,long\n";
        assert_eq!(
            read(bad).unwrap_err(),
            "line 2, lifetime_s: \"long\" is not a number of seconds from 0 to 10000000000"
        );
    }
}
