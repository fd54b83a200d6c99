//! What happens to an external resource and to its object.

use super::service::Fault;
use super::{MS, Storage, quick};
use crate::storage::{Bucket, Folder};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kubebid_controller::conditions::is_true;
use kubebid_controller::external::transition::State;
use kubebid_controller::external::{ExternalStatus, Managed as _, Timing};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

fn message(bucket: &Bucket) -> &str {
    &bucket.external().unwrap().message
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_may_be_done_at_once_or_later_in_all_pairings() {
    let storage = Storage::begin("pairings").await;
    let names: Vec<String> = (0..8).map(|number| format!("b{number}")).collect();
    let is_slow = |number: usize, bit: usize| number & (1 << bit) > 0;
    for (number, name) in names.iter().enumerate() {
        for (bit, call) in ["create", "update", "delete"].into_iter().enumerate() {
            if is_slow(number, bit) {
                storage.service.works(call, &storage.bucket_id(name), 400 * MS);
            }
        }
        storage.bucket(name).await;
    }
    for name in &names {
        storage.until::<Bucket>(name, State::Succeeded).await;
        storage.patch_bucket(name, json!({"spec": {"size": 2}})).await;
    }
    for name in &names {
        storage.until::<Bucket>(name, State::Succeeded).await;
        assert_eq!(storage.service.spec(&storage.bucket_id(name)).unwrap()["size"], 2);
        storage.delete_whole::<Bucket>(name).await;
    }
    for (number, name) in names.iter().enumerate() {
        let status = |bit| if is_slow(number, bit) { 202 } else { 200 };
        let expected = [
            format!("create {}", status(0)),
            format!("update {}", status(1)),
            format!("delete {}", status(2)),
        ];
        assert_eq!(storage.service.changes(&storage.bucket_id(name)), expected, "{name}");
    }
    assert_eq!(storage.service.count("buckets/"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_call_leaves_comes_back_to_the_next() {
    let storage = Storage::begin("payload").await;
    let id = storage.bucket_id("a");
    storage.service.works("create", &id, 300 * MS);
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    let log = storage.service.log(&id);
    let last = log.iter().rfind(|call| call.name == "observe").unwrap();
    assert_eq!(last.operation.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_create_is_said_and_tried_again() {
    let storage = Storage::begin("create-refused").await;
    let id = storage.bucket_id("a");
    storage.service.faults("create", &id, [Fault::Status(400); 3]);
    storage.bucket("a").await;
    let bucket = storage.until_reason::<Bucket>("a", "Refused").await;
    assert_eq!(message(&bucket), "a fault on demand");
    storage.until::<Bucket>("a", State::Succeeded).await;
    assert_eq!(storage.service.changes(&id), ["create 400", "create 400", "create 400", "create 200"]);
    // A refusal is an answer: the next attempt is another call.
    let keys: std::collections::BTreeSet<_> = storage
        .service
        .log(&id)
        .into_iter()
        .filter(|call| call.name == "create")
        .map(|call| call.key)
        .collect();
    assert_eq!(keys.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_retries_only_a_new_generation_tries_again() {
    let storage = Storage::begin_with("no-retries", Timing { retries: false, ..quick() }).await;
    let id = storage.bucket_id("a");
    storage.service.faults("create", &id, [Fault::Status(400)]);
    storage.bucket("a").await;
    storage.until_reason::<Bucket>("a", "Refused").await;
    storage.bucket("b").await;
    storage.until::<Bucket>("b", State::Succeeded).await;
    assert_eq!(storage.service.changes(&id), ["create 400"]);
    storage.patch_bucket("a", json!({"spec": {"size": 2}})).await;
    storage.until::<Bucket>("a", State::Succeeded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_ends_in_an_error_can_be_deleted() {
    let storage = Storage::begin("create-ends-badly").await;
    let id = storage.bucket_id("a");
    storage.service.works_to("create", &id, 200 * MS, "broken");
    storage.bucket("a").await;
    let bucket = storage.until_reason::<Bucket>("a", "CreationFailed").await;
    assert_eq!((bucket.external().unwrap().state, message(&bucket)), (State::Failed, "it went wrong"));
    storage.delete_whole::<Bucket>("a").await;
    assert_eq!(storage.service.spec(&id), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_is_found_out_and_the_same_call_repeated() {
    let storage = Storage::begin("lost-answers").await;
    let (before, after) = (storage.bucket_id("before"), storage.bucket_id("after"));
    storage.service.faults("create", &before, [Fault::ResetBefore]);
    storage.service.faults("create", &after, [Fault::ResetAfter]);
    for name in ["before", "after"] {
        storage.bucket(name).await;
        storage.until::<Bucket>(name, State::Succeeded).await;
    }
    assert_eq!(storage.service.changes(&before), ["create 0", "create 200"]);
    let log = storage.service.log(&before);
    let keys: Vec<_> = log.iter().filter(|call| call.name == "create").map(|call| &call.key).collect();
    assert_eq!(keys[0], keys[1], "the service takes it for another call");
    assert_eq!(storage.service.changes(&after), ["create 0"]);
    // The spec that was used is known, although the answer was not.
    let bucket = storage.story.api::<Bucket>().get("after").await.unwrap();
    assert!(bucket.annotations().contains_key("storage.example.com/last-applied-spec"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_is_repeated_and_refused_as_existing_has_made_the_resource() {
    let storage = Storage::begin("made-by-the-first").await;
    let id = storage.bucket_id("a");
    storage.service.faults("create", &id, [Fault::ResetAfter, Fault::Status(409)]);
    storage.service.faults("observe", &id, [Fault::Status(404); 1000]);
    storage.bucket("a").await;
    // It is refused twice, since the resource is not seen.
    storage.service.faults("create", &id, [Fault::Status(409)]);
    crate::story::eventually("the create is repeated", || storage.service.changes(&id).len() == 3).await;
    storage.service.heal("observe", &id);
    storage.until::<Bucket>("a", State::Succeeded).await;
    let changes = storage.service.changes(&id);
    assert!(changes[0] == "create 0" && changes[1..].iter().all(|it| it == "create 409"), "{changes:?}");
    storage.delete_whole::<Bucket>("a").await;
    assert_eq!(storage.service.spec(&id), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_stays_until_a_create_without_an_answer_cannot_arrive_any_more() {
    let timing = Timing { call: Duration::from_secs(3), creation_grace: Duration::from_secs(2), ..quick() };
    let storage = Storage::begin_with("late-create", timing).await;
    let (seen, unseen) = (storage.bucket_id("seen"), storage.bucket_id("unseen"));
    // A service that cannot be asked is told to delete what may not be there yet.
    storage.service.faults("observe", &unseen, [Fault::Status(404)]);
    storage.service.faults("observe", &unseen, [Fault::Status(500); 1000]);
    for (name, id) in [("seen", &seen), ("unseen", &unseen)] {
        storage.service.faults("create", id, [Fault::Slow(3500 * MS)]);
        storage.bucket(name).await;
        storage.until::<Bucket>(name, State::Creating).await;
    }
    let uids = [storage.delete::<Bucket>("seen").await, storage.delete::<Bucket>("unseen").await];
    storage.until_gone::<Bucket>("seen", &uids[0]).await;
    storage.until_gone::<Bucket>("unseen", &uids[1]).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(storage.service.changes(&seen), ["create 200", "delete 200"]);
    assert_eq!(storage.service.spec(&unseen), None, "{:?}", storage.service.changes(&unseen));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_away_changes_no_state_for_a_while() {
    let storage = Storage::begin("away").await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    storage.service.faults("observe", &id, [Fault::Status(503); 1000]);
    let not_synced = |status: &ExternalStatus| {
        !is_true(&status.conditions, "Synced") && status.unreachable_since.is_some()
    };
    let bucket = storage.until_status::<Bucket>("a", not_synced).await;
    let status = bucket.external().unwrap();
    assert!(status.state == State::Succeeded && is_true(&status.conditions, "Ready"), "{status:?}");
    storage.until_reason::<Bucket>("a", "Unreachable").await;
    storage.service.heal("observe", &id);
    let bucket = storage.until::<Bucket>("a", State::Succeeded).await;
    assert!(is_true(&bucket.external().unwrap().conditions, "Synced"));
    assert_eq!(storage.service.changes(&id), ["create 200"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_to_wait_that_the_service_names_is_respected() {
    let storage = Storage::begin("retry-after").await;
    let id = storage.bucket_id("a");
    storage.service.faults("create", &id, [Fault::TooMany(2), Fault::Slow(100 * MS)]);
    let began = Instant::now();
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!(storage.service.changes(&id), ["create 429", "create 200"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_fails_recovers() {
    let storage = Storage::begin("update-fails").await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    let faults = [Fault::Status(500), Fault::Status(400), Fault::ResetAfter];
    storage.service.faults("update", &id, faults);
    storage.patch_bucket("a", json!({"spec": {"size": 2}})).await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    assert_eq!(storage.service.changes(&id), ["create 200", "update 500", "update 400", "update 0"]);
    assert_eq!(storage.service.spec(&id).unwrap()["size"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_that_was_refused_or_taken_back_does_not_count_as_applied() {
    let storage = Storage::begin("not-applied").await;
    let id = storage.folder_id("f");
    storage.bucket("home").await;
    storage.folder("f", "home", json!({})).await;
    storage.until::<Folder>("f", State::Succeeded).await;
    let quota = async |quota: u32| {
        storage.story.patch::<Folder>("f", json!({"spec": {"quota": quota}})).await;
    };
    storage.service.faults("update", &id, [Fault::Status(400), Fault::Status(400)]);
    quota(2).await;
    storage.until::<Folder>("f", State::Succeeded).await;
    assert_eq!(storage.service.spec(&id).unwrap()["quota"], 2);
    // An update has its effect, its answer is lost, and the spec is taken back.
    storage.service.faults("update", &id, [Fault::ResetAfter]);
    quota(3).await;
    crate::story::eventually("the update", || storage.service.spec(&id).is_some_and(|it| it["quota"] == 3))
        .await;
    quota(2).await;
    let is_back = || storage.service.spec(&id).is_some_and(|it| it["quota"] == 2);
    crate::story::eventually("the spec that was taken back", is_back).await;
    storage.until::<Folder>("f", State::Succeeded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_is_created_anew_only_when_the_old_one_is_gone() {
    let storage = Storage::begin("recreate").await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    // The service says `ready` until the resource is gone.
    storage.service.works_to("delete", &id, 800 * MS, "pretend");
    storage.patch_bucket("a", json!({"spec": {"region": "us"}})).await;
    storage.until_status::<Bucket>("a", |status| status.state == State::Recreating).await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    assert_eq!(storage.service.changes(&id), ["create 200", "delete 202", "create 200"]);
    assert_eq!(storage.service.spec(&id).unwrap()["region"], "us");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_cannot_be_seen_is_asked_for_again_from_time_to_time() {
    let storage = Storage::begin_with("recreate-slowly", Timing { patience: 500 * MS, ..quick() }).await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    storage.service.works_to("delete", &id, 1800 * MS, "pretend");
    storage.patch_bucket("a", json!({"spec": {"region": "us"}})).await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    let changes = storage.service.changes(&id);
    let deletions = changes.iter().filter(|change| change.starts_with("delete")).count();
    // Each after another half second, although the resource is looked at ten times a second.
    assert!((2..=4).contains(&deletions), "{changes:?}");
    assert_eq!(changes.iter().filter(|change| change.starts_with("create")).count(), 2, "{changes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_is_wanted_again_as_it_is_is_not_deleted() {
    let storage = Storage::begin("recreate-reverted").await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    storage.service.faults("delete", &id, [Fault::ResetBefore; 1000]);
    storage.patch_bucket("a", json!({"spec": {"region": "us"}})).await;
    storage.until_status::<Bucket>("a", |status| status.state == State::Recreating).await;
    storage.patch_bucket("a", json!({"spec": {"region": "eu"}})).await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    storage.service.heal("delete", &id);
    storage.bucket("b").await;
    storage.until::<Bucket>("b", State::Succeeded).await;
    let changes = storage.service.changes(&id);
    assert!(changes[1..].iter().all(|change| change == "delete 0"), "{changes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_deleted_for_a_recreate_that_is_not_permitted() {
    let storage = Storage::begin("recreate-forbidden").await;
    for (name, permissions) in [("no-c", "ud"), ("no-d", "cu")] {
        storage.bucket(name).await;
        storage.until::<Bucket>(name, State::Succeeded).await;
        storage.annotate(name, "access-permissions", Some(permissions)).await;
        storage.patch_bucket(name, json!({"spec": {"region": "us"}})).await;
        let bucket = storage.until_reason::<Bucket>(name, "PermissionMissing").await;
        assert!(message(&bucket).contains("needs delete and create"), "{}", message(&bucket));
        assert_eq!(storage.service.changes(&storage.bucket_id(name)), ["create 200"]);
    }
    storage.annotate("no-c", "access-permissions", None).await;
    storage.until::<Bucket>("no-c", State::Succeeded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_are_strict() {
    let storage = Storage::begin("permissions").await;
    let cases = [("c", true, false), ("cu", true, true), ("cd", true, false), ("none", false, false)];
    let invalid = [("readonly", false, false), ("cx", false, false)];
    for (permissions, creates, updates) in cases.into_iter().chain(invalid) {
        let (name, id) = (permissions, storage.bucket_id(permissions));
        let annotations = json!({"storage.example.com/access-permissions": permissions});
        storage.bucket_with(name, annotations, json!({})).await;
        if creates {
            storage.until::<Bucket>(name, State::Succeeded).await;
        } else {
            let bucket = storage.until_reason::<Bucket>(name, "PermissionMissing").await;
            let says_letters = message(&bucket).contains("c (create), u (update) and d (delete)");
            assert_eq!(says_letters, permissions != "none", "{}", message(&bucket));
        }
        storage.patch_bucket(name, json!({"spec": {"size": 2}})).await;
        if updates {
            storage.until::<Bucket>(name, State::Succeeded).await;
        } else {
            storage.until_reason::<Bucket>(name, "PermissionMissing").await;
        }
        storage.delete_whole::<Bucket>(name).await;
        let deletes = permissions.contains('d') && permissions != "readonly";
        let calls = [("create 200", creates), ("update 200", updates), ("delete 200", deletes)];
        let expected: Vec<_> = calls.iter().filter(|(_, is)| *is).map(|(call, _)| *call).collect();
        assert_eq!(storage.service.changes(&id), expected, "{permissions}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_stays_until_its_resource_is_really_gone() {
    let storage = Storage::begin("deletion").await;
    for name in ["fails", "pretends", "lost"] {
        storage.bucket(name).await;
        storage.until::<Bucket>(name, State::Succeeded).await;
    }
    let (fails, pretends, lost) =
        (storage.bucket_id("fails"), storage.bucket_id("pretends"), storage.bucket_id("lost"));
    storage.service.faults("delete", &fails, [Fault::Status(500), Fault::Status(400), Fault::ResetBefore]);
    storage.service.works_to("delete", &pretends, 500 * MS, "pretend");
    // It is gone already, and one observation does not say so.
    storage.service.remove(&lost);
    storage.service.faults("observe", &lost, [Fault::Lie("ready"); 2]);
    for (name, id) in [("fails", &fails), ("pretends", &pretends), ("lost", &lost)] {
        storage.delete_whole::<Bucket>(name).await;
        assert_eq!(storage.service.spec(id), None, "{name}");
    }
    assert_eq!(storage.service.changes(&fails)[1..], ["delete 500", "delete 400", "delete 0", "delete 200"]);
    assert!(
        storage.service.changes(&lost).contains(&"delete 404".to_owned()),
        "{:?}",
        storage.service.changes(&lost)
    );
    // It was asked again while it was there: each is a call of its own, because the one before was answered.
    let deletions = storage.service.log(&pretends).into_iter().filter(|it| it.name == "delete");
    let keys: Vec<_> = deletions.map(|it| it.key).collect();
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_that_changes_during_the_creation_is_applied_after_it() {
    let storage = Storage::begin("spec-changes").await;
    storage.bucket("home").await;
    storage.until::<Bucket>("home", State::Succeeded).await;
    for (bucket, folder) in [("a", "f"), ("b", "g")] {
        storage.service.works("create", &storage.bucket_id(bucket), 500 * MS);
        storage.service.works("create", &storage.folder_id(folder), 500 * MS);
        storage.bucket(bucket).await;
        storage.folder(folder, "home", json!({})).await;
        storage.until_status::<Bucket>(bucket, |status| status.state == State::Verifying).await;
        storage.until_status::<Folder>(folder, |status| status.state == State::Verifying).await;
        storage.patch_bucket(bucket, json!({"spec": {"size": 7}})).await;
        storage.story.patch::<Folder>(folder, json!({"spec": {"quota": 7}})).await;
    }
    for (bucket, folder) in [("a", "f"), ("b", "g")] {
        storage.until::<Bucket>(bucket, State::Succeeded).await;
        storage.until::<Folder>(folder, State::Succeeded).await;
        assert_eq!(storage.service.spec(&storage.bucket_id(bucket)).unwrap()["size"], 7);
        assert_eq!(storage.service.spec(&storage.folder_id(folder)).unwrap()["quota"], 7);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_repaired_and_what_was_deleted_outside_is_made_again() {
    let storage = Storage::begin("drift").await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    storage.service.put(&id, json!({"size": 9, "region": "eu"}));
    crate::story::eventually("the drift is repaired", || {
        storage.service.spec(&id).is_some_and(|spec| spec["size"] == 1)
    })
    .await;
    storage.service.remove(&id);
    crate::story::eventually("it is made again", || storage.service.spec(&id).is_some()).await;
    storage
        .until_status::<Bucket>("a", |status| status.state == State::Succeeded && status.attempt == 3)
        .await;
    storage.until_event("a", "ExternalDeleted").await;
    // Somebody deletes it, and it takes a while.
    storage.service.busy(&id, "deleting", 1500 * MS, None);
    storage.until_reason::<Bucket>("a", "DeletedOutside").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    assert_eq!(storage.service.changes(&id), ["create 200", "update 200", "create 200", "create 200"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_resync_drift_is_repaired_on_request_only() {
    let storage = Storage::begin_with("no-resync", Timing { resync: None, ..quick() }).await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    // The passes after the last write.
    let mut calls = 0;
    while storage.service.log(&id).len() != calls {
        calls = storage.service.log(&id).len();
        sleep(Duration::from_secs(1)).await;
    }
    storage.service.put(&id, json!({"size": 9, "region": "eu"}));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(storage.service.log(&id).len(), calls, "it is looked at");
    storage.annotate("a", "reconcile-at", Some("1")).await;
    crate::story::eventually("the drift is repaired", || {
        storage.service.spec(&id).is_some_and(|spec| spec["size"] == 1)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_become_slower_when_somebody_else_keeps_changing_it() {
    let timing = Timing { patience: Duration::from_secs(10), ..quick() };
    let storage = Storage::begin_with("contested", timing).await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    let is_repaired = || storage.service.spec(&id).is_some_and(|spec| spec["size"] == 1);
    for _ in 0..3 {
        storage.service.put(&id, json!({"size": 9, "region": "eu"}));
        crate::story::eventually("the drift is repaired", is_repaired).await;
    }
    storage.service.put(&id, json!({"size": 9, "region": "eu"}));
    let bucket = storage.until_reason::<Bucket>("a", "Contested").await;
    assert!(message(&bucket).contains("was put right 3 times"), "{}", message(&bucket));
    crate::story::eventually("a later repair", is_repaired).await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    // A change that we want is made at once.
    storage.service.put(&id, json!({"size": 9, "region": "eu"}));
    storage.until_reason::<Bucket>("a", "Contested").await;
    storage.patch_bucket("a", json!({"spec": {"size": 2}})).await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    assert_eq!(storage.service.spec(&id).unwrap()["size"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_is_never_answered_fails_after_a_while_and_is_repeated() {
    let storage = Storage::begin("never-answered").await;
    let id = storage.bucket_id("a");
    storage.service.faults("create", &id, [Fault::Status(500); 1000]);
    storage.bucket("a").await;
    storage.until_reason::<Bucket>("a", "Unreachable").await;
    storage.service.heal("create", &id);
    let bucket = storage.until::<Bucket>("a", State::Succeeded).await;
    assert_eq!(bucket.external().unwrap().unreachable_since, None);
    let log = storage.service.log(&id);
    let keys: std::collections::BTreeSet<_> =
        log.iter().filter(|call| call.name == "create").map(|call| &call.key).collect();
    assert_eq!(keys.len(), 1, "repetitions of one call");
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_that_are_not_valid_are_said_before_a_call_needs_them() {
    let storage = Storage::begin("permissions-said").await;
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    let permissions = |value: serde_json::Value| json!({"metadata": {"annotations": {"storage.example.com/access-permissions": value}}});
    let said = |status: &ExternalStatus| status.conditions.iter().any(|it| it.type_ == "PermissionsValid");
    storage.patch_bucket("a", permissions(json!("readonly"))).await;
    storage.until_status::<Bucket>("a", |status| status.state == State::Succeeded && said(status)).await;
    storage.patch_bucket("a", permissions(json!(null))).await;
    storage.until_status::<Bucket>("a", |status| status.state == State::Succeeded && !said(status)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_answer_that_is_not_true_loses_nothing() {
    let storage = Storage::begin("lie").await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    storage.service.faults("observe", &id, [Fault::Status(404)]);
    crate::story::eventually("a create that is refused", || {
        storage.service.changes(&id).contains(&"create 409".to_owned())
    })
    .await;
    storage
        .until_status::<Bucket>("a", |status| status.state == State::Succeeded && status.attempt == 2)
        .await;
    storage.delete_whole::<Bucket>("a").await;
    assert_eq!(storage.service.spec(&id), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_waits_for_its_bucket_and_goes_with_it() {
    let storage = Storage::begin("owner").await;
    let (bucket, folder) = (storage.bucket_id("a"), storage.folder_id("f"));
    storage.folder("f", "a", json!({})).await;
    let waiting = storage.until_reason::<Folder>("f", "DependencyMissing").await;
    assert_eq!(waiting.external().unwrap().message, "Bucket owner/a does not exist");
    // A bucket that takes three seconds.
    storage.service.works("create", &bucket, Duration::from_secs(3));
    storage.bucket("a").await;
    storage.until_reason::<Folder>("f", "DependencyNotReady").await;
    storage.until::<Folder>("f", State::Succeeded).await;
    assert_eq!(storage.service.changes(&folder), ["create 200", "complete 200"]);
    let owners = storage.story.api::<Folder>().get("f").await.unwrap().owner_references().to_vec();
    assert_eq!(
        (owners[0].api_version.as_str(), owners[0].kind.as_str()),
        ("storage.example.com/v1", "Bucket")
    );
    // The bucket fails: the folder waits, and can be deleted.
    storage.service.busy(&bucket, "broken", Duration::from_secs(3600), None);
    storage.until_reason::<Bucket>("a", "CreationFailed").await;
    storage.until_reason::<Folder>("f", "DependencyNotReady").await;
    storage.delete_whole::<Folder>("f").await;
    assert_eq!(storage.service.spec(&folder), None);
    // The bucket is well again, and is deleted with a folder in it.
    storage.service.put(&bucket, json!({"size": 1, "region": "eu"}));
    storage.folder("g", "a", json!({})).await;
    let folder = storage.until::<Folder>("g", State::Succeeded).await;
    storage.delete_whole::<Bucket>("a").await;
    storage.until_gone::<Folder>("g", &folder.uid().unwrap()).await;
    assert_eq!(storage.service.count("folders/"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_dependencies_are_waited_for_and_a_cycle_is_named() {
    let storage = Storage::begin("dependencies").await;
    storage.bucket("a").await;
    storage.folder("last", "a", json!({"after": ["first", "second"]})).await;
    storage.folder("first", "a", json!({})).await;
    storage.until::<Folder>("first", State::Succeeded).await;
    storage.until_reason::<Folder>("last", "DependencyMissing").await;
    storage.folder("second", "a", json!({})).await;
    storage.until::<Folder>("last", State::Succeeded).await;
    storage.folder("head", "a", json!({"after": ["tail"]})).await;
    storage.folder("tail", "a", json!({"after": ["head"]})).await;
    let head = storage.until_reason::<Folder>("head", "DependencyCycle").await;
    let expected =
        "Folder dependencies/head → Folder dependencies/tail → Folder dependencies/head depend on each other";
    assert_eq!(head.external().unwrap().message, expected);
    storage.story.patch::<Folder>("tail", json!({"spec": {"after": []}})).await;
    storage.until::<Folder>("head", State::Succeeded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_goes_after_those_that_depend_on_it() {
    let storage = Storage::begin("dependents").await;
    storage.bucket("a").await;
    storage.folder("first", "a", json!({})).await;
    storage.folder("last", "a", json!({"after": ["first"]})).await;
    storage.until::<Folder>("last", State::Succeeded).await;
    let first = storage.delete::<Folder>("first").await;
    let waiting = storage.until_reason::<Folder>("first", "WaitingForOthers").await;
    let message = &waiting.external().unwrap().message;
    assert!(message.contains("Folder dependents/last depends on it"), "{message}");
    assert!(storage.service.spec(&storage.folder_id("first")).is_some());
    storage.delete_whole::<Folder>("last").await;
    storage.until_gone::<Folder>("first", &first).await;
    assert_eq!(storage.service.count("folders/"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_a_dependency_that_has_only_to_be_there() {
    let storage = Storage::begin("secret").await;
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    storage.folder("f", "a", json!({"key": "k"})).await;
    let waiting = storage.until_reason::<Folder>("f", "DependencyMissing").await;
    assert_eq!(waiting.external().unwrap().message, "Secret secret/k does not exist");
    let secret = json!({"metadata": {"name": "k", "namespace": "secret"}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    storage.story.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    storage.until::<Folder>("f", State::Succeeded).await;
    storage.story.api::<Secret>().delete("k", &DeleteParams::default()).await.unwrap();
    storage.until_reason::<Folder>("f", "DependencyMissing").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_for_which_the_annotations_have_no_room_succeeds_and_is_said_to_be_large() {
    let storage = Storage::begin("large").await;
    let spec = json!({"size": 1, "region": "x".repeat(300 << 10)});
    storage.bucket_with("a", json!({}), spec).await;
    let bucket = storage.until::<Bucket>("a", State::Succeeded).await;
    assert!(!bucket.annotations().contains_key("storage.example.com/last-applied-spec"));
    storage.until_event("a", "LastAppliedNotKept").await;
    // A change is still noticed.
    storage.patch_bucket("a", json!({"spec": {"size": 2}})).await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    assert_eq!(storage.service.spec(&storage.bucket_id("a")).unwrap()["size"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unmanaged_bucket_that_is_missing_is_a_failure() {
    let storage = Storage::begin("unmanaged").await;
    storage.folder("f", "nowhere", json!({"unmanaged": true})).await;
    let folder = storage.until_status::<Folder>("f", |status| status.state == State::Failed).await;
    assert_eq!(folder.external().unwrap().message, "the bucket does not exist");
    storage.service.put(&storage.bucket_id("nowhere"), json!({}));
    storage.until::<Folder>("f", State::Succeeded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_exists_is_touched_only_when_it_is_adopted() {
    let storage = Storage::begin("adopt").await;
    let id = storage.bucket_id("a");
    storage.service.put(&id, json!({"size": 5, "region": "eu"}));
    storage.bucket("a").await;
    let bucket = storage.until_reason::<Bucket>("a", "AlreadyExists").await;
    assert!(
        message(&bucket).contains("storage.example.com/adopt: \"true\" adopts it"),
        "{}",
        message(&bucket)
    );
    // Deleted like this, the resource stays.
    storage.delete_whole::<Bucket>("a").await;
    assert_eq!(storage.service.spec(&id).unwrap()["size"], 5);
    storage.bucket("a").await;
    storage.until_reason::<Bucket>("a", "AlreadyExists").await;
    storage.annotate("a", "adopt", Some("true")).await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    assert_eq!(storage.service.changes(&id), ["update 200"]);
    storage.delete_whole::<Bucket>("a").await;
    assert_eq!(storage.service.spec(&id), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_objects_with_one_identity_the_older_works() {
    let storage = Storage::begin("duplicate").await;
    storage.bucket_with("older", json!({}), json!({"name": "same"})).await;
    storage.until::<Bucket>("older", State::Succeeded).await;
    // Creation times are whole seconds.
    sleep(Duration::from_millis(1100)).await;
    storage.bucket_with("younger", json!({}), json!({"name": "same", "size": 3})).await;
    let younger = storage.until_reason::<Bucket>("younger", "Duplicate").await;
    assert_eq!(message(&younger), "duplicate/older is older and stands for same");
    storage.delete_whole::<Bucket>("younger").await;
    assert_eq!(storage.service.changes("buckets/same"), ["create 200"]);
    storage.bucket_with("heir", json!({}), json!({"name": "same", "size": 3})).await;
    storage.until_reason::<Bucket>("heir", "Duplicate").await;
    storage.delete_whole::<Bucket>("older").await;
    storage.until::<Bucket>("heir", State::Succeeded).await;
    assert_eq!(storage.service.changes("buckets/same"), ["create 200", "delete 200", "create 200"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_cannot_be_deleted_can_be_abandoned() {
    let storage = Storage::begin("abandon").await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    storage.service.faults("delete", &id, [Fault::Status(500); 1000]);
    let uid = storage.delete::<Bucket>("a").await;
    storage.until_status::<Bucket>("a", |status| status.state == State::Terminating).await;
    storage.annotate("a", "abandon", Some("true")).await;
    storage.until_gone::<Bucket>("a", &uid).await;
    assert!(storage.service.spec(&id).is_some());
    storage.until_event("a", "Abandoned").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_object_makes_no_call_in_life_and_in_deletion() {
    let storage = Storage::begin("paused").await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    let is_paused = |bucket: &Bucket| is_true(&bucket.external().unwrap().conditions, "Paused");
    storage.annotate("a", "paused", Some("true")).await;
    storage.story.until("a", is_paused).await;
    let calls = storage.service.log(&id).len();
    storage.patch_bucket("a", json!({"spec": {"size": 2}})).await;
    storage.bucket("b").await;
    storage.until::<Bucket>("b", State::Succeeded).await;
    assert_eq!(storage.service.log(&id).len(), calls);
    storage.annotate("a", "paused", None).await;
    let bucket = storage.until::<Bucket>("a", State::Succeeded).await;
    assert!(!is_paused(&bucket));
    storage.annotate("a", "paused", Some("true")).await;
    let uid = storage.delete::<Bucket>("a").await;
    storage.bucket("c").await;
    storage.until::<Bucket>("c", State::Succeeded).await;
    assert_eq!(storage.service.changes(&id), ["create 200", "update 200"]);
    storage.annotate("a", "paused", None).await;
    storage.until_gone::<Bucket>("a", &uid).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_is_tried_again_and_runs_once_per_write() {
    let storage = Storage::begin("hook").await;
    storage.bucket("a").await;
    let id = storage.folder_id("f");
    storage.service.faults("complete", &id, [Fault::Status(500), Fault::Status(400)]);
    storage.folder("f", "a", json!({})).await;
    storage.until::<Folder>("f", State::Succeeded).await;
    assert_eq!(storage.service.changes(&id), ["create 200", "complete 500", "complete 400", "complete 200"]);
    storage.story.patch::<Folder>("f", json!({"spec": {"quota": 2}})).await;
    storage.until::<Folder>("f", State::Succeeded).await;
    assert_eq!(storage.service.changes(&id)[4..], ["update 200", "complete 200"]);
    assert_eq!(storage.service.announcements(&id), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn finalizers_of_others_are_waited_for() {
    let storage = Storage::begin("finalizers").await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    let bucket = storage.until::<Bucket>("a", State::Succeeded).await;
    let finalizers: Vec<_> =
        ["others.example.com/theirs".to_owned()].into_iter().chain(bucket.finalizers().to_vec()).collect();
    storage.patch_bucket("a", json!({"metadata": {"finalizers": finalizers}})).await;
    storage.story.api::<Bucket>().delete("a", &DeleteParams::default()).await.unwrap();
    storage.until_reason::<Bucket>("a", "WaitingForOthers").await;
    assert_eq!(storage.service.changes(&id), ["create 200"]);
    let ours: Vec<_> = bucket.finalizers().to_vec();
    let uid = bucket.uid().unwrap();
    storage.patch_bucket("a", json!({"metadata": {"finalizers": ours}})).await;
    storage.until_gone::<Bucket>("a", &uid).await;
    assert_eq!(storage.service.spec(&id), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_costs_five_writes_and_two_events_at_most() {
    let storage = Storage::begin("costs").await;
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    storage.service.works("create", &storage.folder_id("f"), 300 * MS);
    storage.folder("f", "a", json!({})).await;
    storage.until::<Folder>("f", State::Succeeded).await;
    storage.until_event("f", "Succeeded").await;
    assert_eq!(storage.events("f").await, ["Created", "Succeeded"]);
    let requests = storage.story.requests();
    let is_write = |request: &&serde_json::Value| {
        request["verb"] == "patch" && request["objectRef"]["resource"] == "folders"
    };
    let writes: Vec<_> =
        requests.iter().filter(is_write).map(|request| request["requestURI"].to_string()).collect();
    assert!(writes.len() <= 5, "{writes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_whose_identity_has_changed_touches_neither_resource() {
    let storage = Storage::begin("identity").await;
    let (own, other) = (storage.bucket_id("a"), "buckets/theirs");
    storage.service.put(other, json!({"size": 5, "region": "us"}));
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    storage.patch_bucket("a", json!({"spec": {"name": "theirs"}})).await;
    let bucket = storage.until_reason::<Bucket>("a", "IdentityChanged").await;
    assert_eq!(bucket.external().unwrap().state, State::Failed);
    assert!(
        message(&bucket).contains("it stands for identity.a, and names theirs now"),
        "{}",
        message(&bucket)
    );
    storage.until_event("a", "IdentityChanged").await;
    // Another object of that name works: this one is no duplicate of it, and the other way round.
    storage.bucket_with("b", json!({"storage.example.com/adopt": "true"}), json!({"name": "theirs"})).await;
    storage.until::<Bucket>("b", State::Succeeded).await;
    storage.delete_whole::<Bucket>("b").await;

    // It was a mistake.
    storage.patch_bucket("a", json!({"spec": {"name": null, "size": 2}})).await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    assert_eq!(storage.service.changes(&own), ["create 200", "update 200"]);

    // Nor does its deletion touch one of them.
    let third = "buckets/another";
    storage.service.put(third, json!({"size": 5, "region": "us"}));
    storage.patch_bucket("a", json!({"spec": {"name": "another"}})).await;
    storage.until_reason::<Bucket>("a", "IdentityChanged").await;
    let uid = storage.delete::<Bucket>("a").await;
    let is_kept = |status: &ExternalStatus| {
        (status.state, status.reason.as_str()) == (State::Terminating, "IdentityChanged")
    };
    storage.until_status::<Bucket>("a", is_kept).await;
    storage.annotate("a", "abandon", Some("true")).await;
    storage.until_gone::<Bucket>("a", &uid).await;
    assert_eq!(storage.service.changes(&own), ["create 200", "update 200"]);
    assert!(storage.service.log(third).is_empty(), "nothing was called");
    assert_eq!(storage.service.spec(third).unwrap()["size"], 5);
}

/// Lets nobody take the finalizers from the Buckets of a story, and waits until that holds.
async fn keep_finalizers(storage: &Storage) {
    let rule = json!({
        "apiGroups": ["storage.example.com"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["buckets"],
    });
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": storage.namespace}});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": storage.namespace},
        "spec": {
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
            "validations": [{
                "expression": "!has(oldObject.metadata.finalizers) || has(object.metadata.finalizers)",
                "message": "finalizers stay",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": storage.namespace},
        "spec": {"policyName": storage.namespace, "validationActions": ["Deny"]},
    });
    for object in [policy, binding] {
        storage.story.plane.apply(&object.to_string());
    }
    storage.bucket("probe").await;
    storage.until::<Bucket>("probe", State::Succeeded).await;
    let tried = PatchParams { dry_run: true, ..PatchParams::default() };
    let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    while storage.story.api::<Bucket>().patch("probe", &tried, &without).await.is_ok() {
        sleep(100 * MS).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_denies_a_write_is_said_and_backed_off_from() {
    let storage = Storage::begin("denied").await;
    let id = storage.bucket_id("a");
    storage.bucket("a").await;
    storage.until::<Bucket>("a", State::Succeeded).await;
    keep_finalizers(&storage).await;
    let uid = storage.delete::<Bucket>("a").await;
    let is_denied = |status: &ExternalStatus| {
        let mut conditions = status.conditions.iter();
        conditions
            .any(|it| it.type_ == "Synced" && it.reason == "Denied" && it.message.contains("finalizers stay"))
    };
    storage.until_status::<Bucket>("a", is_denied).await;
    storage.until_event("a", "Denied").await;
    let attempts = || {
        let of_bucket = |it: &serde_json::Value| {
            it["objectRef"]["name"] == "a" && it["verb"] == "patch" && it["responseStatus"]["code"] == 422
        };
        storage.story.requests().iter().filter(|it| of_bucket(it)).count()
    };
    // The longest wait of these stories is half a second, give or take a fifth.
    sleep(2 * Duration::from_secs(1)).await;
    let before = attempts();
    sleep(2 * Duration::from_secs(1)).await;
    let more = attempts() - before;
    assert!(more <= 6, "{more} attempts in two seconds");
    assert_eq!(storage.service.changes(&id), ["create 200", "delete 200"], "the service is called once");
    assert!(!storage.events("a").await.contains(&"Deleted".to_owned()));

    storage.story.plane.get(&["delete", "validatingadmissionpolicybinding", storage.namespace]);
    storage.until_gone::<Bucket>("a", &uid).await;
    storage.until_event("a", "Deleted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_a_later_version_adds_with_a_default_calls_nothing() {
    let mut storage = Storage::begin("new-field").await;
    let id = storage.folder_id("a");
    storage.bucket("b").await;
    storage.folder("a", "b", json!({"unmanaged": true})).await;
    storage.until::<Folder>("a", State::Succeeded).await;
    storage.running.take().unwrap().abort();
    // The version before did not know the field `after`: it is neither in its annotation nor in its hashes.
    let folder: Folder = storage.story.api().get("a").await.unwrap();
    let mut spec = folder.spec_json();
    assert!(spec.as_object_mut().unwrap().remove("after").is_some());
    let annotation = json!({"storage.example.com/last-applied-spec": spec.to_string()});
    storage.story.patch::<Folder>("a", json!({"metadata": {"annotations": annotation}})).await;
    let hash: String = {
        use sha2::{Digest as _, Sha256};
        Sha256::digest(spec.to_string()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    };
    let status = json!({"status": {"specHash": hash, "completedSpec": hash}});
    let folders = storage.story.api::<Folder>();
    folders.patch_status("a", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let before = (storage.service.changes(&id), storage.service.announcements(&id));
    let looks = storage.service.log(&id).len();
    storage.run(quick());
    while storage.service.log(&id).len() < looks + 3 {
        sleep(20 * MS).await;
    }
    assert_eq!((storage.service.changes(&id), storage.service.announcements(&id)), before);
    // Another value is an update, as ever.
    storage.story.patch::<Folder>("a", json!({"spec": {"quota": 2}})).await;
    storage
        .until_status::<Folder>("a", |status| status.attempt == 2 && status.state == State::Succeeded)
        .await;
    assert_eq!(storage.service.announcements(&id), before.1 + 1);
}
