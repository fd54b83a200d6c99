//! A PostgreSQL cluster for the tests of one process: made on first use, gone when the process is.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::guardian::Guardian;

/// A running cluster. It listens on a Unix socket only and trusts whoever can reach it.
///
/// A guardian process stops it and removes its folder as soon as this value is dropped or the test
/// process has ended, however it ended.
#[derive(Debug)]
pub struct Cluster {
    guardian: Guardian,
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
        Self { guardian, programs, databases: AtomicU64::new(0) }
    }

    /// Makes an empty database and returns its URL.
    ///
    /// # Panics
    /// When PostgreSQL refuses.
    pub fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let made = Command::new(self.programs.join("createdb"))
            .args(["-U", "kubebid", "-h"])
            .arg(self.guardian.folder())
            .arg(&name)
            .output()
            .expect("createdb is there");
        assert!(made.status.success(), "createdb: {}", String::from_utf8_lossy(&made.stderr));
        format!("postgres://kubebid@localhost/{name}?host={}", self.guardian.folder().display())
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
        self.guardian.folder().join(".s.PGSQL.5432")
    }
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
        let (folder, socket) = (cluster.guardian.folder().to_owned(), cluster.socket());
        assert!(socket.exists());
        assert_ne!(cluster.database(), cluster.database());
        drop(cluster);
        assert!(!folder.exists());
    }

    #[test]
    #[should_panic(expected = "did not start")]
    fn a_wrong_setting_is_told() {
        Cluster::start(&["no_such_setting=1"]);
    }
}
