//! Which cache lines two operations share: a load on one CPU and a load on another, each on files of its own in a directory
//! of its own, in different bands of groups.
//!
//! Counts begin when both have warmed up, so that they are those of steady state. A line counts each time that a CPU has to
//! fetch it from the other, or to take it from one that read it.
//!
//! Leaves out: what no lock or atomic stands for. Source: Commuter (SOSP 2013), whose operations commute if they can be done
//! without a common line. Test: `tests/conflicts.rs`.

pub mod report;

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use extant::{Dir, Filesystem, Tuning};
use extant_alloc::Bands;
use extant_loads::{Load, Part, Runner, Step};
use extant_ondisk::Geometry;
use extant_rt::{count_anew, work};
use serde::Serialize;

use crate::machine::Model;
use crate::run::{self, LineShare, Setup};

/// Steps of each CPU before lines are counted, and at least while they are.
const STEPS: u64 = 1000;
/// Steps of each at most, of loads that come to an end: the other one may be slower.
const STEPS_MAX: u64 = 12 * STEPS;
/// Directories among which two of different bands are looked for.
const DIRECTORIES: usize = 16;
/// Lines per operation up to which nothing is shared but for refills.
pub const REFILLS_MAX: f64 = 1.0 / 64.0;

/// What two operations share.
#[derive(Debug, Serialize)]
pub struct Conflict {
    pub operations: [String; 2],
    /// Lines that were another's, per operation.
    pub shared: f64,
    /// Where, those shared most first.
    pub lines: Vec<SharedLine>,
}

/// Lines that are touched at one place.
#[derive(Debug, Serialize)]
pub struct SharedLine {
    pub place: String,
    /// The class of the lock; none for an atomic.
    pub class: Option<&'static str>,
    #[serde(flatten)]
    pub share: LineShare,
}

/// What both CPUs know of each other.
#[derive(Debug, Default)]
struct Pair {
    /// Steps of each.
    steps: [Cell<u64>; 2],
    /// What counts, of both together, since both had warmed up.
    operations: Cell<u64>,
    is_warm: Cell<bool>,
    /// Steps of each since when lines are counted.
    counted_from: Cell<Option<[u64; 2]>>,
}

impl Pair {
    /// Called between rounds; whether there is more to be done.
    fn goes_on(&self) -> bool {
        let steps = || self.steps.each_ref().map(Cell::get);
        if !self.is_warm.get() && steps().iter().all(|steps| *steps >= STEPS) {
            self.is_warm.set(true);
            // The other one may go on meanwhile.
            count_anew();
            self.operations.set(0);
            self.counted_from.set(Some(steps()));
        }
        self.counted_from
            .get()
            .is_none_or(|from| steps().iter().zip(from).any(|(steps, from)| *steps < from + STEPS))
    }
}

struct Cpu<'a> {
    number: usize,
    load: Load,
    model: &'a Model,
    pair: &'a Pair,
}

impl Runner for Cpu<'_> {
    fn did(&mut self, step: Step) {
        work(Duration::from_nanos(self.model.step_ns(step)));
        let (steps, operations) = (&self.pair.steps[self.number], &self.pair.operations);
        steps.set(steps.get() + 1);
        operations.set(operations.get() + u64::from(self.load.counts(step)));
    }

    fn goes_on(&mut self) -> bool {
        self.pair.goes_on()
    }
}

/// Two directories whose groups lie in different bands.
fn apart(fs: &Filesystem, dirs: Vec<Dir>) -> Result<[Dir; 2], Box<dyn Error>> {
    let geometry = Geometry::new(&fs.superblock())?;
    let bands = Bands::new(geometry.group_count);
    let band = |dir: &Dir| {
        let place = geometry.inode_location(dir.clone().into_file().number());
        place.map(|(group, _)| bands.of(group))
    };
    let mut dirs = dirs.into_iter();
    let first = dirs.next().ok_or("no directory")?;
    let second = dirs.find(|dir| band(dir) != band(&first)).ok_or("all directories lie in one band")?;
    Ok([first, second])
}

/// Loads on files of their own have no use for a directory of all.
fn part(dirs: &[Dir; 2], thread: usize) -> Part<'_, Dir> {
    let dir = &dirs[thread];
    Part { dir, shared: dir, threads: 2, thread, steps_max: STEPS_MAX }
}

/// What two operations share in steady state.
///
/// # Errors
/// The file system's.
pub fn conflict(loads: [Load; 2], model: &Rc<Model>, tuning: Tuning) -> Result<Conflict, Box<dyn Error>> {
    let setup = Setup { steps_max: STEPS_MAX, ..Setup::new(loads[0], DIRECTORIES, tuning, Duration::ZERO) };
    let (fs, dirs) = run::alone(model, move || {
        let run::Disk { fs, dirs } = run::disk(&setup)?;
        let dirs = apart(&fs, dirs.own)?;
        Ok((fs, Rc::new(dirs)))
    })?;
    let prepared = Rc::clone(&dirs);
    run::on_each(model, 2, move |thread| Ok(loads[thread].prepare(&part(&prepared, thread))?))?;
    let pair = Rc::new(Pair::default());
    let (both, costs) = (Rc::clone(&pair), Rc::clone(model));
    let (_, report) = run::on_each(model, 2, move |thread| {
        let mut cpu = Cpu { number: thread, load: loads[thread], model: &costs, pair: &both };
        Ok(loads[thread].run(&part(&dirs, thread), &mut cpu)?)
    })?;
    run::alone(model, move || Ok(fs.unmount()?))?;
    if pair.counted_from.get().is_none() {
        return Err("a load came to its end before the other had warmed up".into());
    }
    let operations = pair.operations.get();
    let shared = report.lines.iter().filter(|(_, counts)| counts.shared > 0);
    let mut lines: Vec<_> = shared
        .map(|(place, counts)| SharedLine {
            place: place.to_string(),
            class: counts.class,
            share: LineShare::of(counts, operations),
        })
        .collect();
    lines.sort_by(|a, b| b.share.shared.total_cmp(&a.share.shared));
    Ok(Conflict {
        operations: loads.map(crate::report::name),
        shared: lines.iter().fold(0.0, |sum, line| sum + line.share.shared),
        lines,
    })
}

/// Each of the loads with itself and with those after it.
///
/// # Errors
/// As [`conflict`].
pub fn matrix(loads: &[Load], model: &Rc<Model>, tuning: Tuning) -> Result<Vec<Conflict>, Box<dyn Error>> {
    let pairs = loads
        .iter()
        .enumerate()
        .flat_map(|(index, first)| loads[index..].iter().map(move |second| [*first, *second]));
    pairs.map(|pair| conflict(pair, model, tuning)).collect()
}
