//! Questions about the market. They read and change nothing.

mod depth;
mod dump;
mod unfilled;
pub mod views;
