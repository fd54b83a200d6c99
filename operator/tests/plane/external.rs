//! Machines of a provider's own machinery: the contract between it and the operator, and BidNodes that run on them.

mod contract;
pub(crate) mod provider;

use crate::story::{self, PATIENCE, Story};
use axum::http::StatusCode;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use kubebid_client::v1;
use kubebid_client::v1::token::Role;
use kubebid_operator::api::{BidSlot, LABEL_SLOT_UID, SlotPhase};
use kubebid_operator::provisioner::external::{External, ExternalOptions, MachineState};
use kubebid_operator::provisioner::{Machine, Order, Provisioner as _};
use provider::Provider;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

const ID: &str = "5d1f3a54-7f3e-4f3b-9a55-1d2e3f4a5b6c";
const EU: &str = "h100-8x/eu-west";
const NOTICE: Duration = Duration::from_secs(20);

fn order() -> Order {
    Order {
        id: ID.to_owned(),
        name: "gpu-0-5d1f3".to_owned(),
        instance_type: "h100-8x".to_owned(),
        region: "eu-west".to_owned(),
        unit: "h100-8x/eu-west:acme#0".to_owned(),
        allocatable: [("cpu".to_owned(), serde_json::from_value(json!("64")).unwrap())].into(),
        labels: [("gpu".to_owned(), "h100".to_owned())].into(),
    }
}

fn external(provider: &Provider) -> External {
    let options =
        ExternalOptions { url: provider.url() + "/", token_file: Some(provider.token_file()), ca_file: None };
    External::new(options).unwrap()
}

#[tokio::test]
async fn repeated_calls_make_one_machine_and_end_it_once() {
    let provider = Provider::start(None).await;
    let external = external(&provider);
    assert_eq!(external.get(ID, "").await.unwrap(), Machine::Gone);
    assert_eq!(external.create(&order()).await.unwrap(), Machine::Coming);
    let running = Machine::Running { node: "rack-5d1f3a54".to_owned() };
    for _ in 0..3 {
        assert_eq!(external.create(&order()).await.unwrap(), running);
        assert_eq!(external.get(ID, "").await.unwrap(), running);
    }
    assert_eq!(provider.books().made, [ID]);
    for _ in 0..2 {
        external.delete(ID, None).await.unwrap();
        assert_eq!(external.get(ID, "").await.unwrap(), Machine::Gone);
    }
    // A call that was late on its way makes nothing.
    assert_eq!(external.create(&order()).await.unwrap(), Machine::Gone);
    assert_eq!(provider.books().made, [ID]);
}

#[tokio::test]
async fn passing_trouble_is_tried_again_and_lasting_trouble_told() {
    let provider = Provider::start(None).await;
    let external = external(&provider);
    let busy = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
    provider.books().moods.extend(busy.map(|status| (status, None)));
    assert_eq!(external.create(&order()).await.unwrap(), Machine::Coming);
    assert_eq!(provider.books().calls, 3);

    provider.books().moods.extend([(StatusCode::BAD_GATEWAY, None); 3]);
    let fault = external.get(ID, "").await.unwrap_err().to_string();
    assert!(
        fault.contains("say how far a machine is") && fault.contains("502 Bad Gateway: in no mood"),
        "{fault}"
    );
    assert_eq!(provider.books().calls, 6);

    provider.books().moods.push_back((StatusCode::FORBIDDEN, None));
    let fault = external.delete(ID, None).await.unwrap_err().to_string();
    assert!(fault.contains("cannot end a machine: 403 Forbidden: in no mood"), "{fault}");
    assert_eq!(provider.books().calls, 7);

    provider.books().moods.push_back((StatusCode::UNPROCESSABLE_ENTITY, None));
    let refused = external.create(&order()).await.unwrap();
    assert_eq!(refused, Machine::Failed { reason: "422 Unprocessable Entity: in no mood".to_owned() });
}

#[tokio::test]
async fn who_says_when_to_come_again_is_not_asked_before() {
    let provider = Provider::start(None).await;
    let external = external(&provider);
    let began = Instant::now();
    provider.books().moods.push_back((StatusCode::TOO_MANY_REQUESTS, Some("1")));
    assert_eq!(external.create(&order()).await.unwrap(), Machine::Coming);
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(provider.books().calls, 2);
    // What is later than a call may take is left to who called.
    provider.books().moods.push_back((StatusCode::SERVICE_UNAVAILABLE, Some("60")));
    let fault = external.get(ID, "").await.unwrap_err();
    assert_eq!(fault.retry_after, Some(Duration::from_secs(60)));
    assert_eq!(provider.books().calls, 3);
}

