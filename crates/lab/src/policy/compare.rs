//! Policies on an aged disk: what searches find there, and how files and free space lie afterwards.
//!
//! Each policy ages a disk of its own by the same files, which come and go until the disk is as full as wished and its bytes
//! have come once more; then large files grow beside each other, and small ones are written, all of it on one virtual CPU. At last many
//! CPUs append at once, each in a directory of its own. A policy gives the same figures each time.
//!
//! Leaves out: other loads of many CPUs (`run --policy`). Source: Geriatrix (ATC 2018), for ageing by a distribution of
//! sizes to a fullness.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use extant::mkfs::Mkfs;
use extant::{Dir, File, Filesystem, Mount, Tuning};
use extant_block::MemoryDevice;
use extant_loads::ageing::{self, Sizes};
use extant_loads::ladder::{self, Order};
use extant_loads::layout::{self, Free};
use extant_loads::{Directory, Load};
use serde::Serialize;

use crate::machine::Model;
use crate::run::{self, Setup};

/// Files that age the disk: the size in the middle and the largest.
const MIDDLE_BYTES: u64 = 2 << 20;
const MOST_BYTES: u64 = 256 << 20;
/// Large files that grow in turns by so many bytes up to so many.
const LARGE_FILES: usize = 64;
const APPEND_BYTES: u64 = 64 << 10;
const LARGE_BYTES: u64 = 16 << 20;
/// Small files, and the bytes of each.
const SMALL_FILES: usize = 4096;
const SMALL: [u8; 16 << 10] = [7; 16 << 10];
/// Of the journal in blocks, each of which holds a changed one whatever its size, and of the cache.
const JOURNAL_BLOCKS: u32 = 16_384;
const CACHE_BYTES: u64 = 512 << 20;
/// CPUs that append at once, and how long: slow policies need about 30 us for an append.
pub const CPUS: usize = 64;
const TIME: Duration = Duration::from_millis(1);

/// The disk.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    pub gb: u64,
    /// How full files make it before what is measured, in percent.
    pub age: u64,
    pub seed: u64,
    /// KiB of a block.
    pub block_kib: u32,
}

/// What a policy makes of the disk.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub policy: String,
    /// Searches of the growing and the small files.
    pub searches: u64,
    pub blocks_per_search: f64,
    pub groups_per_search: f64,
    /// Pieces of a large file and of a small one on average, in which its blocks lie.
    pub extents_per_large_file: f64,
    pub extents_per_small_file: f64,
    /// Pieces of a file that aged the disk.
    pub extents_per_aged_file: f64,
    /// Bytes of a run of free blocks on average, once aged and at the end.
    pub free_run_bytes_aged: f64,
    pub free_run_bytes: f64,
    /// Appends of 8 KiB by fallocate, per second of each of [`CPUS`] CPUs.
    pub appends_per_second: f64,
    /// Of their searches.
    pub groups_per_search_of_appends: f64,
    /// Of their files.
    pub extents_per_mib_of_appends: f64,
}

/// Policies beside the default and the kernel's.
///
/// # Errors
/// Of a file that is no policy; of a build without forms of older kernels; the file system's.
pub fn compare(policies: &[PathBuf], disk: Disk) -> Result<Vec<Figures>, Box<dyn Error>> {
    let others = [
        ("Extant's default", Order::ListHead, "default"),
        ("Linux 6.17", Order::ListHead, "patch-17"),
        ("Linux 6.16", Order::ListHead, "base"),
        ("Linux 6.16, mb_optimize_scan=0", Order::Linear, "base"),
    ];
    let own = policies.iter().map(|policy| Ok((policy.display().to_string(), super::load(policy)?)));
    let mut all = own.collect::<Result<Vec<_>, String>>()?;
    for (name, order, key) in others {
        all.extend(ladder::step(order, key)?.map(|step| (name.to_owned(), step.tuning)));
    }
    Ok(run::side_by_side(all.len(), |index| {
        let (policy, tuning) = all[index].clone();
        let model = Rc::new(Model::load(Path::new("kunpeng920"))?);
        let appends = Setup::new(Load::Append, CPUS, tuning, TIME);
        let (figures, disk) = run::alone(&model, move || {
            let (figures, fs) = figures(policy, tuning, disk)?;
            Ok((figures, run::directories(fs, &appends)?))
        })?;
        let appends = run::run_on(disk, appends, &model)?;
        Ok(Figures {
            appends_per_second: appends.per_second,
            groups_per_search_of_appends: appends.groups_per_search,
            extents_per_mib_of_appends: appends.extents_per_mib.unwrap_or_default(),
            ..figures
        })
    })?)
}

