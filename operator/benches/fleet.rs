//! How long notices and fleets take, on a real control plane: `just fleet`.
//!
//! It leaves out what machines take to boot (KWOK's nodes come after 50 to 200 ms), and pods that take long to end.
#![allow(clippy::disallowed_methods, reason = "a test writes as people do")]

#[path = "../tests/plane/market.rs"]
#[allow(dead_code, reason = "the stories use the rest")]
mod market;
#[path = "../tests/plane/story.rs"]
#[allow(dead_code, reason = "the stories use the rest")]
mod story;

use k8s_openapi::api::core::v1::Pod;
use kubebid_client::v1::Allocation;
use kubebid_client::v1::allocation::EndReason;
use kubebid_operator::api::BidNode;
use kubebid_testkit::Process;
use serde_json::json;
use std::time::{Duration, Instant};
use story::Story;

/// Nodes of KWOK renew their leases four times in it: with the usual 30 s that is all that the API server of a
/// fleet would have time for.
const GRACE_SECONDS: u32 = 1200;
const MARKET: &str = "h100-8x/eu-west";

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let mut number = |default: u32| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (notices, bidnodes, nodes) = (number(200), number(1000), number(5));
    for count in [1, notices] {
        preempt(count).await;
    }
    bring_up(bidnodes, nodes).await;
}

/// So many notices at once: from the notice to the taint, and to the last pod's leaving.
async fn preempt(nodes: u32) {
    let mut story = Story::alone_with_grace("fleet", GRACE_SECONDS).await;
    story.start_operator(&[]);
    story.market.open(MARKET, Duration::from_secs(120)).await;
    story.market.offer(MARKET, nodes, 1.0).await;
    let pool = json!({"pool": "gpu"});
    let spec = json!({"instanceType": "h100-8x", "maxBid": 2.0, "minNodes": nodes, "maxNodes": nodes, "nodeSelector": pool});
    story.bid("gpu", spec).await;
    wait(|| async { active(&story).await == nodes }).await;
    let resources = json!({"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}});
    for pod in 0..nodes {
        let spec = json!({
            "nodeSelector": pool,
            "containers": [{"name": "main", "image": "work", "resources": resources}],
        });
        story.pod(&format!("work-{pod}"), spec).await;
    }
    let running =
        |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    wait(|| async {
        let pods = story.pods().list(&Default::default()).await.unwrap().items;
        pods.iter().filter(|pod| running(pod)).count() == nodes as usize
    })
    .await;
    story.market.rival_bids(MARKET, nodes, 9.0).await;
    wait(|| async { story.market.ended().await.len() == nodes as usize }).await;
    let in_time = |it: &&Allocation| it.end_reason() == EndReason::Released;
    let in_time = story.market.ended().await.iter().filter(in_time).count();
    wait(|| async { story.market.all_bids().await.len() == 2 * nodes as usize }).await;
    let text = story.operator.as_ref().unwrap().page("/metrics").await;
    let mean =
        |name: &str| sum(&text, &format!("{name}_sum")) / sum(&text, &format!("{name}_count")).max(1.0);
    println!(
        "{nodes} notices: to the taint {:.3} s, to drained {:.3} s on average; within {} s and {} s; {in_time} given back \
         before the deadline",
        mean("kubebid_operator_notice_to_taint_seconds"),
        mean("kubebid_operator_notice_to_drained_seconds"),
        within(&text, "kubebid_operator_notice_to_taint_seconds"),
        within(&text, "kubebid_operator_notice_to_drained_seconds"),
    );
}

/// So many BidNodes of so many nodes each, made at once.
async fn bring_up(bidnodes: u32, nodes: u32) {
    let mut story = Story::alone_with_grace("fleet", GRACE_SECONDS).await;
    story.market.open(MARKET, Duration::from_secs(120)).await;
    story.market.offer(MARKET, bidnodes * nodes, 1.0).await;
    // Machines wait for the API server: none is given up for that.
    story.start_operator(&["--machine-within", "1h"]);
    let began = Instant::now();
    for number in 0..bidnodes {
        let spec = json!({"instanceType": "h100-8x", "maxBid": 2.0, "minNodes": nodes});
        story.bid(&format!("gpu-{number}"), spec).await;
    }
    let made = began.elapsed();
    let operator = story.operator.as_ref().unwrap();
    let all = f64::from(bidnodes * nodes);
    let mut told = Instant::now();
    // The operator's own count: a list of all BidNodes is work for an API server that has enough.
    loop {
        let active = sum(&operator.page("/metrics").await, "bidnode_active_nodes");
        if active == all {
            break;
        }
        if told.elapsed() > Duration::from_secs(30) {
            eprintln!("{active} of {all} nodes are active after {:.0} s", began.elapsed().as_secs_f64());
            told = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    wait(|| async { active(&story).await == bidnodes * nodes }).await;
    let took = began.elapsed();
    let text = operator.page("/metrics").await;
    for (resource, requests) in requests(&text) {
        println!("  {:.2} a node: {resource}", requests / all);
    }
    println!(
        "{bidnodes} BidNodes of {nodes}: running after {:.1} s (made within {:.1} s); operator {:.1} s of CPU, {} MiB; \
         {:.1} requests to the API server a node",
        took.as_secs_f64(),
        made.as_secs_f64(),
        cpu(operator).as_secs_f64(),
        peak_mib(operator),
        sum(&text, "kubebid_operator_api_requests_total") / all,
    );
}

async fn wait<F: Future<Output = bool>>(mut is_so: impl FnMut() -> F) {
    while !is_so().await {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn active(story: &Story) -> u32 {
    let nodes: Vec<BidNode> = story.bidnodes().list(&Default::default()).await.unwrap().items;
    nodes.iter().filter_map(|node| node.status.as_ref()).map(|status| status.active_nodes).sum()
}

/// All series of a name together.
fn sum(metrics: &str, name: &str) -> f64 {
    let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let values =
        metrics.lines().filter(of_name).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

/// Requests to the API server, by method and resource.
fn requests(metrics: &str) -> Vec<(String, f64)> {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix("kubebid_operator_api_requests_total"));
    lines
        .filter_map(|line| {
            line.rsplit_once(' ').map(|(labels, count)| (labels.to_owned(), count.parse().unwrap()))
        })
        .collect()
}

/// The bucket that the slowest is in.
fn within(text: &str, name: &str) -> String {
    let count = sum(text, &format!("{name}_count"));
    let full = text.lines().find(|line| {
        line.starts_with(&format!("{name}_bucket"))
            && line.rsplit(' ').next().and_then(|it| it.parse().ok()) == Some(count)
    });
    let edge = full.and_then(|line| line.split("le=\"").nth(1)?.split('"').next());
    edge.unwrap_or("?").to_owned()
}

/// The processor time that it has used.
fn cpu(operator: &Process) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", operator.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// The most memory that it has had.
fn peak_mib(operator: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", operator.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}
