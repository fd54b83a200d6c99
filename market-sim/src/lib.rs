//! Plays commands against the market: the library behind the `market-sim` tool.

pub mod play;

use kubebid_core::Auction;
use kubebid_model::Model;

/// An empty market: the exchange, or the reference model that it is checked against.
pub fn auction(_model: bool) -> Box<dyn Auction> {
    Box::new(Model::new())
}
