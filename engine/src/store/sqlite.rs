//! The store in a SQLite file.
//!
//! One engine has the file: it holds a lock on `FILE.lock` until it ends, in whatever way it ends. With
//! WAL and `synchronous = FULL`, a commit is on the disk before it is answered.
//!
//! SQLite goes on writing to a file that was removed or replaced. So after each commit the engine
//! compares the file at its path with the one that it opened.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, ConnectOptions, Connection as _, Executor, Row};
use tracing::info;
use uuid::Uuid;

use super::bulk::{BulkWriter, SqliteBulkWriter};
use super::database::Database;
use super::reads::Reads;
use super::rows::{Dialect, Turn};
use super::session::Connection;
use super::{Fault, Journal, migrations, wal};

/// The settings of every connection. Only another process, such as a person's `sqlite3`, can make the
/// file busy.
const SESSION: &str = "PRAGMA busy_timeout = 5000; PRAGMA synchronous = FULL";

/// A database file.
pub(super) struct Sqlite {
    path: PathBuf,
    options: AnyConnectOptions,
    /// The file, if this process owns it. Absent if it is only read.
    owned: Option<Owned>,
    turn: Turn,
    patience: Duration,
}

/// A file that no other engine opens.
struct Owned {
    /// Device and inode.
    identity: (u64, u64),
    /// Locked as long as it is open.
    _lock: File,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sqlite({})", self.path.display())
    }
}

impl Sqlite {
    /// Takes the file for this engine, and creates it if it is missing. If the write-ahead log of a
    /// missing file is there, creates the file only with `over_remains`, and deletes the log.
    pub(super) async fn to_own(path: &Path, over_remains: bool, patience: Duration) -> Result<Self, Fault> {
        // However the path is written, the lock has one name.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let lock = lock(&path)?;
        let log = beside(&path, "-wal");
        if holds_anything(&path) {
            wal::check(&path, &log, patience).await?;
        } else if holds_anything(&log) {
            if !over_remains {
                return Err(Fault::Remains { file: path, log });
            }
            delete(&[log, beside(&path, "-shm")])?;
        }
        let failed = |source| Fault::Prepare { file: path.clone(), source };
        let identity = prepare(&path).map_err(failed)?;
        let owned = Owned { identity, _lock: lock };
        // The file exists since the line above. If it is missing later it was removed, and it is
        // not created again.
        Self::new(path, Some(owned), SqliteConnectOptions::new().create_if_missing(false), patience)
    }

    /// Opens a file to read that an engine may have open.
    pub(super) fn to_read(path: &Path, patience: Duration) -> Result<Self, Fault> {
        Self::new(path.to_owned(), None, SqliteConnectOptions::new().read_only(true), patience)
    }

    /// Opens a file to read, and tries it at once. A pool would repeat the attempt until its time is
    /// over, and report only that. If no engine has the file, checks its log first.
    pub(super) async fn found_to_read(path: &Path, patience: Duration) -> Result<Self, Fault> {
        let log = beside(path, "-wal");
        if holds_anything(path) && holds_anything(&log) && !is_owned(path) {
            wal::check(path, &log, patience).await?;
        }
        let sqlite = Self::to_read(path, patience)?;
        let Err(fault) = sqlite.try_read().await else { return Ok(sqlite) };
        if !path.exists() || holds_anything(&beside(path, "-wal")) {
            return Err(fault);
        }
        // In a folder that is not writable, a reader cannot create the shared memory of the log.
        // No other process can write there either.
        let frozen = Self::without_log(path, patience)?;
        frozen.try_read().await.map(|()| frozen)
    }

    async fn try_read(&self) -> Result<(), Fault> {
        let mut connection = self.connect_as_it_is().await?;
        for sql in [SESSION, "SELECT count(*) FROM leader"] {
            connection.execute(sql).await.map_err(|source| self.open_fault(source))?;
        }
        Ok(())
    }

    /// Opens the journal to read.
    pub(super) async fn journal(&self) -> Result<Journal, Fault> {
        Journal::open(self.pool(1).await?).await
    }

    /// Opens a file to read as if nothing were beside it. It must not change meanwhile.
    pub(super) fn without_log(path: &Path, patience: Duration) -> Result<Self, Fault> {
        let options = SqliteConnectOptions::new().read_only(true).immutable(true);
        Self::new(path.to_owned(), None, options, patience)
    }

    fn new(
        path: PathBuf,
        owned: Option<Owned>,
        options: SqliteConnectOptions,
        patience: Duration,
    ) -> Result<Self, Fault> {
        sqlx::any::install_default_drivers();
        let url = options.filename(&path).to_url_lossy();
        let options = AnyConnectOptions::from_url(&url)
            .map_err(|source| Fault::OpenFile { file: path.clone(), source })?
            .disable_statement_logging();
        Ok(Self { path, options, owned, turn: Turn::one_at_a_time(), patience })
    }

    /// Opens a connection that changes no setting of the file.
    pub(super) async fn connect_as_it_is(&self) -> Result<AnyConnection, Fault> {
        self.options.connect().await.map_err(|source| self.open_fault(source))
    }

