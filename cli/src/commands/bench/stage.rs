//! Prepares a bench: an engine, a market in it, and the callers.

use super::Target;
use super::child::Child;
use crate::commands::local;
use crate::config::Connection;
use crate::failure::Failure;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use kubebid_client::v1::{self, token::Role};
use kubebid_client::{Client, Options};
use kubebid_engine::store::{Fault, Journal, Place};
use market_sim::living::setting;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MARKET: &str = "bench/here";
/// Nodes of the provider; all are held, by a tenant whom nobody outbids.
const NODES: u32 = 16;
const HIGHEST_MICROS: u64 = 1_000_000_000_000;
const DAY_US: u64 = 86_400_000_000;
/// Tenants that are made at once.
const AT_ONCE: usize = 16;

pub(super) struct Stage {
    pub(super) endpoint: String,
    /// Where its metrics are.
    pub(super) ops: Option<String>,
    pub(super) market: String,
    /// In words, without a password.
    pub(super) store: String,
    pub(super) disk: PathBuf,
    /// The token of the tenant who places bids.
    pub(super) secret: Option<String>,
    /// Who places bids; connections are theirs in turn.
    callers: Vec<Caller>,
    watcher: Caller,
    child: Option<Child>,
}

/// Of whom connections are made.
#[derive(Clone)]
enum Caller {
    Of(Connection),
    With { endpoint: String, secret: String },
}

impl Caller {
    fn client(&self) -> Result<Client, Failure> {
        let client = match self {
            Caller::Of(connection) => connection.client()?,
            Caller::With { endpoint, secret } => {
                Client::builder().endpoints([endpoint]).token(secret).build()?
            }
        };
        // What is refused for want of room is a figure, not something to try again.
        let deadline = Duration::from_secs(60);
        Ok(client.with_options(Options { timeout: deadline, deadline, tries: 1, ..*client.options() }))
    }
}

impl Stage {
    /// An engine of its own, with so many tenants more, or the one that the connection names.
    pub(super) async fn set(
        connection: &Connection,
        target: &Target,
        tenants: u32,
    ) -> Result<Stage, Failure> {
        match connection.endpoint() {
            Some(endpoint) => Stage::at(endpoint, connection, target).await,
            None => Stage::own(connection, target, tenants).await,
        }
    }

    async fn at(endpoint: &str, connection: &Connection, target: &Target) -> Result<Stage, Failure> {
        if target.store.is_some() {
            return Err(Failure::usage(
                "--store is for an engine that is started, --endpoint names one that runs",
            ));
        }
        let Some(market) = target.market.clone() else {
            return Err(Failure::usage("with --endpoint say which market, as in --market h100-8x/eu-west")
                .next("see the markets: kubebid market list"));
        };
        let caller = Caller::Of(connection.clone());
        let price = v1::GetMarketPriceRequest { market: market.clone(), ..Default::default() };
        caller.client()?.get_market_price(price).await?;
        Ok(Stage {
            endpoint: endpoint.to_owned(),
            ops: target.ops_endpoint.clone(),
            market,
            store: format!("that of {endpoint}"),
            disk: target.disk.clone().unwrap_or_else(env::temp_dir),
            secret: connection.secret()?,
            watcher: caller.clone(),
            callers: vec![caller],
            child: None,
        })
    }

    async fn own(connection: &Connection, target: &Target, tenants: u32) -> Result<Stage, Failure> {
        if connection.names_a_caller() {
            return Err(Failure::usage("a token is for an engine that runs: name it with --endpoint"));
        }
        if target.ops_endpoint.is_some() {
            return Err(Failure::usage("--ops-endpoint goes with --endpoint: what is started is known"));
        }
        let place = match &target.store {
            Some(url) => Some(without_journal(url).await?),
            None => None,
        };
        let child = Child::start(target.store.as_deref(), &target.without).await?;
        let (store, disk) = match place {
            Some(Place::Postgres(_)) => ("postgres".to_owned(), child.folder()),
            Some(Place::Sqlite(path)) => {
                let folder =
                    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
                (format!("sqlite in {}", folder.display()), folder.to_owned())
            }
            None => (format!("sqlite in {}", env::temp_dir().display()), child.folder()),
        };
        let (endpoint, admin) = (child.endpoint(), child.admin_token()?);
        let market = target.market.clone().unwrap_or_else(|| MARKET.to_owned());
        let watcher = Caller::With { endpoint: endpoint.clone(), secret: admin };
        let admin = watcher.client()?;
        let secret = open(&admin, &endpoint, &market).await?;
        let with = |secret| Caller::With { endpoint: endpoint.clone(), secret };
        let callers = match tenants {
            0 => vec![with(secret.clone())],
            tenants => {
                let made = (1..=tenants).map(async |n| {
                    as_new(&admin, &format!("bench-tenant-{n}"), Role::Tenant).await.map(with)
                });
                stream::iter(made).buffered(AT_ONCE).try_collect().await?
            }
        };
        Ok(Stage {
            ops: Some(child.ops()),
            market,
            store,
            disk: target.disk.clone().unwrap_or(disk),
            secret: Some(secret.clone()),
            callers,
            watcher,
            endpoint,
            child: Some(child),
        })
    }

