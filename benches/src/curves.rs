//! How a cost grows: as a line of a table, and drawn beside others.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::ops::Range;
use std::path::Path;

/// A cost, by how much there is.
#[derive(Debug)]
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

/// Curves that share their axes, both of which are logarithmic.
#[derive(Debug)]
pub struct Panel<'a> {
    /// What grows from left to right.
    pub below: &'static str,
    /// What it costs.
    pub beside: &'static str,
    pub costs: Range<f64>,
    pub width: u32,
    pub curves: &'a [Curve],
}

const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(44, 160, 44), RGBColor(214, 39, 40), RGBColor(148, 103, 189)];

/// Two panels, one beside the other, as SVG.
///
/// # Errors
/// When the file cannot be written.
pub fn draw(path: &Path, [left, right]: [Panel<'_>; 2]) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let area = SVGBackend::new(path, (left.width + right.width, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let areas = area.split_horizontally(left.width);
    left.draw(&areas.0)?;
    right.draw(&areas.1)?;
    area.present()?;
    eprintln!("drawn: {}", path.display());
    Ok(())
}

impl Panel<'_> {
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), Box<dyn Error>>
    where
        B::ErrorType: 'static,
    {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let widest = points().map(|(size, _)| *size as f64).fold(1.0, f64::max);
        let narrowest = points().map(|(size, _)| *size as f64).fold(widest, f64::min);
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d((narrowest..widest).log_scale(), self.costs.clone().log_scale())?;
        chart.configure_mesh().x_desc(self.below).y_desc(self.beside).light_line_style(WHITE).draw()?;
        for (curve, colour) in self.curves.iter().zip(COLOURS) {
            let line = curve.points.iter().map(|(size, cost)| (*size as f64, *cost));
            chart
                .draw_series(LineSeries::new(line, colour.stroke_width(2)).point_size(3))?
                .label(curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .draw()?;
        Ok(())
    }
}
