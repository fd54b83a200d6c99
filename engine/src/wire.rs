//! Converts between messages of the wire format and types of the domain.

pub mod admin;
pub mod allocation;
pub mod bid;
pub(crate) mod billing;
pub mod command;
pub mod cursor;
pub(crate) mod echo;
pub mod lists;
pub(crate) mod market;
pub mod offer;
pub mod page;
pub(crate) mod pieces;
pub mod refusal;
pub mod status;
pub mod text;
