//! Growth of a cost: as a line of a table, and drawn beside others.

use kubebid_report::{Axis, Chart, Point, Series, Shape, Unit, pictures};
use std::error::Error;
use std::path::Path;

/// A cost, by how much there is.
#[derive(Clone, Debug)]
pub struct Curve {
    pub name: &'static str,
    pub points: Vec<(usize, f64)>,
}

impl Curve {
    pub fn print(&self, unit: &str) {
        let points = self.points.iter().map(|(size, cost)| format!("{size}: {cost:.0} {unit}"));
        println!("{:<42} {}", self.name, points.collect::<Vec<_>>().join("  "));
    }
}

/// Returns a chart of curves on two logarithmic axes: the sizes from left to right, the costs upwards.
pub fn chart(sizes: &str, costs: &str, curves: &[Curve]) -> Chart {
    let series = |curve: &Curve| Series {
        name: curve.name.to_owned(),
        points: curve
            .points
            .iter()
            .map(|(size, cost)| Point { x: *size as f64, y: *cost, range: None })
            .collect(),
    };
    Chart {
        title: sizes.to_owned(),
        note: String::new(),
        shape: Shape::Lines,
        x: Axis::new(sizes, Unit::Number).logarithmic(),
        y: Axis::new(costs, Unit::Number).logarithmic(),
        series: curves.iter().map(series).collect(),
    }
}

/// Draws charts, two by two, as SVG.
///
/// # Errors
/// When the file cannot be written.
pub fn draw(path: &Path, title: &str, charts: &[Chart]) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, pictures(title, charts))?;
    eprintln!("drawn: {}", path.display());
    Ok(())
}
