//! Bidding strategies as pure functions: what to bid, when to amend, what to do at a notice.
//!
//! The operator and the simulator both use them, so they bid alike. Prices are whole micro-dollars per node-hour.
//! Nothing here knows a market, a bid or the time.
//!
//! ```
//! use kubebid_strategy::{AtNotice, Quote, Strategy};
//!
//! let quote =
//!     Quote { reference_micros: Some(4_000_000), floor_micros: Some(2_000_000), tick_micros: 100 };
//! assert_eq!(Strategy::Balanced.ceiling_micros(4_500_000, &quote), 3_600_000);
//! let stay = Strategy::Balanced.at_notice(Some(3_780_100), 4_500_000, &quote);
//! assert_eq!(stay, AtNotice::RaiseTo { ceiling_micros: 3_780_100 });
//! ```
//!
//! `docs/decisions/0074-the-reference-price.md` defines the reference price.

#![warn(missing_docs)]

mod amend;
mod quote;
mod reference;
mod strategy;

pub use amend::{Standing, amendment_micros};
pub use quote::{Quote, shared_tick_micros};
pub use reference::{REFERENCE_HOURS, reference_micros};
pub use strategy::{AtNotice, Strategy, UnknownStrategy};
