//! The engine of a bench as a child process: started, awaited, stopped.

use crate::engine::{Addresses, Settings};
use crate::error::BenchError;
use crate::options::NewEngine;
use std::env;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::time::timeout;

/// The time that an engine may take to start.
const START: Duration = Duration::from_secs(60);
/// The time that an engine may take to stop: the tables may lag far.
const STOP: Duration = Duration::from_secs(120);

/// An engine in a process of its own. It is killed when dropped; [`Child::stop`] is how it should end.
pub(crate) struct Child {
    process: tokio::process::Child,
    /// The engine stops when this is closed.
    stdin: ChildStdin,
    addresses: Addresses,
    /// The folder with its log, the token of its administrator, and its store if no other was named.
    folder: TempDir,
}

impl Child {
    /// Starts this very program as an engine, and waits until it is ready.
    pub(crate) async fn start(engine: &NewEngine) -> Result<Child, BenchError> {
        let failed = |error: io::Error| BenchError::fault(format!("cannot start an engine: {error}"));
        let folder = tempfile::Builder::new().prefix("kubebid-bench.").tempdir().map_err(failed)?;
        let own_store = || format!("sqlite:{}", folder.path().join("kubebid.db").display());
        let settings = Settings {
            store: engine.store.clone().unwrap_or_else(own_store),
            admin_token_file: folder.path().join("admin.token"),
            without: engine.without.clone(),
        };
        let mut settings = serde_json::to_vec(&settings).map_err(|error| failed(error.into()))?;
        settings.push(b'\n');
        let log = File::create(folder.path().join("log")).map_err(failed)?;
        let mut process = Command::new(env::current_exe().map_err(failed)?)
            .args(engine.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // A Ctrl-C is for the load; the engine is stopped when that has ended.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let (mut stdin, stdout) = stdin.zip(stdout).expect("both are pipes");
        // A process that has ended has no answer either.
        let _ = stdin.write_all(&settings).await;
        let mut lines = BufReader::new(stdout).lines();
        let addresses = match timeout(START, lines.next_line()).await {
            Ok(Ok(Some(line))) => serde_json::from_str(&line).map_err(|error| failed(error.into()))?,
            Ok(Ok(None) | Err(_)) => {
                let status = process.wait().await.map_err(failed)?;
                return Err(fault(folder.path(), &format!("the engine ended at once, with {status}")));
            }
            Err(_) => return Err(fault(folder.path(), "the engine is not ready after a minute")),
        };
        Ok(Child { process, stdin, addresses, folder })
    }

    /// Returns the endpoint of gRPC and REST.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.addresses.api)
    }

    /// Returns the endpoint of health and metrics.
    pub(crate) fn ops(&self) -> String {
        format!("http://{}", self.addresses.ops)
    }

    /// Returns the folder that has its store, if no other was named.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the token of its administrator.
    pub(crate) fn admin_token(&self) -> Result<String, BenchError> {
        let read = fs::read_to_string(self.folder().join("admin.token"));
        let token = read.map_err(|error| self.fault(&format!("no administrator's token: {error}")))?;
        Ok(token.trim().to_owned())
    }

    /// Stops the engine and waits until it has ended.
    pub(crate) async fn stop(mut self) -> Result<(), BenchError> {
        if let Ok(Some(_)) = self.process.try_wait() {
            return Err(self.fault("the engine ended by itself"));
        }
        // Closes the pipe, which `Child::wait` would not: it was taken.
        let Child { mut process, stdin, folder, .. } = self;
        drop(stdin);
        let fault = |what: &str| fault(folder.path(), what);
        match timeout(STOP, process.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(fault(&format!("the engine stopped with {status}"))),
            Ok(Err(error)) => Err(fault(&format!("the engine cannot be waited for: {error}"))),
            Err(_) => Err(fault("the engine did not stop within two minutes and was killed")),
        }
    }

    fn fault(&self, what: &str) -> BenchError {
        fault(self.folder(), what)
    }
}

/// Returns an error with the end of the engine's log.
fn fault(folder: &Path, what: &str) -> BenchError {
    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(3)..].join("\n  ");
    BenchError::fault(format!("{what}; the end of its log:\n  {last}"))
}
