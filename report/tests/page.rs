//! The page of a report: it stands alone, says everything as data too, and draws whatever it is given.

use kubebid_core::units::Micros;
use kubebid_report::{Axis, Chart, Page, Point, Series, Shape, Table, TimeSeries, Unit, pictures};

fn page() -> Page {
    let mut trail = TimeSeries::default();
    for (minute, price) in [(0, 1.0), (7, 2.5), (9, 1.5)] {
        trail.set(Micros::seconds(60 * minute), Some(price));
    }
    let mut page = Page { title: "A <page> & more".to_owned(), ..Page::default() };
    page.fact("jobs", "12");
    let chart = |title: &str, shape, x, series| Chart {
        title: title.to_owned(),
        note: String::new(),
        shape,
        x,
        y: Axis::new("$/node-hour", Unit::Dollars),
        series,
    };
    let dots = [("a", None), ("b", Some((0.5, 1.5)))]
        .map(|(name, range)| Series { name: name.to_owned(), points: vec![Point { x: 0.0, y: 1.0, range }] });
    page.charts = vec![
        chart("price", Shape::Lines, Axis::time(), vec![trail.series("h100", Micros::seconds(600))]),
        chart("bids", Shape::Dots, Axis::categories(["</script>"]), dots.to_vec()),
        chart("nothing", Shape::Bars, Axis::new("", Unit::Number), Vec::new()),
    ];
    page.tables.push(Table {
        headings: vec!["n".to_owned()],
        rows: vec![vec!["<1>".to_owned()]],
        ..Table::default()
    });
    page
}

fn written(ending: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(format!("report.{ending}"));
    page().write(&path).expect("a file");
    std::fs::read_to_string(path).expect("text")
}

#[test]
fn the_page_needs_nothing_beside_it_and_escapes_what_it_is_given() {
    let html = written("html");
    for foreign in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert!(html.contains("A &lt;page&gt; &amp; more") && html.contains("&lt;1&gt;"));
    // As many ends of scripts as there are scripts: one for each chart and one for the page.
    assert_eq!((html.matches("<script").count(), html.matches("</script>").count()), (4, 4));
    assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
}

#[test]
fn the_same_is_there_as_json_and_as_one_line_for_each_point() {
    let json: serde_json::Value = serde_json::from_str(&written("json")).expect("JSON");
    assert_eq!(json["charts"][1]["series"][1]["points"][0]["range"][1], 1.5);
    let csv = written("csv");
    assert_eq!(csv.lines().next(), Some("chart,series,x,y,low,high"));
    assert_eq!(csv.lines().count(), 1 + 10 + 2);
    assert!(csv.ends_with("bids,b,</script>,1.0,0.5,1.5\n"), "{csv}");
}

#[test]
fn a_picture_of_its_own_brings_its_colours_for_light_and_dark() {
    let picture = pictures("two", &page().charts[..2]);
    assert!(picture.starts_with("<svg xmlns=") && picture.contains("prefers-color-scheme:dark"));
}
