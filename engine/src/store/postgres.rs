//! The store on PostgreSQL.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgSeverity};
use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, ConnectOptions, Connection as _, Executor, Row};
use tokio::time::timeout;

use super::bulk::{BulkWriter, PostgresBulkWriter};
use super::database::Database;
use super::reads::Reads;
use super::rows::{Dialect, Turn};
use super::session::{Connection, LeftSessions, Session, SessionName};
use super::{Fault, migrations};

const OLDEST: i32 = 150_000;

/// The settings of every connection, whatever the server's defaults are.
const SESSION: &str = "SET application_name TO 'kubebid'; SET synchronous_commit TO on;
                       SET default_transaction_isolation TO 'read committed'";

/// The settings by which the server soon notices that this engine is gone, and releases its locks. A
/// machine that has vanished does not say so, and TCP alone waits for hours. The check of the connection
/// during a statement does not exist on every system.
pub(super) const GONE: &str = "SET tcp_keepalives_idle TO 5; SET tcp_keepalives_interval TO 2;
     SET tcp_keepalives_count TO 3; SET tcp_user_timeout TO '10s';
     SET idle_in_transaction_session_timeout TO '10s';
     SELECT set_config('client_connection_check_interval', '2s', false) WHERE version() LIKE '%linux%'";

/// The settings of the journal's writer. Each of its statements reads one row by its key, and a plan that
/// was made while the tables were small must not be used for large ones. A session that stops in the
/// middle of taking the leadership must not block other engines.
const WRITER: &str = "SET application_name TO 'kubebid journal'; SET enable_seqscan TO off;
                      SET jit TO off; SET plan_cache_mode TO force_generic_plan;
                      SET idle_in_transaction_session_timeout TO '5s'";

/// The statement that reads the [`SessionName`] of this session.
pub(super) const NAME: &str = "SELECT pid, (EXTRACT(EPOCH FROM backend_start) * 1000000)::bigint
                               FROM pg_stat_activity WHERE pid = pg_backend_pid()";

/// A server, and how to connect to it.
pub(super) struct Postgres {
    options: AnyConnectOptions,
    /// The same options, for what only PostgreSQL can do.
    native: PgConnectOptions,
    /// Host, port and database, which may be shown.
    name: String,
    patience: Duration,
    turn: Turn,
    left: LeftSessions,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.name)
    }
}

impl Postgres {
    pub(super) fn new(url: &str, patience: Duration) -> Result<Self, Fault> {
        sqlx::any::install_default_drivers();
        let wrong = |source| Fault::Connect { server: "the given URL".to_owned(), source };
        let parsed = PgConnectOptions::from_str(url).map_err(wrong)?;
        let host = parsed.get_socket().map_or(parsed.get_host().to_owned(), |s| s.display().to_string());
        let database = parsed.get_database().unwrap_or(parsed.get_username());
        let name = format!("{host}:{}/{database}", parsed.get_port());
        let options = AnyConnectOptions::from_str(url).map_err(wrong)?.disable_statement_logging();
        Ok(Self {
            options,
            native: parsed,
            name,
            patience,
            turn: Turn::free(),
            left: LeftSessions::default(),
        })
    }

    fn connect_fault(&self, source: sqlx::Error) -> Fault {
        Fault::Connect { server: self.name.clone(), source }
    }

    /// Ends the sessions of this process that are still open at the server.
    async fn end_left(&self) -> Result<(), Fault> {
        let left = self.left.take();
        if left.is_empty() {
            return Ok(());
        }
        let ended = self.end(&left).await;
        if ended.is_err() {
            self.left.add(left);
        }
        ended.map_err(|source| self.connect_fault(source))
    }

    async fn end(&self, left: &[SessionName]) -> Result<(), sqlx::Error> {
        let mut connection = self.options.connect().await?;
        for SessionName { pid, began_us } in left {
            sqlx::query(
                "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity
                 WHERE pid = $1 AND (EXTRACT(EPOCH FROM backend_start) * 1000000)::bigint = $2",
            )
            .bind(pid)
            .bind(began_us)
            .execute(&mut connection)
            .await?;
        }
        connection.close().await
    }

    /// Refuses a server that could lose what it has acknowledged, or whose version is not supported.
    async fn check(&self, connection: &mut AnyConnection) -> Result<(), Fault> {
        let row = sqlx::query(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
                    current_setting('fsync'), current_setting('full_page_writes'),
                    pg_is_in_recovery(), current_setting('server_encoding')",
        )
        .fetch_one(connection)
        .await
        .map_err(Fault::database("checking the server's settings"))?;
        let server = self.name.clone();
        if row.get::<i32, _>(0) < OLDEST {
            return Err(Fault::TooOld { server, version: row.get(1) });
        }
        for (column, setting) in [(2, "fsync"), (3, "full_page_writes")] {
            let value: String = row.get(column);
            if value != "on" {
                return Err(Fault::Unsafe { server, setting, value });
            }
        }
        if row.get(4) {
            return Err(Fault::Standby { server });
        }
        let encoding: String = row.get(5);
        if encoding != "UTF8" {
            return Err(Fault::Encoding { server, encoding });
        }
        Ok(())
    }
}

