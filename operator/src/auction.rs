//! The engine as the operator sees it: the requests for each slot.

mod bid_cache;
mod feed;
mod prices;

pub use bid_cache::{BidCache, Known, KnownAllocation, SlotKey};
pub use feed::Feed;

use crate::api::{
    BidNode, BidNodeSpec, BidSlot, LABEL_BIDNODE, LABEL_CLUSTER, LABEL_NAMESPACE, LABEL_SLOT, LABEL_SLOT_UID,
    LABEL_UID, micros,
};
use crate::clock;
use crate::plan::price::Markets;
use kube::ResourceExt as _;
use kubebid_client::{Client, Code, Error, v1};
use kubebid_strategy::{AtNotice, Strategy};
use prices::Prices;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use prices::Type;

/// The engine. One operator is one tenant of it.
#[derive(Debug)]
pub struct Auction {
    client: Client,
    /// The UID of the cluster's `kube-system` namespace.
    cluster: String,
    bid_cache: BidCache,
    prices: Prices,
}

/// What an amendment came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amended {
    Done,
    /// A node is protected: not before this instant of market time, in microseconds.
    Protected {
        until_us: u64,
    },
    /// A node costs more than that at least.
    BelowReserve,
    /// The bid is closed and may only be raised.
    Closed,
}

impl Auction {
    pub fn new(client: Client, cluster: String) -> Self {
        Auction { client, cluster, bid_cache: BidCache::default(), prices: Prices::default() }
    }

    /// Returns what is known of the operator's bids.
    pub fn bid_cache(&self) -> &BidCache {
        &self.bid_cache
    }

    /// Listens to the engine for as long as it is polled.
    pub fn feed(self: &Arc<Self>) -> Feed {
        Feed::new(Arc::clone(self))
    }

    /// The markets that a BidNode bids in; `None` where none is open.
    pub async fn markets(&self, spec: &BidNodeSpec) -> Result<Option<Arc<Markets>>, Error> {
        self.prices.markets(self, spec).await
    }

    /// Returns what the nodes of a BidNode have cost so far, in micro-dollars.
    pub async fn cost(&self, node: &BidNode) -> Result<u64, Error> {
        let costs = self.prices.costs(self).await?;
        Ok(costs.get(&node.uid().unwrap_or_default()).copied().unwrap_or_default())
    }

    /// Returns what a node of the type is.
    pub async fn instance_type(&self, name: &str) -> Result<Arc<Type>, Error> {
        self.prices.instance_type(self, name).await
    }

    /// Places the bid that the status of the slot says was begun, or finds it where it was placed before.
    pub async fn place(&self, node: &BidNode, slot: &BidSlot, again: bool) -> Result<u64, Error> {
        if again && let Some(bid) = self.find(slot).await? {
            return Ok(bid);
        }
        let status = slot.status.clone().unwrap_or_default();
        let markets =
            slot.spec.region.iter().map(|region| format!("{}/{region}", slot.spec.instance_type)).collect();
        let instance_type =
            if slot.spec.region.is_none() { slot.spec.instance_type.clone() } else { String::new() };
        let key = SlotKey::of(slot);
        let labels = self.labels([
            (LABEL_NAMESPACE, key.namespace.clone()),
            (LABEL_BIDNODE, node.name_any()),
            (LABEL_UID, node.uid().unwrap_or_default()),
            (LABEL_SLOT, key.name.clone()),
            (LABEL_SLOT_UID, key.uid.clone()),
        ]);
        let request = v1::PlaceBidRequest {
            client_key: self.key(slot, "bid"),
            markets,
            instance_type,
            ceiling_micros: status.ceiling_micros.unwrap_or_default(),
            max_nodes: 1,
            on_preemption: v1::place_bid_request::OnPreemption::Close.into(),
            labels,
            ..Default::default()
        };
        let ceiling_micros = request.ceiling_micros;
        let placed = self.heard(self.client.place_bid(request).await)?;
        self.bid_cache.placed(placed.bid, key, ceiling_micros);
        Ok(placed.bid)
    }

