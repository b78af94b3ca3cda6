//! What each class of locks and of shared lines costs: the same run again with that class in half of its time.
//!
//! What is waited for longest need not be what holds others up, and once it is gone the next one may; a run says so.
//! Source: causal profiling (Coz, SOSP 2015).

use std::error::Error;
use std::fmt::Write as _;
use std::rc::Rc;

use serde::Serialize;

use crate::machine::Model;
use crate::run::{self, HANDLES, Run, Setup};

/// Classes that are tried: those that were waited for longest.
const TRIED: usize = 8;
/// Nanoseconds per operation that are worth a try.
const WORTH_NS: f64 = 1.0;

/// A class, and what half of its time brings.
#[derive(Debug, Serialize)]
pub struct Cause {
    /// Of locks, or the source file that touches atomics.
    pub class: String,
    /// Waited per operation for its locks and lines.
    pub waited_ns: f64,
    /// Operations per second of a CPU with its lines' ways, its hand-overs, and what lies behind it, halved.
    pub per_second: f64,
    /// That more than without, as a part of it.
    pub gain: f64,
}

/// Runs `setup` again for each class that `plain`, its run, waited for long.
///
/// # Errors
/// The file system's.
pub fn causes(setup: Setup, model: &Model, plain: &Run) -> Result<Vec<Cause>, Box<dyn Error>> {
    let mut waits: Vec<_> = plain.waits.iter().filter(|(_, ns)| **ns >= WORTH_NS).collect();
    waits.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    waits.truncate(TRIED);
    let rates = run::side_by_side(waits.len(), |index| {
        let mut model = model.clone();
        model.machine.halved = Some(waits[index].0.clone());
        Ok(run::run(setup, &Rc::new(model))?.per_second)
    })?;
    let cause = |((class, waited_ns), per_second): ((&String, &f64), f64)| Cause {
        class: class.clone(),
        waited_ns: *waited_ns,
        per_second,
        gain: per_second / plain.per_second - 1.0,
    };
    Ok(waits.into_iter().zip(rates).map(cause).collect())
}

/// As a table.
pub fn table(cpus: usize, causes: &[Cause]) -> String {
    let mut text = format!("\nOn {cpus} CPUs, if a class took half of its time\n\n");
    text.push_str(
        "| class | ns waited per operation | operations/s of each then | gain |\n|---|--:|--:|--:|\n",
    );
    for Cause { class, waited_ns, per_second, gain } in causes {
        let class = if class == HANDLES { "the journal's handles" } else { class };
        let _ = writeln!(text, "| {class} | {waited_ns:.1} | {per_second:.0} | {:+.1} % |", 100.0 * gain);
    }
    text
}
