//! A conversion that panics is an error of one request. The process goes on.

use crate::kind::PANICS;
use crate::story::{Story, definition_alone};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

/// Returns the conversions that failed so far, from the metrics of this process.
fn failed(metrics: &str) -> u64 {
    let line = metrics.lines().find(|line| line.starts_with("disks_webhook_failed_conversions_total "));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversion_that_panics_fails_alone_and_is_counted() {
    let metrics = kubebid_controller::metrics::install("disks", &[]).unwrap();
    let story = Story::begin("panic", "v1beta1").await;
    let _replicas = story.start_both(&definition_alone()).await;
    story.create("blog", json!({"gigabytes": 10, "zones": ["a"]})).await;
    story.until(story.alphas(), "blog", |_| true).await;
    let before = failed(&metrics.render());

    story.create("bad", json!({"gigabytes": 1, "zones": [PANICS]})).await;
    let refusal = story.alphas().get("bad").await.unwrap_err().to_string();
    assert!(refusal.contains("the conversion panicked"), "{refusal}");
    assert!(failed(&metrics.render()) > before, "{}", metrics.render());
    assert_eq!(story.alphas().get("blog").await.unwrap().spec.size, "10Gi");
    assert_eq!(story.betas().list(&ListParams::default()).await.unwrap().items.len(), 2);

    // A client of the stored version mends the object.
    let patch = Patch::Merge(json!({"spec": {"zones": ["a"]}}));
    story.betas().patch("bad", &PatchParams::default(), &patch).await.unwrap();
    story.until(story.alphas(), "bad", |disk| disk.spec.zone == "a").await;
}
