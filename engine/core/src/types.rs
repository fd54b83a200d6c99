//! Values that commands, events and answers have in common.

pub(crate) mod calendar;
pub mod market_list;
pub mod market_rules;
pub mod market_state;
pub mod money;
pub mod numbers;
pub mod reject;
pub mod state_dump;
pub mod units;