#[tokio::test]
async fn the_token_is_that_of_the_file_at_each_call() {
    let provider = Provider::start(None).await;
    let external = external(&provider);
    assert_eq!(external.get(ID, "").await.unwrap(), Machine::Gone);
    provider.change_token("another");
    assert_eq!(external.get(ID, "").await.unwrap(), Machine::Gone);
    provider.books().token = "a third".to_owned();
    let fault = external.get(ID, "").await.unwrap_err().to_string();
    assert!(fault.contains("401 Unauthorized: no such token"), "{fault}");
}

#[tokio::test]
async fn nobody_there_is_told_with_the_address() {
    let mut provider = Provider::start(None).await;
    let external = external(&provider);
    provider.stop().await;
    let fault = external.get(ID, "").await.unwrap_err().to_string();
    assert!(fault.contains(&provider.url()) && fault.contains("refused"), "{fault}");
    provider.resume().await;
    assert_eq!(external.get(ID, "").await.unwrap(), Machine::Gone);
}

#[tokio::test(start_paused = true)]
async fn silence_has_an_end() {
    // Connections are made, and nobody takes them.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let external = External::new(ExternalOptions { url, token_file: None, ca_file: None }).unwrap();
    let fault = external.get(ID, "").await.unwrap_err().to_string();
    assert!(fault.contains("no answer within 5 s"), "{fault}");
}

#[tokio::test]
async fn options_that_are_wrong_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, missing) = (folder.path().join("empty"), folder.path().join("missing"));
    std::fs::write(&empty, "\n").unwrap();
    let refused = |url: &str, token: Option<&std::path::Path>, ca: Option<&std::path::Path>, blame: &str| {
        let options = ExternalOptions {
            url: url.to_owned(),
            token_file: token.map(Into::into),
            ca_file: ca.map(Into::into),
        };
        let error = External::new(options).unwrap_err().to_string();
        assert!(error.contains(blame), "{error} should say {blame}");
    };
    refused("machines.example", None, None, "neither http nor https");
    refused("ftp://machines.example", None, None, "neither http nor https");
    refused("https://machines.example/?a=b", None, None, "it has a query");
    refused("https://machines.example", Some(&missing), None, "token file");
    refused("https://machines.example", Some(&empty), None, "it is empty");
    refused("https://machines.example", None, Some(&missing), "certificate file");
    refused("https://machines.example", None, Some(&empty), "no certificate in PEM");
}

/// Takes TLS connections.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            // Whoever does not trust us hangs up.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted_by_its_file_only() {
    use tokio_rustls::rustls::ServerConfig;
    let provider = Provider::start(None).await;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca_file = provider.token_file().with_file_name("ca.pem");
    std::fs::write(&ca_file, made.cert.pem()).unwrap();
    let ring = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], made.signing_key.into())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let tls = Tls { listener, acceptor: TlsAcceptor::from(Arc::new(config)) };
    let router = provider.router();
    let serving = tokio::spawn(async move { axum::serve(tls, router).await });

    let token_file = Some(provider.token_file());
    let trusting = ExternalOptions { url, token_file, ca_file: Some(ca_file) };
    let wary = ExternalOptions { ca_file: None, ..trusting.clone() };
    assert_eq!(External::new(trusting).unwrap().get(ID, "").await.unwrap(), Machine::Gone);
    let fault = External::new(wary).unwrap().get(ID, "").await.unwrap_err().to_string();
    assert!(fault.contains("certificate"), "{fault}");
    serving.abort();
}

/// A story whose machines come from such a provider.
pub(crate) async fn begin(name: &str, more: &[&str]) -> (Story, Provider) {
    let mut story = Story::without_operator(name).await;
    let provider = Provider::start(Some(story.client.clone())).await;
    start(&mut story, &provider, more);
    story.market.open(EU, NOTICE).await;
    story.market.offer(EU, 4, 2.0).await;
    (story, provider)
}

fn start(story: &mut Story, provider: &Provider, more: &[&str]) {
    let arguments = provider.arguments();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
    story.start_operator(&arguments);
}

