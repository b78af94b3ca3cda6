//! A load from its first step to the end of a sync, as jobs of fio and fs_mark do one: the figure is of the whole.
//!
//! It is the engine with its allocator, journal and, if it gets memory, page cache. The device takes no time. What a look at a
//! preallocation takes beside its lock is charged at the end, for no lock or atomic stands for it; whoever looks is who is waited for.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use extant::mkfs::Mkfs;
use extant::{Dir, Filesystem, Mount, Tuning};
use extant_loads::{Load, Part, Runner, Step};
use extant_rt::{Monotonic, parallel, work};

use crate::machine::Model;
use crate::published::{Row, Simulated, ToSync};
use crate::run::on_each;
use crate::writeback::disk::FoldedDevice;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    load: Load,
    /// Each in a directory of its own.
    threads: usize,
    tuning: Tuning,
    disk_bytes: u64,
    job: ToSync,
}

impl Setup {
    /// The run of a row.
    ///
    /// # Errors
    /// If the built-in data are not as they should be.
    pub fn of(how: &Simulated, job: ToSync, row: &Row) -> Result<Self, String> {
        Ok(Self {
            load: how.load()?,
            threads: row.cpus,
            tuning: how.tuning(row)?,
            disk_bytes: how.disk_bytes(),
            job,
        })
    }

    fn part<'a>(&self, dirs: &'a [Dir], thread: usize) -> Part<'a, Dir> {
        Part {
            dir: &dirs[thread],
            shared: &dirs[thread],
            threads: self.threads,
            thread,
            steps_max: self.job.steps,
        }
    }
}

/// A thread that computes beside what the engine does.
struct Computing {
    load: Load,
    step_ns: u64,
}

impl Runner for Computing {
    fn did(&mut self, step: Step) {
        if self.load.counts(step) {
            work(Duration::from_nanos(self.step_ns));
        }
    }

    fn goes_on(&mut self) -> bool {
        true
    }
}

/// Runs it: steps per second of all threads.
///
/// # Errors
/// The file system's.
pub fn run(setup: &Setup, model: &Model) -> Result<f64, Box<dyn Error>> {
    let (setup, visit_ns) = (*setup, model.visit_ns);
    let (results, _) = on_each(model, setup.threads, move |cpu| match cpu {
        0 => simulate(&setup, visit_ns).map(Some),
        // They say how many CPUs there are.
        _ => Ok(None),
    })?;
    results.into_iter().flatten().next().ok_or("a simulation ended early".into())
}

fn mounted(setup: &Setup) -> Result<(Filesystem, Vec<Dir>), Box<dyn Error>> {
    let device = FoldedDevice::new(setup.disk_bytes);
    Mkfs::new()
        .uuid([1; 16])
        .hash_seed([2; 16])
        .extended("lazy_itable_init=0,lazy_journal_init=1")?
        .format(&device)?;
    let fs = Mount::new()
        .tuning(setup.tuning)
        .page_cache_bytes(setup.job.page_cache_mib << 20)
        .open_device(Arc::new(device))?;
    let mut dirs = Vec::new();
    for number in 0..setup.threads {
        let path = format!("/thread-{number}");
        fs.create_dir(&path)?;
        dirs.push(fs.dir(&path)?);
    }
    Ok((fs, dirs))
}

fn simulate(setup: &Setup, visit_ns: u64) -> Result<f64, Box<dyn Error>> {
    let (fs, dirs) = mounted(setup)?;
    let Setup { load, threads, job, .. } = *setup;
    for thread in 0..threads {
        load.prepare(&setup.part(&dirs, thread))?;
    }
    fs.sync()?;
    // Who has a file open keeps what was taken ahead for it; a load of many files has none of that name.
    let kept: Vec<_> = dirs
        .iter()
        .enumerate()
        .map(|(thread, dir)| dir.lookup(setup.part(&dirs, thread).file().as_bytes()))
        .collect();
    let (begun, looked) = (Monotonic::now(), fs.prealloc_statistics().visits);
    let done = parallel(threads, |thread| {
        load.run(&setup.part(&dirs, thread), &mut Computing { load, step_ns: job.step_ns })
    });
    done.into_iter().collect::<Result<(), _>>()?;
    fs.sync()?;
    let visits = fs.prealloc_statistics().visits - looked;
    work(Duration::from_nanos(visits * visit_ns / threads as u64));
    let seconds = begun.elapsed().as_secs_f64();
    drop((kept, dirs));
    fs.unmount()?;
    Ok((threads as u64 * job.steps) as f64 / seconds)
}
