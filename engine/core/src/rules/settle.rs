//! Settling (§3): takes one step at a time, and starts again from the first step, until nothing changes.

use crate::book::HeadQueue;
use crate::book::Rank;
use crate::event::{CloseReason, DropCause};
use crate::exchange::Exchange;
use crate::rules::candidates::{Candidate, CandidateKind, Gang};
use crate::state::BidTerms;
use crate::types::money::Price;
use crate::types::units::{AllocationId, BidId, MarketId};

impl Exchange {
    pub(crate) fn settle(&mut self) {
        if !self.short_accounts.is_empty() {
            self.retry_short();
        }
        while self.do_what_is_due()
            || !self.emptied.is_empty() && self.end_emptied_market()
            || self.has_changed_books() && self.serve()
            || !self.unrenewed.is_empty() && self.start_and_end_renewals()
        {}
        if let Some(bid) = self.immediate.take() {
            self.end_immediate(bid);
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        for market in dirty.iter() {
            self.publish_prices(market);
        }
        dirty.clear();
        self.dirty = dirty;
        self.last_settled.clear();
        self.tidy_timers();
        self.end_bids();
        self.assert_indexed();
    }

    /// Returns true if a book has changed, after the books follow what accounts can pay for. If none has, no bid can be
    /// served that could not be served before.
    fn has_changed_books(&mut self) -> bool {
        if !self.stale_funds.is_empty() {
            self.refresh_funds();
        }
        !self.dirty.is_empty()
    }

    /// Takes the first of steps 2 to 5 that does something.
    fn serve(&mut self) -> bool {
        self.pass_on_orphan() || self.give_free_unit() || self.rescind_orphan() || self.serve_unmet()
    }

    /// Drops everything but the terms of bids that have ended.
    fn end_bids(&mut self) {
        while let Some(id) = self.ending.pop() {
            let Some(bid) = self.bids.get(id).filter(|bid| bid.has_ended()) else { continue };
            if bid.is_rescuable {
                self.refresh_rescue(id);
            }
            self.bids.end(id);
        }
    }

    /// Step 2: passes an orphan to the best unmet plain bid that would displace it if it were back in
    /// place (R6).
    fn pass_on_orphan(&mut self) -> bool {
        let orphans = self.orphans.iter().map(|(ceiling, id)| (ceiling, id.0));
        let passed = orphans.filter_map(|(ceiling, id)| Some((id, self.taker_of(id, ceiling)?))).next();
        let Some((orphan, bid)) = passed else { return false };
        self.pass_on(orphan, bid);
        true
    }

    fn taker_of(&self, orphan: AllocationId, ceiling: Price) -> Option<BidId> {
        let allocation = self.allocation(orphan);
        let market = allocation.unit.market;
        let book = &self.market(market).book;
        book.demand.first()?;
        if self.is_protected(allocation) || !book.held.would_yield_first(orphan, ceiling) {
            return None;
        }
        let needed = self.needed(allocation.unit, ceiling);
        let able = book.demand.plain().take_while(|(rank, _)| rank.ceiling.0 >= needed);
        let mut takers = able
            .map(|(_, bid)| bid)
            .filter(|bid| self.seeks_beyond_orphans(*bid) && !self.has_nearer_victim(*bid, market, needed));
        let taker = takers.next()?;
        let free = self.best_of(self.buying_markets(taker), taker, |market| self.free_unit(market));
        // If that bid would rather take a free unit (R3), the orphan waits.
        free.is_none_or(|free| free.needed > needed).then_some(taker)
    }

    /// Returns true if the bid's displacement would be in another market (R4).
    fn has_nearer_victim(&self, bid: BidId, market: MarketId, needed: Price) -> bool {
        let mut others = self.buying_markets(bid).filter(|other| *other != market);
        others.any(|other| self.displacement(other).is_some_and(|o| (o.needed, other) < (needed, market)))
    }

    /// Returns true if the bid wants more nodes than its own orphans that come back (R6).
    fn seeks_beyond_orphans(&self, bid: BidId) -> bool {
        self.bid(bid).unmet() > self.own_orphans(bid)
    }

    /// Returns the number of a bid's orphans that take up its unmet demand when they come back.
    fn own_orphans(&self, id: BidId) -> u32 {
        if self.orphans.is_empty() {
            return 0;
        }
        let notices = self.bid(id).notices.iter();
        notices.filter(|notice| self.allocation(*notice).takes_demand_back()).count() as u32
    }

    /// Step 3: gives a free unit to the first bid in the order of R2 that wants it, for unmet demand
    /// or in place of a claim. Stops if step 5 could serve a bid before it (R6).
    fn give_free_unit(&mut self) -> bool {
        if !self.dirty.iter().any(|market| self.market(market).book.free.count > 0) {
            return false;
        }
        self.refresh_rescues();
        self.with_heads(Exchange::give_free_unit_to)
    }

    fn give_free_unit_to(&mut self, queue: &mut HeadQueue) -> bool {
        let mut rescued = self.rescue_candidate(None);
        loop {
            let waits = queue.first();
            let Some((rank, bid)) = waits.into_iter().chain(rescued).min() else { return false };
            if rescued.is_some_and(|(other, _)| other == rank) {
                rescued = self.rescue_candidate(Some(rank));
            }
            if waits.is_some_and(|(other, _)| other == rank) {
                queue.pop_first();
            }
            if self.bid(bid).gang().is_some() {
                // The queue has only gangs that can be placed.
                return false;
            }
            if self.bid(bid).unmet() > 0 {
                match self.best_for(bid) {
                    // What comes back to it in step 4 is all that it wants.
                    Some(_) if !self.seeks_beyond_orphans(bid) => self.enqueue_after(rank, queue),
                    Some(Candidate { kind: CandidateKind::Free(market, provider), .. }) => {
                        self.take_free(bid, market, provider);
                        return true;
                    }
                    Some(Candidate {
                        kind: CandidateKind::Standing(_) | CandidateKind::Displace(_), ..
                    }) => return false,
                    None => {}
                }
            }
            if self.rescue(bid) {
                return true;
            }
        }
    }

    /// Calls `act` with the heads of the queues. Their memory is used again each time.
    fn with_heads(&mut self, act: impl FnOnce(&mut Exchange, &mut HeadQueue) -> bool) -> bool {
        let mut queue = std::mem::take(&mut self.heads);
        self.enqueue_heads(&mut queue);
        let done = act(self, &mut queue);
        queue.clear();
        self.heads = queue;
        done
    }

    /// Adds the first plain bid of each market that changed, and the gangs that can be placed there.
    /// If none of these can be served no bid can, because no later bid can do better.
    fn enqueue_heads(&self, queue: &mut HeadQueue) {
        for market in self.dirty.iter() {
            let demand = &self.market(market).book.demand;
            if let Some((rank, bid)) = demand.first() {
                queue.insert(rank, bid);
            }
            // Gangs that need more nodes come later, so that the nodes of the market are read
            // only once.
            let mut gangs = demand.first_gangs().peekable();
            if gangs.peek().is_none() {
                continue;
            }
            let (mut needs, mut gone_through) = (self.needs(market), 0);
            for (nodes, rank, bid) in gangs {
                let Some(needed) = needs.nth((nodes - gone_through) as usize - 1) else { break };
                gone_through = nodes;
                if needed <= rank.ceiling.0 {
                    queue.insert(rank, bid);
                }
            }
        }
    }

    fn enqueue_after(&self, rank: Rank, queue: &mut HeadQueue) {
        for market in self.dirty.iter() {
            if let Some((rank, bid)) = self.market(market).book.demand.after(rank) {
                queue.insert(rank, bid);
            }
        }
    }

    /// Returns the best claimant after the rank `after` that would take the cheapest free unit of a
    /// market instead (R6).
    fn rescue_candidate(&self, after: Option<Rank>) -> Option<(Rank, BidId)> {
        let books = self.dirty.iter().map(|market| &self.market(market).book);
        let candidates = books.filter_map(|book| {
            let (reserve, ..) = book.free.first()?;
            book.rescues.first_for(reserve, after)
        });
        candidates.min()
    }

    /// Rescues a claimant: it takes a free unit, and gives up its claim on the dearest of its victims
    /// (R6).
    fn rescue(&mut self, id: BidId) -> bool {
        let bid = self.bid(id);
        if bid.claims.is_empty() || bid.unmet() + bid.claims.len() <= self.own_orphans(id) {
            return false;
        }
        let acceptable = self.best_of(self.open_markets(id), id, |market| {
            let victim = self.dearest_victim(id, self.bid(id).rescue_market(market))?;
            let free = self.free_unit_instead(id, market, victim);
            free.filter(|free| free.needed <= self.needed_against(victim))
        });
        let Some(Candidate { kind: CandidateKind::Free(market, provider), .. }) = acceptable else {
            self.note_short(id);
            return false;
        };
        // The claim's money pays for the unit, and the bid is never without both (R19).
        let BidTerms { tenant, ceiling, .. } = self.bid(id).terms;
        self.update_funds(tenant, |funds| funds.keep_place(id, ceiling));
        let victim = self.dearest_victim(id, self.bid(id).rescue_market(market)).expect("it was let off");
        // The provider whose unit was claimed gets the tenant all the same (R15).
        if self.allocation(victim).unit.provider == provider {
            self.drop_claim_free_of_charge(victim, DropCause::Rescued);
        } else {
            self.drop_claim(victim, DropCause::Rescued);
        }
        self.take_free(id, market, provider);
        self.update_funds(tenant, |funds| funds.release_place(id));
        true
    }

    /// Step 4: rescinds the notice of a remaining orphan, that of the dearest holder first, then the
    /// oldest.
    fn rescind_orphan(&mut self) -> bool {
        let Some((_, id)) = self.orphans.last() else { return false };
        self.rescind(id.0);
        true
    }

    /// Step 5: gives one node, or a gang its minimum, to the first bid in the order of R2 that can
    /// get any.
    fn serve_unmet(&mut self) -> bool {
        self.with_heads(Exchange::serve_first_of)
    }

    fn serve_first_of(&mut self, queue: &mut HeadQueue) -> bool {
        while let Some((_, bid)) = queue.pop_first() {
            if let Some(nodes) = self.bid(bid).gang() {
                let Some(gang) = self.place_for_gang(bid, nodes) else { continue };
                for candidate in gang.taken {
                    self.take(bid, candidate);
                }
                return true;
            }
            if let Some(candidate) = self.best_for(bid) {
                self.take(bid, candidate);
                return true;
            }
        }
        false
    }

    fn place_for_gang(&self, bid: BidId, nodes: u32) -> Option<Gang> {
        let ceiling = self.bid(bid).terms.ceiling;
        let places = self.buying_markets(bid).filter_map(|market| self.gang_in(market, nodes, ceiling));
        places.min_by(Gang::compare)
    }

    fn take(&mut self, bid: BidId, candidate: Candidate) {
        match candidate.kind {
            CandidateKind::Free(market, provider) => self.take_free(bid, market, provider),
            CandidateKind::Standing(node) => self.claim_standing(bid, node),
            CandidateKind::Displace(victim) => self.displace(bid, victim),
        }
    }

    /// Ends the search of an IOC bid. It never gets what it did not get at once (R14).
    fn end_immediate(&mut self, id: BidId) {
        let bid = self.bid_mut(id);
        if bid.searching {
            bid.terms.max_nodes = bid.live.len() + bid.claims.len();
            self.close(id, CloseReason::Ioc);
        }
    }
}
