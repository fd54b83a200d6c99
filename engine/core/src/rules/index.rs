//! Keeps the books in step with the state. Each function computes where something belongs, compares that
//! with its place in the book, and moves it. Call the function after every change of what it reads.

use crate::book::{BookPlace, Demand, Handle, Live, Queued};
use crate::collections::dense_map::DenseMap;
use crate::exchange::Exchange;
use crate::state::{Allocation, Bid};
use crate::types::money::Price;
use crate::types::units::{AccountId, AllocationId, BidId, MarketId};
use std::cmp::Reverse;

impl Exchange {
    /// Reindexes an allocation after a change of its notice, protection or reserve, or of its bid.
    pub(crate) fn reindex_allocation(&mut self, id: AllocationId) {
        let place = self.place_of(id);
        if place.is_notice_of_staying_unit() && !self.funded.is_empty() {
            self.note_short_of(id);
        }
        self.move_to(id, Some(place));
    }

    /// Notes the bid of an unfunded node, if it has to give up a claim for the node to come back.
    fn note_short_of(&mut self, id: AllocationId) {
        let allocation = self.allocation(id);
        let (bid_id, bid) = (allocation.bid, self.bid(allocation.bid));
        if bid.room() == 0 && !bid.claims.is_empty() && self.is_unfunded(id) {
            self.note_short(bid_id);
        }
    }

    /// Takes an allocation that ends out of the book.
    pub(crate) fn unindex_allocation(&mut self, id: AllocationId) {
        self.move_to(id, None);
    }

    fn move_to(&mut self, id: AllocationId, place: Option<BookPlace>) {
        let allocation = self.allocation_mut(id);
        let market = allocation.unit.market;
        let before = std::mem::replace(&mut allocation.place, place);
        if before == place {
            return;
        }
        let (handle, unit) = (allocation.handle, allocation.unit);
        self.allocation_mut(id).handle = self.market_mut(market).book.move_to(id, before, place, handle);
        let counted = before.is_some_and(BookPlace::is_notice_of_staying_unit);
        let counts = place.is_some_and(BookPlace::is_notice_of_staying_unit);
        if counted != counts {
            let offer = self.offer_mut(unit);
            offer.notices = offer.notices + u64::from(counts) - u64::from(counted);
        }
        if let Some(BookPlace::Orphan { ceiling, .. }) = before {
            self.orphans.remove((ceiling, Reverse(id)));
        }
        if let Some(BookPlace::Orphan { ceiling, .. }) = place {
            self.orphans.insert((ceiling, Reverse(id)));
        }
        self.dirty.insert(market);
    }

    pub(super) fn place_of(&self, id: AllocationId) -> BookPlace {
        let allocation = self.allocation(id);
        let bid = self.bid(allocation.bid);
        let Some(notice) = allocation.notice else {
            let protected = self.is_protected(allocation).then_some(allocation.protected_until);
            return BookPlace::Live(Live {
                ceiling: bid.terms.ceiling,
                protected,
                reserve: allocation.reserve,
            });
        };
        let offer = self.offer(allocation.unit);
        if let Some(claim) = notice.claim {
            let ceiling = self.bid(claim.by.bid).terms.ceiling;
            return BookPlace::Claimed { ceiling, number: claim.number, reserve: offer.reserve };
        }
        if offer.units[allocation.unit.number].leaving {
            BookPlace::Leaving
        } else if self.is_wanted_back(id) {
            BookPlace::Orphan { ceiling: bid.terms.ceiling, returns: notice.returns }
        } else {
            BookPlace::Standing { reserve: offer.reserve, deadline: notice.deadline }
        }
    }

    /// Returns true if the holder of a node under notice would keep it, if no bid claimed it (R6).
    pub(crate) fn is_wanted_back(&self, id: AllocationId) -> bool {
        let allocation = self.allocation(id);
        let (Some(notice), bid) = (allocation.notice, self.bid(allocation.bid)) else { return false };
        let offer = self.offer(allocation.unit);
        let stays = !offer.units[allocation.unit.number].leaving;
        // There is room under `max_nodes`, or a claim that the bid can give up for the node.
        let room = notice.returns || bid.live.len() < bid.terms.max_nodes;
        stays && offer.reserve <= bid.terms.ceiling && room && (!bid.is_funded || self.covers_return(id))
    }

