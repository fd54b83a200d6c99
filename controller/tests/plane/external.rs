//! External resources: the storage example against its service, on a real control plane. The service's log is the witness.

mod processes;
mod service;
mod stories;

use crate::storage::{Bucket, Buckets, Folder, Folders, Service as StorageClient};
use crate::story::Story;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::wait::{await_condition, conditions::is_deleted};
use kube::{Resource, ResourceExt as _};
use kubebid_controller::external::transition::State;
use kubebid_controller::external::{ExternalStatus, Machine, Managed, Timing};
use kubebid_controller::leader_election::Leadership;
use kubebid_controller::{ControllerOptions, Manager, Options};
use serde_json::{Value, json};
use service::Service;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

/// Short times, so that a story is short.
pub(crate) fn quick() -> Timing {
    Timing {
        poll: 100 * MS,
        resync: Some(500 * MS),
        creation_grace: 300 * MS,
        patience: 1500 * MS,
        call: Duration::from_secs(5),
        ..Timing::default()
    }
}

/// A namespace with the service and the controllers of buckets and folders.
pub(crate) struct Storage {
    story: Story,
    service: Service,
    namespace: &'static str,
    running: Option<JoinHandle<()>>,
}

impl Storage {
    /// Begins with running controllers.
    async fn begin(namespace: &'static str) -> Storage {
        Storage::begin_with(namespace, quick()).await
    }

    async fn begin_with(namespace: &'static str, timing: Timing) -> Storage {
        let story = Story::begin(namespace).await;
        let mut storage = Storage { story, service: Service::start().await, namespace, running: None };
        storage.run(timing);
        storage
    }

    /// Starts the controllers.
    fn run(&mut self, timing: Timing) {
        let options = Options { backoff: 20 * MS..=500 * MS, ..Options::default() };
        let mut manager = Manager::new(self.story.client.clone(), Leadership::alone(), options);
        let service = StorageClient::new(&self.service.url, timing);
        let folders = Folders { service: service.clone(), client: self.story.client.clone() };
        let options = ControllerOptions::default();
        manager.add(Machine::new(Buckets(service), "plane"), self.story.api(), options);
        manager.add(Machine::new(folders, "plane"), self.story.api(), options);
        self.running = Some(crate::story::run(manager));
    }

    /// The name of a bucket at the service.
    fn bucket_id(&self, name: &str) -> String {
        format!("buckets/{}.{name}", self.namespace)
    }

    fn folder_id(&self, name: &str) -> String {
        format!("folders/{}.{name}", self.namespace)
    }

    /// Creates a Bucket of size 1 in region eu.
    async fn bucket(&self, name: &str) -> Bucket {
        self.bucket_with(name, json!({}), json!({})).await
    }

    async fn bucket_with(&self, name: &str, annotations: Value, spec: Value) -> Bucket {
        let mut bucket = json!({
            "apiVersion": "storage.example.com/v1", "kind": "Bucket",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"size": 1, "region": "eu"},
        });
        bucket["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.create(bucket).await
    }

    /// Creates a Folder in a bucket.
    async fn folder(&self, name: &str, bucket: &str, spec: Value) -> Folder {
        let mut folder = json!({
            "apiVersion": "storage.example.com/v1", "kind": "Folder", "metadata": {"name": name},
            "spec": {"bucket": bucket, "quota": 1},
        });
        folder["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.create(folder).await
    }

    async fn create<K>(&self, object: Value) -> K
    where
        K: Managed + Resource<Scope = NamespaceResourceScope>,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.story.api().create(&PostParams::default(), &object).await.unwrap()
    }

    /// Waits until an object is in a state, in its current generation.
    async fn until<K>(&self, name: &str, state: State) -> K
    where
        K: Managed + Resource<Scope = NamespaceResourceScope>,
    {
        self.until_status(name, |status| status.state == state).await
    }

    async fn until_reason<K>(&self, name: &str, reason: &str) -> K
    where
        K: Managed + Resource<Scope = NamespaceResourceScope>,
    {
        self.until_status(name, |status| status.reason == reason).await
    }

    async fn until_status<K>(&self, name: &str, holds: impl Fn(&ExternalStatus) -> bool) -> K
    where
        K: Managed + Resource<Scope = NamespaceResourceScope>,
    {
        let holds = |object: &K| {
            let current = |status: &&ExternalStatus| status.observed_generation == object.meta().generation;
            object.external().filter(current).is_some_and(&holds)
        };
        self.story.until(name, holds).await
    }

    async fn patch_bucket(&self, name: &str, patch: Value) -> Bucket {
        self.story.patch(name, patch).await
    }

    async fn annotate(&self, name: &str, annotation: &str, value: Option<&str>) -> Bucket {
        let annotation = format!("storage.example.com/{annotation}");
        self.patch_bucket(name, json!({"metadata": {"annotations": {annotation: value}}})).await
    }

    /// Deletes an object, which may take its time.
    async fn delete<K>(&self, name: &str) -> String
    where
        K: Managed + Resource<Scope = NamespaceResourceScope>,
    {
        let api: Api<K> = self.story.api();
        let uid = api.get(name).await.unwrap().uid().unwrap();
        api.delete(name, &DeleteParams::default()).await.unwrap();
        uid
    }

    /// Waits until an object is gone.
    async fn until_gone<K>(&self, name: &str, uid: &str)
    where
        K: Managed + Resource<Scope = NamespaceResourceScope>,
    {
        let gone = await_condition(self.story.api::<K>(), name, is_deleted(uid));
        timeout(PATIENCE, gone).await.unwrap_or_else(|_| panic!("{name} does not go")).unwrap();
    }

    /// Deletes an object and waits until it is gone.
    async fn delete_whole<K>(&self, name: &str)
    where
        K: Managed + Resource<Scope = NamespaceResourceScope>,
    {
        let uid = self.delete::<K>(name).await;
        self.until_gone::<K>(name, &uid).await;
    }

    /// Waits for an event about an object.
    async fn until_event(&self, name: &str, reason: &str) {
        let reached = timeout(PATIENCE, async {
            while !self.events(name).await.iter().any(|other| other == reason) {
                sleep(20 * MS).await;
            }
        });
        reached.await.unwrap_or_else(|_| panic!("no event {reason} about {name}"));
    }

    /// Returns the reasons of the events about an object, in the order of their times.
    async fn events(&self, name: &str) -> Vec<String> {
        let api: Api<Event> = self.story.api();
        let of = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let mut events = api.list(&of).await.unwrap().items;
        events.sort_by_key(|event| event.event_time.clone().map(|time| time.0));
        events.into_iter().filter_map(|event| event.reason).collect()
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.abort();
        }
    }
}
