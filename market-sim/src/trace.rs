//! Public traces in the project's formats: CSV sorted by time, plain or gzip-ed (`traces/README.md`).

mod demand;
mod field;
mod lifetimes;
mod lines;
mod prices;
mod supply;
mod table;

pub use demand::{Job, Priority, read_demand};
pub use prices::{PriceChange, PriceTrace};
pub use supply::{SupplyChange, SupplyTrace};

use crate::file::{FileError, TRACE, open};
use indicatif::ProgressBar;
use kubebid_core::Price;
use std::path::Path;
use table::Table;

/// The reason for which a trace cannot be read. Lines count from 1; the heading is one of them.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each has a message that says it")]
pub enum TraceError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0}")]
    Columns(String),
    #[error("line {line}: it cannot be read")]
    Read { line: u64, source: std::io::Error },
    #[error("line {line}: a row of more than {kilobytes} KiB; is a quotation mark not closed?")]
    LongRow { line: u64, kilobytes: u64 },
    #[error("line {line}: {fields}, and the heading has {columns}{hint}")]
    Width { line: u64, fields: String, columns: usize, hint: &'static str },
    #[error("line {line}, {field}: a byte is not UTF-8")]
    Encoding { line: u64, field: String },
    #[error("line {line}, {field}: {value:?} is not {expected}")]
    Field { line: u64, field: &'static str, value: String, expected: &'static str },
    #[error("line {line}, {field}: {value} is earlier than the row before; a trace is sorted by time")]
    Unsorted { line: u64, field: &'static str, value: String },
    #[error("line {line}, {field}: {value:?} is in line {first} too, and each {field} is there once")]
    Repeated { line: u64, field: &'static str, value: String, first: u64 },
    #[error("line {line}, {field}: {message}")]
    Contradiction { line: u64, field: &'static str, message: String },
    #[error("the trace has a heading and no rows")]
    NoRows,
    #[error("the trace has no {0}")]
    Empty(&'static str),
}

/// Returns whether a trace is one of jobs; if not, it is one of prices.
pub fn is_demand(path: &Path) -> Result<bool, TraceError> {
    let text = open(path, &TRACE, &ProgressBar::hidden())?;
    let table = Table::of(text, &[&demand::COLUMNS, &prices::COLUMNS])?;
    Ok(table.has(&demand::COLUMNS))
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
