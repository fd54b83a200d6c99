//! NodePoolLabelSets: the labels of the nodes of pools.
//!
//! All nodes of a plane are one operator's, so these stories take turns on a plane of their own.

use crate::seen;
use crate::story::{PATIENCE, Story, define, taints};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kubebid_controller::conditions::is_true;
use kubebid_operator::api::{
    ANNOTATION_MANAGED_LABELS, NodePoolLabelSet, NodePoolLabelSetStatus, POOL_LABELS, PREVIOUS_SUFFIX,
    TAINT_UNREGISTERED,
};
use kubebid_operator::control::LabelOptions;
use kubebid_operator::crds::{self, CrdOptions};
use kubebid_operator::plan::labels::LabelRules;
use kubebid_operator::policy;
use kubebid_testkit::{Account, Component, Plane};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

const EU: &str = "h100-8x/eu-west";
/// The label by which most of these stories put a node into a pool: not the most important one.
const POOL: &str = "agentpool";

/// A story with an operator whose sets are those of its namespace. Its requests are in the audit log.
struct Labels {
    story: Story,
    account: Account,
    _folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Labels {
    /// Begins with an operator that does nothing else.
    async fn begin(name: &str) -> Labels {
        let mut labels = Labels::without_operator(name).await;
        labels.start(&["--controllers", "labels"]);
        labels
    }

    async fn without_operator(name: &str) -> Labels {
        static TURN: Mutex<()> = Mutex::const_new(());
        static PLANE: OnceLock<Plane> = OnceLock::new();
        let turn = TURN.lock().await;
        let plane = PLANE.get_or_init(|| {
            let plane = Plane::start();
            define(&plane);
            plane
        });
        let mut story = Story::on(plane, name).await;
        let folder = tempfile::tempdir().unwrap();
        let account = story.account("labeller", folder.path());
        story.kubeconfig = account.kubeconfig().to_owned();
        Labels { story, account, _folder: folder, _turn: turn }
    }

    fn start(&mut self, more: &[&str]) {
        let namespace = self.story.namespace.clone();
        let arguments = [&["--label-set-namespace", &namespace], more].concat();
        self.story.start_operator(&arguments);
    }

    fn stop(&mut self) {
        self.story.operator = None;
    }

    fn sets(&self) -> Api<NodePoolLabelSet> {
        Api::namespaced(self.story.client.clone(), &self.story.namespace)
    }

    /// A name for a pool or a node that no other story has.
    fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.story.namespace)
    }

    /// Makes a set, or gives it these labels.
    async fn set(&self, name: &str, labels: Value) {
        self.try_set(name, labels).await.unwrap();
    }

    async fn try_set(&self, name: &str, labels: Value) -> Result<NodePoolLabelSet, kube::Error> {
        let set = json!({
            "apiVersion": "labels.banzaicloud.io/v1alpha1", "kind": "NodePoolLabelSet",
            "metadata": {"name": name}, "spec": {"labels": labels},
        });
        let params = PatchParams::apply("people").force();
        self.sets().patch(name, &params, &Patch::Apply(set)).await
    }

    /// Makes a node without a machine.
    async fn node(&self, name: &str, labels: Value) -> Node {
        let node = json!({"metadata": {"name": name, "labels": labels}});
        let node = serde_json::from_value(node).unwrap();
        self.story.nodes().create(&PostParams::default(), &node).await.unwrap()
    }

    async fn get(&self, name: &str) -> Node {
        self.story.nodes().get(name).await.unwrap()
    }

    /// Changes labels of a node as people do.
    async fn relabel(&self, name: &str, labels: Value) {
        self.patch(name, json!({"metadata": {"labels": labels}})).await;
    }

    async fn patch(&self, name: &str, patch: Value) {
        self.story.nodes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until a node is so.
    async fn until(&self, name: &str, what: &str, is_so: impl Fn(&Node) -> bool + Send) -> Node {
        let look = |node: Option<&Node>| node.is_some_and(&is_so);
        match timeout(PATIENCE, await_condition(self.story.nodes(), name, look)).await {
            Ok(node) => node.unwrap().unwrap(),
            Err(_) => {
                let node = self.get(name).await.metadata;
                panic!("never so: {name}: {what}: {node:#?}\n{}", self.story.operator.as_ref().unwrap().log())
            }
        }
    }

    /// Waits until a label of a node has this value, or is gone.
    async fn labelled(&self, name: &str, key: &str, value: Option<&str>) -> Node {
        let what = format!("label {key} is {value:?}");
        self.until(name, &what, |node| node.labels().get(key).map(String::as_str) == value).await
    }

    /// Waits until the status of a set is so.
    async fn until_set(
        &self,
        name: &str,
        what: &str,
        is_so: impl Fn(&NodePoolLabelSetStatus) -> bool + Send,
    ) -> NodePoolLabelSetStatus {
        let look = |set: Option<&NodePoolLabelSet>| {
            let current = set.filter(|set| {
                let observed = set.status.as_ref().and_then(|status| status.observed_generation);
                observed == set.metadata.generation
            });
            current.and_then(|set| set.status.as_ref()).is_some_and(&is_so)
        };
        match timeout(PATIENCE, await_condition(self.sets(), name, look)).await {
            Ok(set) => set.unwrap().unwrap().status.unwrap(),
            Err(_) => {
                let set = self.sets().get(name).await.unwrap();
                panic!("never so: {name}: {what}: {set:#?}\n{}", self.story.operator.as_ref().unwrap().log())
            }
        }
    }

    /// Waits until all nodes of a set have its labels, so many.
    async fn synced(&self, name: &str, nodes: u32) -> NodePoolLabelSetStatus {
        self.until_set(name, &format!("{nodes} nodes are synced"), |status| {
            (status.desired, status.updated) == (nodes, nodes) && is_true(&status.conditions, "Synced")
        })
        .await
    }

    /// The codes of the answers to the operator's patches of nodes, by the name of the node.
    fn patches(&self) -> BTreeMap<String, Vec<u64>> {
        let mut patches: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for event in self.account.requests() {
            if event["verb"] == "patch" && event["objectRef"]["resource"] == "nodes" {
                let name = event["objectRef"]["name"].as_str().unwrap().to_owned();
                patches.entry(name).or_default().push(event["responseStatus"]["code"].as_u64().unwrap());
            }
        }
        patches
    }

    /// The number of writes of the statuses of the story's sets.
    fn status_writes(&self) -> usize {
        let is_status = |it: &&Value| {
            let object = &it["objectRef"];
            it["verb"] == "patch"
                && object["resource"] == "nodepoollabelsets"
                && object["namespace"] == self.story.namespace.as_str()
        };
        self.account.requests().iter().filter(is_status).count()
    }

    fn patches_of(&self, node: &str) -> Vec<u64> {
        self.patches().remove(node).unwrap_or_default()
    }

    /// Waits until the audit log, which comes after the watches, has so many patches of a node.
    async fn logged(&self, node: &str, patches: usize) {
        let what = format!("{patches} patches of {node} in the audit log");
        self.story.eventually(&what, || async { self.made(node) >= patches }).await;
    }

    /// The number of patches of nodes.
    fn nodes_written(&self) -> usize {
        self.patches().values().map(Vec::len).sum()
    }

    /// Waits until the audit log has so many patches of nodes.
    async fn logged_in_all(&self, patches: usize) {
        let what = format!("{patches} patches of nodes in the audit log");
        self.story.eventually(&what, || async { self.nodes_written() >= patches }).await;
    }

    /// The number of patches of a node that were made: Kubernetes writes a new node too, and a patch may come too late.
    fn made(&self, node: &str) -> usize {
        self.patches_of(node).into_iter().filter(|code| *code == 200).count()
    }

    /// Waits until an event about a node says so.
    async fn told(&self, node: &str, reason: &str) -> Event {
        let events: Api<Event> = Api::all(self.story.client.clone());
        let find = async || {
            let found = events.list(&Default::default()).await.unwrap();
            found.into_iter().find(|event| {
                let regarding = event.regarding.as_ref().and_then(|it| it.name.as_deref());
                regarding == Some(node) && event.reason.as_deref() == Some(reason)
            })
        };
        self.story.eventually(reason, async || find().await.is_some()).await;
        find().await.unwrap()
    }

    fn signal(&self, signal: &str) {
        self.story.operator.as_ref().unwrap().signal(signal);
    }

    async fn metrics(&self) -> String {
        self.story.operator.as_ref().unwrap().page("/metrics").await
    }
}

