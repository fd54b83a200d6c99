//! Programs of the machine that stand for the images of containers.

use std::path::{Path, PathBuf};

/// The programs that stand for one image. A container sees the machine's `/usr` and these folders.
#[derive(Debug, Clone)]
pub struct Image {
    pub(super) name: String,
    pub(super) entrypoint: Vec<String>,
    pub(super) folders: Vec<PathBuf>,
}

impl Image {
    /// An image without an entrypoint: its containers say what they run.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), entrypoint: Vec::new(), folders: Vec::new() }
    }

    /// MariaDB in the place of the image `mysql`: `testkit/images/mysql`.
    pub fn mysql(name: &str) -> Self {
        let folder = images().join("mysql");
        Self::new(name).path(&folder).entrypoint(&folder.join("docker-entrypoint.sh"), &[])
    }

    /// Redis in the place of the image `redis`: `testkit/images/redis`.
    pub fn redis(name: &str) -> Self {
        Self::new(name).path(&images().join("redis"))
    }

    /// Redis in the place of the image `valkey/valkey`, which Debian 12 does not have: `testkit/images/valkey`.
    pub fn valkey(name: &str) -> Self {
        Self::new(name).path(&images().join("valkey"))
    }

    /// Memcached in the place of the image `memcached`: `testkit/images/memcached`.
    pub fn memcached(name: &str) -> Self {
        Self::new(name).path(&images().join("memcached"))
    }

    /// Sets the program that containers run which name no `command`, with its first arguments.
    #[must_use]
    pub fn entrypoint(mut self, program: &Path, arguments: &[&str]) -> Self {
        self.entrypoint = vec![program.display().to_string()];
        self.entrypoint.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self.path(program.parent().expect("a path of a file"))
    }

    /// Adds a folder of the machine, which containers see at the same path, read-only, and first in their `PATH`.
    #[must_use]
    pub fn path(mut self, folder: &Path) -> Self {
        if !self.folders.iter().any(|it| it == folder) {
            self.folders.push(folder.to_owned());
        }
        self
    }

    /// The value of `PATH` in its containers.
    pub(super) fn search_path(&self) -> String {
        let own = self.folders.iter().map(|folder| folder.display().to_string());
        let system = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        own.chain(system.map(str::to_owned)).collect::<Vec<_>>().join(":")
    }

    /// Returns what a container runs: as in Kubernetes, `command` takes the place of the entrypoint, and `args` follow.
    pub(super) fn argv(&self, command: &[String], args: &[String]) -> Result<Vec<String>, String> {
        let program = if command.is_empty() { &self.entrypoint[..] } else { command };
        if program.is_empty() {
            return Err(format!("no command specified, and the image {} has no entrypoint", self.name));
        }
        Ok(program.iter().chain(args).cloned().collect())
    }
}

/// Returns the folder of the programs that stand for images.
fn images() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("images")
}
