//! The status of a cache, from its children as they are. Pure functions.

use crate::api::v1beta1::Cache;
use crate::api::{CacheStatus, Phase};
use crate::children::{child_name, endpoint};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kubebid_controller::Object;
use kubebid_controller::composite::{Children, owner_annotation};
use kubebid_controller::conditions::{self, NewCondition};

/// All replicas are ready and as the object says: the reason of the condition Ready when it is true.
pub const AVAILABLE: &str = "AllReplicasAvailable";
/// Some replica is not ready, or not as the object says: the reason of the condition Ready when it is false.
pub const NOT_READY: &str = "ReplicasNotReady";
/// The children are as they should be: the reason of the condition Synced when it is true.
pub const APPLIED: &str = "Applied";
/// A foreign object has the name of a child, and is not touched.
pub const CONFLICT: &str = "Conflict";
/// The API server does not take a child.
pub const REFUSED: &str = "Refused";

/// Returns the status of a cache. Conditions of other types are kept.
pub fn status(cache: &Cache, observed: &Children, now: Timestamp) -> CacheStatus {
    let (wanted, obstacle) = (cache.spec.replicas(), obstacle(cache, observed));
    let set = observed.get::<StatefulSet>(&child_name(cache));
    let ready_replicas = set.and_then(|set| set.status.as_ref()?.ready_replicas).unwrap_or(0);
    let is_available = set.is_some_and(|set| is_current(set) && ready_replicas == wanted);
    let is_deleted = cache.metadata.deletion_timestamp.is_some();
    let phase = match set {
        _ if is_deleted => Phase::Terminating,
        _ if obstacle.is_some() => Phase::Failed,
        None => Phase::Pending,
        Some(_) if is_available => Phase::Ready,
        Some(_) => Phase::Provisioning,
    };
    let (is_ready, reason) = if phase == Phase::Ready { (true, AVAILABLE) } else { (false, NOT_READY) };
    let message = format!("{ready_replicas} of {wanted} replicas are ready");
    let message = match phase {
        Phase::Terminating => "the cache is being deleted".to_owned(),
        Phase::Provisioning if ready_replicas == wanted => "the replicas are changed one by one".to_owned(),
        Phase::Pending | Phase::Provisioning | Phase::Ready | Phase::Failed => message,
    };
    let (is_synced, synced_reason, synced_message) = match obstacle {
        Some((reason, message)) => (false, reason, message),
        None => (true, APPLIED, "the children are as they should be".to_owned()),
    };
    let mut conditions = cache.status.clone().unwrap_or_default().conditions;
    for condition in [
        NewCondition::new("Ready", is_ready, reason, message),
        NewCondition::new("Synced", is_synced, synced_reason, synced_message),
    ] {
        conditions::set(&mut conditions, condition, cache.metadata.generation, now);
    }
    CacheStatus { phase, ready_replicas, endpoint: endpoint(cache), conditions }
}

/// Returns true if all pods of a StatefulSet are as its template says.
fn is_current(set: &StatefulSet) -> bool {
    let Some(status) = &set.status else { return false };
    status.observed_generation == set.metadata.generation && status.current_revision == status.update_revision
}

/// Returns what keeps the children from being as they should be.
fn obstacle(cache: &Cache, observed: &Children) -> Option<(&'static str, String)> {
    of_kind::<ConfigMap>(cache, observed)
        .or_else(|| of_kind::<Service>(cache, observed))
        .or_else(|| of_kind::<StatefulSet>(cache, observed))
        .or_else(|| of_kind::<PodDisruptionBudget>(cache, observed))
}

fn of_kind<C: Object>(cache: &Cache, observed: &Children) -> Option<(&'static str, String)> {
    let (name, kind) = (child_name(cache), C::kind(&()));
    if observed.is_foreign::<C>(&name) {
        let (annotation, owner) = (owner_annotation::<Cache>(), cache.name_any());
        let uid = cache.uid().unwrap_or_default();
        let message = format!(
            "another {kind} has the name {name}: delete it, or give it to this Cache by the annotation {annotation}={owner}/{uid}"
        );
        return Some((CONFLICT, message));
    }
    observed.refusal::<C>(&name).map(|refusal| (REFUSED, format!("{kind} {name}: {refusal}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn cache(more: Value) -> Cache {
        let mut cache = json!({
            "apiVersion": "infra.archon.dev/v1beta1", "kind": "Cache",
            "metadata": {"name": "shop", "namespace": "n", "uid": "u", "generation": 2},
            "spec": {"engine": "valkey", "memory": "64Mi"},
        });
        cache["metadata"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(cache).unwrap()
    }

    /// Returns a StatefulSet whose status has these revisions and so many ready pods.
    fn with_set(current: &str, update: &str, ready: i32) -> Children {
        let status = json!({
            "replicas": 3, "observedGeneration": 3, "currentRevision": current, "updateRevision": update, "readyReplicas": ready,
        });
        let metadata = json!({"name": "shop-cache", "namespace": "n", "generation": 3});
        let set = json!({"metadata": metadata, "status": status});
        Children::default().with::<StatefulSet>(serde_json::from_value(set).unwrap())
    }

    fn of(observed: &Children) -> (Phase, i32, String) {
        let status = status(&cache(json!({})), observed, Timestamp::UNIX_EPOCH);
        assert_eq!(status.endpoint, "shop-cache.n.svc.cluster.local:6379");
        let ready = status.conditions.into_iter().find(|it| it.type_ == "Ready").unwrap();
        assert_eq!(ready.status == "True", ready.reason == AVAILABLE);
        (status.phase, status.ready_replicas, ready.reason)
    }

    #[test]
    fn a_cache_is_ready_if_all_replicas_are_ready_and_as_it_says() {
        assert_eq!(of(&Children::default()), (Phase::Pending, 0, NOT_READY.to_owned()));
        assert_eq!(of(&with_set("1", "1", 2)), (Phase::Provisioning, 2, NOT_READY.to_owned()));
        assert_eq!(of(&with_set("1", "2", 3)), (Phase::Provisioning, 3, NOT_READY.to_owned()));
        assert_eq!(of(&with_set("1", "1", 3)), (Phase::Ready, 3, AVAILABLE.to_owned()));
    }

    #[test]
    fn a_foreign_object_is_a_failure() {
        let mut observed = with_set("1", "1", 3);
        observed.conflicts.push(("ConfigMap".to_owned(), "shop-cache".to_owned()));
        let status = status(&cache(json!({})), &observed, Timestamp::UNIX_EPOCH);
        assert_eq!(status.phase, Phase::Failed);
        let synced = status.conditions.iter().find(|it| it.type_ == "Synced").unwrap();
        assert_eq!(synced.reason, CONFLICT);
        assert!(synced.message.contains("infra.archon.dev/cache=shop/u"), "{}", synced.message);
    }

    #[test]
    fn a_deleted_cache_is_terminating() {
        let deleted = cache(json!({"deletionTimestamp": "2026-11-23T00:00:00Z"}));
        let status = status(&deleted, &with_set("1", "1", 3), Timestamp::UNIX_EPOCH);
        assert_eq!((status.phase, status.ready_replicas), (Phase::Terminating, 3));
    }
}
