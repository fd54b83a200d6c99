//! Rows of labels of bids. The market does not know them.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, Row};

use super::rows::number;
use super::select::Select;
use super::{Fault, Rows, bigint};

/// A bid's labels, key to value.
pub type Labels = BTreeMap<String, String>;

/// The number of rows in one statement. SQLite allows 32,766 parameters.
const ROWS: usize = 1_000;

impl Rows {
    /// Gives bids their labels, each bid all of them or none. If a bid has a key already, the key
    /// gets the new value. Repeating the call changes nothing, so a caller that does not know the
    /// result repeats it.
    pub async fn put_labels<'a>(
        &self,
        labels: impl IntoIterator<Item = (u64, &'a Labels)> + Send,
    ) -> Result<(), Fault> {
        // Sorted by bid and key, without duplicates, so that two statements at a time cannot
        // deadlock.
        let all: BTreeMap<(u64, &str), &str> = labels
            .into_iter()
            .flat_map(|(bid, labels)| labels.iter().map(move |(key, value)| ((bid, &key[..]), &value[..])))
            .collect();
        let all: Vec<_> = all.into_iter().collect();
        let mut left = &all[..];
        while !left.is_empty() {
            let (rows, rest) = left.split_at(whole_bids(left));
            left = rest;
            let values: Vec<_> = (0..rows.len()).map(|n| self.dialect.list(3 * n + 1, 3)).collect();
            let sql = format!(
                "INSERT INTO bid_labels (bid, key, value) SELECT v.* FROM (VALUES {}) v, {} WHERE true
                 ON CONFLICT (bid, key) DO UPDATE SET value = excluded.value",
                values.join(", "),
                self.fence()
            );
            // Safe: made of constants and a UUID. Not kept prepared, because each length is a different
            // statement.
            let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(rows.len() == 1);
            for ((bid, key), value) in rows {
                query = query.bind(bigint(*bid)).bind(*key).bind(*value);
            }
            let doing = "saving labels";
            let turn = self.turn.take().await;
            let put = query.execute(&self.pool).await.map_err(Fault::database(doing))?;
            drop(turn);
            if put.rows_affected() == 0 {
                self.still_leads(doing).await?;
            }
        }
        Ok(())
    }

    /// Returns the labels of these bids. A bid without labels is left out.
    pub async fn labels_of(&self, bids: &[u64]) -> Result<BTreeMap<u64, Labels>, Fault> {
        let mut found: BTreeMap<u64, Labels> = BTreeMap::new();
        for bids in bids.chunks(ROWS) {
            let mut select = Select::new("SELECT bid, key, value FROM bid_labels");
            select.one_of(" WHERE bid IN ", bids);
            for row in select.all(&self.reads, "reading labels").await? {
                found.entry(number(&row, 0)).or_default().insert(row.get(1), row.get(2));
            }
        }
        Ok(found)
    }

    /// Returns at most `limit` bids after `after` that have all of the labels `wanted`, in order. If
    /// `wanted` is empty, returns all bids that have labels.
    pub async fn bids_labelled(&self, wanted: &Labels, after: u64, limit: u32) -> Result<Vec<u64>, Fault> {
        let mut select = Select::new("SELECT DISTINCT a.bid FROM bid_labels a");
        select.add(" WHERE a.bid > ?", &[&after]);
        if let Some((key, value)) = wanted.first_key_value() {
            select.add(" AND a.key = ? AND a.value = ?", &[key, value]);
        }
        select.labelled("a.bid", wanted).add(" ORDER BY a.bid LIMIT ?", &[&limit]);
        let rows = select.all(&self.reads, "finding bids by label").await?;
        Ok(rows.iter().map(|row| number(row, 0)).collect())
    }
}

/// Returns how many of these go into one statement, so that the labels of a bid are not divided.
fn whole_bids(all: &[((u64, &str), &str)]) -> usize {
    if all.len() <= ROWS {
        return all.len();
    }
    let bid_of = |n: usize| all[n].0.0;
    (1..=ROWS).rev().find(|n| bid_of(*n) != bid_of(n - 1)).unwrap_or(ROWS)
}
