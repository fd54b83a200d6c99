//! Between the messages of the wire and the words of the market: nobody else converts.

pub mod event;
pub mod page;
pub mod status;
