//! Bids: as they were placed, and what has changed since.

use super::super::bulk::{Bulk, Change, Columns, How, Kind::Bytes, Kind::Number, Kind::Text, Row};
use crate::projections::fold::{BidRecord, Folded};
use crate::projections::packs::Run;
use crate::projections::placed::PlacedBids;
use prost::Message;
use std::collections::BTreeMap;

/// A row for each tenant and run.
pub(super) fn place(runs: &[Run<'_>], folded: &Folded) -> Change {
    const COLUMNS: Columns = &[("tenant", Text), ("run", Number), ("body", Bytes)];
    let mut rows = Bulk::new(&[COLUMNS], 0);
    for run in runs {
        let mut placed: BTreeMap<&str, PlacedBids> = BTreeMap::new();
        for bid in &run.placed {
            let record = &folded.bids[bid];
            let of = record.placed.as_ref().expect("a bid of a run was placed in it");
            placed.entry(&of.tenant).or_default().add(*bid, of, record);
        }
        for (tenant, bids) in placed {
            let mut row = rows.row();
            row.text(tenant).number(run.first_seq);
            row.bytes(|bytes| bids.encode(bytes).expect("a vector grows"));
        }
    }
    Change { how: How::Append("placed_bids"), rows }
}

/// Bids that were placed before.
pub(super) fn touch(folded: &Folded) -> Change {
    let touched = folded.bids.iter().filter(|(_, record)| record.placed.is_none());
    let mut rows = Bulk::new(&[&[("bid", Number)], AS_IT_IS], 0);
    for (bid, record) in touched {
        let mut row = rows.row();
        row.number(bid.0);
        as_it_is(&mut row, record);
    }
    Change {
        // Without WHERE, SQLite would read ON as that of a join.
        how: How::Statement(
            "INSERT INTO bid_states (bid, ceiling, max_nodes, bid_seq, state, close_reason, closed_at,
                                     held, under_notice, claimed, unmet)
              SELECT * FROM v WHERE true
              ON CONFLICT (bid) DO UPDATE SET
                  ceiling = excluded.ceiling, max_nodes = excluded.max_nodes, bid_seq = excluded.bid_seq,
                  state = excluded.state,
                  close_reason = COALESCE(excluded.close_reason, bid_states.close_reason),
                  closed_at = COALESCE(excluded.closed_at, bid_states.closed_at), held = excluded.held,
                  under_notice = excluded.under_notice, claimed = excluded.claimed, unmet = excluded.unmet",
        ),
        rows,
    }
}

/// What may change about a bid.
const AS_IT_IS: Columns = &[
    ("ceiling", Number),
    ("max_nodes", Number),
    ("bid_seq", Number),
    ("state", Text),
    ("close_reason", Text),
    ("closed_at", Number),
    ("held", Number),
    ("under_notice", Number),
    ("claimed", Number),
    ("unmet", Number),
];

fn as_it_is(row: &mut Row<'_>, record: &BidRecord) {
    let view = &record.view;
    row.number(view.ceiling.0).number(view.max_nodes.into()).number(view.bid_seq.0);
    row.text(if view.searching { "OPEN" } else { "CLOSED" });
    row.some_text(record.closed.map(|(_, reason)| reason.word()));
    row.some_number(record.closed.map(|(at, _)| at.0));
    row.number(view.live.len() as u64).number(view.under_notice.len() as u64);
    row.number(view.claims.len() as u64).number(view.unmet.into());
}
