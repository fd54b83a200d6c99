//! Supply traces: `timestamp,instance_type,region,available`, one row for each change of the nodes there
//! are, or `timestamp,pool,capacity_gpus,running_gpus,pending_gpus`, where what does not run is to be had. Or
//! lifetimes of machines.

use super::lifetimes::{self, Lifetimes};
use super::{Field, TraceError, open};
use indicatif::ProgressBar;
use kubebid_core::units::Micros;
use std::io::Read;
use std::path::Path;

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
const GPUS: f64 = 8.0;

/// The changes of a trace, read one by one.
pub struct SupplyTrace(Box<dyn Iterator<Item = Result<SupplyChange, TraceError>>>);

impl std::fmt::Debug for SupplyTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SupplyTrace").finish_non_exhaustive()
    }
}

/// Each row a change.
struct Rows {
    rows: csv::StringRecordsIntoIter<Box<dyn Read>>,
    columns: Columns,
    line: u64,
    last: Micros,
}

/// The columns of the fields of a row.
#[derive(Clone, Copy)]
enum Columns {
    Nodes { at: usize, instance_type: usize, region: usize, available: usize },
    Gpus { at: usize, pool: usize, capacity: usize, running: usize },
}

impl Columns {
    fn of(heading: &csv::StringRecord) -> Option<Columns> {
        let column = |name: &str| heading.iter().position(|heading| heading == name);
        let at = column("timestamp")?;
        if let Some(available) = column("available") {
            let (instance_type, region) = (column("instance_type")?, column("region")?);
            return Some(Columns::Nodes { at, instance_type, region, available });
        }
        let (capacity, running) = (column("capacity_gpus")?, column("running_gpus")?);
        Some(Columns::Gpus { at, pool: column("pool")?, capacity, running })
    }
}

impl SupplyTrace {
    /// Opens a trace. `bar` shows how much of the file has been read.
    pub fn open(path: &Path, bar: &ProgressBar) -> Result<SupplyTrace, TraceError> {
        SupplyTrace::of(open(path, bar)?)
    }

    /// Reads a trace from its text.
    pub fn of(text: Box<dyn Read>) -> Result<SupplyTrace, TraceError> {
        let mut reader = csv::Reader::from_reader(text);
        let heading = reader.headers()?;
        if let Some(columns) = lifetimes::Columns::of(heading) {
            return Ok(SupplyTrace(Box::new(Lifetimes::new(reader, columns))));
        }
        let columns = Columns::of(heading).ok_or(TraceError::NoSupply)?;
        Ok(SupplyTrace(Box::new(Rows { rows: reader.into_records(), columns, line: 1, last: Micros(0) })))
    }
}

impl Iterator for SupplyTrace {
    type Item = Result<SupplyChange, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl Rows {
    fn parse(&mut self, row: &csv::StringRecord) -> Result<SupplyChange, TraceError> {
        let field = |name, column| Field { line: self.line, name, text: &row[column] };
        let gpus = |name, column| {
            let field = field(name, column);
            let gpus = field.text.parse::<f64>().ok().filter(|gpus| (0.0..1e9).contains(gpus));
            gpus.ok_or_else(|| field.wrong("a number of GPUs"))
        };
        let change = match self.columns {
            Columns::Nodes { at, instance_type, region, available } => {
                let nodes = field("available", available);
                SupplyChange {
                    at: field("timestamp", at).time()?,
                    instance_type: row[instance_type].to_owned(),
                    region: row[region].to_owned(),
                    nodes: nodes.text.parse().map_err(|_| nodes.wrong("a number of nodes"))?,
                }
            }
            Columns::Gpus { at, pool, capacity, running } => {
                let spare = gpus("capacity_gpus", capacity)? - gpus("running_gpus", running)?;
                SupplyChange {
                    at: field("timestamp", at).time()?,
                    instance_type: row[pool].to_owned(),
                    region: "spare".to_owned(),
                    nodes: (spare.max(0.0) / GPUS) as u64,
                }
            }
        };
        if change.at < self.last {
            let at = match self.columns {
                Columns::Nodes { at, .. } | Columns::Gpus { at, .. } => at,
            };
            return Err(TraceError::Unsorted { line: self.line, value: row[at].to_owned() });
        }
        self.last = change.at;
        Ok(change)
    }
}

impl Iterator for Rows {
    type Item = Result<SupplyChange, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.line += 1;
        Some(match self.rows.next()? {
            Ok(row) => self.parse(&row),
            Err(error) => Err(error.into()),
        })
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
        assert_eq!(read(bad).unwrap_err(), "line 2, lifetime_s: \"long\" is not a number of seconds");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        assert!(read("timestamp,nodes\n").unwrap_err().starts_with("a supply trace has the columns"));
        let bad = "timestamp,instance_type,region,available\n1970-01-01T00:00:01Z,v100,a,many\n";
        assert_eq!(read(bad).unwrap_err(), "line 2, available: \"many\" is not a number of nodes");
        let back = "timestamp,instance_type,region,available\n\
            1970-01-01T00:00:02Z,v100,a,1\n1970-01-01T00:00:01Z,v100,a,1\n";
        assert!(read(back).unwrap_err().starts_with("line 3: 1970-01-01T00:00:01Z is earlier"));
    }
}
