//! `deploy/kubernetes/`: applied for real, and the operator works with the rights that it gives.

use crate::external::provider::Provider;
use crate::preemption::is_tainted;
use crate::story::{PATIENT, Story, plane, spawn_as};
use k8s_openapi::api::core::v1::Pod;
use kubebid_client::v1;
use kubebid_operator::crds::{self, CrdOptions};
use kubebid_testkit::{Account, Plane};
use serde_json::json;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EU: &str = "h100-8x/eu-west";
const NOTICE: Duration = Duration::from_secs(20);
pub(crate) const SYSTEM: &str = "kubebid-system";
/// The name of the service account and of its roles.
pub(crate) const OPERATOR: &str = "kubebid-operator";

pub(crate) fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes")
}

#[test]
fn the_definitions_are_those_of_the_types() {
    let kept = |folder: &str| std::fs::read_to_string(manifests().join(folder).join("crds.yaml")).unwrap();
    assert!(
        kept("operator") == crds::yaml(&CrdOptions::default()).unwrap(),
        "the types have changed: cargo run -p kubebid-operator -- crds > deploy/kubernetes/operator/crds.yaml",
    );
    assert!(
        kept("market-definitions") == crds::market_yaml().unwrap(),
        "the types have changed: cargo run -p kubebid-operator -- crds --market > \
         deploy/kubernetes/market-definitions/crds.yaml",
    );
}

/// A BidNode from its bid to its end, with a pod that is evicted from it.
async fn live(story: &Story, name: &str) {
    let spec =
        json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 1, "nodeSelector": {"pool": name}});
    story.bid(name, spec).await;
    let bidnode = story.running(name, 1).await;
    story.pod(name, json!({"nodeSelector": {"pool": name}})).await;
    story.until_pod(name, "it runs", runs).await;
    story.delete(name).await;
    story.gone(name).await;
    story.until_pod(name, "it is evicted", |pod| pod.is_none()).await;
    assert!(story.nodes_of(&bidnode).await.is_empty());
    unhindered(story);
}

/// A notice that is taken back, then one that a disruption budget does not yield to: when its time is over, the pod is
/// deleted. The event that tells of the second notice repeats that of the first.
async fn lose(story: &Story, name: &str) {
    let spec =
        json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2, "nodeSelector": {"pool": name}});
    story.bid(name, spec).await;
    let bidnode = story.running(name, 2).await;
    story.pod(name, json!({"nodeSelector": {"pool": name}})).await;
    story.until_pod(name, "it runs", runs).await;
    story.protect(name);
    let tainted = || async { story.nodes_of(&bidnode).await.iter().map(is_tainted).collect::<Vec<_>>() };
    let rival = story.market.rival_bids(EU, 4, 20.0).await;
    story
        .eventually("the node of the pod is left, with a notice", || async { tainted().await == [true] })
        .await;
    story.market.rival_cancels(rival).await;
    story.eventually("the notice is taken back", || async { !tainted().await.contains(&true) }).await;
    story.running(name, 2).await;
    let rival = story.market.rival_bids(EU, 4, 20.0).await;
    story.until_pod(name, "it is deleted", |pod| pod.is_none()).await;
    let is_said = || story.operator.as_ref().unwrap().log().contains("there was no time to ask");
    story.eventually("the operator says why", || std::future::ready(is_said())).await;
    story.market.rival_cancels(rival).await;
    story.delete(name).await;
    story.gone(name).await;
    unhindered(story);
}

/// Waits until a service account of a folder has used all rights that it was granted, except these. Events are written
/// late, and the audit log has a request later than its effect is seen.
async fn until_used(story: &Story, account: &Account, name: &str, roles: &[&[&str]], except: &[&str]) {
    let own: [&[&str]; 2] = [&["clusterrole", name], &["role", name, "-n", SYSTEM]];
    let granted: Vec<String> =
        own.iter().chain(roles).flat_map(|role| story.plane.granted_rights(role)).collect();
    let unused = || {
        let used = account.used_rights();
        granted.iter().filter(|right| !used.contains(*right)).cloned().collect::<Vec<_>>()
    };
    story.eventually(&format!("{name} uses its rights"), || std::future::ready(unused() == except)).await;
}

fn runs(pod: Option<&Pod>) -> bool {
    pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()).is_some_and(|phase| phase == "Running")
}

fn unhindered(story: &Story) {
    let log = story.operator.as_ref().unwrap().log();
    assert!(!log.to_lowercase().contains("forbidden"), "{log}");
}

