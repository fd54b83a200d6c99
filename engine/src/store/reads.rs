//! Read connections for the tables. Each statement has a time-out, and ends in the database when its
//! caller has gone. Rows are decoded on threads of their own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt};
use sqlx::any::AnyRow;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgDatabaseError;
use sqlx::{Any, AnyPool, AssertSqlSafe, SqlitePool};
use tokio::sync::Semaphore;

use super::Fault;
use super::rows::Dialect;
use super::select::{Select, bind};

/// The number of SQLite instructions between two checks of the clock and of the caller. They take well
/// below a millisecond.
const INSTRUCTIONS: i32 = 10_000;

/// Connections that only read the tables. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reads {
    pool: ReadPool,
    time_out: Duration,
    /// One permit for each batch of rows that may be decoded at a time, so that reads do not take
    /// every processor.
    threads: Arc<Semaphore>,
}

#[derive(Clone)]
enum ReadPool {
    Sqlite(SqlitePool),
    /// Its sessions have a `statement_timeout`.
    Postgres(AnyPool),
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").field("time_out", &self.time_out).finish_non_exhaustive()
    }
}

impl Reads {
    pub(crate) fn sqlite(pool: SqlitePool, time_out: Duration) -> Reads {
        Reads::new(ReadPool::Sqlite(pool), time_out)
    }

    /// Takes a pool whose sessions have the same time-out.
    pub(crate) fn postgres(pool: AnyPool, time_out: Duration) -> Reads {
        Reads::new(ReadPool::Postgres(pool), time_out)
    }

    fn new(pool: ReadPool, time_out: Duration) -> Reads {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Reads { pool, time_out, threads: Arc::new(Semaphore::new(processors.div_ceil(2))) }
    }

    /// Returns the rows of a statement. If the future is dropped, the statement ends in the database
    /// too.
    ///
    /// # Errors
    /// Besides faults of the database: the statement took longer than the time-out.
    pub(crate) async fn all(&self, select: Select, doing: &'static str) -> Result<Vec<AnyRow>, Fault> {
        let rows = match &self.pool {
            ReadPool::Sqlite(pool) => read_sqlite(pool, select, self.time_out).await,
            ReadPool::Postgres(pool) => read_postgres(pool, select).await,
        };
        rows.map_err(|source| match is_interrupted(&source) {
            true => Fault::TooSlow { doing, time_out: self.time_out },
            false => Fault::Database { doing, source },
        })
    }

    /// Runs work that takes a while, outside the threads that answer requests.
    pub(crate) async fn apart<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let _thread = self.threads.acquire().await;
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    pub(crate) async fn close(&self) {
        match &self.pool {
            ReadPool::Sqlite(pool) => pool.close().await,
            ReadPool::Postgres(pool) => pool.close().await,
        }
    }
}

/// Tells the thread of a SQLite connection that its caller has gone.
#[derive(Default)]
struct Abandoned(Arc<AtomicBool>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn read_sqlite(
    pool: &SqlitePool,
    select: Select,
    time_out: Duration,
) -> Result<Vec<AnyRow>, sqlx::Error> {
    let mut connection = pool.acquire().await?;
    let abandoned = Abandoned::default();
    let (is_abandoned, end) = (abandoned.0.clone(), Instant::now() + time_out);
    let goes_on = move || !is_abandoned.load(Ordering::Relaxed) && Instant::now() < end;
    connection.lock_handle().await?.set_progress_handler(INSTRUCTIONS, goes_on);
    let (sql, arguments, persistent) = select.into_parts(Dialect::Sqlite);
    // Safe: made of constants.
    let query = bind(sqlx::query(AssertSqlSafe(sql)).persistent(persistent), arguments);
    // One row at a time: a row of SQLite takes several times the memory of its decoded form.
    let rows = query.fetch(&mut *connection).map(|row| AnyRow::try_from(&row?));
    rows.try_collect().await
}

/// A connection that is closed instead of returned to its pool, unless its statement has ended. The
/// server notices the closed connection, and ends the statement.
struct Lent(Option<PoolConnection<Any>>);

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            connection.close_on_drop();
        }
    }
}

async fn read_postgres(pool: &AnyPool, select: Select) -> Result<Vec<AnyRow>, sqlx::Error> {
    let mut lent = Lent(Some(pool.acquire().await?));
    let (sql, arguments, persistent) = select.into_parts(Dialect::Postgres);
    // Safe: made of constants.
    let query = bind(sqlx::query(AssertSqlSafe(sql)).persistent(persistent), arguments);
    let connection = lent.0.as_mut().expect("it is taken below");
    let rows = query.fetch_all(&mut **connection).await;
    drop(lent.0.take());
    rows
}

