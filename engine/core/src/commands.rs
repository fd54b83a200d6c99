//! Executes commands: for each its checks, in the order of the refusal table, then its effects.

mod allocations;
mod bids;
mod markets;
mod offers;
