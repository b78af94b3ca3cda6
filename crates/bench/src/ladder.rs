//! The steps of the allocator's ladder: will-it-scale's fallocate2 with one thread, with two in two directories, and with two
//! in one, whose files begin in one group and so want its lock at once; on as many disks as there are steps, in turns.
//!
//! Before and after each step of a round a line's way between two CPUs is measured: on some hosts it changes within a minute.
//! Rounds in which it was far from that of most are left out.

use std::path::Path;
use std::time::Duration;

use extant::{Filesystem, MballocStatistics, Mount};
use extant_loads::Load;
use extant_loads::cacheline_latency;
use extant_loads::ladder::{self, Order, Step};
use serde::Serialize;

use crate::Result;
use crate::load::{Measured, Threads, engine};
use crate::report::Series;
use crate::scratch::Scratch;

/// What a step showed with one number of threads.
#[derive(Default)]
struct Shown {
    per_second: Series,
    cpu_seconds: Series,
    /// Of all rounds together.
    operations: u64,
    counts: [u64; COUNTS.len()],
}

/// A step of all rounds.
#[derive(Default)]
struct Climbed {
    sides: [Shown; SIDES.len()],
    /// Nanoseconds of a line's way before and after; 0 on a host with one CPU.
    ways: [Series; 2],
}

/// Measurements of a line's way, of which the least counts.
const LATENCY_ROUNDS: usize = 3;

/// The threads that are compared.
const SIDES: [(&str, Threads); 3] = [
    ("1 thread", Threads { count: 1, directories: 1 }),
    ("2 threads, 2 directories", Threads { count: 2, directories: 2 }),
    ("2 threads, 1 directory", Threads { count: 2, directories: 1 }),
];

/// What is counted per operation.
const COUNTS: [&str; 5] = ["searches", "group locks", "waited for", "skipped", "groups considered"];

fn counts(statistics: &MballocStatistics) -> [u64; COUNTS.len()] {
    let MballocStatistics { requests, locks, other_locks, waited, skipped, considered, .. } = *statistics;
    [requests, locks + other_locks, waited, skipped, considered.iter().sum()]
}

impl Shown {
    fn add(&mut self, fs: &Filesystem, threads: Threads, time: Duration, counted: bool) -> Result<()> {
        let before = counts(&fs.mballoc_statistics());
        let Measured { operations, per_second, cpu_seconds } =
            engine(Load::Fallocate2, fs, threads, time, || Ok(fs.sync()?))?;
        if counted {
            self.per_second.push(per_second);
            self.cpu_seconds.push(cpu_seconds);
            self.operations += operations;
            let now = counts(&fs.mballoc_statistics());
            self.counts.iter_mut().zip(now).zip(before).for_each(|((sum, now), before)| *sum += now - before);
        }
        Ok(())
    }

    fn per_operation(&self) -> String {
        let cells = self.counts.map(|count| format!("{:.3}", count as f64 / self.operations as f64));
        cells.join(" | ")
    }
}

impl Climbed {
    /// Without the rounds in which a line's way was not within half of the median.
    fn steady(self) -> Self {
        let [before, after] = &self.ways;
        let median = before.median();
        let is_kept: Vec<_> =
            before.is_near(median).iter().zip(after.is_near(median)).map(|(a, b)| *a && b).collect();
        let only = |series: &Series| series.only(&is_kept);
        let ways = self.ways.each_ref().map(only);
        let side = |side: Shown| Shown {
            per_second: only(&side.per_second),
            cpu_seconds: only(&side.cpu_seconds),
            ..side
        };
        Self { sides: self.sides.map(side), ways }
    }
}

/// Nanoseconds of a line's way between the first two CPUs; 0 if there are none.
fn line_ns() -> Result<f64> {
    match cacheline_latency::cpus()?[..] {
        [one, other, ..] => {
            Ok(cacheline_latency::least(LATENCY_ROUNDS, || cacheline_latency::line([one, other]))
                .unwrap_or_default())
        }
        _ => Ok(0.0),
    }
}

/// What JSON says of a step with so many threads.
#[derive(Serialize)]
struct Object {
    step: &'static str,
    threads: usize,
    directories: usize,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    rounds: usize,
    /// Of a line's way between two CPUs meanwhile.
    line_ns: Option<f64>,
}

