//! The store on PostgreSQL.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgSeverity};
use sqlx::{AnyConnection, AnyPool, ConnectOptions, Executor, Row};
use tokio::time::timeout;

use super::database::Database;
use super::projections::{PostgresTables, Rowwise};
use super::rows::{Parameters, Turn};
use super::{Fault, migrations};

const OLDEST: i32 = 150_000;

/// What every connection of ours has, whatever the server's defaults are.
const SESSION: &str = "SET application_name TO 'kubebid'; SET synchronous_commit TO on;
                       SET default_transaction_isolation TO 'read committed'";

/// The writer's statements each read one row by its key; a plan made while the tables were small must
/// not outlive that. Who stands still in the middle of taking the journal does not keep it from the others.
const WRITER: &str = "SET application_name TO 'kubebid journal'; SET enable_seqscan TO off;
                      SET jit TO off; SET plan_cache_mode TO force_generic_plan;
                      SET idle_in_transaction_session_timeout TO '5s'";

/// A server, or how to get to it.
pub(super) struct Postgres {
    options: AnyConnectOptions,
    /// The same, for what only PostgreSQL can do.
    native: PgConnectOptions,
    /// Host, port and database: what may be shown.
    name: String,
    patience: Duration,
    turn: Turn,
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
        Ok(Self { options, native: parsed, name, patience, turn: Turn::free() })
    }

    fn connect_fault(&self, source: sqlx::Error) -> Fault {
        Fault::Connect { server: self.name.clone(), source }
    }

    /// Refuses a server that could lose what it has acknowledged, or that we do not know.
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
    /// Checks the settings each time: the server can be another one than when we began.
    async fn connect(&self) -> Result<AnyConnection, Fault> {
        let connect = async {
            let connected = self.options.connect().await;
            let mut connection = connected.map_err(|source| self.connect_fault(source))?;
            self.check(&mut connection).await?;
            for settings in [SESSION, WRITER] {
                connection.execute(settings).await.map_err(Fault::database("setting up a connection"))?;
            }
            Ok(connection)
        };
        let late = |_| Fault::TimedOut { doing: "connecting to PostgreSQL" };
        timeout(self.patience, connect).await.map_err(late)?
    }

    async fn pool(&self, connections: u32) -> Result<AnyPool, Fault> {
        AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(self.patience)
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute(SESSION).await.map(|_| ()) })
            })
            .connect_with(self.options.clone())
            .await
            .map_err(|source| self.connect_fault(source))
    }

    async fn rowwise(&self) -> Result<Box<dyn Rowwise>, Fault> {
        let late = |_| Fault::TimedOut { doing: "connecting to PostgreSQL" };
        let connected = timeout(self.patience, PostgresTables::connect(&self.native)).await.map_err(late)?;
        Ok(Box::new(connected.map_err(|source| self.connect_fault(source))?))
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

    /// An error of the statement alone: it has rolled back. Errors that end the session (severity
    /// above ERROR) can come after the commit, as can a lost connection.
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

    fn parameters(&self) -> Parameters {
        Parameters::Numbered
    }

    fn turn(&self) -> &Turn {
        &self.turn
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}
