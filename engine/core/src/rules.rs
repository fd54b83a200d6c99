//! The rules of the market at work: how bids get nodes, keep them, lose them and pay for them.

mod allocation;
mod billing;
mod candidates;
mod check;
mod due;
pub(crate) mod funds;
mod index;
mod preemption;
mod price;
mod renewals;
mod settle;
