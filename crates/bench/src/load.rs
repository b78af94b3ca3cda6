//! One load: through the library, as system calls, and by processes that share nothing.

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use extant::{Filesystem, Mount};
use extant_loads::{Directory, Load, Part, Runner, Step};

use crate::Result;
use crate::host::HostDir;
use crate::worker::{self, Worker};

/// Between two looks whether all threads came to their load's end.
const POLL: Duration = Duration::from_millis(1);
/// Steps of a thread at most, of loads that come to an end.
const STEPS_MAX: u64 = 30_000;

/// Counts what a thread does until it is told to stop.
struct Counter<'a> {
    load: Load,
    stop: &'a AtomicBool,
    done: u64,
}

impl Runner for Counter<'_> {
    fn did(&mut self, step: Step) {
        self.done += u64::from(self.load.counts(step));
    }

    fn goes_on(&mut self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// What a load did and what it took.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Operations of all threads.
    pub operations: u64,
    /// Operations per second of all threads together.
    pub per_second: f64,
    /// Seconds of this process's CPUs per operation, user and system.
    pub cpu_seconds: f64,
}

/// Seconds of CPU that this process has used.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs a load on threads that share out `dirs`, for `time` or until all came to its end. What was there before is made durable first, so
/// that a measurement has its own commits in it and no other's.
fn timed<D>(
    load: Load,
    dirs: &[D],
    shared: &D,
    threads: usize,
    time: Duration,
    sync: impl FnOnce() -> Result<()>,
) -> Result<Measured>
where
    D: Directory<Error: Error + Send + Sync + 'static> + Sync,
{
    let parts: Vec<_> = (0..threads)
        .map(|thread| Part { dir: &dirs[thread % dirs.len()], shared, threads, thread, steps_max: STEPS_MAX })
        .collect();
    parts.iter().try_for_each(|part| load.prepare(part))?;
    sync()?;
    let stop = AtomicBool::new(false);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let done: Vec<_> = std::thread::scope(|scope| {
        let run = |part| {
            let mut counter = Counter { load, stop: &stop, done: 0 };
            load.run(part, &mut counter)?;
            Ok((counter.done, start.elapsed()))
        };
        let threads: Vec<_> = parts.iter().map(|part| scope.spawn(move || run(part))).collect();
        while start.elapsed() < time && !threads.iter().all(ScopedJoinHandle::is_finished) {
            std::thread::sleep(POLL.min(time));
        }
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked")?)
            .collect::<Result<_>>()
    })?;
    let cpu_seconds = cpu_seconds() - cpu;
    parts.iter().zip(&done).try_for_each(|(part, (steps, _))| load.clean(part, *steps))?;
    let operations = done.iter().map(|(steps, _)| steps).sum::<u64>();
    let end = done.iter().map(|(_, end)| *end).max().unwrap_or_default();
    Ok(Measured {
        operations,
        per_second: operations as f64 / end.as_secs_f64(),
        cpu_seconds: cpu_seconds / operations as f64,
    })
}

/// Threads of a load, and where they work.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// How many.
    pub count: usize,
    /// Directories at the top that they share out.
    pub directories: usize,
}

impl Threads {
    /// With a directory each.
    pub fn apart(count: usize) -> Self {
        Self { count, directories: count }
    }
}

/// Through the library. `sync` comes last before the time begins.
pub fn engine(
    load: Load,
    fs: &Filesystem,
    threads: Threads,
    time: Duration,
    sync: impl FnOnce() -> Result<()>,
) -> Result<Measured> {
    let dir = |path: String| {
        fs.create_dir_all(&path)?;
        fs.dir(&path)
    };
    let dirs: Vec<_> =
        (0..threads.directories).map(|index| dir(format!("/dir-{index}"))).collect::<Result<_, _>>()?;
    timed(load, &dirs, &dir("/shared".to_owned())?, threads.count, time, sync)
}

/// As system calls, in directories of `path`.
pub fn host(load: Load, path: &Path, threads: usize, time: Duration) -> Result<Measured> {
    let dirs = (0..threads).map(|thread| HostDir::new(&path.join(format!("dir-{thread}"))));
    let shared = HostDir::new(&path.join("shared"))?;
    let sync = || Ok(rustix::fs::syncfs(File::open(path)?)?);
    timed(load, &dirs.collect::<Result<Vec<_>, _>>()?, &shared, threads, time, sync)
}

/// One process of the ceiling. By each line it does the load for so many milliseconds; it answers when all is prepared, begins at the next
/// line, so that all of them work at the same time, and answers with its operations per second.
pub fn worker_main(load: Load, image: &Path, page_cache_bytes: u64) -> Result<()> {
    let fs = Mount::new().page_cache_bytes(page_cache_bytes).open(image)?;
    let mut lines = std::io::stdin().lines();
    while let Some(milliseconds) = lines.next() {
        let time = Duration::from_millis(milliseconds?.parse()?);
        let ready = || {
            fs.sync()?;
            println!();
            lines.next().ok_or("no input")??;
            Ok(())
        };
        println!("{}", engine(load, &fs, Threads::apart(1), time, ready)?.per_second);
    }
    Ok(fs.unmount()?)
}

/// A process of the ceiling.
pub fn start_worker(load: Load, image: &Path, page_cache_bytes: u64) -> Result<Worker> {
    let load = load.to_possible_value().ok_or("a hidden load")?;
    let image = image.to_str().ok_or("the images' directory is not UTF-8")?;
    Worker::start(&["worker", load.get_name(), image, &page_cache_bytes.to_string()])
}

/// Operations per second of all processes together, which threads could do if they shared nothing.
pub fn ceiling(workers: &mut [Worker], time: Duration) -> Result<f64> {
    worker::all(workers, &time.as_millis().to_string())?;
    let rates = worker::all(workers, "")?;
    rates.iter().map(|rate| Ok(rate.parse::<f64>()?)).sum()
}