/// All but the appends, and the disk.
fn figures(policy: String, tuning: Tuning, disk: Disk) -> Result<(Figures, Filesystem), Box<dyn Error>> {
    let device = Arc::new(MemoryDevice::new(disk.gb * 1_000_000_000 / (1 << 20) * (1 << 20)));
    let mkfs = Mkfs::new().block_size(disk.block_kib << 10);
    mkfs.uuid([1; 16]).hash_seed([2; 16]).journal_blocks(JOURNAL_BLOCKS).format(&*device)?;
    let mount = Mount::new().background(false).cache_bytes(CACHE_BYTES).tuning(tuning);
    let fs = mount.open_device(device)?;
    ageing::age(&fs, disk.seed, disk.age, Sizes { middle_bytes: MIDDLE_BYTES, most_bytes: MOST_BYTES })?;
    let extents_per_aged_file = ageing::extents_per_file(&fs)?;
    let free_run_bytes_aged = free_run_bytes(&fs)?;
    let before = fs.mballoc_statistics();
    let large = grow(&dir(&fs, "large")?)?;
    let small = write_small(&dir(&fs, "small")?)?;
    let after = fs.mballoc_statistics();
    let searches = after.requests - before.requests;
    let figures = Figures {
        policy,
        searches,
        blocks_per_search: (after.blocks - before.blocks) as f64 / searches.max(1) as f64,
        groups_per_search: run::groups_per_search(&before, &after),
        extents_per_large_file: large,
        extents_per_small_file: small,
        extents_per_aged_file,
        free_run_bytes_aged,
        free_run_bytes: free_run_bytes(&fs)?,
        appends_per_second: 0.0,
        groups_per_search_of_appends: 0.0,
        extents_per_mib_of_appends: 0.0,
    };
    Ok((figures, fs))
}

fn dir(fs: &Filesystem, path: &str) -> Result<Dir, extant::Error> {
    fs.create_dir_all(path)?;
    fs.dir(path)
}

/// Large files grow beside each other: in how many pieces each lies.
fn grow(dir: &Dir) -> Result<f64, extant::Error> {
    let names = (0..LARGE_FILES).map(|number| number.to_string());
    let files: Vec<_> = names.map(|name| Directory::create(dir, &name)).collect::<Result<_, _>>()?;
    for at in (0..LARGE_BYTES).step_by(APPEND_BYTES as usize) {
        files.iter().try_for_each(|file| Dir::allocate(file, at, APPEND_BYTES))?;
    }
    pieces(&files)
}

/// Small files are written one after the other: in how many pieces each lies.
fn write_small(dir: &Dir) -> Result<f64, extant::Error> {
    let write = |number: usize| {
        let file = Directory::create(dir, &number.to_string())?;
        Dir::write(&file, 0, &SMALL)?;
        Ok(file)
    };
    pieces(&(0..SMALL_FILES).map(write).collect::<Result<Vec<_>, extant::Error>>()?)
}

/// Pieces of a file on average.
fn pieces(files: &[File]) -> Result<f64, extant::Error> {
    let pieces: usize = files.iter().map(layout::pieces).sum::<Result<_, _>>()?;
    Ok(pieces as f64 / files.len().max(1) as f64)
}

fn free_run_bytes(fs: &Filesystem) -> Result<f64, extant::Error> {
    let Free { runs, blocks } = layout::free(fs)?;
    Ok((blocks * u64::from(fs.statistics().block_size)) as f64 / runs.max(1) as f64)
}

/// One JSON document.
///
/// # Errors
/// None that is known.
pub fn json(all: &[Figures]) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(all)? + "\n")
}

/// As a table.
pub fn table(disk: Disk, all: &[Figures]) -> String {
    let Disk { gb, age, seed, block_kib } = disk;
    let mut text = format!(
        "{LARGE_FILES} files that grow by {} KiB to {} MiB in turns, and {SMALL_FILES} of {} KiB, on a disk of {gb} GB with \
         blocks of {block_kib} KiB aged to {age} %, seed {seed}\n\n",
        APPEND_BYTES >> 10,
        LARGE_BYTES >> 20,
        SMALL.len() >> 10
    );
    text.push_str(
        "| policy | searches | blocks found by each | groups looked at | extents of a large file | of a small one | \
         of a file that aged the disk | free extent once aged, KiB | at the end | appends/s of each of 64 CPUs | groups looked at | extents per MiB |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for one in all {
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} | {:.2} | {:.1} | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} |",
            one.policy,
            one.searches,
            one.blocks_per_search,
            one.groups_per_search,
            one.extents_per_large_file,
            one.extents_per_small_file,
            one.extents_per_aged_file,
            one.free_run_bytes_aged / 1024.0,
            one.free_run_bytes / 1024.0,
            one.appends_per_second,
            one.groups_per_search_of_appends,
            one.extents_per_mib_of_appends
        );
    }
    text
}
