//! Commands of tenants: place a bid (R12–R14), amend it (R2), cancel it (R14).

use crate::command::{CancelMode, OnPreemption, PlaceBid, TimeInForce};
use crate::event::{Bidder, CloseReason, DropCause, EndReason, Fact, Scope};
use crate::exchange::Exchange;
use crate::state::bids::BidRecord;
use crate::state::timers::Due;
use crate::state::{Bid, BidTerms, Expiry};
use crate::types::money::Price;
use crate::types::reject::Reject;
use crate::types::units::{AllocationId, BidId, MarketId, Micros};

impl Exchange {
    pub(crate) fn place_bid(&mut self, bid: &PlaceBid) -> Result<(), Reject> {
        let scope = self.scope_of(bid)?;
        if let Scope::Markets(markets) = &scope
            && markets.iter().any(|market| !self.is_open(*market))
        {
            return Err(Reject::MarketClosed);
        }
        if bid.min_nodes == 0 || bid.min_nodes > bid.max_nodes {
            return Err(Reject::BadNodes);
        }
        // A bid for any region passes over the markets that are closed (R18).
        let markets = self.markets_in(&scope).iter().copied();
        let markets = markets.filter(|market| self.is_open(*market));
        self.check_nodes(markets.clone(), bid.max_nodes)?;
        self.check_ceiling(markets, bid.ceiling)?;
        match (&bid.time_in_force, bid.expire_at) {
            (TimeInForce::Gtc | TimeInForce::Ioc, None) => {}
            (TimeInForce::Gtt, Some(at)) if at > self.now => {}
            (TimeInForce::Gtt, Some(_)) => return Err(Reject::Expired),
            (TimeInForce::Gtt, None)
            | (TimeInForce::Gtc | TimeInForce::Ioc, Some(_))
            | (TimeInForce::Unknown(_), _) => {
                return Err(Reject::BadTif);
            }
        }
        let closes = match bid.on_preemption {
            OnPreemption::Requeue => false,
            OnPreemption::Close => true,
            OnPreemption::Unknown(_) => return Err(Reject::BadOnPreemption),
        };

        let id = BidId(self.seq.0);
        let bidder = Bidder { bid: id, tenant: self.caller };
        let &PlaceBid { ceiling, min_nodes, max_nodes, expire_at, .. } = bid;
        let known = self.scopes.keep(&scope);
        self.emit(Fact::BidPlaced { bidder, scope, ceiling, min_nodes, max_nodes });
        let immediate = bid.time_in_force == TimeInForce::Ioc;
        let terms = BidTerms {
            tenant: bidder.tenant,
            scope: known,
            ceiling,
            seq: self.seq,
            min_nodes,
            max_nodes,
            expiry: Expiry::at(expire_at),
            closes,
        };
        let mut placed = Bid::new(terms, true);
        placed.is_funded = self.funds_of(bidder.tenant).is_some();
        self.bids.insert(id, placed);
        let account = &mut self.accounts[bidder.tenant.0 as usize];
        account.bids.push(id);
        if let Some(at) = expire_at {
            self.timers.set(at, Due::Expiry(id));
        }
        if immediate {
            self.immediate = Some(id);
        }
        self.reindex_bid(id);
        Ok(())
    }

    fn scope_of(&self, bid: &PlaceBid) -> Result<Scope, Reject> {
        if let (Some([name]), None) = (bid.markets.as_deref(), &bid.instance_type) {
            return Ok(Scope::Markets(self.market_named(name)?.into()));
        }
        let named = bid.markets.iter().flatten().map(|name| self.market_named(name));
        let markets = named.collect::<Result<Vec<MarketId>, Reject>>()?;
        match (&bid.markets, &bid.instance_type) {
            (Some(_), None) if all_different(&markets) => Ok(Scope::Markets(markets.as_slice().into())),
            (None, Some(kind)) => Ok(Scope::InstanceType(kind.clone())),
            (Some(_), None | Some(_)) | (None, None) => Err(Reject::BadMarkets),
        }
    }

    fn markets_in<'a>(&'a self, scope: &'a Scope) -> &'a [MarketId] {
        match scope {
            Scope::Markets(markets) => markets,
            Scope::InstanceType(_) => self.scopes.find(scope).map_or(&[], |known| self.scopes.markets(known)),
        }
    }

    fn check_ceiling(
        &self,
        markets: impl Iterator<Item = MarketId> + Clone,
        ceiling: Price,
    ) -> Result<(), Reject> {
        let rules = || markets.clone().map(|market| &self.market(market).rules);
        if ceiling == Price::ZERO || rules().any(|rules| !ceiling.is_multiple_of(rules.tick)) {
            return Err(Reject::NotATick);
        }
        if rules().any(|rules| ceiling.0 > rules.ceiling_max) {
            return Err(Reject::CeilingTooHigh);
        }
        Ok(())
    }

