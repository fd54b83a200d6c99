//! The markets of an instance type (R13).

use foldhash::HashMap;
use kubebid_core::units::{InstanceType, MarketId, MarketName};

#[derive(Debug, Default)]
pub(super) struct Types {
    of: HashMap<MarketId, InstanceType>,
    markets: HashMap<InstanceType, Vec<MarketId>>,
}

impl Types {
    pub(super) fn name(&mut self, market: MarketId, name: &MarketName) {
        self.of.entry(market).or_insert_with(|| InstanceType::new(name.parts().0));
    }

    pub(super) fn open(&mut self, market: MarketId) {
        if let Some(kind) = self.of.get(&market) {
            let markets = self.markets.entry(kind.clone()).or_default();
            if !markets.contains(&market) {
                markets.push(market);
            }
        }
    }

    pub(super) fn of(&self, market: MarketId) -> Option<&InstanceType> {
        self.of.get(&market)
    }

    /// Returns the markets of a type, closed ones too.
    pub(super) fn markets(&self, kind: &InstanceType) -> &[MarketId] {
        self.markets.get(kind).map_or(&[], Vec::as_slice)
    }
}