    /// The bid of a slot, if it has one: also one that was placed a moment ago.
    pub async fn find(&self, slot: &BidSlot) -> Result<Option<u64>, Error> {
        let request = v1::ListBidsRequest {
            labels: self.labels([(LABEL_SLOT_UID, slot.uid().unwrap_or_default())]),
            min_seq: self.seq().await?,
            ..Default::default()
        };
        let list = self.heard(self.client.all(request).await)?;
        let Some(bid) = list.bids.into_iter().next_back() else { return Ok(None) };
        if self.bid_cache.bid(bid.bid).is_none() {
            self.resolve(bid.bid).await?;
        }
        Ok(Some(bid.bid))
    }

    /// Asks about a bid that the mirror does not know: one that closed before the operator began, or that the engine has
    /// lost. Bids are numbered by their place in the journal: a journal that ends before it does not have it, and a
    /// read that waits for that place would never end.
    pub async fn resolve(&self, bid: u64) -> Result<(), Error> {
        if self.seq().await? < bid {
            self.bid_cache.unknown(bid);
            return Ok(());
        }
        let request = v1::GetBidRequest { bid, min_seq: bid };
        let found = match self.heard(self.client.get_bid(request).await) {
            Ok(found) => found.bid.unwrap_or_default(),
            Err(Error::Refused(refusal)) if refusal.code == Code::UnknownBid => {
                self.bid_cache.unknown(bid);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let request = v1::ListAllocationsRequest { bid, min_seq: bid, ..Default::default() };
        let allocations = self.heard(self.client.all(request).await)?;
        self.bid_cache.learn(found, allocations.allocations);
        Ok(())
    }

    /// The bids of this BidNode that search or hold something, with their slots.
    pub async fn leases_of(&self, node: &BidNode) -> Result<BTreeMap<u64, SlotKey>, Error> {
        let labels = self.labels([(LABEL_UID, node.uid().unwrap_or_default())]);
        let seq = self.seq().await?;
        let (open, held) = (self.open(labels.clone(), seq).await?, self.held(labels, seq).await?);
        let open = open.bids.iter().map(|bid| (bid.bid, SlotKey::of_labels(&bid.labels)));
        let held = held.allocations.iter();
        let held = held.filter_map(|held| Some((held.bid?, SlotKey::of_labels(&held.labels))));
        Ok(open.chain(held).collect())
    }

    /// Ends the search of a bid whose slot is gone, and what it holds.
    pub async fn end_lease(&self, bid: u64, slot_uid: &str) -> Result<(), Error> {
        self.release(format!("{}/{slot_uid}/gone/{bid}", self.cluster), bid).await
    }

    /// The last command that the engine has applied: lists may be behind it.
    async fn seq(&self) -> Result<u64, Error> {
        Ok(self.heard(self.client.first(v1::ListMarketsRequest::default(), 1).await)?.seq)
    }

    /// Bids with these labels that search, as of this place in the journal or later.
    async fn open(
        &self,
        labels: BTreeMap<String, String>,
        min_seq: u64,
    ) -> Result<v1::ListBidsResponse, Error> {
        let states = vec![v1::bid::State::Open.into()];
        let request = v1::ListBidsRequest { labels, states, min_seq, ..Default::default() };
        self.heard(self.client.all(request).await)
    }

    /// Allocations with these labels that are not over, as of this place in the journal or later.
    async fn held(
        &self,
        labels: BTreeMap<String, String>,
        min_seq: u64,
    ) -> Result<v1::ListAllocationsResponse, Error> {
        let states = vec![v1::allocation::State::Starting.into(), v1::allocation::State::Active.into()];
        let request = v1::ListAllocationsRequest { labels, states, min_seq, ..Default::default() };
        self.heard(self.client.all(request).await)
    }

    /// The labels of bids of this cluster.
    fn labels<const N: usize>(&self, more: [(&str, String); N]) -> BTreeMap<String, String> {
        let cluster = (LABEL_CLUSTER, self.cluster.clone());
        more.into_iter().chain([cluster]).map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Changes the ceiling of a slot's bid.
    pub async fn amend(&self, slot: &BidSlot, bid: u64, ceiling_micros: u64) -> Result<Amended, Error> {
        let known = self.bid_cache.bid(bid);
        let place = known.as_ref().map_or(0, |known| known.place);
        let request = v1::AmendBidRequest {
            // A refusal has its key for good: asked again later, the same change needs another.
            client_key: self
                .key(slot, &format!("amend/{place}/{ceiling_micros}/{}", clock::now().as_second())),
            bid,
            ceiling_micros: Some(ceiling_micros),
            max_nodes: None,
        };
        match self.heard(self.client.amend_bid(request).await) {
            Ok(amended) => {
                self.bid_cache.amended(bid, ceiling_micros, amended.seq);
                Ok(Amended::Done)
            }
            Err(Error::Refused(refusal)) if refusal.code == Code::Protected => {
                let allocation = known.and_then(|known| known.allocation).map(|held| held.allocation);
                let until_us = match allocation {
                    Some(allocation) => self.allocation(allocation).await?.protected_until_us,
                    None => 0,
                };
                Ok(Amended::Protected { until_us })
            }
            Err(Error::Refused(refusal)) if refusal.code == Code::BelowReserve => Ok(Amended::BelowReserve),
            Err(Error::Refused(refusal)) if refusal.code == Code::Closed => Ok(Amended::Closed),
            Err(error) => Err(error),
        }
    }

    /// Returns what the strategy says to a notice; `None` where it was taken back already.
    pub async fn at_notice(&self, spec: &BidNodeSpec, allocation: u64) -> Result<Option<AtNotice>, Error> {
        let held = self.allocation(allocation).await?;
        let Some(notice) = held.notice else {
            self.bid_cache.rescinded(allocation);
            return Ok(None);
        };
        let Some(markets) = self.markets(spec).await? else { return Ok(Some(AtNotice::LetGo)) };
        let strategy = Strategy::from(spec.bid_strategy);
        Ok(Some(strategy.at_notice(notice.price_to_stay_micros, micros(spec.max_bid), &markets.quote)))
    }

    async fn allocation(&self, allocation: u64) -> Result<v1::Allocation, Error> {
        let request = v1::GetAllocationRequest { allocation, min_seq: self.bid_cache.seq_of(allocation) };
        let found = self.heard(self.client.get_allocation(request).await)?.allocation.unwrap_or_default();
        self.bid_cache.priced(&found);
        Ok(found)
    }

    /// Returns what an allocation costs, in micro-dollars per node-hour.
    pub async fn price_micros(&self, allocation: u64) -> Result<u64, Error> {
        Ok(self.allocation(allocation).await?.price_micros)
    }

    /// Says that the node of a slot runs.
    pub async fn report_ready(&self, slot: &BidSlot, allocation: u64) -> Result<(), Error> {
        let request = v1::ReportReadyRequest { client_key: self.key(slot, "ready"), allocation };
        match self.heard(self.client.report_ready(request).await) {
            Ok(_) => {}
            // The provider was first, or the market was: the mirror hears of it.
            Err(Error::Refused(refusal)) if matches!(refusal.code, Code::AlreadyReady | Code::Ended) => {}
            Err(error) => return Err(error),
        }
        self.bid_cache.reported_ready(allocation);
        self.allocation(allocation).await.map(drop)
    }

    /// Ends the search of a slot's bid, and what it holds.
    pub async fn cancel(&self, slot: &BidSlot, bid: u64) -> Result<(), Error> {
        self.release(self.key(slot, "cancel"), bid).await
    }

    async fn release(&self, client_key: String, bid: u64) -> Result<(), Error> {
        let mode = v1::cancel_bid_request::Mode::Release.into();
        let request = v1::CancelBidRequest { client_key, bid, mode };
        match self.heard(self.client.cancel_bid(request).await) {
            Ok(_) => Ok(()),
            Err(Error::Refused(refusal)) if matches!(refusal.code, Code::Closed | Code::UnknownBid) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The key of a call: of this cluster, slot, attempt and purpose, so that a repeat is done at most once.
    fn key(&self, slot: &BidSlot, purpose: &str) -> String {
        let attempt = slot.status.as_ref().map_or(0, |status| status.attempt);
        format!("{}/{}/{attempt}/{purpose}", self.cluster, slot.uid().unwrap_or_default())
    }

    /// Remembers whether the engine answers.
    fn heard<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        match &answer {
            Ok(_) | Err(Error::Refused(_) | Error::Gone(_)) => self.bid_cache.set_fault(None),
            Err(error) => self.bid_cache.set_fault(Some(error.to_string())),
        }
        answer
    }
}
