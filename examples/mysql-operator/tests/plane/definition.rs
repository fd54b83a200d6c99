//! What the API server accepts as a Mysql.

use crate::story::Story;
use kubebid_mysql_operator::api::Mysql;
use serde_json::json;

#[tokio::test]
async fn a_mysql_has_defaults() {
    let story = Story::without_operator("defaults").await;
    let spec = story.try_create("shop", json!({})).await.unwrap().spec;
    assert_eq!(
        (spec.storage.0.as_str(), spec.memory.0.as_str(), spec.cpu.0.as_str()),
        ("1Gi", "512Mi", "500m")
    );
}

#[tokio::test]
async fn quantities_have_a_pattern() {
    let story = Story::without_operator("quantities").await;
    for (number, spec) in [
        json!({"storage": "500M", "memory": "1073741824", "cpu": "2"}),
        json!({"storage": "3Ti", "memory": "300Mi", "cpu": "1.5"}),
    ]
    .into_iter()
    .enumerate()
    {
        story.try_create(&format!("good-{number}"), spec).await.unwrap();
    }
    for spec in [
        json!({"storage": "0Gi"}),
        json!({"storage": "-1Gi"}),
        json!({"storage": "1.5Gi"}),
        json!({"storage": "1GB"}),
        json!({"storage": ""}),
        json!({"memory": "512m"}),
        json!({"cpu": "0"}),
        json!({"cpu": "-1"}),
        json!({"cpu": "1Gi"}),
        json!({"cpu": "1.0000"}),
    ] {
        let refused = story.try_create("bad", spec.clone()).await;
        assert!(refused.is_err(), "{spec} is accepted");
    }
}

#[tokio::test]
async fn a_name_has_at_most_52_characters_and_is_that_of_a_service() {
    let story = Story::without_operator("names").await;
    story.try_create(&"a".repeat(52), json!({})).await.unwrap();
    let refused = story.try_create(&"a".repeat(53), json!({})).await.unwrap_err().to_string();
    assert!(refused.contains("at most 52 characters"), "{refused}");
    for name in ["1a", "a.b"] {
        let refused = story.try_create(name, json!({})).await.unwrap_err().to_string();
        assert!(refused.contains("that of a Service"), "{refused}");
    }
}

#[tokio::test]
async fn a_server_with_the_longest_name_gets_ready() {
    let story = Story::begin("longest").await;
    let name = "m".repeat(52);
    story.running(&name).await;
    story.delete::<Mysql>(&name).await;
}
