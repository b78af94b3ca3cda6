//! The posts' tables beside the lab's: each row as a ratio to its table's base, with the error. Rows that miss stay listed.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use extant_loads::{APPEND_BYTES, FILE_BYTES};
use serde::Serialize;

use crate::machine::{Model, Varied};
use crate::published::{FigureKind, How, Kernel, Post, Row, Score, Simulated, Table};
use crate::run::{self, LockShare, Setup};
use crate::{kernel, to_sync, writeback};

/// A run warms up, and is measured, for as long as so many operations of each CPU took where the figure was published: 4
/// files of fallocate2.
const OPERATIONS: u64 = 4 * FILE_BYTES / APPEND_BYTES;
/// Steps of a load that comes to an end, of each CPU: it may be ten times as fast as the kernel was.
const STEPS_MAX: u64 = 20 * OPERATIONS;
/// Errors that count as near and as nearer.
const NEAR: [f64; 2] = [0.25, 0.15];
/// Classes of locks that are named for a row.
const LOCKS: usize = 2;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Instead of the tables' own.
    pub machine: Option<&'a Path>,
    /// Orders of beginning, of whose rates the middle one counts.
    pub seeds: u64,
    /// Each cost of the machine is halved and doubled too.
    pub sensitivity: bool,
}

/// A row beside its simulation.
#[derive(Debug, Serialize)]
pub struct Compared {
    pub post: String,
    pub table: String,
    pub row: String,
    pub unit: String,
    pub kind: FigureKind,
    pub score: Score,
    pub published: f64,
    /// Nothing if it is not simulated.
    pub simulated: Option<f64>,
    /// Of the published row to its base.
    pub published_ratio: Option<f64>,
    pub simulated_ratio: Option<f64>,
    /// Of the simulated ratio, as a part of the published one.
    pub error: Option<f64>,
    /// The least and the largest of the ratio by seeds, if there are several.
    pub by_seeds: Option<[f64; 2]>,
    /// By the costs of the machine, if they were varied.
    pub by_costs: Option<Span>,
    /// Why it is not simulated.
    pub reason: Option<String>,
    /// Nanoseconds waited per operation, by class of lock: those waited for longest.
    pub waits: BTreeMap<String, f64>,
}

/// Between what a ratio lies, and the change of a cost that brings it there.
#[derive(Debug, Serialize)]
pub struct Span {
    pub least: f64,
    pub least_by: String,
    pub largest: f64,
    pub largest_by: String,
}

/// One simulation of a row.
struct Job<'a> {
    how: How<'a>,
    row: &'a Row,
    model: &'a Model,
    seed: u64,
}

/// The figure in the table's unit, and what was waited for.
struct Outcome {
    rate: f64,
    waits: BTreeMap<String, f64>,
}

/// A table with the models on which it is simulated: first the plain one, with every seed, then those varied.
struct Plan<'a> {
    post: &'a Post,
    table: &'a Table,
    models: Vec<Varied>,
}

/// Compares the rows of posts.
///
/// # Errors
/// The file system's; or built-in data that do not fit.
pub fn compare(posts: &[Post], options: Options<'_>) -> Result<Vec<Compared>, Box<dyn Error>> {
    let tables = posts.iter().flat_map(|post| post.table.iter().map(move |table| (post, table)));
    let plans = tables.map(|(post, table)| Ok(Plan { post, table, models: models(table, options)? }));
    let plans = plans.collect::<Result<Vec<_>, String>>()?;
    let jobs: Vec<_> = plans.iter().flat_map(|plan| plan.jobs(options.seeds)).collect();
    let mut outcomes = run::side_by_side(jobs.len(), |job| simulate(&jobs[job]))?.into_iter();
    Ok(plans.iter().flat_map(|plan| plan.compare(options.seeds, &mut outcomes)).collect())
}

fn models(table: &Table, options: Options<'_>) -> Result<Vec<Varied>, String> {
    let Some(how) = table.how() else { return Ok(Vec::new()) };
    let model = Model::load(options.machine.unwrap_or(Path::new(how.machine())))?;
    let varied = if options.sensitivity { model.varied()? } else { Vec::new() };
    Ok(std::iter::once(Varied { change: String::new(), model }).chain(varied).collect())
}

