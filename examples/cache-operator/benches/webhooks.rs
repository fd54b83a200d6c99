//! Measures the webhooks of two replicas behind a balancer, on a real control plane: single conversions over HTTPS, a
//! migration beside a writer, and lists of all objects in the version that is not stored.
//!
//! `cargo bench -p kubebid-cache-operator --bench webhooks -- [OBJECTS] [SECONDS]`
#![allow(clippy::disallowed_methods, reason = "a bench writes as people do")]
#![allow(dead_code, reason = "the stories use the rest of these modules")]

#[path = "../tests/plane/operator.rs"]
mod operator;
#[path = "../tests/plane/story.rs"]
mod story;

use futures_util::stream::{self, TryStreamExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kubebid_cache_operator::api::v1beta1::Cache;
use kubebid_testkit::{Component, Process};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use story::Story;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The namespace of the objects. The operator's controller looks at another one, so that its memory is that of the webhooks.
const NAMESPACE: &str = "many";
/// Single conversions per second.
const RATE: u32 = 200;
/// Connections that they come by.
const CONNECTIONS: u32 = 4;
/// The size of an object in bytes, about.
const SIZE: usize = 4096;

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<usize>().ok());
    let (objects, seconds) = (numbers.next().unwrap_or(5_000), numbers.next().unwrap_or(30));
    let story = Story::with_webhooks("bench").await;
    story.plane.get(&["create", "namespace", NAMESPACE]);
    let caches: Api<Cache> = Api::namespaced(story.client.clone(), NAMESPACE);
    println!("a replica at rest: {} MiB", memory_mib(&story, "VmRSS"));

    single_conversions(&story, seconds).await;

    story.store("v1alpha1");
    create(&caches, objects).await;
    story.store("v1beta1");
    migrate(&caches, &story, objects).await;

    for _ in 0..3 {
        list(&story, objects).await;
    }
    // A new process of the API server has no object in memory: it converts all.
    story.plane.restart(Component::ApiServer);
    println!("the API server was restarted");
    for _ in 0..3 {
        list(&story, objects).await;
    }
    println!(
        "a replica after these lists: {} MiB, {} MiB at most",
        memory_mib(&story, "VmRSS"),
        memory_mib(&story, "VmHWM")
    );
}

/// Returns an object as people and controllers leave it.
fn cache(version: &str, name: &str) -> Value {
    let padding = "x".repeat(SIZE - 500);
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": padding});
    json!({
        "apiVersion": format!("infra.archon.dev/{version}"), "kind": "Cache",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {"engine": "valkey", "memory": "64Mi", "highAvailability": {"enabled": true}},
    })
}

async fn create(caches: &Api<Cache>, objects: usize) {
    let make = async |number| {
        let cache = serde_json::from_value(cache("v1beta1", &format!("cache-{number:05}"))).unwrap();
        caches.create(&PostParams::default(), &cache).await.map(drop)
    };
    let numbers = stream::iter((0..objects).map(Ok::<_, kube::Error>));
    numbers.map_ok(make).try_buffer_unordered(16).try_collect::<Vec<()>>().await.unwrap();
}

