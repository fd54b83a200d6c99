//! Processes that end in the middle of a call, and ones that stand still.

use super::service::Service;
use super::{MS, PATIENCE, Storage};
use crate::storage::{Bucket, Folder};
use crate::story::Story;
use kube::ResourceExt as _;
use kubebid_controller::external::transition::State;
use kubebid_testkit::Process;
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Starts the storage operator.
fn start(storage: &Storage, more: &[&str]) -> Process {
    let program = program();
    assert!(
        program.exists(),
        "{} is not built: cargo build -p kubebid-controller --examples",
        program.display()
    );
    let mut command = Command::new(program);
    command
        .args(["--service", &storage.service.url, "--poll", "100ms", "--creation-grace", "300ms"])
        .args(["--listen", "127.0.0.1:0", "--backoff", "20ms..500ms"])
        .args(["--lease-namespace", storage.namespace, "--namespace", storage.namespace])
        .args(more)
        .env("KUBECONFIG", storage.story.plane.kubeconfig());
    Process::start(&mut command)
}

/// The example program beside the test program.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/storage")
}

async fn storage(namespace: &'static str) -> Storage {
    let story = Story::begin(namespace).await;
    Storage { story, service: Service::start().await, namespace, running: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_point_leaves_exactly_one_resource() {
    let storage = storage("crashes").await;
    let points = [
        ("external-create", "create"),
        ("external-created", "create"),
        ("external-annotated", "create"),
        ("external-complete", "create"),
        ("external-completed", "create"),
        ("external-update", "update"),
        ("external-updated", "update"),
        ("external-annotated", "update"),
        ("external-complete", "update"),
        ("external-completed", "update"),
        ("external-recreate", "recreate"),
        ("external-recreated", "recreate"),
        ("external-delete", "delete"),
        ("external-deleted", "delete"),
    ];
    {
        let _process = start(&storage, &["--alone"]);
        storage.bucket("home").await;
        storage.until::<Bucket>("home", State::Succeeded).await;
    }
    for (number, (point, purpose)) in points.into_iter().enumerate() {
        let name = format!("c{number}");
        let (bucket, folder) = (storage.bucket_id(&name), storage.folder_id(&name));
        let create = async || {
            storage.bucket(&name).await;
            storage.folder(&name, "home", json!({})).await;
        };
        let succeeded = async || {
            storage.until::<Bucket>(&name, State::Succeeded).await;
            storage.until::<Folder>(&name, State::Succeeded).await;
        };
        let change = async || match purpose {
            "create" => create().await,
            "update" => {
                storage.patch_bucket(&name, json!({"spec": {"size": 2}})).await;
                storage.story.patch::<Folder>(&name, json!({"spec": {"quota": 2}})).await;
            }
            "recreate" => {
                storage.patch_bucket(&name, json!({"spec": {"region": "us"}})).await;
            }
            _ => {
                storage.delete::<Bucket>(&name).await;
            }
        };
        if purpose != "create" {
            let _process = start(&storage, &["--alone"]);
            create().await;
            succeeded().await;
        }
        let mut crashing = start(&storage, &["--alone", "--abort-at", point]);
        change().await;
        timeout(PATIENCE, crashing.ended()).await.expect("the process ends");
        let _next = start(&storage, &["--alone"]);
        if purpose == "delete" {
            timeout(PATIENCE, async {
                while storage.story.api::<Bucket>().get_opt(&name).await.unwrap().is_some() {
                    sleep(20 * MS).await;
                }
            })
            .await
            .unwrap();
            assert_eq!(storage.service.spec(&bucket), None, "{point}");
            continue;
        }
        succeeded().await;
        let spec = storage.service.spec(&bucket).unwrap();
        let expected = match purpose {
            "update" => json!({"size": 2, "region": "eu"}),
            "recreate" => json!({"size": 1, "region": "us"}),
            _ => json!({"size": 1, "region": "eu"}),
        };
        assert_eq!(spec, expected, "{point}");
        let quota = if purpose == "update" { 2 } else { 1 };
        assert_eq!(storage.service.spec(&folder).unwrap()["quota"], quota, "{point}");
        // Whatever was called twice was one call for the service: no call was refused.
        for id in [&bucket, &folder] {
            let changes = storage.service.changes(id);
            assert!(changes.iter().all(|change| change.ends_with(" 200")), "{point}: {changes:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stands_still_makes_no_call_when_it_wakes() {
    let storage = storage("stopped-leader").await;
    let first = start(&storage, &["--lease-seconds", "3", "--identity", "first"]);
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    // It stands still while its call is under way.
    let id = storage.bucket_id("b");
    storage.service.faults("create", &id, [super::service::Fault::Slow(Duration::from_secs(2))]);
    storage.bucket("b").await;
    storage.until_status::<Bucket>("b", |status| status.state == State::Creating).await;
    first.signal("STOP");
    let _second = start(&storage, &["--lease-seconds", "3", "--identity", "second"]);
    storage.until::<Bucket>("b", State::Succeeded).await;
    storage.patch_bucket("b", json!({"spec": {"size": 2}})).await;
    storage.until::<Bucket>("b", State::Succeeded).await;
    first.signal("CONT");
    storage.patch_bucket("b", json!({"spec": {"size": 3}})).await;
    let bucket = storage.until::<Bucket>("b", State::Succeeded).await;
    assert_eq!(storage.service.spec(&id).unwrap()["size"], 3);
    let changes = storage.service.changes(&id);
    assert!(changes.iter().all(|change| change.ends_with(" 200")), "{changes:?}");
    let updates = changes.iter().filter(|change| change.starts_with("update")).count();
    assert_eq!((updates, bucket.name_any().as_str()), (2, "b"), "{changes:?}");
}
