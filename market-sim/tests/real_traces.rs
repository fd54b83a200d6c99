//! The real traces, whole: `just traces`. They are not part of the project, so `cargo test` leaves this
//! out unless it is named. `KUBEBID_DATA` is the folder of the sets.

use indicatif::ProgressBar;
use kubebid_core::Price;
use kubebid_core::units::Micros;
use market_sim::calibration::{PriceStatistics, on_grid};
use market_sim::replay::demand::{InProcess, Job, Report, Settings, read_demand, replay};
use market_sim::replay::prices::{Settings as PriceSettings, replay_prices};
use market_sim::replay::supply::{Settings as SupplySettings, replay_supply};
use market_sim::trace::{PriceTrace, SupplyTrace};
use std::collections::BTreeMap;
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
    read_demand(&path, None).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
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
        let (cut, whole) = (read_demand(&path, None).expect("a cut"), jobs(whole));
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

/// The known table, to three decimals. (Where one knows it to two, 0.905 has become 0.91.)
#[test]
fn bids_on_the_gpu_markets_of_2015_get_what_is_known() {
    let path = data().join("A-aws-spot-2015-events/normalised/prices.csv.gz");
    let settings = PriceSettings {
        shares: vec![0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0],
        on_demand: BTreeMap::from([("g2.2xlarge".to_owned(), Price(650_000))]),
        regions: ["us-east-1a", "us-east-1b", "us-east-1e"].map(str::to_owned).to_vec(),
        longest_gap: None,
    };
    let trace = PriceTrace::open(&path, &ProgressBar::hidden()).expect("the set");
    let table = replay_prices(trace, &settings).expect("the set is sound");
    let mean = &table.types[0].mean;
    let rounded = |figure: f64| (figure * 1000.0).round() / 1000.0;
    let availability: Vec<f64> = mean.iter().map(|o| rounded(o.availability)).collect();
    assert_eq!(availability, [0.729, 0.797, 0.864, 0.882, 0.905, 0.952, 0.959], "{table}");
    let preemptions: Vec<f64> = mean.iter().map(|o| rounded(o.preemptions_per_hour.unwrap())).collect();
    assert_eq!(preemptions, [0.189, 0.149, 0.1, 0.084, 0.055, 0.028, 0.018], "{table}");
    assert_eq!(table.types[0].markets.len(), 3);
}

#[test]
fn every_price_trace_is_replayed_to_its_last_row() {
    for name in [
        "A-aws-spot-2015-events/normalised/prices.csv.gz",
        "A-aws-spot-2016q4-hourly/normalised/prices.csv.gz",
        "A-gpu-rental-2025/normalised/prices.csv.gz",
        "A-gpu-rental-2025/normalised/prices_min.csv.gz",
        "A-rackspace-spot-2026/normalised/prices.csv.gz",
    ] {
        let trace = || PriceTrace::open(&data().join(name), &ProgressBar::hidden()).expect("the set");
        let types = trace().map(|change| (change.expect("a sound row").instance_type, Price(1_000_000)));
        let settings = PriceSettings {
            shares: vec![0.5, 1000.0],
            on_demand: types.collect(),
            regions: Vec::new(),
            longest_gap: None,
        };
        let table = replay_prices(trace(), &settings).expect("a sound set");
        for of_type in &table.types {
            assert_eq!(of_type.mean[1].availability, 1.0, "{name} {}", of_type.instance_type);
        }
    }
}

#[test]
fn openb_is_replayed_with_its_pods_of_no_time_and_of_no_tenant() {
    for name in ["A-openb-2023/normalised/demand.csv.gz", "A-openb-2023/normalised/demand_gpuspec33.csv.gz"] {
        let jobs = jobs(name);
        assert!(jobs.iter().any(|job| job.duration == Micros(0)));
        let (settings, mut venue) = (Settings::of(1500), InProcess::new());
        let report = replay(&jobs, &settings, &mut venue, |_| {}).expect("the exchange goes on");
        assert_eq!((report.jobs_done as usize, report.jobs_unfinished), (jobs.len(), 0), "{report}");
    }
}

fn supplied(name: &str, nodes: u32, gap_hours: u64) -> market_sim::replay::supply::SupplyTable {
    let settings = SupplySettings {
        shares: vec![0.5, 1.0],
        nodes,
        on_demand: Price(1_000_000),
        reserve: Price(100_000),
        boot: Micros(0),
        min_runtime: Micros(0),
        notice: Micros(0),
        longest_gap: Some(Micros(gap_hours * Micros::HOUR.0)),
    };
    let trace = SupplyTrace::open(&data().join(name), &ProgressBar::hidden()).expect("the set");
    replay_supply(trace, &settings).expect("a sound set")
}

