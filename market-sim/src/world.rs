//! A simulated world: providers and tenants on a stepped clock.
//!
//! Whoever acts sees what a participant would see (events, announced prices, its own nodes) and draws
//! from a generator that goes by its name. Nothing here reads a price that is to come out: prices follow
//! from the bids and the supply alone. The same settings give the same outcome, byte for byte, on any
//! venue.

mod agenda;
mod apart;
mod chance;
mod demand;
mod fields;
mod market_sim;
mod on_events;
mod outcome;
mod page;
mod providers;
mod run;
mod settings;
mod tenants;
mod work;

pub use apart::live_apart;
pub use demand::{Drawn, jobs_of};
pub use fields::{BadWorld, FIELDS, Field};
pub use outcome::{KindSums, MarketSeries, Outcome};
pub use run::{START, WorldError, live, live_with};
pub use settings::{Jobs, Kept, Rules, Rushes, Settings, Supply};
pub use tenants::Kind;
