//! Plans the next step, as pure functions of what was observed. Nothing here does I/O or asks for the time.

pub mod count;
pub mod demand;
pub mod drain;
pub mod price;
pub mod slot;
pub mod status;
