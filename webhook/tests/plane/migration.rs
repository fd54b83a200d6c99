//! Objects move into another stored version, beside a client that writes, and after a kill.

use crate::kind::v1beta1;
use crate::replica::Replica;
use crate::story::{DISKS, PATIENCE, Story, definition_alone};
use futures_util::stream::{self, TryStreamExt as _};
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kubebid_controller::Writer;
use kubebid_controller::leader_election::Leadership;
use kubebid_webhook::migrate::{MigrateError, check, migrate};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const OBJECTS: usize = 600;

fn name(number: usize) -> String {
    format!("disk-{number:03}")
}

async fn create_old(story: &Story, count: usize) {
    let alphas = story.alphas();
    let create = async |number| {
        let disk = json!({
            "apiVersion": "example.com/v1alpha1", "kind": "Disk", "metadata": {"name": name(number)},
            "spec": {"size": "1Gi", "zone": "a", "note": "kept"},
        });
        let disk = serde_json::from_value(disk).unwrap();
        alphas.create(&PostParams::default(), &disk).await.map(|_| ())
    };
    let numbers = stream::iter((0..count).map(Ok::<_, kube::Error>));
    numbers.map_ok(create).try_buffer_unordered(8).try_collect::<Vec<()>>().await.unwrap();
}

