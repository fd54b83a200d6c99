//! An engine that is away: for an hour, and for the time that a standby takes.

use super::{
    MARKET, all, begin_alone, create, live_tokens, object, offer, own, patch, run, succeeded, token, until,
};
use crate::market::{Market, place};
use crate::story::{PATIENCE, Story};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::runtime::wait::await_condition;
use kubebid_client::v1::{self, token::Role};
use kubebid_client::{Client, Error, Options};
use kubebid_controller::external::Managed;
use kubebid_operator::market::{self, Account, InstanceType, Market as MarketObject, Offer};
use kubebid_testkit::{Cluster, Port, Process};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

const HOUR: Duration = Duration::from_secs(3600);

/// The objects of a market.
struct Objects {
    types: Api<InstanceType>,
    markets: Api<MarketObject>,
    accounts: Api<Account>,
    offers: Api<Offer>,
}

impl Objects {
    /// Makes one object of each kind, and waits until all have succeeded.
    async fn create(story: &Story) -> Objects {
        let objects =
            Objects { types: all(story), markets: all(story), accounts: all(story), offers: own(story) };
        let spec = json!({"allocatable": {"cpu": "192"}, "onDemandPrice": "98.32"});
        create(&objects.types, object("InstanceType", "h100-8x", spec)).await;
        let rules = json!({"noticeUs": 60_000_000, "startTimeoutUs": 86_400_000_000_u64});
        create(&objects.markets, object("Market", "h100-eu", market_spec("eu-west", rules))).await;
        create(&objects.offers, object("Offer", "gpu", offer_spec("eu-west", 3))).await;
        create(&objects.accounts, account(story, "team-a")).await;
        objects.succeed().await;
        objects
    }

    async fn succeed(&self) {
        until(&self.types, "h100-8x", succeeded).await;
        until(&self.markets, "h100-eu", succeeded).await;
        until(&self.offers, "gpu", succeeded).await;
        until(&self.accounts, "team-a", succeeded).await;
    }

    /// Changes every object.
    async fn change(&self, round: u32) {
        let price = format!("{}", 100 + round);
        patch(&self.types, "h100-8x", json!({"spec": {"onDemandPrice": price}})).await;
        patch(&self.markets, "h100-eu", json!({"spec": {"rules": {"noticeUs": notice_us(round)}}})).await;
        patch(&self.offers, "gpu", json!({"spec": {"capacity": 4 + round}})).await;
        patch(&self.accounts, "team-a", json!({"spec": {"limits": {"openBids": 10 + round}}})).await;
    }
}

fn notice_us(round: u32) -> u32 {
    60_000_000 + round
}

fn market_spec(region: &str, rules: Value) -> Value {
    json!({"instanceType": "h100-8x", "region": region, "rules": rules})
}

fn offer_spec(region: &str, capacity: u32) -> Value {
    json!({"instanceType": "h100-8x", "region": region, "capacity": capacity, "reserve": "1.5"})
}

fn account(story: &Story, name: &str) -> Value {
    let secret = json!({"namespace": story.namespace, "name": name});
    object("Account", name, json!({"roles": ["tenant"], "tokenSecret": secret}))
}

/// Waits until the status of an object says that the engine does not answer, or that what it needs is not ready.
async fn waits<K: Managed>(api: &Api<K>, name: &str, reasons: &[&str]) {
    let is_said = |object: Option<&K>| {
        let status = object.and_then(Managed::external);
        let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let mut synced = conditions.iter().filter(|it| it.type_ == "Synced");
        synced.any(|it| it.status == "False" && reasons.contains(&&*it.reason))
    };
    if timeout(PATIENCE, await_condition(api.clone(), name, is_said)).await.is_err() {
        panic!("{name}: {:#?}", api.get(name).await.map(|it| it.external().cloned()));
    }
}

/// Returns the last command: what is listed may be behind it, and is asked for as of then.
pub(super) async fn seq(admin: &Client) -> u64 {
    admin.first(v1::ListMarketsRequest::default(), 1).await.unwrap().seq
}

/// Returns the offers of all providers.
async fn offers(admin: &Client) -> Vec<v1::Offer> {
    let (account, min_seq) = (Some(String::new()), seq(admin).await);
    let list = v1::ListOffersRequest { account, min_seq, ..Default::default() };
    admin.all(list).await.unwrap().offers
}