/// See [`crate::What::Ladder`].
pub fn climb(is_linear: bool, rounds: usize, time: Duration, dir: &Path, as_json: bool) -> Result<()> {
    let steps = ladder::steps(if is_linear { Order::Linear } else { Order::ListHead })?;
    let scratch = Scratch::new(dir)?;
    let mut disks = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let image = scratch.image(&format!("step-{index}.img"))?;
        disks.push(Mount::new().tuning(step.tuning).open(image)?);
    }
    let mut climbed: Vec<Climbed> = steps.iter().map(|_| Climbed::default()).collect();
    for round in 0..=rounds {
        for (fs, climbed) in disks.iter().zip(&mut climbed) {
            let before = line_ns()?;
            for ((_, threads), shown) in SIDES.into_iter().zip(&mut climbed.sides) {
                // The first round warms caches.
                shown.add(fs, threads, time, round > 0)?;
            }
            if round > 0 {
                climbed.ways[0].push(before);
                climbed.ways[1].push(line_ns()?);
            }
        }
    }
    let climbed: Vec<_> = climbed.into_iter().map(Climbed::steady).collect();
    for fs in disks {
        fs.unmount()?;
    }
    if as_json {
        println!("{}", json(&steps, &climbed)?);
    } else {
        print(&steps, &climbed, rounds, time);
    }
    Ok(())
}

fn json(steps: &[Step], climbed: &[Climbed]) -> Result<String> {
    let object = |step: &Step, threads: Threads, shown: &Shown, line_ns: f64| Object {
        step: step.key,
        threads: threads.count,
        directories: threads.directories,
        unit: "operations/s",
        median: shown.per_second.median(),
        min: shown.per_second.min(),
        max: shown.per_second.max(),
        rounds: shown.per_second.len(),
        line_ns: (line_ns > 0.0).then_some(line_ns),
    };
    let of_step = |(step, climbed): (_, &Climbed)| {
        // None of a step of which no round is left.
        let sides = SIDES.iter().zip(&climbed.sides).filter(|(_, shown)| shown.per_second.len() > 0);
        let object = |((_, threads), shown): (&(_, Threads), _)| {
            object(step, *threads, shown, climbed.ways[0].median())
        };
        sides.map(object).collect::<Vec<_>>()
    };
    Ok(serde_json::to_string_pretty(&steps.iter().zip(climbed).flat_map(of_step).collect::<Vec<_>>())?)
}

fn print(steps: &[Step], climbed: &[Climbed], rounds: usize, time: Duration) {
    let names = SIDES.map(|(name, _)| name).join(" | ");
    let rule = |cells: usize| format!("|---|{}", "---|".repeat(cells));
    let millis = time.as_millis();
    println!(
        "Each line has all steps above it; medians of {rounds} rounds of {millis} ms in turns, with their spread."
    );
    println!("Rounds in which a line's way was not within half of its median are left out.");
    println!(
        "\n| 1000 operations per second | {names} | rounds | a line's way, ns |\n{}",
        rule(SIDES.len() + 2)
    );
    for (step, Climbed { sides, ways }) in steps.iter().zip(climbed) {
        let cells = sides.each_ref().map(|side| side.per_second.cell(1e3, 0));
        println!("| {} | {} | {} | {} |", step.name, cells.join(" | "), ways[0].len(), ways[0].cell(1.0, 0));
    }
    println!(
        "\n| CPU per operation, us | {names} | 2 threads, 2 directories / 1 thread |\n{}",
        rule(SIDES.len() + 1)
    );
    for (step, Climbed { sides, .. }) in steps.iter().zip(climbed) {
        let cells = sides.each_ref().map(|side| side.cpu_seconds.cell(1e-6, 2));
        let ratio = sides[1].cpu_seconds.over(&sides[0].cpu_seconds).cell(1.0, 2);
        println!("| {} | {} | {ratio} |", step.name, cells.join(" | "));
    }
    for (index, (name, _)) in SIDES.into_iter().enumerate() {
        println!("\n| per operation, {name} | {} |\n{}", COUNTS.join(" | "), rule(COUNTS.len()));
        for (step, climbed) in steps.iter().zip(climbed) {
            println!("| {} | {} |", step.name, climbed.sides[index].per_operation());
        }
    }
}
