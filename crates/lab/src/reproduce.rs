//! The posts' tables beside the lab's: each row as a ratio to its table's base, with the error. Rows that miss stay listed.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use extant_loads::{APPEND_BYTES, FILE_BYTES};
use serde::Serialize;

use crate::machine::Model;
use crate::published::{Kind, Post, Row, Simulated, Table};
use crate::run::{self, LockShare, Run, Setup};

/// A run warms up, and is measured, for as long as so many operations of each CPU took where the figure was published: 2
/// files of fallocate2.
const OPERATIONS: u64 = 2 * FILE_BYTES / APPEND_BYTES;
/// Steps of a load that comes to an end, of each CPU: it may be ten times as fast as the kernel was.
const STEPS_MAX: u64 = 20 * OPERATIONS;
/// Errors that count as near and as nearer.
const NEAR: [f64; 2] = [0.25, 0.15];
/// Classes of locks that are named for a row.
const LOCKS: usize = 2;

/// A row beside its simulation.
#[derive(Debug, Serialize)]
pub struct Compared {
    pub post: String,
    pub table: String,
    pub row: String,
    pub unit: String,
    pub kind: Kind,
    pub published: f64,
    /// Nothing if it is not simulated.
    pub simulated: Option<f64>,
    /// Of the published row to its base.
    pub published_ratio: Option<f64>,
    pub simulated_ratio: Option<f64>,
    /// Of the simulated ratio, as a part of the published one.
    pub error: Option<f64>,
    /// Why it is not simulated.
    pub reason: Option<String>,
    /// Nanoseconds waited per operation, by class of lock: those waited for longest.
    pub waits: BTreeMap<String, f64>,
}

/// Compares the rows of posts; on `machine`, if there is one, instead of the tables' own.
///
/// # Errors
/// The file system's; or built-in data that do not fit.
pub fn compare(posts: &[Post], machine: Option<&Path>) -> Result<Vec<Compared>, Box<dyn Error>> {
    let mut all = Vec::new();
    for post in posts {
        for table in &post.table {
            all.extend(compare_table(post, table, machine)?);
        }
    }
    Ok(all)
}

fn compare_table(
    post: &Post,
    table: &Table,
    machine: Option<&Path>,
) -> Result<Vec<Compared>, Box<dyn Error>> {
    let runs = table.row.iter().map(|row| match &table.simulated {
        Some(how) if row.kind != Kind::NotSimulated => simulate(how, row, machine).map(Some),
        _ => Ok(None),
    });
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    let base = table.row.iter().zip(&runs).find(|(row, _)| row.kind == Kind::Base);
    let bases = base.and_then(|(row, run)| Some((row.value, run.as_ref()?.0)));
    let compared = table.row.iter().zip(&runs).map(|(row, run)| {
        let simulated = run.as_ref().map(|(rate, _)| *rate);
        let published_ratio = bases.map(|(published, _)| row.value / published);
        let simulated_ratio = bases.zip(simulated).map(|((_, base), rate)| rate / base);
        Compared {
            post: post.post.clone(),
            table: table.name.clone(),
            row: row.name.clone(),
            unit: table.unit.clone(),
            kind: row.kind,
            published: row.value,
            simulated,
            published_ratio,
            simulated_ratio,
            error: simulated_ratio
                .zip(published_ratio)
                .map(|(simulated, published)| simulated / published - 1.0),
            reason: row.reason.clone(),
            waits: run.as_ref().map(|(_, run)| waits(&run.locks)).unwrap_or_default(),
        }
    });
    Ok(compared.collect())
}

/// The figure of a row, in its table's unit, and the run.
fn simulate(how: &Simulated, row: &Row, machine: Option<&Path>) -> Result<(f64, Run), Box<dyn Error>> {
    let model = Rc::new(Model::load(machine.unwrap_or(Path::new(&how.machine)))?);
    let cpus_together = if how.together { row.cpus as f64 } else { 1.0 };
    let setup = Setup {
        load: how.load()?,
        cpus: row.cpus,
        one_directory: false,
        tuning: how.tuning(row)?,
        time: Duration::from_secs_f64(OPERATIONS as f64 * cpus_together / row.value),
        steps_max: STEPS_MAX,
        disk_bytes: how.disk_bytes(),
    };
    let run = run::run(setup, &model)?;
    Ok((run.per_second * cpus_together, run))
}