/// Asks for single conversions at a constant rate.
async fn single_conversions(story: &Story, seconds: usize) {
    let definitions: Api<CustomResourceDefinition> = Api::all(story.client.clone());
    let definition = definitions.get("caches.infra.archon.dev").await.unwrap();
    let webhook =
        definition.spec.conversion.and_then(|it| it.webhook).and_then(|it| it.client_config).unwrap();
    let address = webhook.url.unwrap().replace("https://", "").replace("/convert", "");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&webhook.ca_bundle.unwrap().0) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());

    let request = json!({
        "uid": "u", "desiredAPIVersion": "infra.archon.dev/v1alpha1", "objects": [cache("v1beta1", "shop")],
    });
    let review =
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
    let body = review.to_string();
    let head = format!(
        "POST /convert HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let request = Arc::new([head, body].concat().into_bytes());

    let start = Instant::now() + Duration::from_millis(500);
    let all = u32::try_from(seconds).unwrap() * RATE;
    let clients = (0..CONNECTIONS).map(|connection| {
        let (address, config, request) = (address.clone(), Arc::clone(&config), Arc::clone(&request));
        tokio::spawn(async move {
            let stream = TcpStream::connect(&address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let name = ServerName::from(stream.peer_addr().unwrap().ip());
            let stream = TlsConnector::from(config).connect(name, stream).await.unwrap();
            let (mut stream, mut took) = (BufReader::new(stream), Vec::new());
            for number in (connection..all).step_by(CONNECTIONS as usize) {
                let due = start + Duration::from_secs(1) * number / RATE;
                // The timer of tokio is late by up to a millisecond, which is not the server's.
                tokio::time::sleep_until(due.into()).await;
                let sent = Instant::now();
                ask(&mut stream, &request).await;
                took.push(sent.elapsed());
            }
            took
        })
    });
    let took = futures_util::future::join_all(clients).await;
    let mut took: Vec<Duration> = took.into_iter().flat_map(Result::unwrap).collect();
    took.sort();
    let micros = |per_mille: usize| took[(took.len() - 1) * per_mille / 1000].as_micros();
    println!(
        "{} conversions of one object at {RATE}/s: p50 {} us, p99 {} us, p99.9 {} us, longest {} us",
        took.len(),
        micros(500),
        micros(990),
        micros(999),
        micros(1000)
    );
}

/// Sends a request and reads its answer.
async fn ask(stream: &mut BufReader<TlsStream<TcpStream>>, request: &[u8]) {
    stream.get_mut().write_all(request).await.unwrap();
    stream.get_mut().flush().await.unwrap();
    let (mut line, mut length) = (String::new(), 0);
    stream.read_line(&mut line).await.unwrap();
    assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    assert!(body.windows(9).any(|it| it == b"\"Success\""));
}

/// Runs `migrate` beside a client that counts in annotations.
async fn migrate(caches: &Api<Cache>, story: &Story, objects: usize) {
    let (ends, before) = (Arc::new(AtomicBool::new(false)), reviews(story).await);
    let writing = tokio::spawn(write(caches.clone(), objects, Arc::clone(&ends)));
    let program = env!("CARGO_BIN_EXE_cache-operator");
    let began = Instant::now();
    let mut command = tokio::process::Command::new(program);
    let done = command.arg("migrate").env("KUBECONFIG", story.plane.kubeconfig()).output().await.unwrap();
    let took = began.elapsed();
    assert!(done.status.success(), "{done:?}");
    ends.store(true, Ordering::Relaxed);
    let written = writing.await.unwrap();
    let updates: usize = written.values().sum();
    let mut lost = 0;
    for cache in caches.list(&ListParams::default()).await.unwrap() {
        let count = cache.annotations().get("count").map_or(0, |text| text.parse().unwrap());
        lost += written.get(&cache.name_any()).copied().unwrap_or_default() - count;
    }
    let mut check = Command::new(program);
    let check = check.args(["migrate", "--check"]).env("KUBECONFIG", story.plane.kubeconfig()).status();
    assert!(check.unwrap().success());
    println!(
        "migrate: {:.0} objects/s, {} reviews ({}), beside {updates} updates, of which {lost} are lost",
        objects as f64 / took.as_secs_f64(),
        reviews(story).await - before,
        String::from_utf8_lossy(&done.stdout).trim(),
    );
}

/// Counts in one object after another until it is told to stop. Returns how often it has counted in each.
async fn write(caches: Api<Cache>, objects: usize, ends: Arc<AtomicBool>) -> BTreeMap<String, usize> {
    let (mut written, mut random) = (BTreeMap::<String, usize>::new(), fastrand::Rng::with_seed(1));
    while !ends.load(Ordering::Relaxed) {
        let name = format!("cache-{:05}", random.usize(..objects));
        let version = caches.get(&name).await.unwrap().resource_version();
        let count = written.entry(name.clone()).or_default();
        let annotations = json!({"count": (*count + 1).to_string()});
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
        match caches.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => *count += 1,
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    written
}

fn replicas(story: &Story) -> &[Process; 2] {
    &story.webhooks.as_ref().unwrap().replicas
}

/// Returns the conversion reviews that the replicas have answered.
async fn reviews(story: &Story) -> u64 {
    let mut all = 0;
    for replica in replicas(story) {
        let metrics = replica.page("/metrics").await;
        let line =
            metrics.lines().find(|line| line.contains("webhook_requests_total") && line.contains("/convert"));
        all += line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap());
    }
    all
}

/// Lists all objects in both versions, as text: what the client does with them does not count.
async fn list(story: &Story, objects: usize) {
    let (mut took, before) = (Vec::new(), reviews(story).await);
    for version in ["v1alpha1", "v1beta1"] {
        let path = format!("/apis/infra.archon.dev/{version}/namespaces/{NAMESPACE}/caches");
        let began = Instant::now();
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let text = story.client.request_text(request).await.unwrap();
        let count = text
            .matches(&format!("\"apiVersion\":\"infra.archon.dev/{version}\",\"kind\":\"Cache\","))
            .count();
        assert!(count >= objects, "{count} of {objects}");
        took.push(format!("{version} in {:.2} s", began.elapsed().as_secs_f64()));
    }
    let reviews = reviews(story).await - before;
    println!("a list of {objects} objects: {}; {reviews} reviews", took.join(", "));
}

/// Returns a figure of the memory of the larger replica, in MiB.
fn memory_mib(story: &Story, field: &str) -> u64 {
    let memory = |replica: &Process| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", replica.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    replicas(story).iter().map(memory).max().unwrap()
}
