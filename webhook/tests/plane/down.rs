//! Without any replica, everything works but the version that is not stored.

use crate::replica::Replica;
use crate::story::{Story, definition_alone};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn the_stored_version_and_the_deletion_of_namespaces_need_no_replica() {
    let story = Story::begin("down", "v1beta1").await;
    let replicas = story.start_both(&definition_alone()).await;
    story.create("blog", json!({"gigabytes": 10, "zones": ["a"]})).await;
    story.create("shop", json!({"gigabytes": 10, "zones": ["a"]})).await;
    story.until(story.alphas(), "blog", |_| true).await;
    replicas.into_iter().for_each(Replica::kill);
    story.balancer.until_ready(0).await;

    let betas = story.betas();
    betas.get("blog").await.unwrap();
    assert_eq!(betas.list(&ListParams::default()).await.unwrap().items.len(), 2);
    let patch = Patch::Merge(json!({"spec": {"gigabytes": 11}}));
    betas.patch("blog", &PatchParams::default(), &patch).await.unwrap();
    story.create("third", json!({"gigabytes": 1, "zones": ["a"]})).await;
    betas.delete("shop", &DeleteParams::default()).await.unwrap();
    let refused = story.alphas().get("blog").await.unwrap_err().to_string();
    assert!(refused.contains("conversion webhook"), "{refused}");
    story.plane.get(&["delete", "namespace", story.namespace, "--timeout=120s"]);
}
