//! An operator and definitions of an earlier revision, replaced by the present ones and put back while nodes run.

use crate::story::Story;
use crate::versions::{define, kubectl, machines, run_fleet, serve_both};
use kubebid_operator::api::BidNodeStatus;
use kubebid_operator::crds::{self, CrdOptions};
use kubebid_testkit::Plane;
use serde_json::json;
use std::path::PathBuf;

fn variable(name: &str) -> PathBuf {
    std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set: scripts/upgrade sets it")).into()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the operator of an earlier revision: just upgrade REVISION"]
async fn no_node_is_touched_by_an_upgrade_and_the_way_back() {
    let (plane, _end) = Plane::start().leak();
    let old_definitions = std::fs::read_to_string(variable("KUBEBID_OLD_DEFINITIONS")).unwrap();
    plane.apply(&old_definitions);
    plane.get(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
    let mut story = Story::on(plane, "upgrade").await;
    let new_program = std::mem::replace(&mut story.program, variable("KUBEBID_OLD_OPERATOR"));
    let old_program = story.program.clone();
    let before = run_fleet(&mut story).await;
    // Each operator writes a status of its own before the comparison.
    let is_untouched = async |story: &Story, step: &str, max_bid: f64| {
        story.change("fleet", json!({"maxBid": max_bid})).await;
        let generation = story.bidnodes().get("fleet").await.unwrap().metadata.generation;
        let is_seen = |status: &BidNodeStatus| status.observed_generation == generation;
        story.until("fleet", "the operator has seen it", is_seen).await;
        story.running("fleet", 20).await;
        assert_eq!(machines(story, "fleet").await, before, "after {step}");
        println!("{step}: 20 nodes run, the same as before");
    };

    // The definitions first, under the old operator.
    plane.apply(&crds::yaml(&CrdOptions::default()).unwrap());
    is_untouched(&story, "the new definitions", 3.1).await;
    story.operator = None;
    story.program = new_program;
    story.start_operator(&[]);
    is_untouched(&story, "the new operator", 3.2).await;
    story.operator = None;

    // Both versions, by two replicas.
    let (replicas, _ports) = serve_both(&story).await;
    kubectl(&story, &["label", "bidnodes.v2beta1.kubebid.io", "fleet", "team=a"], "").unwrap();
    is_untouched(&story, "both versions", 3.3).await;
    drop(replicas);

    // And back: the operator first.
    define(plane, None);
    story.program = old_program;
    story.start_operator(&[]);
    is_untouched(&story, "the old operator", 3.4).await;
    plane.apply(&old_definitions);
    is_untouched(&story, "the old definitions", 3.5).await;
    // It still does its work.
    let patch =
        ["patch", "bidnode", "fleet", "--type=merge", "-p", r#"{"spec": {"maxNodes": 22, "minNodes": 22}}"#];
    kubectl(&story, &patch, "").unwrap();
    story.running("fleet", 22).await;
    let after = machines(&story, "fleet").await;
    assert!(before.0.iter().all(|(node, uid)| after.0.get(node) == Some(uid)), "a node was touched");
}
