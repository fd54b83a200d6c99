//! Bids as messages.

use crate::projections::rows::{BidRow, BidState, Tif};
use crate::store::Labels;
use crate::wire::status::ApiError;
use kubebid_core::event::CloseReason;
use kubebid_core::views::Unfilled;
use kubebid_proto::v1;
use v1::bid::{CloseReason as WireReason, State, UnfilledReason};
use v1::place_bid_request::{OnPreemption, TimeInForce};

/// What only the exchange knows of a bid.
#[derive(Clone, Debug, Default)]
pub struct BidNow {
    pub unfilled: Option<Unfilled>,
    /// Live and under notice, by number.
    pub allocations: Vec<u64>,
}

pub fn message(row: BidRow, labels: Labels, now: BidNow) -> v1::Bid {
    let reason = now.unfilled.filter(|_| row.unmet > 0);
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
        held: row.held,
        under_notice: row.under_notice,
        claimed: row.claimed,
        unmet: row.unmet,
        unfilled_reason: reason.map(|reason| unfilled(reason).into()),
        allocations: now.allocations,
        bid_seq: row.bid_seq.0,
        placed_at_us: row.placed_at.0,
        closed_at_us: row.closed_at.map(|at| at.0),
    }
}

pub fn unfilled(reason: Unfilled) -> UnfilledReason {
    match reason {
        Unfilled::NoMarket => UnfilledReason::NoMarket,
        Unfilled::OwnSupply => UnfilledReason::OwnSupply,
        Unfilled::NoSupply => UnfilledReason::NoSupply,
        Unfilled::BelowFloor => UnfilledReason::BelowFloor,
        Unfilled::BelowNeededCeiling => UnfilledReason::BelowNeededCeiling,
        Unfilled::MinimumNotMet => UnfilledReason::MinimumNotMet,
        Unfilled::WaitingForProtectedNode => UnfilledReason::WaitingForProtectedNode,
    }
}

fn time_in_force(tif: Tif) -> TimeInForce {
    match tif {
        Tif::Gtc => TimeInForce::Gtc,
        Tif::Gtt => TimeInForce::Gtt,
        Tif::Ioc => TimeInForce::Ioc,
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
    }
}

/// The states that a list asks for.
pub fn states(asked: &[i32]) -> Result<Vec<BidState>, ApiError> {
    let known = |state: &i32| match State::try_from(*state) {
        Ok(State::Open) => Ok(BidState::Open),
        Ok(State::Closed) => Ok(BidState::Closed),
        Ok(State::Unspecified) | Err(_) => Err(ApiError::bad_field("states", "are OPEN and CLOSED")),
    };
    asked.iter().map(known).collect()
}
