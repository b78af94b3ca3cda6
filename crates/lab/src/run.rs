//! A run: a disk in memory, a directory for each virtual CPU, and a load in each.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use extant::mkfs::Mkfs;
use extant::{Dir, Filesystem, Mount, Tuning};
use extant_block::MemoryDevice;
use extant_loads::{Load, Runner, Step};
use extant_rt::{LineReport, LockReport, Monotonic, work};
use serde::Serialize;

use crate::machine::Model;

/// Bytes of the disk: groups enough for a CPU to have several.
const DISK_BYTES: u64 = 256 << 30;
/// Bytes of the cache for each CPU, as the engine has it by default on as many.
const CPU_CACHE_BYTES: u64 = 4 << 20;

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

/// What all CPUs did.
#[derive(Debug, Default)]
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
    begin: Monotonic,
    /// So long it warms caches, and so long again it is measured, up to the end of a round.
    half: Duration,
    operations: u64,
    /// Ends of rounds: the first after the warm-up and the last, with the operations until then.
    measured: Option<[(Duration, u64); 2]>,
}

impl Runner for Cpu<'_> {
    fn did(&mut self, step: Step) {
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
    fn done(&self) -> Done {
        let [first, last] = self.measured.unwrap_or_default();
        let ns = (last.0 - first.0).as_nanos().max(1) as f64;
        Done { all: self.operations, rate: (last.1 - first.1) as f64 / ns }
    }
}

/// Does something on a virtual CPU, with whatever threads it starts, so that none runs beside the next simulation.
fn alone<T: 'static>(model: &Model, run: impl FnOnce() -> T + 'static) -> Result<T, &'static str> {
    let result = Rc::new(RefCell::new(None));
    let place = Rc::clone(&result);
    model.machine.clone().run(vec![Box::new(move || *place.borrow_mut() = Some(run()))]);
    result.take().ok_or("a simulation ended early")
}

/// A mounted disk with a directory at its top for each CPU.
fn disk(cpus: usize, tuning: Tuning) -> Result<(Filesystem, Vec<Dir>), Box<dyn Error>> {
    let device = Arc::new(MemoryDevice::new(DISK_BYTES));
    Mkfs::new().uuid([1; 16]).hash_seed([2; 16]).format(&*device)?;
    let cache_bytes = (64 << 20).max(cpus as u64 * CPU_CACHE_BYTES);
    // What commits in the background would need a CPU of its own; a full log makes whoever fills it commit.
    let fs = Mount::new().background(false).cache_bytes(cache_bytes).tuning(tuning).open_device(device)?;
    let mut dirs = Vec::new();
    for number in 0..cpus {
        let path = format!("/cpu-{number}");
        fs.create_dir_all(&path)?;
        dirs.push(fs.dir(&path)?);
    }
    Ok((fs, dirs))
}

/// Runs a load on so many CPUs for `time`, after as much to warm up.
///
/// # Errors
/// The file system's.
pub fn run(
    load: Load,
    cpus: usize,
    model: &Rc<Model>,
    tuning: Tuning,
    time: Duration,
) -> Result<Run, Box<dyn Error>> {
    let (fs, dirs) = alone(model, move || disk(cpus, tuning))??;
    let results = Rc::new(RefCell::new(Vec::new()));
    let mut tasks: Vec<Box<dyn FnOnce()>> = Vec::new();
    for (number, dir) in dirs.into_iter().enumerate() {
        let (results, model) = (Rc::clone(&results), Rc::clone(model));
        tasks.push(Box::new(move || {
            let begin = Monotonic::now();
            let mut cpu = Cpu { load, model: &model, begin, half: time, operations: 0, measured: None };
            let result = load.run(&dir, number, &mut cpu).map(|()| cpu.done());
            results.borrow_mut().push(result);
        }));
    }
    let report = model.machine.clone().run(tasks);
    let mut sum = Done::default();
    for done in results.take() {
        let Done { all, rate } = done?;
        sum = Done { all: sum.all + all, rate: sum.rate + rate };
    }
    alone(model, move || fs.unmount())??;
    let per_operation = |count: u64| count as f64 / sum.all.max(1) as f64;
    let lock = |lock: &LockReport| LockShare {
        acquired: per_operation(lock.acquired),
        contended: per_operation(lock.contended),
        waited_ns: per_operation(lock.waited_ns),
    };
    let line = |line: &LineReport| LineShare {
        accesses: per_operation(line.accesses),
        shared: per_operation(line.shared),
        waited_ns: per_operation(line.waited_ns),
    };
    Ok(Run {
        cpus,
        per_second: sum.rate * 1e9 / cpus as f64,
        locks: report.locks.iter().map(|(class, counts)| ((*class).to_owned(), lock(counts))).collect(),
        lines: report.lines.iter().map(|(place, counts)| (place.to_string(), line(counts))).collect(),
    })
}
