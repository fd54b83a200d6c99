//! Children are created, follow their Cache, and go with it.

use crate::story::Story;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kubebid_cache_operator::api::Phase;
use kubebid_cache_operator::api::v1beta1::Cache;
use kubebid_cache_operator::controller::FINALIZER;
use serde_json::json;

#[tokio::test]
async fn a_cache_has_a_config_map_a_service_and_a_stateful_set() {
    let story = Story::begin("children").await;
    story.create("shop", json!({"engine": "redis", "memory": "64Mi"})).await;
    let cache = story.until_phase("shop", Phase::Ready).await;
    assert_eq!(cache.spec.replicas, Some(3), "the operator gives replicas to a Cache that has none");
    assert_eq!(cache.metadata.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
    let status = cache.status.unwrap();
    assert_eq!(
        (status.ready_replicas, &status.endpoint[..]),
        (3, "shop-cache.children.svc.cluster.local:6379")
    );
    let reasons: Vec<_> =
        status.conditions.iter().map(|it| (&it.type_[..], &it.status[..], &it.reason[..])).collect();
    assert_eq!(reasons, [("Ready", "True", "AllReplicasAvailable"), ("Synced", "True", "Applied")]);

    let config: ConfigMap = story.api().get("shop-cache").await.unwrap();
    let settings = &config.data.unwrap()["server.conf"];
    assert!(settings.contains("maxmemory 50331648\nmaxmemory-policy allkeys-lru\n"), "{settings}");
    let service: Service = story.api().get("shop-cache").await.unwrap();
    assert_eq!(service.spec.unwrap().cluster_ip.unwrap(), "None");
    let set: StatefulSet = story.api().get("shop-cache").await.unwrap();
    let pod = set.spec.unwrap().template.spec.unwrap();
    assert!(pod.affinity.is_none() && pod.containers.len() == 1);
    assert!(story.api::<PodDisruptionBudget>().get_opt("shop-cache").await.unwrap().is_none());

    story.create("sessions", json!({"engine": "memcached", "memory": "64Mi"})).await;
    let cache = story.until_phase("sessions", Phase::Ready).await;
    assert_eq!(cache.spec.replicas, Some(1));
    assert_eq!(cache.status.unwrap().endpoint, "sessions-cache.children.svc.cluster.local:11211");
}

#[tokio::test]
async fn high_availability_adds_a_disruption_budget_anti_affinity_and_sentinels() {
    let story = Story::begin("available").await;
    story.create("shop", json!({"engine": "valkey", "memory": "64Mi"})).await;
    story.until_phase("shop", Phase::Ready).await;
    story.patch::<Cache>("shop", json!({"spec": {"highAvailability": {"enabled": true}}})).await;
    let containers =
        |set: &StatefulSet| set.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers.len();
    let set = story.until::<StatefulSet>("shop-cache", |set| containers(set) == 2).await;
    let pod = set.spec.unwrap().template.spec.unwrap();
    assert!(pod.affinity.unwrap().pod_anti_affinity.is_some());
    story.until_phase("shop", Phase::Ready).await;
    let budget: PodDisruptionBudget = story.api().get("shop-cache").await.unwrap();
    assert_eq!(json!(budget.spec.unwrap().max_unavailable), json!(1));
    let service: Service = story.api().get("shop-cache").await.unwrap();
    assert_eq!(service.spec.unwrap().ports.unwrap().len(), 2);

    story.patch::<Cache>("shop", json!({"spec": {"highAvailability": {"autoFailover": false}}})).await;
    story.until::<StatefulSet>("shop-cache", |set| containers(set) == 1).await;
    story.patch::<Cache>("shop", json!({"spec": {"highAvailability": null}})).await;
    story.until_gone::<PodDisruptionBudget>("shop-cache").await;
}

#[tokio::test]
async fn a_changed_setting_makes_new_pods_and_more_replicas_do_not() {
    let story = Story::begin("changes").await;
    story.create("shop", json!({"engine": "memcached", "memory": "64Mi"})).await;
    story.until_phase("shop", Phase::Ready).await;
    let pod: Pod = story.api().get("shop-cache-0").await.unwrap();
    story.kubectl(&["scale", "cache/shop", "--replicas=2"]).unwrap();
    story.until_phase("shop", Phase::Ready).await;
    assert_eq!(story.api::<Pod>().get("shop-cache-0").await.unwrap().metadata.uid, pod.metadata.uid);
    story.patch::<Cache>("shop", json!({"spec": {"evictionPolicy": "noeviction"}})).await;
    story.until_replaced(&pod).await;
    story.until_phase("shop", Phase::Ready).await;
}

#[tokio::test]
async fn children_are_restored_and_foreign_objects_are_left_alone() {
    let story = Story::begin("foreign").await;
    let theirs: ConfigMap =
        story.make(json!({"metadata": {"name": "shop-cache"}, "data": {"a": "theirs"}})).await;
    story.create("shop", json!({"engine": "memcached", "memory": "64Mi"})).await;
    let cache = story.until_phase("shop", Phase::Failed).await;
    let conditions = cache.status.unwrap().conditions;
    assert_eq!((&conditions[0].reason[..], &conditions[1].reason[..]), ("ReplicasNotReady", "Conflict"));
    let note = story.until_event("Conflict").await;
    assert!(note.contains("another ConfigMap has the name shop-cache"), "{note}");
    assert_eq!(story.api::<ConfigMap>().get("shop-cache").await.unwrap(), theirs);

    story.create("other", json!({"engine": "memcached", "memory": "64Mi"})).await;
    story.until_phase("other", Phase::Ready).await;
    let service: Service = story.api().get("other-cache").await.unwrap();
    story.delete::<Service>("other-cache").await;
    story.until_replaced(&service).await;
    story.patch::<ConfigMap>("other-cache", json!({"data": {"server.conf": "--memory-limit=1"}})).await;
    let is_restored = |it: &ConfigMap| it.data.as_ref().unwrap()["server.conf"] == "--memory-limit=48\n";
    story.until::<ConfigMap>("other-cache", is_restored).await;
}
