//! Reads the engine's metrics.

use crate::error::BenchError;
use crate::http::Http;
use http::Uri;
use kubebid_engine::runtime::metrics::{COMMIT_SECONDS, COMMITS, PROJECTION_LAG, SEQ};
use serde::Serialize;
use std::time::Instant;

/// The metrics of an engine at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    commits: f64,
    commit_seconds: f64,
    seq: f64,
    lag: f64,
}

/// The work of the engine while it was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Figures {
    /// The number of commands that the readable tables lacked at the end.
    pub(crate) lag_commands: u64,
    pub(crate) commands: Option<u64>,
    pub(crate) commits: Option<u64>,
    pub(crate) commands_per_commit: Option<f64>,
    pub(crate) mean_commit_us: Option<f64>,
}

/// Reads the metrics at an endpoint.
pub(crate) async fn read(ops: &str) -> Result<Reading, BenchError> {
    let page = Http::connect(ops, None).await?.get(&Uri::from_static("/metrics")).await?;
    if page.status != 200 {
        return Err(BenchError::fault(format!("{ops}/metrics answers {}", page.status)));
    }
    let text = String::from_utf8_lossy(&page.body);
    Ok(Reading {
        commits: sum(&text, COMMITS),
        commit_seconds: sum(&text, &format!("{COMMIT_SECONDS}_sum")),
        seq: sum(&text, SEQ),
        lag: sum(&text, PROJECTION_LAG),
    })
}

/// Reads the metrics at an endpoint when the instant has come.
pub(crate) async fn read_at(instant: Instant, ops: String) -> Result<Reading, BenchError> {
    tokio::time::sleep_until(instant.into()).await;
    read(&ops).await
}

/// Returns the sum of all lines of a metric, whatever their labels.
fn sum(text: &str, metric: &str) -> f64 {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(metric)?;
        let value = match rest.strip_prefix('{') {
            Some(labels) => labels.rsplit_once('}')?.1,
            None => rest.strip_prefix(' ')?,
        };
        value.trim().parse::<f64>().ok()
    });
    values.sum()
}

impl Figures {
    /// Returns the work between two readings. Without the first one only the lag is known.
    pub(crate) fn between(before: Option<&Reading>, after: &Reading) -> Figures {
        let commits = before.map(|before| after.commits - before.commits);
        let commands = before.map(|before| after.seq - before.seq);
        let seconds = before.map(|before| after.commit_seconds - before.commit_seconds);
        let each = |sum: Option<f64>| match (sum, commits) {
            (Some(sum), Some(commits)) if commits > 0.0 => Some(sum / commits),
            (Some(_) | None, _) => None,
        };
        Figures {
            lag_commands: after.lag as u64,
            commands: commands.map(|commands| commands as u64),
            commits: commits.map(|commits| commits as u64),
            commands_per_commit: each(commands),
            mean_commit_us: each(seconds).map(|seconds| seconds * 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn a_metric_is_the_sum_of_its_lines_and_of_no_other_metric() {
        let text = "# HELP a words 7\na{x=\"1\"} 2\na{x=\"} 9\"} 3\na_b 11\na 1\n";
        assert_eq!(sum(text, "a"), 6.0);
        assert_eq!(sum(text, "a_b"), 11.0);
        assert_eq!(sum(text, "c"), 0.0);
    }
}