    /// Reindexes a bid after a change of what it wants or has. That concerns its place in the queues,
    /// and whether it wants its nodes under notice back.
    pub(crate) fn reindex_bid(&mut self, id: BidId) {
        let bid = self.bids.get_mut(id).expect("an active bid");
        self.accounts[bid.terms.tenant.0 as usize].open.count(bid);
        let (queued, unmet, is_funded) = (bid.queue(), bid.unmet(), bid.is_funded);
        if bid.queued != queued {
            self.requeue(id, queued);
        } else if queued.is_some() {
            if bid.queued_nodes != unmet {
                self.count_unmet(id, unmet);
            }
            self.count_losing(id);
            if is_funded {
                self.update_weight(id);
            }
        }
        let bid = self.bid(id);
        let (has_ended, notices) = (bid.has_ended(), bid.notices.clone());
        if has_ended {
            self.ending.push(id);
        }
        for notice in notices.iter() {
            self.reindex_allocation(notice);
        }
        self.reindex_rescue(id);
    }

    /// Reindexes the nodes of a bid that are under notice.
    pub(super) fn reindex_notices(&mut self, id: BidId) {
        for notice in self.bid(id).notices.clone().iter() {
            self.reindex_allocation(notice);
        }
    }

    /// Returns the weight with which a bid of a funded account waits, if it does.
    fn weight_of_queued(&self, id: BidId, queued: Option<Queued>) -> Option<u128> {
        let funds = self.funds_of(self.bid(id).terms.tenant)?;
        queued.map(|queued| self.weight(funds, id, queued.nodes_at_once()))
    }

    /// Updates the books after a change of `c` of a bid, by which its account pays for it (R19).
    pub(super) fn update_weight(&mut self, id: BidId) {
        let bid = self.bid(id);
        let (Some(queued), Some(funds)) = (bid.queued, self.funds_of(bid.terms.tenant)) else { return };
        let weight = self.weight(funds, id, queued.nodes_at_once());
        for at in 0..self.markets_of(id).len() {
            let (market, tenant) = (self.markets_of(id)[at], self.bid(id).terms.tenant);
            let funds = self.accounts[tenant.0 as usize].funds.as_deref_mut().expect("just seen");
            if funds.weight(market, id).is_some_and(|before| before != weight) {
                funds.set_waiting(market, id, Some(weight), 0);
                self.reindex_taking_part(id, market);
            }
        }
    }

    /// Puts a bid that waits in a market into its book or takes it out, after a change of whether it takes part (R19).
    pub(super) fn reindex_taking_part(&mut self, id: BidId, market: MarketId) {
        let bid = self.bid(id);
        let (tenant, rank, unmet, losing) =
            (bid.terms.tenant, bid.rank(), bid.queued_nodes, bid.queued_losing);
        let takes_part = self.funds_of(tenant).is_some_and(|funds| funds.takes_part(market, id));
        let Some(queued) = bid.queued else { return };
        let (demand, handle) = self.demand_of(id, market);
        let has_changed = match (demand.has(queued, rank, *handle), takes_part) {
            (false, true) => demand.insert(id, tenant, queued, unmet, losing, rank, handle),
            (true, false) => demand.remove(tenant, queued, rank, handle),
            (true, true) | (false, false) => false,
        };
        if has_changed {
            self.dirty.insert(market);
        }
    }

    /// Removes a bid from the books before a change of its rank. [`Exchange::reindex_bid`] brings it back.
    pub(crate) fn unindex_bid(&mut self, id: BidId) {
        self.requeue(id, None);
        if std::mem::take(&mut self.bid_mut(id).is_rescuable) {
            for at in 0..self.markets_of(id).len() {
                let (market, rank) = (self.markets_of(id)[at], self.bid(id).rank());
                self.market_mut(market).book.rescues.set(id, rank, None);
            }
        }
    }

    pub(super) fn requeue(&mut self, id: BidId, queued: Option<Queued>) {
        let weight = if self.funded.is_empty() { None } else { self.weight_of_queued(id, queued) };
        let Exchange { bids, markets, scopes, dirty, accounts, allocations, renewal, .. } = self;
        let bid = bids.get_mut(id).expect("an active bid");
        let losing = bid.is_losing(allocations);
        let before = std::mem::replace(&mut bid.queued, queued);
        let (tenant, rank, unmet) = (bid.terms.tenant, bid.rank(), bid.unmet());
        (bid.queued_nodes, bid.queued_losing) = (unmet, losing);
        let mut funds = if bid.is_funded { accounts[tenant.0 as usize].funds.as_deref_mut() } else { None };
        for (at, id_of_market) in scopes.markets(bid.terms.scope).iter().enumerate() {
            let market = &mut markets[id_of_market.0 as usize];
            let mut queued = queued.filter(|_| market.serves(id, tenant));
            if let Some(funds) = &mut funds {
                let weight = weight.filter(|_| queued.is_some());
                let takes_part = funds.wait_in(*id_of_market, id, weight, &market.rules, *renewal);
                queued = queued.filter(|_| takes_part);
            }
            let (demand, handle) = (&mut market.book.demand, bid.handle(at));
            let removed = before.is_some_and(|before| demand.remove(tenant, before, rank, handle));
            let inserted =
                queued.is_some_and(|queued| demand.insert(id, tenant, queued, unmet, losing, rank, handle));
            if removed || inserted {
                dirty.insert(*id_of_market);
            }
        }
    }

