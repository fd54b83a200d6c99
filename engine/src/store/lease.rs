//! The leader's lease: a row that the leader renews, by the database's clock. It says who may try to lead; the epoch
//! keeps the others from writing ([`super`]).
//! Only PostgreSQL has one. A SQLite file belongs to one engine by its lock, and no engine waits for it.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{AnyConnection, Executor, Row};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use uuid::Uuid;

use super::database::Database;
use super::rows::number;
use super::session::Connection;
use super::{Fault, Store, bigint};

/// The conditions under which a lease is taken from its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseCondition {
    /// Takes the lease from any engine.
    Anyway,
    /// Takes the lease if it has run out.
    Lapsed,
    /// Takes the lease if it has run out, or if the session of its holder has ended, which means that its process
    /// is dead.
    LapsedOrDead,
}

/// The statement that sets $1 as the holder for $2 microseconds from now on, as alive as this session.
macro_rules! hold {
    ($of:literal) => {
        concat!(
            "UPDATE lease SET holder = $1, until = clock_timestamp() + $2::bigint * interval '1 microsecond',
                 pid = pg_backend_pid(),
                 started = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())
             WHERE one = 1 ",
            $of
        )
    };
}

const RENEW: &str = hold!("AND holder = $1");

impl LeaseCondition {
    /// Returns the condition in SQL. The session of another database role hides its start; it then counts as alive.
    fn sql(self) -> &'static str {
        match self {
            LeaseCondition::Anyway => hold!(""),
            LeaseCondition::Lapsed => hold!("AND until <= clock_timestamp()"),
            LeaseCondition::LapsedOrDead => hold!(
                "AND (until <= clock_timestamp() OR NOT EXISTS (
                     SELECT 1 FROM pg_stat_activity a
                     WHERE a.pid = lease.pid AND COALESCE(a.backend_start = lease.started, true)))"
            ),
        }
    }
}

/// Takes the lease, if it may be taken, in the transaction that raises the epoch.
pub(super) async fn take(
    transaction: &mut AnyConnection,
    taking: LeaseCondition,
    holder: Uuid,
    length: Duration,
) -> Result<bool, sqlx::Error> {
    // Locked before it is judged, so that the last holder's session is known.
    transaction.execute("SELECT one FROM lease FOR UPDATE").await?;
    hold(transaction, taking.sql(), holder, length).await
}

async fn hold(
    connection: &mut AnyConnection,
    sql: &'static str,
    holder: Uuid,
    length: Duration,
) -> Result<bool, sqlx::Error> {
    let length_us = bigint(u64::try_from(length.as_micros()).unwrap_or(u64::MAX / 2));
    let held = sqlx::query(sql).bind(holder.to_string()).bind(length_us).execute(connection).await?;
    Ok(held.rows_affected() == 1)
}

/// Creates the row of the lease if it is missing. It then belongs to no engine.
pub(super) async fn lay_out(connection: &mut AnyConnection) -> Result<(), Fault> {
    let row = "INSERT INTO lease (one, holder, until, pid, started) VALUES (1, '', 'epoch', 0, 'epoch')
               ON CONFLICT DO NOTHING";
    connection.execute(row).await.map(drop).map_err(Fault::database("making the row of the lease"))
}

/// A lease that was taken.
#[derive(Debug)]
pub struct Lease {
    database: Arc<dyn Database>,
    holder: Uuid,
    length: Duration,
    /// None before the first renewal, and after one that failed.
    connection: Option<Connection>,
    /// Makes a connection while there is none. It goes on after a renewal that did not wait for it any longer, so that
    /// a server to which connecting takes longer than the lease can still be told of a renewal.
    connecting: Option<Connecting>,
}

