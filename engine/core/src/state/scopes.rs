//! The scopes of bids (R13), each kept once, because most bids share theirs with others.

use crate::collections::id_map::ByName;
use crate::event::Scope;
use crate::types::units::{InstanceType, MarketId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScopeId(u32);

#[derive(Debug, Default)]
pub(crate) struct Scopes {
    /// The scope of each single market, by its number.
    alone: Vec<ScopeId>,
    /// All other scopes.
    ids: ByName<Scope, ScopeId>,
    scopes: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    scope: Scope,
    /// The markets in the order of the scope. Those of an instance type are in the order in which
    /// they were opened.
    markets: Vec<MarketId>,
}

impl Scopes {
    /// Adds a market that is opened.
    pub(crate) fn open(&mut self, market: MarketId, kind: &InstanceType) {
        let alone = self.add(Scope::Markets(market.into()), vec![market]);
        self.alone.push(alone);
        let of_type = self.keep(&Scope::InstanceType(kind.clone()));
        self.scopes[of_type.0 as usize].markets.push(market);
    }

    pub(crate) fn find(&self, scope: &Scope) -> Option<ScopeId> {
        match scope {
            Scope::Markets(markets) if markets.len() == 1 => self.alone.get(markets[0].0 as usize).copied(),
            Scope::Markets(_) | Scope::InstanceType(_) => self.ids.get(scope).copied(),
        }
    }

    /// Returns the id of a scope, and adds the scope if it is new.
    pub(crate) fn keep(&mut self, scope: &Scope) -> ScopeId {
        if let Some(known) = self.find(scope) {
            return known;
        }
        let markets = match scope {
            Scope::Markets(markets) => markets.to_vec(),
            Scope::InstanceType(_) => Vec::new(),
        };
        let id = self.add(scope.clone(), markets);
        self.ids.insert(scope.clone(), id);
        id
    }

    fn add(&mut self, scope: Scope, markets: Vec<MarketId>) -> ScopeId {
        self.scopes.push(Known { scope, markets });
        ScopeId(self.scopes.len() as u32 - 1)
    }

    pub(crate) fn scope(&self, id: ScopeId) -> &Scope {
        &self.scopes[id.0 as usize].scope
    }

    /// Returns the markets that a scope names, or all of its instance type (R13).
    pub(crate) fn markets(&self, id: ScopeId) -> &[MarketId] {
        &self.scopes[id.0 as usize].markets
    }
}