    /// Sets the unmet demand of a bid in the books of its markets. The place of the bid stays.
    fn count_unmet(&mut self, id: BidId, unmet: u32) {
        let Exchange { bids, markets, scopes, .. } = self;
        let bid = bids.get_mut(id).expect("an active bid");
        bid.queued_nodes = unmet;
        let (Some(queued), rank) = (bid.queued, bid.rank()) else { return };
        for (at, market) in scopes.markets(bid.terms.scope).iter().enumerate() {
            markets[market.0 as usize].book.demand.set_nodes(queued, unmet, rank, *bid.handle(at));
        }
    }

    /// Counts a bid among the losing bids of its markets, or no longer. The place of the bid stays.
    fn count_losing(&mut self, id: BidId) {
        let Exchange { bids, markets, scopes, dirty, allocations, .. } = self;
        let bid = bids.get_mut(id).expect("an active bid");
        let losing = bid.is_losing(allocations);
        if std::mem::replace(&mut bid.queued_losing, losing) == losing {
            return;
        }
        let (tenant, rank) = (bid.terms.tenant, bid.rank());
        for (at, market) in scopes.markets(bid.terms.scope).iter().enumerate() {
            let demand = &mut markets[market.0 as usize].book.demand;
            if demand.set_losing(tenant, losing, rank, *bid.handle(at)) {
                dirty.insert(*market);
            }
        }
    }

    /// Reindexes a bid after a change of its ceiling, with its nodes and claims, and with the claimants of its
    /// nodes.
    pub(crate) fn reindex_bid_and_nodes(&mut self, id: BidId) {
        for node in self.bid(id).live.clone().iter() {
            self.reindex_allocation(node);
        }
        for node in self.bid(id).claims.clone().iter() {
            self.reindex_allocation(node);
        }
        for node in self.bid(id).notices.clone().iter() {
            if let Some(claim) = self.allocation(node).claim() {
                self.reindex_rescue(claim.by.bid);
            }
        }
        self.reindex_bid(id);
    }

    /// Finds the free unit that a bid would take instead of a claim (R6), after a change of its claims, of their
    /// victims' ceilings, or of the reserves of their units. If no unit is free, this can wait.
    pub(crate) fn reindex_rescue(&mut self, id: BidId) {
        let bid = self.bid(id);
        if bid.rescue_is_stale || bid.claims.is_empty() && !bid.is_rescuable {
            return;
        }
        self.bid_mut(id).rescue_is_stale = true;
        self.stale_rescues.push(id);
        if self.markets_of(id).iter().any(|market| self.market(*market).book.free.count > 0) {
            self.refresh_rescues();
        }
    }

    /// Updates the stale rescues. Call it before you look for a claimant that a free unit would rescue.
    pub(crate) fn refresh_rescues(&mut self) {
        while let Some(id) = self.stale_rescues.pop() {
            if let Some(bid) = self.bids.get_mut(id) {
                bid.rescue_is_stale = false;
                self.refresh_rescue(id);
            }
        }
    }

    pub(crate) fn refresh_rescue(&mut self, id: BidId) {
        let mut is_rescuable = false;
        for at in 0..self.markets_of(id).len() {
            let market = self.markets_of(id)[at];
            let accepts = self.accepts_instead(id, market);
            is_rescuable |= accepts.is_some();
            let rank = self.bid(id).rank();
            if self.market_mut(market).book.rescues.set(id, rank, accepts) && accepts.is_some() {
                self.dirty.insert(market);
            }
        }
        self.bid_mut(id).is_rescuable = is_rescuable;
    }

    /// The highest unit reserve that a bid would accept in a market instead of one of its claims (R6).
    pub(super) fn accepts_instead(&self, id: BidId, market: MarketId) -> Option<Price> {
        let bid = self.bid(id);
        if bid.claims.is_empty() || !self.market(market).serves(id, bid.terms.tenant) {
            return None;
        }
        let victim = self.dearest_victim(id, bid.rescue_market(market))?;
        Some(self.needed_against(victim).min(bid.terms.ceiling))
    }

