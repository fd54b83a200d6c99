//! A namespace, a market, and an operator.

use crate::market::Market;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Client, Config};
use kubebid_operator::api::{BidNode, BidNodeStatus, BidSlot, LABEL_UID};
use kubebid_operator::crds::{self, CrdOptions};
use kubebid_testkit::{Account, Plane, PlaneEnd, Process};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// The same, for kubectl.
pub(crate) const PATIENT: &str = "--timeout=90s";

/// The plane that the stories share, with the definitions in it.
pub(crate) fn plane() -> &'static Plane {
    static DEFINED: OnceLock<()> = OnceLock::new();
    let plane = Plane::shared();
    DEFINED.get_or_init(|| define(plane));
    plane
}

pub(crate) fn define(plane: &Plane) {
    plane.apply(&crds::yaml(&CrdOptions::default()).unwrap());
    for crd in ["bidnodes.kubebid.io", "bidslots.kubebid.io", "nodepoollabelsets.labels.banzaicloud.io"] {
        plane.get(&["wait", "--for=condition=Established", &format!("crd/{crd}"), PATIENT]);
    }
}

/// A client as administrator.
pub(crate) async fn client(plane: &Plane) -> Client {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// A name that no other story has.
fn fresh(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) struct Story {
    pub(crate) plane: &'static Plane,
    pub(crate) namespace: String,
    pub(crate) market: Market,
    pub(crate) client: Client,
    /// Who the operator is in the cluster.
    pub(crate) kubeconfig: PathBuf,
    /// The operator's program.
    pub(crate) program: PathBuf,
    pub(crate) operator: Option<Process>,
    /// Ends a plane of its own, after the operator.
    _end: Option<PlaneEnd>,
}

impl Story {
    /// Begins with a running operator.
    pub(crate) async fn begin(name: &str) -> Story {
        let mut story = Story::without_operator(name).await;
        story.start_operator(&[]);
        story
    }

    pub(crate) async fn without_operator(name: &str) -> Story {
        Story::on(plane(), name).await
    }

    /// On a plane of its own, which may be disturbed.
    pub(crate) async fn alone(name: &str) -> Story {
        Story::alone_with_grace(name, 30).await
    }

    /// The same, with nodes that are Unknown after so many seconds without a word.
    pub(crate) async fn alone_with_grace(name: &str, seconds: u32) -> Story {
        let (plane, end) = Plane::start_with_grace(seconds).leak();
        define(plane);
        Story { _end: Some(end), ..Story::on(plane, name).await }
    }

    /// On a plane that some stories share.
    pub(crate) async fn on(plane: &'static Plane, name: &str) -> Story {
        let client = client(plane).await;
        let namespace = fresh(name);
        let metadata = ObjectMeta { name: Some(namespace.clone()), ..ObjectMeta::default() };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let params = PostParams::default();
        namespaces.create(&params, &Namespace { metadata, ..Namespace::default() }).await.unwrap();
        let (market, kubeconfig) = (Market::start().await, plane.kubeconfig());
        let program = env!("CARGO_BIN_EXE_kubebid-operator").into();
        Story { plane, namespace, market, client, kubeconfig, program, operator: None, _end: None }
    }

    /// Makes a service account in the namespace that may do anything, for an operator whose requests are looked at.
    pub(crate) fn account(&self, name: &str, folder: &Path) -> Account {
        Account::administrator(self.plane, &self.namespace, name, folder)
    }

    /// An operator for all namespaces: on a plane of its own only.
    pub(crate) fn start_everywhere(&mut self) {
        self.operator = Some(spawn(self, &["--alone"]));
    }

    /// Another namespace with the same operator; its market is not used.
    pub(crate) async fn neighbour(&self, name: &str) -> Story {
        Story::on(self.plane, name).await
    }

    pub(crate) fn start_operator(&mut self, more: &[&str]) {
        self.operator = None;
        self.operator = Some(self.start_replica(more));
    }

    /// Starts a replica of the operator, beside others if it has a Lease.
    pub(crate) fn start_replica(&self, more: &[&str]) -> Process {
        start(self, more)
    }

    /// Starts a replica that serves webhooks at an address.
    pub(crate) fn start_webhook(&self, address: SocketAddr) -> Process {
        let lease = ["--lease-namespace", &self.namespace, "--lease-name", "operator"];
        let webhook = ["--webhook-listen", &address.to_string(), "--webhook-name", "127.0.0.1"];
        self.start_replica(&[lease, webhook].concat())
    }

    pub(crate) fn bidnodes(&self) -> Api<BidNode> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn slots(&self) -> Api<BidSlot> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Makes a BidNode of this specification.
    pub(crate) async fn bid(&self, name: &str, spec: Value) -> BidNode {
        self.try_bid(name, spec).await.unwrap()
    }

    pub(crate) async fn try_bid(&self, name: &str, spec: Value) -> Result<BidNode, kube::Error> {
        let object = json!({
            "apiVersion": "kubebid.io/v1", "kind": "BidNode",
            "metadata": {"name": name, "annotations": {"kubebid.io/release-empty-after": "2s"}},
            "spec": spec,
        });
        self.bidnodes().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await
    }

    pub(crate) async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.bidnodes().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the status of a BidNode is so.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        is_so: impl Fn(&BidNodeStatus) -> bool + Send,
    ) -> BidNode {
        let look = |node: Option<&BidNode>| node.and_then(|node| node.status.as_ref()).is_some_and(&is_so);
        match timeout(PATIENCE, await_condition(self.bidnodes(), name, look)).await {
            Ok(node) => node.unwrap().unwrap(),
            Err(_) => self.fail(name, what).await,
        }
    }

    /// Waits until something is so that no watch tells.
    pub(crate) async fn eventually<F: Future<Output = bool>>(
        &self,
        what: &str,
        mut is_so: impl FnMut() -> F,
    ) {
        let wait = async {
            while !is_so().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if timeout(PATIENCE, wait).await.is_err() {
            self.fail("", what).await
        }
    }

    pub(crate) async fn fail(&self, name: &str, what: &str) -> ! {
        let node = self.bidnodes().get_opt(name).await;
        let slots = self.slots().list(&Default::default()).await.unwrap();
        let slots: Vec<_> = slots
            .items
            .iter()
            .map(|slot| json!({"name": slot.metadata.name, "spec": slot.spec, "status": slot.status}))
            .collect();
        panic!(
            "never so: {what}\n{}\n{}\n{}",
            serde_json::to_string_pretty(&node.ok().flatten().map(|node| node.status)).unwrap(),
            serde_json::to_string_pretty(&slots).unwrap(),
            self.operator.as_ref().map_or(String::new(), Process::log),
        )
    }

    /// Waits until so many nodes of a BidNode are ready.
    pub(crate) async fn running(&self, name: &str, nodes: u32) -> BidNode {
        self.until(name, &format!("{nodes} nodes run"), |status| {
            status.active_nodes == nodes && status.pending_bids == 0
        })
        .await
    }

    pub(crate) async fn nodes_of(&self, node: &BidNode) -> Vec<Node> {
        let uid = node.metadata.uid.clone().unwrap();
        let params = kube::api::ListParams::default().labels(&format!("{LABEL_UID}={uid}"));
        self.nodes().list(&params).await.unwrap().items
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.bidnodes().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until a BidNode is gone.
    pub(crate) async fn gone(&self, name: &str) {
        let gone = await_condition(self.bidnodes(), name, |node: Option<&BidNode>| node.is_none());
        if timeout(PATIENCE, gone).await.is_err() {
            self.fail(name, "it is gone").await
        }
    }

    /// A pod that only nodes of this label take.
    pub(crate) async fn pod(&self, name: &str, spec: Value) -> Pod {
        let mut all = json!({
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "work"}],
            "tolerations": [],
        });
        for (key, value) in spec.as_object().unwrap() {
            all[key] = value.clone();
        }
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": all});
        self.pods().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// The pod of this label may not be disrupted.
    pub(crate) fn protect(&self, app: &str) {
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": app, "namespace": self.namespace},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": app}}},
        });
        self.plane.apply(&budget.to_string());
        let counted = "jsonpath={.status.currentHealthy}=1";
        self.plane.get(&["-n", &self.namespace, "wait", &format!("pdb/{app}"), "--for", counted, PATIENT]);
    }

    /// Waits until a condition of a BidNode has this status and reason; returns its message.
    pub(crate) async fn says(&self, name: &str, type_: &str, status: &str, reason: &str) -> String {
        let said = |it: &Condition| it.type_ == type_ && it.status == status && it.reason == reason;
        let what = format!("{type_} is {status}: {reason}");
        let node = self.until(name, &what, |status| status.conditions.iter().any(said)).await;
        let conditions = node.status.unwrap().conditions;
        conditions.into_iter().find(said).unwrap().message
    }

    /// A Deployment of one pod that only nodes of this pool take, and that needs so many GPUs.
    pub(crate) fn deploy(&self, name: &str, pool: &str, gpus: u32) {
        self.deploy_slow(name, pool, gpus, 1);
    }

    /// The same, with a pod that takes so many seconds to end.
    pub(crate) fn deploy_slow(&self, name: &str, pool: &str, gpus: u32, grace: u32) {
        let gpus = json!({"nvidia.com/gpu": gpus.to_string()});
        let template = json!({
            "metadata": {"labels": {"app": name}},
            "spec": {
                "terminationGracePeriodSeconds": grace, "nodeSelector": {"pool": pool},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "containers": [{"name": "main", "image": "work", "resources": {"requests": gpus, "limits": gpus}}],
            },
        });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template},
        });
        self.plane.apply(&deployment.to_string());
    }

    /// The pod of a Deployment that runs, and is not ending.
    pub(crate) async fn runs(&self, app: &str) -> Option<Pod> {
        let params = kube::api::ListParams::default().labels(&format!("app={app}"));
        let pods = self.pods().list(&params).await.unwrap().items;
        pods.into_iter().find(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            pod.metadata.deletion_timestamp.is_none() && phase == Some("Running")
        })
    }

    /// The node on which the pod of a Deployment runs, once it does.
    pub(crate) async fn home_of(&self, app: &str) -> String {
        self.eventually(&format!("{app} runs"), || async { self.runs(app).await.is_some() }).await;
        self.runs(app).await.and_then(|pod| pod.spec?.node_name).unwrap_or_default()
    }

    pub(crate) async fn annotate<K>(&self, api: &Api<K>, name: &str, key: &str, value: &str)
    where
        K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn until_pod(
        &self,
        name: &str,
        what: &str,
        is_so: impl Fn(Option<&Pod>) -> bool + Send,
    ) -> Option<Pod> {
        match timeout(PATIENCE, await_condition(self.pods(), name, |pod: Option<&Pod>| is_so(pod))).await {
            Ok(pod) => pod.unwrap(),
            Err(_) => self.fail("", what).await,
        }
    }
}

