//! The answer to a command, and the trait that every implementation of the market has.

use crate::command::StampedCommand;
use crate::event::Event;
use crate::types::reject::Reject;
use crate::types::state_dump::StateDump;
use crate::types::units::{Micros, Names, Seq};

/// The answer to one command, with everything that the command changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of this command.
    pub seq: Seq,
    /// The time after it.
    pub at: Micros,
    /// The answer itself: accepted, refused, or the same as to an earlier command.
    pub outcome: Outcome,
    /// The events since the previous answer, in order: also those that fell due before this command (R1).
    pub events: Vec<Event>,
}

/// The outcome of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command was executed, and the markets are settled.
    Accepted,
    /// The command was refused, and changed nothing (R16).
    Rejected(Reject),
    /// The answer to the first command with this key: its number, and the refusal if it was refused.
    Repeated {
        /// The number of the first command with this key.
        first: Seq,
        /// The refusal of the first command; None if it was accepted.
        refusal: Option<Reject>,
    },
}

/// A market that follows the rules: the exchange, and the reference model that it is checked against.
pub trait Auction {
    /// Applies a command after everything that is due by its time, and settles the markets (R1).
    fn apply(&mut self, command: &StampedCommand) -> Answer;
    /// Returns the whole state, to compare two implementations.
    fn dump(&self) -> StateDump;
    /// Returns the names of all markets and accounts.
    fn names(&self) -> &Names;
    /// Returns the lowest ceiling with which a new tenant's bid would get `nodes` nodes of a market
    /// now (R9).
    fn entry_price(
        &self,
        market: crate::types::units::MarketId,
        nodes: u32,
    ) -> Option<crate::types::money::Price>;
}