fn annotation(node: &Node, suffix: &str) -> Option<String> {
    node.annotations().get(&format!("{ANNOTATION_MANAGED_LABELS}{suffix}")).cloned()
}

fn options(namespace: &str) -> LabelOptions {
    let rules = LabelRules::new(POOL_LABELS.map(str::to_owned).to_vec(), ANNOTATION_MANAGED_LABELS);
    LabelOptions { namespace: namespace.to_owned(), rules }
}

#[tokio::test]
async fn no_label_of_a_reserved_domain_is_written_for_the_annotations_of_a_node() {
    let mut labels = Labels::without_operator("reserved").await;
    let (pool, node) = (labels.name("pool"), labels.name("a"));
    let (theirs, role) = ("node-restriction.kubernetes.io/zone", "node-role.kubernetes.io/control-plane");
    labels.node(&node, json!({POOL: pool, theirs: "outside"})).await;
    labels.until(&node, "it is settled", is_settled).await;
    labels.set(&pool, json!({"tier": "gold"})).await;
    let claims = json!({
        ANNOTATION_MANAGED_LABELS: json!([theirs, role, "own"]).to_string(),
        format!("{ANNOTATION_MANAGED_LABELS}{PREVIOUS_SUFFIX}"): json!({role: "", "own": "1"}).to_string(),
    });
    labels.patch(&node, json!({"metadata": {"annotations": claims}})).await;
    labels.start(&["--controllers", "labels"]);
    let labelled = labels.labelled(&node, "tier", Some("gold")).await;
    // A label that the kubelet may write counts as it says.
    assert_eq!(labelled.labels().get("own").map(String::as_str), Some("1"));
    labels.synced(&pool, 1).await;
    labels.sets().delete(&pool, &DeleteParams::default()).await.unwrap();
    let freed = labels.labelled(&node, "tier", None).await;
    assert_eq!((freed.labels()[theirs].as_str(), freed.labels().get(role)), ("outside", None));
}

