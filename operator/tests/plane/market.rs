//! An engine of a story's own, and the people who trade there.

use kubebid_client::v1::{self, token::Role};
use kubebid_client::{Client, Options};
use kubebid_engine::api::ApiOptions;
use kubebid_engine::auth::bootstrap_admin;
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::server::{ConnectionLimits, Server, ServerConfig};
use kubebid_engine::store::{StoreLocation, StoreOptions, copy_sqlite};
use kubebid_engine::{Engine, EngineOptions};
use kubebid_testkit::Port;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// The file of the store that was kept.
const KEPT: &str = "kept.db";

/// The times of a market.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) notice: Duration,
    pub(crate) min_runtime: Duration,
    pub(crate) min_charge: Duration,
}

/// A running engine on its embedded store.
pub(crate) struct Market {
    folder: TempDir,
    store: PathBuf,
    port: Port,
    clock: Clock,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    admin: Option<Client>,
    pub(crate) provider: Option<Client>,
    pub(crate) rival: Option<Client>,
}

impl Market {
    pub(crate) async fn start() -> Market {
        Market::start_with(Clock::Real).await
    }

    /// With a clock that is moved by hand.
    pub(crate) async fn start_stepped() -> Market {
        Market::start_with(Clock::Stepped).await
    }

    async fn start_with(clock: Clock) -> Market {
        let folder = tempfile::tempdir().unwrap();
        let mut market = Market {
            store: folder.path().join("market.db"),
            folder,
            port: Port::hold(),
            clock,
            running: None,
            admin: None,
            provider: None,
            rival: None,
        };
        market.resume().await;
        let token = std::fs::read_to_string(market.file("admin.token")).unwrap();
        let admin = market.client(token.trim());
        market.admin = Some(admin.clone());
        market.provider = Some(market.party("acme", Role::Provider).await);
        market.rival = Some(market.party("rival", Role::Tenant).await);
        let operator = market.token("operator", Role::Tenant).await;
        std::fs::write(market.token_file(), operator).unwrap();
        market
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The token of the operator.
    pub(crate) fn token_file(&self) -> PathBuf {
        self.file("operator.token")
    }

    /// The token of an administrator.
    pub(crate) fn admin_token_file(&self) -> PathBuf {
        self.file("admin.token")
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// Starts the engine, again after a stop.
    pub(crate) async fn resume(&mut self) {
        let config = ServerConfig {
            listen: self.port.address(),
            ops: None,
            tls: None,
            grace: Duration::from_millis(200),
            connections: ConnectionLimits::default(),
            cors_origins: Vec::new(),
            api: ApiOptions::default(),
        };
        let store = StoreOptions::new(StoreLocation::Sqlite(self.store.clone()));
        let (admin_file, clock) = (self.file("admin.token"), self.clock);
        let (started, has_started) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        // On a runtime of its own, which ends with it: nothing of it keeps the store.
        let serving = thread::spawn(move || {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(async move {
                let server = Server::bind(config).await.unwrap();
                let (engine, running) = Engine::start(EngineOptions::new(store, clock)).await.unwrap();
                bootstrap_admin(engine.store(), &admin_file).await.unwrap();
                let _ = started.send(());
                let stopped = async {
                    let _ = stopped.await;
                };
                server.run(engine, running, stopped).await.unwrap();
            });
        });
        has_started.await.unwrap();
        self.running = Some((stop, serving));
    }

    /// Stops the engine: its port answers nothing.
    pub(crate) async fn stop(&mut self) {
        let (stop, serving) = self.running.take().unwrap();
        let _ = stop.send(());
        tokio::task::spawn_blocking(|| serving.join()).await.unwrap().unwrap();
    }

    /// Moves the clock of an engine that is stopped: it runs for this at an address that nobody else knows.
    pub(crate) async fn step_while_stopped(&mut self, by: Duration) {
        let known = std::mem::replace(&mut self.port, Port::hold());
        self.resume().await;
        let token = std::fs::read_to_string(self.admin_token_file()).unwrap();
        let admin = self.client(token.trim());
        let now = admin.advance_time(v1::AdvanceTimeRequest { to_us: 0 }).await.unwrap().at_us;
        let to_us = now + u64::try_from(by.as_micros()).unwrap();
        assert_eq!(admin.advance_time(v1::AdvanceTimeRequest { to_us }).await.unwrap().at_us, to_us);
        self.stop().await;
        self.port = known;
    }

    fn client(&self, token: &str) -> Client {
        let client = Client::builder().endpoints([self.endpoint()]).token(token).build().unwrap();
        // A disk that others use may keep the engine for long.
        let patience = Duration::from_secs(90);
        client.with_options(Options { timeout: patience, deadline: patience, ..*client.options() })
    }

    pub(crate) fn admin(&self) -> &Client {
        self.admin.as_ref().unwrap()
    }

    async fn token(&self, account: &str, role: Role) -> String {
        let admin = self.admin();
        admin.put_account(v1::PutAccountRequest { name: account.into(), limits: None }).await.unwrap();
        let request = v1::CreateTokenRequest {
            account: account.into(),
            roles: vec![role.into()],
            description: String::new(),
        };
        admin.create_token(request).await.unwrap().secret
    }

    pub(crate) async fn party(&self, account: &str, role: Role) -> Client {
        let token = self.token(account, role).await;
        self.client(&token)
    }

    /// How many nodes the searching bids of the operator may want in all; `None` for any number.
    pub(crate) async fn limit_nodes_wanted(&self, nodes_wanted: Option<u32>) {
        let limits = v1::AccountLimits { nodes_wanted, ..Default::default() };
        let request = v1::PutAccountRequest { name: "operator".into(), limits: Some(limits) };
        self.admin().put_account(request).await.unwrap();
    }

    /// Opens "type/region" with such a notice, no minimum runtime and no minimum charge, and says what a node of the
    /// type is.
    pub(crate) async fn open(&self, market: &str, notice: Duration) {
        self.open_with(market, Times { notice, ..Times::default() }).await;
    }

    pub(crate) async fn open_with(&self, market: &str, times: Times) {
        let us = |duration: Duration| Some(u64::try_from(duration.as_micros()).unwrap());
        let rules = v1::MarketRules {
            min_runtime_us: us(times.min_runtime),
            notice_us: us(times.notice),
            start_timeout_us: us(Duration::from_secs(3600)),
            min_charge_us: us(times.min_charge),
            ..Default::default()
        };
        let request = v1::OpenMarketRequest { market: market.into(), rules: Some(rules) };
        self.admin().open_market(request).await.unwrap();
        let allocatable = [("cpu", "64"), ("memory", "512Gi"), ("nvidia.com/gpu", "8")];
        let instance_type = v1::InstanceType {
            name: market.split('/').next().unwrap().into(),
            allocatable: allocatable.map(|(name, amount)| (name.into(), amount.into())).into(),
            node_labels: BTreeMap::new(),
            on_demand_price_micros: None,
        };
        let request = v1::PutInstanceTypeRequest { instance_type: Some(instance_type) };
        self.admin().put_instance_type(request).await.unwrap();
    }

    /// What the operator was charged, in micro-dollars, by the value of a label of its bids.
    pub(crate) async fn charged(&self, label: &str) -> BTreeMap<String, u64> {
        let account = Some("operator".to_owned());
        let request = v1::GetStatementRequest { by_label: label.into(), account, ..Default::default() };
        let lines = self.admin().get_statement(request).await.unwrap().lines;
        let charged = |line: v1::get_statement_response::Line| {
            (line.label_value.unwrap_or_default(), line.charged.unwrap_or_default().debit_micros)
        };
        lines.into_iter().map(charged).collect()
    }

    /// Keeps the store as it is.
    pub(crate) async fn back_up(&self) {
        copy_sqlite(&self.store, &self.file(KEPT), Duration::from_secs(10)).await.unwrap();
    }

    /// Goes on from the store as it was kept, in the kept file itself: connections of the engine that stopped may
    /// still be closing its own.
    pub(crate) async fn restore(&mut self) {
        self.stop().await;
        self.store = self.file(KEPT);
        self.resume().await;
    }

    /// Goes on from the store as it was kept, whose journal has this identity from now on: an engine with another store, which has
    /// the same accounts.
    pub(crate) async fn replace_journal(&mut self, journal: &str) {
        self.stop().await;
        self.store = self.file(KEPT);
        let mut store: SqliteConnection =
            SqliteConnectOptions::new().filename(&self.store).connect().await.unwrap();
        sqlx::query("UPDATE leader SET journal = ?").bind(journal).execute(&mut store).await.unwrap();
        store.close().await.unwrap();
        self.resume().await;
    }

    /// The provider offers so many units, in USD.
    pub(crate) async fn offer(&self, market: &str, capacity: u32, reserve: f64) {
        let request = v1::PutOfferRequest {
            client_key: String::new(),
            market: market.into(),
            capacity,
            reserve_micros: kubebid_operator::api::micros(reserve),
        };
        self.provider.as_ref().unwrap().put_offer(request).await.unwrap();
    }

    /// Somebody else bids for nodes; the number of the bid.
    pub(crate) async fn rival_bids(&self, market: &str, nodes: u32, ceiling: f64) -> u64 {
        place(self.rival.as_ref().unwrap(), market, nodes, ceiling).await
    }

    pub(crate) async fn rival_cancels(&self, bid: u64) {
        let mode = v1::cancel_bid_request::Mode::Release.into();
        let request = v1::CancelBidRequest { client_key: String::new(), bid, mode };
        self.rival.as_ref().unwrap().cancel_bid(request).await.unwrap();
    }

    /// The last command: what is listed may be behind it, and is asked for as of then.
    async fn seq(&self) -> u64 {
        self.admin().first(v1::ListMarketsRequest::default(), 1).await.unwrap().seq
    }

    /// The reference price of a market, in micro-dollars.
    pub(crate) async fn reference(&self, market: &str) -> Option<u64> {
        let (instance_type, region) = market.split_once('/').unwrap();
        let (instance_type, region) = (instance_type.into(), region.into());
        let request = v1::ListMarketsRequest { instance_type, region, ..Default::default() };
        let markets = self.admin().all(request).await.unwrap().markets;
        markets.into_iter().next()?.price?.reference_price_micros
    }

    /// The operator's bids that search or hold something.
    pub(crate) async fn live_bids(&self) -> Vec<v1::Bid> {
        let live = |bid: &v1::Bid| {
            bid.state() == v1::bid::State::Open && (bid.unmet > 0 || bid.held > 0) || bid.under_notice > 0
        };
        self.all_bids().await.into_iter().filter(live).collect()
    }

    /// The operator's nodes.
    pub(crate) async fn held(&self) -> Vec<v1::Allocation> {
        let request = v1::ListAllocationsRequest {
            account: Some("operator".into()),
            states: vec![v1::allocation::State::Starting.into(), v1::allocation::State::Active.into()],
            min_seq: self.seq().await,
            ..Default::default()
        };
        self.admin().all(request).await.unwrap().allocations
    }

    /// All bids that the operator ever placed.
    pub(crate) async fn all_bids(&self) -> Vec<v1::Bid> {
        let request = v1::ListBidsRequest {
            account: Some("operator".into()),
            min_seq: self.seq().await,
            ..Default::default()
        };
        self.admin().all(request).await.unwrap().bids
    }

    /// The operator's nodes that are over.
    pub(crate) async fn ended(&self) -> Vec<v1::Allocation> {
        let request = v1::ListAllocationsRequest {
            account: Some("operator".into()),
            states: vec![v1::allocation::State::Ended.into()],
            min_seq: self.seq().await,
            ..Default::default()
        };
        self.admin().all(request).await.unwrap().allocations
    }
}

/// A tenant bids for nodes; the number of the bid.
pub(crate) async fn place(tenant: &Client, market: &str, nodes: u32, ceiling: f64) -> u64 {
    let request = v1::PlaceBidRequest {
        markets: vec![market.into()],
        ceiling_micros: kubebid_operator::api::micros(ceiling),
        max_nodes: nodes,
        ..Default::default()
    };
    tenant.place_bid(request).await.unwrap().bid
}
