//! Measures the operator with many Mysql objects: a cold start, and five minutes in which nothing happens.
//!
//! `cargo bench -p kubebid-mysql-operator --bench rest -- [OBJECTS] [SECONDS]`
#![allow(clippy::disallowed_methods, reason = "a bench writes as people do")]
#![allow(dead_code, reason = "the stories use the rest of these modules")]

#[path = "../tests/plane/operator.rs"]
mod operator;
#[path = "../tests/plane/story.rs"]
mod story;

use kubebid_mysql_operator::api::Mysql;
use operator::Operator;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};
use story::Story;
use tokio::time::sleep;

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<u64>().ok());
    let (objects, seconds) = (numbers.next().unwrap_or(1000), numbers.next().unwrap_or(300));
    let story = Story::without_operator("rest").await;
    let started = Instant::now();
    make(&story, objects);
    let mut operator = start(&story);
    while ready(&story).await < objects {
        sleep(Duration::from_secs(1)).await;
    }
    println!("{objects} objects are ready after {:.0} s", started.elapsed().as_secs_f64());
    operator.process.signal("TERM");
    operator.process.ended().await;

    let before = story.account.requests().len();
    let started = Instant::now();
    let operator = start(&story);
    while !operator.process.log().contains("this replica leads") {
        sleep(Duration::from_millis(10)).await;
    }
    let elected = started.elapsed();
    while operator.passes().await < objects {
        sleep(Duration::from_millis(50)).await;
    }
    println!(
        "cold start: all are reconciled {:.2} s after the election, which took {:.2} s; {:.2} s of CPU",
        (started.elapsed() - elected).as_secs_f64(),
        elected.as_secs_f64(),
        cpu(&operator).as_secs_f64()
    );
    // Passes that the end of the lists has woken once more.
    sleep(Duration::from_secs(5)).await;
    report(&story.account.requests()[before..]);

    let (before, used) = (story.account.requests().len(), cpu(&operator));
    sleep(Duration::from_secs(seconds)).await;
    let used = cpu(&operator) - used;
    println!(
        "{seconds} s at rest: {:.2} % of a core, {} MiB",
        100.0 * used.as_secs_f64() / Duration::from_secs(seconds).as_secs_f64(),
        memory_kib(&operator) / 1024
    );
    report(&story.account.requests()[before..]);
}

fn start(story: &Story) -> Operator {
    Operator::start(story.namespace, &story.account, &["--identity", "bench"])
}

/// Makes so many objects and their volumes, by one command each.
fn make(story: &Story, objects: u64) {
    let names: Vec<_> = (0..objects).map(|number| format!("db-{number}")).collect();
    let all = |items: Vec<Value>| json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let create = |items: Vec<Value>| {
        let made = story.plane.kubectl_reading(&["create", "-f", "-"], &all(items));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    create(names.iter().map(|name| story.volume(name)).collect());
    create(names.iter().map(|name| story.mysql(name, json!({}))).collect());
}

async fn ready(story: &Story) -> u64 {
    let mysqls = story.api::<Mysql>().list(&Default::default()).await.unwrap();
    mysqls.iter().filter(|mysql| mysql.status.as_ref().is_some_and(|status| status.ready)).count() as u64
}

/// Prints the requests by verb and resource.
fn report(requests: &[Value]) {
    let mut counts = BTreeMap::<(&str, &str), u64>::new();
    for request in requests {
        let resource = request["objectRef"]["resource"].as_str().unwrap_or("none");
        *counts.entry((request["verb"].as_str().unwrap(), resource)).or_default() += 1;
    }
    for ((verb, resource), count) in counts {
        println!("    {count:>6} {verb} {resource}");
    }
}

/// Returns the CPU time that a process has used.
fn cpu(operator: &Operator) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", operator.process.pid())).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u32>().unwrap()).sum::<u32>();
    let per_second = Command::new("getconf").arg("CLK_TCK").output().unwrap().stdout;
    Duration::from_secs(ticks.into()) / String::from_utf8(per_second).unwrap().trim().parse().unwrap()
}

/// Returns the memory that a process has, in KiB.
fn memory_kib(operator: &Operator) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", operator.process.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
