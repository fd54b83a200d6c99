//! A page for people: charts and tables as one HTML file without dependencies, as JSON, or as CSV. Also what makes text of
//! others safe for spreadsheets ([`csv`]) and terminals ([`text`]).
//!
//! A command fills a [`Page`] and writes it, or draws charts as a picture of their own with [`pictures`]. [`TimeSeries`] keeps a
//! quantity over time in bounded memory.

#![warn(missing_docs)]

mod chart;
pub mod csv;
mod html;
mod scale;
pub mod text;
mod time_series;

pub use chart::pictures;
pub use time_series::TimeSeries;

use crate::csv::{CsvWriter, number};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// A page of facts, charts and tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Page {
    /// The title.
    pub title: String,
    /// A summary of one or two sentences.
    pub summary: String,
    /// The figures to see first.
    pub facts: Vec<Fact>,
    /// The charts, in order.
    pub charts: Vec<Chart>,
    /// The tables, in order.
    pub tables: Vec<Table>,
}

/// A figure with its label.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fact {
    /// The label.
    pub label: String,
    /// The figure with its unit.
    pub value: String,
}

/// A chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// A note on how to read it; may be empty.
    pub note: String,
    /// The shape of all its series.
    pub shape: Shape,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series.
    pub series: Vec<Series>,
}

/// The shape in which a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Lines from point to point; a range of its points is a band.
    Lines,
    /// A value holds until the next point.
    Steps,
    /// Bars from 0 up, side by side.
    Bars,
    /// A dot for each point, its range as a whisker.
    Dots,
}

/// An axis of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// The label.
    pub label: String,
    /// The unit of its numbers.
    pub unit: Unit,
    /// Only for values above 0.
    pub logarithmic: bool,
    /// Names for x = 0, 1, 2, …, in place of a scale.
    pub categories: Vec<String>,
}

/// The unit of the numbers of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds since the epoch, UTC.
    Time,
    /// Dollars.
    Dollars,
    /// 0 to 1, shown in percent.
    Share,
    /// Hours.
    Hours,
    /// A plain number.
    Number,
}

/// A line, or a row of bars or dots.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The points, by x.
    pub points: Vec<Point>,
}

/// A point of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// The place on the horizontal axis.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The range that the point stands for: least and most, or a confidence interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// The title.
    pub title: String,
    /// A note on how to read it; may be empty.
    pub note: String,
    /// The heading of each column.
    pub headings: Vec<String>,
    /// The cells of each row.
    pub rows: Vec<Vec<String>>,
}

impl Axis {
    /// Makes a linear axis.
    pub fn new(label: impl Into<String>, unit: Unit) -> Axis {
        Axis { label: label.into(), unit, logarithmic: false, categories: Vec::new() }
    }

    /// Makes an axis of time.
    pub fn time() -> Axis {
        Axis::new("", Unit::Time)
    }

    /// Makes an axis of names.
    pub fn categories(names: impl IntoIterator<Item = impl Into<String>>) -> Axis {
        Axis { categories: names.into_iter().map(Into::into).collect(), ..Axis::new("", Unit::Number) }
    }

    /// Makes the axis logarithmic.
    #[must_use]
    pub fn logarithmic(self) -> Axis {
        Axis { logarithmic: true, ..self }
    }
}

impl Chart {
    /// Makes a chart over time.
    pub fn over_time(title: &str, shape: Shape, y: Axis, series: Vec<Series>) -> Chart {
        Chart { title: title.to_owned(), note: String::new(), shape, x: Axis::time(), y, series }
    }
}

impl Series {
    /// Returns a series with a point in the middle of each day from the first to the last. A day without a value is 0.
    pub fn by_day(name: &str, days: &BTreeMap<u64, f64>) -> Series {
        let first = days.first_key_value().map_or(0, |(first, _)| *first);
        let end = days.last_key_value().map_or(0, |(last, _)| last + 1);
        let point = |day: u64| Point {
            x: (day as f64 + 0.5) * 86_400.0,
            y: days.get(&day).copied().unwrap_or_default(),
            range: None,
        };
        Series { name: name.to_owned(), points: (first..end).map(point).collect() }
    }
}

impl Page {
    /// Adds a figure.
    pub fn fact(&mut self, label: &str, value: impl Into<String>) {
        self.facts.push(Fact { label: label.to_owned(), value: value.into() });
    }

    /// Writes the page to a file, in the format of its ending: `.html`, `.json` or `.csv`.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let mut out = BufWriter::new(File::create(path)?);
        match ending {
            Some("json") => serde_json::to_writer_pretty(&mut out, self)?,
            Some("csv") => self.write_csv(&mut out)?,
            Some(_) | None => out.write_all(html::page(self).as_bytes())?,
        }
        out.flush()
    }

    /// Writes every point of every chart on a line of its own; times are seconds since the epoch.
    fn write_csv(&self, out: impl Write) -> std::io::Result<()> {
        let mut out = CsvWriter::new(out);
        out.row(["chart", "series", "x", "y", "low", "high"])?;
        for chart in &self.charts {
            for series in &chart.series {
                for point in &series.points {
                    let category = chart.x.categories.get(point.x as usize);
                    let x = category.cloned().unwrap_or_else(|| point.x.to_string());
                    let (low, high) = point.range.unzip();
                    let numbers = [number(Some(point.y)), number(low), number(high)];
                    out.row([&chart.title, &series.name, &x].into_iter().chain(&numbers))?;
                }
            }
        }
        out.finish()
    }
}
