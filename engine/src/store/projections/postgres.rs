//! Rows to PostgreSQL: one array a column.

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row};

use super::bulk::{Bulk, Column, Kind};
use super::{Change, Rowwise};

/// A crash may lose the last rows together with the watermark: no need to wait for the disk.
const SESSION: &str = "SET application_name TO 'kubebid projections'; SET synchronous_commit TO off;
                       SET default_transaction_isolation TO 'read committed'; SET jit TO off";

/// A writer of rows.
#[derive(Debug)]
pub(in crate::store) struct PostgresTables {
    connection: PgConnection,
}

impl PostgresTables {
    pub(in crate::store) async fn connect(options: &PgConnectOptions) -> Result<Self, sqlx::Error> {
        let mut connection = options.clone().disable_statement_logging().connect().await?;
        connection.execute(SESSION).await?;
        Ok(Self { connection })
    }
}

#[async_trait]
impl Rowwise for PostgresTables {
    async fn write(
        &mut self,
        before: u64,
        after: u64,
        changes: &[Change],
    ) -> Result<Option<u64>, sqlx::Error> {
        let mut transaction = self.connection.begin().await?;
        // Locks the row: whoever else writes waits.
        let found: i64 = sqlx::query("SELECT watermark FROM projection WHERE one = 1 FOR UPDATE")
            .fetch_one(&mut *transaction)
            .await?
            .get(0);
        if found as u64 != before {
            transaction.rollback().await?;
            return Ok(Some(found as u64));
        }
        for change in changes.iter().filter(|change| change.rows.len > 0) {
            let mut query = sqlx::query(AssertSqlSafe(statement(change)));
            for column in &change.rows.columns {
                query = match column {
                    Column::Number(numbers) => query.bind(numbers),
                    Column::Text(texts) => query.bind(texts),
                    Column::Bytes(bytes) => query.bind(bytes),
                };
            }
            query.execute(&mut *transaction).await?;
        }
        sqlx::query("UPDATE projection SET watermark = $1 WHERE one = 1")
            .bind(after as i64)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(None)
    }
}

/// Made of constants. The same for any number of rows, so it is prepared once.
fn statement(Change { sql, rows: Bulk { names, .. } }: &Change) -> String {
    let columns: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let arrays = names.iter().enumerate().map(|(n, (_, kind))| {
        let kind = match kind {
            Kind::Number => "bigint",
            Kind::Text => "text",
            Kind::Bytes => "bytea",
        };
        format!("${}::{kind}[]", n + 1)
    });
    let arrays: Vec<String> = arrays.collect();
    format!("WITH v ({}) AS (SELECT * FROM unnest({})) {sql}", columns.join(", "), arrays.join(", "))
}
