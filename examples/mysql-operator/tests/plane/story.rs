//! A namespace, volumes, and an operator with the rights of the manifests.

use crate::operator::{Operator, RIGHTS, account};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Client, Config, Resource};
use kubebid_controller::Object;
use kubebid_mysql_operator::api::{self, Mysql};
use kubebid_mysql_operator::children::IMAGE;
use kubebid_testkit::{Account, Image, Kubelet, Plane, PlaneEnd};
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A storage class whose volumes can grow. Nothing makes its volumes but the stories.
const STORAGE: &str = r#"{
    "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
    "metadata": {"name": "by-hand", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": true
}"#;

/// Defines Mysql objects.
fn define(plane: &Plane) {
    plane.apply(&serde_json::to_string(&api::crd()).unwrap());
    plane.get(&["wait", "--for=condition=Established", "crd/mysqls.fnjoin.com", "--timeout=60s"]);
    plane.apply(RIGHTS.split("---\n").find(|it| it.contains("kind: ClusterRole\n")).unwrap());
}

/// Makes a node on which KWOK pretends to run pods, and a class of volumes that the stories make.
fn pretend(plane: &Plane) {
    plane.apply(STORAGE);
    let resources = json!({"cpu": "1000", "memory": "2Ti", "pods": "2000"});
    let status = json!({"capacity": resources, "allocatable": resources});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0", "labels": {"kubernetes.io/hostname": "node-0"}}, "status": status});
    plane.apply(&node.to_string());
}

/// Returns the plane that the stories share.
fn shared() -> &'static Plane {
    static DEFINED: OnceLock<()> = OnceLock::new();
    let plane = Plane::shared();
    DEFINED.get_or_init(|| {
        define(plane);
        pretend(plane);
    });
    plane
}

/// Returns a plane with a kubelet whose pods are processes, and that kubelet.
pub(crate) fn real() -> (&'static Plane, &'static Kubelet) {
    static STARTED: OnceLock<(Plane, Kubelet)> = OnceLock::new();
    let (plane, kubelet) = STARTED.get_or_init(|| {
        let plane = Plane::start();
        define(&plane);
        let kubelet = Kubelet::start(&plane, "real-0", vec![Image::mysql(IMAGE)]);
        (plane, kubelet)
    });
    (plane, kubelet)
}

