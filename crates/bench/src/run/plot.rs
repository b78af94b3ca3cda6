//! Throughput over threads.

use std::path::Path;

use extant_loads::Load;
use plotters::prelude::*;

use super::report::Row;
use crate::Result;

/// Draws a panel for each load, with a line for each target.
pub fn draw(path: &Path, loads: &[Load], rows: &[Row]) -> Result<()> {
    let columns = loads.len().min(3);
    let lines = loads.len().div_ceil(columns);
    let size = (420 * columns as u32, 340 * lines as u32);
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    let mut targets: Vec<_> = Vec::new();
    for row in rows {
        if !targets.contains(&row.target) {
            targets.push(row.target);
        }
    }
    for (panel, load) in area.split_evenly((lines, columns)).iter().zip(loads) {
        let rows: Vec<_> = rows.iter().filter(|row| row.load == *load).collect();
        let thousands = |row: &Row| row.per_second.median() / 1e3;
        let most = rows.iter().map(|row| thousands(row)).fold(0.0, f64::max);
        let threads_max = rows.iter().map(|row| row.threads).max().unwrap_or(1);
        let mut chart = ChartBuilder::on(panel)
            .caption(load.title(), ("sans-serif", 15))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..threads_max as f64 + 0.5, 0.0..most * 1.1)?;
        chart.configure_mesh().x_desc("threads").y_desc("thousand operations/s").draw()?;
        for (index, target) in targets.iter().enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            let points: Vec<_> = rows
                .iter()
                .filter(|row| row.target == *target)
                .map(|row| (row.threads as f64, thousands(row)))
                .collect();
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
                .label(target.title())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
    }
    area.present()?;
    Ok(())
}
