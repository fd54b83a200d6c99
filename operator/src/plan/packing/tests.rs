//! Tests of the packing: pods, nodes that come late or smaller, and several pools.

use super::*;
use crate::plan::resources::{Resources, requests};
use crate::plan::room::fit;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

fn asks(gpus: u32) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": gpus.to_string()}}}],
           "tolerations": [{"key": "gpu", "operator": "Exists"}]})
}

fn template() -> NodeTemplate {
    let free = [("cpu", "8"), ("memory", "64Gi"), ("nvidia.com/gpu", "8"), ("pods", "110")];
    let free: BTreeMap<String, Quantity> =
        free.into_iter().map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).collect();
    NodeTemplate {
        labels: vec![BTreeMap::from([("pool".to_owned(), "gpu".to_owned())])],
        taints: vec![Taint { key: "gpu".into(), effect: "NoSchedule".into(), ..Taint::default() }],
        promised: Resources::parse(&free),
        free: Resources::parse(&free),
        min_gpus: 0,
    }
}

fn resources(of: &[(&str, &str)]) -> Resources {
    let of: BTreeMap<String, Quantity> =
        of.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect();
    Resources::parse(&of)
}

/// Returns a pool with this template, without nodes, that may place any number of bids.
fn pool(template: NodeTemplate) -> Pool {
    Pool {
        uid: "u".to_owned(),
        name: "default/gpu".to_owned(),
        weight: 0,
        price_micros: None,
        template,
        open: Vec::new(),
        coming: Vec::new(),
        overdue: Vec::new(),
        bids: 0,
        stale_bids: 0,
        spare: 1_000,
        not_helped: BTreeSet::new(),
    }
}

/// Returns an empty node with these resources.
fn node(free: Resources) -> OpenNode {
    OpenNode { name: "gpu-0".to_owned(), free, pods: Vec::new(), moving_pods: 0, is_settled: false }
}

fn pending<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Vec<PendingPod<'a>> {
    pods.into_iter()
        .map(|pod| PendingPod { pod, wanted: requests(pod), refused: None, missing_volume: None })
        .collect()
}

/// Returns the number of bids that these pods need with these open nodes.
fn nodes_needed<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    template: &NodeTemplate,
    open: &[OpenNode],
) -> usize {
    let pool = Pool { open: open.to_vec(), ..pool(template.clone()) };
    pack(&pending(pods), &[pool])[0].needed
}

fn needed(specs: &[Value]) -> usize {
    let pods: Vec<_> = specs.iter().cloned().map(pod).collect();
    nodes_needed(&pods, &template(), &[])
}

fn with(mut spec: Value, key: &str, value: Value) -> Value {
    spec[key] = value;
    spec
}

#[test]
fn pods_share_nodes_first_fit() {
    assert_eq!(needed(&[]), 0);
    assert_eq!(needed(&[asks(4), asks(4)]), 1);
    assert_eq!(needed(&[asks(5), asks(5), asks(3), asks(3)]), 2);
    assert_eq!(needed(&[asks(9)]), 0, "no node of the type is large enough");
}

#[test]
fn a_node_that_is_won_has_the_room_of_its_type() {
    let gpus = |count: &str| resources(&[("nvidia.com/gpu", count), ("pods", "110")]);
    let small = NodeTemplate { free: gpus("4"), ..template() };
    let pods = [pod(asks(4)), pod(asks(4)), pod(asks(4))];
    let needed = |coming: &[Resources]| {
        let coming = coming.iter().cloned().map(node).collect();
        pack(&pending(&pods), &[Pool { coming, ..pool(small.clone()) }])[0].needed
    };
    assert_eq!(needed(&[]), 3);
    assert_eq!(needed(&[gpus("4")]), 2);
    assert_eq!(needed(&[gpus("8")]), 1);
    assert_eq!(needed(&[gpus("8"), gpus("8"), gpus("8")]), 0);
}

