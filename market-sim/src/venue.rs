//! A venue is a place where a world trades: an exchange with a stepped clock, in this process or over a connection.

mod in_process;
mod journaled;
mod live;

pub use in_process::InProcess;
pub use journaled::Journaled;
pub use live::Live;

use kubebid_core::numbers::Supply;
use kubebid_core::units::{AllocationId, MarketId, Names};
use kubebid_core::{Answer, Price, Stamped};

/// Why the venue could not go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct VenueError(pub String);

pub trait Venue {
    /// Moves the clock to the command's time and obeys it. The answer has all that happened since the one
    /// before; a bid is called by the number of the answer that placed it.
    fn apply(&mut self, command: &Stamped) -> Result<Answer, VenueError>;

    /// Returns the names behind the numbers in events.
    fn names(&self) -> &Names;

    /// The lowest ceiling that keeps a node under notice; `None` where none does.
    fn price_to_stay(&mut self, node: AllocationId) -> Result<Option<Price>, VenueError>;

    /// The venue's own count of a market's units, to compare with.
    fn supply(&mut self, market: MarketId) -> Result<Supply, VenueError>;

    /// Returns the name for reports.
    fn name(&self) -> String;
}
