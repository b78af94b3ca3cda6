//! mdtest's load in process: empty files are created, asked for and unlinked, a phase each, by threads with a directory
//! each or with one for all; the library beside the kernel's ext4 and XFS.
//!
//! The kernel's sides get names relative to an open directory, which spares them the walk. The ceiling is one process
//! for each thread, on an image of its own.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::time::Instant;

use clap::ValueEnum;
use extant::{Dir, Filesystem, Mount, New, NewKind};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat};

use crate::Result;
use crate::kernel::KernelMount;
use crate::report::Series;
use crate::scratch::Scratch;

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
trait Names: Sync {
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

impl Names for Dir {
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

impl Names for std::fs::File {
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

/// Operations per second of all threads together, by phase.
fn phases<D: Names>(dirs: &[D], files: usize) -> Result<[f64; 3]> {
    let names: Vec<_> = (0..dirs.len()).map(|thread| names(thread, files)).collect();
    let barrier = Barrier::new(dirs.len() + 1);
    let mut rates = [0.0; 3];
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
        for rate in &mut rates {
            barrier.wait();
            let start = Instant::now();
            barrier.wait();
            *rate = (dirs.len() * files) as f64 / start.elapsed().as_secs_f64();
        }
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok(rates)
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

/// A process of the ceiling: does a phase for every line that it reads, and prints its operations per second.
pub fn worker(image: &Path, files: usize) -> Result<()> {
    let fs = Mount::new().open(image)?;
    let dirs = engine_dirs(&fs, 1, Dirs::Own)?;
    let names = names(0, files);
    for (phase, line) in (0..PHASES.len()).cycle().zip(std::io::stdin().lines()) {
        line?;
        let start = Instant::now();
        dirs[0].phase(phase, &names)?;
        println!("{}", files as f64 / start.elapsed().as_secs_f64());
    }
    drop(dirs);
    Ok(fs.unmount()?)
}

/// A process of the ceiling, from outside; ends when its input does.
struct Worker {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Worker {
    fn start(image: &Path, files: usize) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("mdtest-worker")
            .arg(image)
            .arg(files.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, said })
    }

    fn go(&mut self) -> Result<()> {
        Ok(self.child.stdin.as_mut().ok_or("no input")?.write_all(b"\n")?)
    }

    fn rate(&mut self) -> Result<f64> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line.trim().parse()?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The phases of processes that share nothing.
fn alone(workers: &mut [Worker]) -> Result<[f64; 3]> {
    let mut rates = [0.0; 3];
    for rate in &mut rates {
        workers.iter_mut().try_for_each(Worker::go)?;
        *rate = workers.iter_mut().map(Worker::rate).sum::<Result<f64>>()?;
    }
    Ok(rates)
}

/// A series for each phase.
type ByPhase = [Series; 3];

fn push(series: &mut ByPhase, rates: [f64; 3]) {
    series.iter_mut().zip(rates).for_each(|(series, rate)| series.push(rate));
}

/// See [`crate::What::Mdtest`].
pub fn compare(rounds: usize, files: usize, dir: &Path) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    let fs = Mount::new().open(scratch.image("engine.img")?)?;
    let images: [PathBuf; 2] = [scratch.image("worker-0.img")?, scratch.image("worker-1.img")?];
    let ext4 = KernelMount::new(&scratch.image("ext4.img")?, &scratch.path("ext4"))?;
    let xfs =
        scratch.xfs_image("xfs.img").and_then(|image| Ok(KernelMount::new(&image, &scratch.path("xfs"))?));
    if let Err(error) = &xfs {
        println!("kernel XFS: not measured ({error})");
    }
    // By layout: the library, ext4, XFS.
    let mut series: [[ByPhase; 3]; 3] = Default::default();
    let mut ceilings: [ByPhase; 2] = Default::default();
    for round in 0..=rounds {
        let is_warm = round > 0;
        for ((threads, dirs, _), sides) in LAYOUTS.into_iter().zip(&mut series) {
            let mut rates = vec![
                phases(&engine_dirs(&fs, threads, dirs)?, files)?,
                phases(&kernel_dirs(&ext4, threads, dirs)?, files)?,
            ];
            if let Ok(xfs) = &xfs {
                rates.push(phases(&kernel_dirs(xfs, threads, dirs)?, files)?);
            }
            if is_warm {
                sides.iter_mut().zip(rates).for_each(|(side, rates)| push(side, rates));
            }
        }
        for (threads, ceiling) in (1..).zip(&mut ceilings) {
            let workers = images[..threads].iter().map(|image| Worker::start(image, files));
            let mut workers = workers.collect::<Result<Vec<_>>>()?;
            // A first time to warm caches, as those of the others are.
            alone(&mut workers)?;
            let rates = alone(&mut workers)?;
            if is_warm {
                push(ceiling, rates);
            }
        }
    }
    fs.unmount()?;
    println!("{files} empty files per thread, {rounds} rounds, alternating");
    print(&series, &ceilings, xfs.is_ok());
    Ok(())
}

fn print(series: &[[ByPhase; 3]; 3], ceilings: &[ByPhase; 2], has_xfs: bool) {
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
    }
}
