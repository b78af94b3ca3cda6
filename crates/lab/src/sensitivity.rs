//! How far a run hangs on the costs of the machine: the same with each of them halved and doubled.

use std::error::Error;
use std::fmt::Write as _;
use std::rc::Rc;

use serde::Serialize;

use crate::machine::Model;
use crate::reproduce::Span;
use crate::run::{self, Setup};

/// Between what the throughput of some CPUs lies, as a part of linear.
#[derive(Debug, Serialize)]
pub struct OfLinear {
    pub cpus: usize,
    #[serde(flatten)]
    pub span: Span,
}

/// Runs with each of `cpus`, of which the first is what is linear, for each change of a cost.
///
/// # Errors
/// The file system's.
pub fn of_linear(
    setup: impl Fn(usize) -> Setup + Sync,
    model: &Model,
    cpus: &[usize],
) -> Result<Vec<OfLinear>, Box<dyn Error>> {
    let varied = model.varied()?;
    let rates = run::side_by_side(varied.len() * cpus.len(), |job| {
        let (varied, cpus) = (&varied[job / cpus.len()], cpus[job % cpus.len()]);
        Ok(run::run(setup(cpus), &Rc::new(varied.model.clone()))?.per_second)
    })?;
    let of = |(at, cpus): (usize, &usize)| {
        let ratios = rates.chunks(rates.len() / varied.len()).map(|rates| rates[at] / rates[0]);
        Some(OfLinear {
            cpus: *cpus,
            span: Span::of(ratios.zip(varied.iter().map(|varied| &varied.change)))?,
        })
    };
    Ok(cpus.iter().enumerate().skip(1).filter_map(of).collect())
}

/// As a table.
pub fn table(all: &[OfLinear]) -> String {
    let mut text = String::from("\nOf linear, with each cost of the machine halved and doubled\n\n");
    text.push_str("| CPUs | least | with | largest | with |\n|--:|--:|---|--:|---|\n");
    for OfLinear { cpus, span: Span { least, least_by, largest, largest_by } } in all {
        let (least, largest) = (100.0 * least, 100.0 * largest);
        let _ = writeln!(text, "| {cpus} | {least:.1} % | {least_by} | {largest:.1} % | {largest_by} |");
    }
    text
}
