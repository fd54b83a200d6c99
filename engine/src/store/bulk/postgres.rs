//! Writes rows to PostgreSQL as arrays: one statement with all rows is one message and one answer. `COPY` is two
//! messages in a row, and the second one waits for the kernel's delayed acknowledgement of the first.

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row};

use super::super::postgres::{GONE, NAME};
use super::super::session::{LeftSessions, Session, SessionName};
use super::{Bulk, Column, How, Kind};
use super::{BulkWriter, Change};

/// A commit waits for the disk, as those of the journal do: what is said to be in the tables stays there when the
/// server crashes, and the engine goes on without knowing of it.
const SESSION: &str = "SET application_name TO 'kubebid projections'; SET synchronous_commit TO on;
                       SET default_transaction_isolation TO 'read committed'; SET jit TO off";

/// Settings for access by key, row by row. A plan made while the tables were small must not outlive that.
const BY_KEY: &str = "SET enable_seqscan TO off; SET enable_hashjoin TO off; SET enable_mergejoin TO off;
                      SET plan_cache_mode TO force_generic_plan";

/// A writer of rows.
#[derive(Debug)]
pub(crate) struct PostgresBulkWriter {
    connection: PgConnection,
    _session: Session,
}

impl PostgresBulkWriter {
    pub(crate) async fn connect(
        options: &PgConnectOptions,
        left: &LeftSessions,
    ) -> Result<Self, sqlx::Error> {
        let mut connection = options.clone().disable_statement_logging().connect().await?;
        for settings in [SESSION, GONE, BY_KEY] {
            connection.execute(settings).await?;
        }
        let row = sqlx::query(NAME).fetch_one(&mut connection).await?;
        let name = SessionName { pid: row.get(0), began_us: row.get(1) };
        Ok(Self { connection, _session: Session::new(name, left.clone()) })
    }
}

#[async_trait]
impl BulkWriter for PostgresBulkWriter {
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
        for Change { how, rows } in changes.iter().filter(|change| change.rows.len > 0) {
            let sql = match how {
                How::Append(table) => format!("INSERT INTO {table} ({0}) SELECT {0} FROM v", rows.list()),
                How::Statement(sql) => (*sql).to_owned(),
            };
            run(&mut transaction, &sql, rows).await?;
        }
        sqlx::query("UPDATE projection SET watermark = $1 WHERE one = 1")
            .bind(after as i64)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(None)
    }
}

/// One array a column. The statement is the same for any number of rows, so it is prepared once.
async fn run(connection: &mut PgConnection, sql: &str, rows: &Bulk) -> Result<(), sqlx::Error> {
    let arrays = rows.names.iter().enumerate().map(|(n, (_, kind))| {
        let kind = match kind {
            Kind::Number => "bigint",
            Kind::Text => "text",
            Kind::Bytes => "bytea",
        };
        format!("${}::{kind}[]", n + 1)
    });
    let arrays: Vec<String> = arrays.collect();
    let sql = format!("WITH v ({}) AS (SELECT * FROM unnest({})) {sql}", rows.list(), arrays.join(", "));
    // Safe: made of constants.
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for column in &rows.columns {
        query = match column {
            Column::Number(numbers) => query.bind(numbers),
            Column::Text(texts) => query.bind((0..rows.len).map(|row| texts.text(row)).collect::<Vec<_>>()),
            Column::Bytes(bytes) => query.bind((0..rows.len).map(|row| bytes.get(row)).collect::<Vec<_>>()),
        };
    }
    query.execute(connection).await.map(|_| ())
}
