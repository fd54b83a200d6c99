//! A search for cheats: agents that follow a policy in small books and in a simulated world, in which all others are
//! truthful.
//!
//! A [`Policy`] is a programme of commands. [`named`] has those that people thought of; [`search`] mutates them. Each is
//! measured against the truth with the same seeds, so that a gain is what the policy brings and not what the seed does.

mod book;
mod finding;
mod ledger;
mod named;
mod play;
mod policy;
mod search;
mod stage;

pub use book::{Role, Setting};
pub use finding::{Harm, Measurement, markdown, page};
pub use ledger::{Outcome, RESTART};
pub use named::{named, truth};
pub use play::{AttackError, Baseline, Runs};
pub use policy::{
    Action, BasePrice, BidChoice, Condition, Count, Force, Level, MarketChoice, Mode, NewBid, NodeChoice,
    Policy, Rule, Trigger,
};
pub use search::{Search, SearchResult, search};
