//! The cuts of real traces in `traces/`: they are read to the last row, with all their oddities, and a
//! replay of them comes to what it must.

use indicatif::ProgressBar;
use kubebid_core::Price;
use kubebid_core::units::Micros;
use market_sim::replay::demand::{InProcess, Job, Priority, Report, Settings, read_demand, replay};
use market_sim::replay::prices::{PriceTable, Settings as PriceSettings, replay_prices};
use market_sim::trace::{PriceTrace, TraceError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces").join(name)
}

fn jobs(name: &str) -> Vec<Job> {
    read_demand(&path(name), None).expect("the cuts are in the repository")
}

#[test]
fn a_plain_trace_is_read_to_its_last_row() {
    let jobs = jobs("elasticflow-2021/demand.csv");
    assert_eq!(jobs.len(), 226);
    assert_eq!(jobs.iter().filter(|job| job.nodes == 8).count(), 2);
    assert!(jobs.iter().all(|job| job.bid_proxy.is_some_and(|share| (0.5..=1.0).contains(&share))));
    let tenants: BTreeSet<&str> = jobs.iter().filter_map(|job| job.tenant.as_deref()).collect();
    assert!(tenants.len() > 1 && tenants.iter().all(|tenant| tenant.starts_with("cluster")), "{tenants:?}");
}

#[test]
fn a_packed_trace_is_read_with_its_days_of_silence_and_without_bids() {
    let jobs = jobs("philly-2017/demand.csv.gz");
    assert_eq!(jobs.len(), 286);
    assert!(jobs.iter().all(|job| job.bid_proxy.is_none()));
    assert_eq!(jobs.iter().map(|job| job.nodes).max(), Some(16));
    let gap = jobs.windows(2).map(|pair| pair[1].submitted.since(pair[0].submitted)).max();
    assert!(gap > Some(Micros(12 * Micros::HOUR.0)), "{gap:?}");
}

#[test]
fn pods_without_a_tenant_bid_for_themselves_also_for_zero_seconds() {
    let jobs = jobs("openb-2023/demand.csv.gz");
    assert_eq!(jobs.len(), 239);
    assert!(jobs.iter().all(|job| job.tenant.is_none()));
    let classes: BTreeSet<&str> = jobs.iter().map(|job| job.class.as_str()).collect();
    assert_eq!(classes, BTreeSet::from(["cpu", "gpu-any"]));
    assert_eq!(jobs.iter().filter(|job| job.duration == Micros(0)).count(), 1);
}

/// Each job has whole nodes and all the time that it needs.
fn settings(capacity: u64) -> Settings {
    Settings { providers: 3, gpus_per_node: None, keep_deadlines: false, ..Settings::of(capacity) }
}

fn play(jobs: &[Job], settings: &Settings) -> Report {
    replay(jobs, settings, &mut InProcess::new(), |_| {}).expect("the exchange goes on")
}

#[test]
fn every_job_that_fits_is_done_and_no_other() {
    for (name, capacity) in [
        ("elasticflow-2021/demand.csv", 7),
        ("philly-2017/demand.csv.gz", 12),
        ("openb-2023/demand.csv.gz", 4),
    ] {
        let jobs = jobs(name);
        let report = play(&jobs, &settings(capacity));
        let fitting = jobs.iter().filter(|job| u64::from(job.nodes) <= capacity).count();
        assert_eq!(report.bids as usize, jobs.len(), "{name}");
        assert_eq!(report.jobs_done as usize, fitting, "{name}");
        assert_eq!(report.jobs_unfinished, jobs.len() - fitting, "{name}");
        assert!(report.refused.is_empty(), "{name}: {:?}", report.refused);
    }
}

