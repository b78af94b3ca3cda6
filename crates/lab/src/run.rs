//! A run: a disk in memory, a directory for each virtual CPU or one for all, and a load in each.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use extant::mkfs::Mkfs;
use extant::{Dir, Filesystem, MballocStatistics, Mount, Tuning};
use extant_block::MemoryDevice;
use extant_loads::{Directory, Load, Part, Random, Runner, Step, layout, mix};
use extant_rt::{AtomicU64, LineReport, LockReport, Monotonic, Ordering, Padded, Report, count_anew, work};
use serde::Serialize;

use crate::machine::Model;

/// Bytes of the disk: each of 64 CPUs has a band of groups of its own, and no load uses it up in the time of a run.
pub const DISK_BYTES: u64 = 2 << 40;
/// Bytes of the cache for each CPU: as many as the engine has by default.
const CPU_CACHE_BYTES: u64 = 16 << 20;

/// Where the lines of the kernel's handles are changed: the name under which they are waited for.
pub const HANDLES: &str = file!();

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
    pub block_bytes: u32,
    /// Of the page cache.
    pub page_cache_bytes: u64,
    /// By which CPUs begin at times of their own, in the first half of the warm-up, and not all at once: who comes in which
    /// order decides for long how far locks and lines travel.
    pub seed: Option<u64>,
}

impl Setup {
    /// CPUs in directories of their own, that begin at once, on a disk of [`DISK_BYTES`], of a load with no end.
    pub const fn new(load: Load, cpus: usize, tuning: Tuning, time: Duration) -> Self {
        Self {
            load,
            cpus,
            one_directory: false,
            tuning,
            time,
            steps_max: u64::MAX,
            disk_bytes: DISK_BYTES,
            block_bytes: 4096,
            page_cache_bytes: 0,
            seed: None,
        }
    }
}

/// What a run showed.
#[derive(Debug, Serialize)]
pub struct Run {
    pub cpus: usize,
    /// Operations per second of a CPU, on average.
    pub per_second: f64,
    /// Of a search for blocks, by searches of the warm-up too.
    pub groups_per_search: f64,
    /// Of the files of [`Load::Append`]; other loads leave none that grew.
    pub extents_per_mib: Option<f64>,
    /// By lock class, per operation.
    pub locks: BTreeMap<String, LockShare>,
    /// By place in the source, per operation: atomics, and locks with what they guard.
    pub lines: BTreeMap<String, LineShare>,
    /// Nanoseconds waited per operation for locks of a class and their lines, by its name, and for atomics' lines, by the
    /// source file that touches them.
    pub waits: BTreeMap<String, f64>,
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
    /// Operations after the warm-up.
    measured: u64,
    /// Of them, per nanosecond.
    rate: f64,
}

/// One CPU's part: counts what it does and charges what it computes.
struct Cpu<'a> {
    load: Load,
    model: &'a Model,
    /// See [`Model::handle`].
    journal: &'a [Padded<AtomicU64>; 2],
    begin: Monotonic,
    /// So long it warms caches, and so long again it is measured.
    half: Duration,
    /// Whether a CPU came to the end of the warm-up, since when locks and lines are counted.
    is_counted: &'a Cell<bool>,
    /// Operations in the time that is measured, and the end of the last.
    measured: u64,
    last: Duration,
}

impl Runner for Cpu<'_> {
    fn did(&mut self, step: Step) {
        let change = |line: &usize| _ = self.journal[*line].fetch_add(1, Ordering::Relaxed);
        self.model.handle.stop.iter().for_each(change);
        work(Duration::from_nanos(self.model.step_ns(step)));
        let now = self.begin.elapsed();
        if now >= self.half && !self.is_counted.replace(true) {
            count_anew();
        }
        if self.load.counts(step) && (self.half..2 * self.half).contains(&now) {
            self.measured += 1;
            self.last = now;
        }
        // Of the next step.
        self.model.handle.start.iter().for_each(change);
    }

    fn goes_on(&mut self) -> bool {
        self.begin.elapsed() < 2 * self.half
    }
}

