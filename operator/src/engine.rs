//! Calls to the auction engine: the requests of each slot, with idempotency keys, and caches of what it answers.

mod bid_cache;
mod feed;
mod gang;
mod prices;

pub use bid_cache::{BidCache, CachedAllocation, CachedBid};
pub use feed::Feed;
pub use prices::InstanceType;

use crate::api::{
    BidNode, BidSlot, LABEL_BIDNODE, LABEL_CLUSTER, LABEL_NAMESPACE, LABEL_SLOT, LABEL_SLOT_UID, LABEL_UID,
    SlotKey,
};
use crate::clock;
use crate::plan::ceiling::Markets;
use crate::plan::scope::{self, Scope};
use bytes::Bytes;
use kube::ResourceExt as _;
use kubebid_client::{Client, Code, Error, v1};
use prices::Prices;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::warn;

/// A client of the engine. One operator is one tenant.
#[derive(Debug)]
pub struct Engine {
    client: Client,
    /// The UID of the cluster's `kube-system` namespace.
    cluster: String,
    bid_cache: BidCache,
    prices: Prices,
    node_config: Bytes,
    /// The identity of the journal, as the engine last named it.
    journal: watch::Sender<Option<String>>,
}

/// The outcome of an amendment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmendOutcome {
    /// The ceiling is changed.
    Done,
    /// The ceiling cannot be lowered yet: a node is protected, or the ceiling was raised under notice.
    Protected {
        /// The time from which it may be lowered, in microseconds of market time.
        until_us: u64,
    },
    /// The ceiling would be below the reserve of the unit that the bid holds.
    BelowReserve,
    /// The bid is closed: its ceiling may only be raised.
    Closed,
}

/// The outcome of the attempt to end a bid that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithdrawOutcome {
    /// The bid has ended without a node.
    Done,
    /// The bid has won a node, which it keeps.
    Won,
    /// The bid has a claim on a node that is under notice. It stays.
    Claims,
}

impl Engine {
    /// Creates a client that bids for a cluster, which is named by the UID of its `kube-system` namespace.
    pub fn new(client: Client, cluster: String) -> Self {
        let (bid_cache, prices) = (BidCache::default(), Prices::default());
        Engine {
            client,
            cluster,
            bid_cache,
            prices,
            node_config: Bytes::new(),
            journal: watch::Sender::default(),
        }
    }

    /// Sends this with each bid, for the providers of its nodes.
    pub fn with_node_config(self, node_config: Bytes) -> Self {
        Engine { node_config, ..self }
    }

    /// Returns the cache of the operator's bids.
    pub fn bid_cache(&self) -> &BidCache {
        &self.bid_cache
    }

    /// Returns the feed of the engine, which keeps the bid cache current while it is polled.
    pub fn feed(self: &Arc<Self>) -> Feed {
        Feed::new(Arc::clone(self))
    }

    /// Returns the markets of a scope, taken together; `None` if none is open.
    pub async fn markets(&self, scope: &Scope) -> Result<Option<Arc<Markets>>, Error> {
        self.prices.markets(self, scope).await
    }

    /// Returns the cost of the nodes of a BidNode so far, in micro-dollars.
    pub async fn cost(&self, node: &BidNode) -> Result<u64, Error> {
        let costs = self.prices.costs(self).await?;
        Ok(costs.get(&node.uid().unwrap_or_default()).copied().unwrap_or_default())
    }

    /// Returns an instance type; an empty one if the engine does not know it.
    pub async fn instance_type(&self, name: &str) -> Result<Arc<InstanceType>, Error> {
        self.prices.instance_type(self, name).await
    }

