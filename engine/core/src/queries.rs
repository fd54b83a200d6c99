//! Questions about the market. They read and change nothing.

mod accounts;
mod depth;
mod dump;
mod funds;
mod market_quote;
mod refusal_detail;
mod unfilled;
pub mod views;
