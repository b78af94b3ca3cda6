//! mdtest's load in process: empty files are created, asked for and unlinked, a phase each, by threads with a directory
//! each or with one for all; the library beside the kernel's ext4 and XFS.
//!
//! The kernel's sides get names relative to an open directory, which spares them the walk. The ceiling is one process
//! for each thread, on an image of its own.
//!
//! Everything is synced before each phase, and that time does not count; journals have room for all. So no phase has the
//! commits and checkpoints of another, which would weigh more the more CPUs work.

use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

use clap::ValueEnum;
use extant::{Dir, Filesystem, Mount, New, NewKind};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat};

use crate::Result;
use crate::kernel::KernelMount;
use crate::load::cpu_seconds;
use crate::report::Series;
use crate::scratch::Scratch;
use crate::worker::{self, Worker};

const PHASES: [&str; 3] = ["create", "stat", "unlink"];

/// Whose directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dirs {
    Own,
    Shared,
}

/// Threads and their directories.
const LAYOUTS: [(usize, Dirs, &str); 3] = [
    (1, Dirs::Own, "1 thread"),
    (2, Dirs::Own, "2 threads, own directories"),
    (2, Dirs::Shared, "2 threads, one directory"),
];

/// A directory of either side.
trait NameOps: Sync {
    fn create(&self, name: &str) -> Result<()>;
    fn stat(&self, name: &str) -> Result<()>;
    fn unlink(&self, name: &str) -> Result<()>;

    /// One phase over all names.
    fn phase(&self, phase: usize, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| match phase {
            0 => self.create(name),
            1 => self.stat(name),
            _ => self.unlink(name),
        })
    }
}

impl NameOps for Dir {
    fn create(&self, name: &str) -> Result<()> {
        let new = New { kind: NewKind::File, mode: 0o644, uid: 0, gid: 0, times: None, xattrs: &[] };
        Dir::create(self, name.as_bytes(), &new)?;
        Ok(())
    }

    fn stat(&self, name: &str) -> Result<()> {
        std::hint::black_box(self.symlink_metadata(name.as_bytes())?);
        Ok(())
    }

    fn unlink(&self, name: &str) -> Result<()> {
        Ok(Dir::unlink(self, name.as_bytes())?)
    }
}

impl NameOps for std::fs::File {
    fn create(&self, name: &str) -> Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(self, name, flags, Mode::from_raw_mode(0o644))?;
        Ok(())
    }

    fn stat(&self, name: &str) -> Result<()> {
        std::hint::black_box(statat(self, name, AtFlags::SYMLINK_NOFOLLOW)?);
        Ok(())
    }

    fn unlink(&self, name: &str) -> Result<()> {
        Ok(unlinkat(self, name, AtFlags::empty())?)
    }
}

/// The names of a thread's files; no two threads have one in common.
fn names(thread: usize, files: usize) -> Vec<String> {
    (0..files).map(|index| format!("file.mdtest.{thread}.{index}")).collect()
}

/// By phase.
type Rates = [f64; 3];

/// Operations per second of all threads together, and seconds of this process's CPUs per operation.
fn phases<D: NameOps>(dirs: &[D], files: usize, sync: impl Fn() -> Result<()>) -> Result<(Rates, Rates)> {
    let names: Vec<_> = (0..dirs.len()).map(|thread| names(thread, files)).collect();
    let barrier = Barrier::new(dirs.len() + 1);
    let operations = (dirs.len() * files) as f64;
    let (mut rates, mut cpu) = ([0.0; 3], [0.0; 3]);
    std::thread::scope(|scope| {
        let threads: Vec<_> = dirs
            .iter()
            .zip(&names)
            .map(|(dir, names)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut done = Ok(());
                    for phase in 0..PHASES.len() {
                        barrier.wait();
                        // Who failed still meets the others.
                        done = done.and_then(|()| dir.phase(phase, names));
                        barrier.wait();
                    }
                    done
                })
            })
            .collect();
        let mut synced = Ok(());
        for (rate, cpu) in rates.iter_mut().zip(&mut cpu) {
            synced = synced.and_then(|()| sync());
            barrier.wait();
            let (start, used) = (Instant::now(), cpu_seconds());
            barrier.wait();
            *rate = operations / start.elapsed().as_secs_f64();
            *cpu = (cpu_seconds() - used) / operations;
        }
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)?;
        synced
    })?;
    Ok((rates, cpu))
}

fn engine_dirs(fs: &Filesystem, threads: usize, dirs: Dirs) -> Result<Vec<Dir>> {
    (0..threads)
        .map(|thread| {
            let path = dir_name(thread, dirs);
            fs.create_dir_all(&path)?;
            Ok(fs.dir(&path)?)
        })
        .collect()
}

fn kernel_dirs(mount: &KernelMount, threads: usize, dirs: Dirs) -> Result<Vec<std::fs::File>> {
    (0..threads)
        .map(|thread| {
            let path = mount.path().join(dir_name(thread, dirs));
            std::fs::create_dir_all(&path)?;
            Ok(std::fs::File::open(&path)?)
        })
        .collect()
}

fn dir_name(thread: usize, dirs: Dirs) -> String {
    match dirs {
        Dirs::Own => format!("own-{thread}"),
        Dirs::Shared => "shared".to_owned(),
    }
}

