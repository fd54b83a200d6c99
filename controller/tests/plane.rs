//! The website controller of the documentation on a real control plane.
#![allow(clippy::disallowed_methods, reason = "a test writes as people do")]

#[path = "../examples/website.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod website;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Client, Config, CustomResourceExt as _, ResourceExt as _};
use kubebid_controller::composite::Composed;
use kubebid_controller::conditions::is_true;
use kubebid_controller::leader_election::Leadership;
use kubebid_controller::{ControllerOptions, Manager, Options};
use kubebid_testkit::Plane;
use serde_json::json;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use website::{Website, Websites};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(60);

/// The plane of both tests, with the definition of websites and a node for their pods.
fn plane() -> &'static Plane {
    static PREPARED: OnceLock<()> = OnceLock::new();
    let plane = Plane::shared();
    PREPARED.get_or_init(|| {
        plane.apply(&serde_json::to_string(&Website::crd()).unwrap());
        let resources = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
        let status = json!({"capacity": resources, "allocatable": resources});
        let node =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "web-0"}, "status": status});
        plane.apply(&node.to_string());
        plane.get(&["wait", "--for=condition=Established", "crd/websites.example.com", "--timeout=60s"]);
    });
    plane
}

async fn client() -> Client {
    let plane = plane();
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn start(client: &Client) -> JoinHandle<()> {
    let mut manager = Manager::new(client.clone(), Leadership::alone(), Options::default());
    let websites = Composed::new(Websites { client: client.clone() });
    manager.add(websites, Api::all(client.clone()), ControllerOptions::default());
    tokio::spawn(async move {
        let ended = manager.run().await;
        panic!("the manager ended: {ended:?}");
    })
}

fn website(name: &str, html: &str) -> Website {
    let website = json!({"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": name}, "spec": {"html": html, "replicas": 2}});
    serde_json::from_value(website).unwrap()
}

async fn until<K>(api: &Api<K>, name: &str, holds: impl Fn(&K) -> bool) -> K
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    let reached = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&holds));
    let reached = timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{name} waits for too long"));
    reached.unwrap().unwrap()
}

fn condition(site: &Website) -> Option<&str> {
    Some(&site.status.as_ref()?.conditions.first()?.reason[..])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_website_gets_its_children_and_keeps_them_as_they_are_wanted() {
    let client = client().await;
    let running = start(&client);
    let (sites, pages) = (
        Api::<Website>::default_namespaced(client.clone()),
        Api::<ConfigMap>::default_namespaced(client.clone()),
    );
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    sites.create(&PostParams::default(), &website("blog", "<p>one</p>")).await.unwrap();
    let ready =
        |site: &Website| site.status.as_ref().is_some_and(|status| is_true(&status.conditions, "Ready"));
    until(&sites, "blog", ready).await;

    let merge = |patch| Patch::Merge(patch);
    let params = PatchParams::default();
    // A field of ours that somebody changes is restored, a field of theirs stays.
    let theirs = merge(json!({"data": {"index.html": "<p>hacked</p>", "theirs": "kept"}}));
    pages.patch("blog", &params, &theirs).await.unwrap();
    let html =
        |page: &ConfigMap, html: &str| page.data.as_ref().is_some_and(|data| data["index.html"] == html);
    let page = until(&pages, "blog", |page| html(page, "<p>one</p>")).await;
    assert_eq!(page.data.unwrap()["theirs"], "kept");

    sites.patch("blog", &params, &merge(json!({"spec": {"html": "<p>two</p>"}}))).await.unwrap();
    until(&pages, "blog", |page| html(page, "<p>two</p>")).await;
    let uid = deployments.get("blog").await.unwrap().uid();
    deployments.delete("blog", &Default::default()).await.unwrap();
    until(&deployments, "blog", |deployment| deployment.uid() != uid).await;
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_object_with_the_name_of_a_child_is_not_touched() {
    let client = client().await;
    let running = start(&client);
    let (sites, pages) = (
        Api::<Website>::default_namespaced(client.clone()),
        Api::<ConfigMap>::default_namespaced(client.clone()),
    );
    let foreign: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "shop"}, "data": {"index.html": "theirs"}}))
            .unwrap();
    let foreign = pages.create(&PostParams::default(), &foreign).await.unwrap();
    sites.create(&PostParams::default(), &website("shop", "<p>ours</p>")).await.unwrap();
    until(&sites, "shop", |site| condition(site) == Some("Conflict")).await;
    let version = pages.get("shop").await.unwrap().resource_version();
    assert_eq!(version, foreign.resource_version());
    running.abort();
}