#[tokio::test]
async fn nodes_follow_the_set_of_their_pool_and_no_other() {
    let labels = Labels::begin("follow").await;
    let (pool, node, other) = (labels.name("pool"), labels.name("a"), labels.name("b"));
    labels.node(&other, json!({POOL: labels.name("other")})).await;
    let untouched = labels.until(&other, "it is settled", is_settled).await.resource_version();
    labels.node(&node, json!({POOL: pool, "theirs": "1"})).await;
    labels.until(&node, "it is settled", is_settled).await;
    labels.set(&pool, json!({"team": "ml", "tier": "gold"})).await;
    let labelled = labels.labelled(&node, "tier", Some("gold")).await;
    assert_eq!(labelled.labels()["team"], "ml", "both came at once");
    assert_eq!(annotation(&labelled, "").as_deref(), Some(r#"["team","tier"]"#));
    labels.synced(&pool, 1).await;
    // Added, changed, removed, in one patch.
    labels.set(&pool, json!({"tier": "silver", "zone": "z"})).await;
    let labelled = labels.labelled(&node, "tier", Some("silver")).await;
    assert_eq!(labelled.labels().get("team"), None);
    assert_eq!(labelled.labels()["zone"], "z");
    assert_eq!(annotation(&labelled, "").as_deref(), Some(r#"["tier","zone"]"#));
    labels.sets().delete(&pool, &DeleteParams::default()).await.unwrap();
    let bare = labels.labelled(&node, "tier", None).await;
    assert_eq!(bare.labels().get("zone"), None);
    assert_eq!(bare.labels()["theirs"], "1");
    assert_eq!((annotation(&bare, ""), annotation(&bare, PREVIOUS_SUFFIX)), (None, None));
    labels.logged(&node, 3).await;
    assert_eq!(labels.made(&node), 3);
    assert_eq!(labels.get(&other).await.resource_version(), untouched);
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Returns whether Kubernetes has written all to a node that it writes by itself.
fn is_settled(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let has_taint = taints.into_iter().any(|taint| taint.key.starts_with("node.kubernetes.io/"));
    is_ready(node) && !has_taint && node.annotations().contains_key("node.alpha.kubernetes.io/ttl")
}

#[tokio::test]
async fn a_value_that_was_there_before_comes_back() {
    let labels = Labels::begin("adopted").await;
    let (pool, node) = (labels.name("pool"), labels.name("a"));
    labels.node(&node, json!({POOL: pool, "team": "web", "tier": "gold"})).await;
    labels.set(&pool, json!({"team": "ml", "tier": "gold"})).await;
    let labelled = labels.labelled(&node, "team", Some("ml")).await;
    let previous = annotation(&labelled, PREVIOUS_SUFFIX);
    assert_eq!(previous.as_deref(), Some(r#"{"team":"web","tier":"gold"}"#));
    labels.set(&pool, json!({"tier": "gold"})).await;
    labels.labelled(&node, "team", Some("web")).await;
    labels.sets().delete(&pool, &DeleteParams::default()).await.unwrap();
    let bare = labels.until(&node, "no annotation", |node| annotation(node, "").is_none()).await;
    assert_eq!((bare.labels()["team"].as_str(), bare.labels()["tier"].as_str()), ("web", "gold"));
    assert_eq!(annotation(&bare, PREVIOUS_SUFFIX), None);
}

#[tokio::test]
async fn a_label_that_is_changed_by_hand_is_restored_in_one_pass() {
    let labels = Labels::begin("byhand").await;
    let (pool, node) = (labels.name("pool"), labels.name("a"));
    labels.set(&pool, json!({"team": "ml", "tier": "gold"})).await;
    labels.node(&node, json!({POOL: pool})).await;
    labels.until(&node, "it is settled", is_settled).await;
    labels.labelled(&node, "tier", Some("gold")).await;
    labels.synced(&pool, 1).await;
    labels.logged(&node, 1).await;
    let before = labels.made(&node);
    labels.relabel(&node, json!({"tier": null, "team": "web"})).await;
    let restored = labels.labelled(&node, "tier", Some("gold")).await;
    assert_eq!(restored.labels()["team"], "ml");
    labels.synced(&pool, 1).await;
    labels.logged(&node, before + 1).await;
    assert_eq!(labels.made(&node), before + 1);
}

#[tokio::test]
async fn a_more_important_label_that_comes_later_moves_the_node() {
    let labels = Labels::begin("moved").await;
    let (first, second, node) = (labels.name("first"), labels.name("second"), labels.name("a"));
    labels.set(&second, json!({"tier": "silver", "only": "second"})).await;
    // It names its own pool by the most important label, which moves no node out of it and keeps none in it.
    labels.set(&first, json!({"tier": "gold", POOL_LABELS[0]: first})).await;
    labels.node(&node, json!({POOL: second})).await;
    labels.labelled(&node, "tier", Some("silver")).await;
    labels.synced(&second, 1).await;
    labels.relabel(&node, json!({POOL_LABELS[1]: first})).await;
    let moved = labels.labelled(&node, "tier", Some("gold")).await;
    assert_eq!(moved.labels().get("only"), None);
    assert_eq!(moved.labels()[POOL_LABELS[0]], first);
    labels.synced(&first, 1).await;
    labels.synced(&second, 0).await;
    labels.relabel(&node, json!({POOL_LABELS[1]: null})).await;
    let back = labels.labelled(&node, "tier", Some("silver")).await;
    assert_eq!(back.labels().get(POOL_LABELS[0]), None);
    assert_eq!(back.labels()["only"], "second");
    labels.synced(&first, 0).await;
}

#[tokio::test]
async fn a_node_whose_pool_is_known_late_is_labelled_then() {
    let labels = Labels::begin("late").await;
    let (pool, node) = (labels.name("pool"), labels.name("a"));
    labels.set(&pool, json!({"tier": "gold"})).await;
    labels.node(&node, json!({"theirs": "1"})).await;
    labels.until(&node, "it is ready", is_ready).await;
    // The node controller gives a node up that has not renewed its lease for 30 s.
    labels.story.plane.stop(Component::Kwok);
    labels.until(&node, "it is unknown", |node| !is_ready(node)).await;
    labels.relabel(&node, json!({POOL: pool})).await;
    labels.labelled(&node, "tier", Some("gold")).await;
    labels.synced(&pool, 1).await;
    labels.logged(&node, 1).await;
    assert_eq!(labels.made(&node), 1);
    labels.story.plane.restart(Component::Kwok);
}

#[tokio::test]
async fn a_conflict_is_repeated_and_the_taints_of_others_stay() {
    let labels = Labels::begin("conflict").await;
    let (pool, node) = (labels.name("pool"), labels.name("a"));
    labels.node(&node, json!({POOL: pool})).await;
    let mut rounds = 0;
    // Somebody else writes the node until one of our patches comes too late.
    while !labels.patches_of(&node).contains(&409) {
        rounds += 1;
        assert!(rounds < 500, "no patch ever came too late");
        let taint = json!({"key": "theirs", "value": rounds.to_string(), "effect": "NoSchedule"});
        let (value, theirs) = (rounds.to_string(), json!({"spec": {"taints": [taint]}}));
        tokio::join!(labels.set(&pool, json!({"round": value})), labels.patch(&node, theirs));
        let labelled = labels.labelled(&node, "round", Some(&value)).await;
        let theirs = taints(&labelled);
        assert_eq!(theirs.len(), 1);
        assert_eq!(theirs[0].value.as_ref(), Some(&value), "the taint stays");
    }
    labels.synced(&pool, 1).await;
    let metrics = labels.metrics().await;
    assert!(metrics.contains(r#"reconcile_total{controller="labels",result="conflict"}"#), "{metrics}");
    assert!(!metrics.contains(r#"reconcile_total{controller="labels",result="cluster"}"#), "{metrics}");
}

#[tokio::test]
async fn a_corrupt_annotation_is_repaired_with_a_warning() {
    let labels = Labels::begin("corrupt").await;
    let (pool, node) = (labels.name("pool"), labels.name("a"));
    labels.set(&pool, json!({"tier": "gold"})).await;
    labels.node(&node, json!({POOL: pool})).await;
    labels.labelled(&node, "tier", Some("gold")).await;
    labels.story.annotate(&labels.story.nodes(), &node, ANNOTATION_MANAGED_LABELS, "nonsense").await;
    let repaired = r#"["tier"]"#;
    labels.until(&node, "it is repaired", |node| annotation(node, "").as_deref() == Some(repaired)).await;
    let event = labels.told(&node, "ManagedLabelsRepaired").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    labels.sets().delete(&pool, &DeleteParams::default()).await.unwrap();
    labels.labelled(&node, "tier", None).await;
}

#[tokio::test]
async fn a_node_that_is_deleted_while_it_is_queued_troubles_nobody() {
    let labels = Labels::begin("queued").await;
    let (pool, gone, stays) = (labels.name("pool"), labels.name("gone"), labels.name("stays"));
    labels.set(&pool, json!({"tier": "gold"})).await;
    for node in [&gone, &stays] {
        labels.node(node, json!({POOL: pool})).await;
        labels.labelled(node, "tier", Some("gold")).await;
    }
    labels.signal("STOP");
    labels.set(&pool, json!({"tier": "silver"})).await;
    labels.story.nodes().delete(&gone, &DeleteParams::default()).await.unwrap();
    labels.signal("CONT");
    labels.labelled(&stays, "tier", Some("silver")).await;
    labels.synced(&pool, 1).await;
    let metrics = labels.metrics().await;
    assert!(!metrics.contains(r#"reconcile_total{controller="labels",result="cluster"}"#), "{metrics}");
}

#[tokio::test]
async fn a_set_in_another_namespace_says_that_it_does_not_count() {
    let mut labels = Labels::without_operator("elsewhere").await;
    let (pool, node) = (labels.name("pool"), labels.name("a"));
    labels.set(&pool, json!({"tier": "gold"})).await;
    labels.node(&node, json!({POOL: pool})).await;
    let namespace = labels.story.namespace.clone();
    labels.story.start_operator(&["--controllers", "labels", "--label-set-namespace", "default"]);
    let status = labels
        .until_set(&pool, "it does not count", |status| {
            status.conditions.iter().any(|it| it.type_ == "Synced" && it.reason == "OtherNamespace")
        })
        .await;
    assert_eq!(status.desired, 0);
    assert!(status.conditions[0].message.contains("namespace default"), "{status:?}");
    assert_eq!(labels.get(&node).await.labels().get("tier"), None);
    // Its namespace becomes the operator's.
    assert_ne!(namespace, "default");
    labels.start(&["--controllers", "labels"]);
    labels.labelled(&node, "tier", Some("gold")).await;
    labels.synced(&pool, 1).await;
}

#[tokio::test]
async fn the_labels_of_pools_and_the_annotation_are_settings() {
    let mut labels = Labels::without_operator("settings").await;
    let (pool, other, node) = (labels.name("pool"), labels.name("other"), labels.name("a"));
    let pool_label = "example.com/pool";
    labels.set(&pool, json!({"tier": "gold"})).await;
    // The definition in the cluster does not know that this label names pools.
    labels.set(&other, json!({"tier": "silver", pool_label: pool})).await;
    labels.node(&node, json!({POOL: other, pool_label: pool, "tier": "old"})).await;
    let annotation = "example.com/from-set";
    let settings =
        ["--pool-labels", "example.com/first,example.com/pool", "--managed-labels-annotation", annotation];
    labels.start(&[&["--controllers", "labels"], &settings[..]].concat());
    let labelled = labels.labelled(&node, "tier", Some("gold")).await;
    let of = |name: &str| labelled.annotations().get(name).map(String::as_str);
    assert_eq!(of(annotation), Some(r#"["tier"]"#));
    assert_eq!(of("example.com/from-set-previous"), Some(r#"{"tier":"old"}"#));
    labels.synced(&pool, 1).await;
    let foreign = labels
        .until_set(&other, "it does not count", |status| {
            status.conditions.iter().any(|it| it.type_ == "Synced" && it.reason == "ForeignPool")
        })
        .await;
    assert!(foreign.conditions[0].message.contains(pool_label), "{foreign:?}");
    labels.sets().delete(&pool, &DeleteParams::default()).await.unwrap();
    labels.labelled(&node, "tier", Some("old")).await;
}

#[tokio::test]
async fn a_paused_set_leaves_its_nodes_alone() {
    let labels = Labels::begin("paused").await;
    let (pool, node, other) = (labels.name("pool"), labels.name("a"), labels.name("b"));
    labels.set(&pool, json!({"tier": "gold"})).await;
    labels.node(&node, json!({POOL: pool})).await;
    labels.labelled(&node, "tier", Some("gold")).await;
    labels.story.annotate(&labels.sets(), &pool, "labels.banzaicloud.io/paused", "true").await;
    labels.set(&pool, json!({"tier": "silver"})).await;
    // Another pool's node, made later, shows that the operator has seen both.
    labels.set(&labels.name("other"), json!({"tier": "bronze"})).await;
    labels.node(&other, json!({POOL: labels.name("other")})).await;
    labels.labelled(&other, "tier", Some("bronze")).await;
    labels.relabel(&node, json!({"tier": "mine"})).await;
    labels.relabel(&other, json!({"tier": "mine"})).await;
    labels.labelled(&other, "tier", Some("bronze")).await;
    assert_eq!(labels.get(&node).await.labels()["tier"], "mine");
    labels.story.annotate(&labels.sets(), &pool, "labels.banzaicloud.io/paused", "false").await;
    labels.labelled(&node, "tier", Some("silver")).await;
}

#[tokio::test]
async fn the_status_counts_the_nodes_of_the_pool() {
    let mut labels = Labels::begin("counts").await;
    let (pool, moved) = (labels.name("pool"), labels.name("moved"));
    labels.set(&pool, json!({"tier": "gold"})).await;
    labels.synced(&pool, 0).await;
    for number in 0..3 {
        labels.node(&labels.name(&number.to_string()), json!({POOL: pool})).await;
    }
    labels.synced(&pool, 3).await;
    labels.set(&moved, json!({"tier": "silver"})).await;
    labels.relabel(&labels.name("0"), json!({POOL: moved})).await;
    labels.story.nodes().delete(&labels.name("1"), &DeleteParams::default()).await.unwrap();
    labels.synced(&pool, 1).await;
    labels.synced(&moved, 1).await;
    // The API server refuses the label of a node that is added.
    forbid(&labels.story, &pool).await;
    labels.set(&pool, json!({"tier": pool})).await;
    let refused = labels
        .until_set(&pool, "the label is refused", |status| {
            status.conditions.iter().any(|it| it.type_ == "Synced" && it.reason == "Refused")
        })
        .await;
    assert_eq!((refused.desired, refused.updated), (1, 0));
    assert!(refused.conditions[0].message.contains("no such tier"), "{refused:?}");
    labels.set(&pool, json!({"tier": "iron"})).await;
    labels.synced(&pool, 1).await;
    labels.stop();
}

/// Forbids nodes of this tier, and waits until that holds.
async fn forbid(story: &Story, tier: &str) {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]});
    let expression = format!("object.metadata.?labels.tier.orValue('') != '{tier}'");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": tier},
        "spec": {
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": "no such tier"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": tier}, "spec": {"policyName": tier, "validationActions": ["Deny"]},
    });
    story.plane.apply(&policy.to_string());
    story.plane.apply(&binding.to_string());
    let probe: Node = serde_json::from_value(json!({"metadata": {"name": format!("probe-{tier}")}})).unwrap();
    story.nodes().create(&PostParams::default(), &probe).await.unwrap();
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"tier": tier}}}));
    let tried = PatchParams { dry_run: true, ..PatchParams::default() };
    story
        .eventually("the policy holds", || async {
            story.nodes().patch(&probe.name_any(), &tried, &labelled).await.is_err()
        })
        .await;
    story.nodes().delete(&probe.name_any(), &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn changes_are_made_up_for_when_the_operator_is_back() {
    let mut labels = Labels::begin("away").await;
    let (pool, other) = (labels.name("pool"), labels.name("other"));
    let nodes: Vec<_> = (0..50).map(|number| labels.name(&number.to_string())).collect();
    labels.set(&pool, json!({"tier": "gold", "team": "ml"})).await;
    labels.set(&other, json!({"tier": "silver"})).await;
    for node in &nodes {
        labels.node(node, json!({POOL: pool})).await;
    }
    labels.synced(&pool, 50).await;
    labels.stop();
    // Some move, some lose a label, some lose their pool; and the set changes.
    for (number, node) in nodes.iter().enumerate() {
        let change = match number % 3 {
            0 => json!({POOL: other}),
            1 => json!({"team": null}),
            _ => json!({POOL: null}),
        };
        labels.relabel(node, change).await;
    }
    labels.set(&pool, json!({"tier": "gold", "team": "web"})).await;
    let nodes_written = Labels::nodes_written;
    let before = nodes_written(&labels);
    labels.start(&["--controllers", "labels"]);
    labels.synced(&pool, 17).await;
    labels.synced(&other, 17).await;
    for (number, node) in nodes.iter().enumerate() {
        let (tier, team) = match number % 3 {
            0 => (Some("silver"), None),
            1 => (Some("gold"), Some("web")),
            _ => (None, None),
        };
        let labelled = labels.labelled(node, "tier", tier).await;
        assert_eq!(labelled.labels().get("team").map(String::as_str), team);
    }
    labels.logged_in_all(before + 50).await;
    let after = nodes_written(&labels);
    assert_eq!(after - before, 50, "one patch each");
    // Nothing is left to do at the next start.
    labels.start(&["--controllers", "labels"]);
    labels.relabel(&nodes[2], json!({POOL: pool})).await;
    labels.synced(&pool, 18).await;
    labels.logged_in_all(after + 1).await;
    assert_eq!(nodes_written(&labels), after + 1);
}

#[tokio::test]
async fn many_nodes_get_one_patch_each() {
    let labels = Labels::begin("many").await;
    let pool = labels.name("pool");
    for number in 0..200 {
        labels.node(&labels.name(&number.to_string()), json!({POOL: pool})).await;
    }
    for number in 0..200 {
        labels.until(&labels.name(&number.to_string()), "it is settled", is_settled).await;
    }
    let began = Instant::now();
    labels.set(&pool, json!({"tier": "gold"})).await;
    labels.synced(&pool, 200).await;
    labels.set(&pool, json!({"tier": "gold"})).await;
    labels.set(&pool, json!({"tier": "gold", "team": "ml"})).await;
    labels.synced(&pool, 200).await;
    labels.labelled(&labels.name("0"), "team", Some("ml")).await;
    labels.logged_in_all(400).await;
    let patches = labels.patches();
    let of_pool = patches.iter().filter(|(node, _)| node.starts_with(&labels.story.namespace));
    let counts: Vec<_> = of_pool.map(|(_, codes)| codes.as_slice()).collect();
    assert_eq!(counts, vec![[200, 200].as_slice(); 200], "the same set again is no patch");
    // Its first status at once, and then one a second at most.
    let (written, took) = (labels.status_writes(), began.elapsed());
    assert!(written as u64 <= took.as_secs() + 1, "{written} statuses within {took:?}");
}

#[tokio::test]
async fn with_the_policy_no_pod_ever_lands_on_a_bare_node_without_labels() {
    let mut labels = Labels::begin("policy").await;
    let (pool, namespace) = (labels.name("pool"), labels.story.namespace.clone());
    let set = json!({"tier": "gold", "team": "ml", POOL: pool});
    labels.set(&pool, set).await;
    let policy = policy::labels_yaml(&options(&namespace)).unwrap();
    labels.story.plane.apply(&policy);
    // A pod that may go to any node of the pool that has no tier.
    let untiered = json!({"key": "tier", "operator": "DoesNotExist"});
    let terms = json!([{"matchExpressions": [untiered]}]);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    labels.story.pod("waits", json!({"affinity": affinity, "nodeSelector": {POOL: pool}})).await;
    let probe: Node =
        serde_json::from_value(json!({"metadata": {"name": labels.name("probe"), "labels": {POOL: pool}}}))
            .unwrap();
    let tried = PostParams { dry_run: true, ..PostParams::default() };
    let nodes = labels.story.nodes();
    labels
        .story
        .eventually("the policy holds", || async {
            nodes.create(&tried, &probe).await.unwrap().labels().contains_key("tier")
        })
        .await;
    let ours = pool.clone();
    let unlabelled = seen::first_versions(labels.story.nodes(), move |node: &Node| {
        node.labels().get(POOL) == Some(&ours) && !node.labels().contains_key("tier")
    })
    .await;
    for number in 0..100 {
        labels.node(&labels.name(&number.to_string()), json!({POOL: pool, "team": "web"})).await;
    }
    labels.synced(&pool, 100).await;
    let node = labels.get(&labels.name("0")).await;
    assert_eq!(annotation(&node, "").as_deref(), Some(r#"["team","tier"]"#));
    assert_eq!(annotation(&node, PREVIOUS_SUFFIX).as_deref(), Some(r#"{"team":"web"}"#));
    assert_eq!(labels.patches_of(&labels.name("0")), [0_u64; 0], "there is nothing left for the operator");
    // The scheduler has looked at all nodes, and found none for the pod.
    labels
        .story
        .eventually("the pod found no node", || async {
            let all = labels.story.nodes().list(&Default::default()).await.unwrap().items.len();
            let pod = labels.story.pods().get("waits").await.unwrap();
            let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
            conditions
                .iter()
                .any(|it| it.message.as_ref().is_some_and(|it| it.contains(&format!("0/{all} nodes"))))
        })
        .await;
    assert!(unlabelled.lock().unwrap().is_empty());
    // Without the policy and the operator it does land.
    labels.story.plane.get(&["delete", "mutatingadmissionpolicybinding", policy::LABELS]);
    labels.stop();
    let nodes = labels.story.nodes();
    labels
        .story
        .eventually("the policy is gone", || async {
            !nodes.create(&tried, &probe).await.unwrap().labels().contains_key("tier")
        })
        .await;
    nodes.create(&PostParams::default(), &probe).await.unwrap();
    let lands = |pod: Option<&Pod>| pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_deref()).is_some();
    labels.story.until_pod("waits", "it lands on the bare node", lands).await;
    labels.story.plane.get(&["delete", "mutatingadmissionpolicy", policy::LABELS]);
}

#[tokio::test]
async fn a_node_of_a_bidnode_has_its_labels_before_any_pod_and_one_writer() {
    let mut labels = Labels::without_operator("bidnode").await;
    labels.start(&["--controllers", "bidnodes,labels"]);
    let pool = labels.name("gpu");
    let nodes = labels.story.nodes();
    // A version of a node that pods may be bound to, and that lacks a label.
    let ours = pool.clone();
    let bare = seen::first_versions(nodes, move |node: &Node| {
        let is_ours = node.labels().get("kubebid.io/bidnode") == Some(&ours);
        let taken = !taints(node).iter().any(|taint| taint.key == TAINT_UNREGISTERED);
        is_ours && taken && !node.labels().contains_key("tier")
    })
    .await;
    labels.set(&pool, json!({"tier": "gold", "team": "ml", "kubebid.io/bidnode": pool})).await;
    labels.story.market.open(EU, Duration::from_secs(20)).await;
    labels.story.market.offer(EU, 4, 1.0).await;
    let spec =
        json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2, "nodeSelector": {"team": "web"}});
    labels.story.bid(&pool, spec).await;
    let bidnode = labels.story.running(&pool, 2).await;
    assert!(bare.lock().unwrap().is_empty());
    let status = labels
        .until_set(&pool, "both nodes, with a conflict", |status| {
            (status.updated, status.conflicts) == (2, 2)
        })
        .await;
    assert!(is_true(&status.conditions, "Synced") && is_true(&status.conditions, "Conflict"), "{status:?}");
    assert!(status.conditions[1].message.contains("for team on"), "{status:?}");
    for node in labels.story.nodes_of(&bidnode).await {
        assert_eq!((node.labels()["tier"].as_str(), node.labels()["team"].as_str()), ("gold", "web"));
        assert_eq!(annotation(&node, "").as_deref(), Some(r#"["tier"]"#));
        labels.logged(&node.name_any(), 1).await;
        assert_eq!(labels.made(&node.name_any()), 1, "one patch registers and labels it");
    }
    // The set changes, and then the BidNode gives the key up.
    labels.set(&pool, json!({"tier": "silver", "team": "ml"})).await;
    for node in labels.story.nodes_of(&bidnode).await {
        labels.labelled(&node.name_any(), "tier", Some("silver")).await;
    }
    labels.story.change(&pool, json!({"nodeSelector": {"team": null}})).await;
    for node in labels.story.nodes_of(&bidnode).await {
        let name = node.name_any();
        let labelled = labels.labelled(&name, "team", Some("ml")).await;
        assert_eq!(annotation(&labelled, "").as_deref(), Some(r#"["team","tier"]"#));
        labels.logged(&name, 3).await;
        assert_eq!(labels.made(&name), 3, "one patch for each change");
    }
    labels
        .until_set(&pool, "no conflict is left", |status| (status.updated, status.conflicts) == (2, 0))
        .await;
    labels.sets().delete(&pool, &DeleteParams::default()).await.unwrap();
    for node in labels.story.nodes_of(&bidnode).await {
        let bare = labels.labelled(&node.name_any(), "tier", None).await;
        assert_eq!(annotation(&bare, ""), None);
    }
    labels.story.delete(&pool).await;
    labels.story.gone(&pool).await;
}

#[tokio::test]
async fn a_pod_that_needs_a_label_of_the_set_brings_a_node() {
    let mut labels = Labels::without_operator("demand").await;
    labels.start(&["--controllers", "bidnodes,labels"]);
    let (pool, tier) = (labels.name("gpu"), labels.name("gold"));
    labels.story.market.open(EU, Duration::from_secs(20)).await;
    labels.story.market.offer(EU, 4, 1.0).await;
    labels.story.bid(&pool, json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 0})).await;
    labels.story.running(&pool, 0).await;
    labels.story.pod("works", json!({"nodeSelector": {"tier": tier}})).await;
    labels.set(&pool, json!({"tier": tier})).await;
    let runs = |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()).is_some_and(|phase| phase == "Running")
    };
    labels.story.until_pod("works", "it runs", runs).await;
    labels.synced(&pool, 1).await;
    labels.story.delete(&pool).await;
    labels.story.gone(&pool).await;
}

#[tokio::test]
async fn nonsense_in_a_set_is_refused_and_own_names_are_not() {
    let labels = Labels::without_operator("refused").await;
    let pool = labels.name("pool");
    let refused = async |set: Value| match labels.try_set(&pool, set.clone()).await {
        Err(kube::Error::Api(status)) => {
            assert!(status.message.contains("spec.labels"), "{}", status.message)
        }
        other => panic!("{set} is taken: {other:?}"),
    };
    for key in ["kubernetes.io/x", "a.b.k8s.io/x", "kubebid.io/x", "-a", "a b", "a/b/c", ""] {
        refused(json!({key: "1"})).await;
    }
    for value in ["-a", "a b", "a/b", &"x".repeat(64)] {
        refused(json!({"a": value})).await;
    }
    for key in POOL_LABELS {
        refused(json!({key: "another"})).await;
    }
    labels
        .set(&pool, json!({"mykubernetes.io/x": "1", "kubernetes.io.example.com/y": "", "a": "B_c.d"}))
        .await;
    let own: BTreeMap<_, _> = POOL_LABELS.into_iter().map(|key| (key, pool.as_str())).collect();
    labels.set(&pool, json!(own)).await;
    // More domains may be reserved.
    let options =
        CrdOptions { reserved_label_domains: vec!["example.com".to_owned()], ..CrdOptions::default() };
    labels.story.plane.apply(&crds::yaml(&options).unwrap());
    let taken = json!({"myexample.com/x": "1"});
    labels
        .story
        .eventually("the domain is reserved", || async {
            labels.try_set(&pool, json!({"a.example.com/x": "1"})).await.is_err()
        })
        .await;
    labels.set(&pool, taken).await;
    labels.story.plane.apply(&crds::yaml(&CrdOptions::default()).unwrap());
}

#[tokio::test]
async fn without_the_definition_the_operator_says_so() {
    let mut story = Story::alone("undefined").await;
    story.plane.get(&["delete", "crd", "nodepoollabelsets.labels.banzaicloud.io"]);
    // By default it does the rest.
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 4, 1.0).await;
    story.start_everywhere();
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    story.running("gpu", 1).await;
    let missing = "NodePoolLabelSet is not defined in the cluster";
    let is_said = || story.operator.as_ref().unwrap().log().contains(missing);
    story.eventually("it says so", || std::future::ready(is_said())).await;
    story.start_operator(&["--controllers", "labels"]);
    let operator = story.operator.as_mut().unwrap();
    timeout(PATIENCE, operator.ended()).await.expect("it ends");
    assert!(operator.log().contains(missing), "{}", operator.log());
}

#[test]
fn settings_come_from_flags_the_environment_and_a_file() {
    let run = |file: &str, more: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, file).unwrap();
        let ended = Command::new(env!("CARGO_BIN_EXE_kubebid-operator"))
            .args(["run", "--dump-config", "--config"])
            .arg(&path)
            .args(more)
            .env("KUBEBID_OPERATOR_LEASE_SECONDS", "30")
            .env("KUBEBID_OPERATOR_LABEL_SET_NAMESPACE", "of-environment")
            .output()
            .unwrap();
        let said = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
        (ended.status.success(), said)
    };
    let file = "controllers: [labels]\nlease-seconds: 20\nlabel-set-namespace: of-file\nidentity: me\n";
    let (succeeded, said) = run(file, &["--lease-seconds", "40"]);
    assert!(succeeded, "{said}");
    for line in ["lease-seconds: 40", "label-set-namespace: of-environment", "identity: me", "- labels"] {
        assert!(said.lines().any(|it| it == line), "{line} is not in\n{said}");
    }
    // What is printed is such a file.
    assert_eq!(run(&said, &["--lease-seconds", "40"]), (true, said));
    let (succeeded, said) = run("leese-seconds: 20\n", &[]);
    assert!(!succeeded && said.contains("leese-seconds: there is no such setting"), "{said}");
}
