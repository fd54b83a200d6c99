//! The machine, the build and the disk that figures belong to.

use crate::error::BenchError;
use crate::load::micros;
use serde::Serialize;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

/// The machine that the load runs on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// The load average of the last minute before the load.
    pub(crate) load_average: String,
}

impl Machine {
    /// Describes this machine.
    pub(crate) fn this() -> Machine {
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

/// The build of this program, which is also that of an engine that it started.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Build {
    pub(crate) version: &'static str,
    pub(crate) profile: &'static str,
}

impl Build {
    /// Describes this program.
    pub(crate) fn this() -> Build {
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        Build { version: env!("CARGO_PKG_VERSION"), profile }
    }
}

const APPENDS: usize = 300;
const BYTES: usize = 4096;

/// The time that the disk takes to append 4 KiB to a file and to sync it, measured before the load.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fdatasync {
    pub(crate) folder: PathBuf,
    pub(crate) appends: usize,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
}

impl Fdatasync {
    /// Measures the disk of a folder, one append after the other.
    pub(crate) async fn of(folder: PathBuf) -> Result<Fdatasync, BenchError> {
        let failed = |folder: &Path, error: &dyn std::error::Error| {
            BenchError::fault(format!("cannot time fdatasync in {}: {error}", folder.display()))
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

/// Returns the time of each append, in microseconds.
fn time(folder: &Path) -> io::Result<Vec<u64>> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut times = Vec::with_capacity(APPENDS);
    for _ in 0..APPENDS {
        let started = Instant::now();
        file.write_all(&[7; BYTES])?;
        file.sync_data()?;
        times.push(micros(started.elapsed()));
    }
    Ok(times)
}