/// The engine is as the objects say after so many changes, and nothing is there twice.
async fn is_as_after(admin: &Client, round: u32) {
    let types = admin.all(v1::ListInstanceTypesRequest::default()).await.unwrap().entries;
    let prices = types.into_iter().filter_map(|entry| entry.instance_type?.on_demand_price_micros);
    assert_eq!(prices.collect::<Vec<_>>(), [u64::from(100 + round) * 1_000_000]);
    let markets = admin.all(v1::ListMarketsRequest::default()).await.unwrap().markets;
    let market = markets.into_iter().find(|it| it.market == MARKET).unwrap();
    assert_eq!(market.rules.unwrap().notice_us, Some(u64::from(notice_us(round))));
    let offers = offers(admin).await.into_iter().filter(|it| it.market == MARKET);
    let offers: Vec<_> = offers.map(|it| (it.capacity, it.allocated, it.leaving)).collect();
    assert_eq!(offers, [(4 + round, 1, 0)]);
    let accounts = admin.all(v1::ListAccountsRequest::default()).await.unwrap().accounts;
    let accounts: Vec<_> = accounts.into_iter().filter(|it| it.name == "team-a").collect();
    let [account] = &accounts[..] else { panic!("{accounts:?}") };
    assert_eq!(account.limits.unwrap_or_default().open_bids, Some(10 + round));
}

/// An account has one live token, which is the one in its Secret.
async fn has_one_token(story: &Story, admin: &Client, name: &str) {
    let data = own::<Secret>(story).get(name).await.unwrap().data.unwrap();
    let kept = String::from_utf8(data["token-id"].0.clone()).unwrap();
    assert_eq!(live_tokens(admin, name).await, [kept], "{name}");
}

