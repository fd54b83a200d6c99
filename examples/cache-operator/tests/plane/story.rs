//! A namespace, and an operator with the rights of the manifests.

use crate::operator;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Client, Config, Resource};
use kubebid_cache_operator::api::v1beta1::Cache;
use kubebid_cache_operator::api::{self, Phase, STORED};
use kubebid_controller::Object;
use kubebid_testkit::{Account, Balancer, Image, Kubelet, Plane, PlaneEnd, Port, Process};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Defines Cache objects and makes the right to them. Without a URL for webhooks, both versions have the same fields for the
/// API server.
fn define(plane: &Plane, stored: &str, url: Option<&str>) {
    let mut definition = api::crd(stored, "none", "none").unwrap();
    definition.spec.conversion = definition.spec.conversion.filter(|_| url.is_some());
    apply_definition(plane, &at_url(&json!(definition).to_string(), url));
    let rights = include_str!("../../manifests/rbac.yaml").split("---\n");
    for role in rights.filter(|it| it.contains("kind: ClusterRole\n")) {
        plane.apply(role);
    }
}

fn apply_definition(plane: &Plane, definition: &str) {
    plane.apply(definition);
    plane.get(&["wait", "--for=condition=Established", "crd/caches.infra.archon.dev", "--timeout=60s"]);
}

/// Returns objects whose webhooks have a URL instead of a service.
fn at_url(objects: &str, url: Option<&str>) -> String {
    let mut object: Value = serde_json::from_str(objects).unwrap();
    let Some(url) = url else { return object.to_string() };
    let replace = |client: &mut Value| {
        let path = client["service"]["path"].as_str().unwrap().to_owned();
        *client = json!({"url": format!("{url}{path}")});
    };
    if let Some(client) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
        replace(client);
    }
    for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
        replace(&mut webhook["clientConfig"]);
    }
    object.to_string()
}

/// Makes a node on which KWOK pretends to run pods.
fn pretend(plane: &Plane) {
    let resources = json!({"cpu": "1000", "memory": "2Ti", "pods": "2000"});
    let status = json!({"capacity": resources, "allocatable": resources});
    let metadata = json!({"name": "node-0", "labels": {"kubernetes.io/hostname": "node-0"}});
    plane.apply(
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}).to_string(),
    );
}

/// Returns the plane that the stories share.
fn shared() -> &'static Plane {
    static DEFINED: OnceLock<()> = OnceLock::new();
    let plane = Plane::shared();
    DEFINED.get_or_init(|| {
        define(plane, STORED, None);
        pretend(plane);
    });
    plane
}

/// Returns a plane with a kubelet whose pods are processes, and that kubelet.
pub(crate) fn real() -> (&'static Plane, &'static Kubelet) {
    static STARTED: OnceLock<(Plane, Kubelet)> = OnceLock::new();
    let (plane, kubelet) = STARTED.get_or_init(|| {
        let plane = Plane::start();
        define(&plane, STORED, None);
        let images = vec![
            Image::redis("redis:7"),
            Image::memcached("memcached:1.6"),
            Image::valkey("valkey/valkey:8"),
        ];
        let kubelet = Kubelet::start(&plane, "real-0", images);
        (plane, kubelet)
    });
    (plane, kubelet)
}

/// Two replicas that serve webhooks, and a balancer before them.
pub(crate) struct Webhooks {
    pub(crate) balancer: Balancer,
    pub(crate) ports: [Port; 2],
    pub(crate) replicas: [Process; 2],
}

pub(crate) struct Story {
    pub(crate) plane: &'static Plane,
    pub(crate) namespace: &'static str,
    pub(crate) client: Client,
    pub(crate) account: Account,
    pub(crate) operator: Option<Process>,
    /// The webhooks that the API server asks, if it asks any.
    pub(crate) webhooks: Option<Webhooks>,
    _folder: TempDir,
    /// Ends a plane of its own, after the operator and the webhooks.
    _end: Option<PlaneEnd>,
}

impl Story {
    /// Begins with a running operator.
    pub(crate) async fn begin(namespace: &'static str) -> Story {
        let mut story = Story::without_operator(namespace).await;
        story.start_operator(&["--alone"]);
        story
    }

    pub(crate) async fn without_operator(namespace: &'static str) -> Story {
        Story::on(shared(), namespace).await
    }

