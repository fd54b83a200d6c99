//! An engine in a process of its own, started for a bench and stopped after it.

use super::http::Http;
use crate::failure::{Exit, Failure};
use clap::ValueEnum as _;
use http::Uri;
use kubebid_engine::server::config::PartArg;
use rustix::process::{Pid, Signal, kill_process};
use std::env;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio::process::Command;

/// More than any load comes to: what is measured is the engine, not its limits.
const NO_LIMIT: &str = "1000000000000";
/// More than any load has.
const CONNECTIONS: &str = "1000000";
const START: Duration = Duration::from_secs(60);
/// The tables may be far behind.
const STOP: Duration = Duration::from_secs(120);

/// Killed when dropped; [`Child::stop`] is how it should end.
pub(super) struct Child {
    process: tokio::process::Child,
    address: SocketAddr,
    ops: SocketAddr,
    /// Its log, the token of its administrator, and its store where nobody named another.
    folder: TempDir,
}

impl Child {
    /// Starts this very program on the store, or on SQLite in a temporary folder, and waits until it is ready.
    pub(super) async fn start(store: Option<&str>, without: &[PartArg]) -> Result<Child, Failure> {
        let failed = |error: io::Error| Failure::new(Exit::Fault, format!("cannot start an engine: {error}"));
        let folder = tempfile::Builder::new().prefix("kubebid-bench.").tempdir().map_err(failed)?;
        let of_its_own = format!("sqlite:{}", folder.path().join("kubebid.db").display());
        let held = [hold_port().map_err(failed)?, hold_port().map_err(failed)?];
        let address = held[0].local_addr().map_err(failed)?;
        let ops = held[1].local_addr().map_err(failed)?;
        let log = File::create(folder.path().join("log")).map_err(failed)?;
        let mut command = Command::new(env::current_exe().map_err(failed)?);
        command
            .args(["serve", "--clock", "real", "--listen", &address.to_string()])
            .args(["--ops-listen", &ops.to_string(), "--admin-token-file"])
            .arg(folder.path().join("admin.token"))
            .args(["--limit-requests-per-second", NO_LIMIT, "--limit-open-bids", NO_LIMIT])
            .args(["--limit-nodes-wanted", NO_LIMIT, "--projection-lag", NO_LIMIT])
            .args(["--limit-open-requests", NO_LIMIT, "--limit-watches", NO_LIMIT])
            .args(["--limit-anonymous-requests-per-second", NO_LIMIT])
            .args(["--max-connections", CONNECTIONS, "--max-connections-per-address", CONNECTIONS])
            .args(["--limit-units-offered", NO_LIMIT, "--limit-units-per-command", NO_LIMIT])
            .args(["--limit-refusals-per-second", NO_LIMIT, "--limit-commands-per-day", NO_LIMIT])
            .args(without.iter().map(|part| format!("--leave-out={}", word(*part))))
            // A URL may hold a password, and arguments are for everybody to see.
            .env("KUBEBID_STORE", store.unwrap_or(&of_its_own))
            .env_remove("KUBEBID_TLS_CERT")
            .env_remove("KUBEBID_TLS_KEY")
            .env_remove("KUBEBID_PUBLIC_MARKETS")
            .env_remove("KUBEBID_LIMIT_CEILING_MICROS")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // A Ctrl-C is for the load; the engine is stopped when that has ended.
            .process_group(0)
            .kill_on_drop(true);
        let process = command.spawn().map_err(failed)?;
        let mut child = Child { process, address, ops, folder };
        child.ready().await?;
        Ok(child)
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        let until = Instant::now() + START;
        loop {
            if let Ok(Some(status)) = self.process.try_wait() {
                return Err(self.fault(&format!("the engine ended at once, with {status}")));
            }
            if let Ok(mut http) = Http::connect(&self.ops(), None).await
                && let Ok(page) = http.get(&Uri::from_static("/readyz")).await
                && page.status == 200
            {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(self.fault("the engine is not ready after a minute"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// With the end of its log.
    fn fault(&self, what: &str) -> Failure {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(3)..].join("\n  ");
        Failure::new(Exit::Fault, format!("{what}; the end of its log:\n  {last}"))
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn ops(&self) -> String {
        format!("http://{}", self.ops)
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub(super) fn admin_token(&self) -> Result<String, Failure> {
        let read = fs::read_to_string(self.folder.path().join("admin.token"));
        Ok(read.map_err(|error| self.fault(&format!("no administrator's token: {error}")))?.trim().to_owned())
    }

    /// Asks it to stop, and waits until it has.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        let id = self.process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let Some(id) = id else { return Err(self.fault("the engine ended by itself")) };
        if let Err(error) = kill_process(id, Signal::TERM) {
            return Err(self.fault(&format!("the engine cannot be stopped: {error}")));
        }
        match tokio::time::timeout(STOP, self.process.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(self.fault(&format!("the engine stopped with {status}"))),
            Ok(Err(error)) => Err(self.fault(&format!("the engine cannot be waited for: {error}"))),
            Err(_) => Err(self.fault("the engine did not stop within two minutes and was killed")),
        }
    }
}

/// As flags have it.
pub(super) fn word(part: PartArg) -> String {
    part.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// A port that the system gives to nobody else while the engine is not listening on it yet: bound, as all who listen
/// do it, and not listened on.
fn hold_port() -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    Ok(socket)
}
