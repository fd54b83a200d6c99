//! What `market-sim play` reads and refuses to read.

use kubebid_core::command::{Command, OnPreemption, RuleValue, StampedCommand, TimeInForce};
use market_sim::jsonl::{format_command, parse_command};
use std::io::Write;
use std::process::{Output, Stdio};

fn check(line: &str, complaint: &str) {
    let error = parse_command(line).expect_err("this is no command").to_string();
    assert!(error.contains(complaint), "{line}\n  says {error}\n  not  {complaint}");
}

#[test]
fn a_line_that_is_no_command_is_told_by_field() {
    check("[]", "it is no JSON object");
    check("{", "EOF");
    check(r#"{"command": "AdvanceTime"}"#, "missing field `at_us`");
    check(r#"{"at_us": 0}"#, "missing field `command`");
    check(r#"{"at_us": 0, "command": "Dance"}"#, "field `command`: there is no command `Dance`");
    check(r#"{"at_us": -1, "command": "AdvanceTime"}"#, "field `at_us`: invalid value: integer `-1`");
    check(r#"{"at_us": 1.5, "command": "AdvanceTime"}"#, "field `at_us`: invalid type: floating point `1.5`");
    check(r#"{"at_us": 18446744073709551616, "command": "AdvanceTime"}"#, "field `at_us`");
    check(r#"{"at_us": 0, "command": "AdvanceTime", "to": 5}"#, "unknown field `to`");
}

#[test]
fn fields_are_as_the_command_wants_them() {
    let put = |fields: &str| format!(r#"{{"at_us": 0, "command": "PutOffer", "provider": "p", {fields}}}"#);
    check(&put(r#""market": "h100/eu", "capacity": 1"#), "missing field `reserve`");
    check(&put(r#""market": "h100/eu", "capacity": -1, "reserve": 0"#), "field `capacity`");
    check(&put(r#""market": 7, "capacity": 1, "reserve": 0"#), "field `market`: invalid type: integer `7`");
    let bid = |fields: &str| {
        format!(r#"{{"at_us": 0, "command": "PlaceBid", "tenant": "a", "ceiling": 100, {fields}}}"#)
    };
    check(&bid(r#""markets": ["h100/eu"]"#), "missing field `max_nodes`");
    check(&bid(r#""markets": ["h100/eu", 3], "max_nodes": 1"#), "field `markets[1]`");
    check(&bid(r#""max_nodes": 4294967296"#), "field `max_nodes`");
    check(&bid(r#""max_nodes": 1, "expire_at_us": 1e3"#), "field `expire_at_us`");
}

#[test]
fn a_key_is_at_most_128_bytes() {
    let line = |key: &str| format!(r#"{{"at_us": 0, "command": "AdvanceTime", "key": "{key}"}}"#);
    assert!(parse_command(&line(&"k".repeat(128))).is_ok());
    check(&line(&"k".repeat(129)), "field `key`: longer than 128 bytes");
}

#[test]
fn words_that_the_market_refuses_itself_pass() {
    let line = r#"{"at_us": 0, "command": "PlaceBid", "tenant": "a", "ceiling": 1, "max_nodes": 1,
        "tif": "SOON", "on_preemption": "CRY"}"#;
    let Command::PlaceBid(bid) = parse_command(line).expect("a command").command else { panic!("a bid") };
    assert_eq!(bid.time_in_force, TimeInForce::Unknown("SOON".into()));
    assert_eq!(bid.on_preemption, OnPreemption::Unknown("CRY".into()));
    assert_eq!(bid.min_nodes, 1);

    let line = r#"{"at_us": 0, "command": "ChangeRules", "market": "x/y",
        "rules": {"tick": -1, "colour": "red", "notice_us": 5}}"#;
    let Command::ChangeRules { rules, .. } = parse_command(line).expect("a command").command else {
        panic!("rules")
    };
    let values: Vec<_> = rules.iter().map(|change| (&*change.name, change.value.clone())).collect();
    let word = |text: &str| RuleValue::Word(text.into());
    let expected = [("tick", word("-1")), ("colour", word("red")), ("notice_us", RuleValue::Number(5))];
    assert_eq!(values, expected);
}

#[test]
fn what_is_written_is_read_again() {
    let mut lines: Vec<String> = Vec::new();
    for file in ["scenarios.jsonl", "streams.jsonl", "funds.jsonl"] {
        let path = format!("{}/../conformance/{file}", env!("CARGO_MANIFEST_DIR"));
        for case in std::fs::read_to_string(path).expect("the cases are in the repository").lines() {
            let case: serde_json::Value = serde_json::from_str(case).expect("a case");
            lines.extend(case["commands"].as_array().expect("commands").iter().map(ToString::to_string));
        }
    }
    assert!(lines.len() > 1000);
    for line in lines {
        let stamped: StampedCommand = parse_command(&line).expect("a command");
        let written = format_command(&stamped);
        assert_eq!(parse_command(&written), Ok(stamped), "{line}\n{written}");
    }
}

fn run(input: &str) -> Output {
    run_with(&["play", "--model"], input)
}

fn run_with(arguments: &[&str], input: &str) -> Output {
    let mut tool = std::process::Command::new(env!("CARGO_BIN_EXE_market-sim"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool starts");
    tool.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    tool.wait_with_output().expect("it ends")
}

#[test]
fn a_bad_line_ends_the_run_and_is_named() {
    let open = r#"{"at_us": 0, "command": "OpenMarket", "market": "h100/eu", "rules": {}}"#;
    let out = run(&format!("{open}\n\n{{\"at_us\": -5, \"command\": \"AdvanceTime\"}}\n{open}\n"));
    assert_eq!(out.status.code(), Some(2));
    let answers = String::from_utf8(out.stdout).expect("text");
    assert_eq!(answers.lines().count(), 1, "{answers}");
    let complaint = String::from_utf8(out.stderr).expect("text");
    assert!(complaint.starts_with("market-sim: line 3: field `at_us`"), "{complaint}");
}

#[test]
fn nothing_to_answer_is_no_error() {
    let out = run("");
    assert_eq!(out.status.code(), Some(0));
    assert!(out.stdout.is_empty());
}

#[test]
fn events_only_says_the_same_without_the_state_of_the_market() {
    let path = format!("{}/../conformance/scenarios.jsonl", env!("CARGO_MANIFEST_DIR"));
    let cases = std::fs::read_to_string(path).expect("the cases are in the repository");
    let case: serde_json::Value = serde_json::from_str(cases.lines().next().expect("a case")).expect("JSON");
    let commands: Vec<String> =
        case["commands"].as_array().expect("commands").iter().map(ToString::to_string).collect();
    let answers = |arguments: &[&str]| -> Vec<serde_json::Map<String, serde_json::Value>> {
        let out = run_with(arguments, &commands.join("\n"));
        assert!(out.status.success(), "{}", out.status);
        let text = String::from_utf8(out.stdout).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("an answer")).collect()
    };
    let mut all = answers(&["play"]);
    for answer in &mut all {
        answer.retain(|field, _| ["seq", "at_us", "events"].contains(&field.as_str()));
    }
    assert!(!all.is_empty());
    assert_eq!(answers(&["play", "--events-only"]), all);
}