#[tokio::test]
async fn the_rights_of_the_manifests_are_enough_and_not_too_many() {
    let plane = plane();
    let at = |folder: PathBuf| folder.to_str().unwrap().to_owned();
    plane.get(&["apply", "-k", &at(manifests().join("operator"))]);
    let ready = "jsonpath={.status.replicas}=2";
    plane.get(&["wait", "-n", SYSTEM, "deployment/kubebid-operator", "--for", ready, PATIENT]);

    let mut story = Story::without_operator("rights").await;
    let folder = tempfile::tempdir().unwrap();
    let account = Account::of(plane, SYSTEM, OPERATOR, folder.path());
    story.kubeconfig = account.kubeconfig().to_owned();
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, 4, 2.0).await;
    let provider = Provider::start(Some(story.client.clone())).await;
    let lease = ["--lease-namespace", SYSTEM, "--lease-name", "kubebid-operator", "--lease-seconds", "20"];
    let namespace = story.namespace.clone();
    let labels = ["--controllers", "bidnodes,labels", "--label-set-namespace", &namespace];
    let set = json!({
        "apiVersion": "labels.banzaicloud.io/v1alpha1", "kind": "NodePoolLabelSet",
        "metadata": {"name": "machines", "namespace": namespace}, "spec": {"labels": {"tier": "gold"}},
    });
    plane.apply(&set.to_string());
    let arguments = provider.arguments();
    let arguments: Vec<_> =
        lease.into_iter().chain(labels).chain(arguments.iter().map(String::as_str)).collect();
    story.start_operator(&arguments);
    live(&story, "machines").await;
    lose(&story, "taken").await;
    assert!(provider.books().machines.is_empty());

    // Making nodes is a right of the overlay for KWOK alone.
    let may_create =
        ["auth", "can-i", "create", "nodes", "--as", "system:serviceaccount:kubebid-system:kubebid-operator"];
    assert_eq!(plane.kubectl(&may_create).stdout, b"no\n");
    plane.get(&["apply", "-k", &at(manifests().join("operator-with-kwok"))]);
    // It remembers another journal than the engine has, and is told to accept that.
    let map = ["-n", SYSTEM, "configmap/kubebid-operator-journal"];
    let journal = plane.get(&[&["get", "-o", "jsonpath={.data.journal}"][..], &map].concat());
    plane.get(&[&["patch", "--type=merge", "-p", r#"{"data": {"journal": "another"}}"#][..], &map].concat());
    story.start_operator(&[&lease[..], &["--accept-journal", &journal]].concat());
    live(&story, "kwok").await;
    assert_eq!(plane.get(&[&["get", "-o", "jsonpath={.data.journal}"][..], &map].concat()), journal);
    until_used(&story, &account, OPERATOR, &[], &UNSEEN).await;
}

/// Writes the token of a Secret to a file, as a mounted Secret has it.
fn mount(plane: &Plane, secret: &str, folder: &Path) -> PathBuf {
    let template = "go-template={{.data.token | base64decode}}";
    let token = plane.get(&["-n", SYSTEM, "get", "secret", secret, "-o", template]);
    let file = folder.join(format!("{secret}.token"));
    std::fs::write(&file, token).unwrap();
    file
}

/// Writes a folder with the market and a BidNode in it.
fn with_a_bidnode(folder: &Path, namespace: &str) {
    let bidnode = json!({
        "apiVersion": "kubebid.io/v1", "kind": "BidNode", "metadata": {"name": "gpu", "namespace": namespace},
        "spec": {"instanceType": "h100-8x", "region": "eu-west", "maxBid": 4.5, "minNodes": 2},
    });
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": ["market", "bidnode.yaml"],
    });
    std::fs::create_dir(folder).unwrap();
    symlink(manifests().join("market"), folder.join("market")).unwrap();
    std::fs::write(folder.join("bidnode.yaml"), bidnode.to_string()).unwrap();
    std::fs::write(folder.join("kustomization.yaml"), kustomization.to_string()).unwrap();
}

