//! A plane with disks, two addresses for replicas, and a balancer before them. One story at a time has the definition.

use crate::kind::{self, v1alpha1, v1beta1};
use crate::replica::{Certificates, Replica, client};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::SignedDuration;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::wait::await_condition;
use kubebid_controller::Object;
use kubebid_testkit::{Balancer, Plane, Port};
use kubebid_webhook::authority::plan::{Content, Lifetimes};
use kubebid_webhook::authority::{AuthorityOptions, Target};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The name of the definition.
pub(crate) const DISKS: &str = "disks.example.com";

static ONE_STORY: Mutex<()> = Mutex::const_new(());

/// A story with the definition of disks for itself.
pub(crate) struct Story {
    pub(crate) plane: &'static Plane,
    pub(crate) client: Client,
    pub(crate) namespace: &'static str,
    pub(crate) balancer: Balancer,
    pub(crate) lifetimes: Lifetimes,
    ports: [Port; 2],
    _alone: MutexGuard<'static, ()>,
}

impl Story {
    /// Begins with a definition that stores a version, and without replicas.
    pub(crate) async fn begin(namespace: &'static str, stored: &str) -> Story {
        let alone = ONE_STORY.lock().await;
        let plane = Plane::shared();
        plane.get(&["delete", "crd", DISKS, "--ignore-not-found", "--timeout=120s"]);
        plane.get(&[
            "delete",
            "mutatingwebhookconfiguration,validatingwebhookconfiguration",
            "disks",
            "--ignore-not-found",
        ]);
        plane.get(&["create", "namespace", namespace]);
        let (balancer, ports) = Balancer::of_two().await;
        let lifetimes = Lifetimes { settle: SignedDuration::from_secs(1), ..Lifetimes::default() };
        let client = client(plane).await;
        let story = Story { plane, client, namespace, balancer, lifetimes, ports, _alone: alone };
        plane.apply(&story.definition(stored));
        plane.get(&["wait", "--for=condition=Established", "crd", DISKS, "--timeout=60s"]);
        story
    }

    /// Returns the definition as the manifest has it: without a bundle.
    pub(crate) fn definition(&self, stored: &str) -> String {
        serde_json::to_string(&kind::definition(stored, &self.url("/convert"))).unwrap()
    }

    /// Returns the URL of a webhook.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.balancer.url())
    }

    pub(crate) fn address(&self, replica: usize) -> SocketAddr {
        self.ports[replica].address()
    }

    /// Starts a replica with these targets.
    pub(crate) fn start(&self, replica: usize, targets: &[Target]) -> Replica {
        let options = AuthorityOptions {
            namespace: self.namespace.to_owned(),
            secret: "webhook".to_owned(),
            names: vec!["127.0.0.1".to_owned()],
            lifetimes: self.lifetimes,
        };
        Replica::start(self.plane, self.address(replica), Certificates::Secret(options), targets.to_vec())
    }

    /// Starts both replicas with these targets and waits until they are ready.
    pub(crate) async fn start_both(&self, targets: &[Target]) -> [Replica; 2] {
        let replicas = [0, 1].map(|replica| self.start(replica, targets));
        self.balancer.until_ready(2).await;
        replicas
    }

    /// Starts a replica again whose end the balancer notices, and waits until both are ready.
    pub(crate) async fn start_again(&self, replica: usize, targets: &[Target]) -> Replica {
        self.balancer.until_ready(1).await;
        let started = self.start(replica, targets);
        self.balancer.until_ready(2).await;
        started
    }

    pub(crate) fn alphas(&self) -> Api<v1alpha1::Disk> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    pub(crate) fn betas(&self) -> Api<v1beta1::Disk> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Creates a disk in v1beta1 with this specification.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> v1beta1::Disk {
        let disk = json!({
            "apiVersion": "example.com/v1beta1", "kind": "Disk", "metadata": {"name": name}, "spec": spec,
        });
        let disk = serde_json::from_value(disk).unwrap();
        self.betas().create(&PostParams::default(), &disk).await.unwrap()
    }

    /// Waits until an object is as it should be.
    pub(crate) async fn until<K: Object>(&self, api: Api<K>, name: &str, holds: impl Fn(&K) -> bool) -> K {
        let reached = await_condition(api, name, |object: Option<&K>| object.is_some_and(&holds));
        let reached = timeout(PATIENCE, reached).await;
        reached.unwrap_or_else(|_| panic!("{name} waits for too long")).unwrap().unwrap()
    }

    /// Waits until the authority in the Secret is as it should be.
    pub(crate) async fn until_authority(&self, holds: impl Fn(&Content) -> bool) -> Content {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), self.namespace);
        let content = |secret: &Secret| {
            let data = secret.data.as_ref()?.get("authority.json")?;
            serde_json::from_slice::<Content>(&data.0).ok()
        };
        let secret =
            self.until(secrets, "webhook", |secret| content(secret).is_some_and(|it| holds(&it))).await;
        content(&secret).unwrap()
    }

    pub(crate) fn definitions(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }
}

/// Returns the target of a replica that only converts.
pub(crate) fn definition_alone() -> [Target; 1] {
    [Target::Definition(DISKS.to_owned())]
}

/// Returns the bundle of a definition.
pub(crate) fn bundle(definition: &CustomResourceDefinition) -> Option<String> {
    let webhook = definition.spec.conversion.as_ref()?.webhook.as_ref()?;
    let bundle = webhook.client_config.as_ref()?.ca_bundle.clone()?;
    Some(String::from_utf8(bundle.0).unwrap())
}
