//! Loads in process: the engine as a library beside the kernel's ext4.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use extant::{Filesystem, Mount};
use extant_loads::{Directory, Load, Part, Runner, Step};

use crate::Result;
use crate::host::HostDir;
use crate::kernel::KernelMount;
use crate::report::Series;
use crate::scratch::Scratch;

/// Between two looks whether all threads came to their load's end.
const POLL: Duration = Duration::from_millis(1);
/// What `statfs` says of tmpfs.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

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

impl Measured {
    const NONE: Self = Self { operations: 0, per_second: f64::NAN, cpu_seconds: f64::NAN };
}

/// Seconds of CPU that this process has used.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs a load on threads that share out `dirs`, for `time` or until all came to its end.
fn timed<D>(load: Load, dirs: &[D], threads: usize, time: Duration) -> Result<Measured>
where
    D: Directory<Error: Error + Send + Sync + 'static> + Sync,
{
    let parts: Vec<_> = (0..threads)
        .map(|thread| Part { dir: &dirs[thread % dirs.len()], thread, steps_max: STEPS_MAX })
        .collect();
    parts.iter().try_for_each(|part| load.prepare(part))?;
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

/// Threads with a directory each.
fn apart(count: usize) -> Threads {
    Threads { count, directories: count }
}

/// Through the library.
pub fn engine(load: Load, fs: &Filesystem, threads: Threads, time: Duration) -> Result<Measured> {
    let mut dirs = Vec::new();
    for index in 0..threads.directories {
        let path = format!("/dir-{index}");
        fs.create_dir_all(&path)?;
        dirs.push(fs.dir(&path)?);
    }
    timed(load, &dirs, threads.count, time)
}

/// As system calls, in directories of `path`.
fn kernel(load: Load, path: &Path, threads: usize, time: Duration) -> Result<Measured> {
    let dirs = (0..threads).map(|thread| HostDir::new(&path.join(format!("dir-{thread}"))));
    timed(load, &dirs.collect::<Result<Vec<_>, _>>()?, threads, time)
}

/// One process of its own on one image; prints its operations per second.
pub fn worker(load: Load, image: &Path, time: Duration) -> Result<()> {
    let fs = Mount::new().open(image)?;
    println!("{}", engine(load, &fs, apart(1), time)?.per_second);
    fs.unmount()?;
    Ok(())
}

/// Two processes on two images: what two threads could give if they shared nothing.
fn ceiling(load: Load, images: &[PathBuf], time: Duration) -> Result<f64> {
    let own = std::env::current_exe()?;
    let mut children = Vec::new();
    for image in images {
        let mut command = Command::new(&own);
        command
            .arg("worker")
            .arg(load.to_possible_value().ok_or("a hidden load")?.get_name())
            .arg(image)
            .arg(time.as_millis().to_string())
            .stdout(Stdio::piped());
        children.push(command.spawn()?);
    }
    let mut sum = 0.0;
    for child in children {
        let output = child.wait_with_output()?;
        sum += String::from_utf8(output.stdout)?.trim().parse::<f64>()?;
    }
    Ok(sum)
}

/// See [`crate::What::InProcess`].
pub fn compare(load: Load, rounds: usize, time: Duration, dir: &Path) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    let fs = Mount::new().open(scratch.image("engine.img")?)?;
    let images = [scratch.image("worker-0.img")?, scratch.image("worker-1.img")?];
    let mounted = KernelMount::new(&scratch.image("kernel.img")?, &scratch.path("kernel"));
    if let Err(error) = &mounted {
        println!("kernel ext4: not measured ({error})");
    }
    let tmpfs = scratch.path("tmpfs");
    std::fs::create_dir_all(&tmpfs)?;
    let is_tmpfs = rustix::fs::statfs(&tmpfs)?.f_type == TMPFS_MAGIC;
    let mut series: [Series; 6] = Default::default();
    let mut cpu: [Series; 4] = Default::default();
    for round in 0..=rounds {
        let kernel_of =
            |threads| mounted.as_ref().map_or(Ok(Measured::NONE), |m| kernel(load, m.path(), threads, time));
        let (engine1, kernel1) = (engine(load, &fs, apart(1), time)?, kernel_of(1)?);
        let (engine2, kernel2) = (engine(load, &fs, apart(2), time)?, kernel_of(2)?);
        let tmpfs1 = if is_tmpfs { kernel(load, &tmpfs, 1, time)? } else { Measured::NONE };
        let figures = [
            engine1.per_second,
            kernel1.per_second,
            engine2.per_second,
            kernel2.per_second,
            ceiling(load, &images[..1], time)?,
            ceiling(load, &images, time)?,
        ];
        // The first round warms caches.
        if round > 0 {
            series.iter_mut().zip(figures).for_each(|(series, figure)| series.push(figure));
            let figures = [engine1, engine2, kernel1, tmpfs1].map(|measured| measured.cpu_seconds);
            cpu.iter_mut().zip(figures).for_each(|(series, figure)| series.push(figure));
        }
    }
    fs.unmount()?;
    let [engine1, kernel1, engine2, kernel2, alone1, alone2] = series;
    println!("{}, {rounds} rounds of {} ms, alternating", load.title(), time.as_millis());
    let line = |series: &Series, name: &str| series.line(name, 1e3, "k/s");
    println!("{}", line(&engine1, "extant, 1 thread"));
    println!("{}", line(&engine2, "extant, 2 threads, 2 directories"));
    println!("{}", line(&alone1, "extant, 1 process on its own image"));
    println!("{}", line(&alone2, "extant, 2 processes on 2 images"));
    let scaling = engine2.over(&engine1);
    let ceiling = alone2.over(&alone1);
    if mounted.is_ok() {
        println!("{}", line(&kernel1, "kernel ext4, 1 thread"));
        println!("{}", line(&kernel2, "kernel ext4, 2 threads, 2 directories"));
        println!("{}", engine1.over(&kernel1).ratio_line("extant / kernel, 1 thread"));
        println!("{}", engine2.over(&kernel2).ratio_line("extant / kernel, 2 threads"));
        println!("{}", kernel2.over(&kernel1).ratio_line("T2/T1, kernel"));
    }
    println!("{}", scaling.ratio_line("T2/T1, extant"));
    println!("{}", ceiling.ratio_line("T2/T1, share-nothing ceiling"));
    println!("{}", scaling.over(&ceiling).ratio_line("T2/T1, extant / ceiling"));
    print_cpu(&cpu, mounted.is_ok(), is_tmpfs);
    Ok(())
}

/// CPU per operation: the engine's own, with all its I/O to the image, and the kernel's ext4 without what any file system
/// pays for system calls, for which tmpfs stands.
fn print_cpu([engine1, engine2, kernel1, tmpfs1]: &[Series; 4], has_kernel: bool, is_tmpfs: bool) {
    let line = |series: &Series, name: &str| series.line(name, 1e-6, "us");
    println!("{}", line(engine1, "CPU per operation, extant, 1 thread"));
    println!("{}", line(engine2, "CPU per operation, extant, 2 threads"));
    println!("{}", engine2.over(engine1).ratio_line("CPU per operation, 2 threads / 1, extant"));
    if has_kernel && is_tmpfs {
        println!("{}", line(kernel1, "CPU per operation, kernel ext4, 1 thread"));
        println!("{}", line(tmpfs1, "CPU per operation, tmpfs, 1 thread"));
        let own = kernel1.minus(tmpfs1);
        println!("{}", line(&own, "kernel ext4 without tmpfs's"));
        println!("{}", own.over(engine1).ratio_line("kernel ext4 without tmpfs's / extant"));
    }
}
