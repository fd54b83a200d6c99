//! Events in packs, and what is in which.

use super::super::bulk::{Bulk, Change, Columns, How, Kind::Bytes, Kind::Number, Kind::Text};
use crate::projections::packs::Run;
use prost::Message;
use std::collections::BTreeMap;

pub(super) const ACCOUNT: Columns = &[("account", Text), ("run", Number), ("packs", Number)];
pub(super) const MARKET: Columns = &[("market", Text), ("run", Number), ("packs", Number)];
pub(super) const KIND: Columns = &[("kind", Text), ("run", Number), ("packs", Number)];
pub(super) const BID: Columns = &[("bid", Number), ("run", Number), ("packs", Number)];
pub(super) const ALLOCATION: Columns = &[("allocation", Number), ("run", Number), ("packs", Number)];

pub(super) fn packs(runs: &[Run<'_>]) -> Change {
    const COLUMNS: Columns =
        &[("first_seq", Number), ("run", Number), ("last_at_us", Number), ("body", Bytes)];
    let mut rows = Bulk::new(&[COLUMNS], 0);
    for run in runs {
        for pack in &run.packs {
            let mut row = rows.row();
            row.number(pack.first_seq).number(run.first_seq).number(pack.last_at);
            row.bytes(|bytes| pack.body.encode(bytes).expect("a vector grows"));
        }
    }
    Change { how: How::Append("event_packs"), rows }
}

pub(super) fn by_name<'a>(
    table: &'static str,
    columns: Columns,
    runs: &'a [Run<'a>],
    names: impl Fn(&'a Run<'a>) -> &'a BTreeMap<&'a str, u64>,
) -> Change {
    let mut rows = Bulk::new(&[columns], 0);
    for run in runs {
        for (name, packs) in names(run) {
            rows.row().text(name).number(run.first_seq).number(*packs);
        }
    }
    Change { how: How::Append(table), rows }
}

pub(super) fn by_number<'a>(
    table: &'static str,
    columns: Columns,
    runs: &'a [Run<'a>],
    numbers: impl Fn(&'a Run<'a>) -> &'a BTreeMap<u64, u64>,
) -> Change {
    let mut rows = Bulk::new(&[columns], 0);
    for run in runs {
        for (number, packs) in numbers(run) {
            rows.row().number(*number).number(run.first_seq).number(*packs);
        }
    }
    Change { how: How::Append(table), rows }
}
