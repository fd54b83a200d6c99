//! A page for people: charts and tables as one HTML file without dependencies, as JSON, or as CSV.
//!
//! Whoever measures fills a [`Page`]; how it looks is decided here. [`Trail`] keeps a quantity over time
//! in bounded memory.

mod chart;
mod html;
mod scale;
mod trail;

pub use chart::pictures;
pub use trail::Trail;

use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Page {
    pub title: String,
    /// What was done, in a sentence or two.
    pub summary: String,
    /// The figures to see first.
    pub facts: Vec<Fact>,
    pub charts: Vec<Chart>,
    pub tables: Vec<Table>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fact {
    pub label: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    pub title: String,
    /// How to read it; may be empty.
    pub note: String,
    pub shape: Shape,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// From point to point; a range of its points is a band.
    Lines,
    /// A value holds until the next point.
    Steps,
    /// From 0 up, side by side.
    Bars,
    /// A dot for each point, its range as a whisker.
    Dots,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    pub label: String,
    pub unit: Unit,
    /// Only for values above 0.
    pub logarithmic: bool,
    /// Names for x = 0, 1, 2, …, in place of a scale.
    pub categories: Vec<String>,
}

/// What the numbers of an axis are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds since the epoch, UTC.
    Time,
    Dollars,
    /// 0 to 1, shown in percent.
    Share,
    Hours,
    Number,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    pub name: String,
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// The range that the point stands for: least and most, or a confidence interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    pub title: String,
    pub note: String,
    pub headings: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Axis {
    pub fn new(label: impl Into<String>, unit: Unit) -> Axis {
        Axis { label: label.into(), unit, logarithmic: false, categories: Vec::new() }
    }

    pub fn time() -> Axis {
        Axis::new("", Unit::Time)
    }

    pub fn categories(names: impl IntoIterator<Item = impl Into<String>>) -> Axis {
        Axis { categories: names.into_iter().map(Into::into).collect(), ..Axis::new("", Unit::Number) }
    }

    #[must_use]
    pub fn logarithmic(self) -> Axis {
        Axis { logarithmic: true, ..self }
    }
}

impl Chart {
    pub fn over_time(title: &str, shape: Shape, y: Axis, series: Vec<Series>) -> Chart {
        Chart { title: title.to_owned(), note: String::new(), shape, x: Axis::time(), y, series }
    }
}

impl Series {
    /// A point in the middle of each day since the epoch, from the first to the last, also of those without.
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
    pub fn fact(&mut self, label: &str, value: impl Into<String>) {
        self.facts.push(Fact { label: label.to_owned(), value: value.into() });
    }

    /// Writes it to a file, as its name ends: `.html`, `.json` or `.csv`.
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

    /// Every point of every chart on a line of its own; times are seconds since the epoch.
    fn write_csv(&self, out: impl Write) -> Result<(), csv::Error> {
        let mut out = csv::Writer::from_writer(out);
        out.write_record(["chart", "series", "x", "y", "low", "high"])?;
        for chart in &self.charts {
            for series in &chart.series {
                for point in &series.points {
                    let category = chart.x.categories.get(point.x as usize);
                    let x = category.cloned().unwrap_or_else(|| point.x.to_string());
                    let (low, high) = point.range.unzip();
                    out.serialize((&chart.title, &series.name, x, point.y, low, high))?;
                }
            }
        }
        Ok(out.flush()?)
    }
}