#[tokio::test]
async fn a_bidnode_runs_on_machines_of_the_provider() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("user-data");
    std::fs::write(&config, "#cloud-config").unwrap();
    let (story, provider) = begin("external", &["--node-config", config.to_str().unwrap()]).await;
    // The first machine does not boot: another is bid for in its place.
    provider.books().duds = 1;
    let spec =
        json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2, "nodeSelector": {"pool": "gpu"}});
    story.bid("gpu", spec).await;
    let bidnode = story.running("gpu", 2).await;
    let nodes = story.nodes_of(&bidnode).await;
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        assert!(node.name_any().starts_with("rack-"), "the provider names it");
        assert_eq!(node.labels()["pool"], "gpu");
        assert_eq!(story::taints(node), []);
    }
    assert_eq!(provider.books().made.len(), 3, "one failed, two run: none was made twice");
    // The provider has what its machines are set up with, from the order and from the market, and the tenant how
    // they are reached.
    assert_eq!(provider.books().configs, [b"#cloud-config".to_vec()].into());
    for node in story.market.held().await {
        let tenant = story.market.party(node.tenant(), Role::Tenant).await;
        let request = v1::GetAllocationRequest { allocation: node.allocation, min_seq: 0 };
        let seen = tenant.get_allocation(request).await.unwrap().allocation.unwrap();
        assert_eq!(seen.node_config(), b"#cloud-config");
        let access = seen.access.unwrap();
        assert!(access.addresses[0].starts_with("rack-"), "{access:?}");
        assert_eq!((access.ports.get("ssh"), &access.user[..]), (Some(&22), "ubuntu"));
    }
    story
        .eventually("the machine that failed is ended", || async { provider.books().ended.len() == 1 })
        .await;
    story.delete("gpu").await;
    story.gone("gpu").await;
    assert!(provider.books().machines.is_empty());
    assert!(story.nodes_of(&bidnode).await.is_empty());
    assert!(story.market.held().await.is_empty());
}

#[tokio::test]
async fn the_way_to_reach_a_node_is_reported_later_if_the_provider_does_not_say_it_at_once() {
    let (mut story, provider) = begin("reached", &[]).await;
    provider.books().silent = true;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    story.running("gpu", 1).await;
    let is_due = |slot: Option<&BidSlot>| {
        slot.and_then(|slot| slot.status.as_ref())
            .is_some_and(|it| it.access_due && it.phase == SlotPhase::Ready)
    };
    let due = await_condition(story.slots(), "gpu-0", is_due);
    timeout(PATIENCE, due).await.expect("its slot says that it is due").unwrap();
    let node = story.market.held().await.remove(0);
    let tenant = story.market.party(node.tenant(), Role::Tenant).await;
    let access = async || {
        let request = v1::GetAllocationRequest { allocation: node.allocation, min_seq: 0 };
        tenant.get_allocation(request).await.unwrap().allocation.unwrap().access
    };
    assert_eq!(access().await, None);
    // Another process knows it as well.
    start(&mut story, &provider, &[]);
    provider.books().silent = false;
    story.eventually("it is reported", async || access().await.is_some()).await;
    assert!(access().await.unwrap().addresses[0].starts_with("rack-"));
    let done = await_condition(story.slots(), "gpu-0", |slot: Option<&BidSlot>| !is_due(slot));
    timeout(PATIENCE, done).await.expect("nothing is due").unwrap();
}

#[tokio::test]
async fn a_machine_that_does_not_come_in_time_is_given_back_and_another_ordered() {
    let (mut story, provider) = begin("late", &["--machine-within", "1h"]).await;
    provider.books().slow = true;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5})).await;
    let waits = |slot: Option<&BidSlot>| {
        let conditions = slot.and_then(|slot| slot.status.as_ref()).into_iter().flat_map(|it| &it.conditions);
        conditions.into_iter().any(|it| it.reason == "MachineOrdered" && it.message.contains("until 2"))
    };
    let waits = await_condition(story.slots(), "gpu-0", waits);
    timeout(PATIENCE, waits).await.expect("its slot says until when it waits").unwrap();
    start(&mut story, &provider, &["--machine-within", "1s"]);
    story.eventually("the machine is ended", async || !provider.books().ended.is_empty()).await;
    story
        .eventually("people were told", async || {
            let late = ["get", "events", "--field-selector", "reason=MachineLate", "-n", &story.namespace];
            story.plane.get(&late).contains("no node is ready after 1 s")
        })
        .await;
    provider.books().slow = false;
    start(&mut story, &provider, &[]);
    story.running("gpu", 1).await;
    story.eventually("one is held", async || story.market.held().await.len() == 1).await;
}