#[test]
fn a_pod_must_suit_every_type_of_a_set() {
    let labels = |kind: &str| BTreeMap::from([("type".to_owned(), kind.to_owned())]);
    let both = NodeTemplate { labels: vec![labels("a"), labels("b")], ..template() };
    let affine = |operator: &str, values: &[&str]| {
        let term = json!({"matchExpressions": [{"key": "type", "operator": operator, "values": values}]});
        let required = json!({"nodeSelectorTerms": [term]});
        let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
        pod(with(asks(1), "affinity", json!({"nodeAffinity": affinity})))
    };
    let needed = |pod: Pod| nodes_needed([&pod], &both, &[]);
    assert_eq!(needed(pod(asks(1))), 1);
    assert_eq!(needed(pod(with(asks(1), "nodeSelector", json!({"type": "a"})))), 0);
    assert_eq!((needed(affine("In", &["a"])), needed(affine("In", &["a", "b"]))), (0, 1));
    assert_eq!((needed(affine("NotIn", &["b"])), needed(affine("NotIn", &["c"]))), (0, 1));
}

#[test]
fn what_fits_on_a_ready_node_needs_no_other() {
    let pods = [pod(asks(4)), pod(asks(8))];
    let half = template().free.without(&[pod(asks(4))]);
    assert_eq!(nodes_needed(&pods, &template(), &[node(half)]), 1);
}

#[test]
fn pods_fit_on_others_all_or_not() {
    let half = || Room { free: template().free.without(&[pod(asks(4))]), pods: Vec::new() };
    assert!(fit(&[pod(asks(4)), pod(asks(2))], &[half(), half()]));
    assert!(!fit(&[pod(asks(3)), pod(asks(3))], &[half()]));
    assert!(fit(&[], &[]));
}

#[test]
fn pods_that_keep_each_other_away_need_a_node_each() {
    let labelled = |app: &str| {
        let term =
            json!({"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"});
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        let mut pod = pod(with(asks(1), "affinity", json!({"podAntiAffinity": required})));
        pod.metadata.labels = Some(BTreeMap::from([("app".to_owned(), app.to_owned())]));
        pod
    };
    let two = [labelled("a"), labelled("a")];
    assert_eq!(nodes_needed(&two, &template(), &[]), 2);
    let taken = OpenNode { pods: vec![Arc::new(two[0].clone())], moving_pods: 1, ..node(template().free) };
    assert_eq!(nodes_needed(&two[1..], &template(), std::slice::from_ref(&taken)), 1);
    assert!(!fit(&two[1..], &[taken.room()]));
    // One that is kept away by the other counts as well, and one that no selector matches does not.
    let (mut mild, other) = (pod(asks(1)), labelled("b"));
    assert_eq!(nodes_needed([&mild], &template(), std::slice::from_ref(&taken)), 0);
    mild.metadata.labels = two[0].metadata.labels.clone();
    assert_eq!(nodes_needed([&mild], &template(), std::slice::from_ref(&taken)), 1);
    assert_eq!(nodes_needed([&other, &pod(asks(1))], &template(), &[]), 1);
}

#[test]
fn pods_that_request_too_few_gpus_together_bring_no_node() {
    let small = NodeTemplate { taints: Vec::new(), min_gpus: 4, ..template() };
    let cpu = || pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}));
    assert_eq!(nodes_needed(&[cpu(), cpu(), cpu()], &small, &[]), 0);
    assert_eq!(nodes_needed(&[cpu(), pod(asks(3))], &small, &[]), 0);
    assert_eq!(nodes_needed(&[cpu(), pod(asks(2)), pod(asks(2))], &small, &[]), 1);
}

#[test]
fn a_node_must_have_the_labels_and_no_taint_against_the_pod() {
    let selector = |value: &str| with(asks(1), "nodeSelector", json!({"pool": value}));
    assert_eq!(needed(&[selector("gpu")]), 1);
    assert_eq!(needed(&[selector("cpu")]), 0);
    assert_eq!(needed(&[with(asks(1), "tolerations", json!([]))]), 0);
    assert_eq!(needed(&[with(asks(1), "tolerations", json!([{"operator": "Exists"}]))]), 1);
    let other = json!([{"key": "gpu", "value": "x"}]);
    assert_eq!(needed(&[with(asks(1), "tolerations", other)]), 0);
}

#[test]
fn required_affinity_is_looked_at() {
    let affinity = |operator: &str, values: &[&str]| {
        let term = json!({"matchExpressions": [{"key": "pool", "operator": operator, "values": values}]});
        let required = json!({"nodeSelectorTerms": [term]});
        with(
            asks(1),
            "affinity",
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}),
        )
    };
    assert_eq!(needed(&[affinity("In", &["gpu", "cpu"])]), 1);
    assert_eq!(needed(&[affinity("NotIn", &["gpu"])]), 0);
    assert_eq!(needed(&[affinity("Exists", &[])]), 1);
    assert_eq!(needed(&[affinity("DoesNotExist", &[])]), 0);
}

