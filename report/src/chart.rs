//! A chart as SVG. Colours are classes, so that a page, or the picture itself, can be light or dark.

use super::scale::Scale;
use super::{Chart, Point, Series, Shape};
use std::fmt::Write;

/// Width of a chart on a page, which scales it.
const WIDTH: f64 = 600.0;
/// Width of a picture: what a page of documentation has for it, so that its letters keep their size.
const PICTURE: f64 = 830.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const PLOT: f64 = 210.0;
/// Height of a line of text below the plot.
const LINE: f64 = 16.0;
const LEGEND_ROW: f64 = 20.0;
/// Approximate width of a letter.
const LETTER: f64 = 6.4;
/// Number of colours in the style sheet.
const COLOURS: usize = 8;

/// The places of the parts of a chart; the page's script looks for points there.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    chart: &'a Chart,
    width: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    /// Lines of text below it.
    lines: usize,
    x: Scale<'a>,
    y: Scale<'a>,
}

/// Draws charts two by two as a picture of their own, with its own colours.
pub fn pictures(title: &str, charts: &[Chart]) -> String {
    let width = PICTURE / charts.len().clamp(1, 2) as f64;
    let layouts: Vec<Layout<'_>> = charts.iter().map(|chart| Layout::of_width(chart, width)).collect();
    let row = 16.0 + layouts.iter().map(Layout::height).fold(0.0, f64::max);
    let height = row * charts.len().div_ceil(2) as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {PICTURE} {height}\" font-family=\"system-ui, \
         sans-serif\" font-size=\"12\" role=\"img\"><title>{}</title><style>{}</style>\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
        escaped(title),
        include_str!("chart.css")
    );
    for (n, layout) in layouts.iter().enumerate() {
        let (x, y) = (width * (n % 2) as f64, row * (n / 2) as f64);
        let _ = writeln!(out, "<g transform=\"translate({x} {y})\">{}</g>", layout.draw());
    }
    out.push_str("</svg>\n");
    out
}

/// Draws one chart for a page that has the colours already.
pub(super) fn inline(chart: &Chart) -> String {
    let layout = Layout::of(chart);
    let height = layout.height();
    let title = escaped(&chart.title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">{}</svg>",
        layout.draw()
    )
}