    /// Places the bid that the status of the slot says was begun. With `search_first` the engine is first searched for a bid
    /// that was placed before.
    pub async fn place(&self, node: &BidNode, slot: &BidSlot, search_first: bool) -> Result<u64, Error> {
        if search_first && let Some(bid) = self.find(slot).await? {
            return Ok(bid);
        }
        let status = slot.status.clone().unwrap_or_default();
        let mut markets = scope::bid_markets(&slot.spec, &status);
        // An instance type alone is not the name of a market.
        let instance_type = markets.pop_if(|only| !only.contains('/')).unwrap_or_default();
        let key = SlotKey::of(slot);
        let labels = self.labels([
            (LABEL_NAMESPACE, key.namespace.clone()),
            (LABEL_BIDNODE, node.name_any()),
            (LABEL_UID, node.uid().unwrap_or_default()),
            (LABEL_SLOT, key.name.clone()),
            (LABEL_SLOT_UID, key.uid.clone()),
        ]);
        // A node that a gang loses is looked for by its bid. In the place of another node there is another slot with its own bid.
        let on_preemption = match slot.spec.gang_nodes {
            Some(_) => v1::place_bid_request::OnPreemption::Requeue,
            None => v1::place_bid_request::OnPreemption::Close,
        };
        let request = v1::PlaceBidRequest {
            client_key: self.key(slot, "bid"),
            markets,
            instance_type,
            ceiling_micros: status.ceiling_micros.unwrap_or_default(),
            min_nodes: slot.spec.gang_nodes,
            max_nodes: slot.spec.gang_nodes.unwrap_or(1),
            on_preemption: on_preemption.into(),
            labels,
            node_config: self.node_config.to_vec(),
            ..Default::default()
        };
        let ceiling_micros = request.ceiling_micros;
        let placed = match self.answered(self.client.place_bid(request).await) {
            // It is placed already, when the operator had another node config.
            Err(Error::Refused(refusal)) if refusal.code == Code::KeyConflict => {
                return self.find(slot).await?.ok_or(Error::Refused(refusal));
            }
            placed => placed?,
        };
        self.bid_cache.placed(placed.bid, key, ceiling_micros);
        Ok(placed.bid)
    }

    /// Finds the bid of a slot at the engine, also one that was placed a moment ago.
    pub async fn find(&self, slot: &BidSlot) -> Result<Option<u64>, Error> {
        let request = v1::ListBidsRequest {
            labels: self.labels([(LABEL_SLOT_UID, slot.uid().unwrap_or_default())]),
            min_seq: self.seq().await?,
            ..Default::default()
        };
        let replaced = slot.status.as_ref().and_then(|status| status.replaced_bid).unwrap_or_default();
        let list = self.answered(self.client.all(request).await)?;
        let Some(bid) = list.bids.into_iter().rfind(|bid| bid.bid > replaced) else { return Ok(None) };
        if self.bid_cache.bid(bid.bid).is_none() {
            self.resolve(bid.bid, bid.bid).await?;
        }
        Ok(Some(bid.bid))
    }

    /// Reads a bid that the cache does not have: it closed before the operator started, or the engine has lost it. Bids are
    /// numbered by their place in the journal. A journal that ends before that place does not have the bid, and a read
    /// that waits for that place would never end. `allocation` is one of the bid, or the bid itself.
    pub async fn resolve(&self, bid: u64, allocation: u64) -> Result<(), Error> {
        let seq = self.seq().await?;
        if seq < bid {
            self.bid_cache.unknown(bid);
            return Ok(());
        }
        self.read(bid, allocation.min(seq)).await
    }

