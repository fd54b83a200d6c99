//! Public traces in the project's formats: CSV sorted by time, plain or gzip-ed (`traces/README.md`).

mod demand;
mod lifetimes;
mod prices;
mod supply;

pub use demand::{Job, Priority, read_demand};
pub use prices::{PriceChange, PriceTrace};
pub use supply::{SupplyChange, SupplyTrace};

use chrono::DateTime;
use flate2::read::MultiGzDecoder;
use indicatif::ProgressBar;
use kubebid_core::Price;
use kubebid_core::units::Micros;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

/// The reason for which a trace cannot be read. Lines count from 1; the heading is the first.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each has a message that says it")]
pub enum TraceError {
    #[error("cannot open {path}")]
    Open { path: String, source: std::io::Error },
    #[error("{path} is a folder; a trace is a file")]
    Folder { path: String },
    #[error("{path} is called .gz and is no gzip file: compress it, or give it another name")]
    NoGzip { path: String },
    #[error("{path} is empty")]
    EmptyFile { path: String },
    #[error("{0}")]
    Csv(#[from] csv::Error),
    #[error("line {line}, {field}: {value:?} is not {expected}")]
    Field { line: u64, field: &'static str, value: String, expected: &'static str },
    #[error("line {line}: {value} is earlier than the line before; a trace is sorted by time")]
    Unsorted { line: u64, value: String },
    #[error(
        "a supply trace has the columns available, or pool, capacity_gpus and running_gpus, or lifetime_s"
    )]
    NoSupply,
    #[error("the trace has no {0}")]
    Empty(&'static str),
}

/// The first bytes of every gzip file (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Opens the text of a trace. `bar` shows how much of the file has been read. A file that begins as gzip does is
/// unpacked, whatever its name.
fn open(path: &Path, bar: &ProgressBar) -> Result<Box<dyn Read>, TraceError> {
    let fault = |source| TraceError::Open { path: path.display().to_string(), source };
    let called = || path.display().to_string();
    let file = File::open(path).map_err(fault)?;
    let about = file.metadata().map_err(fault)?;
    if about.is_dir() {
        return Err(TraceError::Folder { path: called() });
    }
    bar.set_length(about.len());
    let mut file = bar.wrap_read(BufReader::new(file));
    let mut first = Vec::new();
    file.by_ref().take(GZIP.len() as u64).read_to_end(&mut first).map_err(fault)?;
    if first.is_empty() {
        return Err(TraceError::EmptyFile { path: called() });
    }
    let (gzipped, named) = (first == GZIP, path.extension().is_some_and(|extension| extension == "gz"));
    let file = Cursor::new(first).chain(file);
    match (gzipped, named) {
        (true, _) => Ok(Box::new(BufReader::new(MultiGzDecoder::new(file)))),
        (false, true) => Err(TraceError::NoGzip { path: called() }),
        (false, false) => Ok(Box::new(file)),
    }
}

/// Returns whether the heading is that of a trace of jobs.
pub fn is_demand(path: &Path) -> Result<bool, TraceError> {
    let mut reader = csv::Reader::from_reader(open(path, &ProgressBar::hidden())?);
    Ok(reader.headers()?.iter().any(|column| column == "submit_time"))
}

/// One field of one line, and what to say of it when it is wrong.
#[derive(Clone, Copy)]
struct Field<'a> {
    line: u64,
    name: &'static str,
    text: &'a str,
}

impl Field<'_> {
    fn wrong(&self, expected: &'static str) -> TraceError {
        TraceError::Field { line: self.line, field: self.name, value: self.text.to_owned(), expected }
    }

    fn time(&self) -> Result<Micros, TraceError> {
        let time = DateTime::parse_from_rfc3339(self.text).ok();
        let micros = time.and_then(|time| u64::try_from(time.timestamp_micros()).ok());
        micros.map(Micros).ok_or_else(|| self.wrong("a time like 2021-03-04T01:03:13Z"))
    }

    fn dollars(&self) -> Result<Price, TraceError> {
        dollars(self.text).ok_or_else(|| self.wrong("a price in dollars with at most 6 decimals"))
    }
}

/// Parses a price as people write it: dollars with at most 6 decimals, as in 2.50.
pub fn dollars(text: &str) -> Option<Price> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || decimals.len() > 6 || !digits(whole) || !digits(decimals) {
        return None;
    }
    format!("{whole}{decimals:0<6}").parse().ok().map(Price)
}
