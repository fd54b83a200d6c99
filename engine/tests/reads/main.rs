//! Tests of reads of the market's past and present: prices, events, explanations, charges.

mod billing;
mod explain;
mod history;
mod watch;
#[path = "../world/mod.rs"]
mod world;
