//! What is said of the figures.

use std::collections::BTreeMap;

use extant_loads::Load;
use serde::Serialize;

use super::{Neighbour, Policy, Target, name_of};
use crate::Result;
use crate::load::Measured;
use crate::report::Series;

/// What ratios are of.
const OWN: Target = Target::Library(Policy::DEFAULT);
/// Less per operation is not printed.
const COUNT_MIN: f64 = 0.001;

/// A load by a target with so many threads.
pub struct Row {
    pub load: Load,
    pub target: Target,
    pub threads: usize,
    pub per_second: Series,
    pub cpu_seconds: Series,
    /// Of all rounds together, as the counts.
    pub operations: u64,
    pub counts: Vec<(&'static str, u64)>,
}

impl Row {
    /// Adds a round.
    pub fn add(
        &mut self,
        measured: &Measured,
        before: &[(&'static str, u64)],
        after: &[(&'static str, u64)],
    ) {
        self.per_second.push(measured.per_second);
        self.cpu_seconds.push(measured.cpu_seconds);
        self.operations += measured.operations;
        self.counts.resize(after.len(), ("", 0));
        for ((sum, before), after) in self.counts.iter_mut().zip(before).zip(after) {
            *sum = (after.0, sum.1 + after.1 - before.1);
        }
    }

    fn per_operation(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let operations = self.operations.max(1) as f64;
        self.counts.iter().map(move |(name, count)| (*name, *count as f64 / operations))
    }
}

/// The object that stands for a row.
#[derive(Serialize)]
pub struct Object {
    load: String,
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    threads: usize,
    /// The kernel's version, as major and minor number.
    kernel: String,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    rounds: usize,
    /// Microseconds of CPU of the process that did the load, user and system.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us: Option<f64>,
    /// Per operation.
    counts: BTreeMap<&'static str, f64>,
}

/// An array of objects, one for each row.
pub fn json(rows: &[Row]) -> Result<String> {
    Ok(serde_json::to_string_pretty(&objects(rows))?)
}

/// An object for each row.
pub fn objects(rows: &[Row]) -> Vec<Object> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let kernel = release.split('.').take(2).collect::<Vec<_>>().join(".");
    let object = |row: &Row| Object {
        load: name_of(row.load),
        target: row.target.name(),
        policy: row.target.policy(),
        threads: row.threads,
        kernel: kernel.clone(),
        unit: "operations/s",
        median: row.per_second.median(),
        min: row.per_second.min(),
        max: row.per_second.max(),
        rounds: row.per_second.len(),
        cpu_us: Some(row.cpu_seconds.median() * 1e6).filter(|cpu| cpu.is_finite()),
        counts: row.per_operation().collect(),
    };
    rows.iter().map(object).collect()
}

/// A table of all rows: throughput, what the library does of it, what threads bring, CPU; then what is derived from several
/// rows, and counts.
pub fn print(rows: &[Row]) {
    let find = |target, threads| rows.iter().find(|row| row.target == target && row.threads == threads);
    let gain = |row: &Row| Some(row.per_second.over(&find(row.target, 1)?.per_second));
    println!("| | threads | thousand/s | extant / it | over 1 thread | CPU, us |");
    println!("|---|--:|--:|--:|--:|--:|");
    for row in rows {
        let cell = |series: Option<Series>, unit, places| {
            series.map(|series| series.cell(unit, places)).unwrap_or_default()
        };
        let own = (row.target != OWN).then(|| find(OWN, row.threads)).flatten();
        let ratio = own.map(|own| own.per_second.over(&row.per_second));
        let gained = (row.threads > 1).then(|| gain(row)).flatten();
        let cpu = (row.target != Target::Apart).then(|| row.cpu_seconds.clone());
        println!(
            "| {} | {} | {} | {} | {} | {} |",
            row.target.title(),
            row.threads,
            row.per_second.cell(1e3, 1),
            cell(ratio, 1.0, 2),
            cell(gained, 1.0, 2),
            cell(cpu, 1e-6, 2),
        );
    }
    println!();
    for row in rows.iter().filter(|row| row.target == OWN) {
        let threads = row.threads;
        if let Some(apart) = find(Target::Apart, threads)
            && let (Some(gained), Some(ceiling)) = (gain(row), gain(apart))
            && threads > 1
        {
            println!(
                "{}",
                gained.over(&ceiling).ratio_line(&format!("{threads} threads / 1, of the ceiling"))
            );
        }
        if let Some(one) = find(OWN, 1)
            && threads > 1
        {
            let ratio = row.cpu_seconds.over(&one.cpu_seconds);
            println!("{}", ratio.ratio_line(&format!("CPU, {threads} threads / 1")));
        }
        // What any file system pays for system calls.
        let neighbours = [Neighbour::Ext4, Neighbour::Tmpfs].map(|it| find(Target::Neighbour(it), threads));
        if let [Some(kernel), Some(tmpfs)] = neighbours {
            let alone = kernel.cpu_seconds.minus(&tmpfs.cpu_seconds).over(&row.cpu_seconds);
            println!(
                "{}",
                alone.ratio_line(&format!("CPU, ext4 without tmpfs's / extant, {threads} threads"))
            );
        }
    }
    for row in rows.iter().filter(|row| !row.counts.is_empty()) {
        let counts: Vec<_> = row
            .per_operation()
            .filter(|(_, count)| *count >= COUNT_MIN)
            .map(|(name, count)| format!("{name} {count:.3}"))
            .collect();
        println!("{}, {} threads, per operation: {}", row.target.title(), row.threads, counts.join(", "));
    }
    println!();
}