fn waits(locks: &BTreeMap<String, LockShare>) -> BTreeMap<String, f64> {
    let mut locks: Vec<_> = locks.iter().filter(|(_, share)| share.waited_ns > 0.0).collect();
    locks.sort_by(|(_, a), (_, b)| b.waited_ns.total_cmp(&a.waited_ns));
    locks.into_iter().take(LOCKS).map(|(class, share)| (class.clone(), share.waited_ns)).collect()
}

/// One JSON document.
///
/// # Errors
/// None that is known.
pub fn json(all: &[Compared]) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(all)? + "\n")
}

/// Tables, and how many of the predicted rows are near.
pub fn text(posts: &[Post], all: &[Compared]) -> String {
    let mut text = String::new();
    for post in posts {
        let _ = writeln!(text, "# {}: {}\n\n{}\n", post.post, post.title, post.source);
        for table in &post.table {
            let rows: Vec<_> =
                all.iter().filter(|row| row.post == post.post && row.table == table.name).collect();
            let _ = writeln!(text, "{}: {}, {}\n", table.name, table.title, table.unit);
            text.push_str(
                "| row | published | simulated | of base | simulated | error | | waits for |\n\
                 |---|--:|--:|--:|--:|--:|---|---|\n",
            );
            rows.iter().for_each(|row| text.push_str(&line(row)));
            text.push_str(if is_ordered(&rows) {
                "\n"
            } else {
                "\nThe order of the rows is not the published one.\n\n"
            });
        }
    }
    text + &summary(all)
}

fn line(row: &Compared) -> String {
    let Compared { simulated, published_ratio, simulated_ratio, error, .. } = *row;
    let rate = simulated.map_or(String::new(), |rate| format!("{rate:.0}"));
    let ratio = |ratio: Option<f64>| ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
    let error = match row.kind {
        Kind::Base => String::new(),
        _ => error.map_or(String::new(), |error| format!("{:+.0} %", 100.0 * error)),
    };
    let kind = match (row.kind, &row.reason) {
        (Kind::Base, _) => "base",
        (Kind::Fitted, _) => "fitted",
        (Kind::Predicted, _) => "predicted",
        (Kind::NotSimulated, reason) => &format!("not simulated: {}", reason.as_deref().unwrap_or_default()),
    };
    let waits = row.waits.iter().map(|(class, ns)| format!("{class} {ns:.0} ns"));
    format!(
        "| {} | {} | {rate} | {} | {} | {error} | {kind} | {} |\n",
        row.row,
        row.published,
        ratio(published_ratio),
        ratio(simulated_ratio),
        waits.collect::<Vec<_>>().join(", ")
    )
}

/// Whether no two simulated rows that lie more than the nearer error apart stand in another order than the published.
fn is_ordered(rows: &[&Compared]) -> bool {
    let figures: Vec<_> = rows.iter().filter_map(|row| Some((row.published, row.simulated?))).collect();
    figures.iter().all(|(published, simulated)| {
        let larger = figures.iter().filter(|(other, _)| *other > published * (1.0 + NEAR[1]));
        larger.clone().all(|(_, other)| other > simulated)
    })
}

/// How many of the predicted rows are near.
fn summary(all: &[Compared]) -> String {
    let errors: Vec<f64> =
        all.iter().filter(|row| row.kind == Kind::Predicted).filter_map(|row| row.error).collect();
    let within = |bound: f64| errors.iter().filter(|error| error.abs() <= bound).count();
    let simulated = all.iter().filter(|row| row.simulated.is_some()).count();
    format!(
        "{} rows, {simulated} simulated. Of {} predicted: {} within 25 %, {} within 15 %.\n",
        all.len(),
        errors.len(),
        within(NEAR[0]),
        within(NEAR[1])
    )
}
