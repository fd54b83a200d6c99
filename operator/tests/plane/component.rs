//! The component `deploy/kubernetes/versions`: applied as kustomize renders it, and taken away again, while nodes run.

use crate::manifests::{OPERATOR, SYSTEM, manifests};
use crate::story::{PATIENT, Story};
use crate::versions::{BETA, V1, kubectl, machines, newer, object};
use k8s_openapi::ByteString;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubebid_operator::conversion::hub;
use kubebid_testkit::{Account, Balancer, Plane, Port, Process};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";
const CRD: &str = "bidnodes.kubebid.io";
/// The Service and the Secret of the webhook.
const WEBHOOK: &str = "kubebid-operator-webhook";
const LEASE: [&str; 6] = ["--lease-namespace", SYSTEM, "--lease-name", OPERATOR, "--lease-seconds", "20"];

/// Writes an overlay of the operator for KWOK.
fn overlay(folder: &Path, name: &str, components: &[&str]) -> PathBuf {
    let overlay = folder.join(name);
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": ["../kubernetes/operator-with-kwok"], "components": components,
    });
    std::fs::create_dir(&overlay).unwrap();
    std::fs::write(overlay.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    overlay
}

fn apply(plane: &Plane, overlay: &Path, more: &[&str]) {
    plane.get(&[&["apply", "-k", overlay.to_str().unwrap()], more].concat());
}

/// Stands in for the network of the cluster: the address of the Service is that of the balancer.
fn route(plane: &Plane, balancer: &Balancer) {
    let service = json!({"spec": {"type": "ExternalName", "externalName": "localhost"}}).to_string();
    plane.get(&["-n", SYSTEM, "patch", "service", WEBHOOK, "--type=merge", "-p", &service]);
    let client = json!({"service": {"port": balancer.address().port()}});
    let port = json!({"spec": {"conversion": {"webhook": {"clientConfig": client}}}}).to_string();
    plane.get(&["patch", "crd", CRD, "--type=merge", "-p", &port]);
}

fn deployment(plane: &Plane) -> Value {
    let deployment = plane.get(&["-n", SYSTEM, "get", "deployment", OPERATOR, "-o", "json"]);
    serde_json::from_str(&deployment).unwrap()
}

/// Returns how many pods the Deployment replaces at once, and what it adds to the command line of the base, with another address.
fn rendered(plane: &Plane, port: &Port) -> (String, Vec<String>) {
    let deployment = deployment(plane);
    let at_once =
        deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"].as_str().unwrap().to_owned();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    assert_eq!(arguments[..3], ["run", "--listen", "0.0.0.0:7443"]);
    let other = |it: &String| if it == "0.0.0.0:8443" { port.address().to_string() } else { it.clone() };
    (at_once, arguments[3..].iter().map(other).collect())
}

/// Replaces both replicas, as the Deployment would.
fn replace(story: &Story, replicas: &mut Vec<Process>, ports: &[Port; 2]) {
    replicas.clear();
    for port in ports {
        let (_, more) = rendered(story.plane, port);
        let more = more.iter().map(String::as_str);
        replicas.push(story.start_replica(&LEASE.into_iter().chain(more).collect::<Vec<_>>()));
    }
}

fn ca_bundle(plane: &Plane) -> String {
    let field = "jsonpath={.spec.conversion.webhook.clientConfig.caBundle}";
    plane.get(&["get", "crd", CRD, "-o", field])
}

/// Lets the authority in the Secret be so old that it announces the next one.
fn age(plane: &Plane) {
    let field = r"jsonpath={.data.authority\.json}";
    let data = plane.get(&["-n", SYSTEM, "get", "secret", WEBHOOK, "-o", field]);
    let data: ByteString = serde_json::from_value(json!(data)).unwrap();
    let mut content: Value = serde_json::from_slice(&data.0).unwrap();
    let made: Timestamp = serde_json::from_value(content["current"]["made"].take()).unwrap();
    content["current"]["made"] = json!(made - SignedDuration::from_hours(24 * 100));
    let data = json!({"data": {"authority.json": ByteString(content.to_string().into_bytes())}}).to_string();
    plane.get(&["-n", SYSTEM, "patch", "secret", WEBHOOK, "--type=merge", "-p", &data]);
}

