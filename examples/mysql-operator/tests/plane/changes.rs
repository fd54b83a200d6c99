//! People change a Mysql, or lose a part of it.

use crate::story::Story;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use kubebid_mysql_operator::api::{Mysql, NEW_PASSWORD};
use kubebid_mysql_operator::children::{PASSWORD, size_of};
use serde_json::json;

/// Returns the size in the template of a StatefulSet.
fn template_size(set: &StatefulSet) -> &str {
    &size_of(&set.spec.as_ref().unwrap().volume_claim_templates.as_ref().unwrap()[0]).unwrap().0
}

#[tokio::test]
async fn the_template_follows_cpu_and_memory() {
    let story = Story::begin("resources").await;
    story.running("shop").await;
    let pod: Pod = story.api().get("shop-0").await.unwrap();
    story.patch::<Mysql>("shop", json!({"spec": {"cpu": "750m", "memory": "2Gi"}})).await;
    let pod = story.until_replaced(&pod).await;
    let requests = pod.spec.unwrap().containers[0].resources.clone().unwrap().requests.unwrap();
    assert_eq!((requests["cpu"].0.as_str(), requests["memory"].0.as_str()), ("750m", "2Gi"));
    story.ready("shop").await;
}

#[tokio::test]
async fn a_volume_grows_under_a_running_pod() {
    let story = Story::begin("grow").await;
    story.running("shop").await;
    let (set, pod): (StatefulSet, Pod) =
        (story.api().get("shop").await.unwrap(), story.api().get("shop-0").await.unwrap());
    story.patch::<Mysql>("shop", json!({"spec": {"storage": "3Gi"}})).await;
    let new = story.until_replaced(&set).await;
    assert_eq!(template_size(&new), "3Gi");
    let claim: PersistentVolumeClaim = story.api().get("data-shop-0").await.unwrap();
    assert_eq!(size_of(&claim).unwrap().0, "3Gi");
    story.ready("shop").await;
    let same: Pod = story.api().get("shop-0").await.unwrap();
    assert_eq!((same.uid(), same.metadata.deletion_timestamp), (pod.uid(), None));
    assert_eq!(same.metadata.owner_references.unwrap()[0].uid, new.uid().unwrap());

    // The other way is refused.
    let smaller = Patch::Merge(json!({"spec": {"storage": "1Gi"}}));
    let refused = story.api::<Mysql>().patch("shop", &PatchParams::default(), &smaller).await.unwrap_err();
    assert!(refused.to_string().contains("storage can grow, but not shrink"), "{refused}");
    // What others have done to the claim is not undone, and said.
    let grown = json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}});
    story.patch::<PersistentVolumeClaim>("data-shop-0", grown).await;
    let message = story.until_condition("shop", "StatefulSet", "Degraded").await;
    assert!(message.contains("has 5Gi, and cannot shrink to 3Gi"), "{message}");
    story.patch::<Mysql>("shop", json!({"spec": {"storage": "5Gi"}})).await;
    story.ready("shop").await;
}

#[tokio::test]
async fn a_volume_that_may_not_grow_is_said_to_be_so() {
    let story = Story::begin("quota").await;
    story.running("shop").await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small", "namespace": story.namespace},
        "spec": {"hard": {"requests.storage": "2Gi"}},
    });
    story.plane.apply(&quota.to_string());
    story.plane.get(&[
        "-n",
        story.namespace,
        "wait",
        "resourcequota/small",
        "--for",
        "jsonpath={.status.used}",
        "--timeout=60s",
    ]);
    let set: StatefulSet = story.api().get("shop").await.unwrap();
    story.patch::<Mysql>("shop", json!({"spec": {"storage": "3Gi"}})).await;
    let message = story.until_condition("shop", "StatefulSet", "Degraded").await;
    assert!(message.contains("exceeded quota"), "{message}");
    assert_eq!(story.api::<StatefulSet>().get("shop").await.unwrap().uid(), set.uid());
    story.plane.get(&["-n", story.namespace, "delete", "resourcequota", "small"]);
    story
        .patch::<Mysql>("shop", json!({"metadata": {"annotations": {"fnjoin.com/reconcile-at": "1"}}}))
        .await;
    story.until_replaced(&set).await;
    story.ready("shop").await;
}

#[tokio::test]
async fn a_lost_password_is_replaced_only_if_somebody_asks_for_it() {
    let mut story = Story::begin("password").await;
    story.running("shop").await;
    let old: Secret = story.api().get("shop").await.unwrap();
    story.delete::<Secret>("shop").await;
    story.until_condition("shop", "Secret", "Degraded").await;
    let message = story.until_condition("shop", "Ready", "Degraded").await;
    assert!(message.contains(NEW_PASSWORD), "{message}");
    let is_published = || async {
        let events = story.api::<Event>().list(&Default::default()).await.unwrap();
        let of_reason = events.iter().filter(|event| event.reason.as_deref() == Some("Degraded"));
        of_reason.filter(|event| event.note.as_ref() == Some(&message)).count() == 1
    };
    story.eventually("one event says so", is_published).await;
    // Neither time nor a restart changes that.
    story.start_operator(&["--alone"]);
    story.settled().await;
    assert!(story.api::<Secret>().get_opt("shop").await.unwrap().is_none());
    story.patch::<Mysql>("shop", json!({"metadata": {"annotations": {NEW_PASSWORD: "true"}}})).await;
    let new = story.until::<Secret>("shop", |_| true).await;
    assert_ne!(new.data.unwrap()[PASSWORD], old.data.unwrap()[PASSWORD]);
    story.ready("shop").await;
}

#[tokio::test]
async fn a_password_is_never_written_again() {
    let story = Story::begin("kept").await;
    story.running("shop").await;
    let ours = story.patch::<Secret>("shop", json!({"stringData": {PASSWORD: "theirs"}})).await;
    story.patch::<Mysql>("shop", json!({"spec": {"cpu": "1"}})).await;
    story.ready("shop").await;
    assert_eq!(story.api::<Secret>().get("shop").await.unwrap(), ours);
    let of_secrets = |event: &serde_json::Value| event["objectRef"]["resource"] == "secrets";
    let mut verbs: Vec<_> = story.account.requests();
    verbs.retain(of_secrets);
    assert!(verbs.iter().all(|event| ["list", "watch", "create"].contains(&event["verb"].as_str().unwrap())));
}

#[tokio::test]
async fn a_hundred_events_in_a_second_are_two_passes_at_most() {
    let story = Story::begin("burst").await;
    story.running("shop").await;
    let operator = story.operator.as_ref().unwrap();
    let before = operator.quiet().await;
    let began = std::time::Instant::now();
    for number in 0..99 {
        story
            .patch::<StatefulSet>(
                "shop",
                json!({"metadata": {"annotations": {"theirs": number.to_string()}}}),
            )
            .await;
    }
    let took = began.elapsed();
    // The last one is undone: all have been seen then.
    story.patch::<StatefulSet>("shop", json!({"spec": {"replicas": 0}})).await;
    story.until::<StatefulSet>("shop", |set| set.spec.as_ref().unwrap().replicas == Some(1)).await;
    let made = operator.passes().await - before;
    assert!(made <= 2 + took.as_secs(), "{made} passes for 100 events in {took:?}");
}
