//! The page of an experiment: tables and charts.

use super::{Arm, Figure, Finding, Settings, WelfareMeasure};
use crate::estimate::Estimate;
use kubebid_report::{Axis, Chart, Page, Point, Series, Shape, Table, Unit};
use std::fmt::Write;

/// Returns a chart for each figure, with a point for each variant: its difference to the default, world by world. The
/// worlds differ by far more than the variants do, so the figures themselves would hide what the rule changes.
pub fn charts(finding: &Finding) -> Vec<Chart> {
    let chart = |figure: Figure| {
        let point = |n: usize| {
            let difference = finding.difference(n, figure);
            Point { x: n as f64, y: difference.mean, range: difference.range() }
        };
        let unit = if figure == Figure::Revenue { Unit::Dollars } else { Unit::Number };
        let name = format!("{}: difference", figure.label(finding.yardstick));
        Chart {
            title: name.clone(),
            note: String::new(),
            shape: Shape::Dots,
            x: Axis {
                label: finding.experiment.title().to_owned(),
                ..Axis::categories(finding.arms.iter().map(label))
            },
            y: Axis::new(name, unit),
            series: vec![Series {
                name: String::new(),
                points: (0..finding.arms.len()).map(point).collect(),
            }],
        }
    };
    finding.figures().into_iter().map(chart).collect()
}

fn label(arm: &Arm) -> String {
    if arm.variant.is_default { format!("{} *", arm.variant.label) } else { arm.variant.label.clone() }
}

fn tables(finding: &Finding) -> [Table; 2] {
    let figures = finding.figures();
    let headings = std::iter::once("").chain(figures.iter().map(|figure| figure.label(finding.yardstick)));
    let headings: Vec<String> = headings.map(str::to_owned).collect();
    let table = |title: String, note: &str, of: &dyn Fn(usize, Figure) -> Estimate| {
        let row = |(n, arm): (usize, &Arm)| {
            let cells = figures.iter().map(|figure| written(of(n, *figure), *figure, finding.yardstick));
            std::iter::once(label(arm)).chain(cells).collect()
        };
        let rows = finding.arms.iter().enumerate().map(row).collect();
        Table { title, note: note.to_owned(), headings: headings.clone(), rows }
    };
    let title = finding.experiment.title();
    [
        table(
            title.to_owned(),
            "Mean ± half the 95 % confidence interval; * is the default.",
            &|n, figure| finding.arms[n].estimate(figure),
        ),
        table(
            format!("{title}: differences"),
            "To the default (of who shades: to the truth under the same pricing), world by world.",
            &|n, figure| finding.difference(n, figure),
        ),
    ]
}

fn written(estimate: Estimate, figure: Figure, yardstick: WelfareMeasure) -> String {
    match figure {
        Figure::Welfare if yardstick == WelfareMeasure::None => format!("{estimate:.3}"),
        Figure::Welfare | Figure::Churn | Figure::Envy | Figure::Waiting => format!("{estimate:.1}"),
        Figure::Revenue | Figure::Served | Figure::ShadersGain => format!("{estimate:.3}"),
    }
}

/// Returns the tables of a finding in Markdown, for a page of documentation.
pub fn markdown(finding: &Finding) -> String {
    let mut out = String::new();
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    for table in tables(finding) {
        let _ = writeln!(out, "{}\n\n{}", table.note, line(&table.headings));
        let _ = writeln!(out, "|---|{}", "---:|".repeat(table.headings.len() - 1));
        table.rows.iter().for_each(|row| out.push_str(&format!("{}\n", line(row))));
        out.push('\n');
    }
    out
}

/// Returns the page of some experiments.
pub fn page(findings: &[Finding], settings: &Settings, seeds: u64) -> Page {
    let mut page = Page {
        title: "Mechanism experiments".to_owned(),
        summary: format!(
            "{seeds} worlds of one-node jobs: {} units at a reserve of ${}, {} hours, work for {:.0} % of what \
             they can do. The same worlds for each setting; * is the default. Charts show the difference to the \
             default, world by world; whiskers are 95 % confidence intervals.",
            settings.units,
            settings.reserve.0 as f64 / 1e6,
            settings.hours,
            settings.load * 100.0
        ),
        ..Page::default()
    };
    for finding in findings {
        page.charts.extend(charts(finding).into_iter().map(|chart| Chart {
            title: format!("{}: {}", finding.experiment.title(), chart.title),
            ..chart
        }));
        page.tables.extend(tables(finding));
    }
    page
}