/// Runs `kubebid-operator migrate` as an administrator.
fn migrate(plane: &Plane, more: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_kubebid-operator"));
    program.arg("migrate").args(more).env("KUBECONFIG", plane.kubeconfig()).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_component_goes_up_and_down_and_touches_no_node() {
    let mut story = Story::alone("component").await;
    let plane = story.plane;
    let folder = tempfile::tempdir().unwrap();
    symlink(manifests(), folder.path().join("kubernetes")).unwrap();
    let without = overlay(folder.path(), "without", &[]);
    let with = overlay(folder.path(), "with", &["../kubernetes/versions"]);
    apply(plane, &without, &[]);
    let ready = "jsonpath={.status.replicas}=2";
    plane.get(&["wait", "-n", SYSTEM, "deployment/kubebid-operator", "--for", ready, PATIENT]);
    let account = Account::of(plane, SYSTEM, OPERATOR, folder.path());
    story.kubeconfig = account.kubeconfig().to_owned();
    let (balancer, ports) = Balancer::of_two().await;
    let mut replicas = Vec::new();
    assert_eq!(rendered(plane, &ports[0]), ("25%".to_owned(), Vec::new()));
    story.market.open(EU, Duration::from_secs(20)).await;
    story.market.offer(EU, 4, 1.0).await;
    replace(&story, &mut replicas, &ports);
    story.bid("fleet", json!({"instanceType": "h100-8x", "maxBid": 3, "minNodes": 3})).await;
    story.running("fleet", 3).await;
    let before = machines(&story, "fleet").await;
    assert_eq!(before.0.len(), 3);

    // Up.
    apply(plane, &with, &[]);
    route(plane, &balancer);
    let (at_once, webhook) = rendered(plane, &ports[0]);
    assert_eq!((&at_once[..], &webhook[0][..]), ("100%", "--webhook-listen"));
    replace(&story, &mut replicas, &ports);
    balancer.until_ready(2).await;
    let is_served = || async { newer(&story).get("fleet").await.is_ok() };
    story.eventually("v2beta1 is served", is_served).await;
    let wide = json!({
        "instanceTypes": ["h100-8x", "a100-8x"], "regions": ["eu-west"], "maxBid": "0.50", "nodes": {"min": 0},
    });
    kubectl(&story, &["apply", "--server-side", "-f", "-"], &object("v2beta1", "wide", &wide)).unwrap();
    files(&story, &wide);

    // The same again, in both ways, while the bundle changes.
    let first = ca_bundle(plane);
    age(plane);
    let is_announced = || async { ca_bundle(plane).len() > first.len() };
    story.eventually("another authority is announced", is_announced).await;
    let bundle = ca_bundle(plane);
    for more in [&[][..], &["--server-side"], &[]] {
        apply(plane, &with, more);
        assert_eq!(ca_bundle(plane), bundle, "{more:?}");
        kubectl(&story, &["get", BETA, "wide"], "").unwrap();
        assert_eq!(rendered(plane, &ports[0]).0, "100%");
    }

    // Down.
    apply(plane, &without, &[]);
    assert_eq!(rendered(plane, &ports[0]), ("25%".to_owned(), Vec::new()));
    assert_eq!(ca_bundle(plane), "");
    replace(&story, &mut replicas, &ports);
    let is_unserved = |error: kube::Error| matches!(error, kube::Error::Api(status) if status.code == 404);
    story
        .eventually("v2beta1 is gone", || async { newer(&story).get("fleet").await.is_err_and(is_unserved) })
        .await;
    let check = migrate(plane, &["--check"]);
    assert_eq!(check.status.code(), Some(1), "{}", said(&check));
    assert!(said(&check).contains("1 objects have field managers"), "{}", said(&check));
    let done = migrate(plane, &[]);
    assert!(done.status.success() && said(&done).contains("2 objects are written"), "{}", said(&done));
    let check = migrate(plane, &["--check"]);
    assert!(check.status.success(), "{}", said(&check));
    for command in [&["scale", V1, "wide", "--replicas=1"][..], &["label", V1, "wide", "team=a"]] {
        kubectl(&story, command, "").unwrap();
    }
    let stored = story.bidnodes().get("wide").await.unwrap();
    assert_eq!(hub(&stored).spec.instance_types, ["h100-8x", "a100-8x"]);
    story.until("wide", "it bids by v1", |status| status.pending_bids == 1).await;

    // And up, server-side, which takes over what was applied client-side: nothing is lost.
    apply(plane, &with, &["--server-side", "--force-conflicts"]);
    route(plane, &balancer);
    assert_eq!(rendered(plane, &ports[0]).0, "100%");
    replace(&story, &mut replicas, &ports);
    let kept = || async { newer(&story).get("wide").await.is_ok() };
    story.eventually("v2beta1 is served again", kept).await;
    let wide = newer(&story).get("wide").await.unwrap().spec;
    assert_eq!((wide.instance_types.len(), wide.nodes.min), (2, 1));
    assert_eq!(machines(&story, "fleet").await.0, before.0, "no node was touched");
    let held = machines(&story, "fleet").await.1;
    assert!(before.1.iter().all(|(slot, allocation)| held.get(slot) == Some(allocation)));

    let granted = [&["clusterrole", WEBHOOK][..], &["role", WEBHOOK, "-n", SYSTEM]];
    let granted: Vec<String> = granted.iter().flat_map(|role| plane.granted_rights(role)).collect();
    // The audit log has a request later than its effect is seen.
    let all_used = || {
        let used = account.used_rights();
        granted.iter().all(|right| used.contains(right))
    };
    story.eventually("all rights are used", || std::future::ready(all_used())).await;
    for replica in replicas {
        let log = replica.log();
        assert!(!log.to_lowercase().contains("forbidden"), "{log}");
    }
}

/// Checks that the API server accepts files that the program has converted, in both versions.
fn files(story: &Story, wide: &Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("objects.yaml");
    let plain = json!({"instanceType": "h100-8x", "maxBid": 2.5});
    for text in [object("v2beta1", "filed", wide), object("v1", "filed", &plain)] {
        let mut text = text;
        for version in ["v1", "v2beta1", "v1"] {
            std::fs::write(&file, &text).unwrap();
            let mut program = Command::new(env!("CARGO_BIN_EXE_kubebid-operator"));
            let converted = program.args(["convert", "--to", version, "-f"]).arg(&file).output().unwrap();
            text = String::from_utf8(converted.stdout).unwrap();
            let created = kubectl(story, &["create", "--dry-run=server", "-o", "yaml", "-f", "-"], &text);
            assert!(created.unwrap().contains(&format!("apiVersion: kubebid.io/{version}\n")));
        }
    }
}
