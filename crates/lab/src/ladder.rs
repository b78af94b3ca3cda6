//! The steps of the allocator's ladder on one virtual CPU and on two, beside what threads of the host did; each on a machine
//! whose lines take as long as the host's did meanwhile.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use extant_loads::Load;
use extant_loads::ladder::{self, Order, Step};

use crate::machine::Model;
use crate::measured::{self, MeasuredStep};
use crate::run::{self, Setup};

/// Virtual time of each run, and as much before it.
const TIME: Duration = Duration::from_millis(20);

/// A step: how much more two CPUs do than one.
pub struct Climbed {
    step: Step,
    simulated: f64,
    measured: Option<f64>,
    /// Of the host's lines while it was measured.
    line_ns: Option<f64>,
}

/// Runs all steps; `measured` is what `extant-bench ladder --json` wrote.
///
/// # Errors
/// The file's; the file system's.
pub fn climb(model: &Model, measured: Option<&Path>) -> Result<Vec<Climbed>, Box<dyn Error>> {
    let measured: Vec<MeasuredStep> = measured.map(measured::read).transpose()?.unwrap_or_default();
    let steps = ladder::steps(Order::ListHead)?;
    let climbed = run::side_by_side(steps.len(), |index| {
        let step = steps[index];
        let of_host = |threads| {
            let is = |row: &&MeasuredStep| {
                row.step == step.key && (row.threads, row.directories) == (threads, threads)
            };
            measured.iter().find(is)
        };
        let (one, two) = (of_host(1), of_host(2));
        let line_ns = two.and_then(|row| row.line_ns);
        let model = line_ns.map_or(Ok(model.clone()), |line_ns| model.with_nearest_ns(line_ns))?;
        let model = Rc::new(model);
        let rate = |cpus| {
            let setup = Setup::new(Load::Fallocate2, cpus, step.tuning, TIME);
            Ok::<_, Box<dyn Error>>(run::run(setup, &model)?.per_second * cpus as f64)
        };
        let measured = two.zip(one).map(|(two, one)| two.median / one.median);
        Ok(Climbed { step, simulated: rate(2)? / rate(1)?, measured, line_ns })
    })?;
    Ok(climbed)
}

/// A line for each step, and the largest error.
pub fn table(all: &[Climbed]) -> String {
    let mut text = String::from(
        "fallocate2, two CPUs in two directories over one\n\n| | simulated | measured | error | a line's way, ns |\n\
         |---|--:|--:|--:|--:|\n",
    );
    let error = |climbed: &Climbed| climbed.measured.map(|measured| climbed.simulated / measured - 1.0);
    for climbed in all {
        let measured = climbed.measured.map_or(String::new(), |measured| format!("{measured:.2}"));
        let error = error(climbed).map_or(String::new(), |error| format!("{:+.0} %", 100.0 * error));
        let way = climbed.line_ns.map_or(String::new(), |ns| format!("{ns:.0}"));
        let (name, simulated) = (climbed.step.name, climbed.simulated);
        let _ = writeln!(text, "| {name} | {simulated:.2} | {measured} | {error} | {way} |");
    }
    let largest = all.iter().filter_map(error).map(f64::abs).max_by(f64::total_cmp);
    if let Some(largest) = largest {
        let _ = writeln!(text, "\nThe largest error is {:.0} %.", 100.0 * largest);
    }
    text
}