    /// Begins with a running operator, on a plane whose pods are processes.
    pub(crate) async fn with_servers(namespace: &'static str) -> (Story, &'static Kubelet) {
        let (plane, kubelet) = real();
        let mut story = Story::on(plane, namespace).await;
        story.start_operator(&["--alone"]);
        (story, kubelet)
    }

    /// Begins with two running replicas whose webhooks the API server asks, on a plane of its own.
    pub(crate) async fn with_webhooks(namespace: &'static str) -> Story {
        let (plane, end) = Plane::start().leak();
        let mut story = Story { _end: Some(end), ..Story::on(plane, namespace).await };
        story.add_webhooks().await;
        story
    }

    /// Begins without an operator, on a plane of its own that knows v1alpha1 alone.
    pub(crate) async fn with_v1alpha1(namespace: &'static str) -> Story {
        let (plane, end) = Plane::start().leak();
        let mut definition = api::crd("v1alpha1", "none", "none").unwrap();
        definition.spec.versions.retain(|version| version.name == "v1alpha1");
        definition.spec.conversion = None;
        apply_definition(plane, &json!(definition).to_string());
        Story { _end: Some(end), ..Story::on(plane, namespace).await }
    }

    /// Defines both versions, and starts two replicas whose webhooks the API server asks.
    pub(crate) async fn add_webhooks(&mut self) {
        let (balancer, ports) = Balancer::of_two().await;
        let url = balancer.url();
        define(self.plane, STORED, Some(&url));
        pretend(self.plane);
        for configuration in include_str!("../../manifests/webhooks.yaml").split("---\n").skip(1) {
            let configuration: Value = serde_saphyr::from_str(configuration).unwrap();
            self.plane.apply(&at_url(&configuration.to_string(), Some(&url)));
        }
        let replicas = [0, 1].map(|place| self.start_replica(place, ports[place].address()));
        balancer.until_ready(2).await;
        self.webhooks = Some(Webhooks { balancer, ports, replicas });
        self.until_served().await;
    }

    /// Starts a replica that serves webhooks at an address.
    pub(crate) fn start_replica(&self, place: usize, address: SocketAddr) -> Process {
        let flags = [
            ["--webhook-listen", &address.to_string()],
            ["--webhook-name", "127.0.0.1"],
            ["--webhook-namespace", self.namespace],
            ["--identity", ["one", "two"][place]],
            ["--flush-limit", "1s"],
        ];
        operator::start(self.namespace, &self.account, flags.as_flattened())
    }

    /// Waits until the API server asks the webhooks of all three kinds. It sees the bundles at its own pace.
    async fn until_served(&self) {
        let spec = json!({"engine": "valkey", "memory": "64Mi"});
        let metadata = json!({"name": "probe", "namespace": self.namespace});
        let probe = |version: &str| {
            let version = format!("infra.archon.dev/{version}");
            json!({"apiVersion": version, "kind": "Cache", "metadata": metadata, "spec": spec}).to_string()
        };
        let (newer, older) = (probe("v1beta1"), probe("v1alpha1"));
        let is_served = || async {
            let create = ["create", "--dry-run=server", "-o", "jsonpath={.spec.replicas}", "-f", "-"];
            let bundle = "jsonpath={.webhooks[*].clientConfig.caBundle}";
            let of_warnings = ["get", "validatingwebhookconfiguration/cache-operator", "-o", bundle];
            !self.plane.get(&of_warnings).is_empty()
                && self.plane.kubectl_reading(&create, &newer).stdout == b"3"
                && self.plane.kubectl_reading(&create, &older).status.success()
        };
        self.eventually("the webhooks are served", is_served).await;
    }

    async fn on(plane: &'static Plane, namespace: &'static str) -> Story {
        plane.get(&["create", "namespace", namespace]);
        // As a careful cluster has it.
        plane.get(&["label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"]);
        let folder = tempfile::tempdir().unwrap();
        let account = operator::account(plane, namespace, folder.path());
        let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        Story {
            plane,
            namespace,
            client,
            account,
            operator: None,
            webhooks: None,
            _folder: folder,
            _end: None,
        }
    }

    /// Starts the operator, after it has ended the one before.
    pub(crate) fn start_operator(&mut self, arguments: &[&str]) {
        self.operator = None;
        self.operator = Some(operator::start(self.namespace, &self.account, arguments));
    }

