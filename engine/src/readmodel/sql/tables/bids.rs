//! Rows of bids.

use crate::readmodel::fold::BidRecord;
use crate::readmodel::rows::{BidState, StoredTimeInForce};
use crate::readmodel::sql::schema::{BID_STATE, BIDS};
use crate::readmodel::sql::words::Word;
use crate::store::bulk::{Bulk, Change, How, Kind::Number, Row};
use kubebid_core::units::BidId;

/// Adds the bids that were placed.
pub(super) fn place(bids: &[(BidId, &BidRecord<'_>)]) -> Change {
    let mut rows = Bulk::new(&[BIDS, BID_STATE], bids.len());
    for (bid, record) in bids {
        let Some(placed) = &record.placed else { continue };
        let view = record.view;
        let mut row = rows.row();
        row.number(bid.0).text(placed.tenant.as_str());
        row.texts(placed.scope.markets()).some_text(placed.scope.instance_type());
        row.number(view.min_nodes.into())
            .text(StoredTimeInForce::word(placed.time_in_force))
            .some_time(view.expire_at);
        row.text(if view.closes_on_preemption { CLOSE } else { REQUEUE });
        row.some_text(placed.client_key.map(|key| key.as_str())).time(placed.at);
        state(&mut row, record);
    }
    Change { how: How::Append("bids"), rows }
}

/// Updates the bids that were placed before these commits. A bid keeps the reason and the time of its end.
pub(super) fn touch(bids: &[(BidId, &BidRecord<'_>)]) -> Change {
    let mut rows = Bulk::new(&[&[("bid", Number)], BID_STATE], bids.len());
    for (bid, record) in bids {
        let mut row = rows.row();
        row.number(bid.0);
        state(&mut row, record);
    }
    Change {
        how: How::Statement(
            "UPDATE bids SET
                  ceiling_micros = v.ceiling_micros, max_nodes = v.max_nodes, bid_seq = v.bid_seq,
                  state = v.state, close_reason = COALESCE(v.close_reason, bids.close_reason),
                  closed_at = COALESCE(v.closed_at, bids.closed_at), held = v.held,
                  under_notice = v.under_notice, claimed = v.claimed, unmet = v.unmet
              FROM v WHERE bids.bid = v.bid",
        ),
        rows,
    }
}

/// The words of `on_preemption`.
pub(in crate::readmodel::sql) const CLOSE: &str = "CLOSE";
const REQUEUE: &str = "REQUEUE";

/// Fills the columns [`BID_STATE`].
fn state(row: &mut Row<'_>, record: &BidRecord<'_>) {
    let view = record.view;
    let state = if view.searching { BidState::Open } else { BidState::Closed };
    row.number(view.ceiling.0).number(view.max_nodes.into()).number(view.bid_seq.0).text(state.word());
    row.some_text(record.closed.map(|(_, reason)| reason.word())).some_time(record.closed.map(|(at, _)| at));
    row.number(view.live.len() as u64).number(view.under_notice.len() as u64);
    row.number(view.claims.len() as u64).number(view.unmet.into());
}
