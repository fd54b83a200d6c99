//! The plane of all stories, a namespace for each, and waiting for what is to come.

use crate::example::Website;
use crate::storage::{Bucket, Folder};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Client, Config, CustomResourceExt as _, Resource};
use kubebid_controller::{Manager, Object};
use kubebid_testkit::{Account, Plane};
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace of the plane, in which Websites are defined and one node has room for pods.
pub(crate) struct Story {
    pub(crate) client: Client,
    pub(crate) plane: &'static Plane,
    namespace: &'static str,
    account: Account,
}

impl Story {
    /// Makes the namespace of a story, with an account of its own for the audit log.
    pub(crate) async fn begin(namespace: &'static str) -> Story {
        let plane = plane();
        plane.get(&["create", "namespace", namespace]);
        let folder = tempfile::tempdir().unwrap();
        let account = Account::administrator(plane, namespace, "controller", folder.path());
        let kubeconfig = Kubeconfig::read_from(account.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Story { client: Client::try_from(config).unwrap(), plane, namespace, account }
    }

    /// Returns the objects of a kind in the namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Creates a Website.
    pub(crate) async fn create(&self, name: &str, html: &str) -> Website {
        let website = json!({
            "apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": name},
            "spec": {"html": html, "replicas": 2},
        });
        let website: Website = serde_json::from_value(website).unwrap();
        self.api().create(&PostParams::default(), &website).await.unwrap()
    }

    /// Changes some fields of an object, as a person does.
    pub(crate) async fn patch<K>(&self, name: &str, patch: Value) -> K
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Waits until an object is as it should be.
    pub(crate) async fn until<K>(&self, name: &str, holds: impl Fn(&K) -> bool) -> K
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        let reached = await_condition(self.api(), name, |object: Option<&K>| object.is_some_and(&holds));
        let reached =
            timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{name} waits for too long"));
        reached.unwrap().unwrap()
    }

    /// Returns the requests of the story's controllers and people, from the audit log.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.account.requests()
    }
}

/// Waits until something holds, that nothing tells.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let reached = timeout(PATIENCE, async {
        while !holds() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    reached.await.unwrap_or_else(|_| panic!("waits for too long: {what}"));
}

/// Runs the controllers of a manager until the test ends them.
pub(crate) fn run(manager: Manager) -> JoinHandle<()> {
    tokio::spawn(async move {
        let ended = manager.run().await;
        panic!("the manager ended: {ended:?}");
    })
}

fn plane() -> &'static Plane {
    static PREPARED: OnceLock<()> = OnceLock::new();
    let plane = Plane::shared();
    PREPARED.get_or_init(|| {
        for definition in [Website::crd(), Bucket::crd(), Folder::crd()] {
            plane.apply(&serde_json::to_string(&definition).unwrap());
        }
        let resources = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
        let status = json!({"capacity": resources, "allocatable": resources});
        let metadata = json!({"name": "web-0", "labels": {"kubernetes.io/hostname": "web-0"}});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status});
        plane.apply(&node.to_string());
        plane.get(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
    });
    plane
}
