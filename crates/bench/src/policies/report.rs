//! The figures of a comparison: every point, what each policy does on disks so full, and whether the default is what is wanted.

use std::fmt::Write as _;
use std::path::Path;

use super::{COLD, COSTS, FULL, Figures, Load, SCANS, WARM};
use crate::Result;

/// The names of the oracle and of the default's second turns.
pub const ORACLE: &str = "oracle";
pub const AGAIN: &str = "nearest-fit again";

/// One contender at one point.
pub struct Row {
    pub full: u32,
    pub run: u32,
    pub len: u32,
    pub load: Load,
    pub is_known: bool,
    pub policy: &'static str,
    pub figures: Figures,
    /// Throughput beside the oracle's, by [`COSTS`].
    pub of_oracle: [f64; COSTS.len()],
}

/// Writes every point.
pub fn write_csv(path: &Path, rows: &[Row]) -> Result<()> {
    let mut out = String::from(
        "full_percent,run_blocks,len_blocks,load,bitmaps,policy,requests,broken_off,considered,reads,cpu_ns,blocks,\
         of_oracle_with_data,of_oracle,of_oracle_100us,of_oracle_5ms\n",
    );
    for Row {
        full,
        run,
        len,
        load,
        is_known,
        policy,
        figures,
        of_oracle: [with_data, alone, flash, disks],
    } in rows
    {
        let load = if *load == Load::Random { "random" } else { "stream" };
        let bitmaps = if *is_known { "memory" } else { "cold" };
        let [considered, reads, cpu, blocks] =
            [figures.considered, figures.reads, figures.nanoseconds, figures.blocks()]
                .map(|sum| figures.per_run(sum));
        writeln!(
            out,
            "{full},{run},{len},{load},{bitmaps},{policy},{},{},{considered:.2},{reads:.3},{cpu:.0},{blocks:.1},\
             {with_data:.3},{alone:.3},{flash:.3},{disks:.3}",
            figures.runs.len(),
            figures.endless
        )?;
    }
    Ok(std::fs::write(path, out)?)
}

/// The middle and the least of some figures.
pub fn middle_and_least(mut figures: Vec<f64>) -> (f64, f64) {
    figures.sort_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
    (at(figures.len() / 2), at(0))
}

/// Prints what each policy does on disks so full, and [`verdict`].
pub fn print_table(rows: &[Row]) {
    println!(
        "{:>5} {:<7} {:<10} {:>10} {:>12} {:>7} {:>7} | throughput of the oracle's: median, least",
        "full", "bitmaps", "policy", "broken off", "considered", "reads", "ns"
    );
    for (is_known, costs, names) in [(true, WARM, ["5 GB/s", "alone"]), (false, COLD, ["100 us", "5 ms"])] {
        for full in FULL {
            for (_, policy) in SCANS {
                let of: Vec<&Row> = rows
                    .iter()
                    .filter(|row| row.full == full && row.is_known == is_known && row.policy == policy)
                    .collect();
                let done = of.iter().filter(|row| !row.figures.endless);
                let median = |figure: fn(&Figures) -> f64| {
                    middle_and_least(
                        done.clone().map(|row| row.figures.per_run(figure(&row.figures))).collect(),
                    )
                    .0
                };
                print!(
                    "{full:>4}% {:<7} {policy:<10} {:>7}/{:<2} {:>12.2} {:>7.3} {:>7.0} |",
                    if is_known { "memory" } else { "cold" },
                    of.len() - done.clone().count(),
                    of.len(),
                    median(|figures| figures.considered),
                    median(|figures| figures.reads),
                    median(|figures| figures.nanoseconds),
                );
                for (cost, name) in costs.into_iter().zip(names) {
                    let (middle, least) =
                        middle_and_least(of.iter().map(|row| row.of_oracle[cost]).collect());
                    print!(" {name} {middle:.2} {least:.2}");
                }
                println!();
            }
        }
    }
    verdict(rows);
}

/// Whether the default is what was wanted of it.
fn verdict(rows: &[Row]) {
    for (name, is_known, cost) in [
        ("in memory, data at 5 GB/s", true, 0),
        ("in memory, allocation alone", true, 1),
        ("cold, 100 us", false, 2),
        ("cold, 5 ms", false, 3),
    ] {
        let points: Vec<Point<'_>> = points(rows, is_known);
        let near = points.iter().filter(|point| point.nearest_fit(cost) >= 0.95 * point.best(cost)).count();
        let at_95: Vec<_> = points.iter().filter(|point| point.0[0].full == 95).collect();
        let enough = at_95.iter().filter(|point| point.nearest_fit(cost) >= 0.95).count();
        let (middle, _) = middle_and_least(points.iter().map(|point| point.spread(cost)).collect());
        let widest = points.iter().map(|point| point.spread(cost)).fold(0.0, f64::max);
        let beyond = points.iter().filter(|point| point.spread(cost) > 0.05).count();
        println!(
            "nearest-fit, {name}: within 5% of the best policy at {near} of {} points; at 95% full at least 95% of the oracle at \
             {enough} of {}; beside itself: median {:.1}%, at most {:.1}%, beyond 5% at {beyond}",
            points.len(),
            at_95.len(),
            middle * 100.0,
            widest * 100.0,
        );
    }
    let at_99 = rows.iter().filter(|row| row.policy == NEAREST_FIT && row.full == 99);
    let most = at_99.map(|row| row.figures.per_run(row.figures.considered)).fold(0.0, f64::max);
    println!("nearest-fit, 99% full: at most {most:.2} groups considered per allocation at any point");
}

const NEAREST_FIT: &str = "nearest-fit";

/// All contenders at one point.
struct Point<'a>(&'a [Row]);

fn points(rows: &[Row], is_known: bool) -> Vec<Point<'_>> {
    let is_same = |a: &Row, b: &Row| {
        (a.full, a.run, a.len, a.load, a.is_known) == (b.full, b.run, b.len, b.load, b.is_known)
    };
    rows.chunk_by(is_same).filter(|rows| rows[0].is_known == is_known).map(Point).collect()
}

impl Point<'_> {
    fn of(&self, policy: &str, cost: usize) -> f64 {
        self.0.iter().find(|row| row.policy == policy).map_or(f64::NAN, |row| row.of_oracle[cost])
    }

    /// The default's throughput of its first row, as every other policy has one.
    fn nearest_fit(&self, cost: usize) -> f64 {
        self.of(NEAREST_FIT, cost)
    }

    fn best(&self, cost: usize) -> f64 {
        SCANS.iter().map(|(_, policy)| self.of(policy, cost)).fold(0.0, f64::max)
    }

    /// What lies between two measurements of the default.
    fn spread(&self, cost: usize) -> f64 {
        let (one, other) = (self.of(NEAREST_FIT, cost), self.of(AGAIN, cost));
        (one - other).abs() / one.max(other)
    }
}
