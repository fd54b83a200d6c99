//! The store in a SQLite file.
//!
//! One engine has the file: it holds a lock on `FILE.lock` until it ends, however it ends. WAL and
//! `synchronous = FULL`: a commit is on the disk before it is answered.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AnyConnection, AnyPool, ConnectOptions, Executor};

use super::database::Database;
use super::projections::{Reads, Rowwise, SqliteTables};
use super::rows::{Parameters, Turn};
use super::session::Connection;
use super::{Fault, migrations};

/// What every connection has. Only another process, which is a person's `sqlite3`, can make it busy.
const SESSION: &str = "PRAGMA busy_timeout = 5000; PRAGMA synchronous = FULL";

/// A database file.
pub(super) struct Sqlite {
    path: PathBuf,
    options: AnyConnectOptions,
    /// Locked as long as it is open; absent when we only read.
    _lock: Option<File>,
    turn: Turn,
    patience: Duration,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sqlite({})", self.path.display())
    }
}

impl Sqlite {
    /// Takes the file for this engine.
    pub(super) fn to_own(path: &Path, patience: Duration) -> Result<Self, Fault> {
        // However the file is called, its lock has one name.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let lock = lock(&path)?;
        Self::new(path, Some(lock), SqliteConnectOptions::new().create_if_missing(true), patience)
    }

    /// Reads a file that an engine may have.
    pub(super) fn to_read(path: &Path, patience: Duration) -> Result<Self, Fault> {
        Self::new(path.to_owned(), None, SqliteConnectOptions::new().read_only(true), patience)
    }

    fn new(
        path: PathBuf,
        lock: Option<File>,
        options: SqliteConnectOptions,
        patience: Duration,
    ) -> Result<Self, Fault> {
        sqlx::any::install_default_drivers();
        let url = options.filename(&path).to_url_lossy();
        let options = AnyConnectOptions::from_url(&url)
            .map_err(|source| Fault::OpenFile { file: path.clone(), source })?
            .disable_statement_logging();
        Ok(Self { path, options, _lock: lock, turn: Turn::one_at_a_time(), patience })
    }

    /// A connection that sets nothing in the file.
    pub(super) async fn connect_as_it_is(&self) -> Result<AnyConnection, Fault> {
        self.options.connect().await.map_err(|source| self.open_fault(source))
    }

    fn open_fault(&self, source: sqlx::Error) -> Fault {
        Fault::OpenFile { file: self.path.clone(), source }
    }
}

/// Deletes the store in a file, unless an engine has it. Where there is none it is no error.
pub fn forget_sqlite(path: &Path) -> Result<(), Fault> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let _lock = lock(&path)?;
    for beside in ["", "-wal", "-shm"] {
        let mut file = OsString::from(&path);
        file.push(beside);
        match fs::remove_file(&file) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(Fault::Delete { file: file.into(), source });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Locks `PATH.lock`, a file that stays.
fn lock(path: &Path) -> Result<File, Fault> {
    let mut lock = OsString::from(path);
    lock.push(".lock");
    let lock = PathBuf::from(lock);
    let file = match File::options().create(true).truncate(false).write(true).open(&lock) {
        Ok(file) => file,
        Err(source) => return Err(Fault::Lock { lock, source }),
    };
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Fault::InUse { file: path.to_owned(), lock }),
        Err(TryLockError::Error(source)) => Err(Fault::Lock { lock, source }),
    }
}

#[async_trait]
impl Database for Sqlite {
    async fn connect(&self) -> Result<Connection, Fault> {
        let mut connection = self.options.connect().await.map_err(|source| self.open_fault(source))?;
        for settings in [SESSION, "PRAGMA journal_mode = WAL"] {
            connection.execute(settings).await.map_err(|source| self.open_fault(source))?;
        }
        Ok(Connection::new(connection, None))
    }

    async fn pool(&self, connections: u32) -> Result<AnyPool, Fault> {
        AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(self.patience)
            .acquire_slow_threshold(self.patience)
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute(SESSION).await.map(|_| ()) })
            })
            .connect_with(self.options.clone())
            .await
            .map_err(|source| self.open_fault(source))
    }

    async fn reads(&self, connections: u32, time_out: Duration) -> Result<Reads, Fault> {
        let options = SqliteConnectOptions::new().filename(&self.path).disable_statement_logging();
        let pool = SqlitePoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(self.patience)
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute(SESSION).await.map(|_| ()) })
            })
            .connect_with(options);
        Ok(Reads::sqlite(pool.await.map_err(|source| self.open_fault(source))?, time_out))
    }

    async fn rowwise(&self) -> Result<Box<dyn Rowwise>, Fault> {
        Ok(Box::new(SqliteTables::new(self.connect().await?, self.turn.clone()).await?))
    }

    fn commands_at_once(&self) -> usize {
        256
    }

    fn rest(&self) -> Duration {
        Duration::ZERO
    }

    fn migrations(&self) -> Migrator {
        migrations::sqlite()
    }

    fn append(&self) -> &'static str {
        "INSERT INTO journal (first_seq, last_seq, hash, records)
         SELECT $2, $3, $4, $5 FROM leader
         WHERE one = 1 AND epoch = $1 AND COALESCE(
             (SELECT j.last_seq = $2 - 1 AND j.hash = $6 FROM journal j ORDER BY j.first_seq DESC LIMIT 1),
             $2 = 1)"
    }

    fn has_lease(&self) -> bool {
        false
    }

    fn begin(&self) -> &'static str {
        "BEGIN IMMEDIATE"
    }

    /// Errors that SQLite reports before it writes the commit. After a failed write or sync the file
    /// may hold the commit or not.
    fn surely_not_committed(&self, error: &sqlx::Error) -> bool {
        const BUSY: i32 = 5;
        const LOCKED: i32 = 6;
        const READONLY: i32 = 8;
        const TOOBIG: i32 = 18;
        const CONSTRAINT: i32 = 19;
        let code = error.as_database_error().and_then(|e| e.code());
        let code = code.and_then(|code| code.parse::<i32>().ok());
        // The low byte says what; the rest says more about it.
        code.is_some_and(|code| [BUSY, LOCKED, READONLY, TOOBIG, CONSTRAINT].contains(&(code & 0xff)))
            || matches!(error, sqlx::Error::Encode(_))
    }

    fn parameters(&self) -> Parameters {
        Parameters::InOrder
    }

    fn turn(&self) -> &Turn {
        &self.turn
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}
