//! `kubebid bench` against engines that it starts, as a terminal has it.

use expect_test::expect;
use serde_json::Value;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubebid"));
    command.arg("bench").args(arguments).env("KUBEBID_ENDPOINTS", "http://127.0.0.1:1");
    command.output().expect("kubebid runs")
}

fn report(arguments: &[&str]) -> Value {
    let output = bench(&[arguments, &["-o", "json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Every key with those that it is in.
fn keys(value: &Value, before: &str, all: &mut Vec<String>) {
    let Value::Object(fields) = value else { return all.push(before.to_owned()) };
    for (key, value) in fields {
        let name = if before.is_empty() { key.clone() } else { format!("{before}.{key}") };
        keys(value, &name, all);
    }
}

fn keys_of(report: &Value) -> String {
    let mut all = Vec::new();
    keys(report, "", &mut all);
    all.sort();
    all.join("\n")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

#[test]
fn every_bid_that_is_counted_is_in_the_journal_and_every_key_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("bench.db").display());
    let report = report(&["place", "--store", &store, "--seconds", "1", "--warmup", "0", "--callers", "4"]);
    let bids = number(&report["bids"]);
    assert!(bids > 0);
    assert_eq!(number(&report["calls"]), bids);
    assert_eq!(report["refusals"], serde_json::json!({}));
    assert_eq!(report["interrupted"], false);
    assert_eq!(report["load"]["loop"], "closed");
    assert_eq!(report["load"]["latency_from"], "sent");
    let seconds = report["seconds"].as_f64().unwrap();
    assert!((report["bids_per_second"].as_f64().unwrap() * seconds - bids as f64).abs() < 1.0);
    let times = &report["latency_us"];
    let rising = ["p50", "p90", "p99", "p99_9"].map(|name| number(&times[name]));
    assert!(rising.is_sorted() && rising[0] > 0, "{times}");

    let mut verify = Command::new(env!("CARGO_BIN_EXE_kubebid"));
    let verified = verify.args(["journal", "verify", "--store", &store]).output().unwrap();
    let said = String::from_utf8(verified.stdout).unwrap();
    // The market, its offer and the bid that holds its nodes.
    assert!(said.starts_with(&format!("{} commands, all of them sound", bids + 3)), "{bids} bids: {said}");

    expect![[r#"
        bare
        bids
        bids_per_second
        build.profile
        build.version
        calls
        calls_per_second
        engine.commands
        engine.commands_per_commit
        engine.commits
        engine.lag_commands
        engine.mean_commit_us
        fdatasync.appends
        fdatasync.folder
        fdatasync.p50_us
        fdatasync.p99_us
        interrupted
        latency_us.max
        latency_us.p50
        latency_us.p90
        latency_us.p99
        latency_us.p99_9
        load.bench
        load.callers
        load.connections
        load.frame
        load.latency_from
        load.loop
        load.market
        load.measured_seconds
        load.rate
        load.subscribers
        load.warmup_seconds
        load.wire
        machine.cores
        machine.cpu
        machine.kernel
        machine.load_average
        seconds
        store
        unsent
        watch
        without"#]]
    .assert_eq(&keys_of(&report));
}

#[test]
fn frames_are_calls_with_many_bids() {
    let report = report(&["place", "--frame", "8", "--seconds", "1", "--warmup", "0", "--callers", "2"]);
    assert!(number(&report["calls"]) > 0);
    assert_eq!(number(&report["calls"]) * 8, number(&report["bids"]));
    assert_eq!(report["refusals"], serde_json::json!({}));
}

#[test]
fn an_open_loop_sends_what_is_due_and_counts_from_then() {
    let report = report(&["place", "--rate", "50", "--seconds", "1", "--warmup", "0", "--callers", "8"]);
    assert_eq!(report["load"]["loop"], "open");
    assert_eq!(report["load"]["latency_from"], "due");
    assert!((1..=50).contains(&number(&report["calls"])), "{}", report["calls"]);
}

#[test]
fn prices_are_asked_for_by_grpc_and_rest() {
    for (flags, wire) in [(&[][..], "GetMarketPrice, gRPC"), (&["--rest"][..], "GetMarketPrice, REST")] {
        let report =
            report(&[&["price", "--seconds", "1", "--warmup", "0", "--callers", "4"], flags].concat());
        assert_eq!(report["load"]["wire"], wire);
        assert!(number(&report["calls"]) > 0);
        assert_eq!(report["refusals"], serde_json::json!({}));
        assert_eq!(report["bids"], Value::Null);
    }
}

#[test]
fn every_subscriber_gets_every_event() {
    let report =
        report(&["watch", "--subscribers", "5", "--seconds", "1", "--warmup", "3", "--callers", "2"]);
    let watched = &report["watch"];
    let each = number(&watched["fewest"]);
    assert!(each > 0);
    assert_eq!(number(&watched["most"]), each);
    assert_eq!(number(&watched["delivered"]), 5 * each);
    assert!(number(&watched["delay_us"]["p50"]) > 0);
    expect![[r#"
        delay_us.max
        delay_us.p50
        delay_us.p90
        delay_us.p99
        delay_us.p99_9
        delivered
        delivered_per_second
        fewest
        frames
        most"#]]
    .assert_eq(&keys_of(watched));
}

#[test]
fn tenants_with_feeds_of_their_own_get_their_own_bids() {
    let report = report(&[
        "watch",
        "--own",
        "--subscribers",
        "4",
        "--frame",
        "2",
        "--seconds",
        "1",
        "--warmup",
        "3",
        "--rate",
        "40",
    ]);
    let watched = &report["watch"];
    assert!(number(&watched["fewest"]) > 0);
    // Not each of them all.
    assert!(number(&watched["delivered"]) < 2 * number(&report["bids"]));
}

#[test]
fn prices_reach_those_who_watch() {
    let report = report(&[
        "watch",
        "--feed",
        "prices",
        "--subscribers",
        "3",
        "--seconds",
        "1",
        "--warmup",
        "3",
        "--callers",
        "2",
    ]);
    assert!(number(&report["watch"]["fewest"]) > 0);
}

#[test]
fn a_store_with_a_journal_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept.db");
    std::fs::write(&file, "precious").unwrap();
    let output = bench(&["place", "--store", &format!("sqlite:{}", file.display()), "--seconds", "1"]);
    assert_eq!(output.status.code(), Some(2));
    expect![[r#"
        error: the store is not empty, and a bench would fill it with bids
         next: name one that is not there yet, or the engine that runs on it with --endpoint
    "#]]
    .assert_eq(&String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn the_engine_of_a_bench_refuses_a_store_with_a_journal_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept.db");
    std::fs::write(&file, "precious").unwrap();
    let settings = serde_json::json!({
        "store": format!("sqlite:{}", file.display()),
        "admin_token_file": folder.path().join("admin.token"),
        "without": ["journal"],
    });
    std::fs::write(folder.path().join("settings"), settings.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubebid"));
    command.args(["bench", "engine"]).stdin(std::fs::File::open(folder.path().join("settings")).unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn an_engine_without_a_journal_journals_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("bench.db").display());
    let report = report(&[
        "place",
        "--store",
        &store,
        "--without",
        "journal",
        "--seconds",
        "1",
        "--warmup",
        "0",
        "--callers",
        "4",
    ]);
    assert!(number(&report["bids"]) > 0);
    assert_eq!(report["without"], serde_json::json!(["journal"]));
    let mut verify = Command::new(env!("CARGO_BIN_EXE_kubebid"));
    let verified = verify.args(["journal", "verify", "--store", &store]).output().unwrap();
    let said = String::from_utf8(verified.stdout).unwrap();
    assert!(said.starts_with("0 commands"), "{said}");
}

#[test]
fn a_running_engine_is_loaded_where_it_is() {
    let output = bench(&["place", "--endpoint", "http://127.0.0.1:1", "--market", "a/b", "--seconds", "1"]);
    assert_eq!(output.status.code(), Some(6));
}

#[test]
fn what_a_part_costs_is_told_by_leaving_it_out() {
    let report = report(&[
        "place",
        "--without",
        "projections",
        "--ratio",
        "--seconds",
        "1",
        "--warmup",
        "0",
        "--callers",
        "4",
    ]);
    assert_eq!(report["without"], serde_json::json!(["projections"]));
    // Nobody writes tables: they lack what was placed, and the market before it.
    assert!(number(&report["engine"]["lag_commands"]) >= number(&report["bids"]));
    let bare = &report["bare"];
    let share = report["calls_per_second"].as_f64().unwrap() / bare["calls_per_second"].as_f64().unwrap();
    assert!((bare["ratio"].as_f64().unwrap() - share).abs() < 1e-9, "{bare}");
}
