//! A PostgreSQL cluster for the tests of one process: made on first use, gone when the process is.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::guardian::Guardian;

/// A running cluster. It listens on a Unix socket only and trusts whoever can reach it.
///
/// A guardian process stops it and removes its folder as soon as this value is dropped or the test
/// process has ended, however it ended.
#[derive(Debug)]
pub struct Cluster {
    guardian: Mutex<Guardian>,
    folder: PathBuf,
    programs: PathBuf,
    databases: AtomicU64,
}

impl Cluster {
    /// The cluster that all tests of this process share, with the durability of production.
    ///
    /// # Panics
    /// When PostgreSQL is not installed or does not start.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&[]))
    }

    /// A cluster of its own, with settings like `fsync=off`.
    ///
    /// # Panics
    /// When PostgreSQL is not installed or does not start.
    pub fn start(settings: &[&str]) -> Self {
        let programs = programs();
        let mut command = as_ordinary_user();
        command.args(["sh", "-c", include_str!("postgres.sh"), "kubebid-testkit"]).arg(&programs);
        for setting in settings {
            command.args(["-c", setting]);
        }
        let guardian = Guardian::start(command, &format!("PostgreSQL of {}", programs.display()));
        let folder = guardian.folder().to_owned();
        Self { guardian: Mutex::new(guardian), folder, programs, databases: AtomicU64::new(0) }
    }

    /// Makes an empty database and returns its URL.
    ///
    /// # Panics
    /// When PostgreSQL refuses.
    pub fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let made = Command::new(self.programs.join("createdb"))
            .args(["-U", "kubebid", "-h"])
            .arg(&self.folder)
            .arg(&name)
            .output()
            .expect("createdb is there");
        assert!(made.status.success(), "createdb: {}", String::from_utf8_lossy(&made.stderr));
        format!("postgres://kubebid@localhost/{name}?host={}", self.folder.display())
    }

    /// Runs one of PostgreSQL's own programs, such as `pg_dump`, and returns what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn program(&self, name: &str, arguments: &[&str]) -> String {
        let ran = Command::new(self.programs.join(name)).args(arguments).output().expect("it can be started");
        assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// The socket to connect to.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(".s.PGSQL.5432")
    }

    /// Crashes the server and waits until it answers again.
    ///
    /// # Panics
    /// When it does not come back.
    pub fn crash(&self, how: Crash) {
        let order = match how {
            Crash::Postmaster => "restart KILL".to_owned(),
            Crash::Immediate => "restart QUIT".to_owned(),
            Crash::Backend => {
                // The first session that the database has anyway, whoever's it is.
                let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'
                           AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1";
                let pid = self.sql(sql);
                // Without one there is nothing that could crash.
                if pid.is_empty() { "restart QUIT".to_owned() } else { format!("crash {pid}") }
            }
        };
        let mut guardian = self.guardian.lock().unwrap_or_else(PoisonError::into_inner);
        guardian.order(&order);
    }

    /// Runs a statement as the superuser, beside the tests' databases, and returns what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn sql(&self, statement: &str) -> String {
        let folder = self.folder.display().to_string();
        let printed = self.program(
            "psql",
            &[
                "-U",
                "kubebid",
                "-h",
                &folder,
                "-d",
                "postgres",
                "-XqtA",
                "-v",
                "ON_ERROR_STOP=1",
                "-c",
                statement,
            ],
        );
        printed.trim_end().to_owned()
    }
}

/// How a server crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// `kill -9` of the postmaster.
    Postmaster,
    /// `pg_ctl stop -m immediate`.
    Immediate,
    /// `kill -9` of one session's process: the postmaster ends all sessions and recovers.
    Backend,
}

/// The folder with `initdb` and `postgres`: `KUBEBID_PG_BIN`, or the newest that Debian installed.
fn programs() -> PathBuf {
    if let Some(folder) = std::env::var_os("KUBEBID_PG_BIN") {
        return folder.into();
    }
    let newest = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let programs = entry.path().join("bin");
            programs.join("initdb").exists().then_some((version, programs))
        })
        .max();
    let Some((_, programs)) = newest else {
        panic!(
            "the tests need PostgreSQL: apt-get install postgresql (or set KUBEBID_PG_BIN to the \
             folder that holds initdb and postgres)"
        );
    };
    programs
}

/// PostgreSQL does not run as root: then it runs as `postgres`, or as `nobody`.
fn as_ordinary_user() -> Command {
    let root = Path::new("/proc/self").metadata().is_ok_and(|me| me.uid() == 0);
    if !root {
        return Command::new("env");
    }
    let exists = |user: &&str| Command::new("id").arg(user).output().is_ok_and(|id| id.status.success());
    let user = ["postgres", "nobody"].into_iter().find(exists).expect("a user who is not root");
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), "--clear-groups", "--inh-caps=-all"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_cluster_is_gone() {
        let cluster = Cluster::start(&["fsync=off"]);
        let (folder, socket) = (cluster.folder.clone(), cluster.socket());
        assert!(socket.exists());
        assert_ne!(cluster.database(), cluster.database());
        drop(cluster);
        assert!(!folder.exists());
    }

    #[test]
    fn a_crashed_cluster_comes_back_with_what_was_committed() {
        let cluster = Cluster::start(&[]);
        cluster.sql("CREATE TABLE kept (n int)");
        for (n, how) in [Crash::Postmaster, Crash::Immediate, Crash::Backend].into_iter().enumerate() {
            cluster.sql(&format!("INSERT INTO kept VALUES ({n})"));
            cluster.crash(how);
            assert_eq!(cluster.sql("SELECT count(*) FROM kept"), (n + 1).to_string());
        }
    }

    #[test]
    #[should_panic(expected = "did not start")]
    fn a_wrong_setting_is_told() {
        Cluster::start(&["no_such_setting=1"]);
    }
}
