//! Large files through the page cache onto modelled devices, by the number of writeback contexts.
//!
//! It is the engine with its cache, contexts, allocator and journal. Modelled are the device, what a copy into memory costs,
//! and what a flusher computes for each block that it writes. Every thread has a CPU of its own: as many as there are writers
//! and contexts.

pub mod disk;

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;

use extant::mkfs::Mkfs;
use extant::{Filesystem, Mount};
use extant_block::{Model as DeviceModel, ModelledDevice};
use extant_loads::Random;
use extant_rt::{Monotonic, parallel};

use self::disk::{FoldedDevice, WorkedDevice};
use crate::machine::Model;
use crate::run::on_each;

/// What a writer writes at once.
const PIECE_BYTES: u64 = 1 << 20;
/// What it writes at once at random.
const BLOCK_BYTES: u64 = 4096;
/// Bytes of a group.
const GROUP_BYTES: u64 = 128 << 20;
/// Groups of a band on disks that are not larger than 64 of these.
const BAND_GROUPS: u64 = 64;
/// What Extant's flusher computes for a block beside locks and lines, as `extant-bench page-work` measures it.
pub const OWN_WORK_NS: u64 = 10;

/// What is run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// A kept device.
    pub device: String,
    pub contexts: usize,
    /// Each writes a file in a directory of its own.
    pub writers: usize,
    pub file_mib: u64,
    /// Of the disk: contexts that are no more have whole ones.
    pub bands: u64,
    /// Of the page cache.
    pub cache_mib: u64,
    /// Of a flusher for each block.
    pub work_ns: u64,
    /// Blocks of 4 KiB in random order instead of pieces of 1 MiB in order.
    pub random: bool,
}

/// What a run showed.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub contexts: usize,
    /// From the first byte to the end of a sync.
    pub bytes_per_s: f64,
    /// What the device gives all writes together.
    pub device_bytes_per_s: f64,
    pub extents_per_file: f64,
}

impl Run {
    /// From the first byte to the end of a sync.
    pub fn mib_per_s(&self) -> f64 {
        self.bytes_per_s / f64::from(1 << 20)
    }
}

/// Runs it.
///
/// # Errors
/// The file system's; or a device that is not kept.
pub fn run(setup: &Setup, model: &Model) -> Result<Run, Box<dyn Error>> {
    let device_model = DeviceModel::kept(&setup.device)?;
    let own = setup.clone();
    let (results, _) = on_each(model, setup.writers, move |cpu| match cpu {
        0 => simulate(&own, device_model).map(Some),
        // They say how many CPUs there are.
        _ => Ok(None),
    })?;
    results.into_iter().flatten().next().ok_or("a simulation ended early".into())
}

fn mounted(setup: &Setup, device_model: DeviceModel) -> Result<Filesystem, Box<dyn Error>> {
    let folded = FoldedDevice::new(setup.bands * BAND_GROUPS * GROUP_BYTES);
    Mkfs::new()
        .uuid([1; 16])
        .hash_seed([2; 16])
        .extended("lazy_itable_init=0,lazy_journal_init=1")?
        .format(&folded)?;
    let device = ModelledDevice::new(folded, device_model);
    let device = Arc::new(WorkedDevice { inner: device, work_ns_per_block: setup.work_ns });
    let fs =
        Mount::new().page_cache_bytes(setup.cache_mib << 20).cache_bytes(64 << 20).open_device(device)?;
    fs.set_writeback_contexts(setup.contexts)?;
    Ok(fs)
}

fn simulate(setup: &Setup, device_model: DeviceModel) -> Result<Run, Box<dyn Error>> {
    let fs = mounted(setup, device_model)?;
    let mut files = Vec::new();
    for writer in 0..setup.writers {
        fs.create_dir(format!("/dir-{writer}"))?;
        files.push(fs.options().write(true).create(true).open(format!("/dir-{writer}/file"))?);
    }
    fs.sync()?;
    let file_bytes = setup.file_mib << 20;
    let content = vec![7; if setup.random { BLOCK_BYTES } else { PIECE_BYTES } as usize];
    let places = |writer: usize| {
        let mut places: Vec<u64> = (0..file_bytes).step_by(content.len()).collect();
        if setup.random {
            Random::new(writer as u64).shuffle(&mut places);
        }
        places
    };
    let begun = Monotonic::now();
    let written = parallel(setup.writers, |writer| {
        places(writer).into_iter().try_for_each(|at| files[writer].write_all_at(&content, at))
    });
    written.into_iter().collect::<Result<(), _>>()?;
    fs.sync()?;
    let seconds = begun.elapsed().as_secs_f64();
    let mut extents = 0;
    for file in &files {
        extents += file.extents(0, file_bytes)?.len();
    }
    drop(files);
    fs.unmount()?;
    Ok(Run {
        contexts: setup.contexts,
        bytes_per_s: (setup.writers as u64 * file_bytes) as f64 / seconds,
        device_bytes_per_s: device_model.write_bytes_per_s as f64,
        extents_per_file: extents as f64 / setup.writers as f64,
    })
}

/// A table, with the first run as the base.
pub fn table(setup: &Setup, runs: &[Run]) -> String {
    let Setup { device, writers, file_mib, work_ns, .. } = setup;
    let order = if setup.random { "by 4 KiB at random" } else { "in order" };
    let mut text = format!(
        "{device}, {writers} files of {file_mib} MiB {order}, {work_ns} ns of work for a block, simulated\n\n"
    );
    text.push_str(
        "| contexts | MiB/s | of the first | of the device | extents per file |\n|--:|--:|--:|--:|--:|\n",
    );
    let Some(first) = runs.first() else { return text };
    for run in runs {
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.2} | {:.1} % | {:.2} |",
            run.contexts,
            run.mib_per_s(),
            run.bytes_per_s / first.bytes_per_s,
            100.0 * run.bytes_per_s / run.device_bytes_per_s,
            run.extents_per_file,
        );
    }
    text.push('\n');
    text
}
