//! Queries of the read model. An entry must match all conditions of a query. A condition that is a set
//! matches if it is empty or contains the value.

use super::rows::{BidState, EventPlace, NodeState};
use crate::store::Labels;
use kubebid_core::EventKind;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName, Micros};
use std::collections::BTreeSet;

/// Bids by number, ascending.
#[derive(Clone, Debug, Default)]
pub struct BidQuery {
    /// The tenant of the bid.
    pub account: Option<String>,
    /// A market that the bid names, or whose instance type it asks for.
    pub market: Option<MarketName>,
    /// The state of the bid.
    pub states: BTreeSet<BidState>,
    /// Labels that the bid has, all of them.
    pub labels: Labels,
    /// Only bids with unmet demand.
    pub unmet_only: bool,
    /// The number after which the page begins.
    pub after: u64,
    /// The most entries of the page.
    pub limit: u32,
}

/// Allocations by number, ascending.
#[derive(Clone, Debug, Default)]
pub struct AllocationQuery {
    /// The tenant or the provider of the allocation. A provider finds none by bid or label.
    pub account: Option<String>,
    /// The bid of the allocation.
    pub bid: Option<BidId>,
    /// The market of the unit.
    pub market: Option<String>,
    /// The state of the allocation.
    pub states: BTreeSet<NodeState>,
    /// Only allocations under notice that have not ended.
    pub under_notice_only: bool,
    /// Labels that the bid has, all of them.
    pub labels: Labels,
    /// The unit, as `market:provider#number`.
    pub unit: Option<String>,
    /// The number after which the page begins.
    pub after: u64,
    /// The most entries of the page.
    pub limit: u32,
}

/// Events in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// The place after which the page begins; with `newest_first` the place before which it begins.
    pub after: Option<EventPlace>,
    /// The earliest market time of the event.
    pub from: Option<Micros>,
    /// The end of the time, exclusive.
    pub to: Option<Micros>,
    /// The kind of the event.
    pub kinds: BTreeSet<EventKind>,
    /// The market of the event, or a market that the event's bid names.
    pub markets: BTreeSet<MarketName>,
    /// A bid that is a party of the event.
    pub bids: BTreeSet<BidId>,
    /// The allocation of the event.
    pub allocations: BTreeSet<AllocationId>,
    /// Labels that a bid of the event has, all of them.
    pub labels: Labels,
    /// A party of the event; events of markets concern everyone and match too. By bid, allocation and
    /// label, an account finds only what it may see of the event.
    pub account: Option<AccountName>,
    /// Newest events first.
    pub newest_first: bool,
    /// The most entries of the page.
    pub limit: u32,
}

/// Charges in their order, and running nodes by number.
#[derive(Clone, Debug, Default)]
pub struct ChargeQuery {
    /// The account that pays or is paid. A provider finds none by bid or label.
    pub account: Option<String>,
    /// The earliest time at which it was charged.
    pub from: Option<Micros>,
    /// The end of the time, exclusive.
    pub to: Option<Micros>,
    /// The market of the unit.
    pub market: Option<String>,
    /// The bid that pays.
    pub bid: Option<BidId>,
    /// The allocation that the charge is for.
    pub allocation: Option<AllocationId>,
    /// Labels that the paying bid has, all of them.
    pub labels: Labels,
    /// Leaves out the segments.
    pub brief: bool,
    /// The place after which the page begins; for running nodes see [`super::ReadModel::running`].
    pub after: Option<EventPlace>,
    /// The most entries of the page.
    pub limit: u32,
}

/// Nodes of an account that are billed at an instant, by number: those that became ready before it and ended at it or
/// later, or run.
#[derive(Clone, Debug)]
pub struct BilledNodeQuery {
    /// The tenant or the provider of the node. A provider finds none by label.
    pub account: String,
    /// The instant.
    pub at: Micros,
    /// The instant before which the segment of the answer began.
    pub segment_before: Micros,
    /// Labels that the bid has, all of them.
    pub labels: Labels,
    /// The label whose value the answer has.
    pub by_label: Option<String>,
    /// Only these allocations.
    pub allocations: BTreeSet<AllocationId>,
    /// The number after which the page begins.
    pub after: AllocationId,
    /// The most entries of the page.
    pub limit: u32,
}

/// Sums of charges of an account.
#[derive(Clone, Debug)]
pub struct StatementQuery {
    /// The account whose charges are summed, as a tenant and as a provider.
    pub account: String,
    /// The earliest time at which it was charged.
    pub from: Option<Micros>,
    /// The end of the time, exclusive.
    pub to: Option<Micros>,
    /// Labels that the paying bid has. With any label, a provider's earnings are not found.
    pub labels: Labels,
    /// The label by whose values the sums are split.
    pub by_label: Option<String>,
}