impl Cpu<'_> {
    /// # Errors
    /// If it came to its end before anything was measured.
    fn done(&self) -> Result<Done, Box<dyn Error>> {
        let ended_early = self.begin.elapsed() < 2 * self.half;
        if ended_early && self.measured == 0 {
            return Err(
                "a CPU had nothing left to do before it was measured: fewer --microseconds, or more --steps-max"
                    .into(),
            );
        }
        let time = if ended_early { self.last - self.half } else { self.half };
        Ok(Done { measured: self.measured, rate: self.measured as f64 / time.as_nanos().max(1) as f64 })
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

/// Simulates so many times, in as many threads as the host has CPUs; the results in order.
///
/// # Errors
/// The first of a simulation.
pub fn side_by_side<T: Send>(
    count: usize,
    simulate: impl Fn(usize) -> Result<T, Box<dyn Error>> + Sync,
) -> Result<Vec<T>, String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mine = std::iter::from_fn(|| {
            let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (index < count).then(|| (index, simulate(index).map_err(|error| error.to_string())))
        });
        mine.collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut done = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().flat_map(join).collect::<Vec<(usize, _)>>()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A mounted disk with its directories.
pub struct Disk {
    pub fs: Filesystem,
    pub dirs: Dirs,
}

/// Each CPU's directory at the top, and each CPU's handle of the directory of all.
pub struct Dirs {
    pub own: Vec<Dir>,
    shared: Vec<Dir>,
}

impl Dirs {
    fn part(&self, thread: usize, steps_max: u64) -> Part<'_, Dir> {
        let (dir, shared) = (&self.own[thread], &self.shared[thread]);
        Part { dir, shared, threads: self.own.len(), thread, steps_max }
    }
}

/// The disk of a run.
///
/// # Errors
/// The file system's.
pub fn disk(setup: &Setup) -> Result<Disk, Box<dyn Error>> {
    let device = Arc::new(MemoryDevice::new(setup.disk_bytes));
    let mkfs = Mkfs::new().block_size(setup.block_bytes);
    mkfs.uuid([1; 16]).hash_seed([2; 16]).format(&*device)?;
    let cache_bytes = (256 << 20).max(setup.cpus as u64 * CPU_CACHE_BYTES);
    // What commits in the background would need a CPU of its own; a full log makes whoever fills it commit.
    let mount = Mount::new().background(false).cache_bytes(cache_bytes).tuning(setup.tuning);
    let fs = mount.page_cache_bytes(setup.page_cache_bytes).open_device(device)?;
    Ok(directories(fs, setup)?)
}

/// Makes the directories of a run's CPUs on a disk.
///
/// # Errors
/// The file system's.
pub fn directories(fs: Filesystem, setup: &Setup) -> Result<Disk, extant::Error> {
    let dir = |path: &str| {
        fs.create_dir_all(path)?;
        fs.dir(path)
    };
    let own = |number: usize| dir(&format!("/cpu-{}", if setup.one_directory { 0 } else { number }));
    let own: Vec<_> = (0..setup.cpus).map(own).collect::<Result<_, _>>()?;
    let shared = if setup.load.is_shared() {
        (0..setup.cpus).map(|_| dir("/shared")).collect::<Result<_, _>>()?
    } else {
        own.clone()
    };
    Ok(Disk { fs, dirs: Dirs { own, shared } })
}

/// Runs what is to be run.
///
/// # Errors
/// The file system's.
pub fn run(setup: Setup, model: &Rc<Model>) -> Result<Run, Box<dyn Error>> {
    run_on(alone(model, move || disk(&setup))?, setup, model)
}