impl<'a> Plan<'a> {
    fn rows(&self) -> impl Iterator<Item = &'a Row> {
        self.table.row.iter().filter(|row| row.kind != FigureKind::NotSimulated)
    }

    /// By row, then by seed on the plain model, then on each varied one.
    fn jobs(&self, seeds: u64) -> impl Iterator<Item = Job<'_>> {
        let simulated = self.table.how().into_iter().zip(self.models.split_first());
        simulated.flat_map(move |(how, (plain, varied))| {
            self.rows().flat_map(move |row| {
                let plain = (0..seeds).map(move |seed| Job { how, row, model: &plain.model, seed });
                let varied = varied.iter().map(move |varied| Job { how, row, model: &varied.model, seed: 0 });
                plain.chain(varied)
            })
        })
    }

    /// Takes the outcomes of its jobs.
    fn compare(&self, seeds: u64, outcomes: &mut impl Iterator<Item = Outcome>) -> Vec<Compared> {
        let runs = seeds as usize + self.models.len().saturating_sub(1);
        let rows = self.table.row.iter().map(|row| {
            let runs = if row.kind == FigureKind::NotSimulated { 0 } else { runs };
            (row, outcomes.take(runs).collect::<Vec<_>>())
        });
        let rows: Vec<_> = rows.collect();
        let base = rows.iter().find(|(row, _)| row.kind == FigureKind::Base);
        rows.iter().map(|(row, runs)| self.compare_row(row, runs, base, seeds as usize)).collect()
    }

    fn compare_row(
        &self,
        row: &Row,
        runs: &[Outcome],
        base: Option<&(&Row, Vec<Outcome>)>,
        seeds: usize,
    ) -> Compared {
        let simulated = middle(runs.iter().take(seeds));
        let published_ratio = base.map(|(base, _)| row.value / base.value);
        let simulated_ratio = simulated.zip(base.and_then(|(_, runs)| middle(runs.iter().take(seeds))));
        let simulated_ratio = simulated_ratio.map(|(rate, base)| rate / base);
        let bases = base.map_or(&[][..], |(_, runs)| runs);
        let ratios: Vec<f64> = runs.iter().zip(bases).map(|(run, base)| run.rate / base.rate).collect();
        let (by_seeds, by_costs) = ratios.split_at(seeds.min(ratios.len()));
        let changes = self.models.iter().skip(1).map(|varied| &varied.change);
        Compared {
            post: self.post.post.clone(),
            table: self.table.name.clone(),
            row: row.name.clone(),
            unit: self.table.unit.clone(),
            kind: row.kind,
            score: self.post.score,
            published: row.value,
            simulated,
            published_ratio,
            simulated_ratio,
            error: simulated_ratio
                .zip(published_ratio)
                .map(|(simulated, published)| simulated / published - 1.0),
            by_seeds: ends(by_seeds.iter().copied()).filter(|_| seeds > 1),
            by_costs: Span::of(by_costs.iter().copied().zip(changes)),
            reason: row.reason.clone(),
            waits: runs.first().map(|run| run.waits.clone()).unwrap_or_default(),
        }
    }
}

/// The rate in the middle.
fn middle<'a>(runs: impl Iterator<Item = &'a Outcome>) -> Option<f64> {
    let mut rates: Vec<f64> = runs.map(|run| run.rate).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

fn ends(values: impl Iterator<Item = f64> + Clone) -> Option<[f64; 2]> {
    Some([values.clone().min_by(f64::total_cmp)?, values.max_by(f64::total_cmp)?])
}

impl Span {
    /// Of ratios with the changes of costs; nothing of none.
    pub fn of<'a>(ratios: impl Iterator<Item = (f64, &'a String)> + Clone) -> Option<Self> {
        let (least, least_by) = ratios.clone().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let (largest, largest_by) = ratios.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Self { least, least_by: least_by.clone(), largest, largest_by: largest_by.clone() })
    }
}

fn simulate(job: &Job<'_>) -> Result<Outcome, Box<dyn Error>> {
    let Job { how, row, model, seed } = *job;
    match how {
        How::Load(how) => simulate_load(how, row, model, seed),
        How::ToSync(how, job) => {
            let rate = to_sync::run(&to_sync::Setup::of(how, job, row)?, model)? / how.per_unit;
            Ok(Outcome { rate, waits: BTreeMap::new() })
        }
        How::Writeback(how) => {
            let run = writeback::run(&how.setup(row), model)?;
            Ok(Outcome { rate: run.mib_per_s(), waits: BTreeMap::new() })
        }
        How::Kernel(how, base) => simulate_kernel(how, base, row, model, seed),
    }
}

