//! Converts bids.

use crate::readmodel::rows::{BidRow, BidState, StoredTimeInForce};
use crate::store::Labels;
use crate::wire::lists;
use crate::wire::status::ApiError;
use kubebid_core::event::CloseReason;
use kubebid_core::units::AllocationId;
use kubebid_core::views::{BidView, Unfilled};
use kubebid_proto::v1;
use std::collections::BTreeSet;
use v1::bid::{CloseReason as WireReason, State, UnfilledReason};
use v1::place_bid_request::{OnPreemption, TimeInForce};

/// Returns a bid with what the exchange knows of it now, which may be a moment ahead of the row. All
/// counts of what it holds and wants are of the same moment.
pub(crate) fn message(row: BidRow, labels: Labels, now: Option<&BidView>, why: Option<Unfilled>) -> v1::Bid {
    let counts = now.map(|now| {
        let count = |nodes: &[AllocationId]| u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        (count(&now.live), count(&now.under_notice), count(&now.claims), now.unmet)
    });
    let counts = counts.unwrap_or((row.held, row.under_notice, row.claimed, row.unmet));
    let (held, under_notice, claimed, unmet) = counts;
    let nodes = now.iter().flat_map(|now| now.live.iter().chain(&now.under_notice));
    let mut allocations: Vec<u64> = nodes.map(|node| node.0).collect();
    allocations.sort_unstable();
    v1::Bid {
        bid: row.bid.0,
        tenant: row.tenant,
        markets: row.markets,
        instance_type: row.instance_type,
        ceiling_micros: row.ceiling.0,
        min_nodes: row.min_nodes,
        max_nodes: row.max_nodes,
        time_in_force: time_in_force(row.time_in_force).into(),
        expire_at_us: row.expire_at.map(|at| at.0),
        on_preemption: on_preemption(row.closes_on_preemption).into(),
        labels,
        client_key: row.client_key,
        state: state(row.state).into(),
        close_reason: row.close_reason.map(|reason| close_reason(reason).into()),
        held,
        under_notice,
        claimed,
        unmet,
        unfilled_reason: why.map(|reason| unfilled(reason).into()),
        allocations,
        bid_seq: row.bid_seq.0,
        placed_at_us: row.placed_at.0,
        closed_at_us: row.closed_at.map(|at| at.0),
        // It is added for a single bid.
        node_config: None,
        ceiling_locked_until_us: now.and_then(|now| now.ceiling_locked_until).map(|until| until.0),
    }
}

/// Returns the wire word for why a bid lacks nodes.
pub(crate) fn unfilled(reason: Unfilled) -> UnfilledReason {
    match reason {
        Unfilled::NoMarket => UnfilledReason::NoMarket,
        Unfilled::OwnSupply => UnfilledReason::OwnSupply,
        Unfilled::NoSupply => UnfilledReason::NoSupply,
        Unfilled::BelowFloor => UnfilledReason::BelowFloor,
        Unfilled::BelowNeededCeiling => UnfilledReason::BelowNeededCeiling,
        Unfilled::MinimumNotMet => UnfilledReason::MinimumNotMet,
        Unfilled::NoFunds => UnfilledReason::NoFunds,
        Unfilled::WaitingForProtectedNode => UnfilledReason::WaitingForProtectedNode,
    }
}

fn time_in_force(tif: StoredTimeInForce) -> TimeInForce {
    match tif {
        StoredTimeInForce::Gtc => TimeInForce::Gtc,
        StoredTimeInForce::Gtt => TimeInForce::Gtt,
        StoredTimeInForce::Ioc => TimeInForce::Ioc,
    }
}

fn on_preemption(closes: bool) -> OnPreemption {
    if closes { OnPreemption::Close } else { OnPreemption::Requeue }
}

fn state(state: BidState) -> State {
    match state {
        BidState::Open => State::Open,
        BidState::Closed => State::Closed,
    }
}

fn close_reason(reason: CloseReason) -> WireReason {
    match reason {
        CloseReason::Expired => WireReason::Expired,
        CloseReason::Ioc => WireReason::Ioc,
        CloseReason::Cancelled => WireReason::Cancelled,
        CloseReason::Done => WireReason::Done,
        CloseReason::MarketClosed => WireReason::MarketClosed,
    }
}

/// Reads the states that a list asks for.
pub(crate) fn states(asked: Vec<i32>) -> Result<BTreeSet<BidState>, ApiError> {
    let known = |state: &i32| match State::try_from(*state) {
        Ok(State::Open) => Ok(BidState::Open),
        Ok(State::Closed) => Ok(BidState::Closed),
        Ok(State::Unspecified) | Err(_) => Err(ApiError::bad_field("states", "are OPEN and CLOSED")),
    };
    lists::distinct("ListBidsRequest.states", "states", asked)?.iter().map(known).collect()
}
