//! Executes commands: for each its checks, in the order of the refusal table, then its effects.

mod allocations;
mod bids;
mod funds;
mod markets;
mod offers;
