//! All metrics of the engine, with their names and units.

pub(crate) mod markets;

use crate::events::commit::Step;
use crate::runtime::spans;
use kubebid_core::answer::Outcome;
use metrics::{
    Counter, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;

/// Counter of applied commands, by `outcome`.
pub const COMMANDS: &str = "kubebid_commands_total";
pub(crate) const EVENTS: &str = "kubebid_events_total";
pub(crate) const DROPPED: &str = "kubebid_commands_dropped_total";
/// Counter of commits of the journal.
pub const COMMITS: &str = "kubebid_commits_total";
/// Histogram of the time of a commit, in seconds.
pub const COMMIT_SECONDS: &str = "kubebid_commit_duration_seconds";
pub(crate) const COMMIT_COMMANDS: &str = "kubebid_commit_commands";
pub(crate) const JOURNAL_BYTES: &str = "kubebid_journal_written_bytes_total";
pub(crate) const STORE_FAULTS: &str = "kubebid_store_faults_total";
pub(crate) const INTAKE_DEPTH: &str = "kubebid_intake_commands";
/// Counter of requests, by `wire`, `method` and `code`.
pub const REQUESTS: &str = "kubebid_requests_total";
pub(crate) const REQUEST_SECONDS: &str = "kubebid_request_duration_seconds";
/// Gauge of the number of the last applied command.
pub const SEQ: &str = "kubebid_seq";
/// Gauge of the applied commands that the tables do not have yet.
pub const PROJECTION_LAG: &str = "kubebid_projection_lag_commands";
pub(crate) const LEADING: &str = "kubebid_leading";
/// Gauge that is 1 while `/readyz` answers ok.
pub const READY: &str = "kubebid_ready";
pub(crate) const LEASE_FAULTS: &str = "kubebid_lease_faults_total";
pub(crate) const CLOCK_JUMP: &str = "kubebid_clock_jump_seconds";
pub(crate) const JOURNAL_DAMAGED: &str = "kubebid_journal_damaged";
pub(crate) const JOURNAL_SCRUBS: &str = "kubebid_journal_scrubs_total";
pub(crate) const SNAPSHOT_AGE: &str = "kubebid_snapshot_age_commands";
/// Gauge of the open connections, by `port`.
pub const CONNECTIONS: &str = "kubebid_connections";
pub(crate) const CONNECTIONS_REFUSED: &str = "kubebid_connections_refused_total";
pub(crate) const CONNECTIONS_CLOSED: &str = "kubebid_connections_closed_total";

const OUTCOMES: [&str; 3] = ["accepted", "rejected", "repeated"];
const REFUSED: &str = "refused";
const UNKNOWN: &str = "unknown";

/// Describes each metric. Counters of rare events start at 0, so that a rate has a first value to grow
/// from.
pub fn describe() {
    describe_counter!(COMMANDS, "Commands applied, by outcome: accepted, rejected, repeated");
    describe_counter!(EVENTS, "Events, by kind");
    describe_counter!(DROPPED, "Commands dropped unjournaled: caller gone or deadline passed");
    describe_counter!(COMMITS, "Journal commits");
    describe_histogram!(COMMIT_SECONDS, metrics::Unit::Seconds, "Time of a journal commit");
    describe_histogram!(COMMIT_COMMANDS, "Commands that shared a commit");
    describe_counter!(JOURNAL_BYTES, metrics::Unit::Bytes, "Bytes appended to the journal");
    describe_counter!(STORE_FAULTS, "Appends that failed, by kind: refused, unknown");
    describe_gauge!(INTAKE_DEPTH, "Commands that wait to be stamped");
    describe_counter!(REQUESTS, "Requests, by wire, method and code");
    describe_histogram!(
        REQUEST_SECONDS,
        metrics::Unit::Seconds,
        "Time until a request was answered, or its stream began"
    );
    describe_gauge!(SEQ, "Number of the last command applied");
    describe_gauge!(PROJECTION_LAG, "Commands applied but not yet in the projections");
    describe_gauge!(LEADING, "1 while this engine leads and its lease lasts; 0 on a standby");
    describe_gauge!(READY, "1 while /readyz says ok");
    describe_counter!(LEASE_FAULTS, "Renewals of the lease that failed");
    describe_gauge!(SNAPSHOT_AGE, "Commands applied but not in the newest snapshot: a restart replays them");
    describe_gauge!(
        CLOCK_JUMP,
        metrics::Unit::Seconds,
        "How far the machine's clock is ahead of market time since a jump that was refused; 0 without one"
    );
    gauge!(CLOCK_JUMP).set(0.0);
    describe_gauge!(JOURNAL_DAMAGED, "1 if the last check of the journal found a damaged batch");
    gauge!(JOURNAL_DAMAGED).set(0.0);
    describe_counter!(JOURNAL_SCRUBS, "Checks of the whole journal that came to an end");
    counter!(JOURNAL_SCRUBS).increment(0);
    describe_gauge!(CONNECTIONS, "Open connections, by port: api, ops");
    describe_counter!(
        CONNECTIONS_REFUSED,
        "Connections refused, by port and reason: max_connections, max_connections_per_address, no_connection"
    );
    describe_counter!(
        CONNECTIONS_CLOSED,
        "Connections closed by the server, by port and reason: no_request, idle"
    );
    for outcome in OUTCOMES {
        counter!(COMMANDS, "outcome" => outcome).increment(0);
    }
    for reason in ["max_connections", "max_connections_per_address", "no_connection"] {
        counter!(CONNECTIONS_REFUSED, "port" => "api", "reason" => reason).increment(0);
    }
    for kind in [REFUSED, UNKNOWN] {
        counter!(STORE_FAULTS, "kind" => kind).increment(0);
    }
    counter!(DROPPED).increment(0);
}

pub(crate) fn commit(commands: u32, bytes: usize, took: Duration) {
    counter!(COMMITS).increment(1);
    histogram!(COMMIT_SECONDS).record(took.as_secs_f64());
    histogram!(COMMIT_COMMANDS).record(f64::from(commands));
    counter!(JOURNAL_BYTES).increment(bytes as u64);
}

pub(crate) fn applied(steps: &[Step], waiting: usize) {
    let [mut accepted, mut rejected, mut repeated] = [0; 3];
    let mut kinds: BTreeMap<&'static str, u64> = BTreeMap::new();
    for step in steps {
        match step.outcome {
            Outcome::Accepted => accepted += 1,
            Outcome::Rejected(_) => rejected += 1,
            Outcome::Repeated { .. } => repeated += 1,
        }
        for event in &step.events {
            *kinds.entry(event.fact.kind().name()).or_default() += 1;
        }
    }
    for (kind, count) in kinds {
        counter!(EVENTS, "kind" => kind).increment(count);
    }
    for (outcome, count) in OUTCOMES.into_iter().zip([accepted, rejected, repeated]) {
        counter!(COMMANDS, "outcome" => outcome).increment(count);
    }
    if let Some(last) = steps.last() {
        gauge!(SEQ).set(last.seq.0 as f64);
    }
    gauge!(INTAKE_DEPTH).set(waiting as f64);
}

/// Sets the number of commands that the read model and the newest snapshot lack.
pub(crate) fn behind(projections: u64, snapshot: u64) {
    gauge!(PROJECTION_LAG).set(projections as f64);
    gauge!(SNAPSHOT_AGE).set(snapshot as f64);
}

/// Sets the last replayed command, before commands are taken.
pub(crate) fn followed(seq: u64) {
    gauge!(SEQ).set(seq as f64);
}

pub(crate) fn leading(leads: bool) {
    gauge!(LEADING).set(f64::from(u8::from(leads)));
}

/// Counts a check of the whole journal, and sets its result.
pub(crate) fn scrubbed(sound: bool) {
    gauge!(JOURNAL_DAMAGED).set(f64::from(u8::from(!sound)));
    counter!(JOURNAL_SCRUBS).increment(1);
}

/// Sets by how many seconds the machine's clock is ahead of market time.
pub(crate) fn clock_jump(seconds: f64) {
    gauge!(CLOCK_JUMP).set(seconds);
}

pub(crate) fn ready(is_ready: bool) {
    gauge!(READY).set(f64::from(u8::from(is_ready)));
}

pub(crate) fn lease_not_renewed() {
    counter!(LEASE_FAULTS).increment(1);
}

/// Sets the number of open connections of a port.
pub(crate) fn connections(port: &'static str, open: usize) {
    gauge!(CONNECTIONS, "port" => port).set(open as f64);
}

pub(crate) fn connection_refused(port: &'static str, reason: &'static str) {
    counter!(CONNECTIONS_REFUSED, "port" => port, "reason" => reason).increment(1);
}

pub(crate) fn connection_closed(port: &'static str, reason: &'static str) {
    counter!(CONNECTIONS_CLOSED, "port" => port, "reason" => reason).increment(1);
}

pub(crate) fn dropped() {
    counter!(DROPPED).increment(1);
}

pub(crate) fn store_refused() {
    counter!(STORE_FAULTS, "kind" => REFUSED).increment(1);
}

pub(crate) fn store_unknown() {
    counter!(STORE_FAULTS, "kind" => UNKNOWN).increment(1);
}

/// The metrics of the requests of one method. They are kept, because finding them costs more than
/// counting.
pub(crate) struct Requests {
    wire: &'static str,
    method: Arc<str>,
    ok: Counter,
    seconds: Histogram,
}

impl Requests {
    /// Returns the metrics of an rpc by its path, the same for both protocols.
    pub(crate) fn of(wire: &'static str, method: &str) -> Requests {
        let method: Arc<str> = method.into();
        let ok = counter!(REQUESTS, "wire" => wire, "method" => method.clone(), "code" => "OK");
        let seconds = histogram!(REQUEST_SECONDS, "wire" => wire, "method" => method.clone());
        Requests { wire, method, ok, seconds }
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    pub(crate) fn answered(&self, code: Code, took: Duration) {
        let word = code_word(code);
        if code == Code::Ok {
            self.ok.increment(1);
        } else {
            let method = self.method.clone();
            counter!(REQUESTS, "wire" => self.wire, "method" => method, "code" => word).increment(1);
        }
        self.seconds.record(took.as_secs_f64());
        spans::answered(code, word);
    }
}

fn code_word(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