/// With room in memory for all files, as the kernel's sides have.
fn mount(image: &Path) -> Result<Filesystem> {
    Ok(Mount::new().cache_bytes(1 << 30).open(image)?)
}

/// A process of the ceiling: does the phase of which it reads the number, or syncs, and says so.
pub fn worker_main(image: &Path, files: usize) -> Result<()> {
    let fs = mount(image)?;
    let dirs = engine_dirs(&fs, 1, Dirs::Own)?;
    let names = names(0, files);
    for line in std::io::stdin().lines() {
        match line?.parse() {
            Ok(phase) => dirs[0].phase(phase, &names)?,
            Err(_) => fs.sync()?,
        }
        println!();
    }
    drop(dirs);
    Ok(fs.unmount()?)
}

fn start_worker(image: &Path, files: usize) -> Result<Worker> {
    let image = image.to_str().ok_or("the images' directory is not UTF-8")?;
    Worker::start(&["mdtest-worker", image, &files.to_string()])
}

/// The phases of processes that share nothing.
fn alone(workers: &mut [Worker], files: usize) -> Result<Rates> {
    let mut rates = [0.0; 3];
    for (phase, rate) in rates.iter_mut().enumerate() {
        worker::all(workers, "sync")?;
        let start = Instant::now();
        worker::all(workers, &phase.to_string())?;
        *rate = (workers.len() * files) as f64 / start.elapsed().as_secs_f64();
    }
    Ok(rates)
}

/// A series for each phase.
type ByPhase = [Series; 3];

fn push(series: &mut ByPhase, rates: Rates) {
    series.iter_mut().zip(rates).for_each(|(series, rate)| series.push(rate));
}

/// See [`crate::What::Mdtest`].
pub fn compare(rounds: usize, files: usize, dir: &Path) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    let fs = mount(&scratch.journalled_image("engine.img")?)?;
    let mut workers = Vec::new();
    for name in ["worker-0.img", "worker-1.img"] {
        workers.push(start_worker(&scratch.journalled_image(name)?, files)?);
    }
    let ext4 = KernelMount::new(&scratch.journalled_image("ext4.img")?, &scratch.path("ext4"))?;
    let xfs =
        scratch.xfs_image("xfs.img").and_then(|image| Ok(KernelMount::new(&image, &scratch.path("xfs"))?));
    if let Err(error) = &xfs {
        println!("kernel XFS: not measured ({error})");
    }
    // By layout: the library, ext4, XFS.
    let mut series: [[ByPhase; 3]; 3] = Default::default();
    let mut cpu: [ByPhase; 3] = Default::default();
    let mut ceilings: [ByPhase; 2] = Default::default();
    for round in 0..=rounds {
        let is_warm = round > 0;
        for (((threads, dirs, _), sides), cpu) in LAYOUTS.into_iter().zip(&mut series).zip(&mut cpu) {
            let (engine, used) = phases(&engine_dirs(&fs, threads, dirs)?, files, || Ok(fs.sync()?))?;
            let kernel = |mount: &KernelMount| -> Result<Rates> {
                Ok(phases(&kernel_dirs(mount, threads, dirs)?, files, || Ok(mount.sync()?))?.0)
            };
            let rates = [engine, kernel(&ext4)?, xfs.as_ref().map_or(Ok([0.0; 3]), kernel)?];
            if is_warm {
                sides.iter_mut().zip(rates).for_each(|(side, rates)| push(side, rates));
                push(cpu, used);
            }
        }
        for (threads, ceiling) in (1..).zip(&mut ceilings) {
            let rates = alone(&mut workers[..threads], files)?;
            if is_warm {
                push(ceiling, rates);
            }
        }
    }
    fs.unmount()?;
    println!("{files} empty files per thread, {rounds} rounds, alternating");
    print(&series, &cpu, &ceilings, xfs.is_ok());
    Ok(())
}

fn print(series: &[[ByPhase; 3]; 3], cpu: &[ByPhase; 3], ceilings: &[ByPhase; 2], has_xfs: bool) {
    for (phase, name) in PHASES.iter().enumerate() {
        println!("{name}");
        for ((_, _, layout), [extant, ext4, xfs]) in LAYOUTS.iter().zip(series) {
            let line = |who: &str, side: &ByPhase| side[phase].line(&format!("{who}, {layout}"), 1e3, "k/s");
            println!("  {}", line("extant", extant));
            println!("  {}", line("kernel ext4", ext4));
            println!("  {}", extant[phase].over(&ext4[phase]).ratio_line("extant / kernel ext4"));
            if has_xfs {
                println!("  {}", line("kernel XFS", xfs));
                println!("  {}", extant[phase].over(&xfs[phase]).ratio_line("extant / kernel XFS"));
            }
        }
        let scaling = series[1][0][phase].over(&series[0][0][phase]);
        let ceiling = ceilings[1][phase].over(&ceilings[0][phase]);
        println!("  {}", scaling.ratio_line("T2/T1, own directories"));
        println!("  {}", ceiling.ratio_line("T2/T1, share-nothing ceiling"));
        println!("  {}", scaling.over(&ceiling).ratio_line("T2/T1, extant / ceiling"));
        println!("  {}", cpu[0][phase].line("CPU per operation, 1 thread", 1e-6, "us"));
        println!(
            "  {}",
            cpu[1][phase].over(&cpu[0][phase]).ratio_line("CPU per operation, 2 threads, own / 1")
        );
    }
}