    fn open_fault(&self, source: sqlx::Error) -> Fault {
        Fault::OpenFile { file: self.path.clone(), source }
    }
}

/// Deletes the store in a file, unless an engine has it open. A missing store is no error.
pub fn forget_sqlite(path: &Path) -> Result<(), Fault> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let _lock = lock(&path)?;
    delete(&["", "-wal", "-shm"].map(|end| beside(&path, end)))
}

/// Returns the path of the write-ahead log of a SQLite file, if it holds anything.
pub fn log_of_sqlite(path: &Path) -> Option<PathBuf> {
    Some(beside(path, "-wal")).filter(|log| holds_anything(log))
}

/// Deletes files. A missing one is no error.
fn delete(files: &[PathBuf]) -> Result<(), Fault> {
    for file in files {
        match fs::remove_file(file) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(Fault::Delete { file: file.clone(), source });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// The place of a SQLite file in which another one is put. No engine has it meanwhile.
#[derive(Debug)]
pub struct Replacement {
    path: PathBuf,
    _lock: File,
}

impl Replacement {
    /// Takes the place. Nothing need be there.
    ///
    /// # Errors
    /// An engine has the file open.
    pub fn at(path: &Path) -> Result<Self, Fault> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let lock = lock(&path)?;
        Ok(Self { path, _lock: lock })
    }

    /// Returns true if a file or its log is there.
    pub fn is_occupied(&self) -> bool {
        holds_anything(&self.path) || holds_anything(&beside(&self.path, "-wal"))
    }

    /// Returns the path at which the new file is made, beside the old one. Nothing is there.
    pub fn draft(&self) -> Result<PathBuf, Fault> {
        let draft = beside(&self.path, ".restoring");
        delete(&["", "-wal", "-shm", "-journal", ".lock"].map(|end| beside(&draft, end)))?;
        Ok(draft)
    }

    /// Puts the new file in place. Moves what was there aside first, and returns where to. After a crash in between,
    /// no engine starts on a part of it.
    pub fn put(self) -> Result<Option<PathBuf>, Fault> {
        let draft = beside(&self.path, ".restoring");
        delete(&["-wal", "-shm", ".lock"].map(|end| beside(&draft, end)))?;
        let aside = self.is_occupied().then(|| self.free_name());
        // The file goes before its log: without the log it would be an older store.
        for end in aside.iter().flat_map(|_| ["", "-wal", "-shm"]) {
            let aside = beside(aside.as_ref().expect("it has a name"), end);
            rename(&beside(&self.path, end), &aside)?;
        }
        rename(&draft, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|source| Fault::Prepare { file: folder.to_owned(), source })?;
        Ok(aside)
    }

    /// Returns a name for what is moved aside.
    fn free_name(&self) -> PathBuf {
        let names = (1..).map(|n| beside(&self.path, &format!(".before-restore-{n}")));
        let is_free = |name: &PathBuf| !["", "-wal"].iter().any(|end| beside(name, end).exists());
        names.into_iter().find(is_free).expect("some number is free")
    }
}

/// Renames a file. A missing one is no error.
fn rename(from: &Path, to: &Path) -> Result<(), Fault> {
    match fs::rename(from, to) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(Fault::Prepare { file: from.to_owned(), source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Gives a copy of a SQLite file its own number, so that the log of the original does not pass for its log.
pub(super) async fn number_copy(path: &Path, patience: Duration) -> Result<(), Fault> {
    let copy = Sqlite::new(path.to_owned(), None, SqliteConnectOptions::new(), patience)?;
    let mut connection = copy.connect_as_it_is().await?;
    for sql in [SESSION.to_owned(), format!("PRAGMA user_version = {}", random_id())] {
        // Safe: made of constants and a number.
        connection.execute(AssertSqlSafe(sql)).await.map_err(|source| copy.open_fault(source))?;
    }
    connection.close().await.map_err(|source| copy.open_fault(source))
}

/// Returns a number for a file, which is not 0.
fn random_id() -> u32 {
    (Uuid::new_v4().as_u128() as u32 & 0x7fff_ffff).max(1)
}

/// Returns true if an engine may have the file open.
fn is_owned(path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match File::open(beside(&path, ".lock")) {
        Ok(lock) => matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// Returns the path with `end` appended to the file's name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut file = OsString::from(path);
    file.push(end);
    file.into()
}

fn holds_anything(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.len() > 0)
}

/// Creates the file, readable by its owner only, if it is missing. Otherwise removes the rights of all
/// but its owner and group. All bids and hashes of tokens are in it. SQLite gives the files beside it the
/// same mode. Returns its identity.
fn prepare(path: &Path) -> std::io::Result<(u64, u64)> {
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            for file in [path.to_owned(), beside(path, "-wal"), beside(path, "-shm")] {
                keep_from_others(&file)?;
            }
        }
        Err(error) => return Err(error),
    }
    fs::metadata(path).map(|found| identity(&found))
}

fn keep_from_others(file: &Path) -> std::io::Result<()> {
    let Ok(found) = fs::metadata(file) else { return Ok(()) };
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o007 == 0 {
        return Ok(());
    }
    info!(file = %file.display(), mode = format!("{mode:o}"), "taken from others: it holds all bids");
    fs::set_permissions(file, fs::Permissions::from_mode(mode & !0o007))
}

fn identity(found: &fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Makes an empty file that its owner alone may read.
pub(super) fn make_private(path: &Path) -> Result<(), Fault> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(path);
    made.map(drop).map_err(|source| Fault::Prepare { file: path.to_owned(), source })
}

/// Locks `PATH.lock`, a file that is never removed.
fn lock(path: &Path) -> Result<File, Fault> {
    let lock = beside(path, ".lock");
    let file = match File::options().create(true).truncate(false).write(true).mode(0o600).open(&lock) {
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
        // A different file at our path is a different store.
        self.is_in_place()?;
        let mut connection = self.options.connect().await.map_err(|source| self.open_fault(source))?;
        for settings in [SESSION, "PRAGMA journal_mode = WAL"] {
            connection.execute(settings).await.map_err(|source| self.open_fault(source))?;
        }
        let id = sqlx::query("PRAGMA user_version").fetch_one(&mut connection).await;
        if id.map_err(|source| self.open_fault(source))?.get::<i64, _>(0) == 0 {
            let id = AssertSqlSafe(format!("PRAGMA user_version = {}", random_id()));
            connection.execute(id).await.map_err(|source| self.open_fault(source))?;
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

    async fn bulk_writer(&self) -> Result<Box<dyn BulkWriter>, Fault> {
        Ok(Box::new(SqliteBulkWriter::new(self.connect().await?, self.turn.clone()).await?))
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

    /// Returns true for errors that SQLite reports before it writes the commit. After a failed write
    /// or sync the file may have the commit or not.
    fn surely_not_committed(&self, error: &sqlx::Error) -> bool {
        const BUSY: i32 = 5;
        const LOCKED: i32 = 6;
        const READONLY: i32 = 8;
        const TOOBIG: i32 = 18;
        const CONSTRAINT: i32 = 19;
        let code = error.as_database_error().and_then(|e| e.code());
        let code = code.and_then(|code| code.parse::<i32>().ok());
        // The low byte is the error; the others are details of it.
        code.is_some_and(|code| [BUSY, LOCKED, READONLY, TOOBIG, CONSTRAINT].contains(&(code & 0xff)))
            || matches!(error, sqlx::Error::Encode(_))
    }

    /// Returns true if a sync failed. The disk may not have the commit then, and a second sync of the
    /// same pages says nothing: Linux reports a failed write only once.
    fn is_lost(&self, error: &sqlx::Error) -> bool {
        let code = error.as_database_error().and_then(|e| e.code());
        code.is_some_and(|code| is_failed_sync(&code))
    }

    fn is_in_place(&self) -> Result<(), Fault> {
        let Some(Owned { identity: ours, .. }) = &self.owned else { return Ok(()) };
        let found = fs::metadata(&self.path).ok().as_ref().map(identity);
        if found == Some(*ours) { Ok(()) } else { Err(Fault::Displaced { file: self.path.clone() }) }
    }

    fn has_its_log(&self) -> Result<(), Fault> {
        self.is_in_place()?;
        let log = beside(&self.path, "-wal");
        if self.owned.is_none() || log.exists() { Ok(()) } else { Err(Fault::Displaced { file: log }) }
    }

    async fn complete_file(&self) -> Result<(), Fault> {
        if self.owned.is_none() {
            return Ok(());
        }
        let doing = "writing the log into the file";
        let _turn = self.turn.take().await;
        self.is_in_place()?;
        let mut connection = self.connect_as_it_is().await?;
        connection.execute(SESSION).await.map_err(Fault::database(doing))?;
        let checkpoint = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&mut connection).await;
        let is_busy = checkpoint.map_err(Fault::database(doing))?.get::<i64, _>(0) != 0;
        connection.close().await.map_err(Fault::database(doing))?;
        let log = beside(&self.path, "-wal");
        if is_busy { Err(Fault::LogRemains { file: self.path.clone(), log }) } else { Ok(()) }
    }

    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn turn(&self) -> &Turn {
        &self.turn
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}

/// Returns true if a code of SQLite says that a sync failed: `SQLITE_IOERR_FSYNC` or
/// `SQLITE_IOERR_DIR_FSYNC`.
fn is_failed_sync(code: &str) -> bool {
    const FSYNC: i32 = 10 | (4 << 8);
    const DIR_FSYNC: i32 = 10 | (5 << 8);
    code.parse::<i32>().is_ok_and(|code| [FSYNC, DIR_FSYNC].contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_sync_is_distinguished_from_other_failures() {
        assert!(is_failed_sync("1034") && is_failed_sync("1290"));
        // A failed write, a full disk, a busy file.
        assert!(!is_failed_sync("778") && !is_failed_sync("13") && !is_failed_sync("5"));
    }
}