    /// Reads a bid and its allocations into the cache, as of this place in the journal or later.
    async fn read(&self, bid: u64, min_seq: u64) -> Result<(), Error> {
        let found = match self.answered(self.client.get_bid(v1::GetBidRequest { bid, min_seq }).await) {
            Ok(found) => found.bid.unwrap_or_default(),
            Err(Error::Refused(refusal)) if refusal.code == Code::UnknownBid => {
                self.bid_cache.unknown(bid);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let request = v1::ListAllocationsRequest { bid, min_seq, ..Default::default() };
        let allocations = self.answered(self.client.all(request).await)?;
        self.bid_cache.learn(found, allocations.allocations);
        Ok(())
    }

    /// Lists the bids of this BidNode that are open or hold a unit, with their slots.
    pub async fn bids_of(&self, node: &BidNode) -> Result<BTreeMap<u64, SlotKey>, Error> {
        let labels = self.labels([(LABEL_UID, node.uid().unwrap_or_default())]);
        let seq = self.seq().await?;
        let (open, held) = (self.open(labels.clone(), seq).await?, self.held(labels, seq).await?);
        let open = open.bids.iter().map(|bid| (bid.bid, SlotKey::of_labels(&bid.labels)));
        let held = held.allocations.iter();
        let held = held.filter_map(|held| Some((held.bid?, SlotKey::of_labels(&held.labels))));
        Ok(open.chain(held).collect())
    }

    /// Cancels a bid whose slot is gone, and releases its allocation.
    pub async fn end_bid(&self, bid: u64, slot_uid: &str) -> Result<(), Error> {
        self.release(format!("{}/{slot_uid}/gone/{bid}", self.cluster), bid).await
    }

    /// Returns a watch of the identity of the engine's journal.
    pub fn journals(&self) -> watch::Receiver<Option<String>> {
        self.journal.subscribe()
    }

    /// Returns the last command that the engine has applied. Lists may lag. Records the journal that it is in.
    async fn seq(&self) -> Result<u64, Error> {
        let listed = self.answered(self.client.first(v1::ListMarketsRequest::default(), 1).await)?;
        self.journal.send_if_modified(|journal| {
            let is_new = journal.as_ref() != Some(&listed.journal);
            if is_new {
                *journal = Some(listed.journal);
            }
            is_new
        });
        Ok(listed.seq)
    }

    /// Lists the open bids with these labels, as of this place in the journal or later.
    async fn open(
        &self,
        labels: BTreeMap<String, String>,
        min_seq: u64,
    ) -> Result<v1::ListBidsResponse, Error> {
        let states = vec![v1::bid::State::Open.into()];
        let request = v1::ListBidsRequest { labels, states, min_seq, ..Default::default() };
        self.answered(self.client.all(request).await)
    }

    /// Lists the allocations with these labels that have not ended, as of this place in the journal or later.
    async fn held(
        &self,
        labels: BTreeMap<String, String>,
        min_seq: u64,
    ) -> Result<v1::ListAllocationsResponse, Error> {
        let states = vec![v1::allocation::State::Starting.into(), v1::allocation::State::Active.into()];
        let request = v1::ListAllocationsRequest { labels, states, min_seq, ..Default::default() };
        self.answered(self.client.all(request).await)
    }

    /// Returns these labels together with that of the cluster.
    fn labels<const N: usize>(&self, more: [(&str, String); N]) -> BTreeMap<String, String> {
        let cluster = (LABEL_CLUSTER, self.cluster.clone());
        more.into_iter().chain([cluster]).map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Changes the ceiling of a slot's bid.
    pub async fn amend(&self, slot: &BidSlot, bid: u64, ceiling_micros: u64) -> Result<AmendOutcome, Error> {
        let known = self.bid_cache.bid(bid);
        let place = known.as_ref().map_or(0, |known| known.place);
        let request = v1::AmendBidRequest {
            // A refused key stays refused: the same change at a later time needs another key.
            client_key: self
                .key(slot, &format!("amend/{place}/{ceiling_micros}/{}", clock::now().as_second())),
            bid,
            ceiling_micros: Some(ceiling_micros),
            max_nodes: None,
        };
        match self.answered(self.client.amend_bid(request).await) {
            Ok(amended) => {
                self.bid_cache.amended(bid, ceiling_micros, amended.seq);
                Ok(AmendOutcome::Done)
            }
            Err(Error::Refused(refusal)) if refusal.code == Code::Protected => {
                let mut protected_until_us = 0;
                for held in known.iter().flat_map(CachedBid::held) {
                    let held = self.allocation(held.allocation).await?;
                    protected_until_us = protected_until_us.max(held.protected_until_us);
                }
                let found =
                    self.answered(self.client.get_bid(v1::GetBidRequest { bid, min_seq: 0 }).await)?;
                let locked_until_us = found.bid.and_then(|bid| bid.ceiling_locked_until_us).unwrap_or(0);
                Ok(AmendOutcome::Protected { until_us: protected_until_us.max(locked_until_us) })
            }
            Err(Error::Refused(refusal)) if refusal.code == Code::BelowReserve => {
                Ok(AmendOutcome::BelowReserve)
            }
            Err(Error::Refused(refusal)) if refusal.code == Code::Closed => Ok(AmendOutcome::Closed),
            Err(error) => Err(error),
        }
    }

    /// Returns the lowest ceiling that keeps an allocation under notice, in micro-dollars, or `None` if there is none. The
    /// outer `None` says that the notice was rescinded.
    pub async fn price_to_stay(&self, allocation: u64) -> Result<Option<Option<u64>>, Error> {
        let held = self.allocation(allocation).await?;
        let Some(notice) = held.notice else {
            self.bid_cache.rescinded(allocation);
            return Ok(None);
        };
        Ok(Some(notice.price_to_stay_micros))
    }

    /// Reads an allocation, as of the last event of it.
    async fn allocation(&self, allocation: u64) -> Result<v1::Allocation, Error> {
        let request = v1::GetAllocationRequest { allocation, min_seq: self.bid_cache.seq_of(allocation) };
        let found = self.answered(self.client.get_allocation(request).await)?.allocation.unwrap_or_default();
        self.bid_cache.priced(&found);
        Ok(found)
    }

    /// Returns the price in force of an allocation, in micro-dollars per node-hour.
    pub async fn price_micros(&self, allocation: u64) -> Result<u64, Error> {
        Ok(self.allocation(allocation).await?.price_micros)
    }

    /// Reports the way to reach the node of a slot that was reported ready without it.
    pub async fn report_access(
        &self,
        slot: &BidSlot,
        allocation: u64,
        access: v1::NodeAccess,
    ) -> Result<(), Error> {
        let client_key = self.key(slot, "access");
        let request = v1::ReportReadyRequest { client_key, allocation, access: Some(access) };
        match self.answered(self.client.report_ready(request).await) {
            Ok(_) => Ok(()),
            // It was reported under this key, with other content. Or the allocation has ended: an event says so.
            Err(Error::Refused(refusal)) if matches!(refusal.code, Code::Ended | Code::KeyConflict) => Ok(()),
            Err(Error::Refused(refusal)) if refusal.code == Code::BadField => {
                warn!(allocation, %refusal, "the access data of a machine is left out");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Reports the node of a slot as ready, with the way to reach it.
    pub async fn report_ready(
        &self,
        slot: &BidSlot,
        allocation: u64,
        access: Option<v1::NodeAccess>,
    ) -> Result<(), Error> {
        let has_access = access.is_some();
        let request = v1::ReportReadyRequest { client_key: self.key(slot, "ready"), allocation, access };
        match self.answered(self.client.report_ready(request).await) {
            Ok(_) => {}
            // The provider has reported it already, or the allocation has ended: an event says so. Or it was
            // reported under this key with other access data.
            Err(Error::Refused(refusal))
                if matches!(refusal.code, Code::AlreadyReady | Code::Ended | Code::KeyConflict) => {}
            // What does not pass the checks of access data must not keep the node from being ready.
            Err(Error::Refused(refusal)) if refusal.code == Code::BadField && has_access => {
                warn!(allocation, %refusal, "the access data of a machine is left out");
                return Box::pin(self.report_ready(slot, allocation, None)).await;
            }
            Err(error) => return Err(error),
        }
        self.bid_cache.reported_ready(allocation);
        self.allocation(allocation).await.map(drop)
    }

    /// Cancels a slot's bid if it only waits, and keeps what it wins meanwhile. The cache has the node of a bid that has won.
    pub async fn withdraw(&self, slot: &BidSlot, bid: u64) -> Result<WithdrawOutcome, Error> {
        let request = v1::GetBidRequest { bid, min_seq: bid };
        let answer = self.answered(self.client.get_bid(request).await)?;
        let found = answer.bid.unwrap_or_default();
        if found.state() == v1::bid::State::Open && found.unmet == 0 {
            if found.held == 0 {
                return Ok(WithdrawOutcome::Claims);
            }
            self.read(bid, answer.seq).await?;
            return Ok(WithdrawOutcome::Won);
        }
        let mode = v1::cancel_bid_request::Mode::Keep.into();
        let request = v1::CancelBidRequest { client_key: self.key(slot, "withdraw"), bid, mode };
        let seq = match self.answered(self.client.cancel_bid(request).await) {
            Ok(cancelled) => cancelled.seq,
            Err(Error::Refused(refusal)) if refusal.code == Code::Closed => self.seq().await?,
            Err(error) => return Err(error),
        };
        self.read(bid, seq).await?;
        if self.bid_cache.bid(bid).is_some_and(|known| !known.allocations.is_empty()) {
            return Ok(WithdrawOutcome::Won);
        }
        self.bid_cache.forget(bid);
        Ok(WithdrawOutcome::Done)
    }

    /// Cancels a slot's bid, and releases its allocation.
    pub async fn cancel(&self, slot: &BidSlot, bid: u64) -> Result<(), Error> {
        self.release(self.key(slot, "cancel"), bid).await
    }

    /// Cancels a bid, and releases its allocation. A bid that is closed or unknown is cancelled.
    async fn release(&self, client_key: String, bid: u64) -> Result<(), Error> {
        let mode = v1::cancel_bid_request::Mode::Release.into();
        let request = v1::CancelBidRequest { client_key, bid, mode };
        match self.answered(self.client.cancel_bid(request).await) {
            Ok(_) => Ok(()),
            Err(Error::Refused(refusal)) if matches!(refusal.code, Code::Closed | Code::UnknownBid) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the idempotency key of a call, from the cluster, the slot, the attempt and the purpose: a repeat has no further
    /// effect.
    fn key(&self, slot: &BidSlot, purpose: &str) -> String {
        let attempt = slot.status.as_ref().map_or(0, |status| status.attempt);
        format!("{}/{}/{attempt}/{purpose}", self.cluster, slot.uid().unwrap_or_default())
    }

    /// Records whether the engine answers.
    fn answered<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        match &answer {
            Ok(_) | Err(Error::Refused(_) | Error::Gone(_)) => self.bid_cache.set_fault(None),
            Err(error) => self.bid_cache.set_fault(Some(error.to_string())),
        }
        answer
    }
}
