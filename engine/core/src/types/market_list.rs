//! The markets that a bid names. Most bids name one, which is kept without heap memory.

use crate::types::units::MarketId;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Markets in the order in which they were named.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MarketList(List);

/// The representation. A single market is always `One`.
#[derive(Clone, PartialEq, Eq, Hash)]
enum List {
    One(MarketId),
    Row(Arc<[MarketId]>),
}

impl Deref for MarketList {
    type Target = [MarketId];

    fn deref(&self) -> &[MarketId] {
        match &self.0 {
            List::One(market) => std::slice::from_ref(market),
            List::Row(markets) => markets,
        }
    }
}

impl From<MarketId> for MarketList {
    fn from(market: MarketId) -> MarketList {
        MarketList(List::One(market))
    }
}

impl From<&[MarketId]> for MarketList {
    fn from(markets: &[MarketId]) -> MarketList {
        match markets {
            [market] => (*market).into(),
            markets => MarketList(List::Row(markets.into())),
        }
    }
}

impl FromIterator<MarketId> for MarketList {
    fn from_iter<I: IntoIterator<Item = MarketId>>(markets: I) -> MarketList {
        markets.into_iter().collect::<Vec<_>>().as_slice().into()
    }
}

impl fmt::Debug for MarketList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
