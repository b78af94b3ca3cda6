//! The figures of all policies over how full the disk is.

use std::path::Path;

use plotters::prelude::*;

use super::report::{Row, middle_and_least};
use super::{FULL, SCANS};
use crate::Result;

const COLOURS: [RGBColor; SCANS.len()] =
    [RGBColor(200, 60, 40), RGBColor(150, 150, 150), RGBColor(40, 110, 200), RGBColor(230, 150, 20), BLACK];

/// Draws three panels: throughput beside the oracle's with bitmaps in memory and cold, and groups considered.
pub fn draw(path: &Path, rows: &[Row]) -> Result<()> {
    let area = SVGBackend::new(path, (1200, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let panels = area.split_evenly((1, 3));
    let share = |cost: usize| move |row: &Row| row.of_oracle[cost];
    panel(&panels[0], rows, "in memory, data at 5 GB/s: of the oracle", 1.3, true, share(0))?;
    panel(&panels[1], rows, "cold, a read 100 us: of the oracle", 1.3, false, share(2))?;
    panel(&panels[2], rows, "in memory: groups considered", 12.0, true, |row| {
        row.figures.per_run(row.figures.considered)
    })?;
    area.present()?;
    Ok(())
}

/// One line per policy: the median of all points so full.
fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    rows: &[Row],
    title: &str,
    most: f64,
    is_known: bool,
    figure: impl Fn(&Row) -> f64,
) -> Result<()> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(40)
        .build_cartesian_2d(0.0..(FULL.len() - 1) as f64, 0.0..most)?;
    chart
        .configure_mesh()
        .x_labels(FULL.len())
        .x_label_formatter(&|at| {
            FULL.get(at.round() as usize).map(|full| format!("{full}%")).unwrap_or_default()
        })
        .x_desc("full")
        .draw()?;
    for ((_, policy), colour) in SCANS.into_iter().zip(COLOURS) {
        let points = FULL.iter().enumerate().map(|(at, full)| {
            let of = rows
                .iter()
                .filter(|row| row.full == *full && row.is_known == is_known && row.policy == policy);
            (at as f64, middle_and_least(of.map(&figure).collect()).0.min(most))
        });
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(policy)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    Ok(())
}