/// Runs it on a disk that is there already, and unmounts that.
///
/// # Errors
/// The file system's.
pub fn run_on(disk: Disk, setup: Setup, model: &Rc<Model>) -> Result<Run, Box<dyn Error>> {
    let Setup { load, cpus, time, steps_max, seed, .. } = setup;
    let Disk { fs, dirs } = disk;
    let dirs = Rc::new(dirs);
    let prepared = Rc::clone(&dirs);
    on_each(model, cpus, move |thread| Ok(load.prepare(&prepared.part(thread, steps_max))?))?;
    let before = fs.mballoc_statistics();
    let growing = (load == Load::Append).then(|| Rc::clone(&dirs));
    let (costs, journal) = (Rc::clone(model), <[Padded<AtomicU64>; 2]>::default());
    let is_counted = Cell::new(false);
    let (done, report) = on_each(model, cpus, move |thread| {
        let begin = Monotonic::now();
        let mut cpu = Cpu {
            load,
            model: &costs,
            journal: &journal,
            begin,
            half: time,
            is_counted: &is_counted,
            measured: 0,
            last: Duration::ZERO,
        };
        if let Some(seed) = seed {
            let delay = Random::new(mix(seed) ^ thread as u64).below(time.as_nanos() as u64 / 2 + 1);
            work(Duration::from_nanos(delay));
        }
        load.run(&dirs.part(thread, steps_max), &mut cpu)?;
        cpu.done()
    })?;
    let (after, extents_per_mib) = alone(model, move || {
        let extents_per_mib = growing.map(|dirs| extents_per_mib(&dirs)).transpose()?;
        let after = fs.mballoc_statistics();
        fs.unmount()?;
        Ok((after, extents_per_mib))
    })?;
    let operations = done.iter().map(|done| done.measured).sum();
    let rate: f64 = done.iter().map(|done| done.rate).sum();
    let mut waits = BTreeMap::new();
    let of_locks = report.locks.iter().map(|(class, counts)| (*class, counts.waited_ns));
    let of_lines = report.lines.iter();
    let of_lines = of_lines.map(|(place, counts)| (counts.class.unwrap_or(place.file()), counts.waited_ns));
    for (class, ns) in of_locks.chain(of_lines) {
        *waits.entry(class.to_owned()).or_default() += per_operation(ns, operations);
    }
    let locks =
        report.locks.iter().map(|(class, counts)| ((*class).to_owned(), LockShare::of(counts, operations)));
    let lines =
        report.lines.iter().map(|(place, counts)| (place.to_string(), LineShare::of(counts, operations)));
    Ok(Run {
        cpus,
        per_second: rate * 1e9 / cpus as f64,
        groups_per_search: groups_per_search(&before, &after),
        extents_per_mib,
        locks: locks.collect(),
        lines: lines.collect(),
        waits,
    })
}

/// Groups that a search looked at on average, between two times.
pub fn groups_per_search(before: &MballocStatistics, after: &MballocStatistics) -> f64 {
    let groups = |counts: &MballocStatistics| counts.considered.iter().sum::<u64>();
    per_operation(groups(after) - groups(before), after.requests - before.requests)
}

/// In how many pieces a MiB of the CPUs' files lies.
fn extents_per_mib(dirs: &Dirs) -> Result<f64, extant::Error> {
    let (mut pieces, mut bytes) = (0, 0);
    for cpu in 0..dirs.own.len() {
        let file = Directory::open(&dirs.own[cpu], &dirs.part(cpu, 0).file())?;
        pieces += layout::pieces(&file)?;
        bytes += Dir::bytes(&file)?;
    }
    Ok(pieces as f64 * f64::from(1 << 20) / bytes.max(1) as f64)
}

fn per_operation(count: u64, operations: u64) -> f64 {
    count as f64 / operations.max(1) as f64
}

impl LockShare {
    /// Per operation, of so many.
    pub fn of(counts: &LockReport, operations: u64) -> Self {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// `stat`s of a second by each CPU, of files of their own whose paths meet.
    fn stats_by_path(model: &Rc<Model>, cpus: usize) -> f64 {
        const STATS: u32 = 2000;
        let setup = Setup::new(Load::Stat, cpus, Tuning::default(), Duration::ZERO);
        let Disk { fs, dirs } = alone(model, move || disk(&setup)).expect("a disk");
        drop(dirs);
        let fs = Rc::new(fs);
        let path = |cpu| format!("/usr/share/doc/{cpu}");
        let (prepared, used) = (fs.clone(), fs);
        alone(model, move || {
            prepared.create_dir_all("/usr/share/doc")?;
            (0..cpus).try_for_each(|cpu| prepared.write(path(cpu), b""))?;
            Ok(())
        })
        .expect("files");
        let (times, _) = on_each(model, cpus, move |cpu| {
            // Until names are biased towards all who pass them.
            (0..STATS).try_for_each(|_| used.metadata(path(cpu)).map(drop))?;
            let begin = Monotonic::now();
            (0..STATS).try_for_each(|_| used.metadata(path(cpu)).map(drop))?;
            Ok(f64::from(STATS) / begin.elapsed().as_secs_f64())
        })
        .expect("stats");
        times.iter().sum::<f64>() / cpus as f64
    }

    #[test]
    fn stats_by_paths_that_meet_scale() {
        let model = Rc::new(Model::load(Path::new("kunpeng920")).expect("built in"));
        let (one, many) = (stats_by_path(&model, 1), stats_by_path(&model, 32));
        assert!(many >= 0.85 * one, "{many} of {one}");
    }
}
