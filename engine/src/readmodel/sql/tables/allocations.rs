//! Rows of allocations.

use crate::readmodel::fold::{AllocationRecord, Last};
use crate::readmodel::sql::schema::{ALLOCATION_STATE, ALLOCATIONS};
use crate::store::bulk::{Bulk, Change, How, Kind::Number, Row};
use kubebid_core::units::{AllocationId, Micros};

pub(super) fn begin(allocations: &[(AllocationId, &AllocationRecord<'_>)]) -> Change {
    let mut rows = Bulk::new(&[ALLOCATIONS, ALLOCATION_STATE], allocations.len());
    for (allocation, record) in allocations {
        let Some(begun) = &record.begun else { continue };
        let mut row = rows.row();
        row.number(allocation.0).number(begun.bid.0).text(begun.tenant.as_str()).text(&begun.unit);
        row.text(begun.market.as_str()).text(begun.provider.as_str()).time(begun.at);
        state(&mut row, record);
    }
    Change { how: How::Append("allocations"), rows }
}

pub(super) fn touch(allocations: &[(AllocationId, &AllocationRecord<'_>)]) -> Change {
    let mut rows = Bulk::new(&[&[("allocation", Number)], ALLOCATION_STATE], allocations.len());
    for (allocation, record) in allocations {
        let mut row = rows.row();
        row.number(allocation.0);
        state(&mut row, record);
    }
    Change {
        how: How::Statement(
            "UPDATE allocations SET
                  state = v.state, start_by = v.start_by, ready_at = v.ready_at,
                  protected_until = v.protected_until, notice_reason = v.notice_reason,
                  notice_started_at = CASE WHEN v.notice_reason IS NULL THEN NULL
                      ELSE COALESCE(v.notice_started_at, allocations.notice_started_at) END,
                  notice_deadline = v.notice_deadline, ended_at = v.ended_at, end_reason = v.end_reason,
                  last_price_micros = v.last_price_micros
              FROM v WHERE allocations.allocation = v.allocation",
        ),
        rows,
    }
}

/// Fills the columns [`ALLOCATION_STATE`].
fn state(row: &mut Row<'_>, record: &AllocationRecord<'_>) {
    let (start_by, ready_at, protected_until, notice, ended) = match &record.last {
        Last::Held(view) => {
            let notice = view.notice.map(|notice| (notice.reason, notice.deadline));
            (view.start_by, view.ready_at, view.protected_until, notice, None)
        }
        Last::Ended { at, reason, was } => {
            let ended = Some((*at, *reason, was.price));
            (was.start_by, was.ready_at, was.protected_until, was.notice, ended)
        }
        Last::Unknown => unreachable!("what was touched is held or has ended"),
    };
    let word = match (ended, ready_at) {
        (Some(_), _) => "ENDED",
        (None, Some(_)) => "ACTIVE",
        (None, None) => "STARTING",
    };
    let started: Option<Micros> = notice.and(record.notice_started_at);
    row.text(word).time(start_by).some_time(ready_at).time(protected_until);
    row.some_text(notice.map(|(reason, _)| reason.word()));
    row.some_time(started).some_time(notice.map(|(_, deadline)| deadline));
    row.some_time(ended.map(|(at, ..)| at)).some_text(ended.map(|(_, reason, _)| reason.word()));
    row.some_number(ended.map(|(.., price)| price.0));
}
