//! The curves as a picture of two panels: one machine as published and simulated, and this one as measured.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{Curve, CurveSource, Scaling};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Pixels: the whole, the panel on the left, and both panels' height; the legend is below.
const SIZE: (u32, u32) = (860, 560);
const LEFT: i32 = 590;
const PANELS: i32 = 400;
const LEGEND_ROW: i32 = 20;
/// Colours that people who see fewer of them can tell apart (Okabe and Ito).
const VERMILION: RGBColor = RGBColor(213, 94, 0);
const BLUE: RGBColor = RGBColor(0, 114, 178);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const FONT: (&str, u32) = ("sans-serif", 14);

/// Where a panel begins and ends: CPUs by powers of two, rates by powers of ten.
struct Axes {
    cpus: Range<f64>,
    rates: Range<f64>,
}

impl Curve {
    fn colour(&self) -> RGBColor {
        match &*self.name {
            "Extant" => BLUE,
            "Linux 6.16" => VERMILION,
            _ => GREEN,
        }
    }

    fn legend(&self) -> String {
        // What an operation costs depends on it.
        let calls = if self.name == "Extant" { "calls in process" } else { "system calls" };
        format!("{}, {calls}", self.title())
    }

    /// As the axes count.
    fn places(&self) -> impl Iterator<Item = (f64, f64)> + Clone {
        self.points.iter().map(|(cpus, rate)| ((*cpus as f64).log2(), rate.log10()))
    }
}

impl Scaling {
    /// Draws all curves, both ways by powers, with a band of the largest error around what is simulated.
    ///
    /// # Errors
    /// The file's.
    pub fn draw(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (title, area) = area.split_vertically(34);
        title.draw_text(
            "8 KiB appended by fallocate, files of each CPU's own",
            &("sans-serif", 17).into_text_style(&area),
            (12, 10),
        )?;
        let (panels, legend) = area.split_vertically(PANELS);
        let (left, right) = panels.split_horizontally(LEFT);
        let rates = self.curves.iter().flat_map(|curve| curve.points.iter().map(|(_, rate)| rate.log10()));
        let least = rates.clone().fold(9.0, f64::min).floor();
        let rates = least..rates.fold(0.0, f64::max).ceil();
        let (measured, modelled): (Vec<_>, Vec<_>) =
            self.curves.iter().partition(|curve| curve.source == CurveSource::Measured);
        let most = |curves: &[&Curve]| {
            let cpus = curves.iter().flat_map(|curve| curve.points.iter().map(|(cpus, _)| *cpus));
            (cpus.max().unwrap_or(1) as f64).log2()
        };
        let axes = Axes { cpus: -0.15..most(&modelled) + 0.15, rates: rates.clone() };
        self.panel(&left, "Kunpeng 920: published and simulated", &axes, &modelled)?;
        if !measured.is_empty() {
            let axes = Axes { cpus: -0.4..most(&measured) + 0.4, rates };
            self.panel(&right, "this machine: measured", &axes, &measured)?;
        }
        self.legend(&legend)
    }

    fn panel(
        &self,
        area: &Area<'_>,
        title: &str,
        axes: &Axes,
        curves: &[&Curve],
    ) -> Result<(), Box<dyn Error>> {
        let mut chart = ChartBuilder::on(area)
            .caption(title, FONT)
            .margin(8)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(axes.cpus.clone(), axes.rates.clone())?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_labels(axes.cpus.end as usize + 1)
            .y_labels((axes.rates.end - axes.rates.start) as usize + 1)
            .x_label_formatter(&|power| format!("{:.0}", power.exp2()))
            .y_label_formatter(&|power| thousands(10_f64.powf(*power)))
            .label_style(("sans-serif", 12))
            .x_desc("CPUs")
            .y_desc("operations/s of each CPU")
            .draw()?;
        let error = self.largest_error();
        for curve in curves {
            let (colour, places) = (curve.colour(), curve.places());
            match curve.source {
                CurveSource::Simulated => {
                    let by = |factor: f64| move |(x, y): (f64, f64)| (x, y + factor.log10());
                    let below = places.clone().map(by(1.0 - error.min(0.9)));
                    let band: Vec<_> = places
                        .clone()
                        .map(by(1.0 + error))
                        .chain(below.collect::<Vec<_>>().into_iter().rev())
                        .collect();
                    chart.draw_series([Polygon::new(band, colour.mix(0.15))])?;
                    chart.draw_series(LineSeries::new(places, colour.stroke_width(2)))?;
                }
                CurveSource::Published => {
                    chart.draw_series(places.map(|place| Circle::new(place, 5, colour.stroke_width(2))))?;
                }
                CurveSource::Measured => {
                    chart.draw_series(curve.spread.iter().map(|(cpus, ends)| {
                        let ends = ends.map(|rate| ((*cpus as f64).log2(), rate.log10()));
                        PathElement::new(ends, colour.stroke_width(2))
                    }))?;
                    chart.draw_series(places.map(|place| Circle::new(place, 4, colour.filled())))?;
                }
            }
        }
        Ok(())
    }

    /// All curves in two columns, and what the band means.
    fn legend(&self, area: &Area<'_>) -> Result<(), Box<dyn Error>> {
        let style = FONT.into_text_style(area);
        let rows = self.curves.len().div_ceil(2);
        for (index, curve) in self.curves.iter().enumerate() {
            let (x, y) = (24 + 420 * (index / rows) as i32, 8 + LEGEND_ROW * (index % rows) as i32);
            let (colour, middle) = (curve.colour(), (x + 12, y + 7));
            match curve.source {
                CurveSource::Simulated => {
                    area.draw(&PathElement::new([(x, y + 7), (x + 24, y + 7)], colour.stroke_width(2)))?;
                }
                CurveSource::Published => area.draw(&Circle::new(middle, 5, colour.stroke_width(2)))?,
                CurveSource::Measured => area.draw(&Circle::new(middle, 4, colour.filled()))?,
            }
            area.draw_text(&curve.legend(), &style, (x + 34, y))?;
        }
        let band = format!(
            "Bands: ±{:.0} %, the simulation's largest error beside what was published of Linux 6.16. Bars: least and most of the rounds.",
            100.0 * self.largest_error()
        );
        area.draw_text(
            &band,
            &("sans-serif", 12).into_text_style(area),
            (24, 14 + LEGEND_ROW * rows as i32),
        )?;
        Ok(())
    }
}

/// A power of ten as people write it.
fn thousands(number: f64) -> String {
    match number {
        1e6.. => format!("{:.0} million", number / 1e6),
        1e3.. => format!("{:.0},000", number / 1e3),
        _ => format!("{number:.0}"),
    }
}
