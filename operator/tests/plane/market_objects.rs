//! The market itself as objects: instance types, markets, accounts and offers on a real control plane, at a real engine.

mod away;

use crate::story::{PATIENCE, Story, spawn_with};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions::is_deleted};
use kube::{Resource, ResourceExt as _};
use kubebid_client::{Client, Dollars, v1};
use kubebid_controller::external::transition::State;
use kubebid_controller::external::{ExternalStatus, Managed};
use kubebid_controller::leader_election::Leadership;
use kubebid_controller::{Manager, Options};
use kubebid_operator::market::{self, Account, InstanceType, Market, Offer};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The controllers of a story, until it ends.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn begin(name: &str) -> Story {
    define(Story::without_operator(name).await)
}

/// Begins on a plane of its own: a controller of a kind without a namespace has all objects of a cluster.
async fn begin_alone(name: &str) -> Story {
    define(Story::alone(name).await)
}

fn define(story: Story) -> Story {
    story.plane.apply(&kubebid_operator::crds::market_yaml().unwrap());
    for kind in ["instancetypes", "markets", "accounts", "offers"] {
        let crd = format!("crd/{kind}.market.kubebid.io");
        story.plane.get(&["wait", "--for=condition=Established", &crd, "--timeout=90s"]);
    }
    story
}

fn run(story: &Story, add: impl FnOnce(&mut Manager)) -> Running {
    let options = Options { reporter: "kubebid-operator".to_owned(), ..Options::default() };
    let mut manager = Manager::new(story.client.clone(), Leadership::alone(), options);
    add(&mut manager);
    Running(tokio::spawn(async move {
        let ended = manager.run().await;
        panic!("the manager ended: {ended:?}");
    }))
}

