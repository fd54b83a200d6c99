//! Children are created, restored, and left alone where others have set something.

use crate::story::Story;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service};
use kube::ResourceExt as _;
use kubebid_mysql_operator::api::Mysql;
use kubebid_mysql_operator::children::PASSWORD;
use serde_json::json;

#[tokio::test]
async fn a_mysql_has_a_secret_a_service_and_a_stateful_set_of_its_name() {
    let story = Story::begin("children").await;
    story.create("shop", json!({"storage": "2Gi", "memory": "1Gi", "cpu": "250m"})).await;
    let mysql = story.ready("shop").await;
    assert!(mysql.status.as_ref().unwrap().ready);
    let types: Vec<_> =
        mysql.status.unwrap().conditions.into_iter().map(|it| (it.type_, it.status)).collect();
    let is_true = |type_: &str| (type_.to_owned(), "True".to_owned());
    assert_eq!(types, ["Secret", "Service", "StatefulSet", "Ready"].map(is_true));

    let secret: Secret = story.api().get("shop").await.unwrap();
    assert_eq!(secret.data.unwrap()[PASSWORD].0.len(), 32);
    let service: Service = story.api().get("shop").await.unwrap();
    assert_eq!(service.spec.unwrap().cluster_ip.unwrap(), "None");
    let pod: Pod = story.api().get("shop-0").await.unwrap();
    let requests = pod.spec.unwrap().containers[0].resources.clone().unwrap().requests.unwrap();
    assert_eq!((requests["cpu"].0.as_str(), requests["memory"].0.as_str()), ("250m", "1Gi"));
    let set: StatefulSet = story.api().get("shop").await.unwrap();
    let owners = set.metadata.owner_references.unwrap();
    assert_eq!((Some(&owners[0].uid), owners[0].controller), (mysql.metadata.uid.as_ref(), Some(true)));
    assert_eq!(secret.metadata.owner_references, None, "the password stays with the volume");
    let shown = story.plane.get(&["-n", story.namespace, "get", "mysqls", "shop"]);
    assert!(shown.contains("2Gi") && shown.contains("true"), "{shown}");

    story.delete::<Mysql>("shop").await;
    let gone = || async { story.api::<StatefulSet>().get_opt("shop").await.unwrap().is_none() };
    story.eventually("its children are collected", gone).await;
}

#[tokio::test]
async fn the_password_has_the_lifetime_of_the_volume() {
    let story = Story::begin("policy").await;
    let first = story.running("shop").await;
    let password = async || story.api::<Secret>().get_opt("shop").await.unwrap().map(|it| it.data.unwrap());
    let before = password().await;
    story.delete::<Mysql>("shop").await;
    let is_gone = || async { story.api::<StatefulSet>().get_opt("shop").await.unwrap().is_none() };
    story.eventually("the StatefulSet is collected", is_gone).await;
    let claim: PersistentVolumeClaim = story.api().get("data-shop-0").await.unwrap();
    assert_eq!(password().await, before, "it stays");

    // The next one of the name has both.
    story.try_create("shop", json!({})).await.unwrap();
    let second = story.ready("shop").await;
    assert_ne!(second.metadata.uid, first.metadata.uid);
    let there: PersistentVolumeClaim = story.api().get("data-shop-0").await.unwrap();
    assert_eq!((password().await, there.metadata.uid), (before, claim.metadata.uid));

    // With the other policy, both go.
    story.patch::<Mysql>("shop", json!({"spec": {"deletionPolicy": "Delete"}})).await;
    let is_owned =
        |secret: &Secret| secret.owner_references().first().map(|it| it.uid.clone()) == second.metadata.uid;
    story.until::<Secret>("shop", is_owned).await;
    story.until::<PersistentVolumeClaim>("data-shop-0", |claim| !claim.owner_references().is_empty()).await;
    story.delete::<Mysql>("shop").await;
    let are_gone = || async {
        let claim = story.api::<PersistentVolumeClaim>().get_opt("data-shop-0").await.unwrap();
        claim.is_none() && password().await.is_none()
    };
    story.eventually("volume and password are deleted", are_gone).await;
}

#[tokio::test]
async fn children_that_are_deleted_are_created_again() {
    let story = Story::begin("deleted").await;
    story.running("shop").await;
    let service: Service = story.api().get("shop").await.unwrap();
    story.delete::<Service>("shop").await;
    story.until_replaced(&service).await;
    let set: StatefulSet = story.api().get("shop").await.unwrap();
    story.delete::<StatefulSet>("shop").await;
    story.until_replaced(&set).await;
    story.ready("shop").await;
    assert_eq!(
        story
            .api::<Secret>()
            .list(&Default::default())
            .await
            .unwrap()
            .iter()
            .map(|it| it.name_any())
            .collect::<Vec<_>>(),
        ["shop"]
    );
}