/// The shares and rates that are known of it, for the regions that were only watched once.
#[test]
fn one_node_of_each_region_is_there_as_often_and_lost_as_often_as_is_known() {
    let table = supplied("A-spot-availability-2022-2023/normalised/availability.csv.gz", 1, 1000);
    let known = [
        ("us-east-1a", 0.17, 1.39),
        ("us-east-1c", 0.47, 0.67),
        ("us-east-1d", 0.45, 0.60),
        ("us-east-1f", 0.59, 0.44),
        ("us-east-2a", 0.76, 0.18),
        ("us-east-2b", 0.68, 0.23),
        ("us-west-2c", 0.89, 0.15),
    ];
    for (region, available, lost) in known {
        let of_region = |m: &&market_sim::replay::supply::MarketTable| {
            m.instance_type.starts_with("v100_1") && m.region == region
        };
        let market = table.markets.iter().find(of_region).expect("a region of the set");
        assert!((market.available - available).abs() < 0.006, "{table}");
        assert!((market.lost_per_node_hour.unwrap() - lost).abs() < 0.006, "{table}");
    }
}

#[test]
fn the_spare_nodes_of_a_cluster_go_to_the_highest_bid_first() {
    for (name, nodes) in [
        ("A-spotgpu-2026-aggregates/normalised/capacity.csv.gz", 100),
        ("A-bamboo-2020-2021/normalised/availability.csv.gz", 10),
    ] {
        let table = supplied(name, nodes, 24);
        for pair in table.bids.chunks(2) {
            assert!(pair[0].availability <= pair[1].availability, "{table}");
            assert!(pair[1].mean_paid_usd.is_some_and(|paid| paid >= 0.0999), "{table}");
        }
    }
}

/// Plays the jobs and checks what must hold whatever they are.
fn twice(jobs: &[Job], capacity: u64) -> Report {
    let settings = Settings { gpus_per_node: None, keep_deadlines: false, ..Settings::of(capacity) };
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

/// The sets' own figures of each market, by the names of the bands here.
const FIGURES: [(&str, &str); 13] = [
    ("sig_1h", "hourly_log_return_std"),
    ("kurt_1h", "hourly_log_return_excess_kurtosis"),
    ("ret_ac1", "hourly_log_return_autocorrelation"),
    ("ac1h", "log_price_autocorrelation_1h"),
    ("ac24h", "log_price_autocorrelation_24h"),
    ("hl_h", "half_life_hours_from_hourly"),
    ("hl5_h", "half_life_hours_from_5min"),
    ("share_gt1.5", "share_of_time_above_1.5_median"),
    ("spk1.5_perday", "excursions_per_day"),
    ("spk1.5_dur_p50h", "excursion_hours_p50"),
    ("spk1.5_dur_p95h", "excursion_hours_p95"),
    ("spk1.5_h_p50", "excursion_height_over_median_p50"),
    ("spk1.5_h_p95", "excursion_height_over_median_p95"),
];

#[test]
fn the_statistics_of_prices_are_those_of_the_set() {
    const STEP: u64 = 300_000_000;
    const HOUR: u64 = 12 * STEP;
    let set = "A-aws-spot-2015-events";
    let mut changes: BTreeMap<(String, String), Vec<(u64, f64)>> = BTreeMap::new();
    let path = data().join(set).join("normalised/prices.csv.gz");
    for change in PriceTrace::open(&path, &ProgressBar::hidden()).expect("a trace") {
        let change = change.expect("a row");
        let market = changes.entry((change.instance_type, change.region)).or_default();
        market.push((change.at.0, change.price.0 as f64 / 1e6));
    }
    let mut told = csv::Reader::from_path(data().join("stats-A-prices.csv")).expect("the figures");
    let mut offs = Vec::new();
    for row in told.deserialize::<BTreeMap<String, String>>() {
        let row = row.expect("a row");
        let market = (row["type"].clone(), row["region"].clone());
        if row["ds"] != set || market.0 == "m3.medium" {
            continue;
        }
        let changes = &changes[&market];
        let first = changes[0].0.next_multiple_of(STEP);
        let full_hour = (first.next_multiple_of(HOUR) - first) / STEP;
        let statistics = PriceStatistics::of(&on_grid(changes, first, STEP as usize), full_hour as usize);
        for (column, name) in FIGURES {
            let (told, found) = (row[column].parse::<f64>().unwrap(), statistics.named(name).unwrap());
            let off = (found / told - 1.0).abs();
            // What is counted is the same to the digits that the set has, what is taken at full hours nearly.
            let most =
                if name.starts_with("excursion") || name.starts_with("share") { 0.000_2 } else { 0.05 };
            assert!(off <= most, "{market:?} {name}: {found}, the set has {told}");
            offs.push(off);
        }
    }
    assert_eq!(offs.len(), 12 * FIGURES.len());
    offs.sort_by(f64::total_cmp);
    assert!(offs[offs.len() * 9 / 10] < 0.005, "nine of ten are the same to half a percent");
}
