//! Every output format of every command, and what a trace that is none is called.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn traces(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces").join(name);
    path.to_str().expect("a name").to_owned()
}

fn market_sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_market-sim")).args(arguments).output().expect("the tool starts")
}

/// The standard output of a run that succeeds.
fn printed(arguments: &[&str]) -> String {
    let out = market_sim(arguments);
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{arguments:?}: {}\n{complaint}", out.status);
    String::from_utf8(out.stdout).expect("text")
}

/// The last line of a run that fails with exit code 1.
fn complaint(arguments: &[&str]) -> String {
    let out = market_sim(arguments);
    assert_eq!(out.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(out.stderr).expect("text").trim().to_owned()
}

fn is_json(text: &str) {
    serde_json::from_str::<serde_json::Value>(text).unwrap_or_else(|error| panic!("{error}: {text}"));
}

/// A heading and at least one row, all of the same length.
fn is_csv(text: &str) {
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let rows: Result<Vec<_>, _> = rows.records().collect();
    assert!(!rows.unwrap_or_else(|error| panic!("{error}: {text}")).is_empty(), "{text}");
}

fn availability(folder: &Path) -> PathBuf {
    let path = folder.join("availability.csv");
    let rows =
        "timestamp,instance_type,region,available\n2026-11-20T00:00:00Z,v,a,2\n2026-11-20T06:00:00Z,v,a,1\n";
    std::fs::write(&path, rows).expect("a file");
    path
}

#[test]
fn every_command_prints_every_format_that_it_offers() {
    let folder = tempfile::tempdir().expect("a folder");
    let supply = availability(folder.path());
    let supply = supply.to_str().expect("a name");
    let (prices, demand) = (traces("aws-spot-2016q4/prices.csv.gz"), traces("elasticflow-2021/demand.csv"));
    let commands: [(&[&str], &[&str]); 5] = [
        (&["replay-prices", "--trace", &prices, "--on-demand", "m4.4xlarge=1.057"], &["text", "json", "csv"]),
        (&["replay-supply", "--trace", supply], &["text", "json", "csv"]),
        (&["replay-demand", "--trace", &demand, "--capacity", "20", "--in-process"], &["text", "json"]),
        (
            &[
                "backtest",
                "--trace",
                &prices,
                "--on-demand",
                "m4.4xlarge=1.057",
                "--seeds",
                "2",
                "--jobs",
                "5",
            ],
            &["text", "json", "csv"],
        ),
        (
            &["backtest", "--trace", &demand, "--on-demand", "gpu=32", "--capacity", "20", "--seeds", "2"],
            &["text", "json", "csv"],
        ),
    ];
    for (command, formats) in commands {
        for format in formats {
            let text = printed(&[command, &["-o", format]].concat());
            match *format {
                "json" => is_json(&text),
                "csv" => is_csv(&text),
                _ => assert!(text.lines().count() > 1, "{text}"),
            }
        }
    }
}

#[test]
fn a_calibration_is_printed_as_text_and_as_json() {
    for format in ["text", "json"] {
        let small = ["calibrate", "--days", "2", "--markets", "2", "--chosen-rules-only", "-o", format];
        let out = market_sim(&small);
        assert!([Some(0), Some(3)].contains(&out.status.code()), "{}", out.status);
        let text = String::from_utf8(out.stdout).expect("text");
        if format == "json" {
            is_json(&text);
        } else {
            assert!(text.contains("statistic"), "{text}");
        }
    }
}

#[test]
fn every_command_with_a_report_writes_a_page_json_and_csv() {
    let folder = tempfile::tempdir().expect("a folder");
    let (prices, demand) = (traces("aws-spot-2016q4/prices.csv.gz"), traces("elasticflow-2021/demand.csv"));
    let commands: [&[&str]; 4] = [
        &["replay-demand", "--trace", &demand, "--capacity", "20", "--in-process"],
        &["backtest", "--trace", &prices, "--on-demand", "m4.4xlarge=1.057", "--seeds", "2", "--jobs", "5"],
        &["experiment", "pricing", "--seeds", "2", "--hours", "6"],
        &["simulate", "--days", "1", "--markets", "1"],
    ];
    for command in commands {
        for ending in ["html", "json", "csv"] {
            let path = folder.path().join(format!("{}.{ending}", command[0]));
            printed(&[command, &["--report", path.to_str().expect("a name")]].concat());
            let text = std::fs::read_to_string(&path).expect("a page");
            match ending {
                "json" => is_json(&text),
                "csv" => is_csv(&text),
                _ => assert!(text.contains("<svg"), "{text}"),
            }
        }
    }
}

#[test]
fn a_world_is_written_as_json_and_as_a_picture() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("a name").to_owned();
    let (json, picture) = (file("world.json"), file("world.svg"));
    printed(&["simulate", "--days", "1", "--markets", "1", "--json", &json, "--picture", &picture]);
    is_json(&std::fs::read_to_string(json).expect("a file"));
    assert!(std::fs::read_to_string(picture).expect("a file").starts_with("<svg"));
    let folder = folder.path().to_str().expect("a name");
    printed(&["experiment", "pricing", "--seeds", "2", "--hours", "6", "--pictures", folder]);
    assert!(std::fs::read_to_string(file("pricing.svg")).expect("a file").starts_with("<svg"));
}

