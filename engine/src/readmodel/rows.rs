//! The rows that queries return, complete. The caller decides what to show to whom.

use crate::events::message::Parties;
use kubebid_core::event::{ChargeReason, CloseReason, EndReason, NoticeReason};
use kubebid_core::money::{Amount, Price};
use kubebid_core::numbers::Numbers;
use kubebid_core::units::{AllocationId, BidId, Micros, Seq};
use kubebid_proto::v1;

/// A bid as it is at the watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BidRow {
    /// The bid's number, which is that of the command that placed it.
    pub bid: BidId,
    /// The account that placed it.
    pub tenant: String,
    /// The markets that the bid names, in its tenant's order. Empty if it names an instance type.
    pub markets: Vec<String>,
    /// The instance type, if the bid names one instead of markets.
    pub instance_type: Option<String>,
    /// The most it pays per node-hour.
    pub ceiling: Price,
    /// The nodes that it takes at least at entry (R12).
    pub min_nodes: u32,
    /// The nodes that it takes at most.
    pub max_nodes: u32,
    /// The time for which it searches.
    pub time_in_force: StoredTimeInForce,
    /// The time at which its search ends, if it has one.
    pub expire_at: Option<Micros>,
    /// True if a notice lowers `max_nodes` (`CLOSE`, R7).
    pub closes_on_preemption: bool,
    /// The client key of the command that placed it.
    pub client_key: Option<String>,
    /// The number of the command that gave the bid its place (R2).
    pub bid_seq: Seq,
    /// The market time at which it was placed.
    pub placed_at: Micros,
    /// The state: it searches or is closed.
    pub state: BidState,
    /// Why its search ended.
    pub close_reason: Option<CloseReason>,
    /// The time at which its search ended.
    pub closed_at: Option<Micros>,
    /// The nodes that it holds and that are not under notice.
    pub held: u32,
    /// The nodes that it holds under notice.
    pub under_notice: u32,
    /// The units on which it has a claim.
    pub claimed: u32,
    /// The nodes that it still lacks; 0 once it is closed.
    pub unmet: u32,
}

/// The time in force of a bid (R14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredTimeInForce {
    /// Good till cancelled.
    Gtc,
    /// Good till a time.
    Gtt,
    /// Immediate or cancel.
    Ioc,
}

/// The state of a bid (R14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BidState {
    /// It searches.
    Open,
    /// Its search has ended. It may hold nodes all the same.
    Closed,
}

/// An allocation as it is at the watermark. One that has ended is as it was at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationRow {
    /// The allocation's number.
    pub allocation: AllocationId,
    /// The bid that holds the unit.
    pub bid: BidId,
    /// The account that placed the bid.
    pub tenant: String,
    /// The unit, as `market:provider#number`.
    pub unit: String,
    /// The market of the unit.
    pub market: String,
    /// The account that offers the unit.
    pub provider: String,
    /// The state of the allocation.
    pub state: NodeState,
    /// The market time at which it began.
    pub allocated_at: Micros,
    /// The time by which it must be ready (R11).
    pub start_by: Micros,
    /// The time at which it was reported ready.
    pub ready_at: Option<Micros>,
    /// The end of its protection (R4).
    pub protected_until: Micros,
    /// The notice; for an ended allocation the one it ended under.
    pub notice: Option<NoticeRow>,
    /// The time at which it ended.
    pub ended_at: Option<Micros>,
    /// Why it ended.
    pub end_reason: Option<EndReason>,
    /// The last price of an ended allocation, per node-hour. Only the exchange knows the price of a
    /// running one.
    pub last_price: Option<Price>,
}

/// The state of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    /// Not reported ready yet.
    Starting,
    /// Reported ready: it is billed.
    Active,
    /// It has ended: released, lost, timed out, or at the deadline of a notice.
    Ended,
}

/// A notice of an allocation (R5, R11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoticeRow {
    /// Why the notice was given.
    pub reason: NoticeReason,
    /// The time of the notice.
    pub started_at: Micros,
    /// The time at which the allocation ends.
    pub deadline: Micros,
}

/// An offer as it was last put. Only the exchange knows what has become of its units since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferRow {
    /// The account that offers.
    pub provider: String,
    /// The market.
    pub market: String,
    /// The number of units.
    pub capacity: u64,
    /// The least it asks per node-hour.
    pub reserve: Price,
    /// The market time at which it was put.
    pub put_at: Micros,
}

/// An event in full, with the accounts that it concerns: see [`crate::events::visibility::redact`].
#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// The number of its command.
    pub seq: Seq,
    /// Its index among the events of the command.
    pub index: u32,
    /// The market time at which it happened.
    pub at: Micros,
    /// The accounts that it concerns.
    pub parties: Parties,
    /// The message.
    pub event: v1::Event,
}

/// The place of an event or a charge: the number of the command, and the index among its events.
pub type EventPlace = (u64, u32);

/// A change of a market's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PricePoint {
    /// The number of the command that caused it.
    pub seq: Seq,
    /// The index among the events of the command.
    pub index: u32,
    /// The market time of the change.
    pub at: Micros,
    /// The five numbers after the change (R9).
    pub numbers: Numbers,
}