#[test]
fn scarce_nodes_make_the_price_move_and_plenty_leaves_it_at_the_reserve() {
    let jobs = jobs("elasticflow-2021/demand.csv");
    let (scarce, plenty) = (play(&jobs, &settings(20)), play(&jobs, &settings(1000)));
    let prices = |report: &Report| report.prices["gpu/trace"];
    assert!(prices(&scarce).max > 16_000_000, "{scarce}");
    assert_eq!((prices(&plenty).p10, prices(&plenty).max), (4_000_000, 4_000_000), "{plenty}");
    assert!(scarce.preemptions > 0 && plenty.preemptions == 0, "{scarce}\n{plenty}");
}

#[test]
fn without_checkpoints_the_same_jobs_take_longer() {
    let jobs = jobs("elasticflow-2021/demand.csv");
    let (with, without) = (settings(20), Settings { checkpoint: false, ..settings(20) });
    let (with, without) = (play(&jobs, &with), play(&jobs, &without));
    assert!(with.work_lost == 0.0 && without.work_lost > 0.0, "{without}");
    assert!(without.revenue_micros > with.revenue_micros, "{with}\n{without}");
}

#[test]
fn the_seed_decides_the_bids_that_a_trace_leaves_open() {
    let jobs = jobs("philly-2017/demand.csv.gz");
    let seeded = |seed| play(&jobs, &Settings { seed, ..settings(20) });
    assert_eq!(seeded(1), seeded(1));
    assert_ne!(seeded(1), seeded(2));
}

/// A job of a class `a/b`, tenant `t/1`, that comes at this hour; GPUs, hours of work, share of on-demand.
fn job(n: usize, hour: u64, (gpus, hours, share): (f64, u64, f64)) -> Job {
    Job {
        submitted: Micros(hour * Micros::HOUR.0),
        id: n.to_string(),
        tenant: Some("t/1".to_owned()),
        class: "a/b".to_owned(),
        nodes: 1,
        gpus: Some(gpus),
        duration: Micros(hours * Micros::HOUR.0),
        priority: None,
        bid_proxy: Some(share),
        deadline: None,
    }
}

#[test]
fn jobs_of_a_tenant_share_nodes_by_their_gpus_and_others_do_not() {
    let shared = Settings { providers: 1, ..Settings::of(1) };
    // Eight at once fit on one node; of nine, the last one waits until a node is free.
    let eight: Vec<Job> = (0..8).map(|n| job(n, 0, (1.0, 5, 0.5))).collect();
    let report = play(&eight, &shared);
    assert_eq!(
        (report.jobs_done, report.bids, report.jobs_joined, report.nodes_served),
        (8, 1, 7, 1),
        "{report}"
    );
    assert!((report.wait_and_run / 8.0 / 3600.0 - 5.0).abs() < 0.05, "{report}");
    let nine: Vec<Job> = (0..9).map(|n| job(n, 0, (1.0, 5, 0.5))).collect();
    let report = play(&nine, &shared);
    assert_eq!((report.jobs_done, report.bids, report.nodes_served), (9, 2, 2), "{report}");
    let whole = play(&eight, &Settings { gpus_per_node: None, ..shared.clone() });
    assert_eq!((whole.jobs_done, whole.nodes_served, whole.jobs_joined), (8, 8, 0), "{whole}");
    let foreign: Vec<Job> =
        eight.iter().map(|job| Job { tenant: Some(format!("t/{}", job.id)), ..job.clone() }).collect();
    assert_eq!(play(&foreign, &shared).jobs_joined, 0);
    let unknown: Vec<Job> = eight.iter().map(|job| Job { gpus: None, ..job.clone() }).collect();
    assert_eq!(play(&unknown, &shared).jobs_joined, 0);
    for report in [&report, &whole] {
        assert!(report.refused.is_empty(), "{report}");
    }
}

#[test]
fn the_first_line_of_a_report_says_whether_jobs_share_nodes() {
    let jobs = [job(0, 0, (1.0, 1, 0.5))];
    let first = |settings: &Settings| play(&jobs, settings).to_string().lines().next().map(str::to_owned);
    let shared = first(&Settings::of(1)).expect("a line");
    assert!(shared.contains("share nodes of 8 GPUs") && shared.contains("deadlines are kept"), "{shared}");
    let whole = first(&settings(1)).expect("a line");
    assert!(whole.contains("NOT packed") && whole.contains("deadlines are ignored"), "{whole}");
}

