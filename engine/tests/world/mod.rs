//! An engine on a temporary file with the stepped clock, its REST on its own port, and its callers.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

pub mod client;

use client::Client;
use kubebid_engine::api::{Api, ApiOptions};
use kubebid_engine::auth::Secret;
use kubebid_engine::auth::limits::Defaults;
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::store::{Account, Limits, NewToken, Role, StoreLocation, StoreOptions};
use kubebid_engine::{Caller, Engine, EngineOptions, Running};
use kubebid_proto::v1;
use std::net::SocketAddr;
use tempfile::TempDir;

pub const MARKET: &str = "h100-8x/eu-west";
pub const SECOND: u64 = 1_000_000;

pub struct World {
    pub api: Api,
    pub address: SocketAddr,
    pub admin: Who,
    known: Vec<Who>,
    folder: TempDir,
    running: Running,
}

/// An account with a token.
#[derive(Clone)]
pub struct Who {
    pub caller: Caller,
    pub secret: String,
}

impl World {
    /// Starts with an open market without any bids or offers, in which nodes are protected for 900 s.
    pub async fn new() -> World {
        World::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut EngineOptions)) -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreOptions::new(StoreLocation::Sqlite(folder.path().join("kubebid.db")));
        let mut options = EngineOptions::new(store, Clock::Stepped);
        change(&mut options);
        let (engine, running) = Engine::start(options).await.unwrap();
        let admin = Who::make(&engine, "admin", &[Role::Admin]).await;
        let mut known = Vec::new();
        for name in ["t1", "t2", "t3", "p1", "p2", "v1"] {
            let caller = caller(name);
            let roles: Vec<Role> = caller.roles.iter().collect();
            known.push(Who::make(&engine, name, &roles).await);
        }
        // Some stories need one command with many events.
        let limits = Defaults { units_per_command: 10_000, ..Defaults::default() };
        let api = Api::start(engine, ApiOptions { limits, ..ApiOptions::default() }).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = kubebid_engine::rest::router(api.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let world = World { api, address, admin, known, folder, running };
        let rules = v1::MarketRules { min_runtime_us: Some(900 * SECOND), ..Default::default() };
        let open = v1::OpenMarketRequest { market: MARKET.to_owned(), rules: Some(rules) };
        world.api.open_market(&world.admin.caller, open).await.unwrap();
        world
    }

    /// Returns a client of t1, t2, t3, p1, p2, v1 or admin.
    pub fn client(&self, name: &str) -> Client {
        let mut known = self.known.iter().chain([&self.admin]);
        let who = known.find(|who| who.caller.account.as_str() == name).expect("somebody we know");
        Client::new(self.address, Some(who.secret.clone()))
    }

    pub fn stranger(&self) -> Client {
        Client::new(self.address, None)
    }

    pub async fn offer(&self, provider: &str, capacity: u32, reserve_micros: u64) -> u64 {
        let market = MARKET.to_owned();
        let request = v1::PutOfferRequest { market, capacity, reserve_micros, ..Default::default() };
        self.api.put_offer(&caller(provider), request).await.unwrap().seq
    }

    pub async fn bid(&self, tenant: &str, max_nodes: u32, ceiling_micros: u64) -> u64 {
        let markets = vec![MARKET.to_owned()];
        let request = v1::PlaceBidRequest { markets, ceiling_micros, max_nodes, ..Default::default() };
        self.place(tenant, request).await
    }

    pub async fn place(&self, tenant: &str, request: v1::PlaceBidRequest) -> u64 {
        self.api.place_bid(&caller(tenant), request).await.unwrap().bid
    }

    pub async fn ready(&self, tenant: &str, allocation: u64) {
        let request = v1::ReportReadyRequest { allocation, ..Default::default() };
        self.api.report_ready(&caller(tenant), request).await.unwrap();
    }

    pub async fn release(&self, tenant: &str, allocation: u64) {
        let request = v1::ReleaseAllocationRequest { allocation, ..Default::default() };
        self.api.release_allocation(&caller(tenant), request).await.unwrap();
    }

    /// Moves the clock to this second of market time.
    pub async fn at(&self, seconds: u64) {
        let request = v1::AdvanceTimeRequest { to_us: seconds * SECOND };
        self.api.advance_time(&self.admin.caller, request).await.unwrap();
    }

    pub async fn stop(self) {
        self.api.close();
        self.running.stop().await.unwrap();
    }
}

/// Returns a caller by name. The first letter of the name gives its role.
pub fn caller(name: &str) -> Caller {
    let role = match name.as_bytes()[0] {
        b'a' => Role::Admin,
        b'p' => Role::Provider,
        b'v' => Role::Viewer,
        _ => Role::Tenant,
    };
    Caller::new(name, [role])
}

impl Who {
    async fn make(engine: &Engine, name: &str, roles: &[Role]) -> Who {
        let rows = engine.store().rows();
        let account = Account { name: name.to_owned(), limits: Limits::default(), created_at_us: 0 };
        rows.put_account(&account).await.unwrap();
        let secret = Secret::random();
        let token = NewToken {
            sha256: secret.sha256(),
            account: name.to_owned(),
            roles: roles.iter().copied().collect(),
            note: String::new(),
            created_at_us: 0,
        };
        rows.add_token(&token).await.unwrap().unwrap();
        Who { caller: caller(name), secret: secret.reveal().to_owned() }
    }
}
