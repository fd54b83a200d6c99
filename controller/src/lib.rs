//! A library of controllers for Kubernetes. It knows nothing about the market.
//!
//! A controller is a [`Reconciler`]: it is given an object, compares it with the world, and writes what is different. The
//! library does the rest: it watches ([`watch`]), decides when an object is reconciled again ([`rate_limiter`]), writes
//! ([`writer`]), elects a leader ([`leader_election`]) and tells people ([`events`], [`conditions`]).
//!
//! Two shapes are written once: [`phased`] for an object that moves through steps, and [`composite`] for one that stands
//! for a set of child objects.

#![warn(missing_docs)]
// `println!` panics if nothing can be written: see `output.rs`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod api_error;
pub mod applied;
pub mod clock;
pub mod composite;
pub mod conditions;
pub mod config_file;
pub mod events;
pub mod external;
pub mod failpoint;
pub mod index;
pub mod leader_election;
pub mod manager;
pub mod metrics;
pub mod object;
pub mod ops;
pub mod output;
pub mod phased;
pub mod process;
pub mod rate_limiter;
pub mod reconciler;
pub mod uninstall;
pub mod watch;
pub mod write_cache;
pub mod writer;

pub use manager::{ControllerOptions, Manager, Options};
pub use object::{Object, ObjectName};
pub use reconciler::{Action, Context, Error, Reconciler, ReconcilerError};
pub use watch::{Wakes, Watch, Watches};
pub use writer::Writer;
