//! Tests of drills on a running engine: their effects, and that a restart changes nothing of them.

mod demand;
mod pace;
#[expect(dead_code, reason = "other tests use more of it")]
#[path = "../projections/place.rs"]
mod place;
mod supply;
mod switch;

use kubebid_core::Exchange;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName};
use kubebid_core::views::{AllocationView, BidView};
use kubebid_engine::api::{Api, ApiOptions};
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::store::Role;
use kubebid_engine::{Caller, Engine, EngineOptions, Running};
use kubebid_proto::v1;
use place::TestPlace;
use tokio::runtime::Runtime;

/// Runs each test of a module once on PostgreSQL and once on SQLite.
macro_rules! on_both {
    ($($test:ident)*) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::place::TestPlace::postgres()).await;
            })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::place::TestPlace::sqlite()).await;
            })*
        }
    };
}
pub(crate) use on_both;

pub(crate) const MARKET: &str = "h100/eu";
pub(crate) const SECOND: u64 = 1_000_000;
pub(crate) const INJECT: &str = "kubebid.inject";

/// An engine on the stepped clock that allows drills.
pub(crate) struct Drill {
    pub(crate) api: Api,
    pub(crate) admin: Caller,
    running: Running,
    home: Home,
}

/// The runtime of an engine. When it is dropped nothing of the engine is left, so that the next engine
/// can take its store.
struct Home(Option<Runtime>);

impl Home {
    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let runtime = self.0.as_ref().expect("nobody has left");
        runtime.spawn(work).await.unwrap()
    }

    async fn leave(mut self) {
        let runtime = self.0.take();
        tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // The test has failed.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drill {
    /// Starts with an open market in which nodes are protected for 900 s and notices take 300 s.
    pub(crate) async fn new(place: &TestPlace) -> Drill {
        let drill = Drill::again(place).await;
        drill.open(MARKET).await;
        drill
    }

    /// Starts an engine on the store that is there.
    pub(crate) async fn again(place: &TestPlace) -> Drill {
        Drill::with(place, Clock::Stepped, true).await
    }

    pub(crate) async fn with(place: &TestPlace, clock: Clock, allow_inject: bool) -> Drill {
        let options = EngineOptions::new(place.options.clone(), clock);
        let home = Home(Some(Runtime::new().unwrap()));
        let started = home.run(async move {
            let (engine, running) = Engine::start(options).await.unwrap();
            let options = ApiOptions { allow_inject, ..ApiOptions::default() };
            (Api::start(engine, options).await.unwrap(), running)
        });
        let (api, running) = started.await;
        Drill { api, admin: Caller::new("admin", [Role::Admin]), running, home }
    }

    pub(crate) async fn open(&self, market: &str) {
        let rules = v1::MarketRules { min_runtime_us: Some(900 * SECOND), ..Default::default() };
        let open = v1::OpenMarketRequest { market: market.to_owned(), rules: Some(rules) };
        self.api.open_market(&self.admin, open).await.unwrap();
    }

    pub(crate) async fn offer(&self, provider: &str, market: &str, capacity: u32, reserve_micros: u64) {
        let market = market.to_owned();
        let request = v1::PutOfferRequest { market, capacity, reserve_micros, ..Default::default() };
        self.api.put_offer(&Caller::new(provider, [Role::Provider]), request).await.unwrap();
    }

    pub(crate) async fn bid(&self, tenant: &str, max_nodes: u32, ceiling_micros: u64) -> u64 {
        let markets = vec![MARKET.to_owned()];
        let request = v1::PlaceBidRequest { markets, ceiling_micros, max_nodes, ..Default::default() };
        self.api.place_bid(&Caller::new(tenant, [Role::Tenant]), request).await.unwrap().bid
    }

    pub(crate) async fn ready(&self, tenant: &str, allocation: u64) {
        let request = v1::ReportReadyRequest { allocation, ..Default::default() };
        self.api.report_ready(&Caller::new(tenant, [Role::Tenant]), request).await.unwrap();
    }

    /// Moves the clock to this second of market time.
    pub(crate) async fn at(&self, seconds: u64) {
        let request = v1::AdvanceTimeRequest { to_us: seconds * SECOND };
        self.api.advance_time(&self.admin, request).await.unwrap();
    }

    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Exchange) -> T + Send + 'static,
    ) -> T {
        self.api.engine().ask(question).await.unwrap()
    }

    pub(crate) async fn view(&self, bid: u64) -> BidView {
        self.ask(move |exchange| exchange.view_bid(BidId(bid))).await.expect("the bid is there")
    }

    pub(crate) async fn node(&self, allocation: u64) -> Option<AllocationView> {
        self.ask(move |exchange| exchange.view_allocation(AllocationId(allocation))).await
    }

    /// Returns the capacity and the reserve of an offer that has units.
    pub(crate) async fn offered(&self, provider: &'static str, market: &'static str) -> Option<(u64, u64)> {
        self.ask(move |exchange| {
            let market = exchange.market_id(&MarketName::new(market))?;
            let offer = exchange.view_offer(market, exchange.account_id(&AccountName::new(provider))?)?;
            Some((offer.capacity, offer.reserve.0))
        })
        .await
    }

    /// Waits, from command to command, until a condition is true.
    pub(crate) async fn until(&self, so: impl Fn(&Exchange) -> bool + Clone + Send + 'static) {
        loop {
            let so = so.clone();
            let (seq, is_so) = self.ask(move |exchange| (exchange.seq().0, so(exchange))).await;
            if is_so {
                return;
            }
            self.api.engine().wait_applied(seq + 1).await;
        }
    }

    /// Stops the engine. Returns the hash of the state.
    pub(crate) async fn stop(self) -> u128 {
        let hash = self.ask(Exchange::state_hash).await;
        self.api.close();
        drop(self.api);
        self.running.stop().await.unwrap();
        self.home.leave().await;
        hash
    }
}
