//! What others own, or have set, stays as it is.

use crate::story::Story;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::PostParams;
use kubebid_mysql_operator::api::Mysql;
use serde_json::{Value, json};

/// Makes an object that has the name of a child.
async fn make<K>(story: &Story, object: Value) -> K
where
    K: kubebid_controller::Object + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
{
    story.api().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

fn set(name: &str) -> Value {
    let labels = json!({"app": "theirs"});
    let container = json!({"name": "main", "image": "theirs"});
    json!({"metadata": {"name": name}, "spec": {
        "replicas": 0, "serviceName": "theirs", "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }})
}

#[tokio::test]
async fn foreign_objects_with_the_names_of_children_are_not_touched() {
    let story = Story::begin("foreign").await;
    let service: Service =
        make(&story, json!({"metadata": {"name": "shop"}, "spec": {"ports": [{"port": 80}]}})).await;
    let secret: Secret =
        make(&story, json!({"metadata": {"name": "shop"}, "stringData": {"a": "theirs"}})).await;
    let stateful_set: StatefulSet = make(&story, set("shop")).await;
    let size = json!({"requests": {"storage": "1Gi"}});
    let claim = json!({"metadata": {"name": "data-shop-0"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": size}});
    let claim: PersistentVolumeClaim = make(&story, claim).await;
    story.create("shop", json!({"storage": "2Gi"})).await;
    for type_ in ["Secret", "Service", "StatefulSet", "Ready"] {
        story.until_condition("shop", type_, "Conflict").await;
    }
    let is_published = || async {
        let events = story.api::<Event>().list(&Default::default()).await.unwrap();
        events.iter().any(|event| event.reason.as_deref() == Some("Conflict"))
    };
    story.eventually("an event says so", is_published).await;
    // Nothing is tried again and again: until another Mysql is reconciled, there is one pass at most.
    let before = story.operator.as_ref().unwrap().passes().await;
    story.settled().await;
    let passes = story.operator.as_ref().unwrap().passes().await - before;
    assert!(passes <= 5, "{passes} passes");
    assert_eq!(story.api::<Service>().get("shop").await.unwrap(), service);
    assert_eq!(story.api::<Secret>().get("shop").await.unwrap(), secret);
    assert_eq!(story.api::<StatefulSet>().get("shop").await.unwrap().spec, stateful_set.spec);
    assert_eq!(
        story.api::<PersistentVolumeClaim>().get("data-shop-0").await.unwrap().spec.unwrap().resources,
        claim.spec.unwrap().resources
    );
}

#[tokio::test]
async fn a_foreign_object_that_is_given_to_a_mysql_is_its_child() {
    let story = Story::begin("given").await;
    let spec = json!({"clusterIP": "None", "selector": {"theirs": "1"}, "ports": [{"port": 80}]});
    make::<Service>(&story, json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    story.create("shop", json!({})).await;
    let message = story.until_condition("shop", "Service", "Conflict").await;
    let annotation = message.rsplit(' ').next().unwrap();
    story.plane.get(&["-n", story.namespace, "annotate", "service", "shop", annotation]);
    let service = story.until::<Service>("shop", |it| !it.owner_references().is_empty()).await;
    assert_eq!(service.owner_references()[0].name, "shop");
    story.ready("shop").await;
}

#[tokio::test]
async fn a_child_whose_name_becomes_free_is_created() {
    let story = Story::begin("freed").await;
    make::<Service>(&story, json!({"metadata": {"name": "shop"}, "spec": {"ports": [{"port": 80}]}})).await;
    story.create("shop", json!({})).await;
    story.until_condition("shop", "Service", "Conflict").await;
    story.delete::<Service>("shop").await;
    // It would be seen within half a minute as well.
    story
        .patch::<Mysql>("shop", json!({"metadata": {"annotations": {"fnjoin.com/reconcile-at": "1"}}}))
        .await;
    story.ready("shop").await;
}

#[tokio::test]
async fn finalizers_annotations_and_owners_of_others_survive() {
    let story = Story::begin("survive").await;
    story.running("shop").await;
    let config: ConfigMap = make(&story, json!({"metadata": {"name": "theirs"}})).await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": config.uid()});
    let owners = |ours: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference]| {
        [json!(ours[0]), owner.clone()]
    };
    let theirs = json!({"labels": {"theirs": "1"}, "annotations": {"theirs": "2"}, "finalizers": ["example.com/theirs"]});
    let service: Service = story.api().get("shop").await.unwrap();
    let mut metadata = theirs.clone();
    metadata["ownerReferences"] = json!(owners(service.owner_references()));
    story
        .patch::<Service>("shop", json!({"metadata": metadata, "spec": {"selector": {"theirs": "3"}}}))
        .await;
    story.patch::<StatefulSet>("shop", json!({"metadata": theirs})).await;
    let spec = json!({"spec": {"template": {"metadata": {"annotations": {"theirs": "4"}}}}});
    story.patch::<StatefulSet>("shop", spec).await;
    story
        .patch::<Mysql>(
            "shop",
            json!({"metadata": {"finalizers": ["example.com/theirs"]}, "spec": {"cpu": "2"}}),
        )
        .await;
    let has_two_cores = |set: &StatefulSet| {
        let spec = set.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        spec.containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"].0 == "2"
    };
    let set = story.until("shop", has_two_cores).await;
    let service = story
        .until::<Service>("shop", |it| it.spec.as_ref().unwrap().selector.as_ref().unwrap().len() == 2)
        .await;
    for metadata in [&set.metadata, &service.metadata] {
        assert_eq!(metadata.labels.as_ref().unwrap()["theirs"], "1");
        assert_eq!(metadata.annotations.as_ref().unwrap()["theirs"], "2");
        assert_eq!(metadata.finalizers.as_ref().unwrap(), &["example.com/theirs"]);
    }
    assert_eq!(service.owner_references().len(), 2);
    assert_eq!(set.spec.unwrap().template.metadata.unwrap().annotations.unwrap()["theirs"], "4");

    // A child that a finalizer holds is waited for.
    story.delete::<Service>("shop").await;
    story.settled().await;
    let held: Service = story.api().get("shop").await.unwrap();
    assert_eq!(held.uid(), service.uid());
    story.patch::<Service>("shop", json!({"metadata": {"finalizers": null}})).await;
    story.until_replaced(&service).await;
    let finalizers = json!({"metadata": {"finalizers": null}});
    story.patch::<StatefulSet>("shop", finalizers.clone()).await;
    assert_eq!(story.api::<Mysql>().get("shop").await.unwrap().finalizers(), ["example.com/theirs"]);
    story.patch::<Mysql>("shop", finalizers).await;
}

#[tokio::test]
async fn unowned_objects_crash_nothing() {
    let mut story = Story::begin("unowned").await;
    make::<StatefulSet>(&story, set("theirs")).await;
    let odd = ["", "/", "nobody/", "nobody/0"];
    for (number, annotation) in odd.iter().enumerate() {
        let metadata =
            json!({"name": format!("odd-{number}"), "annotations": {"fnjoin.com/mysql": annotation}});
        make::<Secret>(&story, json!({"metadata": metadata})).await;
        make::<Service>(&story, json!({"metadata": metadata, "spec": {"ports": [{"port": 80}]}})).await;
    }
    for name in ["data--0", "data-0", "data-nobody-0", "other"] {
        let resources = json!({"requests": {"storage": "1Gi"}});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": resources});
        make::<PersistentVolumeClaim>(&story, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    story.running("shop").await;
    story.start_operator(&["--alone"]);
    story.delete::<Service>("shop").await;
    story.until::<Service>("shop", |_| true).await;
    assert_eq!(story.api::<StatefulSet>().get("theirs").await.unwrap().owner_references(), []);
    let metrics = story.operator.as_ref().unwrap().process.page("/metrics").await;
    assert!(!metrics.contains("panicked"), "{metrics}");
}

#[tokio::test]
async fn children_are_found_by_an_owner_reference_of_another_version() {
    let story = Story::begin("older").await;
    story.running("shop").await;
    let service: Service = story.api().get("shop").await.unwrap();
    let mut owner = json!(service.owner_references()[0]);
    owner["apiVersion"] = json!("fnjoin.com/v1alpha1");
    // No annotation helps.
    let metadata = json!({"ownerReferences": [owner], "annotations": {"fnjoin.com/mysql": null}});
    let older = story.patch::<Service>("shop", json!({"metadata": metadata})).await;
    let restored =
        story.until::<Service>("shop", |it| it.owner_references()[0].api_version == "fnjoin.com/v1").await;
    assert_eq!(restored.uid(), older.uid());
}