#[test]
fn initial_containers_and_sidecars_count_as_they_run() {
    let container = |gpus: u32, policy: Option<&str>| {
        let mut it = json!({"name": "i", "resources": {"requests": {"nvidia.com/gpu": gpus.to_string()}}});
        if let Some(policy) = policy {
            it["restartPolicy"] = json!(policy);
        }
        it
    };
    let spec = |init: Value| with(asks(4), "initContainers", init);
    assert_eq!(needed(&[spec(json!([container(4, None)])), asks(4)]), 1);
    assert_eq!(needed(&[spec(json!([container(5, None)])), asks(4)]), 2);
    assert_eq!(needed(&[spec(json!([container(1, Some("Always"))])), asks(4)]), 2);
}

/// Returns the pools `a` and `b`, each for itself with this change.
fn two_pools(change: impl Fn(&mut Pool, &mut Pool)) -> [Pool; 2] {
    let named = |name: &str| Pool { uid: name.to_owned(), name: name.to_owned(), ..pool(template()) };
    let mut pools = [named("a"), named("b")];
    let [a, b] = &mut pools;
    change(a, b);
    sort(&mut pools);
    pools
}

/// Returns the bids of each pool for these pods, as in `a2 b0`.
fn bids(pods: &[Pod], pools: &[Pool]) -> String {
    let parts = pack(&pending(pods), pools);
    let mut said: Vec<_> =
        pools.iter().zip(parts).map(|(pool, part)| format!("{}{}", pool.name, part.needed)).collect();
    said.sort();
    said.join(" ")
}

#[test]
fn a_pod_that_two_pools_fit_brings_one_node() {
    let pods = [pod(asks(8)), pod(asks(8)), pod(asks(8))];
    assert_eq!(bids(&pods, &two_pools(|_, _| {})), "a3 b0", "by name");
    let cheap = |price| Some(price);
    assert_eq!(
        bids(&pods, &two_pools(|a, b| (a.price_micros, b.price_micros) = (cheap(2), cheap(1)))),
        "a0 b3"
    );
    assert_eq!(bids(&pods, &two_pools(|a, b| (a.price_micros, b.weight) = (cheap(1), 1))), "a0 b3");
    assert_eq!(bids(&pods, &two_pools(|a, _| a.spare = 1)), "a1 b2", "up to its limit");
}

#[test]
fn the_next_pool_gets_a_pod_that_has_waited_and_keeps_it() {
    let pods = [pod(asks(8))];
    assert_eq!(bids(&pods, &two_pools(|a, _| a.bids = 1)), "a1 b0");
    assert_eq!(
        bids(&pods, &two_pools(|a, _| a.stale_bids = 1)),
        "a0 b1",
        "the first bid has waited for too long"
    );
    assert_eq!(bids(&pods, &two_pools(|a, b| (a.stale_bids, b.bids) = (1, 1))), "a0 b1");
    assert_eq!(bids(&pods, &two_pools(|_, b| b.bids = 1)), "a0 b1", "the bid of the second goes on");
    let won = |pool: &mut Pool| pool.coming = vec![node(template().free)];
    assert_eq!(
        bids(
            &pods,
            &two_pools(|a, b| {
                won(a);
                b.bids = 1;
            })
        ),
        "a0 b0",
        "the first has won after all"
    );
    assert_eq!(
        bids(&pods, &two_pools(|a, b| (a.stale_bids, b.spare) = (1, 0))),
        "a1 b0",
        "no other takes it"
    );
    let two = [pod(asks(8)), pod(asks(8))];
    assert_eq!(bids(&two, &two_pools(|a, b| (a.stale_bids, b.spare) = (1, 0))), "a2 b0");
}

/// Returns the cause for which a pool does not help a pod that the scheduler has refused.
fn cause_of(asked: u32, pool: Pool) -> (usize, Option<Cause>) {
    let pod = pod(asks(asked));
    let refused = [PendingPod {
        pod: &pod,
        wanted: requests(&pod),
        refused: Some("0/1 nodes are available"),
        missing_volume: None,
    }];
    let part = pack(&refused, &[pool]).remove(0);
    (part.needed, part.not_helped.into_iter().next().map(|it| it.cause))
}