/// The market price over a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceBar {
    /// The beginning of the bar, a multiple of its length.
    pub start: Micros,
    /// The price at the beginning.
    pub open: Price,
    /// The highest price.
    pub high: Price,
    /// The lowest price.
    pub low: Price,
    /// The price at the end.
    pub close: Price,
    /// The mean price, weighted by time and rounded down.
    pub mean: Price,
    /// The number of changes of any of the five numbers.
    pub changes: u32,
}

/// A charge of a node or of a claim (R15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeRow {
    /// The number of the command that charged it.
    pub seq: Seq,
    /// The index among the events of the command.
    pub index: u32,
    /// The market time at which it was charged.
    pub at: Micros,
    /// The allocation; for a charge of a claim, the one that the claim was on.
    pub allocation: AllocationId,
    /// The bid that pays.
    pub bid: BidId,
    /// The tenant that pays.
    pub tenant: String,
    /// The account that offers the unit.
    pub provider: String,
    /// The unit, as `market:provider#number`.
    pub unit: String,
    /// The market of the unit.
    pub market: String,
    /// True if the payer holds the allocation. With `CLAIM_DROPPED` another tenant usually does.
    pub own: bool,
    /// Why it was charged.
    pub reason: ChargeReason,
    /// The beginning of the billed time.
    pub from: Micros,
    /// The end of the billed time.
    pub to: Micros,
    /// The amount that the tenant pays.
    pub debit: Amount,
    /// The operator's fee.
    pub fee: Amount,
    /// The amount that the provider gets: debit less fee.
    pub credit: Amount,
    /// The segments, oldest first. Empty if the query was brief.
    pub segments: Vec<Segment>,
}

/// Billed time within one hour, or a minimum charge. One without any length only moves the fee, which changed
/// after the last full hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The beginning.
    pub from: Micros,
    /// The end.
    pub to: Micros,
    /// The amount that the segment adds to the bill: the exact sum up to its end, rounded down, less
    /// the one up to its beginning.
    pub amount: Amount,
    /// The part of the amount that is the operator's fee, in micro-dollars: the fee of the bill up to the end less
    /// that up to the beginning. Below 0 after the fee was lowered, because a charge has one fee for all of it.
    pub fee: i64,
    /// The mean price per node-hour, weighted by time and rounded down.
    pub mean_price: Price,
    /// True if the segment is not billed time but what is missing from the minimum charge.
    pub min_charge: bool,
}

/// A node that is being billed, with what it had cost at the last full hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningRow {
    /// The allocation's number.
    pub allocation: AllocationId,
    /// The bid that holds the unit.
    pub bid: BidId,
    /// The account that pays.
    pub tenant: String,
    /// The account that offers the unit.
    pub provider: String,
    /// The unit, as `market:provider#number`.
    pub unit: String,
    /// The market of the unit.
    pub market: String,
    /// The time at which its billing began.
    pub ready_at: Micros,
    /// The segments up to the last full hour, oldest first. Empty if the query was brief.
    pub segments: Vec<Segment>,
    /// The mark at which the next segment begins.
    pub mark: Mark,
}

/// The exact cost of a node at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The instant, in market time.
    pub at: Micros,
    /// The cost of the node up to then, not rounded.
    pub bill: kubebid_core::money::Bill,
    /// The operator's fee of that cost, by the rules of that instant.
    pub fee: Amount,
}

/// The cost of a node up to an instant, in whole micro-dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The amount that the tenant pays.
    pub debit: Amount,
    /// The operator's part of it.
    pub fee: Amount,
    /// The billed time.
    pub time: Micros,
}

/// A node that is billed at an instant, with the last of its segments that began before the instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BilledNode {
    /// The allocation's number.
    pub allocation: AllocationId,
    /// The account that pays.
    pub tenant: String,
    /// The account that offers the unit.
    pub provider: String,
    /// The market of the unit.
    pub market: String,
    /// The value of the label by which the query splits, if the bid has it.
    pub label_value: Option<String>,
    /// The time at which its billing began.
    pub ready_at: Micros,
    /// The time at which it ended.
    pub ended_at: Option<Micros>,
    /// The two ends of that segment. Absent if no full hour has passed yet.
    pub segment: Option<(CostMark, CostMark)>,
    /// The whole cost, once it is charged. Absent while the node runs, and if it was free of charge.
    pub charge: Option<Cost>,
}

/// The cost of a node at an instant, as amounts: what [`Mark`] has, rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostMark {
    /// The instant, in market time.
    pub at: Micros,
    /// The amount that the tenant pays up to then.
    pub debit: Amount,
    /// The operator's part of it.
    pub fee: Amount,
}

/// The sums of an account in one market, or in one market for one value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementRow {
    /// The market.
    pub market: String,
    /// The value of the label. Absent if the sums were not split, for bids without the label, and for
    /// a provider's earnings.
    pub label_value: Option<String>,
    /// The debits as a tenant.
    pub debit: Amount,
    /// The credits as a provider.
    pub credit: Amount,
    /// The fees taken from its credits.
    pub fee: Amount,
    /// The billed time of its charges on both sides, summed over the nodes, in microseconds.
    pub node_time_us: u128,
}
