//! Throughput over the number of CPUs: Linux as published, Linux and Extant simulated, both as measured here; as a table, as bars
//! and as a picture.
//!
//! The load is the one that was published of by the number of CPUs: post A's curve.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use extant_loads::Load;
use plotters::prelude::*;

use crate::machine::Model;
use crate::measured::{self, Measured};
use crate::reproduce::{self, Options};
use crate::run::{self, Setup};
use crate::{policy, published};

/// The post and the table whose figures are by the number of CPUs.
const PUBLISHED: (&str, &str) = ("A", "curve");
const LOAD: Load = Load::Fallocate2;
/// Name, machine and policy of what is simulated besides, and for how long: what the kernel does takes longer.
const SIMULATED: [(&str, &str, &str, Duration); 2] = [
    ("Linux 6.17", "kunpeng920-kernel", "patch-17", Duration::from_millis(4)),
    ("Extant", "kunpeng920", "default", Duration::from_millis(1)),
];
/// Cells of the longest bar.
const BAR: f64 = 40.0;

/// Where figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CurveSource {
    Published,
    Simulated,
    Measured,
}

/// Operations per second of each CPU, by their number.
struct Curve {
    name: String,
    source: CurveSource,
    points: Vec<(usize, f64)>,
}

/// All curves, and how far the simulation of the published ones is off.
pub struct Scaling {
    curves: Vec<Curve>,
    /// By CPUs, of the ratio to one.
    errors: Vec<(usize, f64)>,
}

impl Curve {
    fn at(&self, cpus: usize) -> Option<f64> {
        self.points.iter().find(|(of, _)| *of == cpus).map(|(_, rate)| *rate)
    }

    fn title(&self) -> String {
        let kind = match self.source {
            CurveSource::Published => "published",
            CurveSource::Simulated => "simulated",
            CurveSource::Measured => "measured here",
        };
        format!("{}, {kind}", self.name)
    }
}

/// Simulates, and takes what was measured from a file.
///
/// # Errors
/// The file's; the file system's.
pub fn scaling(cpus: &[usize], measured: Option<&Path>) -> Result<Scaling, Box<dyn Error>> {
    let mut posts = published::posts()?;
    posts.retain(|post| post.post == PUBLISHED.0);
    posts.iter_mut().for_each(|post| post.table.retain(|table| table.name == PUBLISHED.1));
    let rows = posts.iter_mut().flat_map(|post| &mut post.table).map(|table| &mut table.row);
    rows.for_each(|rows| {
        rows.retain(|row| cpus.contains(&row.cpus) || row.kind == published::FigureKind::Base)
    });
    let tables = posts.iter().flat_map(|post| &post.table);
    let numbers: Vec<usize> = tables.flat_map(|table| &table.row).map(|row| row.cpus).collect();
    let compared = reproduce::compare(&posts, Options { machine: None, seeds: 1, sensitivity: false })?;
    let of = |source, points: Vec<(usize, f64)>| Curve { name: "Linux 6.16".to_owned(), source, points };
    let rows = || numbers.iter().copied().zip(&compared);
    let mut curves = vec![
        of(CurveSource::Published, rows().map(|(cpus, row)| (cpus, row.published)).collect()),
        of(CurveSource::Simulated, rows().filter_map(|(cpus, row)| Some((cpus, row.simulated?))).collect()),
    ];
    for (name, machine, policy, time) in SIMULATED {
        let model = Model::load(Path::new(machine))?;
        let tuning = policy::load(Path::new(policy))?;
        let points = run::side_by_side(cpus.len(), |index| {
            let setup = Setup::new(LOAD, cpus[index], tuning, time);
            Ok((cpus[index], run::run(setup, &Rc::new(model.clone()))?.per_second))
        })?;
        curves.push(Curve { name: name.to_owned(), source: CurveSource::Simulated, points });
    }
    if let Some(file) = measured {
        curves.extend(read(file)?);
    }
    let errors = rows().filter_map(|(cpus, row)| Some((cpus, row.error?)));
    Ok(Scaling { curves, errors: errors.filter(|(cpus, _)| *cpus > 1).collect() })
}

/// The curves of a file of measurements.
fn read(file: &Path) -> Result<Vec<Curve>, String> {
    let rows: Vec<Measured> = measured::read(file)?;
    let curve = |(target, name): (&str, &str)| {
        let rows = rows.iter().filter(|row| row.is(LOAD, target, row.threads));
        let points: Vec<_> = rows.map(|row| (row.threads, row.median / row.threads.max(1) as f64)).collect();
        if points.is_empty() {
            return Err(format!("{}: fallocate2 was not measured of {target}", file.display()));
        }
        Ok(Curve { name: name.to_owned(), source: CurveSource::Measured, points })
    };
    [("ext4", "ext4"), ("extant", "Extant")].into_iter().map(curve).collect()
}

