//! Writes rows to SQLite, a few hundred in a statement.

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Connection as _, Executor, Row};

use super::super::Fault;
use super::super::rows::{Dialect, Turn};
use super::super::session::Connection;
use super::{BulkWriter, Change, Drop};
use super::{Column, How};
use tracing::info;

/// The number of rows in one statement. SQLite allows 32,766 parameters.
const ROWS: usize = 256;

/// The number of rows that are deleted in one transaction.
const DROPPED: u64 = 5_000;

/// A writer of rows.
#[derive(Debug)]
pub(crate) struct SqliteBulkWriter {
    connection: Connection,
    turn: Turn,
}

impl SqliteBulkWriter {
    pub(crate) async fn new(mut connection: Connection, turn: Turn) -> Result<Self, Fault> {
        // The rows are in the same log as the journal, so a commit of the journal makes them
        // durable. A loss of power can take away only rows of an engine that it ends too. So there
        // is no need to wait for the disk.
        connection
            .execute("PRAGMA synchronous = NORMAL")
            .await
            .map_err(Fault::database("setting up a connection"))?;
        Ok(Self { connection, turn })
    }
}

#[async_trait]
impl BulkWriter for SqliteBulkWriter {
    async fn write(
        &mut self,
        before: u64,
        after: u64,
        changes: &[Change],
    ) -> Result<Option<u64>, sqlx::Error> {
        let _turn = self.turn.take().await;
        let mut transaction = self.connection.begin_with("BEGIN IMMEDIATE").await?;
        let found: i64 = sqlx::query("SELECT watermark FROM projection WHERE one = 1")
            .fetch_one(&mut *transaction)
            .await?
            .get(0);
        if found as u64 != before {
            transaction.rollback().await?;
            return Ok(Some(found as u64));
        }
        for change in changes {
            for first in (0..change.rows.len).step_by(ROWS) {
                let rows = first..change.rows.len.min(first + ROWS);
                // Other lengths are different statements, and are not kept prepared.
                let mut query =
                    sqlx::query(AssertSqlSafe(statement(change, rows.len()))).persistent(rows.len() == ROWS);
                for row in rows {
                    for column in &change.rows.columns {
                        query = match column {
                            Column::Number(numbers) => query.bind(numbers[row]),
                            Column::Text(texts) => query.bind(texts.text(row)),
                            Column::Texts(lists) => query.bind(lists.texts(row).map(|list| json(&list))),
                            Column::Bytes(bytes) => query.bind(bytes.get(row)),
                        };
                    }
                }
                query.execute(&mut *transaction).await?;
            }
        }
        sqlx::query("UPDATE projection SET watermark = $1 WHERE one = 1")
            .bind(after as i64)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(None)
    }

    async fn drop_months_before(&mut self, drop: &Drop) -> Result<(), sqlx::Error> {
        let Drop { table, first_month, before, after } = drop;
        // A few rows at a time, so that the journal's writer does not wait long.
        let delete = format!(
            "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE at < {} LIMIT {DROPPED})",
            first_month.0
        );
        let mut dropped = 0;
        loop {
            let _turn = self.turn.take().await;
            let mut transaction = self.connection.begin_with("BEGIN IMMEDIATE").await?;
            for statement in before {
                // Safe: made of constants and numbers.
                transaction.execute(AssertSqlSafe(statement.clone())).await?;
            }
            // Safe: made of constants and a number.
            let rows = transaction.execute(AssertSqlSafe(delete.clone())).await?.rows_affected();
            if rows == 0 {
                transaction.rollback().await?;
                break;
            }
            for statement in after {
                // Safe: made of constants and numbers.
                transaction.execute(AssertSqlSafe(statement.clone())).await?;
            }
            transaction.commit().await?;
            dropped += rows;
        }
        if dropped > 0 {
            info!(table, dropped, "rows that are no longer kept are dropped");
        }
        Ok(())
    }
}

/// Returns a list as a JSON array.
fn json(list: &[&str]) -> String {
    serde_json::to_string(list).expect("texts are JSON")
}

/// Returns the statement, which is made of constants.
fn statement(Change { how, rows }: &Change, count: usize) -> String {
    let row = Dialect::Sqlite.list(1, rows.columns.len());
    let all: Vec<usize> = (0..rows.columns.len()).collect();
    let (list, values) = (rows.list(&all), vec![row; count].join(", "));
    match how {
        How::Append(table) | How::AppendByMonth(table) => {
            format!("INSERT INTO {table} ({list}) VALUES {values}")
        }
        How::Statement(sql) => format!("WITH v ({list}) AS (VALUES {values}) {sql}"),
    }
}