/// Returns the allocations that have not ended.
async fn held(admin: &Client) -> Vec<u64> {
    let states = [v1::allocation::State::Starting, v1::allocation::State::Active];
    let list = v1::ListAllocationsRequest {
        account: Some(String::new()),
        states: states.map(i32::from).into(),
        min_seq: seq(admin).await,
        ..Default::default()
    };
    admin.all(list).await.unwrap().allocations.iter().map(|it| it.allocation).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_away_for_an_hour_loses_and_doubles_nothing() {
    let mut story = begin_alone("hour").await;
    story.market = Market::start_stepped().await;
    let engine = story.market.admin().clone();
    let provider = story.market.provider.clone().unwrap();
    let _running = run(&story, |manager| {
        market::add_markets(manager, &engine, "plane");
        market::add_offers(manager, &provider, "plane", None);
    });
    let objects = Objects::create(&story).await;
    story.market.rival_bids(MARKET, 1, 3.0).await;
    story
        .eventually("a unit is held", || async { offer(&story).await.is_some_and(|it| it.allocated == 1) })
        .await;
    let (held_before, token_before) = (held(&engine).await, token(&story, "team-a", "").await);

    // Changes while it is away are said to wait.
    story.market.stop().await;
    objects.change(1).await;
    create(&objects.accounts, account(&story, "late")).await;
    let (away, dependent) = (["EngineUnreachable", "Timeout"], ["DependencyNotReady"]);
    waits(&objects.types, "h100-8x", &away).await;
    waits(&objects.markets, "h100-eu", &dependent).await;
    waits(&objects.offers, "gpu", &dependent).await;
    waits(&objects.accounts, "team-a", &away).await;
    waits(&objects.accounts, "late", &away).await;

    // Its clock has gone on for an hour when it answers.
    story.market.step_while_stopped(HOUR).await;
    story.market.resume().await;
    objects.succeed().await;
    until(&objects.accounts, "late", succeeded).await;
    is_as_after(&engine, 1).await;
    assert_eq!(held(&engine).await, held_before);
    assert_eq!(token(&story, "team-a", "").await, token_before);
    for name in ["team-a", "late"] {
        has_one_token(&story, &engine, name).await;
    }
}

/// Two engines on one store in PostgreSQL: one leads, the other stands by.
struct Pair {
    folder: TempDir,
    store: String,
    ports: [Port; 2],
    processes: [Option<Process>; 2],
}

impl Pair {
    async fn start() -> Pair {
        let (folder, store) = (tempfile::tempdir().unwrap(), Cluster::shared().database());
        let ports = [Port::hold(), Port::hold()];
        let mut pair = Pair { folder, store, ports, processes: [None, None] };
        pair.leader().await;
        pair
    }

    fn token_file(&self) -> PathBuf {
        self.folder.path().join("admin.token")
    }

    /// Returns the token of the administrator; one that is none before an engine has made it.
    fn token(&self) -> String {
        let token = std::fs::read_to_string(self.token_file()).unwrap_or_default();
        if token.trim().is_empty() { "none".to_owned() } else { token.trim().to_owned() }
    }

    fn serve(&mut self, index: usize) {
        let kubebid = Path::new(env!("CARGO_BIN_EXE_kubebid-operator")).with_file_name("kubebid");
        assert!(
            kubebid.exists(),
            "the story needs `kubebid` beside the operator, which a build of the workspace has: cargo build -p kubebid"
        );
        let mut command = Command::new(kubebid);
        command
            .args(["serve", "--store", &self.store, "--standby", "--lease-ms", "6000"])
            .args(["--listen", &self.ports[index].address().to_string(), "--ops-listen", "127.0.0.1:0"])
            .arg("--admin-token-file")
            .arg(self.token_file());
        self.processes[index] = Some(Process::start(&mut command));
    }

    fn endpoint(&self, index: usize) -> String {
        format!("http://{}", self.ports[index].address())
    }

    /// A client of both, which leaves one that is gone.
    fn client(&self, token: &str) -> Client {
        let endpoints = [self.endpoint(0), self.endpoint(1)];
        let (timeout, tries) = (Duration::from_secs(3), u32::MAX);
        let options = Options { timeout, deadline: PATIENCE, tries, ..Options::default() };
        Client::builder().endpoints(endpoints).token(token).options(options).build().unwrap()
    }

    fn admin(&self) -> Client {
        self.client(&self.token())
    }

    /// Asks one of the engines alone.
    async fn ask(&self, index: usize) -> Result<(), Error> {
        let (timeout, tries) = (Duration::from_secs(3), 1);
        let options = Options { timeout, deadline: timeout, tries, ..Options::default() };
        let builder = Client::builder().endpoints([self.endpoint(index)]).token(self.token());
        let client = builder.options(options).build().unwrap();
        client.list_markets(v1::ListMarketsRequest::default()).await.map(|_| ())
    }

    /// Returns the one that leads, when the other one stands by. A machine that is busy elsewhere may let a lease lapse:
    /// the engine that ended for that is started again.
    async fn leader(&mut self) -> usize {
        let settled = async {
            loop {
                for index in [0, 1] {
                    if !self.processes[index].as_mut().is_some_and(Process::lives) {
                        self.serve(index);
                    }
                }
                for leader in [0, 1] {
                    if self.ask(leader).await.is_ok() && self.stands_by(1 - leader).await {
                        return leader;
                    }
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, settled).await.expect("one engine that leads, and one that stands by")
    }

    async fn stands_by(&self, index: usize) -> bool {
        self.ask(index).await.is_err_and(|error| error.to_string().contains("does not lead"))
    }

    /// Kills the leader at once, and starts it again when the other one leads.
    async fn fail_over(&mut self, under_way: impl Future<Output = ()>) {
        let leader = self.leader().await;
        self.processes[leader].as_ref().unwrap().signal("KILL");
        under_way.await;
        let taken_over = async {
            while self.ask(1 - leader).await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, taken_over).await.expect("a standby that takes over");
        self.leader().await;
    }
}

/// The token of a new account.
async fn bearer(admin: &Client, name: &str, role: Role) -> String {
    admin.put_account(v1::PutAccountRequest { name: name.into(), limits: None }).await.unwrap();
    let roles = vec![role.into()];
    let create = v1::CreateTokenRequest { account: name.into(), roles, description: String::new() };
    admin.create_token(create).await.unwrap().secret
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_takes_over_loses_and_doubles_nothing() {
    const ROUNDS: u32 = 3;
    let story = begin_alone("failover").await;
    let mut pair = Pair::start().await;
    let admin = pair.admin();
    let provider = pair.client(&bearer(&admin, "acme", Role::Provider).await);
    let tenant = pair.client(&bearer(&admin, "rival", Role::Tenant).await);
    let _running = run(&story, |manager| {
        market::add_markets(manager, &admin, "plane");
        market::add_offers(manager, &provider, "plane", None);
    });
    let objects = Objects::create(&story).await;
    place(&tenant, MARKET, 1, 3.0).await;
    story.eventually("a unit is held", || async { held(&admin).await.len() == 1 }).await;
    let (held_before, token_before) = (held(&admin).await, token(&story, "team-a", "").await);

    for round in 1..=ROUNDS {
        let (name, region) = (format!("team-{round}"), format!("region-{round}"));
        objects.change(2 * round - 1).await;
        create(&objects.accounts, account(&story, &name)).await;
        let under_way = async {
            create(&objects.markets, object("Market", &region, market_spec(&region, json!({})))).await;
            create(&objects.offers, object("Offer", &region, offer_spec(&region, 2))).await;
            objects.change(2 * round).await;
        };
        pair.fail_over(under_way).await;
        objects.succeed().await;
        until(&objects.accounts, &name, succeeded).await;
        until(&objects.markets, &region, succeeded).await;
        until(&objects.offers, &region, succeeded).await;
        is_as_after(&admin, 2 * round).await;
    }
    assert_eq!(held(&admin).await, held_before);
    assert_eq!(token(&story, "team-a", "").await, token_before);
    has_one_token(&story, &admin, "team-a").await;
    for round in 1..=ROUNDS {
        has_one_token(&story, &admin, &format!("team-{round}")).await;
    }
    let mut offers: Vec<_> = offers(&admin).await.into_iter().map(|it| (it.market, it.capacity)).collect();
    offers.sort();
    let mut wanted: Vec<_> = (1..=ROUNDS).map(|round| (format!("h100-8x/region-{round}"), 2)).collect();
    wanted.insert(0, (MARKET.to_owned(), 4 + 2 * ROUNDS));
    assert_eq!(offers, wanted);
}
