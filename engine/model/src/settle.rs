//! Settling: one step after the other, until nothing changes (§3).

use crate::state::Model;
use kubebid_core::MarketState;
use kubebid_core::command::TimeInForce;
use kubebid_core::event::{CloseReason, EndReason, Fact, Scope};
use kubebid_core::units::{AllocationId, BidId, MarketId};
use std::collections::BTreeSet;

impl Model {
    pub(crate) fn settle(&mut self) {
        while self.one_step() {}
        self.set_prices();
        self.announce_prices();
        self.remember_as_settled();
    }

    fn remember_as_settled(&mut self) {
        self.settled = None;
        self.settled = Some(Box::new(self.clone()));
    }

    /// Takes the first of these steps that changes something. The next call starts from (1) again.
    fn one_step(&mut self) -> bool {
        self.do_what_is_due()
            || self.pass_on_an_orphan()
            || self.give_a_free_unit()
            || self.rescind_an_orphan()
            || self.serve_an_unmet_bid()
            || self.begin_and_end_renewals()
            || self.end_an_immediate_search()
    }

    /// (1) Takes deadlines with their hand-over, then start time-outs, then expiries, then the end of
    /// closing markets without units (R18), then months, then renewals (R19). Protections end by themselves.
    fn do_what_is_due(&mut self) -> bool {
        self.let_raises_count();
        if let Some((node, reason)) = self.due_deadline() {
            self.end(node, reason);
            return true;
        }
        if let Some(node) = self.due_start() {
            self.end(node, EndReason::StartTimeout);
            return true;
        }
        if let Some(bid) = self.due_expiry() {
            self.expire(bid);
            return true;
        }
        if let Some(market) = self.emptied_market() {
            self.end_market(market);
            return true;
        }
        if let Some(account) = self.due_month() {
            self.begin_month(account);
            return true;
        }
        if let Some(account) = self.due_renewal() {
            self.renew(account);
            return true;
        }
        false
    }

    fn emptied_market(&self) -> Option<MarketId> {
        let closing = |market: &MarketId| matches!(self.market_state(*market), MarketState::Closing(_));
        let has_units = |market: &MarketId| self.units.keys().any(|unit| unit.market == *market);
        self.market_ids().find(|market| closing(market) && !has_units(market))
    }

    /// Ends a market. The bids that name only markets that have ended are closed (R18).
    fn end_market(&mut self, market: MarketId) {
        self.markets[market.0 as usize].state = MarketState::Ended;
        self.emit(Fact::MarketEnded { market });
        let has_ended = |market: &MarketId| self.market_state(*market) == MarketState::Ended;
        let hopeless = |scope: &Scope| match scope {
            Scope::Markets(markets) => markets.iter().all(has_ended),
            Scope::InstanceType(_) => false,
        };
        let searching = self.bids.iter().filter(|(_, bid)| bid.searching);
        let closed: Vec<BidId> =
            searching.filter(|(_, bid)| hopeless(&bid.scope)).map(|(id, _)| *id).collect();
        for bid in closed {
            self.close(bid, CloseReason::MarketClosed);
        }
    }

    /// Lets raised reserves count whose time has come (R11).
    fn let_raises_count(&mut self) {
        for a in self.allocations.values_mut() {
            if let Some((reserve, _)) = a.raise.take_if(|(_, from)| *from <= self.now) {
                a.reserve = reserve;
            }
        }
    }

    fn due_deadline(&self) -> Option<(AllocationId, EndReason)> {
        self.allocations.iter().find_map(|(id, a)| {
            let notice = a.notice.as_ref().filter(|notice| notice.deadline <= self.now)?;
            Some((*id, notice.reason.into()))
        })
    }

    fn due_start(&self) -> Option<AllocationId> {
        let due = self.allocations.iter().find(|(_, a)| a.ready.is_none() && a.start_deadline <= self.now);
        due.map(|(id, _)| *id)
    }

    fn due_expiry(&self) -> Option<BidId> {
        let expired = |at| at <= self.now;
        let due = self.bids.iter().find(|(_, bid)| bid.searching && bid.expire_at.is_some_and(expired));
        due.map(|(id, _)| *id)
    }

    /// (5) Serves the unmet bids in R2 order: one node from a free unit, a standing notice or a
    /// displacement; for a waiting gang all of its minimum. If a plain bid gets nothing, its markets
    /// are done, because no lower bid can do better there. A waiting gang does not end its markets.
    fn serve_an_unmet_bid(&mut self) -> bool {
        let mut passed: BTreeSet<MarketId> = BTreeSet::new();
        for id in self.bids_by_priority() {
            if self.unmet(id) == 0 {
                continue;
            }
            let mut markets = self.payable_markets(id);
            markets.retain(|market| !passed.contains(market));
            if self.is_waiting_gang(id) {
                if let Some(picks) = self.gang_picks(id, &markets) {
                    for pick in picks {
                        self.give(id, pick);
                    }
                    return true;
                }
            } else if let Some(pick) = self.book(&markets).pick(self.bids[&id].ceiling) {
                self.give(id, pick);
                return true;
            } else {
                passed.extend(markets);
            }
        }
        false
    }

    /// (6) Sets `max_nodes` to live nodes plus claims, and ends the search (R14).
    fn end_an_immediate_search(&mut self) -> bool {
        let searching =
            self.bids.iter().find(|(_, bid)| bid.searching && bid.time_in_force == TimeInForce::Ioc);
        let Some(id) = searching.map(|(id, _)| *id) else { return false };
        let kept = self.live(id) + self.claims(id).len() as u32;
        self.bids.get_mut(&id).expect("known").max_nodes = kept;
        self.close(id, CloseReason::Ioc);
        true
    }
}
