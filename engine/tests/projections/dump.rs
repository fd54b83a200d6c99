//! All that the tables hold, as text.

use crate::place::TestPlace;
use kubebid_engine::readmodel::packs::Pack;
use kubebid_engine::readmodel::placed::{PlacedBids, Touched};
use kubebid_engine::readmodel::rows::{BidRow, EventRow};
use sqlx::any::{AnyRow, AnyTypeInfoKind};
use sqlx::{AnyConnection, AssertSqlSafe, Column, Row, TypeInfo, ValueRef};
use std::collections::BTreeMap;
use std::fmt::Write;

/// All tables of the projections.
pub(crate) const TABLES: [&str; 13] = [
    "projection",
    "event_packs",
    "account_runs",
    "market_runs",
    "kind_runs",
    "bid_runs",
    "allocation_runs",
    "allocations",
    "offers",
    "markets",
    "price_changes",
    "charges",
    "charge_segments",
];

/// Those whose rows are the same however they came about. How events and bids lie in packs depends on which
/// commands shared a transaction; what they say does not.
const PLAIN: [&str; 7] =
    ["projection", "allocations", "offers", "markets", "price_changes", "charges", "charge_segments"];

/// What is said in rows of each table, and in packs of events and bids; sorted.
pub(crate) type Dump = BTreeMap<&'static str, Vec<String>>;

pub(crate) async fn dump(place: &TestPlace) -> Dump {
    let mut connection = place.connect().await;
    let mut dump = Dump::new();
    for table in PLAIN {
        let mut texts: Vec<String> = rows(&mut connection, table).await.iter().map(text).collect();
        texts.sort();
        dump.insert(table, texts);
    }
    let mut events: Vec<EventRow> = Vec::new();
    for row in rows(&mut connection, "event_packs").await {
        let pack = Pack::read(row.get("body")).unwrap();
        let first_seq = row.get::<i64, _>("first_seq") as u64;
        events.extend(pack.events(first_seq).map(|event| event.row().unwrap()));
    }
    events.sort_by_key(|row| (row.seq, row.index));
    dump.insert("events", events.iter().map(|row| format!("{row:?}")).collect());
    dump.insert("bids", bids(&mut connection).await.iter().map(|row| format!("{row:?}")).collect());
    dump
}

async fn rows(connection: &mut AnyConnection, of: &str) -> Vec<AnyRow> {
    let sql = AssertSqlSafe(format!("SELECT * FROM {of}"));
    sqlx::query(sql).fetch_all(connection).await.unwrap()
}

/// As they were placed, with what became of them since.
async fn bids(connection: &mut AnyConnection) -> Vec<BidRow> {
    let mut bids: BTreeMap<i64, BidRow> = BTreeMap::new();
    for row in rows(connection, "account_runs WHERE placed IS NOT NULL").await {
        let placed = PlacedBids::read(row.get("account"), row.get("placed")).unwrap();
        bids.extend(placed.into_iter().map(|bid| (bid.bid.0 as i64, bid)));
    }
    for row in rows(connection, "bid_runs WHERE state IS NOT NULL ORDER BY bid, run").await {
        Touched::change(bids.get_mut(&row.get("bid")).unwrap(), row.get("state")).unwrap();
    }
    bids.into_values().collect()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "our tables have no other columns")]
fn text(row: &AnyRow) -> String {
    let mut text = String::new();
    for column in row.columns() {
        let (name, index) = (column.name(), column.ordinal());
        let value = row.try_get_raw(index).unwrap();
        let value = if value.is_null() {
            "-".to_owned()
        } else {
            match value.type_info().kind() {
                AnyTypeInfoKind::BigInt => row.get::<i64, _>(index).to_string(),
                AnyTypeInfoKind::Text => row.get::<String, _>(index),
                AnyTypeInfoKind::Blob => format!("{:02x?}", row.get::<Vec<u8>, _>(index)),
                other => panic!("{name} is a {other:?} ({})", value.type_info().name()),
            }
        };
        write!(text, "{name}={value} ").unwrap();
    }
    text
}

/// Shows the first row that differs, and not everything.
pub(crate) fn assert_same(left: &Dump, right: &Dump) {
    assert!(left.keys().eq(right.keys()));
    for (table, left) in left {
        let right = &right[table];
        for n in 0..left.len().max(right.len()) {
            assert_eq!(left.get(n), right.get(n), "{table}, row {n}");
        }
    }
}
