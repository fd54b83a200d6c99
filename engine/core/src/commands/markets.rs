//! Commands of administrators: open a market, change its rules, close it.

use crate::command::RuleChange;
use crate::event::{CloseReason, Fact, Scope};
use crate::exchange::{Exchange, Market};
use crate::state::Bid;
use crate::types::market_rules::MarketRules;
use crate::types::market_state::MarketState;
use crate::types::reject::Reject;
use crate::types::units::{AccountId, BidId, InstanceType, MarketId, MarketName, UnitId};

impl Exchange {
    pub(crate) fn open_market(&mut self, name: &MarketName, changes: &[RuleChange]) -> Result<(), Reject> {
        if let Some(id) = self.market_id(name) {
            return self.reopen_market(id, changes);
        }
        let rules = MarketRules::default().with(changes)?;

        let id = self.list_market(name, Market::new(rules));
        self.emit(Fact::MarketOpened { market: id });
        // Bids for any region of the instance type search in the new market from its beginning (R13).
        self.requeue_market(id);
        Ok(())
    }

    /// Opens a closed market again. The bids that name it, or any region of its type, search in it (R18).
    fn reopen_market(&mut self, id: MarketId, changes: &[RuleChange]) -> Result<(), Reject> {
        if self.is_open(id) {
            return Err(Reject::MarketExists);
        }
        let rules = self.changed_rules(id, changes)?;

        self.market_mut(id).state = MarketState::Open;
        self.emit(Fact::MarketOpened { market: id });
        self.set_rules(id, rules);
        self.requeue_market(id);
        Ok(())
    }

    /// Closes a market for new bids and offers (R18). What holds nodes or waits there goes on.
    pub(crate) fn close_market(&mut self, name: &MarketName) -> Result<(), Reject> {
        let id = self.market_named(name)?;
        if !self.is_open(id) {
            return Err(Reject::MarketClosed);
        }

        self.market_mut(id).state = MarketState::Closing(self.seq);
        self.emit(Fact::MarketClosing { market: id });
        self.remove_resting_units(id);
        self.dirty.insert(id);
        self.note_if_emptied(id);
        Ok(())
    }

    /// Removes the resting units of a market that closes (R11).
    fn remove_resting_units(&mut self, market: MarketId) {
        let providers: Vec<AccountId> = self.market(market).offers.keys().copied().collect();
        for provider in providers {
            for number in self.resting_units(market, provider) {
                self.remove_unit(UnitId { market, provider, number });
            }
        }
    }

    /// Notes a closing market that has no units left, so that settling ends it.
    pub(crate) fn note_if_emptied(&mut self, id: MarketId) {
        let market = self.market(id);
        if market.units == 0 && matches!(market.state, MarketState::Closing(_)) {
            self.emptied.insert(id);
        }
    }

    /// Ends the first closing market that has no units left. The bids that name only markets that have ended are
    /// closed (R18). Returns false if there is no such market.
    pub(crate) fn end_emptied_market(&mut self) -> bool {
        let Some(id) = self.emptied.pop_first() else { return false };
        self.market_mut(id).state = MarketState::Ended;
        self.emit(Fact::MarketEnded { market: id });
        self.requeue_market(id);
        for bid in self.active_bids_in(id) {
            if self.bid(bid).searching && self.has_only_ended_markets(bid) {
                self.close(bid, CloseReason::MarketClosed);
            }
        }
        true
    }

    fn has_only_ended_markets(&self, bid: BidId) -> bool {
        match self.scopes.scope(self.bid(bid).terms.scope) {
            Scope::Markets(markets) => markets.iter().all(|id| self.market(*id).state == MarketState::Ended),
            Scope::InstanceType(_) => false,
        }
    }

    pub(crate) fn list_market(&mut self, name: &MarketName, market: Market) -> MarketId {
        let id = MarketId(self.markets.len() as u32);
        let kind = InstanceType::new(name.parts().0);
        self.names.markets.push(name.clone());
        self.market_ids.insert(name.clone(), id);
        self.markets.push(market);
        self.scopes.open(id, &kind);
        id
    }

    /// Returns the active bids that name a market, or any region of its type, by number.
    fn active_bids_in(&self, market: MarketId) -> Vec<BidId> {
        let active = self.bids.iter().filter_map(|(id, record)| Some((id, record.active()?)));
        let looks_here = |bid: &Bid| self.scopes.markets(bid.terms.scope).contains(&market);
        active.filter(|(_, bid)| looks_here(bid)).map(|(id, _)| id).collect()
    }

    /// Puts the bids that look for nodes in a market into its book, or takes them out, after a change of its state.
    fn requeue_market(&mut self, market: MarketId) {
        for id in self.active_bids_in(market) {
            self.requeue_bid_in(id, market);
        }
        self.dirty.insert(market);
    }

    /// Changes rules of a market. Deadlines and protections that were given stay as they are.
    pub(crate) fn change_rules(&mut self, name: &MarketName, changes: &[RuleChange]) -> Result<(), Reject> {
        let id = self.market_named(name)?;
        let rules = self.changed_rules(id, changes)?;

        self.emit(Fact::RulesChanged { market: id });
        self.set_rules(id, rules);
        Ok(())
    }

    /// Returns the rules of a market with `changes` applied. The tick never changes.
    fn changed_rules(&self, id: MarketId, changes: &[RuleChange]) -> Result<MarketRules, Reject> {
        let before = &self.market(id).rules;
        let rules = before.with(changes)?;
        if rules.tick == before.tick { Ok(rules) } else { Err(Reject::BadRule) }
    }

    fn set_rules(&mut self, id: MarketId, rules: MarketRules) {
        self.market_mut(id).rules = rules;
        self.reindex_all_funds();
        let claimed: Vec<_> = self.market(id).book.held.claims().collect();
        for node in claimed {
            let claim = self.allocation(node).claim().expect("a claimed notice");
            self.reindex_rescue(claim.by.bid);
        }
        self.dirty.insert(id);
    }

    pub(crate) fn market_named(&self, name: &MarketName) -> Result<MarketId, Reject> {
        self.market_ids.get(name).copied().ok_or(Reject::UnknownMarket)
    }
}
