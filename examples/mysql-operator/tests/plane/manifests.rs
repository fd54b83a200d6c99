//! `manifests/`: the definition is that of the types, and the rights are those that are used.

use crate::operator::{Operator, RIGHTS};
use crate::story::Story;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Secret, Service};
use kubebid_mysql_operator::api::Mysql;
use kubebid_testkit::{Account, Process};
use serde_json::json;
use std::path::Path;
use std::process::Command;

#[test]
fn the_definition_is_what_the_program_prints() {
    let printed = Command::new(env!("CARGO_BIN_EXE_mysql-operator")).arg("crds").output().unwrap();
    let kept = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/crd.yaml")).unwrap();
    assert!(
        kept == printed.stdout,
        "the types have changed: cargo run -p kubebid-mysql-operator -- crds > examples/mysql-operator/manifests/crd.yaml"
    );
}

/// Rights that no request of this story shows: to count the same event again, after more than two minutes and less than six, and
/// those that the admission plugin OwnerReferencesPermissionEnforcement asks for.
const UNSEEN: [&str; 4] = [
    "delete /secrets",
    "delete /services",
    "patch events.k8s.io/events",
    "update fnjoin.com/mysqls/finalizers",
];

#[tokio::test]
async fn the_rights_of_the_manifests_are_enough_and_not_too_many() {
    let mut story = Story::without_operator("rights").await;
    story.start_operator(&["--identity", "one"]);
    story.running("shop").await;
    let set: StatefulSet = story.api().get("shop").await.unwrap();
    story.patch::<Service>("shop", json!({"spec": {"selector": null}})).await;
    story.until::<Service>("shop", |it| it.spec.as_ref().unwrap().selector.is_some()).await;
    story.patch::<Mysql>("shop", json!({"spec": {"cpu": "2"}})).await;
    story.ready("shop").await;
    story.patch::<Mysql>("shop", json!({"spec": {"storage": "2Gi"}})).await;
    story.until_replaced(&set).await;
    story.patch::<Mysql>("shop", json!({"spec": {"deletionPolicy": "Delete"}})).await;
    story.until::<Secret>("shop", |it| it.metadata.owner_references.is_some()).await;
    story.delete::<Secret>("shop").await;
    story.until_condition("shop", "Ready", "Degraded").await;
    let mut granted = story.plane.granted_rights(&["clusterrole", "mysql-operator"]);
    granted.extend(story.plane.granted_rights(&["role", "mysql-operator", "-n", story.namespace]));
    let unused = || granted.difference(&story.account.used_rights()).cloned().collect::<Vec<_>>();
    story.eventually("all rights are used", || std::future::ready(unused() == UNSEEN)).await;
    assert_eq!(story.account.used_rights().difference(&granted).collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(!story.operator.as_ref().unwrap().process.log().contains("orbidden"));
}

#[tokio::test]
async fn the_sample_becomes_ready() {
    let story = Story::begin("sample").await;
    let sample = include_str!("../../manifests/sample.yaml");
    story.provide_volume("shop");
    story.plane.apply(&sample.replace("namespace: default", &format!("namespace: {}", story.namespace)));
    story.ready("shop").await;
    // The Deployment is one that the API server takes.
    let deployment = include_str!("../../manifests/deployment.yaml");
    story.plane.apply(&deployment.replace("namespace: default", &format!("namespace: {}", story.namespace)));
}

#[tokio::test]
async fn the_mysqls_of_all_namespaces_are_served_by_the_manifests_as_they_are() {
    let story = Story::alone_without_operator("first").await;
    for object in [RIGHTS, include_str!("../../manifests/deployment.yaml")] {
        story.plane.apply(object);
    }
    let account = Account::of(story.plane, "default", "mysql-operator", story.folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_mysql-operator"));
    // What the Deployment gives it.
    command.args(["run", "--listen", "127.0.0.1:0"]).env("SPACE", "default").env("INSTANCEIDENTITY", "a");
    let _operator = Process::start(command.env("KUBECONFIG", account.kubeconfig()));
    story.running("shop").await;
    story.plane.get(&["create", "namespace", "second"]);
    story.in_namespace("second").running("shop").await;
}

#[tokio::test]
async fn uninstall_leaves_the_servers_running() {
    let mut story = Story::begin("uninstall").await;
    story.running("shop").await;
    let set: StatefulSet = story.api().get("shop").await.unwrap();
    story.operator = None;
    let done = Command::new(env!("CARGO_BIN_EXE_mysql-operator"))
        .args(["uninstall", "--namespace", story.namespace])
        .env("SPACE", story.namespace)
        .env("KUBECONFIG", story.plane.kubeconfig())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(
        String::from_utf8_lossy(&done.stdout).contains("/shop is deleted; its server runs on"),
        "{done:?}"
    );
    let gone = || async { story.api::<Mysql>().get_opt("shop").await.unwrap().is_none() };
    story.eventually("the Mysql is gone", gone).await;
    let left = story.until::<StatefulSet>("shop", |it| it.metadata.owner_references.is_none()).await;
    assert_eq!((left.metadata.uid, left.metadata.deletion_timestamp), (set.metadata.uid, None));
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let story = Story::without_operator("dry").await;
    story.create("shop", json!({})).await;
    let operator = Operator::start(story.namespace, &story.account, &["--dry-run"]);
    let logged = || async { operator.process.log().matches("withheld by --dry-run").count() >= 4 };
    story.eventually("the operator says what it would write", logged).await;
    assert!(story.api::<StatefulSet>().get_opt("shop").await.unwrap().is_none());
    assert!(story.api::<Mysql>().get("shop").await.unwrap().status.is_none());
}
