//! Things that break: a pass, the API server.

use crate::story::Story;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use kubebid_mysql_operator::api::Mysql;
use kubebid_testkit::Component;
use serde_json::json;

#[tokio::test]
async fn a_panic_in_a_pass_harms_nothing() {
    let mut story = Story::without_operator("panic").await;
    story.start_operator(&["--alone", "--panic-at", "children-written"]);
    story.running("shop").await;
    let metrics = story.operator.as_ref().unwrap().process.page("/metrics").await;
    assert!(metrics.contains("result=\"panicked\"} 1\n"), "{metrics}");
    story.running("other").await;
}

#[tokio::test]
async fn an_api_server_that_restarts_is_followed_again() {
    let mut story = Story::alone("apiserver").await;
    story.running("shop").await;
    let service: Service = story.api().get("shop").await.unwrap();
    story.plane.restart(Component::ApiServer);
    story.reconnect().await;
    story.delete::<Service>("shop").await;
    story.until_replaced(&service).await;
    story.patch::<Mysql>("shop", json!({"spec": {"cpu": "1"}})).await;
    story.ready("shop").await;
}

#[tokio::test]
async fn what_happens_while_no_watch_sees_it_is_noticed_later() {
    let mut story = Story::alone("compaction").await;
    story.running("shop").await;
    let service: Service = story.api().get("shop").await.unwrap();
    story.operator.as_ref().unwrap().process.signal("STOP");
    // The watches end, and no later one can begin where they ended.
    story.plane.restart(Component::ApiServer);
    story.reconnect().await;
    story.delete::<Service>("shop").await;
    story.patch::<StatefulSet>("shop", json!({"spec": {"replicas": 0}})).await;
    story.plane.compact();
    story.plane.restart(Component::ApiServer);
    story.reconnect().await;
    story.operator.as_ref().unwrap().process.signal("CONT");
    story.until_replaced(&service).await;
    story.until::<StatefulSet>("shop", |set| set.spec.as_ref().unwrap().replicas == Some(1)).await;
    story.ready("shop").await;
    let log = story.operator.as_ref().unwrap().process.log();
    assert!(log.contains("too old resource version"), "{log}");
}
