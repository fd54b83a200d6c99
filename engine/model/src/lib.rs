//! The reference market: the rule book written out naively, to check the core against.
//!
//! Everything is recomputed from the raw state whenever it is needed. There are no indexes and no caches,
//! except the prices last settled, which bills need. It is slow on purpose, and meant to be read beside
//! `docs/mechanism.md`; comments cite its rules (`R4`).
//!
//! | file | what of the rule book |
//! |---|---|
//! | `state` | things (§1): what is stored, and plain questions about it |
//! | `apply` | R1 one order, R16 answers: the door for commands |
//! | `keys` | R16 idempotency keys |
//! | `checks` | the refusals of each command, in order |
//! | `bids` | what the tenants' commands do (R2, R14) |
//! | `offers` | what the providers' commands do (R11, R17) |
//! | `nodes` | the life of an allocation: begun, noticed, claimed, rescinded, ended (R5, R7) |
//! | `displace` | R3 and R4: what a bid would take next |
//! | `gang` | R12 |
//! | `rescue` | R6 |
//! | `settle` | §3 |
//! | `price` | R8, R9 |
//! | `billing` | R15 |
//! | `reservations`, `funds` | R19 |
//! | `invariants` | §4 |

#![warn(missing_docs)]

mod apply;
mod bids;
mod billing;
mod checks;
mod displace;
mod funds;
mod gang;
pub mod invariants;
mod keys;
mod nodes;
mod offers;
mod price;
mod rescue;
mod reservations;
mod settle;
mod state;

pub use state::Model;