/// Returns a client of the administrator.
async fn client(plane: &Plane) -> Client {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

pub(crate) struct Story {
    pub(crate) plane: &'static Plane,
    pub(crate) namespace: &'static str,
    pub(crate) client: Client,
    pub(crate) account: Account,
    pub(crate) operator: Option<Operator>,
    pub(crate) folder: TempDir,
    /// Ends a plane of its own, after the operator.
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

    /// Begins on a plane of its own, which may be disturbed.
    pub(crate) async fn alone(namespace: &'static str) -> Story {
        let mut story = Story::alone_without_operator(namespace).await;
        story.start_operator(&["--alone"]);
        story
    }

    pub(crate) async fn alone_without_operator(namespace: &'static str) -> Story {
        let (plane, end) = Plane::start().leak();
        define(plane);
        pretend(plane);
        Story { _end: Some(end), ..Story::on(plane, namespace).await }
    }

    /// Begins with a running operator, on a plane whose pods are processes.
    pub(crate) async fn with_servers(namespace: &'static str) -> (Story, &'static Kubelet) {
        let (plane, kubelet) = real();
        let mut story = Story::on(plane, namespace).await;
        story.start_operator(&["--alone"]);
        (story, kubelet)
    }

    /// Goes on in another namespace, with the same plane and operator.
    pub(crate) fn in_namespace(self, namespace: &'static str) -> Story {
        Story { namespace, ..self }
    }

    async fn on(plane: &'static Plane, namespace: &'static str) -> Story {
        plane.get(&["create", "namespace", namespace]);
        // As a careful cluster has it.
        plane.get(&["label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"]);
        let folder = tempfile::tempdir().unwrap();
        let account = account(plane, namespace, "mysql-operator", folder.path());
        Story { plane, namespace, client: client(plane).await, account, operator: None, folder, _end: None }
    }

    /// Starts the operator, after it has ended the one before.
    pub(crate) fn start_operator(&mut self, arguments: &[&str]) {
        self.operator = None;
        self.operator = Some(Operator::start(self.namespace, &self.account, arguments));
    }

    /// Connects again, after the API server was restarted.
    pub(crate) async fn reconnect(&mut self) {
        self.client = client(self.plane).await;
    }

    /// Returns the objects of a kind in the namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Creates a Mysql with this specification, and the volume for it.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> Mysql {
        self.provide_volume(name);
        self.try_create(name, spec).await.unwrap()
    }

    pub(crate) async fn try_create(&self, name: &str, spec: Value) -> Result<Mysql, kube::Error> {
        let mysql = serde_json::from_value(self.mysql(name, spec)).unwrap();
        self.api().create(&PostParams::default(), &mysql).await
    }

    /// Makes the volume of a Mysql.
    pub(crate) fn provide_volume(&self, name: &str) {
        self.plane.apply(&self.volume(name).to_string());
    }

    /// Returns a Mysql.
    pub(crate) fn mysql(&self, name: &str, spec: Value) -> Value {
        let metadata = json!({"name": name, "namespace": self.namespace});
        json!({"apiVersion": "fnjoin.com/v1", "kind": "Mysql", "metadata": metadata, "spec": spec})
    }

    /// Returns a volume that only the claim of this Mysql takes.
    pub(crate) fn volume(&self, name: &str) -> Value {
        let claim = json!({"namespace": self.namespace, "name": format!("data-{name}-0")});
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": format!("{}-{name}", self.namespace)},
            "spec": {
                "storageClassName": "by-hand", "capacity": {"storage": "100Gi"}, "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/nowhere"}, "claimRef": claim,
            },
        })
    }

    /// Creates a Mysql and waits until it is ready.
    pub(crate) async fn running(&self, name: &str) -> Mysql {
        self.create(name, json!({})).await;
        self.ready(name).await
    }

    /// Waits until a Mysql is ready.
    pub(crate) async fn ready(&self, name: &str) -> Mysql {
        self.until_condition(name, "Ready", "Available").await;
        self.api::<Mysql>().get(name).await.unwrap()
    }

    /// Waits until a condition of a Mysql has this reason. Returns its message.
    pub(crate) async fn until_condition(&self, name: &str, type_: &str, reason: &str) -> String {
        let message = |mysql: &Mysql| {
            let conditions = mysql.status.iter().flat_map(|status| &status.conditions);
            let generation = mysql.metadata.generation;
            let mut conditions = conditions.filter(|it| it.observed_generation == generation);
            conditions.find(|it| it.type_ == type_ && it.reason == reason).map(|it| it.message.clone())
        };
        let mysql = self.until::<Mysql>(name, |mysql| message(mysql).is_some()).await;
        message(&mysql).unwrap()
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
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never so: {what}"));
    }

    async fn give_up<K>(&self, name: &str) -> !
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        let object = self.api::<K>().get_opt(name).await.unwrap();
        let pods = self.plane.get(&["-n", self.namespace, "get", "pods,pvc,mysqls,statefulsets,events"]);
        panic!("never as it should be: {}\n{pods}", serde_json::to_string_pretty(&object).unwrap())
    }

    /// Waits until the operator has seen all that was written before: it is asked for a pass, and the status has it.
    pub(crate) async fn settled(&self) {
        let marker = "settled";
        let mysqls = self.api::<Mysql>();
        if mysqls.get_opt(marker).await.unwrap().is_some() {
            self.delete::<Mysql>(marker).await;
            let gone = await_condition(self.api::<Mysql>(), marker, |it: Option<&Mysql>| it.is_none());
            timeout(PATIENCE, gone).await.unwrap().unwrap();
        }
        self.try_create(marker, json!({})).await.unwrap();
        self.until::<Mysql>(marker, |mysql| mysql.status.is_some()).await;
    }
}
