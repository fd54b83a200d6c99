//! The sub-commands of `market-sim`, one file each, and what they share: output formats, progress bars, errors.

pub(crate) mod attack;
pub(crate) mod backtest;
pub(crate) mod calibrate;
pub(crate) mod experiment;
pub(crate) mod live;
pub(crate) mod play;
pub(crate) mod replay_demand;
pub(crate) mod replay_prices;
pub(crate) mod replay_supply;
pub(crate) mod simulate;
pub(crate) mod stdout;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kubebid_core::Price;
use kubebid_report::Page;
use kubebid_report::text::printable_lines;
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;
use stdout::note;

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
    note(format_args!("market-sim: wrote {}", path.display()));
    Ok(())
}

/// Parses a price of the command line.
pub(crate) fn dollars(text: &str) -> Result<Price, String> {
    let price = market_sim::trace::dollars(text);
    price.ok_or_else(|| format!("{text:?} is not a price in dollars with at most 6 decimals, like 2.50"))
}

/// Parses a price of which others are shares.
pub(crate) fn dollars_above_zero(text: &str) -> Result<Price, String> {
    dollars(text).and_then(|price| match price {
        Price(0) => Err("a share of 0 dollars is nothing: say the on-demand price".to_owned()),
        price => Ok(price),
    })
}

/// Parses an instance type with its on-demand price.
pub(crate) fn on_demand(text: &str) -> Result<(String, Price), String> {
    let pair = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let (name, price) = pair.ok_or("say TYPE=DOLLARS, as in g2.2xlarge=0.65")?;
    Ok((name.to_owned(), dollars_above_zero(price)?))
}

fn number(text: &str, range: RangeInclusive<f64>, what: &str) -> Result<f64, String> {
    // NaN is in no range.
    let number = text.parse::<f64>().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("{text:?} is not {what} from {} to {}", range.start(), range.end()))
}

/// Parses a multiple of the on-demand price.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1000.0, "a share of the on-demand price, like 0.5,")
}

/// Parses a part of a whole.
pub(crate) fn fraction(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1.0, "a fraction, like 0.1,")
}

/// Parses the standard deviation of a logarithm.
pub(crate) fn spread(text: &str) -> Result<f64, String> {
    number(text, 0.0..=10.0, "a standard deviation")
}

/// Parses a number of hours.
pub(crate) fn hours(text: &str) -> Result<f64, String> {
    number(text, 0.01..=10_000.0, "a number of hours")
}

/// Parses a factor of the load of a market.
pub(crate) fn load(text: &str) -> Result<f64, String> {
    number(text, 0.1..=10.0, "a share")
}

/// Refuses an option that names the same thing twice.
pub(crate) fn once<T: Ord + Display>(
    option: &str,
    values: impl IntoIterator<Item = T>,
) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for value in values {
        if seen.contains(&value) {
            return Err(format!("{option} has {value} twice"));
        }
        seen.insert(value);
    }
    Ok(())
}

/// Refuses an option that has the same share twice.
pub(crate) fn shares_once(option: &str, shares: &[f64]) -> Result<(), String> {
    // The shortest text that stands for the number: 0.20 is 0.2.
    once(option, shares.iter().map(f64::to_string))
}

/// Prints wrong arguments as clap does, and returns the exit code.
pub(crate) fn misuse(message: &str) -> ExitCode {
    note(format_args!("error: {message}\n\nFor more information, try '--help'."));
    ExitCode::from(2)
}

/// Says how many prices of a trace had more decimals than a price of the market.
pub(crate) fn note_rounded(rounded: u64) {
    match rounded {
        0 => {}
        1 => note(format_args!(
            "market-sim: 1 price of the trace has more than 6 decimals and is rounded to micro-dollars"
        )),
        many => note(format_args!(
            "market-sim: {many} prices of the trace have more than 6 decimals and are rounded to micro-dollars"
        )),
    }
}

/// Prints an error with its causes, and returns the exit code.
pub(crate) fn complain(error: &dyn Error) -> ExitCode {
    // An error of a trace or a journal repeats what stands there.
    note(format_args!("market-sim: {}", printable_lines(&error.to_string())));
    let mut source = error.source();
    while let Some(cause) = source {
        note(format_args!("  because {}", printable_lines(&cause.to_string())));
        source = cause.source();
    }
    ExitCode::from(1)
}
