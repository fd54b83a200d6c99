//! Authentication by API tokens, permissions and limits. The store keeps only the SHA-256 of a token.
//!
//! A token is 256 random bits. It is found by its hash in a table in memory, so the time of a look-up
//! reveals nothing about a token. The table is read again after every change made here, and every few
//! seconds because other programs may change it too.

pub(crate) mod audit;
mod bootstrap;
pub(crate) mod caller;
mod directory;
pub(crate) mod held;
pub mod limits;
pub(crate) mod methods;
pub mod policy;
mod secret;

pub use bootstrap::{BootstrapError, bootstrap, bootstrap_admin};
pub use directory::{Auth, Session};
pub(crate) use directory::{Authenticated, LimitState, Origin};
pub use secret::Secret;
