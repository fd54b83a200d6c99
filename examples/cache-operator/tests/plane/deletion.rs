//! A deleted Cache goes, whatever its servers do.

use crate::story::Story;
use k8s_openapi::api::apps::v1::StatefulSet;
use kubebid_cache_operator::api::Phase;
use kubebid_cache_operator::api::v1beta1::Cache;
use kubebid_cache_operator::controller::FINALIZER;
use serde_json::json;

#[tokio::test]
async fn a_cache_whose_servers_cannot_be_emptied_goes_after_the_limit_and_an_event_says_what_is_left() {
    let mut story = Story::without_operator("hangs").await;
    story.start_operator(&["--alone", "--flush-limit", "3s"]);
    story.create("shop", json!({"engine": "memcached", "memory": "64Mi"})).await;
    // Nothing answers at the address of a pod that KWOK pretends to run.
    story.until_phase("shop", Phase::Ready).await;
    story
        .patch::<Cache>("shop", json!({"metadata": {"finalizers": [FINALIZER, "example.com/theirs"]}}))
        .await;
    story.delete::<Cache>("shop").await;
    let is_let_go = |cache: &Cache| cache.metadata.finalizers.as_ref().unwrap() == &["example.com/theirs"];
    let cache = story.until::<Cache>("shop", is_let_go).await;
    assert_eq!(cache.status.unwrap().phase, Phase::Terminating);
    let note = story.until_event("CleanupIncomplete").await;
    assert!(note.contains("shop-cache-0"), "{note}");
    story.patch::<Cache>("shop", json!({"metadata": {"finalizers": []}})).await;
    story.until_gone::<StatefulSet>("shop-cache").await;
}

#[tokio::test]
async fn an_operator_that_is_told_to_stop_removes_the_finalizers_if_it_is_asked_to() {
    let mut story = Story::without_operator("shutdown").await;
    story.start_operator(&["--remove-finalizers-on-shutdown", "--identity", "one"]);
    story.create("shop", json!({"engine": "memcached", "memory": "64Mi"})).await;
    story.until_phase("shop", Phase::Ready).await;
    let operator = story.operator.as_mut().unwrap();
    operator.signal("TERM");
    operator.ended().await;
    assert_eq!(story.api::<Cache>().get("shop").await.unwrap().metadata.finalizers, None);
}

#[tokio::test]
async fn a_replica_that_is_told_to_stop_leaves_the_finalizers_to_the_one_that_leads() {
    let mut story = Story::without_operator("handover").await;
    let options =
        ["--remove-finalizers-on-shutdown", "--lease-seconds", "15", "--renew-deadline-seconds", "12"];
    let options = [&options[..], &["--retry-period-seconds", "1", "--identity"]].concat();
    story.start_operator(&[&options[..], &["one"]].concat());
    story.create("shop", json!({"engine": "memcached", "memory": "64Mi"})).await;
    story.until_phase("shop", Phase::Ready).await;
    let _leader = story.operator.take();
    story.start_operator(&[&options[..], &["two"]].concat());
    let log = || story.operator.as_ref().unwrap().log();
    story.eventually("the second replica runs", || std::future::ready(log().contains("address="))).await;
    story.operator.as_ref().unwrap().signal("TERM");
    let standby = story.operator.as_mut().unwrap();
    standby.ended().await;
    assert!(!standby.log().contains("error: "), "{}", standby.log());
    let finalizers = story.api::<Cache>().get("shop").await.unwrap().metadata.finalizers;
    assert_eq!(finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
}
