//! A trace against an engine on the stepped clock comes to the same as in process, to the micro-dollar
//! and the microsecond.

use crate::process::{Engine, sqlite};
use kubebid_core::units::Micros;
use kubebid_testkit::Cluster;
use market_sim::replay::demand::{InProcess, Job, Remote, Report, Settings, Venue, read_demand, replay};
use std::path::Path;
use tokio::runtime::Runtime;

#[test]
fn an_engine_on_sqlite_comes_to_the_same_as_the_exchange_in_process() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = jobs("elasticflow-2021/demand.csv");
    // Bids as the trace has them, and too few nodes for the jobs that share them.
    // The protection is so short that many notices come, and some are taken back.
    let min_runtime = Micros::seconds(900);
    let settings = Settings { providers: 3, min_runtime, keep_deadlines: false, ..Settings::of(3) };
    let report = compare(&sqlite(folder.path()), folder.path(), &jobs, &settings);
    assert!(report.preemptions > 20 && report.rescinded > 0, "{report}");
}

#[test]
fn an_engine_on_postgres_comes_to_the_same_as_the_exchange_in_process() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = jobs("philly-2017/demand.csv.gz");
    // Bids are drawn, and what is under way on a lost node begins again.
    let settings = Settings { providers: 3, checkpoint: false, seed: 7, ..Settings::of(5) };
    let report = compare(&Cluster::shared().database(), folder.path(), &jobs, &settings);
    assert!(report.preemptions > 20 && report.work_lost > 0.0, "{report}");
}

fn jobs(extract: &str) -> Vec<Job> {
    read_demand(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces").join(extract), None)
        .expect("an extract")
}

/// Both, and what they come to.
fn compare(store: &str, folder: &Path, jobs: &[Job], settings: &Settings) -> Report {
    let engine = Engine::start(store, folder, &["--clock", "stepped"]);
    let token = Runtime::new().expect("a runtime").block_on(engine.admin_token());
    let mut live = Remote::connect(vec![engine.endpoint()], token.clone()).expect("the engine is there");
    let lived = played(jobs, settings, &mut live);
    assert_eq!(lived, played(jobs, settings, &mut InProcess::new()));

    let again = Remote::connect(vec![engine.endpoint()], token).expect_err("its market is not empty");
    assert!(again.to_string().contains("a replay needs one on an empty store"), "{again}");
    lived
}

fn played(jobs: &[Job], settings: &Settings, venue: &mut dyn Venue) -> Report {
    let report = replay(jobs, settings, venue, |_| {}).expect("the venue goes on");
    Report { venue: String::new(), ..report }
}
