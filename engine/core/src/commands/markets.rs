//! Commands of administrators: open a market, change its rules.

use crate::command::RuleChange;
use crate::event::{Fact, Scope};
use crate::exchange::{Exchange, Market};
use crate::types::market_rules::MarketRules;
use crate::types::reject::Reject;
use crate::types::units::{InstanceType, MarketId, MarketName};

impl Exchange {
    pub(crate) fn open_market(&mut self, name: &MarketName, changes: &[RuleChange]) -> Result<(), Reject> {
        if self.market_ids.contains_key(name) {
            return Err(Reject::MarketExists);
        }
        let rules = MarketRules::default().with(changes)?;

        let (id, kind) = self.list_market(name, Market::new(rules));
        self.emit(Fact::MarketOpened { market: id });
        self.enter_waiting_bids(id, &kind);
        self.dirty.insert(id);
        Ok(())
    }

    pub(crate) fn list_market(&mut self, name: &MarketName, market: Market) -> (MarketId, InstanceType) {
        let id = MarketId(self.markets.len() as u32);
        let kind = InstanceType::new(name.parts().0);
        self.names.markets.push(name.clone());
        self.market_ids.insert(name.clone(), id);
        self.markets.push(market);
        self.scopes.open(id, &kind);
        (id, kind)
    }

    /// Adds the bids for any region of the instance type, which search in the new market from its
    /// beginning (R13).
    fn enter_waiting_bids(&mut self, market: MarketId, kind: &InstanceType) {
        let Some(scope) = self.scopes.find(&Scope::InstanceType(kind.clone())) else { return };
        let counting = self.bids.iter().filter_map(|(id, record)| Some((id, record.active()?)));
        let concerned = counting.filter(|(_, bid)| bid.terms.scope == scope);
        for id in concerned.map(|(id, _)| id).collect::<Vec<_>>() {
            let bid = self.bid(id);
            let (tenant, rank, unmet) = (bid.terms.tenant, bid.rank(), bid.queued_nodes);
            if let Some(queued) = bid.queued {
                let (demand, handle) = self.demand_of(id, market);
                demand.insert(id, tenant, queued, unmet, rank, handle);
            }
            self.reindex_rescue(id);
        }
    }

    /// Changes rules of a market. Deadlines and protections that were given stay as they are.
    pub(crate) fn change_rules(&mut self, name: &MarketName, changes: &[RuleChange]) -> Result<(), Reject> {
        let id = self.market_named(name)?;
        let market = self.market(id);
        let rules = market.rules.with(changes)?;
        if rules.tick != market.rules.tick {
            return Err(Reject::BadRule);
        }

        self.market_mut(id).rules = rules;
        self.emit(Fact::RulesChanged { market: id });
        let claimed: Vec<_> = self.market(id).book.held.claims().collect();
        for node in claimed {
            let claim = self.allocation(node).claim().expect("a claimed notice");
            self.reindex_rescue(claim.by.bid);
        }
        self.dirty.insert(id);
        Ok(())
    }

    pub(crate) fn market_named(&self, name: &MarketName) -> Result<MarketId, Reject> {
        self.market_ids.get(name).copied().ok_or(Reject::UnknownMarket)
    }
}
