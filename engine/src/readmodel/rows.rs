//! The rows that queries return, complete. The caller decides who may see what.

use crate::events::message::Parties;
use kubebid_core::event::{ChargeReason, CloseReason, EndReason, NoticeReason};
use kubebid_core::money::{Amount, Price};
use kubebid_core::numbers::Numbers;
use kubebid_core::units::{AllocationId, BidId, Micros, Seq};
use kubebid_proto::v1;

/// A bid as it is at the watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BidRow {
    pub bid: BidId,
    pub tenant: String,
    /// Markets in the tenant's order; empty for an instance type.
    pub markets: Vec<String>,
    pub instance_type: Option<String>,
    pub ceiling: Price,
    pub min_nodes: u32,
    pub max_nodes: u32,
    pub time_in_force: Tif,
    pub expire_at: Option<Micros>,
    pub closes_on_preemption: bool,
    pub client_key: Option<String>,
    pub bid_seq: Seq,
    pub placed_at: Micros,
    pub state: BidState,
    pub close_reason: Option<CloseReason>,
    pub closed_at: Option<Micros>,
    pub held: u32,
    pub under_notice: u32,
    pub claimed: u32,
    pub unmet: u32,
}

/// The time in force of a bid (R14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tif {
    Gtc,
    Gtt,
    Ioc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BidState {
    Open,
    Closed,
}

/// An allocation as it is at the watermark; an ended one as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationRow {
    pub allocation: AllocationId,
    pub bid: BidId,
    pub tenant: String,
    pub unit: String,
    pub market: String,
    pub provider: String,
    pub state: NodeState,
    pub allocated_at: Micros,
    pub start_by: Micros,
    pub ready_at: Option<Micros>,
    pub protected_until: Micros,
    /// The notice; for an ended allocation the one it ended under.
    pub notice: Option<NoticeRow>,
    pub ended_at: Option<Micros>,
    pub end_reason: Option<EndReason>,
    /// The last price of an ended allocation, per node-hour. The exchange knows that of others.
    pub last_price: Option<Price>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    Starting,
    Active,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoticeRow {
    pub reason: NoticeReason,
    pub started_at: Micros,
    pub deadline: Micros,
}

/// An offer as it was last put; what became of its units since is the exchange's to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferRow {
    pub provider: String,
    pub market: String,
    pub capacity: u64,
    pub reserve: Price,
    pub put_at: Micros,
}

/// An event in full, and whom it concerns: see [`crate::events::visibility::redact`].
#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    pub seq: Seq,
    pub index: u32,
    pub at: Micros,
    pub parties: Parties,
    pub event: v1::Event,
}

/// The place of an event or a charge: the command, and the place among its events.
pub type Place = (u64, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PricePoint {
    pub seq: Seq,
    pub index: u32,
    pub at: Micros,
    pub numbers: Numbers,
}

/// The market price over a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceBar {
    pub start: Micros,
    pub open: Price,
    pub high: Price,
    pub low: Price,
    pub close: Price,
    /// Weighted by time, rounded down.
    pub mean: Price,
    /// The number of changes of any of the five numbers.
    pub changes: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeRow {
    pub seq: Seq,
    pub index: u32,
    /// The time at which it was charged.
    pub at: Micros,
    pub allocation: AllocationId,
    /// The bid that pays.
    pub bid: BidId,
    /// The tenant that pays.
    pub tenant: String,
    pub provider: String,
    pub unit: String,
    pub market: String,
    /// True if the payer holds the allocation: with `CLAIM_DROPPED` it is mostly someone else's.
    pub own: bool,
    pub reason: ChargeReason,
    /// The billed time.
    pub from: Micros,
    pub to: Micros,
    pub debit: Amount,
    pub fee: Amount,
    pub credit: Amount,
    /// Oldest first; empty where the question was brief.
    pub segments: Vec<Segment>,
}

/// Billed time within one hour, or a minimum charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub from: Micros,
    pub to: Micros,
    /// The exact sum up to its end rounded down, less that up to its beginning.
    pub amount: Amount,
    /// Per node-hour, weighted by time, rounded down.
    pub mean_price: Price,
    pub min_charge: bool,
}

/// A node that is being billed, with what it had cost at the last full hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningRow {
    pub allocation: AllocationId,
    pub bid: BidId,
    pub tenant: String,
    pub provider: String,
    pub unit: String,
    pub market: String,
    pub ready_at: Micros,
    /// Oldest first, up to the last full hour; empty where the question was brief.
    pub segments: Vec<Segment>,
    /// The beginning of the next segment.
    pub mark: Mark,
}

/// The exact cost of a node at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub at: Micros,
    pub bill: kubebid_core::money::Bill,
}

/// The sums of an account in one market, or in one market for one value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementRow {
    pub market: String,
    /// Absent where it was not split, for bids without the label, and for what a provider earned.
    pub label_value: Option<String>,
    /// The debits as a tenant.
    pub debit: Amount,
    /// The credits as a provider.
    pub credit: Amount,
    /// The fees taken from its credits.
    pub fee: Amount,
    /// Billed time of its charges on either side, summed over the nodes.
    pub node_time_us: u128,
}
