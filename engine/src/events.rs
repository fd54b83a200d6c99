//! Commits, their events as messages, and who may see what of an event.

pub(crate) mod commit;
pub(crate) mod encoded;
pub mod message;
pub mod visibility;
