//! The columns of the read model's tables, as the migrations create them. Rows are written and read in this order.

use crate::store::bulk::Columns;
use crate::store::bulk::Kind::{Bytes, Flag, Number, Text, Texts, Time};

/// All tables.
pub const TABLES: [&str; 9] = [
    "bids",
    "allocations",
    "offers",
    "markets",
    "price_changes",
    "charges",
    "charge_segments",
    "events",
    "event_parties",
];

/// The columns of `bids` that never change.
pub(super) const BIDS: Columns = &[
    ("bid", Number),
    ("tenant", Text),
    ("markets", Texts),
    ("instance_type", Text),
    ("min_nodes", Number),
    ("time_in_force", Text),
    ("expire_at", Time),
    ("on_preemption", Text),
    ("client_key", Text),
    ("placed_at", Time),
];

/// The columns of `bids` that change. None of them is in an index, so that PostgreSQL can update rows in place (HOT).
pub(super) const BID_STATE: Columns = &[
    ("ceiling_micros", Number),
    ("max_nodes", Number),
    ("bid_seq", Number),
    ("state", Text),
    ("close_reason", Text),
    ("closed_at", Time),
    ("held", Number),
    ("under_notice", Number),
    ("claimed", Number),
    ("unmet", Number),
];

/// The columns of `allocations` that never change.
pub(super) const ALLOCATIONS: Columns = &[
    ("allocation", Number),
    ("bid", Number),
    ("tenant", Text),
    ("unit", Text),
    ("market", Text),
    ("provider", Text),
    ("allocated_at", Time),
];

/// The columns of `allocations` that change. Until an allocation ends, none of them changes an index.
pub(super) const ALLOCATION_STATE: Columns = &[
    ("state", Text),
    ("start_by", Time),
    ("ready_at", Time),
    ("protected_until", Time),
    ("notice_reason", Text),
    ("notice_started_at", Time),
    ("notice_deadline", Time),
    ("ended_at", Time),
    ("end_reason", Text),
    ("last_price_micros", Number),
];

pub(super) const OFFERS: Columns = &[
    ("provider", Text),
    ("market", Text),
    ("capacity", Number),
    ("reserve_micros", Number),
    ("put_at", Time),
];

pub(super) const MARKETS: Columns = &[("market", Text), ("number", Number), ("opened_at", Time)];

pub(super) const PRICE_CHANGES: Columns = &[
    ("market", Text),
    ("at", Time),
    ("seq", Number),
    ("idx", Number),
    ("market_price_micros", Number),
    ("entry_price_micros", Number),
    ("floor_micros", Number),
    ("lowest_accepted_micros", Number),
    ("highest_losing_micros", Number),
];

pub(super) const CHARGES: Columns = &[
    ("seq", Number),
    ("idx", Number),
    ("at", Time),
    ("allocation", Number),
    ("bid", Number),
    ("tenant", Text),
    ("provider", Text),
    ("unit", Text),
    ("market", Text),
    ("own", Flag),
    ("reason", Text),
    ("from_at", Time),
    ("to_at", Time),
    ("debit_micros", Number),
    ("fee_micros", Number),
    ("credit_micros", Number),
];

pub(super) const CHARGE_SEGMENTS: Columns = &[
    ("allocation", Number),
    ("claim_seq", Number),
    ("claim_idx", Number),
    ("from_at", Time),
    ("to_at", Time),
    ("amount_micros", Number),
    ("fee_micros", Number),
    ("mean_price_micros", Number),
    ("min_charge", Flag),
    ("total_micros", Number),
    ("total_fee_micros", Number),
    ("remainder", Number),
];

pub(super) const EVENTS: Columns = &[
    ("seq", Number),
    ("idx", Number),
    ("at", Time),
    ("kind", Text),
    ("reason", Text),
    ("market", Text),
    ("unit", Text),
    ("allocation", Number),
    ("bid", Number),
    ("tenant", Text),
    ("provider", Text),
    ("claimant_bid", Number),
    ("claimant", Text),
    ("former_claimant_bid", Number),
    ("former_claimant", Text),
    ("sender", Text),
    ("message", Bytes),
];

pub(super) const EVENT_PARTIES: Columns =
    &[("account", Text), ("bid", Number), ("seq", Number), ("idx", Number), ("at", Time)];