fn simulate_load(how: &Simulated, row: &Row, model: &Model, seed: u64) -> Result<Outcome, Box<dyn Error>> {
    let cpus_together = if how.together { row.cpus as f64 } else { 1.0 };
    let per_unit = how.per_unit;
    let time = Duration::from_secs_f64(OPERATIONS as f64 * cpus_together / (row.value * per_unit));
    let setup = Setup {
        steps_max: STEPS_MAX,
        disk_bytes: how.disk_bytes(),
        seed: Some(seed),
        ..Setup::new(how.load()?, row.cpus, how.tuning(row)?, time)
    };
    let run = run::run(setup, &Rc::new(model.clone()))?;
    Ok(Outcome { rate: run.per_second * cpus_together / per_unit, waits: waits(&run.locks) })
}

/// What an operation computes is what the base's rate leaves of its time on one CPU.
fn simulate_kernel(
    how: &Kernel,
    base: f64,
    row: &Row,
    model: &Model,
    seed: u64,
) -> Result<Outcome, Box<dyn Error>> {
    let Kernel { operation, journal, per_unit, .. } = how;
    let compute_ns = 1e9 / (base * per_unit) - kernel::charge_ns(operation, *journal, model)?;
    let run = kernel::run(
        kernel::Setup {
            operation,
            journal: *journal,
            cpus: row.cpus,
            compute: Duration::from_nanos(compute_ns.max(0.0).round() as u64),
            time: Duration::from_secs_f64((OPERATIONS * row.cpus as u64) as f64 / (row.value * per_unit)),
            seed,
        },
        model,
    )?;
    Ok(Outcome { rate: run.per_second / per_unit, waits: waits(&run.locks) })
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
        FigureKind::Base => String::new(),
        _ => error.map_or(String::new(), |error| format!("{:+.0} %", 100.0 * error)),
    };
    let kind = match (row.kind, &row.reason) {
        (FigureKind::Base, _) => "base",
        (FigureKind::Fitted, _) => "fitted",
        (FigureKind::Predicted, _) => "predicted",
        (FigureKind::NotSimulated, reason) => {
            &format!("not simulated: {}", reason.as_deref().unwrap_or_default())
        }
    };
    let mut notes: Vec<_> = row.waits.iter().map(|(class, ns)| format!("{class} {ns:.0} ns")).collect();
    if let Some([least, largest]) = row.by_seeds {
        notes.push(format!("by seeds {least:.3} to {largest:.3}"));
    }
    if let Some(Span { least, least_by, largest, largest_by }) = &row.by_costs {
        notes.push(format!("by costs {least:.3} ({least_by}) to {largest:.3} ({largest_by})"));
    }
    format!(
        "| {} | {} | {rate} | {} | {} | {error} | {kind} | {} |\n",
        row.row,
        row.published,
        ratio(published_ratio),
        ratio(simulated_ratio),
        notes.join(", ")
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

/// How many of the predicted rows are near: of the posts by which constants were chosen, of those entered later, and of the kernel's
/// operations.
fn summary(all: &[Compared]) -> String {
    let simulated = all.iter().filter(|row| row.simulated.is_some()).count();
    let mut text = format!("{} rows, {simulated} simulated.", all.len());
    for (score, what) in [
        (Score::Chosen, "predicted"),
        (Score::HeldOut, "entered when no constant was chosen any more"),
        (Score::Operations, "of operations that were modelled when their rows had been entered"),
    ] {
        let predicted = all.iter().filter(|row| row.kind == FigureKind::Predicted && row.score == score);
        let errors: Vec<f64> = predicted.filter_map(|row| row.error).collect();
        let within = |bound: f64| errors.iter().filter(|error| error.abs() <= bound).count();
        if !errors.is_empty() {
            let (count, [near, nearer]) = (errors.len(), NEAR.map(within));
            let _ = write!(text, " Of {count} {what}: {near} within 25 %, {nearer} within 15 %.");
        }
    }
    text + "\n"
}