#[async_trait]
impl Database for Postgres {
    /// Checks the settings each time, because the server may be another one than before.
    async fn connect(&self) -> Result<Connection, Fault> {
        let connect = async {
            self.end_left().await?;
            let connected = self.options.connect().await;
            let mut connection = connected.map_err(|source| self.connect_fault(source))?;
            self.check(&mut connection).await?;
            let doing = "setting up a connection";
            for settings in [SESSION, GONE, WRITER] {
                connection.execute(settings).await.map_err(Fault::database(doing))?;
            }
            let row = sqlx::query(NAME).fetch_one(&mut connection).await.map_err(Fault::database(doing))?;
            let name = SessionName { pid: row.get(0), began_us: row.get(1) };
            Ok(Connection::new(connection, Some(Session::new(name, self.left.clone()))))
        };
        let late = |_| Fault::TimedOut { doing: "connecting to PostgreSQL" };
        timeout(self.patience, connect).await.map_err(late)?
    }

    async fn pool(&self, connections: u32) -> Result<AnyPool, Fault> {
        AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(self.patience)
            // A reader that waits in vain gets an error. A line in the log for each would add
            // nothing.
            .acquire_slow_threshold(self.patience)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    connection.execute(SESSION).await?;
                    connection.execute(GONE).await.map(drop)
                })
            })
            .connect_with(self.options.clone())
            .await
            .map_err(|source| self.connect_fault(source))
    }

    async fn reads(&self, connections: u32, time_out: Duration) -> Result<Reads, Fault> {
        // If the caller of a statement has gone, the statement ends when the server sees that the
        // connection is closed. Reads are of a few rows by an index, so JIT and parallel workers
        // would cost more than they save.
        let small = "SET jit TO off; SET max_parallel_workers_per_gather TO 0";
        let session =
            format!("{SESSION}; {GONE}; {small}; SET statement_timeout TO {}", time_out.as_millis());
        let pool = AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(self.patience)
            .after_connect(move |connection, _| {
                let session = session.clone();
                // Safe: made of constants and a number.
                Box::pin(async move { connection.execute(AssertSqlSafe(session)).await.map(|_| ()) })
            })
            .connect_with(self.options.clone());
        Ok(Reads::postgres(pool.await.map_err(|source| self.connect_fault(source))?, time_out))
    }

    async fn bulk_writer(&self) -> Result<Box<dyn BulkWriter>, Fault> {
        let late = |_| Fault::TimedOut { doing: "connecting to PostgreSQL" };
        let connect = async {
            self.end_left().await?;
            let connected = PostgresBulkWriter::connect(&self.native, &self.left).await;
            connected.map_err(|source| self.connect_fault(source))
        };
        Ok(Box::new(timeout(self.patience, connect).await.map_err(late)??))
    }

    fn commands_at_once(&self) -> usize {
        4096
    }

    fn rest(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn migrations(&self) -> Migrator {
        migrations::postgres()
    }

    /// One statement, one round trip, one commit.
    fn append(&self) -> &'static str {
        "INSERT INTO journal (first_seq, last_seq, hash, records)
         SELECT $2, $3, $4, $5 FROM leader
         WHERE one = 1 AND epoch = $1 AND COALESCE(
             (SELECT j.last_seq = $2 - 1 AND j.hash = $6 FROM journal j ORDER BY j.first_seq DESC LIMIT 1),
             $2 = 1)
         FOR SHARE OF leader"
    }

    fn has_lease(&self) -> bool {
        true
    }

    fn begin(&self) -> &'static str {
        "BEGIN"
    }

    /// An error of the statement alone means that it has rolled back. Errors that end the session
    /// (severity above ERROR) can come after the commit, as can a lost connection.
    fn surely_not_committed(&self, error: &sqlx::Error) -> bool {
        if matches!(error, sqlx::Error::Encode(_)) {
            return true;
        }
        let error = error.as_database_error().and_then(|e| e.try_downcast_ref::<PgDatabaseError>());
        let Some(error) = error else { return false };
        // 08 connection exceptions, 40003 statement completion unknown, 57P shutdowns.
        let code = error.code();
        let doubtful = code.starts_with("08") || code.starts_with("57P") || code == "40003";
        error.severity() == PgSeverity::Error && !doubtful
    }

    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn turn(&self) -> &Turn {
        &self.turn
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubebid_testkit::Cluster;

    #[tokio::test]
    async fn the_server_notices_soon_that_a_machine_has_vanished() {
        // An address that only this process uses, so that the keepalives are those of TCP.
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = format!("127.99.{high}.{low}");
        let cluster = Cluster::start(&[&format!("listen_addresses={address}")]);
        let database = cluster.database();
        let database = database.split(['/', '?']).nth(3).expect("a name");
        let url = format!("postgres://kubebid@{address}:5432/{database}?sslmode=disable");
        let postgres = Postgres::new(&url, Duration::from_secs(30)).unwrap();
        let mut writer = postgres.connect().await.unwrap();
        let pool = postgres.pool(1).await.unwrap();
        for (setting, value) in [
            ("tcp_keepalives_idle", "5"),
            ("tcp_keepalives_interval", "2"),
            ("tcp_keepalives_count", "3"),
            ("tcp_user_timeout", "10000"),
            ("client_connection_check_interval", "2s"),
        ] {
            let show = "SELECT current_setting($1)";
            let of_writer: String =
                sqlx::query_scalar(show).bind(setting).fetch_one(&mut *writer).await.unwrap();
            let of_pool: String = sqlx::query_scalar(show).bind(setting).fetch_one(&pool).await.unwrap();
            assert_eq!((&of_writer[..], &of_pool[..]), (value, value), "{setting}");
        }
    }
}
