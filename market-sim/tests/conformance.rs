//! Plays the conformance cases and compares answer by answer.

use kubebid_core::{Auction, Exchange};
use kubebid_model::Model;
use market_sim::jsonl::{format_answer, parse_command};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::path::Path;

/// Their order within an answer counts; that of all others does not.
const ORDERED: [&str; 12] = [
    "BidPlaced",
    "BidAmended",
    "Allocated",
    "Ready",
    "NoticeStarted",
    "NoticeRescinded",
    "NoticeMoved",
    "Claimed",
    "ClaimDropped",
    "Ended",
    "Rejected",
    "Repeated",
];

type Object = Map<String, Value>;

#[derive(Deserialize)]
struct Case {
    name: String,
    rule: String,
    commands: Vec<Value>,
    expect: Vec<Expected>,
}

/// A case whose answers a change of the rules made different.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Changed {
    name: String,
    file: String,
    rules: Vec<String>,
    first_command: usize,
}

/// What is compared of an answer.
#[derive(Deserialize)]
struct Expected {
    seq: u64,
    at_us: u64,
    events: Vec<Object>,
    markets: Object,
    bids: Object,
    allocations: Object,
    money: Value,
    /// Absent if no account is funded.
    #[serde(default)]
    accounts: Object,
}

fn read<T: DeserializeOwned>(file: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance").join(file);
    let text = std::fs::read_to_string(&path).expect("the cases are in the repository");
    text.lines().map(|line| serde_json::from_str(line).expect("a case on each line")).collect()
}

fn cases(file: &str) -> Vec<Case> {
    read(file)
}

fn kind(event: &Object) -> &str {
    event["event"].as_str().expect("an event says what it is")
}

/// Of an object, only the fields that the case names.
fn picked(got: &Value, want: &Value) -> Value {
    match (got, want) {
        (Value::Object(got), Value::Object(want)) => {
            let field = |name: &String| (name.clone(), got.get(name).cloned().unwrap_or(Value::Null));
            Value::Object(want.keys().map(field).collect())
        }
        (got, _) => got.clone(),
    }
}

fn same(what: &str, want: &Value, got: &Value) -> Result<(), String> {
    if want == got { Ok(()) } else { Err(format!("{what}\n  expected {want}\n  answered {got}")) }
}

fn compare_events(want: &[Object], got: &[Object]) -> Result<(), String> {
    for ordered in [true, false] {
        let of_kind = |event: &&Object| ORDERED.contains(&kind(event)) == ordered;
        let wanted: Vec<&Object> = want.iter().filter(of_kind).collect();
        let shaped = got.iter().filter(of_kind).map(|event| {
            let shape = wanted.iter().find(|shape| kind(shape) == kind(event));
            shape.map_or(Value::Object(event.clone()), |shape| {
                picked(&Value::Object(event.clone()), &Value::Object((*shape).clone()))
            })
        });
        let mut answered: Vec<Value> = shaped.collect();
        let mut expected: Vec<Value> = wanted.iter().map(|event| Value::Object((*event).clone())).collect();
        if !ordered {
            answered.sort_by_key(Value::to_string);
            expected.sort_by_key(Value::to_string);
        }
        same("events", &Value::Array(expected), &Value::Array(answered))?;
    }
    Ok(())
}

fn compare_rows(part: &str, want: &Object, got: &Object) -> Result<(), String> {
    let names = |rows: &Object| Value::from(rows.keys().cloned().collect::<Vec<_>>());
    same(part, &names(want), &names(got))?;
    for (name, row) in want {
        same(&format!("{part} {name}"), row, &picked(&got[name], row))?;
    }
    Ok(())
}

fn compare(want: &Expected, got: &Expected) -> Result<(), String> {
    same("seq", &want.seq.into(), &got.seq.into())?;
    same("at_us", &want.at_us.into(), &got.at_us.into())?;
    compare_events(&want.events, &got.events)?;
    compare_rows("markets", &want.markets, &got.markets)?;
    compare_rows("bids", &want.bids, &got.bids)?;
    compare_rows("allocations", &want.allocations, &got.allocations)?;
    same("money", &want.money, &picked(&got.money, &want.money))?;
    compare_rows("accounts", &want.accounts, &got.accounts)
}

/// The first difference, if any.
fn play(case: &Case, auction: &mut dyn Auction) -> Result<(), String> {
    assert_eq!(case.commands.len(), case.expect.len(), "one answer for each command of {}", case.name);
    for (command, want) in case.commands.iter().zip(&case.expect) {
        let stamped = parse_command(&command.to_string()).expect("a command");
        let answer = auction.apply(&stamped);
        let text = format_answer(&answer, &auction.dump(), auction.names());
        let got = serde_json::from_str(&text).expect("an answer is an object");
        compare(want, &got).map_err(|difference| format!("after {command}: {difference}"))?;
    }
    Ok(())
}

fn play_all(file: &str, auction: fn() -> Box<dyn Auction>) {
    let cases = cases(file);
    assert!(!cases.is_empty(), "{file} has no cases");
    let failed: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let difference = play(case, auction().as_mut()).err()?;
            Some(format!("{} ({}) {difference}", case.name, case.rule))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), cases.len(), failed.join("\n"));
}

#[test]
fn the_exchange_answers_the_scenarios() {
    play_all("scenarios.jsonl", || Box::new(Exchange::new()));
}

#[test]
fn the_exchange_answers_the_streams() {
    play_all("streams.jsonl", || Box::new(Exchange::new()));
}

#[test]
fn the_exchange_answers_the_stories_of_funds() {
    play_all("funds.jsonl", || Box::new(Exchange::new()));
}

#[test]
fn the_model_answers_the_scenarios() {
    play_all("scenarios.jsonl", || Box::new(Model::new()));
}

#[test]
fn the_model_answers_the_stories_of_funds() {
    play_all("funds.jsonl", || Box::new(Model::new()));
}

#[test]
fn the_model_answers_the_streams() {
    play_all("streams.jsonl", || Box::new(Model::new()));
}

#[test]
fn each_changed_case_is_there_with_the_rules_that_changed_it() {
    for Changed { name, file, rules, first_command } in read("changed.jsonl") {
        let cases = cases(&file);
        let case = cases.iter().find(|case| case.name == name);
        let case = case.unwrap_or_else(|| panic!("{file} has no case {name:?}"));
        assert!((1..=case.commands.len()).contains(&first_command), "{name}: command {first_command}");
        assert!(!rules.is_empty() && rules.iter().all(|rule| rule.starts_with('R')), "{name}: {rules:?}");
    }
}
