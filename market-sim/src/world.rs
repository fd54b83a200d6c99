//! A simulated world: providers and tenants on a stepped clock.
//!
//! A provider or tenant sees what a real one would see (events, announced prices, its own nodes) and draws from a
//! generator of its own, seeded by its name. No participant reads a price that the world is to produce: prices follow
//! from the bids and the supply alone. The same settings give the same outcome, byte for byte, on any venue.

mod demand;
mod events;
mod jobs;
mod market;
mod outcome;
mod page;
mod parallel;
mod providers;
mod random;
mod run;
mod settings;
mod tenants;

pub use demand::{DrawnJob, jobs_of};
pub use outcome::{KindSums, MarketSeries, Outcome};
pub use parallel::simulate_parallel;
pub(crate) use random::RandomStream;
pub use run::{START, WorldError, simulate, simulate_jobs};
pub use settings::{
    FIELDS, Field, Jobs, PAIRS, Rules, RushSettings, SeriesChoice, Settings, SettingsError, Supply,
};
pub use tenants::Kind;
