//! A run: a disk in memory, a directory for each virtual CPU or one for all, and a load in each.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use extant::mkfs::Mkfs;
use extant::{Dir, Filesystem, Mount, Tuning};
use extant_block::MemoryDevice;
use extant_loads::{Load, Part, Runner, Step};
use extant_rt::{AtomicU64, LineReport, LockReport, Monotonic, Ordering, Padded, Report, work};
use serde::Serialize;

use crate::machine::Model;

/// Bytes of the disk: groups enough for a CPU to have several.
pub const DISK_BYTES: u64 = 256 << 30;
/// Bytes of the cache for each CPU: half of what the engine has by default on as many, which is enough for the loads.
const CPU_CACHE_BYTES: u64 = 8 << 20;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub load: Load,
    pub cpus: usize,
    /// All CPUs work in one directory.
    pub one_directory: bool,
    pub tuning: Tuning,
    /// So long it warms caches, and so long again it is measured.
    pub time: Duration,
    /// Steps of each CPU at most, of loads that come to an end.
    pub steps_max: u64,
    pub disk_bytes: u64,
}

/// What a run showed.
#[derive(Debug, Serialize)]
pub struct Run {
    pub cpus: usize,
    /// Operations per second of a CPU, on average.
    pub per_second: f64,
    /// By lock class, per operation.
    pub locks: BTreeMap<String, LockShare>,
    /// By place in the source, per operation: atomics, and locks with what they guard.
    pub lines: BTreeMap<String, LineShare>,
}

/// Locks of a class, per operation.
#[derive(Debug, Serialize)]
pub struct LockShare {
    pub acquired: f64,
    pub contended: f64,
    pub waited_ns: f64,
}

/// Lines that a place touched, per operation.
#[derive(Debug, Serialize)]
pub struct LineShare {
    pub accesses: f64,
    /// Those that another CPU had.
    pub shared: f64,
    pub waited_ns: f64,
}

/// What a CPU did.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// Operations, those of the warm-up too.
    all: u64,
    /// Operations per nanosecond after it.
    rate: f64,
}

/// One CPU's part: counts what it does and charges what it computes.
struct Cpu<'a> {
    load: Load,
    model: &'a Model,
    /// See [`Model::handle_writes`].
    journal: &'a [Padded<AtomicU64>; 2],
    begin: Monotonic,
    /// So long it warms caches, and so long again it is measured, up to the end of a round.
    half: Duration,
    operations: u64,
    /// Ends of rounds: the first after the warm-up and the last, with the operations until then.
    measured: Option<[(Duration, u64); 2]>,
}

impl Runner for Cpu<'_> {
    fn did(&mut self, step: Step) {
        for (_, line) in (0..self.model.handle_writes).zip(self.journal.iter().cycle()) {
            line.fetch_add(1, Ordering::Relaxed);
        }
        work(Duration::from_nanos(self.model.step_ns(step)));
        self.operations += u64::from(self.load.counts(step));
    }

    fn goes_on(&mut self) -> bool {
        let end = (self.begin.elapsed(), self.operations);
        if end.0 >= self.half {
            self.measured.get_or_insert([end; 2])[1] = end;
        }
        self.measured.is_none_or(|[first, last]| last.0 < first.0 + self.half)
    }
}

impl Cpu<'_> {
    /// # Errors
    /// If nothing was done after the warm-up.
    fn done(&self) -> Result<Done, Box<dyn Error>> {
        let [first, last] = self.measured.filter(|[first, last]| first.1 < last.1).ok_or(
            "a CPU had nothing left to do before it was measured: fewer --microseconds, or more --steps-max",
        )?;
        let ns = (last.0 - first.0).as_nanos().max(1) as f64;
        Ok(Done { all: self.operations, rate: (last.1 - first.1) as f64 / ns })
    }
}

/// Does something on each of so many virtual CPUs, and gives the results in that order.
///
/// # Errors
/// The first of a CPU.
pub fn on_each<T: 'static>(
    model: &Model,
    cpus: usize,
    run: impl Fn(usize) -> Result<T, Box<dyn Error>> + 'static,
) -> Result<(Vec<T>, Report), Box<dyn Error>> {
    let results = Rc::new(RefCell::new((0..cpus).map(|_| None).collect::<Vec<_>>()));
    let run = Rc::new(run);
    let mut tasks: Vec<Box<dyn FnOnce()>> = Vec::new();
    for cpu in 0..cpus {
        let (results, run) = (Rc::clone(&results), Rc::clone(&run));
        tasks.push(Box::new(move || {
            let result = run(cpu);
            results.borrow_mut()[cpu] = Some(result);
        }));
    }
    let report = model.machine.clone().run(tasks);
    let done = results.take().into_iter().map(|result| result.ok_or("a simulation ended early")?);
    Ok((done.collect::<Result<_, _>>()?, report))
}