impl Scaling {
    fn numbers(&self) -> Vec<usize> {
        let mut numbers: Vec<_> =
            self.curves.iter().flat_map(|curve| curve.points.iter().map(|(cpus, _)| *cpus)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// A line for each number of CPUs.
    pub fn table(&self) -> String {
        let titles: Vec<_> = self.curves.iter().map(Curve::title).collect();
        let mut text = format!("| CPUs | {} |\n|--:|{}\n", titles.join(" | "), "--:|".repeat(titles.len()));
        for cpus in self.numbers() {
            let cell = |curve: &Curve| curve.at(cpus).map_or(String::new(), |rate| format!("{rate:.0}"));
            let cells: Vec<_> = self.curves.iter().map(cell).collect();
            let _ = writeln!(text, "| {cpus} | {} |", cells.join(" | "));
        }
        text
    }

    /// What all CPUs together do where they are most, of those numbers of which Linux is published too.
    pub fn bars(&self) -> String {
        let Some((cpus, error)) = self.errors.last().copied() else { return String::new() };
        let bars = self.curves.iter().filter_map(|curve| Some((curve, curve.at(cpus)? * cpus as f64)));
        let most = bars.clone().map(|(_, rate)| rate).fold(0.0, f64::max);
        let mut text = format!("{cpus} CPUs append to files of their own, million operations/s together\n\n");
        for (curve, rate) in bars {
            let eighths = (rate / most * BAR * 8.0).round().max(1.0) as usize;
            let bar = "█".repeat(eighths / 8) + ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
            let _ = writeln!(text, "{:<22} {:>7.2} {bar}", curve.title(), rate / 1e6);
        }
        let largest = self.errors.iter().map(|(_, error)| error.abs()).fold(0.0, f64::max);
        let _ = writeln!(
            text,
            "\nSimulated: nobody ran this on {cpus} CPUs here. Beside what was published of Linux 6.16, the simulation is {:+.0} % off\n\
             on {cpus} CPUs and {:.0} % at most. Extant is called in process, Linux by system calls.",
            100.0 * error,
            100.0 * largest
        );
        text
    }

    /// Draws all curves, both ways by powers.
    ///
    /// # Errors
    /// The file's.
    pub fn draw(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        const COLOURS: [RGBColor; 3] =
            [RGBColor(200, 60, 40), RGBColor(230, 150, 20), RGBColor(40, 110, 200)];
        let area = SVGBackend::new(path, (760, 440)).into_drawing_area();
        area.fill(&WHITE)?;
        let most = self.numbers().into_iter().max().unwrap_or(1);
        let rates = self.curves.iter().flat_map(|curve| curve.points.iter().map(|(_, rate)| rate.log10()));
        let (least, largest) = (rates.clone().fold(9.0, f64::min).floor(), rates.fold(0.0, f64::max).ceil());
        let mut chart = ChartBuilder::on(&area)
            .caption("8 KiB appended by fallocate, files of each CPU's own", ("sans-serif", 17))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..(most as f64).log2() + 0.1, least..largest)?;
        chart
            .configure_mesh()
            .x_labels(most.ilog2() as usize + 1)
            .y_labels((largest - least) as usize + 1)
            .x_label_formatter(&|power| format!("{:.0}", power.exp2()))
            .y_label_formatter(&|power| thousands(10_f64.powf(*power)))
            .light_line_style(WHITE)
            .x_desc("CPUs")
            .y_desc("operations/s of each")
            .draw()?;
        for curve in &self.curves {
            let colour = match &*curve.name {
                "Extant" => COLOURS[2],
                "Linux 6.17" => COLOURS[1],
                _ => COLOURS[0],
            };
            let points = curve.points.iter().map(|(cpus, rate)| ((*cpus as f64).log2(), rate.log10()));
            if curve.source == CurveSource::Simulated {
                chart
                    .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                    .label(curve.title())
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
                continue;
            }
            let style = match curve.source {
                CurveSource::Measured => colour.filled(),
                _ => colour.stroke_width(1),
            };
            chart
                .draw_series(points.map(|point| Circle::new(point, 5, style)))?
                .label(curve.title())
                .legend(move |(x, y)| Circle::new((x + 8, y), 5, style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
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
