//! The sub-commands of `market-sim`, one file each, and what they share: output formats, progress bars, errors.

pub(crate) mod backtest;
pub(crate) mod calibrate;
pub(crate) mod experiment;
pub(crate) mod live;
pub(crate) mod play;
pub(crate) mod replay_demand;
pub(crate) mod replay_prices;
pub(crate) mod replay_supply;
pub(crate) mod simulate;
mod stdout;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kubebid_core::Price;
use kubebid_report::Page;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

/// Format of a printed result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
    Csv,
}

/// Returns a bar for how much of a trace has been read.
pub(crate) fn reading_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes}, {eta} left");
    bar.with_style(style.expect("a sound template"))
}

/// Returns a bar for how many of `of` are done.
pub(crate) fn counting_bar(of: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(of), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template(&format!("{{bar:40}} {{pos}}/{{len}} {what}, {{eta}} left"));
    bar.with_style(style.expect("a sound template"))
}

pub(crate) fn write_page(page: &Page, path: &Path) -> Result<(), Box<dyn Error>> {
    page.write(path).map_err(|fault| format!("cannot write {}: {fault}", path.display()))?;
    eprintln!("market-sim: wrote {}", path.display());
    Ok(())
}

/// Parses a price of the command line.
pub(crate) fn dollars(text: &str) -> Result<Price, String> {
    let price = market_sim::trace::dollars(text);
    price.ok_or_else(|| format!("{text:?} is not a price in dollars with at most 6 decimals, like 2.50"))
}

/// Prints an error with its causes, and returns the exit code.
pub(crate) fn complain(error: &dyn Error) -> ExitCode {
    eprintln!("market-sim: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprintln!("  because {cause}");
        source = cause.source();
    }
    ExitCode::from(1)
}