impl Layout<'_> {
    pub(super) fn of(chart: &Chart) -> Layout<'_> {
        Self::of_width(chart, WIDTH)
    }

    fn of_width(chart: &Chart, width: f64) -> Layout<'_> {
        let top = 24.0
            + LEGEND_ROW * legend(chart, width).iter().map(|(row, _, _)| row + 1).max().unwrap_or(0) as f64;
        let bottom = top + PLOT;
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let zero = (chart.shape == Shape::Bars).then_some(0.0);
        let heights =
            points().flat_map(|p| [Some(p.y), p.range.map(|r| r.0), p.range.map(|r| r.1)]).flatten();
        let half = match chart.shape {
            Shape::Bars => half_step(chart),
            // Dots at the edges need room.
            Shape::Dots => span(chart) / 12.0,
            Shape::Lines | Shape::Steps => 0.0,
        };
        let lines =
            chart.x.categories.iter().map(|name| wrapped(name, place_width(chart, width)).len()).max();
        Layout {
            chart,
            width,
            top,
            bottom,
            lines: lines.unwrap_or(1) + usize::from(!chart.x.label.is_empty()),
            x: Scale::along(&chart.x, points().flat_map(|p| [p.x - half, p.x + half]), LEFT, width - RIGHT),
            y: Scale::up(&chart.y, heights.chain(zero), bottom, top),
        }
    }

    fn height(&self) -> f64 {
        self.bottom + LINE * self.lines as f64 + 10.0
    }

    /// Returns the place of each point on the paper, for the script.
    pub(super) fn places(&self, series: &Series) -> Vec<(f64, f64)> {
        let rounded = |place: f64| (place * 10.0).round() / 10.0;
        let place = |point: &Point| (rounded(self.x.place(point.x)), rounded(self.y.place(point.y)));
        series.points.iter().map(place).collect()
    }

    fn draw(&self) -> String {
        let mut out = String::new();
        self.draw_axes(&mut out);
        for (n, series) in self.chart.series.iter().enumerate() {
            let _ = write!(out, "<g class=\"s{}\">", n % COLOURS);
            match self.chart.shape {
                Shape::Lines => self.draw_line(&mut out, series, false),
                Shape::Steps => self.draw_line(&mut out, series, true),
                Shape::Bars => self.draw_bars(&mut out, series, n),
                Shape::Dots => self.draw_dots(&mut out, series, n),
            }
            out.push_str("</g>");
        }
        for (row, x, n) in legend(self.chart, self.width) {
            let (y, name) = (12.0 + LEGEND_ROW * row as f64, escaped(&self.chart.series[n].name));
            let (colour, mark, text) = (n % COLOURS, y - 9.0, x + 15.0);
            let _ = write!(
                out,
                "<g class=\"s{colour}\"><rect class=\"fill\" x=\"{x:.1}\" y=\"{mark:.1}\" width=\"10\" height=\"10\" rx=\"2\"/></g>"
            );
            let _ = write!(out, "<text class=\"ink\" x=\"{text:.1}\" y=\"{y:.1}\">{name}</text>");
        }
        out
    }

    fn draw_axes(&self, out: &mut String) {
        let (right, top, bottom) = (self.width - RIGHT, self.top, self.bottom);
        let _ = write!(
            out,
            "<text class=\"dim\" x=\"4\" y=\"{:.1}\">{}</text>",
            top - 14.0,
            escaped(&self.chart.y.label)
        );
        for (value, label) in self.y.ticks() {
            let y = self.y.place(value);
            let _ = write!(out, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>");
            let _ = write!(
                out,
                "<text class=\"dim\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        let ticks = self.x.ticks();
        // Labels of a scale that would touch are left out, names of categories are broken.
        let (each, width) = match self.chart.x.categories.len() {
            0 => {
                let widest = ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(1);
                let room = (right - LEFT) / (widest as f64 * LETTER + 12.0);
                ((ticks.len() as f64 / room).ceil().max(1.0) as usize, f64::INFINITY)
            }
            _ => (1, place_width(self.chart, self.width)),
        };
        for (value, label) in ticks.into_iter().step_by(each) {
            let x = self.x.place(value);
            let _ = write!(out, "<path class=\"axis\" d=\"M{x:.1} {bottom}v4\"/>");
            for (n, line) in wrapped(&label, width).iter().enumerate() {
                // Inside the picture, also at its end.
                let x = x.min(self.width - LETTER * line.chars().count() as f64 / 2.0 - 2.0);
                let (y, line) = (bottom + LINE * (n as f64 + 1.0) + 2.0, escaped(line));
                let _ = write!(
                    out,
                    "<text class=\"dim\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{line}</text>"
                );
            }
        }
        let _ = write!(out, "<path class=\"axis\" d=\"M{LEFT} {bottom}H{right}\"/>");
        if self.y.low < 0.0 && self.y.high > 0.0 {
            let _ = write!(out, "<path class=\"axis\" d=\"M{LEFT} {:.1}H{right}\"/>", self.y.place(0.0));
        }
        let middle = (LEFT + right) / 2.0;
        let _ = write!(
            out,
            "<text class=\"dim\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            self.height() - 6.0,
            escaped(&self.chart.x.label)
        );
    }

    fn draw_line(&self, out: &mut String, series: &Series, steps: bool) {
        let known: Vec<(f64, f64, f64, f64)> = series
            .points
            .iter()
            .map(|point| {
                let (low, high) = point.range.unwrap_or((point.y, point.y));
                (self.x.place(point.x), self.y.place(point.y), self.y.place(low), self.y.place(high))
            })
            .collect();
        if series.points.iter().any(|point| point.range.is_some()) {
            let mut band = String::new();
            for (n, (x, _, _, high)) in known.iter().enumerate() {
                let _ = write!(band, "{}{x:.1} {high:.1}", if n == 0 { "M" } else { "L" });
            }
            for (x, _, low, _) in known.iter().rev() {
                let _ = write!(band, "L{x:.1} {low:.1}");
            }
            let _ = write!(out, "<path class=\"band\" d=\"{band}Z\"/>");
        }
        let mut line = String::new();
        for (n, (x, y, _, _)) in known.iter().enumerate() {
            let _ = match (n, steps) {
                (0, _) => write!(line, "M{x:.1} {y:.1}"),
                (_, true) => write!(line, "H{x:.1}V{y:.1}"),
                (_, false) => write!(line, "L{x:.1} {y:.1}"),
            };
        }
        let _ = write!(out, "<path class=\"line\" d=\"{line}\"/>");
        if series.points.len() <= 40 && !steps {
            for (x, y, _, _) in known {
                let _ = write!(out, "<circle class=\"fill\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
            }
        }
    }

    /// Returns how far beside the middle of its place the n-th series is, and how wide one may be.
    fn beside(&self, n: usize) -> (f64, f64) {
        let each =
            0.8 * (self.width - LEFT - RIGHT) / places(self.chart) as f64 / self.chart.series.len() as f64;
        let offset = (n as f64 - (self.chart.series.len() as f64 - 1.0) / 2.0) * each;
        (offset, each)
    }

    fn draw_bars(&self, out: &mut String, series: &Series, n: usize) {
        let (offset, each) = self.beside(n);
        let width = (each * 0.92).clamp(0.5, 70.0);
        for point in &series.points {
            let x = self.x.place(point.x) + offset - width / 2.0;
            let (y, zero) = (self.y.place(point.y), self.y.place(0.0_f64.max(self.y.low)));
            let (y, height) = (y.min(zero), (y - zero).abs());
            let _ = write!(
                out,
                "<rect class=\"fill\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
            );
            self.draw_whisker(out, point, x + width / 2.0);
        }
    }

    fn draw_dots(&self, out: &mut String, series: &Series, n: usize) {
        let offset = if self.chart.x.categories.is_empty() { 0.0 } else { self.beside(n).0 };
        for point in &series.points {
            let (x, y) = (self.x.place(point.x) + offset, self.y.place(point.y));
            self.draw_whisker(out, point, x);
            let _ = write!(out, "<circle class=\"fill\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
        }
    }

    fn draw_whisker(&self, out: &mut String, point: &Point, x: f64) {
        let Some((low, high)) = point.range else { return };
        let (low, high, left) = (self.y.place(low), self.y.place(high), x - 4.0);
        let _ = write!(
            out,
            "<path class=\"whisker\" d=\"M{x:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}h8M{left:.1} {high:.1}h8\"/>"
        );
    }
}

/// Returns where bars stand, one beside the other for each series.
fn places(chart: &Chart) -> usize {
    match chart.x.categories.len() {
        0 => chart.series.iter().map(|series| series.points.len()).max().unwrap_or(1).max(1),
        categories => categories,
    }
}

/// Returns half of the distance from one place to the next on a scale.
fn half_step(chart: &Chart) -> f64 {
    span(chart) / (places(chart) - 1).max(1) as f64 / 2.0
}

/// Returns the distance from the first place to the last.
fn span(chart: &Chart) -> f64 {
    let values = || chart.series.iter().flat_map(|series| &series.points).map(|point| point.x);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    if high > low { high - low } else { 0.0 }
}

/// Returns how much room the name of a category has.
fn place_width(chart: &Chart, width: f64) -> f64 {
    (width - LEFT - RIGHT) / chart.x.categories.len().max(1) as f64 - 6.0
}

/// Breaks a name into lines of this width, after spaces and hyphens.
fn wrapped(name: &str, width: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for part in name.split_inclusive([' ', '-']) {
        let last = lines.last_mut().expect("at least one");
        if last.is_empty() || (last.chars().count() + part.chars().count()) as f64 * LETTER <= width {
            last.push_str(part);
        } else {
            lines.push(part.to_owned());
        }
    }
    lines
}

/// Returns row, place and number of each series that the legend names; a single series needs no legend.
fn legend(chart: &Chart, paper: f64) -> Vec<(usize, f64, usize)> {
    let (mut row, mut x) = (0, 4.0);
    let mut entries = Vec::new();
    for (n, series) in chart.series.iter().enumerate().filter(|_| chart.series.len() > 1) {
        let width = 15.0 + LETTER * series.name.chars().count() as f64 + 16.0;
        if x > 4.0 && x + width > paper {
            (row, x) = (row + 1, 4.0);
        }
        entries.push((row, x, n));
        x += width;
    }
    entries
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
