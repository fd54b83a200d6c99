//! Writes rows to SQLite, a few hundred in a statement.

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Connection as _, Executor, Row};

use super::super::Fault;
use super::super::rows::{Parameters, Turn};
use super::super::session::Connection;
use super::{BulkWriter, Change};
use super::{Column, How};

/// Rows in one statement; SQLite allows 32,766 parameters.
const ROWS: usize = 256;

/// A writer of rows.
#[derive(Debug)]
pub(crate) struct SqliteBulkWriter {
    connection: Connection,
    turn: Turn,
}

impl SqliteBulkWriter {
    pub(crate) async fn new(mut connection: Connection, turn: Turn) -> Result<Self, Fault> {
        // The rows are in the same log as the journal, and a commit of the journal makes them durable. What a loss of
        // power takes away it takes from a machine whose engine has ended too: no need to wait for the disk.
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
                // Every other length is another statement, and not kept.
                let mut query =
                    sqlx::query(AssertSqlSafe(statement(change, rows.len()))).persistent(rows.len() == ROWS);
                for row in rows {
                    for column in &change.rows.columns {
                        query = match column {
                            Column::Number(numbers) => query.bind(numbers[row]),
                            Column::Text(texts) => query.bind(texts.text(row)),
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
}

/// Made of constants.
fn statement(Change { how, rows }: &Change, count: usize) -> String {
    let row = Parameters::InOrder.list(1, rows.columns.len());
    let (list, values) = (rows.list(), vec![row; count].join(", "));
    match how {
        How::Append(table) => format!("INSERT INTO {table} ({list}) VALUES {values}"),
        How::Statement(sql) => format!("WITH v ({list}) AS (VALUES {values}) {sql}"),
    }
}
