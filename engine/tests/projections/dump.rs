//! Everything that the tables hold, as text.

use crate::place::TestPlace;
use kubebid_engine::store::StoreLocation;
use sqlx::any::{AnyRow, AnyTypeInfoKind};
use sqlx::{AssertSqlSafe, Column, Row, TypeInfo, ValueRef};
use std::collections::BTreeMap;
use std::fmt::Write;

/// All tables of the read model.
pub(crate) const TABLES: [&str; 10] = [
    "projection",
    "bids",
    "allocations",
    "offers",
    "markets",
    "price_changes",
    "charges",
    "charge_segments",
    "events",
    "event_parties",
];

/// The rows of each table as sorted texts.
pub(crate) type Dump = BTreeMap<&'static str, Vec<String>>;

pub(crate) async fn dump(place: &TestPlace) -> Dump {
    let mut connection = place.connect().await;
    let mut dump = Dump::new();
    for table in TABLES {
        let sql = match place.options.location {
            StoreLocation::Postgres(_) => format!("SELECT CAST(to_jsonb(t) AS text) AS t FROM {table} t"),
            StoreLocation::Sqlite(_) => format!("SELECT * FROM {table}"),
        };
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
        let mut texts: Vec<String> = rows.iter().map(text).collect();
        texts.sort();
        dump.insert(table, texts);
    }
    dump
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

/// Asserts that two dumps are equal. Shows only the first row that differs.
pub(crate) fn assert_same(left: &Dump, right: &Dump) {
    assert!(left.keys().eq(right.keys()));
    for (table, left) in left {
        let right = &right[table];
        for n in 0..left.len().max(right.len()) {
            assert_eq!(left.get(n), right.get(n), "{table}, row {n}");
        }
    }
}