/// Returns true for SQLite's SQLITE_INTERRUPT and PostgreSQL's query_canceled.
fn is_interrupted(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    let code = error.code().unwrap_or_default();
    if error.try_downcast_ref::<PgDatabaseError>().is_some() { code == "57014" } else { code == "9" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Account, Limits, NewToken, Role, Store, StoreLocation, StoreOptions};
    use kubebid_testkit::Cluster;
    use tempfile::TempDir;

    const ENDLESS: &str =
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n";
    const LONG: Duration = Duration::from_secs(600);
    /// Long enough for a statement to start.
    const BEGUN: Duration = Duration::from_millis(50);

    /// Returns a store with one connection for reads, on each database.
    async fn stores(read_time_out: Duration) -> [(Store, Option<TempDir>); 2] {
        let folder = tempfile::tempdir().unwrap();
        let places = [
            StoreLocation::Sqlite(folder.path().join("store.db")),
            StoreLocation::Postgres(Cluster::shared().database()),
        ];
        let open = async |place| {
            let options = StoreOptions { connections: 1, read_time_out, ..StoreOptions::new(place) };
            Store::open(&options).await.unwrap()
        };
        let [sqlite, postgres] = places;
        [(open(sqlite).await, Some(folder)), (open(postgres).await, None)]
    }

    #[tokio::test]
    async fn a_read_that_takes_longer_than_it_may_is_ended() {
        for (store, _folder) in stores(BEGUN).await {
            let read = Select::new(ENDLESS).all(&store.reads, "counting").await;
            assert!(matches!(read, Err(Fault::TooSlow { .. })), "{:?}", read.err());
            // The connection can be used as before.
            assert_eq!(Select::new("SELECT 1").all(&store.reads, "reading").await.unwrap().len(), 1);
        }
    }

    #[tokio::test]
    async fn a_read_whose_caller_has_gone_is_ended_in_the_database() {
        for (store, _folder) in stores(LONG).await {
            let read = Select::new(ENDLESS).all(&store.reads, "counting");
            assert!(tokio::time::timeout(BEGUN, read).await.is_err());
            // There is one connection, and it is free again.
            assert_eq!(Select::new("SELECT 1").all(&store.reads, "reading").await.unwrap().len(), 1);
        }
    }

    #[tokio::test]
    async fn a_token_is_revoked_while_reads_have_all_their_connections() {
        for (store, _folder) in stores(LONG).await {
            let rows = store.rows();
            let account = Account { name: "a".to_owned(), limits: Limits::default(), created_at_us: 0 };
            rows.put_account(&account).await.unwrap();
            let roles = [Role::Tenant].into();
            let token = NewToken {
                sha256: [7; 32],
                account: "a".to_owned(),
                roles,
                note: String::new(),
                created_at_us: 0,
            };
            let token = rows.add_token(&token).await.unwrap().unwrap();
            let read = Select::new(ENDLESS).all(&store.reads, "counting");
            let revoked = async {
                tokio::task::yield_now().await;
                rows.revoke_token(token, 1).await
            };
            tokio::select! {
                biased;
                read = read => panic!("an endless read has ended: {:?}", read.err()),
                revoked = revoked => assert!(revoked.unwrap()),
            }
        }
    }

    #[tokio::test]
    async fn statements_with_lists_are_not_kept_prepared() {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            connections: 1,
            ..StoreOptions::new(StoreLocation::Sqlite(folder.path().join("store.db")))
        };
        let store = Store::open(&options).await.unwrap();
        for count in 1..=50 {
            let numbers: Vec<u64> = (0..count).collect();
            let mut select = Select::new("SELECT bid FROM bid_labels");
            select.one_of(" WHERE bid IN ", &numbers);
            select.all(&store.reads, "reading").await.unwrap();
        }
        let ReadPool::Sqlite(pool) = &store.reads.pool else { panic!("SQLite") };
        let kept = sqlx::Connection::cached_statements_size(&*pool.acquire().await.unwrap());
        assert!(kept < 5, "{kept} statements are kept");
    }

    #[tokio::test]
    async fn long_work_runs_outside_the_threads_of_the_runtime() {
        let [(store, _folder), _] = stores(LONG).await;
        let here = std::thread::current().id();
        let there = store.reads.apart(|| std::thread::current().id()).await;
        assert_ne!(here, there);
    }
}
