//! Lists and watches in the version that is not stored.

use crate::kind::v1alpha1;
use crate::replica::Replica;
use crate::story::{PATIENCE, Story, definition_alone};
use futures_util::stream::{self, TryStreamExt as _};
use futures_util::{StreamExt as _, pin_mut};
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kubebid_testkit::Component;
use serde_json::json;
use std::collections::BTreeMap;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The sizes of disks by name.
type Sizes = BTreeMap<String, String>;

/// Follows all disks in v1alpha1, as a controller of that version does.
fn follow(story: &Story) -> (watch::Receiver<Sizes>, JoinHandle<()>) {
    let (sender, receiver) = watch::channel(Sizes::new());
    let events = watcher(story.alphas(), watcher::Config::default()).default_backoff();
    let following = tokio::spawn(async move {
        // What a list has said so far: it counts when it is complete.
        let mut listed = Sizes::new();
        pin_mut!(events);
        while let Some(event) = events.next().await {
            let entry = |disk: v1alpha1::Disk| (disk.name_any(), disk.spec.size);
            match event {
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(disk)) => listed.extend([entry(disk)]),
                Ok(watcher::Event::InitDone) => {
                    sender.send_replace(listed.clone());
                }
                Ok(watcher::Event::Apply(disk)) => sender.send_modify(|sizes| sizes.extend([entry(disk)])),
                Ok(watcher::Event::Delete(disk)) => sender.send_modify(|sizes| {
                    sizes.remove(&disk.name_any());
                }),
                // It tries again by itself.
                Err(_) => {}
            }
        }
    });
    (receiver, following)
}

/// Waits until the watch shows what it should.
async fn until(sizes: &mut watch::Receiver<Sizes>, holds: impl FnMut(&Sizes) -> bool) {
    let reached = timeout(PATIENCE, sizes.wait_for(holds)).await.is_ok();
    assert!(reached, "the watch shows {} disks, or old ones", sizes.borrow().len());
}

async fn resize(story: &Story, name: &str, gigabytes: u64) {
    let patch = Patch::Merge(json!({"spec": {"gigabytes": gigabytes}}));
    story.betas().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_the_other_version_goes_on_when_replicas_are_killed() {
    let story = Story::begin("watch", "v1beta1").await;
    let mut replicas = story.start_both(&definition_alone()).await.map(Some);
    let mut wanted = Sizes::new();
    for number in 0..20 {
        let name = format!("disk-{number}");
        story.create(&name, json!({"gigabytes": 1, "zones": ["a"]})).await;
        wanted.insert(name, "1Gi".to_owned());
    }
    let (mut sizes, following) = follow(&story);
    until(&mut sizes, |sizes| *sizes == wanted).await;

    for round in 0..6 {
        let number = round % 2;
        // Each write is an event that the API server converts, also between the kill and the next probe.
        for (place, name) in wanted.keys().cloned().collect::<Vec<_>>().into_iter().enumerate() {
            if place == 10 {
                replicas[number].take().unwrap().kill();
            }
            let gigabytes = 2 + round as u64;
            resize(&story, &name, gigabytes).await;
            wanted.insert(name, format!("{gigabytes}Gi"));
        }
        until(&mut sizes, |sizes| *sizes == wanted).await;
        replicas[number] = Some(story.start_again(number, &definition_alone()).await);
    }
    following.abort();
}

const MANY: usize = 5_000;

/// Begins with two replicas and with many disks.
async fn begin_with_many(namespace: &'static str) -> (Story, [Replica; 2]) {
    let story = Story::begin(namespace, "v1beta1").await;
    let replicas = story.start_both(&definition_alone()).await;
    let betas = story.betas();
    let create = async |number| {
        let disk = json!({
            "apiVersion": "example.com/v1beta1", "kind": "Disk", "metadata": {"name": format!("disk-{number:04}")},
            "spec": {"gigabytes": 1, "zones": ["a", "b"]},
        });
        let disk = serde_json::from_value(disk).unwrap();
        betas.create(&PostParams::default(), &disk).await.map(drop)
    };
    let numbers = stream::iter((0..MANY).map(Ok::<_, kube::Error>));
    numbers.map_ok(create).try_buffer_unordered(16).try_collect::<Vec<()>>().await.unwrap();
    (story, replicas)
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_are_listed_and_watched_and_a_watch_from_a_forgotten_version_is_refused() {
    let (story, _replicas) = begin_with_many("gone").await;
    let (mut sizes, following) = follow(&story);
    until(&mut sizes, |sizes| sizes.len() == MANY).await;
    resize(&story, "disk-0042", 42).await;
    story.create("later", json!({"gigabytes": 7, "zones": ["a"]})).await;

    // The API server remembers no version from before the definition.
    let gone = async {
        let events = story.alphas().watch(&WatchParams::default(), "1").await;
        match events {
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("{error}"),
            Ok(events) => {
                pin_mut!(events);
                match events.next().await {
                    Some(Ok(WatchEvent::Error(status))) => status.code,
                    other => panic!("{other:?}"),
                }
            }
        }
    };
    assert_eq!(timeout(PATIENCE, gone).await.unwrap(), 410);

    let wanted = [("disk-0042", "42Gi"), ("later", "7Gi"), ("disk-4999", "1Gi")];
    let is_newest = |sizes: &Sizes| {
        sizes.len() == MANY + 1
            && wanted.iter().all(|(name, size)| sizes.get(*name).is_some_and(|it| it == size))
    };
    until(&mut sizes, is_newest).await;
    let listed = story.alphas().list(&ListParams::default()).await.unwrap().items;
    let listed: Sizes = listed.into_iter().map(|disk| (disk.name_any(), disk.spec.size)).collect();
    assert!(listed == *sizes.borrow(), "a list and the watch differ");
    following.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_are_watched_again_after_a_restart_of_the_api_server_that_forgets_their_versions() {
    let (story, _replicas) = begin_with_many("restart").await;
    let (mut sizes, following) = follow(&story);
    until(&mut sizes, |sizes| sizes.len() == MANY).await;

    story.plane.stop(Component::ApiServer);
    story.plane.compact();
    story.plane.restart(Component::ApiServer);
    resize(&story, "disk-0042", 42).await;
    until(&mut sizes, |sizes| sizes.get("disk-0042").is_some_and(|size| size == "42Gi")).await;
    assert_eq!(sizes.borrow().len(), MANY);
    following.abort();
}
