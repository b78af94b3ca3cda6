//! What virtual CPUs do with loads beside what as many threads of this host did: how often more than one of them.
//!
//! What a counted step computes is one thread's time less what the lab charges for its atomics and lines, load by load; so one thread is
//! given, and what more of them do is predicted.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use clap::ValueEnum as _;
use extant::Tuning;
use extant_loads::Load;
use serde::Serialize;

use crate::machine::Model;
use crate::measured::{self, Measured};
use crate::report;
use crate::run::{self, Setup};

/// Operations of a CPU while it warms up, and as many while it is measured.
const OPERATIONS: f64 = 400.0;
/// Virtual time of a run at least.
const TIME_MIN: Duration = Duration::from_millis(1);

/// Steps of a CPU at most, of loads that come to an end: files are made for them first.
const STEPS_MAX: u64 = 20_000;

/// A measured point and its prediction.
#[derive(Debug, Serialize)]
pub struct Predicted {
    pub load: String,
    pub threads: usize,
    /// Operations per second of all threads.
    pub measured: f64,
    /// Over one thread.
    pub measured_gain: f64,
    pub predicted_gain: f64,
    /// Of the predicted gain, as a part of the measured one.
    pub error: f64,
}

/// Predicts each point of a file of measurements, on a machine like the host.
///
/// # Errors
/// The file's, or if it has no figure of one thread of a load; the machine's; the file system's.
pub fn predict(measured: &Path, machine: &Path) -> Result<Vec<Predicted>, Box<dyn Error>> {
    let (rows, model): (Vec<Measured>, _) = (measured::read(measured)?, Model::load(machine)?);
    let mut jobs = Vec::new();
    for load in Load::value_variants().iter().copied() {
        let of_load: Vec<_> = rows.iter().filter(|row| row.is(load, "extant", row.threads)).collect();
        let Some(one) = of_load.iter().find(|row| row.threads == 1) else {
            if of_load.is_empty() {
                continue;
            }
            return Err(
                format!("{}: {} with one thread was not measured", measured.display(), load.title()).into()
            );
        };
        jobs.extend(of_load.iter().map(|row| (load, *row, one.median)));
    }
    Ok(run::side_by_side(jobs.len(), |index| {
        let (load, row, one) = jobs[index];
        let rate = |cpus, ns, at_least: f64| -> Result<f64, Box<dyn Error>> {
            let model = Rc::new(model.with_counted_ns(load, ns)?);
            let time = TIME_MIN.max(Duration::from_nanos((OPERATIONS * at_least) as u64));
            // An operation may take a tenth of what it took of one thread of the host.
            let steps_max = (2.0 * time.as_nanos() as f64 / (at_least / 10.0).max(50.0)) as u64;
            let steps_max = if load.ends() { steps_max.min(STEPS_MAX) } else { steps_max };
            let setup = Setup { steps_max, ..Setup::new(load, cpus, Tuning::default(), time) };
            Ok(run::run(setup, &model)?.per_second * cpus as f64)
        };
        let host_ns = 1e9 / one;
        // Steps that compute nothing are soon done.
        let charged_ns = 1e9 / rate(1, 0, 0.0)?;
        let computed_ns = (host_ns - charged_ns).max(0.0).round() as u64;
        let predicted_gain = rate(row.threads, computed_ns, host_ns)? / rate(1, computed_ns, host_ns)?;
        let measured_gain = row.median / one;
        Ok(Predicted {
            load: report::name(load),
            threads: row.threads,
            measured: row.median,
            measured_gain,
            predicted_gain,
            error: predicted_gain / measured_gain - 1.0,
        })
    })?)
}

/// As a table.
pub fn table(all: &[Predicted]) -> String {
    let mut text = String::from(
        "| load | threads | thousand/s | over 1 thread | predicted, simulated | error |\n|---|--:|--:|--:|--:|--:|\n",
    );
    for one in all {
        let (load, threads, thousands) = (&one.load, one.threads, one.measured / 1e3);
        let cells = match threads {
            1 => " | ".to_owned(),
            _ => format!("{:.2} | {:+.0} %", one.predicted_gain, 100.0 * one.error),
        };
        let _ =
            writeln!(text, "| {load} | {threads} | {thousands:.1} | {:.2} | {cells} |", one.measured_gain);
    }
    text
}
