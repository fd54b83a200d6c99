//! Tenants and providers who do whatever comes to their mind.

use kubebid_client::v1::place_bid_request::{OnPreemption, TimeInForce};
use kubebid_client::v1::{self, PlaceBidRequest, cancel_bid_request::Mode, token::Role};
use kubebid_client::{Client, Error};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

pub(crate) const MARKETS: [&str; 3] = ["h100/eu", "h100/us", "a100/eu"];

/// Somebody who trades.
pub(crate) struct Party {
    name: &'static str,
    role: Role,
    client: Client,
    rng: ChaCha8Rng,
    bids: Vec<u64>,
    last: Option<PlaceBidRequest>,
}

impl Party {
    pub(crate) fn new(name: &'static str, role: Role, client: Client, rng: ChaCha8Rng) -> Party {
        Party { name, role, client, rng, bids: Vec::new(), last: None }
    }

    /// One thing after another; to be refused is part of it.
    pub(crate) async fn act(&mut self, times: usize) {
        for _ in 0..times {
            let done = if self.role == Role::Tenant { self.buy().await } else { self.sell().await };
            match done {
                Ok(()) | Err(Error::Refused(_)) => {}
                Err(error) => panic!("{}: {error}", self.name),
            }
        }
    }

    fn any<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.random_range(0..of.len())]
    }

    /// So high that moments cost something.
    fn price(&mut self) -> u64 {
        self.rng.random_range(1..40) * 1_000_000
    }

    async fn buy(&mut self) -> Result<(), Error> {
        match self.rng.random_range(0..20) {
            0..7 => self.place().await,
            7..11 if !self.bids.is_empty() => {
                let bid = self.any(&self.bids.clone());
                let ceiling_micros = self.rng.random_bool(0.7).then(|| self.price());
                let max_nodes = self.rng.random_bool(0.4).then(|| self.rng.random_range(0..5));
                let amend = v1::AmendBidRequest { client_key: String::new(), bid, ceiling_micros, max_nodes };
                self.client.amend_bid(amend).await.map(drop)
            }
            11..13 if !self.bids.is_empty() => {
                let (bid, mode) = (self.any(&self.bids.clone()), self.any(&[Mode::Keep, Mode::Release]));
                let cancel = v1::CancelBidRequest { client_key: String::new(), bid, mode: mode as i32 };
                self.client.cancel_bid(cancel).await.map(drop)
            }
            13 => match self.last.clone() {
                Some(last) => self.client.place_bid(last).await.map(drop),
                None => Ok(()),
            },
            _ => self.tend().await,
        }
    }

    async fn place(&mut self) -> Result<(), Error> {
        let max_nodes = self.rng.random_range(1..4);
        let mut bid = PlaceBidRequest {
            client_key: format!("k{}", self.rng.random_range(0..1000)),
            ceiling_micros: self.price(),
            min_nodes: self.rng.random_bool(0.3).then_some(max_nodes),
            max_nodes,
            time_in_force: self.any(&[TimeInForce::Gtc, TimeInForce::Gtt, TimeInForce::Ioc]) as i32,
            on_preemption: self.any(&[OnPreemption::Requeue, OnPreemption::Close]) as i32,
            ..PlaceBidRequest::default()
        };
        match self.rng.random_range(0..4) {
            0 => bid.instance_type = "h100".into(),
            1 => bid.markets = MARKETS.map(String::from).into(),
            _ => bid.markets = vec![self.any(&MARKETS).into()],
        }
        if bid.time_in_force == TimeInForce::Gtt as i32 {
            let price = v1::GetMarketPriceRequest { market: MARKETS[0].into(), ..Default::default() };
            let now = self.client.get_market_price(price).await?.prices[0].at_us;
            bid.expire_at_us = Some(now + self.rng.random_range(0..50_000));
        }
        self.last = Some(bid.clone());
        self.bids.push(self.client.place_bid(bid).await?.bid);
        Ok(())
    }

    /// Reports nodes ready, or gives one back.
    async fn tend(&mut self) -> Result<(), Error> {
        let nodes = self.client.all(v1::ListAllocationsRequest::default()).await?.allocations;
        let mut nodes = nodes.iter().filter(|node| node.ended_at_us.is_none()).map(|node| node.allocation);
        if self.rng.random_bool(0.2) {
            let Some(allocation) = nodes.next() else { return Ok(()) };
            let release = v1::ReleaseAllocationRequest { client_key: String::new(), allocation };
            return self.client.release_allocation(release).await.map(drop);
        }
        for allocation in nodes {
            let ready = v1::ReportReadyRequest { allocation, ..Default::default() };
            self.client.report_ready(ready).await?;
        }
        Ok(())
    }

    async fn sell(&mut self) -> Result<(), Error> {
        let market = self.any(&MARKETS);
        let unit = format!("{market}:{}#{}", self.name, self.rng.random_range(1..10));
        match self.rng.random_range(0..10) {
            0 => self
                .client
                .withdraw_unit(v1::WithdrawUnitRequest { unit, ..Default::default() })
                .await
                .map(drop),
            1 => self
                .client
                .report_unit_lost(v1::ReportUnitLostRequest { unit, ..Default::default() })
                .await
                .map(drop),
            2 => {
                let units = Some(v1::resume_units_request::Units::Market(market.into()));
                self.client
                    .resume_units(v1::ResumeUnitsRequest { units, ..Default::default() })
                    .await
                    .map(drop)
            }
            _ => {
                let offer = v1::PutOfferRequest {
                    client_key: String::new(),
                    market: market.into(),
                    capacity: self.rng.random_range(0..5),
                    reserve_micros: self.price() / 2,
                };
                self.client.put_offer(offer).await.map(drop)
            }
        }
    }
}
