//! Queries of the read model. All conditions of a query must hold; of a list, one entry.

use super::rows::{BidState, NodeState, Place};
use crate::store::Labels;
use kubebid_core::EventKind;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName, Micros};
use std::collections::BTreeSet;

/// Bids by number, ascending.
#[derive(Clone, Debug, Default)]
pub struct BidQuery {
    /// Its tenant.
    pub account: Option<String>,
    /// One that it names, or that is of its instance type.
    pub market: Option<MarketName>,
    pub states: BTreeSet<BidState>,
    pub labels: Labels,
    pub unmet_only: bool,
    /// The number after which the page begins.
    pub after: u64,
    pub limit: u32,
}

/// Allocations by number, ascending.
#[derive(Clone, Debug, Default)]
pub struct AllocationQuery {
    /// Its tenant, or its provider. A provider finds none by bid or label.
    pub account: Option<String>,
    pub bid: Option<BidId>,
    pub market: Option<String>,
    pub states: BTreeSet<NodeState>,
    /// And not ended.
    pub under_notice_only: bool,
    pub labels: Labels,
    pub unit: Option<String>,
    /// The number after which the page begins.
    pub after: u64,
    pub limit: u32,
}

/// Events in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// The place after which the page begins; with `newest_first` the place before which it begins.
    pub after: Option<Place>,
    pub from: Option<Micros>,
    /// Exclusive.
    pub to: Option<Micros>,
    pub kinds: BTreeSet<EventKind>,
    /// Events of these markets, and of bids that name them.
    pub markets: BTreeSet<MarketName>,
    pub bids: BTreeSet<BidId>,
    pub allocations: BTreeSet<AllocationId>,
    pub labels: Labels,
    /// A party of the event, or none for events of markets, which concern everyone. An account finds by
    /// bid, allocation and label only what it can see of the event.
    pub account: Option<AccountName>,
    pub newest_first: bool,
    pub limit: u32,
}

/// Charges in their order, and running nodes by number.
#[derive(Clone, Debug, Default)]
pub struct ChargeQuery {
    /// The account that pays or is paid. A provider finds none by bid or label.
    pub account: Option<String>,
    /// The time at which it was charged.
    pub from: Option<Micros>,
    /// Exclusive.
    pub to: Option<Micros>,
    pub market: Option<String>,
    pub bid: Option<BidId>,
    pub allocation: Option<AllocationId>,
    pub labels: Labels,
    /// Without segments.
    pub brief: bool,
    /// The place after which the page begins; for running nodes see [`super::ReadModel::running`].
    pub after: Option<Place>,
    pub limit: u32,
}

/// Sums of charges of an account.
#[derive(Clone, Debug)]
pub struct StatementQuery {
    pub account: String,
    /// The time at which it was charged.
    pub from: Option<Micros>,
    /// Exclusive.
    pub to: Option<Micros>,
    /// The labels of the bids that paid. With any, no earnings of a provider are found.
    pub labels: Labels,
    /// Split by the value of this label.
    pub by_label: Option<String>,
}
