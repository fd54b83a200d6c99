//! The website controller of the documentation: an object with children.

use crate::example::{Website, Websites};
use crate::story::{Story, eventually, run};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::PostParams;
use kubebid_controller::composite::Composed;
use kubebid_controller::conditions::is_true;
use kubebid_controller::leader_election::Leadership;
use kubebid_controller::{ControllerOptions, Manager, Options};
use serde_json::json;

fn websites(story: &Story, options: Options) -> Manager {
    let mut manager = Manager::new(story.client.clone(), Leadership::alone(), options);
    let websites = Composed::new(Websites { client: story.client.clone() });
    manager.add(websites, story.api(), ControllerOptions::default());
    manager
}

fn is_ready(site: &Website) -> bool {
    site.status.as_ref().is_some_and(|status| is_true(&status.conditions, "Ready"))
}

fn is_conflict(site: &Website) -> bool {
    site.status.iter().flat_map(|status| &status.conditions).any(|it| it.reason == "Conflict")
}

fn has_html(page: &ConfigMap, html: &str) -> bool {
    page.data.as_ref().is_some_and(|data| data["index.html"] == html)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_website_gets_its_children_and_keeps_them_as_they_are_wanted() {
    let story = Story::begin("children").await;
    let running = run(websites(&story, Options::default()));
    story.create("blog", "<p>one</p>").await;
    story.until("blog", is_ready).await;

    // A field of ours that somebody changes is restored, a field of theirs stays.
    let theirs = json!({"data": {"index.html": "<p>hacked</p>", "theirs": "kept"}});
    story.patch::<ConfigMap>("blog", theirs).await;
    let page = story.until("blog", |page| has_html(page, "<p>one</p>")).await;
    assert_eq!(page.data.unwrap()["theirs"], "kept");

    story.patch::<Website>("blog", json!({"spec": {"html": "<p>two</p>"}})).await;
    story.until("blog", |page| has_html(page, "<p>two</p>")).await;
    let deployments = story.api::<Deployment>();
    let uid = deployments.get("blog").await.unwrap().uid();
    deployments.delete("blog", &Default::default()).await.unwrap();
    story.until("blog", |deployment: &Deployment| deployment.uid() != uid).await;
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_object_with_the_name_of_a_child_is_not_touched() {
    let story = Story::begin("foreign").await;
    let running = run(websites(&story, Options::default()));
    let foreign = json!({"metadata": {"name": "shop"}, "data": {"index.html": "theirs"}});
    let foreign: ConfigMap = serde_json::from_value(foreign).unwrap();
    let foreign = story.api().create(&PostParams::default(), &foreign).await.unwrap();
    story.create("shop", "<p>ours</p>").await;
    story.until("shop", is_conflict).await;
    let page = story.api::<ConfigMap>().get("shop").await.unwrap();
    assert_eq!(page.resource_version(), foreign.resource_version());
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_asks_the_server_and_changes_nothing() {
    let story = Story::begin("dry-run").await;
    let running = run(websites(&story, Options { dry_run: true, ..Options::default() }));
    story.create("blog", "<p>one</p>").await;
    // The status is written last.
    let asked = |resource: &str| {
        story.requests().iter().any(|request| {
            request["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun=All"))
                && request["objectRef"]["resource"] == resource
        })
    };
    eventually("the status of a dry run", || asked("websites")).await;
    assert!(asked("configmaps") && asked("deployments"));
    assert!(story.api::<ConfigMap>().get_opt("blog").await.unwrap().is_none());
    assert!(story.api::<Deployment>().get_opt("blog").await.unwrap().is_none());
    assert!(story.api::<Website>().get("blog").await.unwrap().status.is_none());
    running.abort();
}
