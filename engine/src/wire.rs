//! Between the messages of the wire and the words of the market: nobody else converts.

pub(crate) mod billing;
pub mod cursor;
pub mod event;
pub(crate) mod market;
pub mod page;
pub mod status;
