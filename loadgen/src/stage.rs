//! Prepares a bench: an engine, a market in it, and the clients of the callers.

use crate::child::Child;
use crate::engine::new_store;
use crate::error::BenchError;
use crate::options::{NewEngine, RunningEngine, Target};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use kubebid_client::v1::{self, token::Role};
use kubebid_client::{Builder, Client, Options};
use kubebid_engine::store::StoreLocation;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MARKET: &str = "bench/here";
/// The nodes of the provider. A tenant whom nobody outbids holds all of them.
const NODES: u32 = 16;
const HIGHEST_MICROS: u64 = 1_000_000_000_000;
const DAY_US: u64 = 86_400_000_000;
/// The number of tenants that are made at once.
const AT_ONCE: usize = 16;
/// The time that a call may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An engine that is ready to be loaded.
pub(crate) struct Stage {
    pub(crate) endpoint: String,
    /// The endpoint of its metrics.
    pub(crate) ops: Option<String>,
    pub(crate) market: String,
    /// The store in words, without a password.
    pub(crate) store: String,
    pub(crate) disk: PathBuf,
    /// The clients of those that place bids; connections are made with each in turn.
    callers: Vec<Builder>,
    watcher: Builder,
    child: Option<Child>,
}

/// Makes a client that tries each call once: a refusal for want of room is a figure.
fn client(builder: &Builder) -> Result<Client, BenchError> {
    let client = builder.clone().build()?;
    Ok(client.with_options(Options { timeout: TIMEOUT, deadline: TIMEOUT, tries: 1, ..*client.options() }))
}

impl Stage {
    /// Prepares the target. A new engine gets so many more tenants.
    pub(crate) async fn set(target: &Target, tenants: u32) -> Result<Stage, BenchError> {
        match target {
            Target::New(engine) => Stage::start(engine, tenants).await,
            Target::Running(engine) => Stage::join(engine).await,
        }
    }

    async fn join(engine: &RunningEngine) -> Result<Stage, BenchError> {
        let RunningEngine { endpoint, ops_endpoint, client: caller, market, disk } = engine.clone();
        let price = v1::GetMarketPriceRequest { market: market.clone(), ..Default::default() };
        client(&caller)?.get_market_price(price).await?;
        Ok(Stage {
            store: format!("that of {endpoint}"),
            endpoint,
            ops: ops_endpoint,
            market,
            disk: disk.unwrap_or_else(env::temp_dir),
            watcher: caller.clone(),
            callers: vec![caller],
            child: None,
        })
    }

    async fn start(engine: &NewEngine, tenants: u32) -> Result<Stage, BenchError> {
        let location = match &engine.store {
            Some(url) => Some(new_store(url).await?.location),
            None => None,
        };
        let child = Child::start(engine).await?;
        let (store, disk) = match location {
            Some(StoreLocation::Postgres(_)) => ("postgres".to_owned(), child.folder().to_owned()),
            Some(StoreLocation::Sqlite(path)) => {
                let folder =
                    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
                (format!("sqlite in {}", folder.display()), folder.to_owned())
            }
            None => (format!("sqlite in {}", env::temp_dir().display()), child.folder().to_owned()),
        };
        let endpoint = child.endpoint();
        let with = |secret: String| Builder::default().endpoints([&endpoint]).token(secret);
        let market = engine.market.clone().unwrap_or_else(|| MARKET.to_owned());
        let watcher = with(child.admin_token()?);
        let admin = client(&watcher)?;
        let secret = open(&admin, with, &market).await?;
        let callers = match tenants {
            0 => vec![with(secret)],
            tenants => {
                let made = (1..=tenants)
                    .map(async |n| token(&admin, &format!("bench-tenant-{n}"), Role::Tenant).await.map(with));
                stream::iter(made).buffered(AT_ONCE).try_collect().await?
            }
        };
        Ok(Stage {
            ops: Some(child.ops()),
            market,
            store,
            disk: engine.disk.clone().unwrap_or(disk),
            callers,
            watcher,
            endpoint,
            child: Some(child),
        })
    }

    /// Makes so many clients of the callers, each with a connection of its own.
    pub(crate) fn callers(&self, connections: u32) -> Result<Vec<Client>, BenchError> {
        self.callers.iter().cycle().take(connections as usize).map(client).collect()
    }

    /// Makes so many clients that watch, each with a connection of its own. In a new engine they act for the
    /// administrator, who sees all events.
    pub(crate) fn watchers(&self, connections: u32) -> Result<Vec<Client>, BenchError> {
        (0..connections).map(|_| client(&self.watcher)).collect()
    }

    /// Stops the engine if it was started for the bench.
    pub(crate) async fn strike(self) -> Result<(), BenchError> {
        match self.child {
            Some(child) => child.stop().await,
            None => Ok(()),
        }
    }
}

/// Opens a market whose nodes are all held, so that bids wait, and returns the token of a tenant.
async fn open(admin: &Client, with: impl Fn(String) -> Builder, market: &str) -> Result<String, BenchError> {
    let Some((kind, _)) = market.split_once('/') else {
        return Err(BenchError::usage(format!("`{market}` is no market: write TYPE/REGION")));
    };
    let instance_type = v1::InstanceType { name: kind.to_owned(), ..v1::InstanceType::default() };
    admin.put_instance_type(v1::PutInstanceTypeRequest { instance_type: Some(instance_type) }).await?;
    // These nodes never start, and that should not end them while bids come.
    let rules = v1::MarketRules { start_timeout_us: Some(DAY_US), ..v1::MarketRules::default() };
    admin.open_market(v1::OpenMarketRequest { market: market.to_owned(), rules: Some(rules) }).await?;

    let provider = client(&with(token(admin, "bench-provider", Role::Provider).await?))?;
    let offer = v1::PutOfferRequest {
        market: market.to_owned(),
        capacity: NODES,
        reserve_micros: 100,
        ..v1::PutOfferRequest::default()
    };
    provider.put_offer(offer).await?;
    let holder = client(&with(token(admin, "bench-holder", Role::Tenant).await?))?;
    let bid = v1::PlaceBidRequest {
        markets: vec![market.to_owned()],
        ceiling_micros: HIGHEST_MICROS,
        max_nodes: NODES,
        ..v1::PlaceBidRequest::default()
    };
    holder.place_bid(bid).await?;
    token(admin, "bench-tenant", Role::Tenant).await
}

/// Makes an account and returns the secret of a token for it.
async fn token(admin: &Client, account: &str, role: Role) -> Result<String, BenchError> {
    admin.put_account(v1::PutAccountRequest { name: account.to_owned(), limits: None }).await?;
    let request = v1::CreateTokenRequest {
        account: account.to_owned(),
        roles: vec![role as i32],
        description: "made by kubebid bench".to_owned(),
    };
    Ok(admin.create_token(request).await?.secret)
}
