//! Demand traces: `submit_time,job_id,tenant,instance_class,nodes,gpus,duration_s,priority,bid_proxy,
//! deadline,censored`, sorted by time, plain or gzip-ed.

use super::TraceError;
use super::field::Field;
use super::table::{Columns, Row, Table};
use crate::file::{TRACE, open};
use indicatif::ProgressBar;
use kubebid_core::units::Micros;
use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

pub(super) static COLUMNS: Columns = Columns {
    kind: "a demand trace",
    wanted: &[
        "submit_time",
        "job_id",
        "tenant",
        "instance_class",
        "nodes",
        "duration_s",
        "bid_proxy",
        "deadline",
    ],
    optional: &["gpus", "priority"],
};

/// One job of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Time of submission.
    pub submitted: Micros,
    /// Id in the trace.
    pub id: String,
    /// The tenant, if the trace says.
    pub tenant: Option<String>,
    /// Instance class.
    pub class: String,
    /// Nodes that it wants.
    pub nodes: u32,
    /// GPUs in all, if the trace says; less than one is a share of a GPU.
    pub gpus: Option<f64>,
    /// The time that it takes with all its nodes.
    pub duration: Micros,
    /// Its priority, if the trace says.
    pub priority: Option<Priority>,
    /// The price that it would pay, as a share of the on-demand price, if the trace says.
    pub bid_proxy: Option<f64>,
    /// The time at which it should be done, if the trace says.
    pub deadline: Option<Micros>,
}

/// The priority of a job, if the trace says it in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Low.
    Low,
    /// Normal.
    Normal,
    /// High.
    High,
}

/// Reads all jobs of a trace, in order. With `gpus_per_node` a job whose GPUs do not fit on its nodes is refused.
pub fn read_demand(path: &Path, gpus_per_node: Option<u32>) -> Result<Vec<Job>, TraceError> {
    parse(open(path, &TRACE, &ProgressBar::hidden())?, gpus_per_node)
}

fn parse(text: Box<dyn BufRead>, gpus_per_node: Option<u32>) -> Result<Vec<Job>, TraceError> {
    let mut table = Table::of(text, &[&COLUMNS])?;
    let mut jobs: Vec<Job> = Vec::new();
    let mut last = Micros(0);
    let mut lines: HashMap<String, u64> = HashMap::new();
    while let Some(row) = table.next_row()? {
        let job = job_of(&row, &mut last)?;
        check_gpus(&row, &job, gpus_per_node)?;
        if let Some(first) = lines.insert(job.id.clone(), row.line) {
            return Err(TraceError::Repeated { line: row.line, field: "job_id", value: job.id, first });
        }
        jobs.push(job);
    }
    Ok(jobs)
}

fn job_of(row: &Row<'_>, last: &mut Micros) -> Result<Job, TraceError> {
    let submitted = row.field("submit_time").time_after(last)?;
    let share = |field: Field<'_>| {
        field.number(0.0..=1000.0, "a share of the on-demand price from 0 to 1000, like 0.5")
    };
    let gpus = |field: Field<'_>| field.number(0.0..=8e6, "a number of GPUs from 0 to 8000000");
    let deadline = row.field("deadline");
    let ends = deadline.filled().map(|field| field.time()).transpose()?;
    if ends.is_some_and(|ends| ends < submitted) {
        let message = format!("{} is before the submit_time", deadline.text);
        return Err(TraceError::Contradiction { line: row.line, field: "deadline", message });
    }
    Ok(Job {
        submitted,
        id: row.field("job_id").name()?.to_owned(),
        tenant: row.field("tenant").filled().map(|field| field.text.to_owned()),
        class: row.field("instance_class").text.to_owned(),
        nodes: row.field("nodes").whole(1..=NODES_MAX, "a whole number of nodes from 1 to 1000000")?,
        gpus: row.field("gpus").filled().map(gpus).transpose()?,
        duration: row.field("duration_s").seconds()?,
        priority: row.field("priority").filled().map(|field| priority(&field)).transpose()?,
        bid_proxy: row.field("bid_proxy").filled().map(share).transpose()?,
        deadline: ends,
    })
}

/// The most nodes of a job.
const NODES_MAX: u32 = 1_000_000;

fn priority(field: &Field<'_>) -> Result<Priority, TraceError> {
    match field.text.to_ascii_lowercase().as_str() {
        "low" => Ok(Priority::Low),
        "normal" => Ok(Priority::Normal),
        "high" => Ok(Priority::High),
        _ => Err(field.wrong("low, normal or high")),
    }
}

/// Refuses a job whose GPUs do not fit on its nodes. To run it on them all the same would make less work of it, and to give
/// it more nodes would be another job than that of the trace.
fn check_gpus(row: &Row<'_>, job: &Job, gpus_per_node: Option<u32>) -> Result<(), TraceError> {
    let (Some(gpus), Some(per_node)) = (job.gpus, gpus_per_node) else { return Ok(()) };
    if gpus <= f64::from(per_node) * f64::from(job.nodes) {
        return Ok(());
    }
    let nodes = if job.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", job.nodes) };
    let message = format!(
        "{gpus} GPUs do not fit on {nodes} of {per_node}: give the job more nodes, nodes of more GPUs with \
         --gpus-per-node, or count no GPUs with --whole-nodes"
    );
    Err(TraceError::Contradiction { line: row.line, field: "gpus", message })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "submit_time,job_id,tenant,instance_class,nodes,gpus,duration_s,priority,bid_proxy,deadline,censored\n";

    fn parsed(lines: &str) -> Result<Vec<Job>, String> {
        let text = std::io::Cursor::new(format!("{HEADING}{lines}"));
        parse(Box::new(text), Some(8)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_job_may_be_nobodys_and_bid_nothing() {
        let jobs = parsed("1970-01-01T00:00:02Z,j1,,gpu,2,9,1.5,low,,,0\n").unwrap();
        assert_eq!((&jobs[0].tenant, jobs[0].bid_proxy), (&None, None));
        assert_eq!((jobs[0].submitted, jobs[0].duration), (Micros(2_000_000), Micros(1_500_000)));
    }

    #[test]
    fn gpus_that_do_not_fit_on_the_nodes_are_refused() {
        let row =
            |nodes: u32, gpus: &str| format!("1970-01-01T00:00:02Z,j1,,gpu,{nodes},{gpus},1.5,low,,,0\n");
        for (nodes, gpus) in [(1, "8"), (8, "64"), (2, "8.5"), (1, "0"), (1, "")] {
            assert!(parsed(&row(nodes, gpus)).is_ok(), "{gpus} on {nodes}");
        }
        for (nodes, gpus, says) in [
            (1, "64", "line 2, gpus: 64 GPUs do not fit on 1 node of 8: "),
            (2, "16.5", "line 2, gpus: 16.5 GPUs do not fit on 2 nodes of 8: "),
        ] {
            let error = parsed(&row(nodes, gpus)).unwrap_err();
            assert!(error.starts_with(says) && error.contains("--gpus-per-node"), "{error}");
        }
        let text = format!("{HEADING}{}", row(1, "64"));
        assert!(parse(Box::new(std::io::Cursor::new(text)), None).is_ok());
    }
}