/// A task that connects. It ends when this is dropped.
#[derive(Debug)]
struct Connecting(JoinHandle<Result<Connection, Fault>>);

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Lease {
    pub(super) fn new(database: Arc<dyn Database>, holder: Uuid, length: Duration) -> Self {
        Self { database, holder, length, connection: None, connecting: None }
    }

    /// Returns the time for which the lease is taken and renewed.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Renews the lease, even if it has run out. Returns false if another engine has taken it, or if
    /// its row is gone.
    ///
    /// # Errors
    /// The database does not answer within half the length of the lease, in which case the lease may be renewed all
    /// the same, or there is no connection by then. The next call waits for the same connection.
    pub async fn renew(&mut self) -> Result<bool, Fault> {
        let doing = "renewing the lease";
        let patience = self.length / 2;
        let mut connection = self.connect(patience).await?;
        let renewed = timeout(patience, hold(&mut connection, RENEW, self.holder, self.length)).await;
        let renewed = renewed.map_err(|_| Fault::TimedOut { doing })?.map_err(Fault::database(doing))?;
        self.connection = Some(connection);
        Ok(renewed)
    }

    /// Gives the lease back, so that a waiting engine can take it at once. Does nothing if another
    /// engine has taken it.
    pub async fn give_back(mut self) -> Result<(), Fault> {
        let doing = "giving the lease back";
        let length = self.length;
        let given = timeout(length, async {
            let mut connection = self.connect(length).await?;
            sqlx::query("UPDATE lease SET until = 'epoch' WHERE one = 1 AND holder = $1")
                .bind(self.holder.to_string())
                .execute(&mut *connection)
                .await
                .map_err(Fault::database(doing))
        });
        given.await.map_err(|_| Fault::TimedOut { doing })?.map(drop)
    }

    /// Takes the connection, or waits for a new one as long as `patience` allows.
    async fn connect(&mut self, patience: Duration) -> Result<Connection, Fault> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let connecting = self.connecting.get_or_insert_with(|| {
            let database = Arc::clone(&self.database);
            Connecting(tokio::spawn(async move { connect(&*database).await }))
        });
        let connected = timeout(patience, &mut connecting.0).await;
        let late = || Fault::TimedOut { doing: "connecting for the lease" };
        let connected = connected.map_err(|_| late())?;
        self.connecting = None;
        // A task that was cancelled belongs to a process that ends.
        connected.map_err(|_| late())?
    }
}

async fn connect(database: &dyn Database) -> Result<Connection, Fault> {
    let mut connection = database.connect().await?;
    let name = "SET application_name TO 'kubebid lease'";
    connection.execute(name).await.map_err(Fault::database("setting up a connection"))?;
    Ok(connection)
}

/// The lease as a waiting engine finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLease {
    /// The end of the lease, in microseconds since the epoch on the database's clock. It changes with
    /// each renewal.
    pub until_us: u64,
    /// The time until the end; zero if the lease has run out.
    pub remaining: Duration,
}

impl Store {
    /// Returns true if engines can wait for each other on this store.
    pub fn has_lease(&self) -> bool {
        self.database.has_lease()
    }

    /// Returns true if an engine holds the lease and is alive. Returns false on SQLite, where an
    /// engine holds the file instead.
    pub async fn is_led(&self) -> Result<bool, Fault> {
        if !self.has_lease() {
            return Ok(false);
        }
        let held = sqlx::query(
            "SELECT count(*) FROM lease WHERE until > clock_timestamp() AND EXISTS (
                 SELECT 1 FROM pg_stat_activity a
                 WHERE a.pid = lease.pid AND COALESCE(a.backend_start = lease.started, true))",
        );
        let row =
            held.fetch_one(self.journal.pool()).await.map_err(Fault::database("looking at the lease"))?;
        Ok(number(&row, 0) > 0)
    }

    /// Returns the state of the lease.
    pub async fn lease(&self) -> Result<ObservedLease, Fault> {
        let doing = "looking at the lease";
        let look = sqlx::query(
            "SELECT (EXTRACT(EPOCH FROM until) * 1000000)::bigint,
                    (EXTRACT(EPOCH FROM until - clock_timestamp()) * 1000000)::bigint
             FROM lease WHERE one = 1",
        );
        let row = timeout(self.database.patience(), look.fetch_optional(self.journal.pool())).await;
        let row = row.map_err(|_| Fault::TimedOut { doing })?.map_err(Fault::database(doing))?;
        let gone = || "its row is gone; an engine that starts makes it again".to_owned();
        let row = row.ok_or_else(|| Fault::Row { table: "lease", what: gone() })?;
        let remaining = Duration::from_micros(u64::try_from(row.get::<i64, _>(1)).unwrap_or_default());
        Ok(ObservedLease { until_us: number(&row, 0), remaining })
    }
}
