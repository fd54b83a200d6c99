//! Rows of event packs and of their index.

use crate::readmodel::fields::Fields;
use crate::readmodel::fold::Folded;
use crate::readmodel::packs::{Run, Written};
use crate::readmodel::placed::{PlacedBids, Touched};
use crate::store::bulk::{Bulk, Change, Columns, How, Kind::Bytes, Kind::Number, Kind::Text};

pub(super) const RUNS_OF_MARKET: Columns = &[("market", Text), ("run", Number), ("packs", Number)];
pub(super) const RUNS_OF_KIND: Columns = &[("kind", Text), ("run", Number), ("packs", Number)];

pub(super) fn packs(runs: &[Run<'_>]) -> Change {
    const COLUMNS: Columns =
        &[("first_seq", Number), ("run", Number), ("last_at_us", Number), ("body", Bytes)];
    let mut rows = Bulk::new(&[COLUMNS], runs.iter().map(|run| run.packs.len()).sum());
    for run in runs {
        for Written { first_seq, last_at, body } in &run.packs {
            let mut row = rows.row();
            row.number(*first_seq).number(run.first_seq).number(*last_at);
            row.bytes(|bytes| bytes.extend_from_slice(body));
        }
    }
    Change { how: How::Append("event_packs"), rows }
}

/// Returns which packs concern an account, and what it placed.
pub(super) fn accounts(runs: &[Run<'_>], folded: &Folded<'_>) -> Change {
    const COLUMNS: Columns = &[("account", Text), ("run", Number), ("packs", Number), ("placed", Bytes)];
    let mut rows = Bulk::new(&[COLUMNS], runs.iter().map(|run| run.accounts.len()).sum());
    for run in runs {
        for account in &run.accounts {
            let placed = run.placed_by(account);
            let fill = (placed.len() > 0).then_some(|bytes: &mut Vec<u8>| {
                for bid in placed {
                    let record = &folded.bids[&bid];
                    let of = record.placed.as_ref().expect("a bid of a run was placed in it");
                    PlacedBids::add(bytes, bid, of, record);
                }
            });
            let mut row = rows.row();
            row.text(account.name).number(run.first_seq).number(account.packs).some_bytes(fill);
        }
    }
    Change { how: How::Append("account_runs"), rows }
}

/// Returns which packs are about a bid, and how it was behind them.
pub(super) fn bids(runs: &[Run<'_>], folded: &Folded<'_>) -> Change {
    const COLUMNS: Columns =
        &[("bid", Number), ("run", Number), ("packs", Number), ("state", Bytes), ("closed", Number)];
    let mut rows = Bulk::new(&[COLUMNS], runs.iter().map(|run| run.bids.len()).sum());
    for run in runs {
        for (bid, packs) in &run.bids {
            // What is known of one that was placed in the same transaction is where it was placed.
            let touched = folded.bids.get(bid).filter(|record| record.placed.is_none());
            let closed = touched.and_then(|record| record.closed).map(|_| 1);
            let mut row = rows.row();
            row.number(bid.0).number(run.first_seq).number(*packs);
            row.some_bytes(
                touched.map(|record| |bytes: &mut Vec<u8>| Touched::fill(&mut Fields(bytes), record)),
            );
            row.some_number(closed);
        }
    }
    Change { how: How::Append("bid_runs"), rows }
}

pub(super) fn allocations(runs: &[Run<'_>]) -> Change {
    const COLUMNS: Columns = &[("allocation", Number), ("run", Number), ("packs", Number)];
    let mut rows = Bulk::new(&[COLUMNS], runs.iter().map(|run| run.allocations.len()).sum());
    for run in runs {
        for (allocation, packs) in &run.allocations {
            rows.row().number(allocation.0).number(run.first_seq).number(*packs);
        }
    }
    Change { how: How::Append("allocation_runs"), rows }
}

pub(super) fn by_name<'a>(
    table: &'static str,
    columns: Columns,
    runs: &'a [Run<'a>],
    names: impl Fn(&'a Run<'a>) -> &'a [(&'a str, u64)],
) -> Change {
    let mut rows = Bulk::new(&[columns], 0);
    for run in runs {
        for (name, packs) in names(run) {
            rows.row().text(name).number(run.first_seq).number(*packs);
        }
    }
    Change { how: How::Append(table), rows }
}
