//! Converts allocations, with the fields that each party may see.

use crate::events::visibility::Viewer;
use crate::readmodel::rows::{AllocationRow, NodeState, NoticeRow};
use crate::store::Labels;
use crate::wire::lists;
use crate::wire::status::ApiError;
use kubebid_core::Price;
use kubebid_core::event::{EndReason, NoticeReason};
use kubebid_core::views::AllocationView;
use kubebid_proto::v1;
use std::collections::BTreeSet;
use v1::allocation::{EndReason as WireEnd, State};
use v1::notice::Reason;

/// The part of an allocation that only the exchange knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllocationNow {
    /// The allocation as it is now. Absent if it has ended.
    pub(crate) view: Option<AllocationView>,
    /// The ceiling of its bid.
    pub(crate) ceiling: Option<Price>,
}

/// Returns the allocation as the viewer may see it; `None` if the viewer is neither its tenant nor its provider.
pub(crate) fn message(
    row: AllocationRow,
    labels: Labels,
    now: AllocationNow,
    viewer: &Viewer,
) -> Option<v1::Allocation> {
    let is_tenant = viewer.sees(&row.tenant);
    if !is_tenant && !viewer.sees(&row.provider) {
        return None;
    }
    let view = now.view.as_ref();
    let ended = row.state == NodeState::Ended;
    let price = row.last_price.filter(|_| ended).or(view.map(|view| view.price));
    let price_to_stay = view.and_then(|view| view.notice?.price_to_stay);
    let notice = row.notice.filter(|_| !ended);
    Some(v1::Allocation {
        allocation: row.allocation.0,
        bid: is_tenant.then_some(row.bid.0),
        tenant: is_tenant.then_some(row.tenant),
        unit: row.unit,
        market: row.market,
        provider: row.provider,
        state: state(row.state).into(),
        price_micros: price.map_or(0, |price| price.0),
        ceiling_micros: now.ceiling.filter(|_| is_tenant).map(|ceiling| ceiling.0),
        protected_until_us: row.protected_until.0,
        notice: notice.map(|notice| notice_message(notice, price_to_stay, is_tenant)),
        labels: if is_tenant { labels } else { Labels::new() },
        allocated_at_us: row.allocated_at.0,
        start_by_us: (row.ready_at.is_none()).then_some(row.start_by.0),
        ready_at_us: row.ready_at.map(|at| at.0),
        ended_at_us: row.ended_at.map(|at| at.0),
        end_reason: row.end_reason.map(|reason| end_reason(reason, is_tenant).into()),
        // They are added for a single allocation.
        node_config: None,
        access: None,
    })
}

fn notice_message(notice: NoticeRow, price_to_stay: Option<Price>, is_tenant: bool) -> v1::Notice {
    v1::Notice {
        reason: notice_reason(notice.reason, is_tenant).into(),
        started_at_us: notice.started_at.0,
        deadline_us: notice.deadline.0,
        price_to_stay_micros: price_to_stay.filter(|_| is_tenant).map(|price| price.0),
        rescindable: price_to_stay.is_some(),
    }
}

fn state(state: NodeState) -> State {
    match state {
        NodeState::Starting => State::Starting,
        NodeState::Active => State::Active,
        NodeState::Ended => State::Ended,
    }
}

/// Returns the reason of a notice. That its account lacks money is for the tenant alone (R19).
fn notice_reason(reason: NoticeReason, is_tenant: bool) -> Reason {
    match reason {
        NoticeReason::Outbid => Reason::Outbid,
        NoticeReason::CapacityWithdrawn => Reason::CapacityWithdrawn,
        NoticeReason::ReserveRaised => Reason::ReserveRaised,
        NoticeReason::Funds if is_tenant => Reason::Funds,
        NoticeReason::Funds => Reason::Other,
    }
}

fn end_reason(reason: EndReason, is_tenant: bool) -> WireEnd {
    match reason {
        EndReason::Outbid => WireEnd::Outbid,
        EndReason::CapacityWithdrawn => WireEnd::CapacityWithdrawn,
        EndReason::ReserveRaised => WireEnd::ReserveRaised,
        EndReason::Released => WireEnd::Released,
        EndReason::Regrouped => WireEnd::Regrouped,
        EndReason::UnitLost => WireEnd::UnitLost,
        EndReason::StartTimeout => WireEnd::StartTimeout,
        EndReason::Funds if is_tenant => WireEnd::Funds,
        EndReason::Funds => WireEnd::Other,
    }
}

/// Reads the states that a list asks for.
pub(crate) fn states(asked: Vec<i32>) -> Result<BTreeSet<NodeState>, ApiError> {
    let known = |state: &i32| match State::try_from(*state) {
        Ok(State::Starting) => Ok(NodeState::Starting),
        Ok(State::Active) => Ok(NodeState::Active),
        Ok(State::Ended) => Ok(NodeState::Ended),
        Ok(State::Unspecified) | Err(_) => {
            Err(ApiError::bad_field("states", "are STARTING, ACTIVE and ENDED"))
        }
    };
    lists::distinct("ListAllocationsRequest.states", "states", asked)?.iter().map(known).collect()
}
