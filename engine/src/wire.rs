//! Converts between messages of the wire format and types of the domain.

pub(crate) mod access;
pub(crate) mod admin;
pub(crate) mod allocation;
pub(crate) mod bid;
pub(crate) mod billing;
pub mod command;
pub mod cursor;
pub(crate) mod echo;
pub mod lists;
pub(crate) mod market;
pub(crate) mod offer;
pub(crate) mod page;
pub(crate) mod pieces;
pub(crate) mod refusal;
pub mod status;
pub(crate) mod text;
