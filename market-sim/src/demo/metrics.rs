//! Metrics of the demo market.

use metrics::{counter, describe_counter, describe_gauge, gauge};

const BIDS: &str = "kubebid_sim_bids_total";
const JOBS: &str = "kubebid_sim_jobs";
const BOOTS: &str = "kubebid_sim_boots_total";
const PROVIDER_BREAKS: &str = "kubebid_sim_provider_breaks_total";

const OUTCOMES: [&str; 3] = ["placed", "refused", "failed"];

/// Says what each metric is; what is rare begins at 0.
pub fn describe() {
    describe_counter!(BIDS, "Bids of synthetic tenants, by outcome: placed, refused, failed");
    describe_gauge!(JOBS, "Jobs of synthetic tenants that have a bid");
    describe_counter!(BOOTS, "Nodes that synthetic providers reported ready");
    describe_counter!(PROVIDER_BREAKS, "Times that a synthetic provider lost the engine and began again");
    for outcome in OUTCOMES {
        counter!(BIDS, "outcome" => outcome).increment(0);
    }
    gauge!(JOBS).set(0.0);
    counter!(BOOTS).increment(0);
    counter!(PROVIDER_BREAKS).increment(0);
}

pub(super) fn placed() {
    counter!(BIDS, "outcome" => "placed").increment(1);
    gauge!(JOBS).increment(1.0);
}

/// Counts the end of a job that had a bid.
pub(super) fn done() {
    gauge!(JOBS).decrement(1.0);
}

pub(super) fn refused() {
    counter!(BIDS, "outcome" => "refused").increment(1);
}

pub(super) fn failed() {
    counter!(BIDS, "outcome" => "failed").increment(1);
}

pub(super) fn booted() {
    counter!(BOOTS).increment(1);
}

pub(super) fn provider_broke() {
    counter!(PROVIDER_BREAKS).increment(1);
}