    /// Runs `cache-operator uninstall` for the namespace, as the administrator. Returns what it says.
    pub(crate) fn uninstall(&self) -> String {
        let done = Command::new(env!("CARGO_BIN_EXE_cache-operator"))
            .args(["uninstall", "--namespace", self.namespace, "--lease-namespace", "default"])
            .env("KUBECONFIG", self.plane.kubeconfig())
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// Lets the API server store Caches in a version.
    pub(crate) fn store(&self, version: &str) {
        let url = self.webhooks.as_ref().map(|it| it.balancer.url());
        define(self.plane, version, url.as_deref());
    }

    /// Returns the objects of a kind in the namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Creates a Cache of v1beta1.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> Cache {
        self.try_create("v1beta1", name, spec).unwrap_or_else(|refusal| panic!("{refusal}"));
        self.api().get(name).await.unwrap()
    }

    /// Creates a Cache with kubectl. An error is what the API server says.
    pub(crate) fn try_create(&self, version: &str, name: &str, spec: Value) -> Result<(), String> {
        let metadata = json!({"name": name, "namespace": self.namespace});
        let version = format!("infra.archon.dev/{version}");
        let cache = json!({"apiVersion": version, "kind": "Cache", "metadata": metadata, "spec": spec});
        self.kubectl_reading(&["create", "-f", "-"], &cache.to_string()).map(drop)
    }

    /// Runs kubectl in the namespace. An error is what it says.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        self.kubectl_reading(arguments, "")
    }

    /// Runs kubectl in the namespace, with a text for its `-f -`. An error is what it says.
    pub(crate) fn kubectl_reading(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let output = self.plane.kubectl_reading(&[&["-n", self.namespace], arguments].concat(), input);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Makes an object, as a person does.
    pub(crate) async fn make<K>(&self, object: Value) -> K
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        self.api().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// Changes some fields of an object, as a person does.
    pub(crate) async fn patch<K>(&self, name: &str, patch: Value) -> K
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Deletes an object, as a person does.
    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        self.api::<K>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until a Cache is in a phase, and that is about its newest specification.
    pub(crate) async fn until_phase(&self, name: &str, phase: Phase) -> Cache {
        let generation = self.api::<Cache>().get(name).await.unwrap().metadata.generation;
        let is_in_it = |cache: &Cache| {
            let status = cache.status.as_ref();
            let seen = status.and_then(|it| it.conditions.iter().find(|it| it.type_ == "Ready"));
            seen.is_some_and(|it| it.observed_generation >= generation) && status.unwrap().phase == phase
        };
        self.until::<Cache>(name, is_in_it).await
    }

    /// Waits until an object is as it should be.
    pub(crate) async fn until<K>(&self, name: &str, holds: impl Fn(&K) -> bool) -> K
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        let reached = await_condition(self.api(), name, |object: Option<&K>| object.is_some_and(&holds));
        match timeout(PATIENCE, reached).await {
            Ok(object) => object.unwrap().unwrap(),
            Err(_) => self.give_up::<K>(name).await,
        }
    }

    /// Waits until an object is gone.
    pub(crate) async fn until_gone<K>(&self, name: &str)
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        let gone = await_condition(self.api(), name, |object: Option<&K>| object.is_none());
        match timeout(PATIENCE, gone).await {
            Ok(gone) => drop(gone.unwrap()),
            Err(_) => self.give_up::<K>(name).await,
        }
    }

    /// Waits until an object is replaced by another of its name.
    pub(crate) async fn until_replaced<K>(&self, old: &K) -> K
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        let name = old.meta().name.as_deref().unwrap();
        self.until::<K>(name, |new| new.meta().uid != old.meta().uid).await
    }

    /// Waits until something holds that no watch shows.
    pub(crate) async fn eventually<F: Future<Output = bool>>(
        &self,
        what: &str,
        mut holds: impl FnMut() -> F,
    ) {
        let wait = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never so: {what}"));
    }

    /// Waits for an event of a reason. Returns its note.
    pub(crate) async fn until_event(&self, reason: &str) -> String {
        let find = || async {
            let events = self.api::<Event>().list(&Default::default()).await.unwrap();
            let mut events = events.items.into_iter().filter(|it| it.reason.as_deref() == Some(reason));
            events.next().and_then(|event| event.note)
        };
        self.eventually(&format!("an event {reason}"), || async { find().await.is_some() }).await;
        find().await.unwrap()
    }

    async fn give_up<K>(&self, name: &str) -> !
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        let object = self.api::<K>().get_opt(name).await.unwrap();
        let pods = self.kubectl(&["get", "pods,caches,statefulsets,events"]);
        panic!("never as it should be: {}\n{pods:?}", serde_json::to_string_pretty(&object).unwrap())
    }
}