/// Does something on one virtual CPU, with whatever threads it starts, so that none runs beside the next simulation.
///
/// # Errors
/// Its own.
pub fn alone<T: 'static>(
    model: &Model,
    run: impl FnOnce() -> Result<T, Box<dyn Error>> + 'static,
) -> Result<T, Box<dyn Error>> {
    let run = RefCell::new(Some(run));
    let (mut results, _) =
        on_each(model, 1, move |_| run.take().map_or(Err("done already".into()), |run| run()))?;
    results.pop().ok_or("a simulation ended early".into())
}

/// A mounted disk with a directory at its top for each CPU, or one that all have open.
///
/// # Errors
/// The file system's.
pub fn disk(setup: &Setup) -> Result<(Filesystem, Vec<Dir>), Box<dyn Error>> {
    let device = Arc::new(MemoryDevice::new(setup.disk_bytes));
    Mkfs::new().uuid([1; 16]).hash_seed([2; 16]).format(&*device)?;
    let cache_bytes = (64 << 20).max(setup.cpus as u64 * CPU_CACHE_BYTES);
    // What commits in the background would need a CPU of its own; a full log makes whoever fills it commit.
    let fs =
        Mount::new().background(false).cache_bytes(cache_bytes).tuning(setup.tuning).open_device(device)?;
    let mut dirs = Vec::new();
    for number in 0..setup.cpus {
        let path = format!("/cpu-{}", if setup.one_directory { 0 } else { number });
        fs.create_dir_all(&path)?;
        dirs.push(fs.dir(&path)?);
    }
    Ok((fs, dirs))
}

/// Runs what is to be run.
///
/// # Errors
/// The file system's.
pub fn run(setup: Setup, model: &Rc<Model>) -> Result<Run, Box<dyn Error>> {
    let Setup { load, cpus, time, steps_max, .. } = setup;
    let (fs, dirs) = alone(model, move || disk(&setup))?;
    let dirs: Rc<[Dir]> = dirs.into();
    let prepared = Rc::clone(&dirs);
    on_each(model, cpus, move |thread| {
        Ok(load.prepare(&Part { dir: &prepared[thread], thread, steps_max })?)
    })?;
    let (costs, journal) = (Rc::clone(model), <[Padded<AtomicU64>; 2]>::default());
    let (done, report) = on_each(model, cpus, move |thread| {
        let begin = Monotonic::now();
        let mut cpu =
            Cpu { load, model: &costs, journal: &journal, begin, half: time, operations: 0, measured: None };
        load.run(&Part { dir: &dirs[thread], thread, steps_max }, &mut cpu)?;
        cpu.done()
    })?;
    alone(model, move || Ok(fs.unmount()?))?;
    let operations = done.iter().map(|done| done.all).sum();
    let rate: f64 = done.iter().map(|done| done.rate).sum();
    let locks =
        report.locks.iter().map(|(class, counts)| ((*class).to_owned(), LockShare::of(counts, operations)));
    let lines =
        report.lines.iter().map(|(place, counts)| (place.to_string(), LineShare::of(counts, operations)));
    Ok(Run { cpus, per_second: rate * 1e9 / cpus as f64, locks: locks.collect(), lines: lines.collect() })
}

fn per_operation(count: u64, operations: u64) -> f64 {
    count as f64 / operations.max(1) as f64
}

impl LockShare {
    fn of(counts: &LockReport, operations: u64) -> Self {
        Self {
            acquired: per_operation(counts.acquired, operations),
            contended: per_operation(counts.contended, operations),
            waited_ns: per_operation(counts.waited_ns, operations),
        }
    }
}

impl LineShare {
    /// Per operation, of so many.
    pub fn of(counts: &LineReport, operations: u64) -> Self {
        Self {
            accesses: per_operation(counts.accesses, operations),
            shared: per_operation(counts.shared, operations),
            waited_ns: per_operation(counts.waited_ns, operations),
        }
    }
}
