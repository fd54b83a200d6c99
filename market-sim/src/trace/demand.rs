//! Demand traces: `submit_time,job_id,tenant,instance_class,nodes,gpus,duration_s,priority,bid_proxy,
//! deadline,censored`, sorted by time, plain or gzip-ed.

use super::{Field, TraceError, open};
use indicatif::ProgressBar;
use kubebid_core::units::Micros;
use serde::Deserialize;
use std::io::Read;
use std::path::Path;

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

#[derive(Deserialize)]
struct Row {
    submit_time: String,
    job_id: String,
    tenant: String,
    instance_class: String,
    nodes: String,
    #[serde(default)]
    gpus: String,
    duration_s: String,
    #[serde(default)]
    priority: String,
    bid_proxy: String,
    deadline: String,
}

/// Reads all jobs of a trace, in order.
pub fn read_demand(path: &Path) -> Result<Vec<Job>, TraceError> {
    parse(open(path, &ProgressBar::hidden())?)
}

fn parse(text: impl Read) -> Result<Vec<Job>, TraceError> {
    let mut reader = csv::Reader::from_reader(text);
    // An unreadable file is an error here; below it would only give no rows.
    reader.headers()?;
    let mut jobs: Vec<Job> = Vec::new();
    for row in reader.deserialize() {
        let row: Row = row?;
        let line = jobs.len() as u64 + 2;
        let submit_time = row.submit_time.clone();
        let job = job_of(row, line)?;
        if jobs.last().is_some_and(|last| job.submitted < last.submitted) {
            return Err(TraceError::Unsorted { line, value: submit_time });
        }
        jobs.push(job);
    }
    if jobs.is_empty() { Err(TraceError::Empty("jobs")) } else { Ok(jobs) }
}

fn job_of(row: Row, line: u64) -> Result<Job, TraceError> {
    let field = |name, text| Field { line, name, text };
    let submitted = field("submit_time", &row.submit_time).time()?;
    let nodes = row.nodes.parse::<u32>().ok().filter(|nodes| *nodes > 0);
    let nodes = nodes.ok_or_else(|| field("nodes", &row.nodes).wrong("a number of nodes, at least 1"))?;
    let seconds = row.duration_s.parse::<f64>().ok().filter(|s| s.is_finite() && (0.0..1e10).contains(s));
    let seconds = seconds.ok_or_else(|| field("duration_s", &row.duration_s).wrong("a number of seconds"))?;
    let bid_proxy = match row.bid_proxy.as_str() {
        "" => None,
        text => {
            let share = text.parse::<f64>().ok().filter(|share| share.is_finite() && *share >= 0.0);
            Some(share.ok_or_else(|| field("bid_proxy", text).wrong("a share of the on-demand price"))?)
        }
    };
    let deadline = match row.deadline.as_str() {
        "" => None,
        text => Some(field("deadline", text).time()?),
    };
    let gpus = match row.gpus.as_str() {
        "" => None,
        text => {
            let gpus = text.parse::<f64>().ok().filter(|gpus| (0.0..1e9).contains(gpus));
            Some(gpus.ok_or_else(|| field("gpus", text).wrong("a number of GPUs"))?)
        }
    };
    let priority = match row.priority.to_ascii_lowercase().as_str() {
        "" => None,
        "low" => Some(Priority::Low),
        "normal" => Some(Priority::Normal),
        "high" => Some(Priority::High),
        _ => return Err(field("priority", &row.priority).wrong("low, normal or high")),
    };
    let tenant = (!row.tenant.is_empty()).then_some(row.tenant);
    Ok(Job {
        submitted,
        id: row.job_id,
        tenant,
        class: row.instance_class,
        nodes,
        gpus,
        duration: Micros((seconds * 1e6) as u64),
        priority,
        bid_proxy,
        deadline,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "submit_time,job_id,tenant,instance_class,nodes,gpus,duration_s,priority,bid_proxy,deadline,censored\n";

    fn parsed(lines: &str) -> Result<Vec<Job>, String> {
        parse(format!("{HEADING}{lines}").as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_job_may_be_nobodys_and_bid_nothing() {
        let jobs = parsed("1970-01-01T00:00:02Z,j1,,gpu,2,9,1.5,low,,,0\n").unwrap();
        assert_eq!((&jobs[0].tenant, jobs[0].bid_proxy), (&None, None));
        assert_eq!((jobs[0].submitted, jobs[0].duration), (Micros(2_000_000), Micros(1_500_000)));
    }

    #[test]
    fn a_bad_field_is_named_with_its_line() {
        let good = "1970-01-01T00:00:02Z,j1,t,gpu,2,9,1,low,0.5,,0\n";
        for (bad, field) in [
            ("yesterday,j2,t,gpu,2,9,1,low,0.5,,0\n", "line 3, submit_time"),
            ("1970-01-01T00:00:03Z,j2,t,gpu,0,9,1,low,0.5,,0\n", "line 3, nodes"),
            ("1970-01-01T00:00:03Z,j2,t,gpu,1,-9,1,low,1,,0\n", "line 3, gpus"),
            ("1970-01-01T00:00:03Z,j2,t,gpu,1,9,1,urgent,1,,0\n", "line 3, priority"),
            ("1970-01-01T00:00:03Z,j2,t,gpu,1,9,-1,low,0.5,,0\n", "line 3, duration_s"),
            ("1970-01-01T00:00:03Z,j2,t,gpu,1,9,1,low,NaN,,0\n", "line 3, bid_proxy"),
            ("1970-01-01T00:00:03Z,j2,t,gpu,1,9,1,low,1,soon,0\n", "line 3, deadline"),
            ("1970-01-01T00:00:01Z,j2,t,gpu,1,9,1,low,1,,0\n", "line 3: 1970"),
        ] {
            let error = parsed(&format!("{good}{bad}")).unwrap_err();
            assert!(error.starts_with(field), "{error}");
        }
        assert_eq!(parsed(""), Err("the trace has no jobs".to_owned()));
    }
}
