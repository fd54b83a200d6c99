//! Prepares an engine for trading: instance types, markets with short times, accounts and their tokens.

use super::{Clients, DemoMarket};
use kubebid_client::v1::{self, token::Role};
use kubebid_client::{Client, Code, Error};
use std::collections::BTreeMap;

/// A market and what is sold in it.
#[derive(Clone, Copy, Debug)]
pub struct Market {
    /// `type/region`.
    pub name: &'static str,
    /// Allocatable resources of a node, by name.
    pub resources: [(&'static str, &'static str); 3],
    /// Micro-dollars per node-hour.
    pub reserve_micros: u64,
    /// The on-demand price, micro-dollars per node-hour.
    pub on_demand_micros: u64,
}

/// The markets of the demo.
pub const MARKETS: [Market; 3] = [
    Market {
        name: "h100-8x/eu-west",
        resources: [("cpu", "192"), ("memory", "2Ti"), ("nvidia.com/gpu", "8")],
        reserve_micros: 8_000_000,
        on_demand_micros: 32_000_000,
    },
    Market {
        name: "a100-8x/eu-west",
        resources: [("cpu", "96"), ("memory", "1Ti"), ("nvidia.com/gpu", "8")],
        reserve_micros: 4_000_000,
        on_demand_micros: 16_000_000,
    },
    Market {
        name: "l40s-4x/us-east",
        resources: [("cpu", "64"), ("memory", "512Gi"), ("nvidia.com/gpu", "4")],
        reserve_micros: 1_500_000,
        on_demand_micros: 6_000_000,
    },
];

/// The accounts that people use, with their roles.
pub const PEOPLE: [(&str, Role); 3] =
    [("tenant-a", Role::Tenant), ("tenant-b", Role::Tenant), ("provider", Role::Provider)];

const PROVIDERS: u32 = 3;
const TENANTS: u32 = 6;
/// Units of each provider in each market.
const CAPACITY: u32 = 4;

/// Units that the synthetic providers offer in each market, in all.
pub const UNITS: u32 = PROVIDERS * CAPACITY;

/// Returns the names of the synthetic providers.
pub fn providers() -> impl Iterator<Item = String> {
    (1..=PROVIDERS).map(|n| format!("sim-provider-{n}"))
}

/// Returns the names of the synthetic tenants.
pub fn tenants() -> impl Iterator<Item = String> {
    (1..=TENANTS).map(|n| format!("sim-tenant-{n}"))
}

/// Returns the markets in which the synthetic accounts trade.
pub fn markets() -> Vec<DemoMarket> {
    let market = |market: &Market| DemoMarket {
        market: market.name.to_owned(),
        capacity: CAPACITY,
        reserve_micros: market.reserve_micros,
        on_demand_micros: market.on_demand_micros,
        tick_micros: 100,
    };
    MARKETS.iter().map(market).collect()
}

/// Opens the markets, as an administrator; what is there already stays. Nodes are protected for 30 s, notices take
/// 60 s.
pub async fn open(admin: &Client) -> Result<(), Error> {
    for market in &MARKETS {
        let (kind, _) = market.name.split_once('/').expect("type/region");
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let labels = BTreeMap::from([("node.kubernetes.io/instance-type".to_owned(), kind.to_owned())]);
        let instance_type = v1::InstanceType {
            name: kind.to_owned(),
            allocatable: market.resources.iter().map(owned).collect(),
            node_labels: labels,
            on_demand_price_micros: Some(market.on_demand_micros),
        };
        admin.put_instance_type(v1::PutInstanceTypeRequest { instance_type: Some(instance_type) }).await?;
        let rules = v1::MarketRules {
            min_runtime_us: Some(30_000_000),
            notice_us: Some(60_000_000),
            start_timeout_us: Some(120_000_000),
            min_charge_us: Some(10_000_000),
            ..v1::MarketRules::default()
        };
        let request = v1::OpenMarketRequest { market: market.name.to_owned(), rules: Some(rules) };
        match admin.open_market(request).await {
            Ok(_) => {}
            Err(error) if error.code() == Some(&Code::MarketExists) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes a client for each synthetic account.
pub async fn clients<E>(client: impl AsyncFn(&str, Role) -> Result<Client, E>) -> Result<Clients, E> {
    let mut clients = Clients { providers: Vec::new(), tenants: Vec::new() };
    for name in providers() {
        clients.providers.push(client(&name, Role::Provider).await?);
    }
    for name in tenants() {
        clients.tenants.push(client(&name, Role::Tenant).await?);
    }
    Ok(clients)
}

/// Revokes the tokens that `maker` made for synthetic accounts at earlier starts.
pub async fn revoke_tokens(admin: &Client, maker: &str) -> Result<(), Error> {
    let description = described(maker);
    let synthetic: Vec<String> = providers().chain(tenants()).collect();
    for token in admin.all(v1::ListTokensRequest::default()).await?.tokens {
        if token.description == description && synthetic.contains(&token.account) {
            admin.revoke_token(v1::RevokeTokenRequest { token_id: token.token_id }).await?;
        }
    }
    Ok(())
}

fn described(maker: &str) -> String {
    format!("made by {maker}")
}

/// Creates a token for an account, and the account if it is missing. `maker` is noted with the token.
pub async fn token(admin: &Client, account: &str, role: Role, maker: &str) -> Result<String, Error> {
    admin.put_account(v1::PutAccountRequest { name: account.to_owned(), limits: None }).await?;
    let request = v1::CreateTokenRequest {
        account: account.to_owned(),
        roles: vec![role as i32],
        description: described(maker),
    };
    Ok(admin.create_token(request).await?.secret)
}