/// Adds a zone to one disk after another, and returns how many each has got.
async fn write_on(story: &Story, ends: &AtomicBool) -> BTreeMap<String, usize> {
    let (betas, mut written) = (story.betas(), BTreeMap::<String, usize>::new());
    let mut random = fastrand::Rng::with_seed(1);
    while !ends.load(Ordering::Relaxed) {
        let name = name(random.usize(..OBJECTS));
        let disk = betas.get(&name).await.unwrap();
        let mut zones = disk.spec.zones.clone();
        zones.push(format!("z{}", zones.len()));
        let patch =
            json!({"metadata": {"resourceVersion": disk.resource_version()}, "spec": {"zones": zones}});
        match betas.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => *written.entry(name).or_default() += 1,
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    written
}

async fn versions(story: &Story) -> BTreeMap<String, Option<String>> {
    let disks = story.betas().list_metadata(&ListParams::default()).await.unwrap();
    disks.iter().map(|disk| (disk.name_any(), disk.resource_version())).collect()
}

fn stored_versions(story: &Story) -> String {
    story.plane.get(&["get", "crd", DISKS, "-o", "jsonpath={.status.storedVersions}"])
}

fn writer(story: &Story) -> Writer {
    Writer::new(story.client.clone(), "disks", "migrate", Leadership::alone(), false)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_objects_move_beside_a_writer_although_the_migration_is_killed_half_way() {
    let story = Arc::new(Story::begin("migration", "v1alpha1").await);
    let replicas = story.start_both(&definition_alone()).await;
    create_old(&story, OBJECTS).await;
    let wrong = migrate::<v1beta1::Disk>(&writer(&story)).await;
    assert!(matches!(wrong, Err(MigrateError::OtherVersion(..))), "{wrong:?}");
    story.plane.apply(&story.definition("v1beta1"));
    let before = versions(&story).await;

    let ends = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let (story, ends) = (Arc::clone(&story), Arc::clone(&ends));
        async move { write_on(&story, &ends).await }
    });
    let first = tokio::spawn({
        let writer = writer(&story);
        async move { migrate::<v1beta1::Disk>(&writer).await }
    });
    let is_under_way = async {
        loop {
            let after = versions(&story).await;
            let moved = after.iter().filter(|(name, version)| before[*name] != **version).count();
            if moved > OBJECTS / 4 || first.is_finished() {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, is_under_way).await.expect("the migration begins");
    first.abort();
    // It may have ended just then.
    let _ = first.await;

    let migrated = migrate::<v1beta1::Disk>(&writer(&story)).await.unwrap();
    assert_eq!((migrated.written, migrated.gone), (OBJECTS, 0));
    ends.store(true, Ordering::Relaxed);
    let written = writing.await.unwrap();
    assert_eq!(stored_versions(&story), r#"["v1beta1"]"#);
    for disk in story.betas().list(&ListParams::default()).await.unwrap() {
        let zones = written.get(&disk.name_any()).copied().unwrap_or_default();
        assert_eq!(disk.spec.zones.len(), 1 + zones, "an update of {} is lost", disk.name_any());
    }
    let note = story.alphas().get(&name(0)).await.unwrap().spec.note;
    assert_eq!(note.as_deref(), Some("kept"));

    // A version that is not served has no field managers any more, and can be dropped.
    assert!(check::<v1beta1::Disk>(&story.client).await.unwrap().is_done());
    let mut definition: Value = serde_json::from_str(&story.definition("v1beta1")).unwrap();
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    let old = versions.iter_mut().find(|version| version["name"] == "v1alpha1").unwrap();
    old["served"] = json!(false);
    story.plane.apply(&definition.to_string());
    let left = check::<v1beta1::Disk>(&story.client).await.unwrap();
    assert_eq!((left.is_done(), left.unserved), (false, OBJECTS));
    migrate::<v1beta1::Disk>(&writer(&story)).await.unwrap();
    assert!(check::<v1beta1::Disk>(&story.client).await.unwrap().is_done());

    definition["spec"]["versions"].as_array_mut().unwrap().retain(|version| version["name"] == "v1beta1");
    definition["spec"]["conversion"] = json!({"strategy": "None"});
    let replaced = story.plane.kubectl_reading(&["replace", "-f", "-"], &definition.to_string());
    assert!(replaced.status.success(), "{}", String::from_utf8_lossy(&replaced.stderr));
    replicas.into_iter().for_each(Replica::kill);
    story.until(story.definitions(), DISKS, |definition| definition.spec.versions.len() == 1).await;
    assert_eq!(story.betas().list(&ListParams::default()).await.unwrap().items.len(), OBJECTS);
    let apply = ["-n", story.namespace, "apply", "--server-side", "-f", "-"];
    let disk = json!({"apiVersion": "example.com/v1beta1", "kind": "Disk", "metadata": {"name": name(0)}, "spec": {"fast": true}});
    let applied = story.plane.kubectl_reading(&apply, &disk.to_string());
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
}

/// Waits until the API server refuses to write a disk, or takes it: it learns of configurations late.
async fn until_refused(story: &Story, name: &str, is_refused: bool) {
    let attempt = || async {
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": {"labels": {"attempt": "1"}}}));
        story.betas().patch(name, &params, &patch).await.is_err()
    };
    let reached = async {
        while attempt().await != is_refused {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, reached).await.expect("the configuration takes effect");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_written_is_named_and_holds_up_no_other() {
    let story = Story::begin("refused", "v1alpha1").await;
    let _replicas = story.start_both(&definition_alone()).await;
    create_old(&story, 5).await;
    story.plane.apply(&story.definition("v1beta1"));
    let refused = name(2);
    // Nothing answers there.
    let client = json!({"url": "https://127.0.0.1:1/"});
    let rule = json!({"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["disks"]});
    let condition = json!({"name": "one", "expression": format!("object.metadata.name == '{refused}'")});
    let webhook = json!({
        "name": "disks.example.com", "clientConfig": client, "rules": [rule], "matchConditions": [condition],
        "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "disks"}, "webhooks": [webhook],
    });
    story.plane.apply(&configuration.to_string());
    until_refused(&story, &refused, true).await;

    let error = migrate::<v1beta1::Disk>(&writer(&story)).await.unwrap_err();
    let text = error.to_string();
    let MigrateError::Incomplete { migrated, failures } = error else { panic!("{text}") };
    assert_eq!((migrated.written, migrated.gone, failures.len()), (4, 0, 1), "{text}");
    assert!(text.starts_with("1 objects are not migrated, and 4 are:\n  refused/disk-002: "), "{text}");
    assert_eq!(stored_versions(&story), r#"["v1alpha1","v1beta1"]"#);

    story.plane.get(&["delete", "validatingwebhookconfiguration", "disks"]);
    until_refused(&story, &refused, false).await;
    assert_eq!(migrate::<v1beta1::Disk>(&writer(&story)).await.unwrap().written, 5);
    assert_eq!(stored_versions(&story), r#"["v1beta1"]"#);
}
