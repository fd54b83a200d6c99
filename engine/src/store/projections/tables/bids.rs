//! Bids.

use super::super::bulk::{Bulk, Change, Columns, How, Kind::Number, Kind::Text, Row};
use super::super::words::Word;
use crate::projections::fold::BidRecord;
use kubebid_core::event::Scope;
use kubebid_core::units::BidId;

pub(super) fn markets(bids: &[(BidId, &BidRecord)]) -> Change {
    let mut rows = Bulk::new(&[&[("market", Text), ("bid", Number)]], bids.len());
    for (bid, record) in bids {
        let several = record.placed.as_ref().filter(|placed| placed.markets.len() > 1);
        for market in several.iter().flat_map(|placed| &placed.markets) {
            rows.row().text(market).number(bid.0);
        }
    }
    Change { how: How::Append("bid_markets"), rows }
}

pub(super) fn place(bids: &[(BidId, &BidRecord)]) -> Change {
    const COLUMNS: Columns = &[
        ("bid", Number),
        ("tenant", Text),
        ("market", Text),
        ("markets", Text),
        ("instance_type", Text),
        ("min_nodes", Number),
        ("tif", Text),
        ("expire_at", Number),
        ("on_preemption", Text),
        ("client_key", Text),
        ("placed_at", Number),
    ];
    let mut rows = Bulk::new(&[COLUMNS, AS_IT_IS], bids.len());
    for (bid, record) in bids {
        let Some(placed) = &record.placed else { continue };
        let view = &record.view;
        let instance_type = match &view.scope {
            Scope::Markets(_) => None,
            Scope::InstanceType(kind) => Some(kind.as_str()),
        };
        let (market, markets) = match &placed.markets[..] {
            [market] => (Some(&market[..]), None),
            [] if instance_type.is_some() => (None, None),
            several => (None, Some(serde_json::json!(several).to_string())),
        };
        let mut row = rows.row();
        row.number(bid.0).text(&placed.tenant).some_text(market).some_text(markets.as_deref());
        row.some_text(instance_type);
        row.number(view.min_nodes.into()).text(placed.time_in_force.word());
        row.some_number(view.expire_at.map(|at| at.0));
        row.text(if view.closes_on_preemption { "CLOSE" } else { "REQUEUE" });
        row.some_text(placed.client_key.as_deref()).number(placed.at.0);
        as_it_is(&mut row, record);
    }
    Change { how: How::Append("bids"), rows }
}

pub(super) fn touch(bids: &[(BidId, &BidRecord)]) -> Change {
    let mut rows = Bulk::new(&[&[("bid", Number)], AS_IT_IS], bids.len());
    for (bid, record) in bids {
        let mut row = rows.row();
        row.number(bid.0);
        as_it_is(&mut row, record);
    }
    Change {
        how: How::Statement(
            "UPDATE bids SET
                  ceiling = v.ceiling, max_nodes = v.max_nodes, bid_seq = v.bid_seq, state = v.state,
                  close_reason = COALESCE(v.close_reason, bids.close_reason),
                  closed_at = COALESCE(v.closed_at, bids.closed_at), held = v.held,
                  under_notice = v.under_notice, claimed = v.claimed, unmet = v.unmet
              FROM v WHERE bids.bid = v.bid",
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
