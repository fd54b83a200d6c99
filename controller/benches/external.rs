//! Costs of a thousand external resources on a real control plane: `just external`.
//!
//! The service answers at once. The measurement leaves out leader election, and the network between the service and the operator.
#![allow(clippy::disallowed_methods, reason = "a test writes as people do")]

#[path = "../examples/website.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod example;
#[path = "../tests/plane/external/service.rs"]
#[allow(dead_code, reason = "the stories use the rest")]
mod service;
#[path = "../examples/storage.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod storage;
#[path = "../tests/plane/story.rs"]
#[allow(dead_code, reason = "the stories use the rest")]
mod story;

use futures_util::StreamExt as _;
use kube::api::{Api, PostParams};
use kubebid_controller::external::transition::State;
use kubebid_controller::external::{Machine, Timing};
use kubebid_controller::leader_election::Leadership;
use kubebid_controller::{ControllerOptions, Manager, Options};
use serde_json::{Value, json};
use service::Service;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use storage::{Bucket, Buckets};
use story::Story;
use tokio::time::sleep;

/// How long the objects are watched at rest.
const REST: Duration = Duration::from_secs(300);
/// The longest time until a thousand objects are Succeeded.
const READY_MAX: Duration = Duration::from_secs(60);
/// The most writes from the creation of an object until it is Succeeded.
const WRITES_MAX: u32 = 5;
/// The time after which each resource is compared again.
const RESYNC: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let objects: usize = arguments.next().map_or(1000, |text| text.parse().unwrap());
    let (story, service) = (Story::begin("thousand").await, Service::start().await);
    let mut manager = Manager::new(story.client.clone(), Leadership::alone(), Options::default());
    let timing = Timing { resync: Some(RESYNC), ..Timing::default() };
    let buckets = Buckets(storage::Service::new(&service.url, timing));
    let options = ControllerOptions { concurrency: 32, ..ControllerOptions::default() };
    manager.add(Machine::new(buckets, "bench"), story.api(), options);
    let _running = story::run(manager);

    let began = Instant::now();
    let api: Api<Bucket> = story.api();
    let made = futures_util::stream::iter(0..objects).map(|number| {
        let bucket = json!({
            "apiVersion": "storage.example.com/v1", "kind": "Bucket", "metadata": {"name": format!("b{number}")},
            "spec": {"size": 1, "region": "eu"},
        });
        let (api, bucket) = (api.clone(), serde_json::from_value::<Bucket>(bucket).unwrap());
        async move { api.create(&PostParams::default(), &bucket).await.unwrap() }
    });
    made.buffer_unordered(16).collect::<Vec<_>>().await;
    let created = began.elapsed();
    loop {
        let all = api.list(&Default::default()).await.unwrap().items;
        let is_done =
            |bucket: &&Bucket| bucket.status.as_ref().is_some_and(|it| it.state == State::Succeeded);
        if all.iter().filter(is_done).count() == objects {
            break;
        }
        sleep(Duration::from_millis(200)).await;
    }
    let (ready, count) = (began.elapsed(), u32::try_from(objects).unwrap());
    println!(
        "{objects} objects: made within {:.1} s, all Succeeded after {:.1} s; {:.2} writes and {:.2} calls of the service an object",
        created.as_secs_f64(),
        ready.as_secs_f64(),
        writes(&story) / f64::from(count),
        calls(&service, objects) / f64::from(count),
    );
    assert!(ready <= READY_MAX * count.div_ceil(1000), "the objects are not ready in time");
    assert!(writes(&story) <= f64::from(count * WRITES_MAX), "an object costs more than {WRITES_MAX} writes");
    let (writes_before, began, cpu_before) = (writes(&story), Instant::now(), cpu());
    let mut calls_by_second = BTreeMap::new();
    let mut last = calls(&service, objects);
    while began.elapsed() < REST {
        sleep(Duration::from_secs(1)).await;
        let present = calls(&service, objects);
        calls_by_second.insert(began.elapsed().as_secs(), present - last);
        last = present;
    }
    let most = calls_by_second.values().copied().fold(0.0, f64::max);
    let mean = calls_by_second.values().sum::<f64>() / REST.as_secs_f64();
    let writes_at_rest = writes(&story) - writes_before;
    println!(
        "at rest for {} s: {writes_at_rest} writes, {mean:.1} reads of the service a second and {most:.0} at most; {:.2} % of a core with the \
         service in the same process",
        REST.as_secs(),
        100.0 * (cpu() - cpu_before).as_secs_f64() / REST.as_secs_f64(),
    );
    assert_eq!(writes_at_rest, 0.0, "writes at rest");
    assert!(most <= f64::from(count) / 10.0, "a tenth of the resources is read in one second");
}

/// Writes to Buckets, but the creations.
fn writes(story: &Story) -> f64 {
    let is_write =
        |request: &&Value| request["objectRef"]["resource"] == "buckets" && request["verb"] == "patch";
    let count = story.requests().iter().filter(is_write).count();
    f64::from(u32::try_from(count).unwrap())
}

fn calls(service: &Service, objects: usize) -> f64 {
    let of_one = |number: usize| service.log(&format!("buckets/thousand.b{number}")).len();
    f64::from(u32::try_from((0..objects).map(of_one).sum::<usize>()).unwrap())
}

/// The processor time of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
