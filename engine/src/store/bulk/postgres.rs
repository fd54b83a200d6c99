//! Writes rows to PostgreSQL as arrays: one statement with all rows is one message and one answer. `COPY` is two
//! messages in a row, and the second one waits for the kernel's delayed acknowledgement of the first.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row};

use super::super::postgres::{GONE, NAME};
use super::super::session::{LeftSessions, Session, SessionName};
use super::{Bulk, Column, How, Kind};
use super::{BulkWriter, Change, Drop, Month};
use kubebid_core::units::Micros;
use std::collections::BTreeSet;
use tracing::info;

/// A commit waits for the disk, as those of the journal do. What was reported as written must still be
/// there after a crash of the server, because the engine goes on without noticing the crash.
const SESSION: &str = "SET application_name TO 'kubebid projections'; SET synchronous_commit TO on;
                       SET default_transaction_isolation TO 'read committed'; SET jit TO off";

/// Settings for access by key, row by row. They keep a plan that was made while the tables were small
/// from being used for large ones.
const BY_KEY: &str = "SET enable_seqscan TO off; SET enable_hashjoin TO off; SET enable_mergejoin TO off;
                      SET plan_cache_mode TO force_generic_plan";

/// A writer of rows.
#[derive(Debug)]
pub(crate) struct PostgresBulkWriter {
    connection: PgConnection,
    /// The partitions that are known to exist.
    partitions: BTreeSet<(&'static str, Month)>,
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
        Ok(Self { connection, partitions: BTreeSet::new(), _session: Session::new(name, left.clone()) })
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
        // Another writer may have dropped a partition since. The rows then find no place, and a
        // new writer tries again.
        let mut partitions = std::mem::take(&mut self.partitions);
        let mut transaction = self.connection.begin().await?;
        // Locks the row, so that other writers wait.
        let found: i64 = sqlx::query("SELECT watermark FROM projection WHERE one = 1 FOR UPDATE")
            .fetch_one(&mut *transaction)
            .await?
            .get(0);
        if found as u64 != before {
            transaction.rollback().await?;
            return Ok(Some(found as u64));
        }
        for Change { how, rows } in changes.iter().filter(|change| change.rows.len > 0) {
            // A column without values costs PostgreSQL as much as one with values, so it is
            // left out of rows that are added.
            let all: Vec<usize> = (0..rows.columns.len()).collect();
            let filled: Vec<usize> = all.iter().copied().filter(|n| rows.columns[*n].has_values()).collect();
            let append = |table| {
                let list = rows.list(&filled);
                (format!("INSERT INTO {table} ({list}) SELECT {list} FROM v"), &filled)
            };
            let (sql, columns) = match how {
                How::Append(table) => append(table),
                How::AppendByMonth(table) => {
                    for month in rows.months() {
                        if partitions.insert((table, month)) {
                            create_partition(&mut transaction, table, month).await?;
                        }
                    }
                    append(table)
                }
                How::Statement(sql) => ((*sql).to_owned(), &all),
            };
            run(&mut transaction, &sql, rows, columns).await?;
        }
        sqlx::query("UPDATE projection SET watermark = $1 WHERE one = 1")
            .bind(after as i64)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        self.partitions = partitions;
        Ok(None)
    }

    async fn drop_months_before(&mut self, drop: &Drop) -> Result<(), sqlx::Error> {
        let Drop { table, first_month, before, after } = drop;
        let first = Month::of(*first_month);
        let mut transaction = self.connection.begin().await?;
        // While the drop waits for its lock, new readers wait as well. So it gives up soon.
        transaction.execute("SET LOCAL lock_timeout TO '2s'").await?;
        let known = partitions(&mut transaction, table).await?;
        let old: Vec<String> = known.into_iter().filter(|name| is_before(name, table, first)).collect();
        if old.is_empty() {
            return transaction.rollback().await;
        }
        create_partition(&mut transaction, table, first).await?;
        let drops = old.iter().map(|name| format!("DROP TABLE {name}"));
        for statement in before.iter().cloned().chain(drops).chain(after.iter().cloned()) {
            // Safe: made of constants, numbers, and names that this file gives.
            transaction.execute(AssertSqlSafe(statement)).await?;
        }
        transaction.commit().await?;
        self.partitions.retain(|(name, month)| name != table || *month >= first);
        info!(table, partitions = old.len(), "rows that are no longer kept are dropped");
        Ok(())
    }
}

