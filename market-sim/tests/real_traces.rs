//! The real traces, whole: `just traces`. They are not part of the project, so `cargo test` leaves this
//! out unless it is named. `KUBEBID_DATA` is the folder of the sets.

use market_sim::replay::{InProcess, Job, Report, Settings, read_demand, replay};
use std::path::{Path, PathBuf};

/// Sets with demand, and how many jobs they have.
const DEMAND: [(&str, usize); 5] = [
    ("A-chronus-values/normalised/demand.csv.gz", 30_940),
    ("A-elasticflow-2021/normalised/demand.csv.gz", 21_542),
    ("A-openb-2023/normalised/demand.csv.gz", 8_152),
    ("A-openb-2023/normalised/demand_gpuspec33.csv.gz", 8_152),
    ("A-philly-2017/normalised/demand.csv.gz", 82_247),
];

#[expect(clippy::disallowed_methods, reason = "where the sets are")]
fn data() -> PathBuf {
    let how = "set KUBEBID_DATA to the folder that holds A-elasticflow-2021 and the other sets";
    let folder = std::env::var("KUBEBID_DATA").unwrap_or_else(|_| panic!("where are the traces? {how}"));
    assert!(Path::new(&folder).is_dir(), "there are no traces in {folder}: {how}");
    folder.into()
}

fn jobs(name: &str) -> Vec<Job> {
    let path = data().join(name);
    read_demand(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_demand_trace_is_read_to_its_last_row() {
    for (name, rows) in DEMAND {
        let jobs = jobs(name);
        assert_eq!(jobs.len(), rows, "{name}");
    }
}

#[test]
fn the_cuts_are_rows_of_the_real_traces() {
    for (cut, whole) in [
        ("elasticflow-2021/demand.csv", "A-elasticflow-2021/normalised/demand.csv.gz"),
        ("philly-2017/demand.csv.gz", "A-philly-2017/normalised/demand.csv.gz"),
        ("openb-2023/demand.csv.gz", "A-openb-2023/normalised/demand.csv.gz"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces").join(cut);
        let (cut, whole) = (read_demand(&path).expect("a cut"), jobs(whole));
        assert!(whole.windows(cut.len()).any(|rows| rows == cut), "{} is no cut", path.display());
    }
}

#[test]
fn elasticflow_is_replayed_twice_to_the_same_result() {
    let jobs = jobs("A-elasticflow-2021/normalised/demand.csv.gz");
    let report = twice(&jobs, 150);
    assert!(report.prices["gpu/trace"].max > 16_000_000, "{report}");
}

#[test]
fn philly_is_replayed_twice_to_the_same_result() {
    let jobs = jobs("A-philly-2017/normalised/demand.csv.gz");
    let report = twice(&jobs, 150);
    assert!(report.prices["gpu/trace"].max > 16_000_000, "{report}");
}

/// Plays the jobs and checks what must hold whatever they are.
fn twice(jobs: &[Job], capacity: u64) -> Report {
    let settings = Settings::of(capacity);
    let play = || replay(jobs, &settings, &mut InProcess::new(), |_| {}).expect("the exchange goes on");
    let report = play();
    assert_eq!(report, play());

    let fitting: Vec<&Job> = jobs.iter().filter(|job| u64::from(job.nodes) <= capacity).collect();
    let nodes: u64 = fitting.iter().map(|job| u64::from(job.nodes)).sum();
    assert_eq!(report.bids as usize, jobs.len());
    assert!(report.refused.is_empty(), "{:?}", report.refused);
    assert_eq!((report.jobs_started, report.jobs_done), (fitting.len() as u64, fitting.len() as u64));
    assert_eq!(report.jobs_unfinished, jobs.len() - fitting.len());
    // Each job begins with some node; each further one takes the place of one that was taken away.
    let lost = report.preemptions - report.rescinded;
    assert!((report.jobs_done..=nodes + lost).contains(&report.nodes_served), "{report}");
    // The work was paid for, within reserve and ceiling; only the last charges round down.
    let work: f64 = fitting.iter().map(|job| f64::from(job.nodes) * job.duration.0 as f64 / 3.6e9).sum();
    let revenue = report.revenue_micros as f64;
    assert!(revenue >= work * settings.reserve.0 as f64 * 0.999, "{work} node-hours\n{report}");
    let price = report.prices["gpu/trace"];
    assert!(price.p10 >= settings.reserve.0 && price.max <= settings.on_demand.0, "{report}");
    report
}
