//! What to do, as pure functions of what was seen. Nothing here talks to anybody or asks the time.

pub mod count;
pub mod demand;
pub mod drain;
pub mod price;
pub mod slot;
pub mod status;
