//! How long it takes to label the nodes of a pool, on a real control plane, beside a bare loop of the same patches:
//! `cargo bench -p kubebid-operator --bench labels -- NODES`.
#![allow(clippy::disallowed_methods, reason = "a test writes as people do")]

#[path = "../tests/plane/market.rs"]
#[allow(dead_code, reason = "the stories use the rest")]
mod market;
#[path = "../tests/plane/story.rs"]
#[allow(dead_code, reason = "the stories use the rest")]
mod story;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kubebid_operator::api::{ANNOTATION_MANAGED_LABELS, NodePoolLabelSet};
use kubebid_testkit::Account;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Instant;
use story::Story;

/// Nodes of KWOK renew their leases four times in it.
const GRACE_SECONDS: u32 = 1200;
/// The number of patches that the operator sends at once.
const CONCURRENCY: usize = 32;
const ROUNDS: usize = 5;
const POOL: &str = "agentpool";

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let nodes = arguments.next().map_or(500, |text| text.parse().unwrap());
    let mut story = Story::alone_with_grace("labels", GRACE_SECONDS).await;
    let folder = tempfile::tempdir().unwrap();
    let account = story.account("labeller", folder.path());
    story.kubeconfig = account.kubeconfig().to_owned();
    let names: Vec<String> = (0..nodes).map(|number| format!("n{number}")).collect();
    for name in &names {
        let node = json!({"metadata": {"name": name, "labels": {POOL: "gold"}}});
        let node: Node = serde_json::from_value(node).unwrap();
        story.nodes().create(&PostParams::default(), &node).await.unwrap();
    }
    until_all(&story, nodes, is_settled).await;

    let namespace = story.namespace.clone();
    set(&story, "gold", json!({})).await;
    // One after the other, so that both have the same neighbours on the machine.
    let (mut loops, mut rounds) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let value = round.to_string();
        let began = Instant::now();
        let sent = names.iter().map(|name| bare_patch(&story, name, json!(value)));
        let all = until_all(&story, nodes, |node| node.labels().get("bare") == Some(&value));
        let sent = futures_util::stream::iter(sent).buffer_unordered(CONCURRENCY).collect::<Vec<()>>();
        loops.push(tokio::join!(sent, all).1 - began);

        story.start_operator(&["--controllers", "labels", "--label-set-namespace", &namespace]);
        // It has listed all nodes when it counts one more set.
        let ready = format!("ready-{round}");
        set(&story, &ready, json!({})).await;
        counted(&story, &ready, 0).await;
        let before = patches(&account);
        let began = Instant::now();
        let all = until_all(&story, nodes, |node| node.labels().get("tier") == Some(&value));
        let changed = set(&story, "gold", json!({"tier": value, "team": "ml"}));
        rounds.push(tokio::join!(changed, all).1 - began);
        counted(&story, "gold", nodes).await;
        let sent = patches(&account)[before.len()..].to_vec();
        let most = sent.iter().map(|node| sent.iter().filter(|it| *it == node).count()).max().unwrap_or(0);
        println!(
            "round {round}: labelled within {:.2} s, a bare loop takes {:.2} s; {} patches of {nodes} nodes, at most {most} \
             of a node",
            rounds[round].as_secs_f64(),
            loops[round].as_secs_f64(),
            sent.len()
        );
        if round + 1 < ROUNDS {
            story.operator = None;
        }
    }
    let before = patches(&account).len();
    let last = (ROUNDS - 1).to_string();
    set(&story, "gold", json!({"tier": last, "team": "ml"})).await;
    // A node that changes after it is labelled after it.
    let without = Patch::Merge(json!({"metadata": {"labels": {"tier": null}}}));
    story.nodes().patch("n0", &PatchParams::default(), &without).await.unwrap();
    until_all(&story, nodes, |node| node.labels().get("tier") == Some(&last)).await;
    let again = patches(&account).len() - before - 1;
    loops.sort();
    rounds.sort();
    let (operator, bare) = (rounds[ROUNDS / 2].as_secs_f64(), loops[ROUNDS / 2].as_secs_f64());
    println!(
        "{nodes} nodes, median of {ROUNDS}: labelled {operator:.2} s after the set changed, {:.2} times as long as a bare loop \
         of the same patches, {CONCURRENCY} at once; the same set again: {again} patches",
        operator / bare,
    );
}

/// Sends a patch of the same size as the operator's.
async fn bare_patch(story: &Story, name: &str, value: Value) {
    let annotations = json!({ANNOTATION_MANAGED_LABELS.replace("managed", "bare"): r#"["team","tier"]"#});
    let metadata = json!({"labels": {"bare": value, "loop": "ml"}, "annotations": annotations});
    let patch = Patch::Merge(json!({"metadata": metadata}));
    story.nodes().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn set(story: &Story, name: &str, labels: Value) {
    let sets: Api<NodePoolLabelSet> = Api::namespaced(story.client.clone(), &story.namespace);
    let set = json!({
        "apiVersion": "labels.banzaicloud.io/v1alpha1", "kind": "NodePoolLabelSet",
        "metadata": {"name": name}, "spec": {"labels": labels},
    });
    sets.patch(name, &PatchParams::apply("people").force(), &Patch::Apply(set)).await.unwrap();
}

/// Waits until the status of a set counts so many nodes.
async fn counted(story: &Story, name: &str, nodes: u32) {
    let sets: Api<NodePoolLabelSet> = Api::namespaced(story.client.clone(), &story.namespace);
    story
        .eventually("all nodes are counted", || async {
            let set = sets.get(name).await.unwrap();
            let generation = set.metadata.generation;
            set.status.is_some_and(|it| it.updated == nodes && it.observed_generation == generation)
        })
        .await;
}

/// Waits until all nodes are so. Returns the time at which the last one was seen so.
async fn until_all(story: &Story, nodes: u32, is_so: impl Fn(&Node) -> bool) -> Instant {
    let mut left: BTreeSet<String> = (0..nodes).map(|number| format!("n{number}")).collect();
    let mut seen = pin!(watcher(story.nodes(), watcher::Config::default()).applied_objects());
    while let Some(node) = seen.next().await {
        if let Ok(node) = node
            && is_so(&node)
        {
            left.remove(&node.name_any());
            if left.is_empty() {
                break;
            }
        }
    }
    Instant::now()
}

/// Returns whether Kubernetes has written all to a node that it writes by itself.
fn is_settled(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let has_taint = taints.into_iter().any(|taint| taint.key.starts_with("node.kubernetes.io/"));
    !has_taint && node.annotations().contains_key("node.alpha.kubernetes.io/ttl")
}

/// Returns the nodes that the operator has patched, one for each patch.
fn patches(account: &Account) -> Vec<String> {
    let asked = account.requests();
    let of_nodes = asked.iter().filter(|it| it["verb"] == "patch" && it["objectRef"]["resource"] == "nodes");
    of_nodes.map(|it| it["objectRef"]["name"].as_str().unwrap().to_owned()).collect()
}