#[test]
fn a_node_that_came_and_did_not_help_is_the_last_one() {
    let settled = OpenNode { is_settled: true, ..node(template().free) };
    let (needed, cause) = cause_of(8, Pool { open: vec![settled.clone()], ..pool(template()) });
    assert_eq!((needed, cause.map(|it| it.cost_a_node())), (0, Some(true)), "an empty node is there");
    let busy = OpenNode { moving_pods: 1, ..settled.clone() };
    assert_eq!(cause_of(8, Pool { open: vec![busy], ..pool(template()) }), (1, None), "others use the node");
    let fresh = OpenNode { is_settled: false, ..settled };
    assert_eq!(
        cause_of(8, Pool { open: vec![fresh], ..pool(template()) }),
        (0, None),
        "the scheduler may bind it yet"
    );

    let smaller = NodeTemplate { free: resources(&[("nvidia.com/gpu", "7"), ("pods", "110")]), ..template() };
    let (needed, cause) = cause_of(8, pool(smaller));
    let clause = cause.unwrap().clause();
    assert_eq!((needed, &clause[..]), (0, "it requests 8 of nvidia.com/gpu, and an empty node has 7"));
    assert_eq!(cause_of(9, pool(template())), (0, None), "the pod was not made for this pool");

    let overdue = OverdueNode { name: "gpu-0".to_owned(), lack: Lack::Resource("nvidia.com/gpu".to_owned()) };
    let (needed, cause) = cause_of(8, Pool { overdue: vec![overdue], ..pool(template()) });
    assert_eq!(
        (needed, cause.unwrap().clause()),
        (0, "node gpu-0 is ready without nvidia.com/gpu".to_owned())
    );

    let pod = Pod { metadata: serde_json::from_value(json!({"uid": "p"})).unwrap(), ..pod(asks(8)) };
    let known = Pool { not_helped: BTreeSet::from(["p".to_owned()]), ..pool(template()) };
    assert_eq!(pack(&pending([&pod]), &[known])[0].needed, 0, "it is remembered");
}

#[test]
fn a_pod_that_waits_for_its_volume_brings_no_node() {
    let pod = pod(asks(8));
    let waits = [PendingPod {
        pod: &pod,
        wanted: requests(&pod),
        refused: None,
        missing_volume: Some("persistentvolumeclaim \"d\" not found"),
    }];
    let part = pack(&waits, &[pool(template())]).remove(0);
    assert_eq!((part.needed, part.not_helped.len()), (0, 1));
}

#[test]
fn host_ports_and_spread_over_nodes_need_a_node_each() {
    let port = |port: u16| {
        pod(json!({"containers": [{"name": "c", "ports": [{"containerPort": port, "hostPort": port}]}],
        "tolerations": [{"operator": "Exists"}]}))
    };
    assert_eq!(nodes_needed(&[port(80), port(80), port(81)], &template(), &[]), 2);
    let spread = |min_domains: Option<u32>| {
        let constraint = json!({"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "a"}}, "minDomains": min_domains});
        let mut pod = pod(with(asks(1), "topologySpreadConstraints", json!([constraint])));
        pod.metadata.labels = Some(BTreeMap::from([("app".to_owned(), "a".to_owned())]));
        pod
    };
    let three = |min_domains| [spread(min_domains), spread(min_domains), spread(min_domains)];
    assert_eq!(nodes_needed(&three(None), &template(), &[]), 1);
    assert_eq!(nodes_needed(&three(Some(3)), &template(), &[]), 3);
}

#[test]
fn pods_that_belong_together_share_a_node() {
    let together = |app: &str, to: &str| {
        let term =
            json!({"labelSelector": {"matchLabels": {"app": to}}, "topologyKey": "kubernetes.io/hostname"});
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        let mut pod = pod(with(asks(1), "affinity", json!({"podAffinity": required})));
        pod.metadata.labels = Some(BTreeMap::from([("app".to_owned(), app.to_owned())]));
        pod
    };
    assert_eq!(nodes_needed(&[together("a", "a"), together("a", "a")], &template(), &[]), 1);
    assert_eq!(
        nodes_needed(&[together("a", "b")], &template(), &[]),
        0,
        "no node has what it must be beside"
    );
}
