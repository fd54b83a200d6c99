//! An exchange in this process, without a journal.

use super::{Venue, VenueError};
use kubebid_core::numbers::Supply;
use kubebid_core::units::{AllocationId, MarketId, Names};
use kubebid_core::{Answer, Auction, Exchange, Price, StampedCommand};

/// An exchange in this process.
#[derive(Debug, Default)]
pub struct InProcess {
    pub(super) exchange: Exchange,
}

impl InProcess {
    /// Makes a venue with an empty exchange.
    pub fn new() -> InProcess {
        InProcess::default()
    }
}

impl Venue for InProcess {
    fn apply(&mut self, command: &StampedCommand) -> Result<Answer, VenueError> {
        Ok(self.exchange.apply(command))
    }

    fn names(&self) -> &Names {
        self.exchange.names()
    }

    fn price_to_stay(&mut self, node: AllocationId) -> Result<Option<Price>, VenueError> {
        let notice = self.exchange.view_allocation(node).and_then(|node| node.notice);
        Ok(notice.and_then(|notice| notice.price_to_stay))
    }

    fn supply(&mut self, market: MarketId) -> Result<Supply, VenueError> {
        Ok(self.exchange.market_numbers(market).1)
    }

    fn name(&self) -> String {
        "in process".to_owned()
    }
}
