//! The controller of Cache objects: the kinds of their children, which of them are wanted, the status, and the cleanup.

use crate::api::v1beta1::Cache;
use crate::children::{Images, config_map, disruption_budget, service, stateful_set};
use crate::flush::flush;
use crate::status::{CONFLICT, REFUSED, status};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::{Client, Resource, ResourceExt as _};
use kubebid_controller::composite::{Child, Children, Cleanup, Composite, Kinds};
use kubebid_controller::object::objects;
use kubebid_controller::{Context, ObjectName};
use serde_json::{Value, json};
use std::time::Duration;

/// The finalizer of Cache objects.
pub const FINALIZER: &str = "infra.archon.dev/cache-operator";

/// The controller of Cache objects.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "kube's client has none")]
pub struct CacheController {
    /// The cluster.
    pub client: Client,
    /// The namespace of the objects; all namespaces if it is None.
    pub namespace: Option<String>,
    /// The images of the servers.
    pub images: Images,
    /// The time after which a deleted cache goes even if a server could not be emptied.
    pub flush_limit: Duration,
}

impl Composite for CacheController {
    type Object = Cache;
    const NAME: &'static str = "caches";
    const WARNINGS: &'static [&'static str] = &[CONFLICT, REFUSED];

    fn kinds(&self, kinds: &mut Kinds<'_, '_, Cache>) {
        kinds.add::<ConfigMap>(self.api());
        kinds.add::<Service>(self.api());
        kinds.add::<StatefulSet>(self.api());
        kinds.add::<PodDisruptionBudget>(self.api());
        // The object itself: its replicas are given to it if it has none.
        kinds.add_related::<Cache>(self.api(), |cache| Some(ObjectName::of(cache)));
    }

    fn children(&self, cache: &Cache, _: &Children) -> Vec<Child> {
        let mut children = vec![
            Child::applied(config_map(cache)),
            Child::applied(service(cache)),
            Child::applied(stateful_set(cache, &self.images)),
        ];
        if cache.spec.is_highly_available() {
            children.push(Child::applied(disruption_budget(cache)));
        }
        if cache.spec.replicas.is_none() {
            // Not if somebody has given it replicas meanwhile.
            let version = cache.resource_version();
            let replicas = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": cache.spec.replicas()}});
            children.push(Child::patched(cache.clone(), replicas));
        }
        children
    }

    fn status(&self, cache: &Cache, observed: &Children, now: Timestamp) -> Value {
        json!(status(cache, observed, now))
    }

    fn cleanup(&self) -> Option<Cleanup> {
        Some(Cleanup { finalizer: FINALIZER, limit: self.flush_limit })
    }

    async fn clean_up(&self, cache: &Cache, _: &Context) -> Result<(), String> {
        // The servers of a cache that is deleted with `--cascade=orphan` are kept, and so are their entries.
        if cache.finalizers().iter().any(|name| name == "orphan") {
            return Ok(());
        }
        flush(&self.client, cache).await
    }
}

impl CacheController {
    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        objects(&self.client, self.namespace.as_deref())
    }
}
