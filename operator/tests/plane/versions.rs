//! BidNodes of both versions on one control plane, with and without the webhook that converts them.

use crate::story::{PATIENT, Story};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::WebhookClientConfig;
use kube::ResourceExt as _;
use kube::api::Api;
use kubebid_operator::api::{BidNode, v2beta1};
use kubebid_operator::crds::{self, CrdOptions, WebhookService};
use kubebid_testkit::{Balancer, Plane, Port, Process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";
pub(crate) const V1: &str = "bidnodes.v1.kubebid.io";
pub(crate) const BETA: &str = "bidnodes.v2beta1.kubebid.io";

/// Defines BidNodes, converted by a webhook at this address or by none.
pub(crate) fn define(plane: &Plane, url: Option<&str>) {
    let webhook = url.map(|_| WebhookService { namespace: "none".to_owned(), name: "none".to_owned() });
    let [mut definition, ..] = crds::all(&CrdOptions { webhook, ..CrdOptions::default() }).unwrap();
    let conversion = definition.spec.conversion.as_mut().and_then(|it| it.webhook.as_mut());
    if let Some(webhook) = conversion {
        let url = url.map(|url| format!("{url}/convert"));
        webhook.client_config = Some(WebhookClientConfig { url, ..WebhookClientConfig::default() });
    }
    plane.apply(&json!(definition).to_string());
}

/// Runs kubectl in the namespace of a story. An error is what it says.
pub(crate) fn kubectl(story: &Story, arguments: &[&str], input: &str) -> Result<String, String> {
    let output = story.plane.kubectl_reading(&[&["-n", &story.namespace], arguments].concat(), input);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

pub(crate) fn object(version: &str, name: &str, spec: &Value) -> String {
    let version = format!("kubebid.io/{version}");
    json!({"apiVersion": version, "kind": "BidNode", "metadata": {"name": name}, "spec": spec}).to_string()
}

/// The nodes of a BidNode with their UIDs, and the allocations of its slots.
pub(crate) type Machines = (BTreeMap<String, Option<String>>, BTreeMap<String, Option<u64>>);

pub(crate) async fn machines(story: &Story, name: &str) -> Machines {
    let bidnode = story.bidnodes().get(name).await.unwrap();
    let nodes = story.nodes_of(&bidnode).await;
    let nodes = nodes.into_iter().map(|node| (node.name_any(), node.uid())).collect();
    let slots = story.slots().list(&Default::default()).await.unwrap();
    let held =
        |slot: kubebid_operator::api::BidSlot| (slot.name_any(), slot.status.and_then(|it| it.allocation));
    (nodes, slots.items.into_iter().map(held).collect())
}

pub(crate) fn newer(story: &Story) -> Api<v2beta1::BidNode> {
    Api::namespaced(story.client.clone(), &story.namespace)
}

/// Starts an operator, and runs twenty nodes of the BidNode `fleet` in a market that has more.
pub(crate) async fn run_fleet(story: &mut Story) -> Machines {
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 24, 1.0).await;
    story.start_operator(&[]);
    let spec = json!({"instanceType": "h100-8x", "maxBid": 3, "minNodes": 20, "maxNodes": 20});
    story.bid("fleet", spec).await;
    story.running("fleet", 20).await;
    let fleet = machines(story, "fleet").await;
    assert_eq!(fleet.0.len(), 20);
    fleet
}

/// Serves both versions by two replicas behind a balancer, and waits until `fleet` is read in v2beta1. Keep the ports as long as
/// the balancer may look there.
pub(crate) async fn serve_both(story: &Story) -> ([Process; 2], [Port; 2]) {
    let (balancer, ports) = Balancer::of_two().await;
    define(story.plane, Some(&balancer.url()));
    let replicas = ports.each_ref().map(|port| story.start_webhook(port.address()));
    balancer.until_ready(2).await;
    story.eventually("v2beta1 is served", || async { newer(story).get("fleet").await.is_ok() }).await;
    (replicas, ports)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_are_served_while_twenty_nodes_run_and_no_node_is_touched() {
    let mut story = Story::alone("versions").await;
    let plane = story.plane;
    let before = run_fleet(&mut story).await;
    let refusal = kubectl(&story, &["get", BETA], "").unwrap_err();
    assert!(refusal.contains("doesn't have a resource type"), "{refusal}");

    // The new definition, and two replicas that serve the webhook.
    story.operator = None;
    let (replicas, _ports) = serve_both(&story).await;
    let fleet = newer(&story).get("fleet").await.unwrap();
    assert_eq!((&fleet.spec.instance_types[..], fleet.spec.nodes.min), (&["h100-8x".to_owned()][..], 20));
    assert_eq!(fleet.spec.max_bid.to_string(), "3");
    assert_eq!(fleet.annotations().get("kubebid.io/conversion-data"), None);
    story.running("fleet", 20).await;

    refusals(&story);
    people(&story).await;

    // Four of five nodes: the status of what a client of v2beta1 wrote is still to change.
    let kept = json!({"instanceTypes": ["h100-8x"], "maxBid": "3", "nodes": {"min": 5, "max": 5}});
    kubectl(&story, &["create", "-f", "-"], &object("v2beta1", "kept", &kept)).unwrap();
    let nodes = async || story.bidnodes().get("kept").await.unwrap().status.map(|status| status.active_nodes);
    story.eventually("four nodes are ready", || async { nodes().await == Some(4) }).await;

    // No replica serves: the operator needs no webhook.
    drop(replicas);
    without_webhook(&story);
    story.start_operator(&[]);
    story.running("fleet", 20).await;
    story.market.offer(EU, 25, 1.0).await;
    story.running("kept", 5).await;
    story.delete("kept").await;
    story.gone("kept").await;
    let other = story.neighbour("versions-gone").await;
    for name in ["one", "two"] {
        kubectl(
            &other,
            &["create", "-f", "-"],
            &object("v1", name, &json!({"instanceType": "h100-8x", "maxBid": 1})),
        )
        .unwrap();
    }
    plane.get(&["delete", "namespace", &other.namespace, "--timeout=90s"]);
    assert!(kubectl(&story, &["get", BETA], "").is_err(), "the webhook was away all the time");

    // And back.
    define(plane, None);
    story.running("fleet", 20).await;
    let is_unserved = |error: kube::Error| matches!(error, kube::Error::Api(status) if status.code == 404);
    story
        .eventually("v2beta1 is gone", || async { newer(&story).get("fleet").await.is_err_and(is_unserved) })
        .await;
    story.bidnodes().get("fleet").await.unwrap();
    assert_eq!(machines(&story, "fleet").await, before, "no node was touched");
}

/// Checks what the API server refuses in v2beta1, and with which words.
fn refusals(story: &Story) {
    let spec =
        json!({"instanceTypes": ["h100-8x"], "regions": ["eu-west"], "maxBid": "4.5", "nodes": {"min": 0}});
    let with = |change: &Value| {
        let mut spec = spec.clone();
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        spec
    };
    let many: Vec<_> = (0..17).map(|it| format!("r{it}")).collect();
    for (change, blame) in [
        (json!({"instanceTypes": []}), "spec.instanceTypes"),
        (json!({"instanceTypes": ["h100-8x", "h100-8x"]}), "Duplicate value"),
        (json!({"instanceTypes": ["abacus"]}), "spec.instanceTypes[0]"),
        (json!({"regions": many}), "spec.regions"),
        (json!({"regions": ["eu west"]}), "spec.regions[0]"),
        (json!({"maxBid": 4.5}), "spec.maxBid"),
        (json!({"maxBid": "0.0099"}), "maxBid must be from"),
        (json!({"maxBid": "1000000.000001"}), "maxBid must be from"),
        (json!({"maxBid": "1.0000001"}), "spec.maxBid"),
        (json!({"maxBid": "-1"}), "spec.maxBid"),
        (json!({"maxBid": "1e3"}), "spec.maxBid"),
        (json!({"nodes": {"min": 5, "max": 2}}), "nodes.min must be at most nodes.max"),
        (json!({"drain": {"within": "soon"}}), "spec.drain.within"),
        (json!({"labels": {"kubernetes.io/x": "1"}}), "are reserved"),
    ] {
        let refusal =
            kubectl(story, &["create", "-f", "-"], &object("v2beta1", "bad", &with(&change))).unwrap_err();
        assert!(refusal.contains(blame), "{change}: {refusal}");
    }
    for accepted in ["0.01", "1000000", "2.50", "0.010000"] {
        let create = ["create", "--dry-run=server", "-f", "-"];
        kubectl(story, &create, &object("v2beta1", "good", &with(&json!({"maxBid": accepted})))).unwrap();
    }
    kubectl(story, &["create", "-f", "-"], &object("v2beta1", "sets", &spec)).unwrap();
    let change = |spec: Value| {
        let patch = json!({"spec": spec}).to_string();
        kubectl(story, &["patch", BETA, "sets", "--type=merge", "-p", &patch], "")
    };
    change(json!({"instanceTypes": ["h100-8x", "a100-8x"], "regions": ["eu-west", "us-east"]})).unwrap();
    for (spec, said) in [
        (json!({"instanceTypes": ["h100-8x"]}), "instanceTypes can be widened only"),
        (json!({"instanceTypes": ["a100-8x", "h100-8x"]}), "the first of instanceTypes stays the first"),
        (json!({"regions": ["eu-west"]}), "regions can be widened only"),
        (json!({"regions": ["us-east", "eu-west"]}), "the first of regions stays the first"),
    ] {
        let refusal = change(spec.clone()).unwrap_err();
        assert!(refusal.contains(said), "{spec}: {refusal}");
    }
    change(json!({"regions": null})).unwrap();
    assert!(change(json!({"regions": ["eu-west"]})).unwrap_err().contains("regions can be widened only"));
}

/// Does with kubectl what people do, in both versions.
async fn people(story: &Story) {
    let drain = json!({"within": "20m", "emptyAfter": "1h"});
    let spec = json!({
        "instanceTypes": ["h100-8x", "a100-8x"], "regions": ["eu-west", "us-east"], "maxBid": "0.50",
        "nodes": {"min": 0, "max": 5}, "drain": drain,
    });
    kubectl(story, &["apply", "-f", "-"], &object("v2beta1", "wide", &spec)).unwrap();
    let wide = newer(story).get("wide").await.unwrap();
    let shown = kubectl(story, &["get", BETA, "wide"], "").unwrap();
    assert!(shown.contains("INSTANCES") && shown.contains(r#"["h100-8x","a100-8x"]"#), "{shown}");
    assert!(kubectl(story, &["get", "bn", "wide"], "").unwrap().contains("INSTANCE "), "v1 is preferred");
    let explained =
        kubectl(story, &["explain", "bidnode.spec.drain.within", "--api-version=kubebid.io/v2beta1"], "")
            .unwrap();
    assert!(explained.contains("The longest time for the pods"), "{explained}");

    // A client of v1 scales and labels it.
    kubectl(story, &["scale", V1, "wide", "--replicas=1"], "").unwrap();
    kubectl(story, &["label", V1, "wide", "team=a"], "").unwrap();
    kubectl(story, &["patch", V1, "wide", "--type=merge", "-p", r#"{"spec":{"maxNodes":7}}"#], "").unwrap();
    let scaled = newer(story).get("wide").await.unwrap();
    let mut wanted = wide.spec.clone();
    (wanted.nodes.min, wanted.nodes.max) = (1, 7);
    assert_eq!(scaled.spec, wanted);
    assert_eq!(scaled.labels()["team"], "a");
    kubectl(story, &["scale", BETA, "wide", "--replicas=0"], "").unwrap();
    assert_eq!(
        Api::<BidNode>::namespaced(story.client.clone(), &story.namespace)
            .get("wide")
            .await
            .unwrap()
            .spec
            .min_nodes,
        0
    );

    // Two field managers in two versions.
    let apply = |version: &str, manager: &str, spec: Value| {
        let manager = format!("--field-manager={manager}");
        kubectl(story, &["apply", "--server-side", &manager, "-f", "-"], &object(version, "both", &spec))
            .unwrap();
    };
    apply("v1", "one", json!({"instanceType": "h100-8x", "maxBid": 0.5, "minNodes": 0}));
    apply("v2beta1", "two", json!({"instanceTypes": ["a100-8x"], "strategy": "cost-optimized"}));
    apply("v1", "one", json!({"instanceType": "h100-8x", "maxBid": 0.75, "minNodes": 0}));
    let both = newer(story).get("both").await.unwrap().spec;
    assert_eq!(
        (&both.instance_types[..], &both.max_bid.to_string()[..]),
        (&["h100-8x".to_owned(), "a100-8x".to_owned()][..], "0.75")
    );
    assert_eq!(json!(both.strategy), "cost-optimized");
    story.running("fleet", 20).await;
    for name in ["wide", "both", "sets"] {
        story.delete(name).await;
        story.gone(name).await;
    }
}

/// Checks what works while no replica serves the webhook, and what does not.
fn without_webhook(story: &Story) {
    let older = object("v1", "away", &json!({"instanceType": "h100-8x", "maxBid": 0.5, "minNodes": 0}));
    let bad =
        object("v1", "bad", &json!({"instanceType": "h100-8x", "maxBid": 0.5, "minNodes": 5, "maxNodes": 2}));
    let newer = object("v2beta1", "newer", &json!({"instanceTypes": ["h100-8x"], "maxBid": "0.5"}));
    let lines: [(bool, &[&str], &str); 12] = [
        (true, &["create", "-f", "-"], &older),
        (true, &["apply", "--server-side", "-f", "-"], &older),
        (true, &["get", V1, "away"], ""),
        (true, &["get", "bidnodes"], ""),
        (true, &["scale", V1, "away", "--replicas=1"], ""),
        (true, &["label", V1, "away", "team=a"], ""),
        (false, &["create", "-f", "-"], &bad),
        (true, &["explain", "bidnode.spec.maxBid", "--api-version=kubebid.io/v2beta1"], ""),
        (true, &["delete", V1, "away", PATIENT], ""),
        (false, &["get", BETA], ""),
        (false, &["create", "-f", "-"], &newer),
        (false, &["scale", BETA, "fleet", "--replicas=1"], ""),
    ];
    for (works, command, input) in lines {
        let done = kubectl(story, command, input);
        assert_eq!(done.is_ok(), works, "{command:?}: {done:?}");
        if let Err(said) = done {
            assert!(
                said.contains("conversion webhook") || said.contains("minNodes must be at most"),
                "{said}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_of_the_guide_holds_in_both_versions() {
    let mut story = Story::alone("policy").await;
    story.bid("fleet", json!({"instanceType": "a100-8x", "maxBid": 3, "minNodes": 0})).await;
    story.operator = None;
    let (_replicas, _ports) = serve_both(&story).await;
    let guide = include_str!("../../../docs/operator.md");
    let policy = guide.split("```yaml\n").find(|it| it.contains("name: bidnode-types")).unwrap();
    story.plane.apply(policy.split("```").next().unwrap());
    let kept = |types: &[&str]| {
        let kept = json!({"value": types, "while": {"/spec/instanceTypes": [types[0]]}});
        json!({"kubebid.io/conversion-data": json!({"v2beta1": {"/spec/instanceTypes": kept}}).to_string()})
    };
    let create = |version: &str, name: &str, spec: Value, annotations: Value| {
        let mut bidnode: Value = serde_json::from_str(&object(version, name, &spec)).unwrap();
        bidnode["metadata"]["annotations"] = annotations;
        kubectl(&story, &["create", "-f", "-"], &bidnode.to_string())
    };
    let v1 = |instance_type: &str| json!({"instanceType": instance_type, "maxBid": 1, "minNodes": 0});
    let beta = |types: &[&str]| json!({"instanceTypes": types, "maxBid": "1", "nodes": {"min": 0, "max": 1}});
    let holds = || async {
        kubectl(&story, &["create", "--dry-run=server", "-f", "-"], &object("v1", "probe", &v1("h100-8x")))
            .is_err()
    };
    story.eventually("the policy holds", holds).await;

    let none = || json!({});
    let refused = |created: Result<String, String>, why: &str| {
        let refusal = created.unwrap_err();
        assert!(refusal.contains(why), "{refusal}");
    };
    let types = "only l40s-4x and a100-8x are allowed";
    refused(create("v1", "a", v1("h100-8x"), none()), types);
    refused(create("v2beta1", "a", beta(&["l40s-4x", "h100-8x"]), none()), types);
    refused(create("v1", "a", v1("l40s-4x"), kept(&["l40s-4x", "h100-8x"])), "use v2beta1");
    create("v1", "plain", v1("l40s-4x"), none()).unwrap();
    create("v2beta1", "wide", beta(&["l40s-4x", "a100-8x"]), none()).unwrap();
    // A client of v1 goes on with an object of v2beta1, and widens none.
    for name in ["plain", "wide"] {
        kubectl(&story, &["label", V1, name, "team=a"], "").unwrap();
        let patch = json!({"metadata": {"annotations": kept(&["l40s-4x", "h100-8x"])}}).to_string();
        refused(kubectl(&story, &["patch", V1, name, "--type=merge", "-p", &patch], ""), "use v2beta1");
        kubectl(&story, &["scale", V1, name, "--replicas=1"], "").unwrap();
    }
    let patch = json!({"spec": {"instanceTypes": ["l40s-4x", "a100-8x", "h100-8x"]}}).to_string();
    refused(kubectl(&story, &["patch", BETA, "wide", "--type=merge", "-p", &patch], ""), types);
    assert_eq!(newer(&story).get("wide").await.unwrap().spec.instance_types, ["l40s-4x", "a100-8x"]);
}
