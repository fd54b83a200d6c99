//! Venues, the places where a simulation trades: an exchange with a stepped clock, in this process or over a connection.

mod in_process;
mod journaled;
mod remote;

pub use in_process::InProcess;
pub use journaled::JournaledVenue;
pub use remote::Remote;

use kubebid_core::numbers::Supply;
use kubebid_core::units::{AllocationId, MarketId, Names};
use kubebid_core::{Answer, Event, Price, StampedCommand};

/// The reason for which a venue could not go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct VenueError(pub String);

/// A place where a simulation trades.
pub trait Venue {
    /// Moves the clock to the command's time and applies it. The answer has all that happened since the one
    /// before; a bid is called by the number of the answer that placed it.
    fn apply(&mut self, command: &StampedCommand) -> Result<Answer, VenueError>;

    /// Returns what commands of others brought about before the last answer, a list of events for each command.
    fn take_others(&mut self) -> Vec<Vec<Event>> {
        Vec::new()
    }

    /// Returns the names of the numbered accounts and markets in events.
    fn names(&self) -> &Names;

    /// Returns the lowest ceiling that keeps a node under notice, if there is one.
    fn price_to_stay(&mut self, node: AllocationId) -> Result<Option<Price>, VenueError>;

    /// Returns the venue's own count of a market's units, to compare with.
    fn supply(&mut self, market: MarketId) -> Result<Supply, VenueError>;

    /// Returns the name for reports.
    fn name(&self) -> String;
}
