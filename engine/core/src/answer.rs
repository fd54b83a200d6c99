//! The answer to a command, and the trait that every implementation of the market has.

use crate::command::Stamped;
use crate::event::Event;
use crate::types::reject::Reject;
use crate::types::state_dump::StateDump;
use crate::types::units::{Micros, Names, Seq};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of this command.
    pub seq: Seq,
    /// The time after it.
    pub at: Micros,
    pub outcome: Outcome,
    pub events: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Accepted,
    Rejected(Reject),
    /// The answer to the first command with this key: its number, and the refusal if it was refused.
    Repeated {
        first: Seq,
        refusal: Option<Reject>,
    },
}

/// A market that obeys the rule book: the exchange, and the reference model beside it.
pub trait Auction {
    fn apply(&mut self, command: &Stamped) -> Answer;
    fn dump(&self) -> StateDump;
    fn names(&self) -> &Names;
    /// The lowest ceiling with which a new tenant's bid would get `nodes` there now (R9).
    fn entry_price(
        &self,
        market: crate::types::units::MarketId,
        nodes: u32,
    ) -> Option<crate::types::money::Price>;
}
