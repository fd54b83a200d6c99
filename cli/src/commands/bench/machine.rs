//! The machine, the build and the disk that figures belong to.

use crate::failure::{Exit, Failure};
use serde::Serialize;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

/// The machine that the load runs on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: usize,
    pub(super) kernel: String,
    /// Of the last minute before the load.
    pub(super) load_average: String,
}

impl Machine {
    pub(super) fn this() -> Machine {
        let first = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpus = first("/proc/cpuinfo");
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = first("/proc/loadavg");
        Machine {
            cpu: model.map_or("unknown", |(_, model)| model.trim()).to_owned(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: first("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_average: load.split(' ').next().unwrap_or_default().to_owned(),
        }
    }
}

/// The program that loads, and the engine too where it was started for that.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Build {
    pub(super) version: &'static str,
    pub(super) profile: &'static str,
}

impl Build {
    pub(super) fn this() -> Build {
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        Build { version: env!("CARGO_PKG_VERSION"), profile }
    }
}

const APPENDS: usize = 300;
const BYTES: usize = 4096;

/// How long the disk takes for 4 KiB at the end of a file and fdatasync, one after the other, before the load.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Fdatasync {
    pub(super) folder: PathBuf,
    pub(super) appends: usize,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
}

impl Fdatasync {
    pub(super) async fn of(folder: PathBuf) -> Result<Fdatasync, Failure> {
        let failed = |folder: &Path, error: &dyn std::error::Error| {
            Failure::new(Exit::Fault, format!("cannot time fdatasync in {}: {error}", folder.display()))
        };
        let place = folder.clone();
        match tokio::task::spawn_blocking(move || time(&place)).await {
            Ok(Ok(mut times)) => {
                times.sort_unstable();
                let at = |hundredths: usize| times[(times.len() - 1) * hundredths / 100];
                Ok(Fdatasync { appends: times.len(), p50_us: at(50), p99_us: at(99), folder })
            }
            Ok(Err(error)) => Err(failed(&folder, &error)),
            Err(error) => Err(failed(&folder, &error)),
        }
    }
}

fn time(folder: &Path) -> io::Result<Vec<u64>> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut times = Vec::with_capacity(APPENDS);
    for _ in 0..APPENDS {
        let started = Instant::now();
        file.write_all(&[7; BYTES])?;
        file.sync_data()?;
        times.push(super::load::micros(started.elapsed()));
    }
    Ok(times)
}
