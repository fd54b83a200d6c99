//! Writes a page as HTML with its style, script and data inside.

use super::chart::{Layout, escaped, inline};
use super::{Axis, Chart, Page, Point, Table};
use serde::Serialize;
use std::fmt::Write;

/// The data of one chart for the page's script.
#[derive(Serialize)]
struct Hover<'a> {
    x: &'a Axis,
    y: &'a Axis,
    top: f64,
    bottom: f64,
    series: Vec<HoverSeries<'a>>,
}

#[derive(Serialize)]
struct HoverSeries<'a> {
    name: &'a str,
    points: &'a [Point],
    places: Vec<(f64, f64)>,
}

pub(super) fn page(page: &Page) -> String {
    let mut out = String::new();
    let (title, summary) = (escaped(&page.title), escaped(&page.summary));
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{}{}</style>\n<h1>{title}</h1>\n<p>{summary}</p>\n<dl>",
        include_str!("chart.css"),
        include_str!("page.css")
    );
    for fact in &page.facts {
        let (label, value) = (escaped(&fact.label), escaped(&fact.value));
        let _ = write!(out, "<div><dt>{label}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>\n<main>\n");
    for chart in &page.charts {
        draw_figure(&mut out, chart);
    }
    out.push_str("</main>\n");
    for table in &page.tables {
        draw_table(&mut out, table);
    }
    let _ = write!(out, "<script>\n{}</script>\n</html>\n", include_str!("page.js"));
    out
}

fn draw_figure(out: &mut String, chart: &Chart) {
    let layout = Layout::of(chart);
    let series = chart.series.iter().map(|series| HoverSeries {
        name: &series.name,
        points: &series.points,
        places: layout.places(series),
    });
    let (x, y, series) = (&chart.x, &chart.y, series.collect());
    let hover = Hover { x, y, top: layout.top, bottom: layout.bottom, series };
    // Only a `<` could end the element.
    let data = serde_json::to_string(&hover).expect("a chart is JSON").replace('<', "\\u003c");
    let (title, note) = (escaped(&chart.title), escaped(&chart.note));
    let note = if note.is_empty() { note } else { format!("<p>{note}</p>") };
    let _ = writeln!(
        out,
        "<figure><h2>{title}</h2>{note}{}<script type=\"application/json\">{data}</script></figure>",
        inline(chart)
    );
}

fn draw_table(out: &mut String, table: &Table) {
    let _ = write!(out, "<section><h2>{}</h2>", escaped(&table.title));
    if !table.note.is_empty() {
        let _ = write!(out, "<p>{}</p>", escaped(&table.note));
    }
    out.push_str("<div class=\"wide\"><table><tr>");
    for heading in &table.headings {
        let _ = write!(out, "<th>{}</th>", escaped(heading));
    }
    out.push_str("</tr>");
    for row in &table.rows {
        out.push_str("<tr>");
        for cell in row {
            let _ = write!(out, "<td>{}</td>", escaped(cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div></section>\n");
}