#[test]
fn a_shared_node_is_bid_for_as_its_dearest_job_would_pay() {
    // A cheap job of one tenant, joined for an hour by a dear one, against another tenant's in between.
    let rival = Job { tenant: Some("rival".to_owned()), ..job(2, 3, (8.0, 2, 0.6)) };
    let alone = [job(0, 0, (1.0, 10, 0.3)), rival.clone()];
    let joined = [job(0, 0, (1.0, 10, 0.3)), job(1, 1, (1.0, 3, 0.9)), rival];
    let settings = Settings { providers: 1, ..Settings::of(1) };
    let (alone, joined) = (play(&alone, &settings), play(&joined, &settings));
    // The rival displaces the cheap job at once, and beside the dear one only when that is done.
    assert_eq!((alone.preemptions, alone.jobs_done), (1, 2), "{alone}");
    assert_eq!((joined.preemptions, joined.jobs_done, joined.jobs_joined), (1, 3, 1), "{joined}");
    assert!(joined.waited > alone.waited + 1800.0, "{joined}");
    assert!(alone.refused.is_empty() && joined.refused.is_empty(), "{joined}");
}

#[test]
fn a_job_that_cannot_make_its_deadline_gives_up_and_is_counted() {
    let until = |hour: u64, job: Job| Job { deadline: Some(Micros(hour * Micros::HOUR.0)), ..job };
    let jobs = [
        until(6, job(0, 0, (8.0, 5, 0.9))),
        // Would have to begin at hour 4, and the node is busy until hour 5.
        until(7, job(1, 0, (8.0, 3, 0.5))),
        until(9, job(2, 0, (8.0, 3, 0.4))),
        // Has less time than work.
        until(2, job(3, 1, (8.0, 3, 0.9))),
    ];
    let settings = Settings { providers: 1, ..Settings::of(1) };
    let kept = play(&jobs, &settings);
    assert_eq!((kept.jobs_done, kept.jobs_gave_up, kept.hopeless, kept.jobs_late), (2, 2, 1, 0), "{kept}");
    assert_eq!((kept.jobs_unfinished, kept.bids), (0, 3), "{kept}");
    let ignored = play(&jobs, &Settings { keep_deadlines: false, ..settings });
    assert_eq!((ignored.jobs_done, ignored.jobs_gave_up), (4, 0), "{ignored}");
    assert!(ignored.jobs_late >= 2, "{ignored}");
}

#[test]
fn a_gang_that_loses_a_node_regroups_and_a_loose_job_works_on() {
    // Two nodes work for four hours; a dearer job takes one of them for two.
    let both = Job { nodes: 2, gpus: Some(16.0), ..job(0, 0, (16.0, 4, 0.5)) };
    let rival = Job { tenant: Some("rival".to_owned()), ..job(1, 2, (8.0, 2, 0.9)) };
    let jobs = [both, rival];
    let loose = Settings { providers: 1, ..Settings::of(2) };
    let gang = Settings { gangs: true, ..loose.clone() };
    let (loose, gang) = (play(&jobs, &loose), play(&jobs, &gang));
    assert_eq!((loose.jobs_done, loose.preemptions, loose.nodes_served), (2, 1, 4), "{loose}");
    assert_eq!((gang.jobs_done, gang.preemptions, gang.nodes_served), (2, 1, 5), "{gang}");
    assert_eq!((loose.regroupings, gang.regroupings), (0, 1));
    // One node alone does nothing for the gang, and the regrouped one waits until the rival has left.
    assert!(gang.wait_and_run > loose.wait_and_run + 1800.0, "{gang}\n{loose}");
    assert!(gang.refused.is_empty() && gang.to_string().contains("regrouped"), "{gang}");
}