    /// So many connections of those who call.
    pub(super) fn callers(&self, connections: u32) -> Result<Vec<Client>, Failure> {
        self.callers.iter().cycle().take(connections as usize).map(Caller::client).collect()
    }

    /// So many connections of the one who watches: the administrator, who sees all events, where there is one.
    pub(super) fn watchers(&self, connections: u32) -> Result<Vec<Client>, Failure> {
        (0..connections).map(|_| self.watcher.client()).collect()
    }

    /// Stops what was started.
    pub(super) async fn strike(self) -> Result<(), Failure> {
        match self.child {
            Some(child) => child.stop().await,
            None => Ok(()),
        }
    }
}

/// Sees to it that nothing is added to what somebody wants to keep.
async fn without_journal(url: &str) -> Result<Place, Failure> {
    let store = local::store(url)?;
    let there = match &store.place {
        Place::Sqlite(path) => path.metadata().is_ok_and(|file| file.len() > 0),
        Place::Postgres(_) => match Journal::open_to_read(&store).await {
            Ok(_) => true,
            // It has not even the table.
            Err(Fault::Database { .. }) => false,
            Err(fault) => return Err(local::fault(&fault)),
        },
    };
    if there {
        return Err(Failure::usage("the store is not empty, and a bench would fill it with bids")
            .next("name one that is not there yet, or the engine that runs on it with --endpoint"));
    }
    Ok(store.place)
}

/// Opens a market whose nodes are all held, so that bids wait, and gives the token of a tenant.
async fn open(admin: &Client, endpoint: &str, market: &str) -> Result<String, Failure> {
    let Some((kind, _)) = market.split_once('/') else {
        return Err(Failure::usage(format!("`{market}` is no market: write TYPE/REGION")));
    };
    let instance_type = v1::InstanceType { name: kind.to_owned(), ..v1::InstanceType::default() };
    admin.put_instance_type(v1::PutInstanceTypeRequest { instance_type: Some(instance_type) }).await?;
    // Nobody starts these nodes, and that should not end them while bids come.
    let rules = v1::MarketRules { start_timeout_us: Some(DAY_US), ..v1::MarketRules::default() };
    admin.open_market(v1::OpenMarketRequest { market: market.to_owned(), rules: Some(rules) }).await?;

    let client = |secret: String| Caller::With { endpoint: endpoint.to_owned(), secret }.client();
    let provider = client(as_new(admin, "bench-provider", Role::Provider).await?)?;
    let offer = v1::PutOfferRequest {
        market: market.to_owned(),
        capacity: NODES,
        reserve_micros: 100,
        ..v1::PutOfferRequest::default()
    };
    provider.put_offer(offer).await?;
    let holder = client(as_new(admin, "bench-holder", Role::Tenant).await?)?;
    let bid = v1::PlaceBidRequest {
        markets: vec![market.to_owned()],
        ceiling_micros: HIGHEST_MICROS,
        max_nodes: NODES,
        ..v1::PlaceBidRequest::default()
    };
    holder.place_bid(bid).await?;
    as_new(admin, "bench-tenant", Role::Tenant).await
}

/// Makes an account, and gives a token for it.
async fn as_new(admin: &Client, account: &str, role: Role) -> Result<String, Failure> {
    Ok(setting::token(admin, account, role, "kubebid bench").await?)
}
