//! `deploy/kubernetes/`: applied for real, and the operator works with the rights that it gives.

use crate::external::provider::Provider;
use crate::preemption::is_tainted;
use crate::story::{PATIENT, Story, plane};
use k8s_openapi::api::core::v1::Pod;
use kubebid_operator::crds::{self, CrdOptions};
use kubebid_testkit::Account;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";
const NOTICE: Duration = Duration::from_secs(20);
const SYSTEM: &str = "kubebid-system";
/// The name of the service account and of its roles.
const OPERATOR: &str = "kubebid-operator";

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes")
}

#[test]
fn the_definitions_are_those_of_the_types() {
    let kept = std::fs::read_to_string(manifests().join("operator/crds.yaml")).unwrap();
    assert!(
        kept == crds::yaml(&CrdOptions::default()).unwrap(),
        "the types have changed: cargo run -p kubebid-operator -- crds > deploy/kubernetes/operator/crds.yaml",
    );
}

/// A BidNode from its bid to its end, with a pod that is evicted from it.
async fn live(story: &Story, name: &str) {
    let spec =
        json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 1, "nodeSelector": {"pool": name}});
    story.bid(name, spec).await;
    let bidnode = story.running(name, 1).await;
    story.pod(name, json!({"nodeSelector": {"pool": name}})).await;
    story.until_pod(name, "it runs", runs).await;
    story.delete(name).await;
    story.gone(name).await;
    story.until_pod(name, "it is evicted", |pod| pod.is_none()).await;
    assert!(story.nodes_of(&bidnode).await.is_empty());
    unhindered(story);
}

/// A notice that is taken back, then one that a disruption budget does not yield to: when its time is over, the pod is
/// deleted. The event that tells of the second notice repeats that of the first.
async fn lose(story: &Story, name: &str) {
    let spec =
        json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2, "nodeSelector": {"pool": name}});
    story.bid(name, spec).await;
    let bidnode = story.running(name, 2).await;
    story.pod(name, json!({"nodeSelector": {"pool": name}})).await;
    story.until_pod(name, "it runs", runs).await;
    story.protect(name);
    let tainted = || async { story.nodes_of(&bidnode).await.iter().map(is_tainted).collect::<Vec<_>>() };
    let rival = story.market.rival_bids(EU, 4, 20.0).await;
    story
        .eventually("the node of the pod is left, with a notice", || async { tainted().await == [true] })
        .await;
    story.market.rival_cancels(rival).await;
    story.eventually("the notice is taken back", || async { !tainted().await.contains(&true) }).await;
    story.running(name, 2).await;
    let rival = story.market.rival_bids(EU, 4, 20.0).await;
    story.until_pod(name, "it is deleted", |pod| pod.is_none()).await;
    assert!(story.operator.as_ref().unwrap().log().contains("there was no time to ask"));
    story.market.rival_cancels(rival).await;
    story.delete(name).await;
    story.gone(name).await;
    unhindered(story);
}

fn runs(pod: Option<&Pod>) -> bool {
    pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()).is_some_and(|phase| phase == "Running")
}

fn unhindered(story: &Story) {
    let log = story.operator.as_ref().unwrap().log();
    assert!(!log.to_lowercase().contains("forbidden"), "{log}");
}

#[tokio::test]
async fn the_rights_of_the_manifests_are_enough_and_not_too_many() {
    let plane = plane();
    let at = |folder: PathBuf| folder.to_str().unwrap().to_owned();
    plane.get(&["apply", "-k", &at(manifests().join("operator"))]);
    let ready = "jsonpath={.status.replicas}=2";
    plane.get(&["wait", "-n", SYSTEM, "deployment/kubebid-operator", "--for", ready, PATIENT]);

    let mut story = Story::without_operator("rights").await;
    let folder = tempfile::tempdir().unwrap();
    let account = Account::of(plane, SYSTEM, OPERATOR, folder.path());
    story.kubeconfig = account.kubeconfig().to_owned();
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, 4, 2.0).await;
    let provider = Provider::start(Some(story.client.clone())).await;
    let lease = ["--lease-namespace", SYSTEM, "--lease-name", "kubebid-operator", "--lease-seconds", "20"];
    let namespace = story.namespace.clone();
    let labels = ["--controllers", "bidnodes,labels", "--label-set-namespace", &namespace];
    let set = json!({
        "apiVersion": "labels.banzaicloud.io/v1alpha1", "kind": "NodePoolLabelSet",
        "metadata": {"name": "machines", "namespace": namespace}, "spec": {"labels": {"tier": "gold"}},
    });
    plane.apply(&set.to_string());
    let arguments = provider.arguments();
    let arguments: Vec<_> =
        lease.into_iter().chain(labels).chain(arguments.iter().map(String::as_str)).collect();
    story.start_operator(&arguments);
    live(&story, "machines").await;
    lose(&story, "taken").await;
    assert!(provider.books().machines.is_empty());

    // Making nodes is a right of the overlay for KWOK alone.
    let may_create =
        ["auth", "can-i", "create", "nodes", "--as", "system:serviceaccount:kubebid-system:kubebid-operator"];
    assert_eq!(plane.kubectl(&may_create).stdout, b"no\n");
    plane.get(&["apply", "-k", &at(manifests().join("operator-with-kwok"))]);
    story.start_operator(&lease);
    live(&story, "kwok").await;
    let mut granted = plane.granted_rights(&["clusterrole", OPERATOR]);
    granted.extend(plane.granted_rights(&["role", OPERATOR, "-n", SYSTEM]));
    assert_eq!(granted.difference(&account.used_rights()).cloned().collect::<Vec<_>>(), UNSEEN);
}

/// What no request shows: the API server asks for it by the by, where an admission plugin is on that is not here.
const UNSEEN: [&str; 1] = ["update kubebid.io/bidnodes/finalizers"];