/// Returns the names of a table's partitions.
async fn partitions(connection: &mut PgConnection, table: &str) -> Result<Vec<String>, sqlx::Error> {
    let query = "SELECT CAST(c.relname AS text) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                 WHERE i.inhparent = to_regclass($1) ORDER BY 1";
    sqlx::query_scalar(query).bind(table).fetch_all(connection).await
}

/// Creates the partition of a month, unless it exists. `CREATE TABLE … PARTITION OF` would lock readers out; `ATTACH
/// PARTITION` does not.
async fn create_partition(
    connection: &mut PgConnection,
    table: &str,
    month: Month,
) -> Result<(), sqlx::Error> {
    let name = partition(table, month);
    if partitions(connection, table).await?.contains(&name) {
        return Ok(());
    }
    // Months begin at full hours, and a number of hours is exact.
    let time = |month: Month| {
        format!("TIMESTAMPTZ 'epoch' + {} * INTERVAL '1 hour'", month.start().0 / Micros::HOUR.0)
    };
    let sql = format!(
        "CREATE TABLE {name} (LIKE {table} INCLUDING ALL);
         ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({}) TO ({})",
        time(month),
        time(month.next())
    );
    // Safe: made of constants and a number.
    connection.execute(AssertSqlSafe(sql)).await.map(|_| ())
}

/// Returns the name of a month's partition, such as `events_202611`.
fn partition(table: &str, month: Month) -> String {
    format!("{table}_{:04}{:02}", month.year, month.month)
}

/// Returns true if a name is that of an earlier month's partition, and not one that a person gave.
fn is_before(name: &str, table: &str, first: Month) -> bool {
    let digits = name.strip_prefix(table).and_then(|rest| rest.strip_prefix('_')).unwrap_or_default();
    let Some((year, month)) = digits.split_at_checked(digits.len().saturating_sub(2)) else { return false };
    let (Ok(year), Ok(month)) = (year.parse(), month.parse()) else { return false };
    let month = Month { year, month };
    month < first && name == partition(table, month)
}

/// Binds one array for each of these columns. The statement is the same for any number of rows, so it is prepared once.
async fn run(
    connection: &mut PgConnection,
    sql: &str,
    rows: &Bulk,
    columns: &[usize],
) -> Result<(), sqlx::Error> {
    let (mut values, mut arrays) = (Vec::new(), Vec::new());
    for (n, column) in (1..).zip(columns) {
        let (name, kind) = rows.names[*column];
        let array = match kind {
            Kind::Number => "bigint",
            Kind::Time => "timestamptz",
            Kind::Flag => "boolean",
            Kind::Text | Kind::Texts => "text",
            Kind::Bytes => "bytea",
        };
        arrays.push(format!("${n}::{array}[]"));
        // PostgreSQL requires all lists of an array of arrays to have the same length.
        values.push(match kind {
            Kind::Texts => format!("string_to_array({name}, E'\\x1f')"),
            Kind::Number | Kind::Time | Kind::Flag | Kind::Text | Kind::Bytes => name.to_owned(),
        });
    }
    let (list, values, arrays) = (rows.list(columns), values.join(", "), arrays.join(", "));
    let sql = format!("WITH v ({list}) AS (SELECT {values} FROM unnest({arrays}) AS u ({list})) {sql}");
    // Safe: made of constants.
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for column in columns {
        let (_, kind) = rows.names[*column];
        query = match &rows.columns[*column] {
            Column::Number(numbers) if kind == Kind::Time => query.bind(times(numbers)),
            Column::Number(numbers) if kind == Kind::Flag => query.bind(flags(numbers)),
            Column::Number(numbers) => query.bind(numbers),
            Column::Text(texts) | Column::Texts(texts) => {
                query.bind((0..rows.len).map(|row| texts.text(row)).collect::<Vec<_>>())
            }
            Column::Bytes(bytes) => query.bind((0..rows.len).map(|row| bytes.get(row)).collect::<Vec<_>>()),
        };
    }
    query.execute(connection).await.map(|_| ())
}

fn times(numbers: &[Option<i64>]) -> Vec<Option<DateTime<Utc>>> {
    let time = |micros| DateTime::from_timestamp_micros(micros).expect("a time is at most TIME_MAX");
    numbers.iter().map(|number| number.map(time)).collect()
}

fn flags(numbers: &[Option<i64>]) -> Vec<Option<bool>> {
    numbers.iter().map(|number| number.map(|flag| flag != 0)).collect()
}
