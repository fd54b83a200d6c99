//! The table of measured values and their bands.

use super::bands::Band;
use serde::Serialize;
use std::fmt;

/// A table of statistics with their bands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// The rows, in the order of the bands.
    pub rows: Vec<Row>,
}

/// One statistic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the statistic.
    pub statistic: String,
    /// The value in the simulated world.
    pub measured: f64,
    /// Lower end of the band.
    pub low: Option<f64>,
    /// Value in the published trace.
    pub real: Option<f64>,
    /// Upper end of the band.
    pub high: Option<f64>,
    /// True if the measured value is inside the band.
    pub inside: bool,
    /// The same of another world, to look at.
    pub beside: Option<f64>,
}

impl Table {
    /// Makes a table of bands. `measured` returns the value of every name of the bands.
    pub(super) fn new(bands: Vec<Band>, measured: impl Fn(&str) -> Option<f64>) -> Table {
        let row = |Band { statistic, low, real, high }: Band| {
            let measured = measured(&statistic).unwrap_or_else(|| panic!("{statistic} is measured nowhere"));
            let inside = low.is_none_or(|low| measured >= low) && high.is_none_or(|high| measured <= high);
            Row { statistic, measured, low, real, high, inside, beside: None }
        };
        Table { rows: bands.into_iter().map(row).collect() }
    }

    /// Adds the values of another world as a column.
    #[must_use]
    pub fn beside(mut self, other: &Table) -> Table {
        for (row, other) in self.rows.iter_mut().zip(&other.rows) {
            row.beside = Some(other.measured);
        }
        self
    }

    /// Returns the statistics that are out of their bands.
    pub fn outside(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.inside)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beside = self.rows.iter().any(|row| row.beside.is_some());
        write!(f, "{:<42}{:>10}  {:>10}{:>10}{:>10}      ", "statistic", "measured", "low", "real", "high")?;
        writeln!(f, "{}", if beside { "   default rules" } else { "" })?;
        let shown = |value: Option<f64>| value.map_or("-".to_owned(), number);
        for row in &self.rows {
            let verdict = if row.inside { "" } else { "OUT" };
            let (low, real, high) = (shown(row.low), shown(row.real), shown(row.high));
            write!(
                f,
                "{:<42}{:>10}  {low:>10}{real:>10}{high:>10}  {verdict:<4}",
                row.statistic,
                number(row.measured)
            )?;
            writeln!(f, "{:>16}", row.beside.map(number).unwrap_or_default())?;
        }
        Ok(())
    }
}

fn number(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 1000.0 => 0,
        large if large >= 10.0 => 1,
        _ => 3,
    };
    format!("{value:.decimals$}")
}