#[tokio::test]
async fn one_folder_makes_a_market_in_which_a_bid_gets_nodes_and_ends_at_once() {
    let mut story = Story::alone("folder").await;
    let plane = story.plane;
    let apply = |folder: &str| plane.get(&["apply", "-k", manifests().join(folder).to_str().unwrap()]);
    let ready = |object: &str, namespace: &str| {
        plane.get(&["wait", "-n", namespace, "--for=condition=Ready", object, PATIENT]);
    };
    plane.get(&["create", "namespace", SYSTEM]);
    apply("market-definitions");
    plane.get(&["wait", "--for=condition=Established", "crd", "--all", PATIENT]);
    let folder = tempfile::tempdir().unwrap();
    let start = |story: &Story, name: &str, token_file: &Path| {
        apply(name);
        let program = format!("kubebid-{name}");
        let deployment = format!("deployment/{program}");
        plane.get(&["wait", "-n", SYSTEM, &deployment, "--for=jsonpath={.status.replicas}=1", PATIENT]);
        let account = Account::of(plane, SYSTEM, &program, folder.path());
        let lease = ["--lease-namespace", SYSTEM, "--lease-name", &program];
        let arguments = [&["--controllers", name][..], &lease].concat();
        (spawn_as(story, account.kubeconfig(), token_file, &arguments), account)
    };
    let (markets, markets_account) = start(&story, "markets", &story.market.admin_token_file());
    apply("market");
    for object in [
        "instancetype/h100-8x",
        "market/h100-8x-eu-west",
        "market/h100-8x-us-east",
        "account/gpu-cloud",
        "account/research",
    ] {
        ready(object, SYSTEM);
    }
    let (offers, offers_account) = start(&story, "offers", &mount(plane, "kubebid-offers", folder.path()));
    ready("offer/h100-8x-eu-west", "gpu-cloud");

    // The tenant's token is that of the operator's Secret.
    let token_file = mount(plane, "kubebid-operator", folder.path());
    let arguments = ["--alone", "--controllers", "bidnodes"];
    story.operator = Some(spawn_as(&story, &plane.kubeconfig(), &token_file, &arguments));
    let whole = folder.path().join("whole");
    with_a_bidnode(&whole, &story.namespace);
    plane.get(&["apply", "-k", whole.to_str().unwrap()]);
    story.running("gpu", 2).await;

    // Each says twice that a change is refused, with other words, which is one event that is counted.
    let offer = ["-n", "gpu-cloud", "offer/h100-8x-eu-west"];
    let change = |object: &[&str], patch: &str| {
        plane.get(&[&["patch", "--type=merge", "-p", patch], object].concat());
    };
    let says = |object: &[&str], reason: &str| {
        let reason = format!("--for=jsonpath={{.status.reason}}={reason}");
        plane.get(&[&["wait", &reason, PATIENT], object].concat());
    };
    for reserve in ["1.00005", "1.00006"] {
        change(&offer, &json!({"spec": {"reserve": reserve}}).to_string());
        says(&offer, "BadReserve");
        change(&offer, r#"{"spec": {"reserve": "1.25"}}"#);
        says(&offer, "Available");
    }
    let market = ["market/h100-8x-us-east"];
    for permissions in ["cu", "readonly"] {
        let annotations = json!({"market.kubebid.io/access-permissions": permissions});
        change(
            &market,
            &json!({"metadata": {"annotations": annotations}, "spec": {"rules": {"tickMicros": 500}}})
                .to_string(),
        );
        says(&market, "PermissionMissing");
        change(&market, r#"{"spec": {"rules": {"tickMicros": null}}}"#);
        says(&market, "Available");
    }
    // All at once: each token is there until nothing needs it.
    plane.get(&["delete", "--ignore-not-found", "-k", whole.to_str().unwrap(), PATIENT]);
    let left =
        plane.get(&["get", "instancetypes,markets,accounts,offers,bidnodes,bidslots", "-A", "-o", "name"]);
    assert_eq!(left, "");
    let admin = story.market.admin();
    let tokens = admin.all(v1::ListTokensRequest::default()).await.unwrap().tokens;
    assert!(!tokens.iter().any(|it| ["gpu-cloud", "research"].contains(&&*it.account)), "{tokens:?}");
    let secrets = ["get", "secrets", "-n", SYSTEM, "-o", "name"];
    assert!(!plane.get(&secrets).contains("kubebid-o"), "{}", plane.get(&secrets));
    let account = Some("research".to_owned());
    let seq = admin.first(v1::ListMarketsRequest::default(), 1).await.unwrap().seq;
    let states = vec![v1::allocation::State::Starting.into(), v1::allocation::State::Active.into()];
    let held = v1::ListAllocationsRequest { account, states, min_seq: seq, ..Default::default() };
    assert_eq!(admin.all(held).await.unwrap().allocations, []);
    let account = Some("gpu-cloud".to_owned());
    let offered = v1::ListOffersRequest { account, min_seq: seq, ..Default::default() };
    let offered = admin.all(offered).await.unwrap().offers;
    assert!(offered.iter().all(|it| it.capacity + it.free + it.allocated + it.leaving == 0), "{offered:?}");
    for process in [&offers, &markets] {
        // No event can be written into a namespace that is being deleted.
        let log = process.log();
        let is_refused =
            |line: &&str| line.to_lowercase().contains("forbidden") && !line.contains("being terminated");
        assert_eq!(log.lines().find(is_refused), None);
    }
    let secrets: [&[&str]; 1] = [&["clusterrole", "kubebid-token-secrets"]];
    until_used(&story, &markets_account, "kubebid-markets", &secrets, &[]).await;
    until_used(&story, &offers_account, "kubebid-offers", &[], &[]).await;
}

/// Rights that no request shows: the API server checks them in the admission plugin OwnerReferencesPermissionEnforcement.
const UNSEEN: [&str; 1] = ["update kubebid.io/bidnodes/finalizers"];
