//! The steps of the allocator's ladder: will-it-scale's fallocate2 with one thread, with two in two directories, and with two
//! in one, whose files begin in one group and so want its lock at once; on as many disks as there are steps, in turns.

use std::path::Path;
use std::time::Duration;

use extant::{Filesystem, MballocStatistics, Mount, Scan};
use extant_loads::Load;
use extant_loads::ladder::{self, Step};
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
        let Measured { operations, per_second, cpu_seconds } = engine(Load::Fallocate2, fs, threads, time)?;
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
}

/// See [`crate::What::Ladder`].
pub fn climb(is_linear: bool, rounds: usize, time: Duration, dir: &Path, as_json: bool) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    let steps = ladder::steps(if is_linear { Scan::Linear } else { Scan::ListHead });
    let mut disks = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let image = scratch.image(&format!("step-{index}.img"))?;
        disks.push(Mount::new().tuning(step.tuning).open(image)?);
    }
    let mut shown: Vec<[Shown; SIDES.len()]> = steps.iter().map(|_| Default::default()).collect();
    for round in 0..=rounds {
        for (fs, shown) in disks.iter().zip(&mut shown) {
            for ((_, threads), shown) in SIDES.into_iter().zip(shown) {
                // The first round warms caches.
                shown.add(fs, threads, time, round > 0)?;
            }
        }
    }
    for fs in disks {
        fs.unmount()?;
    }
    if as_json {
        println!("{}", json(&steps, &shown)?);
    } else {
        print(&steps, &shown, rounds, time);
    }
    Ok(())
}

fn json(steps: &[Step], shown: &[[Shown; SIDES.len()]]) -> Result<String> {
    let object = |step: &Step, threads: Threads, shown: &Shown| Object {
        step: step.key,
        threads: threads.count,
        directories: threads.directories,
        unit: "operations/s",
        median: shown.per_second.median(),
        min: shown.per_second.min(),
        max: shown.per_second.max(),
        rounds: shown.per_second.len(),
    };
    let of_step = |(step, shown): (_, &[Shown; SIDES.len()])| {
        SIDES.iter().zip(shown).map(|((_, threads), shown)| object(step, *threads, shown)).collect::<Vec<_>>()
    };
    Ok(serde_json::to_string_pretty(&steps.iter().zip(shown).flat_map(of_step).collect::<Vec<_>>())?)
}

fn print(steps: &[Step], shown: &[[Shown; SIDES.len()]], rounds: usize, time: Duration) {
    let names = SIDES.map(|(name, _)| name).join(" | ");
    let rule = |cells: usize| format!("|---|{}", "---|".repeat(cells));
    let millis = time.as_millis();
    println!(
        "Each line has all steps above it; medians of {rounds} rounds of {millis} ms in turns, with their spread."
    );
    println!("\n| 1000 operations per second | {names} |\n{}", rule(SIDES.len()));
    for (step, shown) in steps.iter().zip(shown) {
        let cells = shown.each_ref().map(|side| side.per_second.cell(1e3, 0));
        println!("| {} | {} |", step.name, cells.join(" | "));
    }
    println!(
        "\n| CPU per operation, us | {names} | 2 threads, 2 directories / 1 thread |\n{}",
        rule(SIDES.len() + 1)
    );
    for (step, shown) in steps.iter().zip(shown) {
        let cells = shown.each_ref().map(|side| side.cpu_seconds.cell(1e-6, 2));
        let ratio = shown[1].cpu_seconds.over(&shown[0].cpu_seconds).cell(1.0, 2);
        println!("| {} | {} | {ratio} |", step.name, cells.join(" | "));
    }
    for (index, (name, _)) in SIDES.into_iter().enumerate() {
        println!("\n| per operation, {name} | {} |\n{}", COUNTS.join(" | "), rule(COUNTS.len()));
        for (step, shown) in steps.iter().zip(shown) {
            println!("| {} | {} |", step.name, shown[index].per_operation());
        }
    }
}