#[tokio::test]
async fn a_machine_that_is_lost_takes_its_node_with_it_and_is_replaced() {
    let (story, provider) = begin("lost", &["--vanished-for", "1h"]).await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 1})).await;
    let bidnode = story.running("gpu", 1).await;
    let lost = story.nodes_of(&bidnode).await.remove(0);
    let (name, uid) = (lost.name_any(), lost.labels()[LABEL_SLOT_UID].clone());
    // Its machine is no more, and its kubelet says nothing.
    provider.books().machines.remove(&uid).unwrap();
    story.annotate(&story.nodes(), &name, "testplane.kubebid.io/not-ready", "true").await;
    let gone = await_condition(story.nodes(), &name, |node: Option<&Node>| node.is_none());
    if timeout(PATIENCE, gone).await.is_err() {
        story.fail("gpu", "the node of the lost machine is deleted").await;
    }
    story
        .until("gpu", "another node runs", |status| {
            status.nodes.iter().any(|node| node.name != name && node.state == SlotPhase::Ready)
        })
        .await;
    // The provider tells the market as well: the unit is not paid for any longer.
    let slots = story.slots().list(&ListParams::default()).await.unwrap();
    let slot = slots.into_iter().find(|slot| slot.uid().as_ref() == Some(&uid)).unwrap();
    let unit = slot.status.unwrap().unit.unwrap();
    let report = v1::ReportUnitLostRequest { unit, ..Default::default() };
    story.market.provider.as_ref().unwrap().report_unit_lost(report).await.unwrap();
    story.eventually("one is held", async || story.market.held().await.len() == 1).await;
    story.eventually("the lost one is ended", async || provider.books().ended.contains(&uid)).await;
}

#[tokio::test]
async fn a_provider_that_was_away_is_asked_again() {
    let (story, mut provider) = begin("away", &[]).await;
    provider.stop().await;
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "minNodes": 2})).await;
    story.eventually("two nodes are held", async || story.market.held().await.len() == 2).await;
    provider.resume().await;
    story.running("gpu", 2).await;
    assert_eq!(provider.books().made.len(), 2);
    provider.stop().await;
    story.delete("gpu").await;
    story
        .eventually("the operator was told that nobody is there", async || {
            story.operator.as_ref().unwrap().log().contains("cannot end a machine")
        })
        .await;
    assert_eq!(story.market.held().await.len(), 2, "a machine that may run is held");
    provider.resume().await;
    story.gone("gpu").await;
    let running = |state: &MachineState| matches!(state, MachineState::Running { .. });
    assert!(!provider.books().machines.values().any(running));
    assert!(story.market.held().await.is_empty());
}

#[tokio::test]
async fn a_node_that_does_not_prove_to_be_ours_is_never_touched() {
    let (story, provider) = begin("foreign", &[]).await;
    let name = format!("control-{}", story.namespace);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"providerID": "acme://somewhere/else"},
    });
    let node: Node = serde_json::from_value(node).unwrap();
    story.nodes().create(&kube::api::PostParams::default(), &node).await.unwrap();
    provider.books().foreign = Some(name.clone());
    let taints = [json!({"key": "gpu", "effect": "NoExecute"})];
    story.bid("gpu", json!({"instanceType": "h100-8x", "maxBid": 4.5, "taints": taints})).await;
    let unproven = |slot: Option<&BidSlot>| {
        let conditions = slot.and_then(|slot| slot.status.as_ref()).into_iter().flat_map(|it| &it.conditions);
        conditions.into_iter().any(|it| it.type_ == "Ready" && it.reason == "NodeUnproven")
    };
    let unproven = await_condition(story.slots(), "gpu-0", unproven);
    timeout(PATIENCE, unproven).await.expect("its slot says so").unwrap();
    story
        .eventually("people were told", || async {
            let told = ["get", "events", "--field-selector", "reason=NodeUnproven", "-n", &story.namespace];
            story.plane.get(&told).contains(&name)
        })
        .await;
    story.delete("gpu").await;
    story.gone("gpu").await;
    let node = story.nodes().get(&name).await.expect("it is still there");
    assert_eq!(story::taints(&node), []);
    let ours = |key: &&String| key.starts_with("kubebid.io/");
    assert_eq!(node.labels().keys().filter(ours).chain(node.annotations().keys().filter(ours)).count(), 0);
    assert!(story.market.held().await.is_empty());
    story.nodes().delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
}