    /// Returns the claim that a bid gives up first: the one whose victim has the highest ceiling,
    /// then the oldest (R6). With a market, only claims there count.
    pub(crate) fn dearest_victim(&self, id: BidId, market: Option<MarketId>) -> Option<AllocationId> {
        let claims = self.bid(id).claims.iter();
        claims
            .filter(|claim| market.is_none_or(|market| self.allocation(*claim).unit.market == market))
            .max_by_key(|claim| (self.bid(self.allocation(*claim).bid).terms.ceiling, Reverse(*claim)))
    }

    /// Returns the ceiling that R4 requires of a bid that displaces this node.
    pub(crate) fn needed_against(&self, id: AllocationId) -> Price {
        let allocation = self.allocation(id);
        self.needed(allocation.unit, self.bid(allocation.bid).terms.ceiling)
    }

    /// Reindexes all bids of an account that search in a market, after it began or stopped to sell
    /// there (R17).
    pub(crate) fn requeue_in(&mut self, account: AccountId, market: MarketId) {
        // Bids that have ended are removed, so that they are not read the next time.
        let mut bids = std::mem::take(&mut self.accounts[account.0 as usize].bids);
        bids.retain(|id| self.bids.get(*id).is_some());
        for id in bids.iter().copied() {
            let bid = self.bid(id);
            let seeks = bid.queued.is_some() || !bid.claims.is_empty();
            if seeks && self.markets_of(id).contains(&market) {
                self.requeue_bid_in(id, market);
            }
        }
        self.accounts[account.0 as usize].bids = bids;
    }

    /// Reindexes a bid in one of its markets, after a change of whether the market serves it.
    pub(crate) fn requeue_bid_in(&mut self, id: BidId, market: MarketId) {
        let bid = self.bid(id);
        let (tenant, rank, unmet, losing) =
            (bid.terms.tenant, bid.rank(), bid.queued_nodes, bid.queued_losing);
        if let Some(queued) = bid.queued {
            let takes_part = self.waits_in(id, market, queued);
            let (demand, handle) = self.demand_of(id, market);
            demand.remove(tenant, queued, rank, handle);
            if takes_part {
                demand.insert(id, tenant, queued, unmet, losing, rank, handle);
            }
            self.dirty.insert(market);
        }
        self.reindex_rescue(id);
    }

    /// Returns true if a queued bid belongs into the book of a market: it is served there, and its account can pay.
    fn waits_in(&mut self, id: BidId, market: MarketId, queued: Queued) -> bool {
        let tenant = self.bid(id).terms.tenant;
        let serves = self.market(market).serves(id, tenant);
        let Some(funds) = self.funds_of(tenant) else { return serves };
        let weight = serves.then(|| self.weight(funds, id, queued.nodes_at_once()));
        let limit = funds.limit(self.stake_span(funds, market));
        let funds = self.accounts[tenant.0 as usize].funds.as_deref_mut().expect("just seen");
        funds.set_waiting(market, id, weight, limit)
    }

    /// Returns the demand of one of a bid's markets, with the bid's handle there.
    fn demand_of(&mut self, id: BidId, market: MarketId) -> (&mut Demand, &mut Option<Handle>) {
        let bid = self.bids.get_mut(id).expect("an active bid");
        let mut named = self.scopes.markets(bid.terms.scope).iter();
        let at = named.position(|named| *named == market).expect("one of its markets");
        (&mut self.markets[market.0 as usize].book.demand, bid.handle(at))
    }

    /// Reindexes an offer after a change of its reserve, place, units or free units.
    pub(crate) fn reindex_offer(&mut self, market: MarketId, provider: AccountId) {
        let offer = &self.market(market).offers[&provider];
        let (reserve, place) = (offer.reserve, offer.place);
        let (free, offered) = (offer.free.len() as u64, offer.for_sale() > 0);
        let book = &mut self.market_mut(market).book;
        book.free.set(reserve, place, provider, free);
        book.free.set_floor(reserve, provider, offered);
        self.dirty.insert(market);
    }
}

impl Bid {
    /// Returns true if the unmet demand of the bid counts in H (R8): it is more than what providers' notices gave back.
    pub(super) fn is_losing(&self, allocations: &DenseMap<AllocationId, Allocation>) -> bool {
        if self.notices.is_empty() {
            return self.unmet() > 0;
        }
        let notices = self.notices.iter().filter_map(|id| allocations[id].notice);
        self.unmet() > notices.filter(|notice| notice.is_of_provider()).count() as u32
    }

    /// Returns the market in which the claims of a rescued bid must be: for a gang only this one
    /// (R12).
    pub(crate) fn rescue_market(&self, market: MarketId) -> Option<MarketId> {
        (self.least() > 1).then_some(market)
    }
}