/// The taints of a node that Kubernetes does not come and go with by itself.
pub(crate) fn taints(node: &Node) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| !taint.key.starts_with("node.kubernetes.io/")).cloned().collect()
}

/// Starts `kubebid-operator run` for the namespace of a story.
fn start(story: &Story, more: &[&str]) -> Process {
    let mut arguments = vec!["--watch-namespace", &story.namespace];
    if !more.contains(&"--lease-name") {
        arguments.push("--alone");
    }
    // The nodes of a plane are those of all its stories: the labels of their pools are one operator's.
    if !more.contains(&"--controllers") {
        arguments.extend(["--controllers", "bidnodes"]);
    }
    arguments.extend(more);
    spawn(story, &arguments)
}

fn spawn(story: &Story, arguments: &[&str]) -> Process {
    spawn_with(story, &story.market.token_file(), arguments)
}

/// Starts `kubebid-operator run` with the token in a file.
pub(crate) fn spawn_with(story: &Story, token_file: &Path, arguments: &[&str]) -> Process {
    spawn_as(story, &story.kubeconfig, token_file, arguments)
}

/// The same, for whoever the kubeconfig says.
pub(crate) fn spawn_as(story: &Story, kubeconfig: &Path, token_file: &Path, arguments: &[&str]) -> Process {
    let mut command = Command::new(&story.program);
    command
        .args(["run", "--endpoints", &story.market.endpoint()])
        .arg("--token-file")
        .arg(token_file)
        .args(["--listen", "127.0.0.1:0", "--kwok-delay-ms", "50..200"])
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("KUBEBID_LOG", "info,kubebid_operator=debug");
    Process::start(&mut command)
}
