//! The rules as stories: a module for each rule, and a test for each sentence that matters.
//!
//! `story.rs` explains the language of the stories.

mod after_notice;
mod billing;
mod claims;
mod closing;
mod displacement;
mod free_units;
mod funds;
mod funds_abuse;
mod gangs;
mod handover;
mod notice_prices;
mod numbers;
mod order;
mod own_supply;
mod price;
mod priority;
mod providers;
mod refusals_and_keys;
mod regrouping;
mod rescue;
mod resting;
mod several_markets;
mod story;
mod time_in_force;