    fn check_nodes(&self, mut markets: impl Iterator<Item = MarketId>, nodes: u32) -> Result<(), Reject> {
        if markets.any(|market| u64::from(nodes) > self.market(market).rules.bid_nodes_max) {
            return Err(Reject::TooManyNodes);
        }
        Ok(())
    }

    fn bid_of_caller(&self, id: BidId) -> Result<BidRecord<'_>, Reject> {
        let record = self.bids.record(id).ok_or(Reject::UnknownBid)?;
        if record.terms().tenant != self.caller {
            return Err(Reject::NotYours);
        }
        Ok(record)
    }

    pub(crate) fn amend_bid(
        &mut self,
        id: BidId,
        ceiling: Option<Price>,
        max_nodes: Option<u32>,
    ) -> Result<(), Reject> {
        let bid = self.bid_of_caller(id)?.active().ok_or(Reject::Closed)?;
        let to_stay = max_nodes.is_none_or(|nodes| nodes == bid.terms.max_nodes)
            && ceiling.is_some_and(|ceiling| ceiling > bid.terms.ceiling)
            && bid.holds_nodes();
        if !bid.searching && !to_stay {
            return Err(Reject::Closed);
        }
        if let Some(ceiling) = ceiling {
            self.check_ceiling(self.admitting_markets(id), ceiling)?;
        }
        if let Some(nodes) = max_nodes {
            self.check_nodes(self.admitting_markets(id), nodes)?;
            if nodes < bid.terms.max_nodes && nodes < bid.live.len().max(bid.terms.min_nodes) {
                return Err(Reject::BelowHeld);
            }
        }
        let (old_ceiling, old_nodes) = (bid.terms.ceiling, bid.terms.max_nodes);
        let (ceiling, nodes) = (ceiling.unwrap_or(old_ceiling), max_nodes.unwrap_or(old_nodes));
        if ceiling < old_ceiling {
            self.check_lower_ceiling(bid, ceiling)?;
        }
        if bid.is_funded && ceiling > old_ceiling && !self.covers_raise(id, ceiling) {
            return Err(Reject::NoFunds);
        }

        let locked_until = self.ceiling_lock(bid, old_ceiling, ceiling);
        let seq = self.seq;
        let bidder = self.bidder(id);
        let gets_another_rank = ceiling != old_ceiling || nodes > old_nodes;
        if gets_another_rank {
            self.unindex_bid(id);
        }
        let bid = self.bid_mut(id);
        if gets_another_rank {
            bid.terms.seq = seq;
        }
        bid.ceiling_locked_until = locked_until;
        (bid.terms.ceiling, bid.terms.max_nodes) = (ceiling, nodes);
        let bid_seq = bid.terms.seq;
        if bid.is_funded {
            self.raise_reservations(id);
        }
        self.last_settled.note_ceiling(id, old_ceiling);
        self.emit(Fact::BidAmended { bidder, ceiling, max_nodes: nodes, bid_seq });
        if nodes != old_nodes {
            self.forget_returns(id);
        }
        self.reindex_bid_and_nodes(id);
        if ceiling < old_ceiling {
            self.drop_unaffordable_claims(id);
        }
        self.shrink_claims(id);
        if ceiling > old_ceiling {
            self.drop_outbid_claims(id);
        }
        Ok(())
    }

    /// Refuses to lower a ceiling while a node is protected, soon after a raise under notice, or below the
    /// reserve of a held node (R2).
    fn check_lower_ceiling(&self, bid: &Bid, ceiling: Price) -> Result<(), Reject> {
        let live = || bid.live.iter().map(|id| self.allocation(id));
        if live().any(|allocation| self.is_protected(allocation)) || self.now < bid.ceiling_locked_until {
            return Err(Reject::Protected);
        }
        let frozen = bid.notices.iter().map(|id| self.allocation(id).reserve);
        let mut reserves = live().map(|allocation| self.offer(allocation.unit).reserve).chain(frozen);
        if reserves.any(|reserve| reserve > ceiling) {
            return Err(Reject::BelowReserve);
        }
        Ok(())
    }

    /// Returns the time until which the ceiling of a bid may not be lowered, after an amendment. A raise under notice
    /// locks it for the longest `min_runtime` of the markets of the nodes under notice (R2).
    fn ceiling_lock(&self, bid: &Bid, old_ceiling: Price, ceiling: Price) -> Micros {
        let market_of = |id| self.market(self.allocation(id).unit.market);
        let locks = bid.notices.iter().filter(|_| ceiling > old_ceiling);
        let locks = locks.map(|id| self.now.after(market_of(id).rules.min_runtime));
        locks.fold(bid.ceiling_locked_until, Micros::max)
    }

    /// Cancels what rescissions would give back to `max_nodes`: a tenant who amends it says how many
    /// nodes the bid wants (R7).
    fn forget_returns(&mut self, id: BidId) {
        for node in self.bid(id).notices.clone().iter() {
            let notice = self.allocation_mut(node).notice.as_mut().expect("under notice");
            notice.returns = false;
        }
    }

    /// Drops the claims that the bid could not have made with its lowered ceiling (R2).
    fn drop_unaffordable_claims(&mut self, id: BidId) {
        for node in self.bid(id).claims.clone().iter() {
            let ceiling = self.bid(id).terms.ceiling;
            let reserve = self.offer(self.allocation(node).unit).reserve;
            let outbid = self.is_wanted_back(node) && ceiling < self.needed_against(node);
            if reserve > ceiling || outbid {
                self.drop_claim(node, DropCause::Lowered);
            }
        }
    }

    /// Drops claims until `max_nodes` is kept: the claim with the dearest victim first, then the
    /// oldest (R2).
    fn shrink_claims(&mut self, id: BidId) {
        loop {
            let bid = self.bid(id);
            if bid.live.len() + bid.claims.len() <= bid.terms.max_nodes {
                return;
            }
            let victim = self.dearest_victim(id, None).expect("claims are what is too many");
            self.drop_claim(victim, DropCause::Shrunk);
        }
    }

    /// Drops the claims on the bid's own nodes that its raised ceiling would not have allowed (R6).
    fn drop_outbid_claims(&mut self, id: BidId) {
        for node in self.bid(id).notices.clone().iter() {
            let Some(claim) = self.allocation(node).claim() else { continue };
            if self.is_wanted_back(node) && self.bid(claim.by.bid).terms.ceiling < self.needed_against(node) {
                self.drop_claim(node, DropCause::HolderRaised);
            }
        }
    }

    pub(crate) fn cancel_bid(&mut self, id: BidId, mode: &CancelMode) -> Result<(), Reject> {
        let record = self.bid_of_caller(id)?;
        let release = match mode {
            CancelMode::Keep => false,
            CancelMode::Release => true,
            CancelMode::Regroup => return self.regroup_bid(id),
            CancelMode::Unknown(_) => return Err(Reject::BadMode),
        };
        let bid = record.active().ok_or(Reject::Closed)?;
        let has_any = bid.holds_nodes() || !bid.claims.is_empty();
        let releases_any = release && has_any;
        if !bid.searching && !releases_any {
            return Err(Reject::Closed);
        }

        if bid.searching {
            self.close(id, CloseReason::Cancelled);
        }
        self.give_up_claims(id, DropCause::Cancelled);
        if release {
            self.end_all_nodes(id, EndReason::Released);
        }
        Ok(())
    }

    /// Ends what a gang holds. Its search goes on, so that it waits for its minimum again (R14).
    fn regroup_bid(&mut self, id: BidId) -> Result<(), Reject> {
        let bid = self.bid_of_caller(id)?.active().filter(|bid| bid.searching).ok_or(Reject::Closed)?;
        if bid.least() == 1 {
            return Err(Reject::NotAGang);
        }

        self.give_up_claims(id, DropCause::Regrouped);
        self.end_all_nodes(id, EndReason::Regrouped);
        Ok(())
    }

    /// Ends the nodes of a bid, live and under notice, by number.
    fn end_all_nodes(&mut self, id: BidId, reason: EndReason) {
        let bid = self.bid(id);
        let mut nodes: Vec<AllocationId> = bid.live.iter().chain(bid.notices.iter()).collect();
        nodes.sort_unstable();
        for node in nodes {
            self.end(node, reason);
        }
    }

    pub(crate) fn expire(&mut self, id: BidId) {
        self.close(id, CloseReason::Expired);
        self.give_up_claims(id, DropCause::Expired);
    }

    fn give_up_claims(&mut self, id: BidId, cause: DropCause) {
        for node in self.bid(id).claims.clone().iter() {
            self.drop_claim(node, cause);
        }
    }
}

/// Returns true if there is at least one market, and none twice.
fn all_different(markets: &[MarketId]) -> bool {
    let mut sorted = markets.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    !markets.is_empty() && sorted.len() == markets.len()
}