async fn create<K: Managed>(api: &Api<K>, object: Value) -> K {
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

async fn patch<K: Managed>(api: &Api<K>, name: &str, patch: Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits until an object is so, in its current generation.
async fn until<K: Managed>(api: &Api<K>, name: &str, is_so: impl Fn(&ExternalStatus) -> bool) -> K {
    let look = |object: Option<&K>| {
        let Some(object) = object else { return false };
        let current = |it: &&ExternalStatus| it.observed_generation == object.meta().generation;
        object.external().filter(current).is_some_and(&is_so)
    };
    match timeout(PATIENCE, await_condition(api.clone(), name, look)).await {
        Ok(object) => object.unwrap().unwrap(),
        Err(_) => panic!("{name} is never so: {:?}", api.get(name).await.map(|it| it.external().cloned())),
    }
}

fn succeeded(status: &ExternalStatus) -> bool {
    status.state == State::Succeeded
}

fn waits(status: &ExternalStatus) -> bool {
    status.reason == "DependencyNotReady"
}

async fn delete<K: Managed>(api: &Api<K>, name: &str) {
    let object = api.get(name).await.unwrap();
    api.delete(name, &DeleteParams::default()).await.unwrap();
    gone(api, &object).await;
}

/// Waits until an object is gone.
async fn gone<K: Managed>(api: &Api<K>, object: &K) {
    let (name, uid) = (object.name_any(), object.uid().unwrap());
    let gone = await_condition(api.clone(), &name, is_deleted(&uid));
    if timeout(PATIENCE, gone).await.is_err() {
        panic!("{name} does not go: {:#?}", api.get(&name).await.map(|it| it.external().cloned()));
    }
}

/// Has an object reconciled at once.
async fn nudge<K: Managed>(api: &Api<K>, name: &str, token: &str) {
    let annotations = json!({"market.kubebid.io/reconcile-at": token});
    patch(api, name, json!({"metadata": {"annotations": annotations}})).await;
}

fn all<K: Resource<DynamicType = (), Scope = ClusterResourceScope>>(story: &Story) -> Api<K> {
    Api::all(story.client.clone())
}

fn own<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(story: &Story) -> Api<K> {
    Api::namespaced(story.client.clone(), &story.namespace)
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "market.kubebid.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Returns the token in a Secret, when there is one that is not `old`.
async fn token(story: &Story, name: &str, old: &str) -> String {
    let text = |secret: &Secret| {
        let data = secret.data.clone().unwrap_or_default();
        data.get("token").map(|token| String::from_utf8(token.0.clone()).unwrap())
    };
    let new = |secret: Option<&Secret>| secret.and_then(text).is_some_and(|token| token != old);
    let secret = timeout(PATIENCE, await_condition(own::<Secret>(story), name, new)).await;
    text(&secret.expect("a token").unwrap().unwrap()).unwrap()
}

async fn markets_seen_by(story: &Story, token: &str) -> Result<usize, kubebid_client::Error> {
    let client = Client::builder().endpoints([story.market.endpoint()]).token(token).build().unwrap();
    client.list_markets(v1::ListMarketsRequest::default()).await.map(|list| list.markets.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_engine_gets_its_market_from_objects() {
    let story = begin_alone("market-objects").await;
    let engine = story.market.admin().clone();
    let provider = story.market.provider.clone().unwrap();
    let _running = run(&story, |manager| {
        market::add_markets(manager, &engine, "plane");
        market::add_offers(manager, &provider, "plane", None);
    });
    let (types, markets, accounts) =
        (all::<InstanceType>(&story), all::<Market>(&story), all::<Account>(&story));
    let offers = own::<Offer>(&story);

    // The market waits for its instance type, and the offer for the market.
    let spec = json!({"instanceType": "h100-8x", "region": "eu-west", "rules": {"noticeUs": 60_000_000}});
    create(&markets, object("Market", "h100-eu", spec)).await;
    until(&markets, "h100-eu", |status| status.reason == "DependencyMissing").await;
    let spec = json!({"instanceType": "h100-8x", "region": "eu-west", "capacity": 3, "reserve": "1.5"});
    create(&offers, object("Offer", "gpu", spec)).await;
    until(&offers, "gpu", waits).await;
    let spec = json!({"allocatable": {"cpu": "192", "nvidia.com/gpu": "8"}, "onDemandPrice": "98.32"});
    create(&types, object("InstanceType", "h100-8x", spec)).await;
    until(&types, "h100-8x", succeeded).await;
    until(&markets, "h100-eu", succeeded).await;
    until(&offers, "gpu", succeeded).await;
    let rules = async || {
        let list = engine.list_markets(v1::ListMarketsRequest::default()).await.unwrap();
        list.markets.into_iter().find(|market| market.market == "h100-8x/eu-west").unwrap().rules.unwrap()
    };
    assert_eq!(rules().await.notice_us, Some(60_000_000));

    // A rule that changes is changed, a rule that cannot is said.
    patch(&markets, "h100-eu", json!({"spec": {"rules": {"noticeUs": 90_000_000}}})).await;
    until(&markets, "h100-eu", succeeded).await;
    assert_eq!(rules().await.notice_us, Some(90_000_000));
    patch(&markets, "h100-eu", json!({"spec": {"rules": {"tickMicros": 500}}})).await;
    let market = until(&markets, "h100-eu", |status| status.reason == "PermissionMissing").await;
    let message = &market.external().unwrap().message;
    assert!(message.starts_with("the tick of a market cannot be changed"), "{message}");
    patch(&markets, "h100-eu", json!({"spec": {"rules": {"tickMicros": null}}})).await;
    until(&markets, "h100-eu", succeeded).await;

    // An account has a token in a Secret. A Secret that is gone is made anew, and the old token is worth nothing.
    let secret = json!({"namespace": story.namespace, "name": "team-a"});
    let spec = json!({"roles": ["tenant"], "tokenSecret": secret, "limits": {"openBids": 5}});
    create(&accounts, object("Account", "team-a", spec)).await;
    until(&accounts, "team-a", succeeded).await;
    let first = token(&story, "team-a", "").await;
    assert_eq!(markets_seen_by(&story, &first).await.unwrap(), 1);
    let list = v1::ListTokensRequest { account: "team-a".to_owned(), ..Default::default() };
    let [made] = &engine.all(list).await.unwrap().tokens[..] else { panic!("not one token") };
    let uid = accounts.get("team-a").await.unwrap().uid().unwrap();
    assert_eq!(made.description, format!("KubeBid operator, Account {uid}, attempt 1"));
    own::<Secret>(&story).delete("team-a", &DeleteParams::default()).await.unwrap();
    nudge(&accounts, "team-a", "1").await;
    let second = token(&story, "team-a", &first).await;
    assert!(markets_seen_by(&story, &first).await.is_err());
    assert_eq!(markets_seen_by(&story, &second).await.unwrap(), 1);
    until(&accounts, "team-a", succeeded).await;
    // A folder is deleted object by object: a BidNode that is still there may need the token in a moment.
    let spec = json!({"instanceType": "h100-8x", "region": "eu-west", "maxBid": 2.0, "minNodes": 0});
    story.bid("idle", spec).await;
    let account = accounts.get("team-a").await.unwrap();
    accounts.delete("team-a", &DeleteParams::default()).await.unwrap();
    let waiting = until(&accounts, "team-a", |status| status.reason == "WaitingForOthers").await;
    let message = &waiting.external().unwrap().message;
    let because = format!("BidNode {}/idle may be deleted too", story.namespace);
    assert!(message.starts_with(&because), "{message}");
    assert!(markets_seen_by(&story, &second).await.is_ok());
    story.bidnodes().delete("idle", &DeleteParams::default()).await.unwrap();
    gone(&accounts, &account).await;
    assert!(markets_seen_by(&story, &second).await.is_err(), "the token of a deleted account works");

    // A market that is not ready holds its offer up. What the engine cannot remove is left, and needs no object.
    patch(&markets, "h100-eu", json!({"spec": {"rules": {"tickMicros": 500}}})).await;
    until(&offers, "gpu", waits).await;
    delete(&markets, "h100-eu").await;
    until(&offers, "gpu", succeeded).await;
    delete(&offers, "gpu").await;
    delete(&types, "h100-8x").await;
    assert_eq!(rules().await.notice_us, Some(90_000_000));
    for name in ["h100-eu", "h100-8x"] {
        let events = Api::<Event>::all(story.client.clone());
        let left = || async {
            let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
            let mut own = events
                .filter(|event| event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(name));
            own.any(|event| event.reason.as_deref() == Some("Left"))
        };
        story.eventually("an event says that it is left", left).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_removes_no_finalizer_while_a_replica_runs() {
    let story = begin_alone("market-uninstall").await;
    let types = all::<InstanceType>(&story);
    let lease = ["--lease-namespace", "default", "--lease-seconds", "9"];
    let uninstall = async || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubebid-operator"));
        command.arg("uninstall").args(lease);
        let output = command.env("KUBECONFIG", &story.kubeconfig).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let more = ["--controllers", "markets", "--lease-name", "kubebid-markets", "--identity", "replica"];
    let replica = spawn_with(&story, &story.market.admin_token_file(), &[&lease[..], &more].concat());
    create(&types, object("InstanceType", "h100-8x", json!({"allocatable": {"cpu": "192"}}))).await;
    let made = until(&types, "h100-8x", succeeded).await;
    let (is_done, said) = uninstall().await;
    assert!(!is_done && said.contains("a replica holds the Lease kubebid-markets"), "{said}");
    assert_eq!(types.get("h100-8x").await.unwrap().finalizers(), made.finalizers());

    drop(replica);
    let (is_done, said) = uninstall().await;
    assert!(is_done, "{said}");
    assert!(types.get("h100-8x").await.unwrap().finalizers().is_empty());

    // Without the definitions of the market, BidNodes are left to do.
    for kind in ["instancetypes", "markets", "accounts", "offers"] {
        story.plane.get(&["delete", &format!("crd/{kind}.market.kubebid.io"), "--timeout=90s"]);
    }
    let (is_done, said) = uninstall().await;
    assert!(is_done, "{said}");
}

/// Returns the names of the live tokens of an account.
async fn live_tokens(engine: &Client, account: &str) -> Vec<String> {
    let list = v1::ListTokensRequest { account: account.to_owned(), ..Default::default() };
    engine.all(list).await.unwrap().tokens.into_iter().map(|token| token.token_id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_and_its_secret_come_and_go_together() {
    let story = begin_alone("account-objects").await;
    let (engine, accounts) = (story.market.admin().clone(), all::<Account>(&story));
    let account = |name: &str, namespace: &str| {
        let secret = json!({"namespace": namespace, "name": name});
        object("Account", name, json!({"roles": ["tenant"], "tokenSecret": secret}))
    };

    // A crash before the Secret has the token: the next one revokes it.
    create(&accounts, account("crashed", &story.namespace)).await;
    let arguments = ["--alone", "--controllers", "markets", "--abort-at", "account-token"];
    let mut process = spawn_with(&story, &story.market.admin_token_file(), &arguments);
    timeout(PATIENCE, process.ended()).await.expect("a crash");
    let lost = live_tokens(&engine, "crashed").await;
    assert_eq!(lost.len(), 1);
    let _running = run(&story, |manager| market::add_markets(manager, &engine, "plane"));
    until(&accounts, "crashed", succeeded).await;
    let secret = own::<Secret>(&story).get("crashed").await.unwrap();
    let kept = live_tokens(&engine, "crashed").await;
    assert_eq!(kept, [String::from_utf8(secret.data.unwrap()["token-id"].0.clone()).unwrap()]);
    assert_ne!(kept, lost);

    // No token is made for a Secret that cannot be written, or is somebody else's.
    create(&accounts, account("early", "nowhere")).await;
    let refused = |status: &ExternalStatus| status.reason == "CompletionFailed";
    let early = until(&accounts, "early", refused).await;
    let message = &early.external().unwrap().message;
    assert!(message.contains("namespaces \"nowhere\" not found"), "{message}");
    story.plane.get(&["create", "namespace", "nowhere"]);
    nudge(&accounts, "early", "1").await;
    until(&accounts, "early", succeeded).await;
    assert_eq!(live_tokens(&engine, "early").await.len(), 1);
    story.plane.get(&["-n", &story.namespace, "create", "secret", "generic", "foreign"]);
    create(&accounts, account("foreign", &story.namespace)).await;
    let foreign = until(&accounts, "foreign", refused).await;
    let message = &foreign.external().unwrap().message;
    assert!(message.ends_with("exists and was not made for this account"), "{message}");
    assert!(live_tokens(&engine, "foreign").await.is_empty());

    // An account that may not be deleted keeps its token, and the token its Secret; another object takes both over.
    let permissions = json!({"metadata": {"annotations": {"market.kubebid.io/access-permissions": "cu"}}});
    patch(&accounts, "crashed", permissions).await;
    delete(&accounts, "crashed").await;
    let left = token(&story, "crashed", "").await;
    assert!(markets_seen_by(&story, &left).await.is_ok());
    let mut again = account("crashed", &story.namespace);
    again["metadata"]["annotations"] = json!({"market.kubebid.io/adopt": "true"});
    create(&accounts, again).await;
    until(&accounts, "crashed", succeeded).await;
    assert_eq!(live_tokens(&engine, "crashed").await, kept);
    delete(&accounts, "crashed").await;
    assert!(markets_seen_by(&story, &left).await.is_err());
    assert!(own::<Secret>(&story).get_opt("crashed").await.unwrap().is_none());
}

const MARKET: &str = "h100-8x/eu-west";

async fn offer(story: &Story) -> Option<v1::Offer> {
    let get = v1::GetOfferRequest { market: MARKET.to_owned(), ..Default::default() };
    story.market.provider.as_ref().unwrap().get_offer(get).await.ok()?.offer
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_follows_its_object_until_the_last_unit_is_free() {
    let mut story = begin("offer-objects").await;
    // Longer than the story: its units leave when their holder gives them back.
    story.market.open(MARKET, Duration::from_secs(3600)).await;
    let provider = story.market.provider.clone().unwrap();
    let namespace = story.namespace.clone();
    let _running = run(&story, |manager| market::add_offers(manager, &provider, "plane", Some(&namespace)));
    let offers = own::<Offer>(&story);
    let spec = json!({"instanceType": "h100-8x", "region": "eu-west", "capacity": 0, "reserve": "1.5"});
    create(&offers, object("Offer", "gpu", spec)).await;
    until(&offers, "gpu", succeeded).await;
    assert_eq!(offer(&story).await, None);
    for units in [3, 0, 3] {
        let scale = ["-n", &namespace, "scale", "offers.market.kubebid.io/gpu"];
        story.plane.get(&[&scale[..], &[&format!("--replicas={units}")]].concat());
        until(&offers, "gpu", succeeded).await;
        assert_eq!(offer(&story).await.map_or(0, |it| it.capacity), units);
    }
    assert_eq!(offer(&story).await.map(|it| (it.capacity, it.reserve_micros)), Some((3, 1_500_000)));

    // Refusals are reasons.
    patch(&offers, "gpu", json!({"spec": {"reserve": "1.00005"}})).await;
    until(&offers, "gpu", |status| status.reason == "BadReserve" && status.state == State::Failed).await;
    patch(&offers, "gpu", json!({"spec": {"reserve": "1.25"}})).await;
    until(&offers, "gpu", succeeded).await;

    // A change by the command line is repaired.
    let put =
        v1::PutOfferRequest { market: MARKET.into(), capacity: 9, reserve_micros: 1, ..Default::default() };
    let put = v1::PutOfferRequest { reserve_micros: 9_000_000, ..put };
    provider.put_offer(put).await.unwrap();
    nudge(&offers, "gpu", "1").await;
    story
        .eventually("the offer is as its object says", || async {
            offer(&story).await.is_some_and(|it| (it.capacity, it.reserve_micros) == (3, 1_250_000))
        })
        .await;

    // An engine that is away delays a change.
    story.market.stop().await;
    patch(&offers, "gpu", json!({"spec": {"capacity": 2}})).await;
    let away = |status: &ExternalStatus| status.unreachable_since.is_some();
    let look = |offer: Option<&Offer>| offer.and_then(Managed::external).is_some_and(away);
    timeout(PATIENCE, await_condition(offers.clone(), "gpu", look)).await.expect("it is said").unwrap();
    story.market.resume().await;
    until(&offers, "gpu", succeeded).await;
    assert_eq!(offer(&story).await.map(|it| it.capacity), Some(2));

    // A change by more units than one command may change is made in steps, up and down.
    let limits = Some(v1::AccountLimits { units_per_command: Some(3), ..Default::default() });
    let put = v1::PutAccountRequest { name: "acme".to_owned(), limits };
    story.market.admin().put_account(put).await.unwrap();
    for capacity in [25, 2] {
        patch(&offers, "gpu", json!({"spec": {"capacity": capacity}})).await;
        until(&offers, "gpu", succeeded).await;
        assert_eq!(offer(&story).await.map(|it| it.capacity), Some(capacity));
    }

    // Units that are held leave with notice; the object stays until then.
    let held = async |units: u32| {
        let held = || async { offer(&story).await.is_some_and(|it| it.allocated == units) };
        story.eventually("units are held", held).await;
    };
    let bid = story.market.rival_bids(MARKET, 2, 3.0).await;
    held(2).await;
    let min_seq = away::seq(story.market.admin()).await;
    let list = v1::ListAllocationsRequest { min_seq, ..Default::default() };
    for unit in provider.all(list).await.unwrap().allocations {
        let (client_key, allocation) = (String::new(), unit.allocation);
        let ready = v1::ReportReadyRequest { client_key, allocation, ..Default::default() };
        provider.report_ready(ready).await.unwrap();
    }
    story.market.rival_cancels(bid).await;
    held(0).await;
    let bid = story.market.rival_bids(MARKET, 2, 3.0).await;
    held(2).await;
    nudge(&offers, "gpu", "2").await;
    let is_said = |offer: Option<&Offer>| {
        let Some(status) = offer.and_then(|it| it.status.as_ref()) else { return false };
        let Ok(Dollars(earned_micros)) = status.earnings.parse() else { return false };
        (status.free, status.allocated) == (0, 2) && earned_micros > 0
    };
    let said = timeout(PATIENCE, await_condition(offers.clone(), "gpu", is_said)).await;
    said.unwrap_or_else(|_| panic!("the status has neither units nor earnings")).unwrap();
    let leave = async |units: u32| {
        let leave = |offer: Option<&Offer>| {
            offer.is_some_and(|it| it.status.as_ref().is_some_and(|status| status.leaving == units))
        };
        let leave = await_condition(offers.clone(), "gpu", leave);
        timeout(PATIENCE, leave).await.expect("units that leave").unwrap();
    };
    patch(&offers, "gpu", json!({"spec": {"capacity": 1}})).await;
    leave(1).await;
    until(&offers, "gpu", succeeded).await;
    assert_eq!(offer(&story).await.map(|it| (it.capacity, it.allocated, it.leaving)), Some((1, 1, 1)));
    let object = offers.get("gpu").await.unwrap();
    offers.delete("gpu", &DeleteParams::default()).await.unwrap();
    leave(2).await;
    story.market.rival_cancels(bid).await;
    gone(&offers, &object).await;
    assert!(offer(&story).await.is_none_or(|it| it.capacity + it.allocated + it.leaving == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_that_manage_one_offer_say_so_and_slow_down() {
    let story = begin("one-cluster").await;
    let other = story.neighbour("other-cluster").await;
    story.market.open(MARKET, Duration::from_secs(3600)).await;
    let provider = story.market.provider.clone().unwrap();
    let start = |cluster: &Story| {
        run(cluster, |manager| {
            market::add_offers(manager, &provider, &cluster.namespace, Some(&cluster.namespace));
        })
    };
    let _running = [start(&story), start(&other)];
    let clusters = [(own::<Offer>(&story), 3), (own::<Offer>(&other), 5)];
    for (offers, capacity) in &clusters {
        let spec =
            json!({"instanceType": "h100-8x", "region": "eu-west", "capacity": capacity, "reserve": "1"});
        let mut wanted = object("Offer", "gpu", spec);
        wanted["metadata"]["annotations"] = json!({"market.kubebid.io/adopt": "true"});
        create(offers, wanted).await;
        until(offers, "gpu", succeeded).await;
    }
    let is_contested = async |offers: &Api<Offer>| {
        let offer = offers.get("gpu").await.unwrap();
        offer.external().is_some_and(|status| status.reason == "Contested")
    };
    // Each puts it right in turn, until one of them has had enough.
    let mut rounds = 0;
    let contested = 'rounds: loop {
        rounds += 1;
        for (offers, capacity) in &clusters {
            nudge(offers, "gpu", &rounds.to_string()).await;
            story
                .eventually("the offer is as one cluster says, or it waits", || async {
                    offer(&story).await.is_some_and(|it| it.capacity == *capacity)
                        || is_contested(offers).await
                })
                .await;
            if is_contested(offers).await {
                break 'rounds offers.get("gpu").await.unwrap();
            }
        }
    };
    let message = &contested.external().unwrap().message;
    assert!(message.starts_with("somebody else keeps changing h100-8x/eu-west"), "{message}");
    assert!(rounds <= 5, "{rounds} rounds");
}
