//! A small demo market for people to try: synthetic providers and tenants trade in real time, through the client.

pub mod metrics;
pub mod profile;
pub mod setup;

use kubebid_client::v1::event::Kind;
use kubebid_client::v1::resume_units_request::Units;
use kubebid_client::v1::{self, cancel_bid_request::Mode};
use kubebid_client::{Client, Error};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;
use tokio::task::JoinSet;

/// A market in which the synthetic accounts trade, with its usual prices.
#[derive(Clone, Debug)]
pub struct DemoMarket {
    /// `type/region`.
    pub market: String,
    /// Units that each provider offers.
    pub capacity: u32,
    /// Micro-dollars per node-hour.
    pub reserve_micros: u64,
    /// The on-demand price, micro-dollars per node-hour.
    pub on_demand_micros: u64,
    /// Prices are multiples of this.
    pub tick_micros: u64,
}

/// The synthetic accounts, each with a client of its own.
#[derive(Debug)]
pub struct Clients {
    /// Clients of the providers.
    pub providers: Vec<Client>,
    /// Clients of the tenants.
    pub tenants: Vec<Client>,
}

/// Milliseconds from a node's award until its provider reports it ready.
const BOOT: std::ops::Range<u64> = 1500..4000;

/// Trades until it is dropped. Providers report every allocation on their units ready, also those of other tenants.
pub async fn run(markets: Vec<DemoMarket>, clients: Clients, seed: u64) {
    let mut tasks = JoinSet::new();
    for (n, client) in clients.providers.into_iter().enumerate() {
        let (markets, rng) = (markets.clone(), rng(seed, n as u64));
        tasks.spawn(async move { provide(client, markets, rng).await });
    }
    for (n, client) in clients.tenants.into_iter().enumerate() {
        let (markets, rng) = (markets.clone(), rng(seed, 1000 + n as u64));
        tasks.spawn(async move { request_nodes(client, markets, rng).await });
    }
    while tasks.join_next().await.is_some() {}
}

fn rng(seed: u64, who: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(who))
}

/// Offers in every market, and boots what is awarded; begins again when the engine was away.
async fn provide(client: Client, markets: Vec<DemoMarket>, mut rng: ChaCha8Rng) {
    loop {
        if let Err(error) = serve_awards(&client, &markets, &mut rng).await {
            tracing::debug!(%error, "a provider begins again");
            metrics::provider_broke();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn serve_awards(client: &Client, markets: &[DemoMarket], rng: &mut ChaCha8Rng) -> Result<(), Error> {
    let starting = v1::ListAllocationsRequest {
        states: vec![v1::allocation::State::Starting as i32],
        ..v1::ListAllocationsRequest::default()
    };
    let starting = client.all(starting).await?;
    let mut watch = client.watch_events(None, starting.cursor);
    for market in markets {
        let spread = rng.random_range(0..5) * market.reserve_micros / 20;
        let reserve = (market.reserve_micros + spread) / market.tick_micros * market.tick_micros;
        let offer = v1::PutOfferRequest {
            market: market.market.clone(),
            capacity: market.capacity,
            reserve_micros: reserve,
            ..v1::PutOfferRequest::default()
        };
        client.put_offer(offer).await?;
        // Nodes that nobody booted while this program was away have left units that rest.
        client.resume_units(resting(Units::Market(market.market.clone()))).await?;
    }
    let mut boots = JoinSet::new();
    for allocation in starting.allocations {
        boots.spawn(boot(client.clone(), allocation.allocation, rng.random_range(BOOT)));
    }
    while let Some(frame) = watch.next().await {
        for event in frame?.events {
            if let Some(Kind::Allocated(allocated)) = event.kind {
                boots.spawn(boot(client.clone(), allocated.allocation, rng.random_range(BOOT)));
            } else if let Some(Kind::UnitResting(rests)) = event.kind {
                // Every machine of a synthetic provider works.
                client.resume_units(resting(Units::Unit(rests.unit))).await?;
            }
        }
        while boots.try_join_next().is_some() {}
    }
    Ok(())
}

fn resting(units: Units) -> v1::ResumeUnitsRequest {
    v1::ResumeUnitsRequest { client_key: String::new(), units: Some(units) }
}

async fn boot(client: Client, allocation: u64, millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
    let ready = v1::ReportReadyRequest { allocation, ..v1::ReportReadyRequest::default() };
    // Its tenant may have been first, or have let go already.
    if client.report_ready(ready).await.is_ok() {
        metrics::booted();
    }
}

/// Bids for nodes now and then, at a price drawn each time, for as long as the work takes.
async fn request_nodes(client: Client, markets: Vec<DemoMarket>, mut rng: ChaCha8Rng) {
    let mut jobs = JoinSet::new();
    loop {
        tokio::time::sleep(Duration::from_millis(rng.random_range(300..20_000))).await;
        let market = &markets[rng.random_range(0..markets.len())];
        // Most would pay a little more than the floor, a few nearly the on-demand price.
        let eagerness: f64 = rng.random_range(0.0..1.0);
        let (low, high) = (market.reserve_micros as f64, market.on_demand_micros as f64);
        let worth = low + (high - low) * eagerness.powi(4);
        let ceiling = (worth as u64).max(market.reserve_micros) / market.tick_micros * market.tick_micros;
        let nodes = rng.random_range(1..=3);
        let work = Duration::from_secs(rng.random_range(15..120));
        jobs.spawn(work_on(client.clone(), market.market.clone(), ceiling, nodes, work));
        while jobs.try_join_next().is_some() {}
    }
}

async fn work_on(client: Client, market: String, ceiling_micros: u64, nodes: u32, work: Duration) {
    let bid = v1::PlaceBidRequest {
        markets: vec![market],
        ceiling_micros,
        max_nodes: nodes,
        ..v1::PlaceBidRequest::default()
    };
    let placed = match client.place_bid(bid).await {
        Ok(placed) => placed,
        Err(Error::Refused(_)) => return metrics::refused(),
        Err(error) => {
            tracing::debug!(%error, "a bid was not placed");
            return metrics::failed();
        }
    };
    metrics::placed();
    tokio::time::sleep(work).await;
    let mode = Mode::Release as i32;
    let cancel = v1::CancelBidRequest { bid: placed.bid, mode, ..v1::CancelBidRequest::default() };
    // It may be closed already.
    let _ = client.cancel_bid(cancel).await;
    metrics::done();
}
