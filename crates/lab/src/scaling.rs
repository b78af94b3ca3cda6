//! Throughput over the number of CPUs: Linux as published, Linux and Extant simulated, both as measured here; as a table, as bars
//! and as a picture.
//!
//! The load is the one that was published of by the number of CPUs: post A's curve, and what its merged series came to.

mod picture;

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use extant_loads::Load;

use crate::machine::Model;
use crate::measured::{self, Measured};
use crate::reproduce::{self, Options};
use crate::run::{self, Setup};
use crate::{policy, published};

/// The post and the table whose figures are by the number of CPUs.
const PUBLISHED: (&str, &str) = ("A", "curve");
/// The table of the merged series, and the step that ends it.
const MERGED: (&str, &str) = ("kunpeng-optimised", "patch-17");
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
    /// Least and most of what was measured, by the number of CPUs.
    spread: Vec<(usize, [f64; 2])>,
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

    fn new(name: &str, source: CurveSource, points: Vec<(usize, f64)>) -> Self {
        Self { name: name.to_owned(), source, points, spread: Vec::new() }
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
    let tables = posts.iter().flat_map(|post| &post.table).filter(|table| table.name == MERGED.0);
    let merged = tables.flat_map(|table| &table.row).filter(|row| row.step == MERGED.1);
    let mut merged: Vec<_> = merged.map(|row| (row.cpus, row.value)).collect();
    merged.sort_by_key(|(cpus, _)| *cpus);
    posts.iter_mut().for_each(|post| post.table.retain(|table| table.name == PUBLISHED.1));
    let rows = posts.iter_mut().flat_map(|post| &mut post.table).map(|table| &mut table.row);
    rows.for_each(|rows| {
        rows.retain(|row| cpus.contains(&row.cpus) || row.kind == published::FigureKind::Base)
    });
    let tables = posts.iter().flat_map(|post| &post.table);
    let numbers: Vec<usize> = tables.flat_map(|table| &table.row).map(|row| row.cpus).collect();
    let compared = reproduce::compare(&posts, Options { machine: None, seeds: 1, sensitivity: false })?;
    let rows = || numbers.iter().copied().zip(&compared);
    let before = rows().map(|(cpus, row)| (cpus, row.published)).collect();
    let simulated = rows().filter_map(|(cpus, row)| Some((cpus, row.simulated?))).collect();
    let mut curves = vec![
        Curve::new("Linux 6.16", CurveSource::Published, before),
        Curve::new("Linux 6.16", CurveSource::Simulated, simulated),
        Curve::new("Linux 6.17", CurveSource::Published, merged),
    ];
    for (name, machine, policy, time) in SIMULATED {
        let model = Model::load(Path::new(machine))?;
        let tuning = policy::load(Path::new(policy))?;
        let points = run::side_by_side(cpus.len(), |index| {
            let setup = Setup::new(LOAD, cpus[index], tuning, time);
            Ok((cpus[index], run::run(setup, &Rc::new(model.clone()))?.per_second))
        })?;
        curves.push(Curve::new(name, CurveSource::Simulated, points));
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
    let curve = |target| {
        let rows: Vec<_> = rows.iter().filter(|row| row.is(LOAD, target, row.threads)).collect();
        let Some(first) = rows.first() else {
            return Err(format!("{}: fallocate2 was not measured of {target}", file.display()));
        };
        let name = match target {
            "ext4" => first.kernel.as_ref().map_or("ext4".to_owned(), |kernel| format!("Linux {kernel}")),
            _ => "Extant".to_owned(),
        };
        let of_each = |row: &Measured, rate: f64| rate / row.threads.max(1) as f64;
        let points = rows.iter().map(|row| (row.threads, of_each(row, row.median))).collect();
        let spread = rows.iter().map(|row| (row.threads, [row.min, row.max].map(|rate| of_each(row, rate))));
        Ok(Curve { spread: spread.collect(), ..Curve::new(&name, CurveSource::Measured, points) })
    };
    ["ext4", "extant"].into_iter().map(curve).collect()
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
        let _ = writeln!(
            text,
            "\nSimulated: nobody ran this on {cpus} CPUs here. Beside what was published of Linux 6.16, the simulation is {:+.0} % off\n\
             on {cpus} CPUs and {:.0} % at most. Extant is called in process, Linux by system calls.",
            100.0 * error,
            100.0 * self.largest_error()
        );
        text
    }

    /// Of the simulation beside what was published, as a share.
    fn largest_error(&self) -> f64 {
        self.errors.iter().map(|(_, error)| error.abs()).fold(0.0, f64::max)
    }
}