/// With 40 units the exact optimum of one world takes minutes in a debug build; the bound is the default there.
#[test]
fn an_experiment_with_forty_units_gives_a_table_against_a_bound_and_says_so() {
    let forty = ["experiment", "pricing", "--seeds", "1", "--units", "40"];
    assert!(printed(&forty).contains("welfare, % of a bound of the optimum"));
    let none = printed(&[&forty[..], &["--hours", "6", "--optimum", "none"]].concat());
    assert!(none.contains("welfare, $ per unit-hour"), "{none}");
    let exact = printed(&["experiment", "pricing", "--seeds", "1", "--hours", "6"]);
    assert!(exact.contains("welfare, % of the optimum"), "{exact}");
}

#[test]
fn a_trace_that_is_a_folder_or_no_gzip_file_or_empty_is_called_that() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::File::create(&path).expect("a file").write_all(content).expect("written");
        path.to_str().expect("a name").to_owned()
    };
    let demand = std::fs::read(traces("elasticflow-2021/demand.csv")).expect("a trace");
    let (plain, empty) = (file("plain.csv.gz", &demand), file("empty.csv", b""));
    let cut = std::fs::read(traces("philly-2017/demand.csv.gz")).expect("a trace");
    let cut = file("cut.csv.gz", &cut[..cut.len() / 2]);
    let folder = folder.path().to_str().expect("a name");
    let commands: [&[&str]; 4] = [
        &["replay-demand", "--in-process", "--capacity", "20"],
        &["replay-prices", "--on-demand", "gpu=32"],
        &["replay-supply"],
        &["backtest", "--on-demand", "gpu=32"],
    ];
    for (path, says) in [
        (folder, "is a folder"),
        (plain.as_str(), "is called .gz and is no gzip file"),
        (empty.as_str(), "is empty"),
    ] {
        for command in commands {
            let text = complaint(&[command, &["--trace", path]].concat());
            assert!(text.contains(says), "{command:?} {text}");
        }
    }
    let text = complaint(&["replay-demand", "--in-process", "--capacity", "20", "--trace", &cut]);
    assert!(text.contains("incomplete deflate stream"), "{text}");
}

#[test]
fn a_packed_trace_is_read_whatever_it_is_called() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("demand.csv");
    std::fs::copy(traces("philly-2017/demand.csv.gz"), &path).expect("a copy");
    let path = path.to_str().expect("a name");
    printed(&["replay-demand", "--in-process", "--capacity", "20", "--trace", path]);
}