#[test]
fn priority_says_what_a_job_bids_where_the_trace_has_no_bid() {
    let bidding = |priority| {
        let job = Job { bid_proxy: None, priority, ..job(0, 0, (8.0, 5, 0.0)) };
        let half = Job { tenant: Some("half".to_owned()), ..job_at_half() };
        // Under the reserve of half the on-demand price a low one never runs.
        play(&[half, job], &Settings { reserve: Price(16_000_000), providers: 1, ..Settings::of(2) })
            .jobs_done
    };
    assert_eq!(bidding(Some(Priority::Low)), 1);
    assert_eq!((bidding(Some(Priority::Normal)), bidding(Some(Priority::High))), (2, 2));
}

fn job_at_half() -> Job {
    job(9, 0, (8.0, 1, 0.5))
}

#[test]
fn on_the_cuts_packing_serves_the_same_jobs_with_fewer_nodes() {
    for (name, capacity) in [("elasticflow-2021/demand.csv", 20), ("openb-2023/demand.csv.gz", 4)] {
        let jobs = jobs(name);
        let whole = play(&jobs, &settings(capacity));
        let shared = play(&jobs, &Settings { gpus_per_node: Some(8), ..settings(capacity) });
        assert_eq!(shared.jobs_done, whole.jobs_done, "{name}");
        assert!(shared.nodes_served * 2 < whole.nodes_served, "{shared}\n{whole}");
        assert!(shared.waited < whole.waited && shared.refused.is_empty(), "{shared}\n{whole}");
    }
}

fn bids_on(trace: &str, instance_type: &str, micros: u64) -> Result<PriceTable, TraceError> {
    let settings = PriceSettings {
        shares: vec![0.15, 0.3, 1.0, 5.0],
        on_demand: BTreeMap::from([(instance_type.to_owned(), Price(micros))]),
        regions: Vec::new(),
        longest_gap: None,
    };
    replay_prices(PriceTrace::open(&path(trace), &ProgressBar::hidden())?, &settings)
}

#[test]
fn a_higher_bid_runs_longer_and_pays_more_but_never_more_than_it_bids() {
    let table =
        bids_on("aws-spot-2016q4/prices.csv.gz", "m4.4xlarge", 1_056_000).expect("a cut with this type");
    let mean = &table.types[0].mean;
    assert!(mean.is_sorted_by(|low, high| low.availability <= high.availability), "{table}");
    assert!(mean.iter().all(|o| o.mean_paid_usd.is_none_or(|paid| paid <= o.bid_usd)), "{table}");
    let all = mean.last().expect("four bids");
    assert_eq!((all.availability, all.preemptions_per_hour), (1.0, Some(0.0)), "{table}");
}

#[test]
fn weekly_prices_of_a_hundred_markets_are_few_rows_and_many_hours() {
    let table = bids_on("rackspace-spot-2026/prices.csv.gz", "ch.vs1.2xlarge-dfw", 500_000).expect("a cut");
    assert!(table.types[0].markets[0].hours > 50.0 * 24.0, "{table}");
    let error = bids_on("rackspace-spot-2026/prices.csv.gz", "no such type", 500_000).unwrap_err();
    assert_eq!(error.to_string(), "the trace has no prices of such types and regions");
}

#[test]
fn each_cut_has_its_licence_and_all_of_them_stay_small() {
    let mut bytes = 0;
    for folder in std::fs::read_dir(path("")).expect("a folder").map(|entry| entry.expect("an entry").path())
    {
        let files = if folder.is_dir() {
            assert!(folder.join("LICENSE").is_file(), "{} has no LICENSE", folder.display());
            std::fs::read_dir(&folder)
                .expect("a folder")
                .map(|entry| entry.expect("an entry").path())
                .collect()
        } else {
            vec![folder]
        };
        bytes += files.iter().map(|file| file.metadata().expect("a file").len()).sum::<u64>();
    }
    assert!(bytes <= 100_000, "{bytes} bytes");
}
