//! The four loads by which the kernel's tree of preallocations was judged, scaled to the machine: the tree beside the
//! list that it took the place of, none, and the kernel's ext4, without and with delayed allocation.
//!
//! Every load ends with a sync, whose time counts. A figure is made on a file system of its own.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use extant::{Filesystem, Mount, PreallocStatistics, Tuning};

use crate::Result;
use crate::kernel::KernelMount;
use crate::report::Series;
use crate::scratch::Scratch;
use extant_loads::{BURST_BYTES, Random, SEQUENTIAL, SMALL_BYTES, SPARSE_STEP_BYTES, ladder};

const THREADS: usize = 64;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    SparseWrites,
    RandomFill,
    RandomFillBySequences,
    SmallFiles,
}

const LOADS: [(Load, &str); 4] = [
    (Load::SparseWrites, "sparse writes of 1 KiB"),
    (Load::RandomFill, "random filling by 1 KiB"),
    (Load::RandomFillBySequences, "random filling by 4 times 1 KiB"),
    (Load::SmallFiles, "files of 2 KiB, 64 threads"),
];

/// How preallocations are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Off,
    List,
    Tree,
}

impl Form {
    fn tuning(self) -> Result<Tuning> {
        Ok(match self {
            Self::Off => Tuning { preallocation: false, ..Tuning::default() },
            Self::List => ladder::with_preallocation_list(Tuning::default())?,
            Self::Tree => Tuning::default(),
        })
    }
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// With so many bytes of page cache; without, blocks are allocated at once.
    Extant(Form, u64),
    /// With further mount options.
    Kernel(&'static str),
}

const PAGE_CACHE_BYTES: u64 = 1 << 30;

const SIDES: [(Side, &str); 7] = [
    (Side::Extant(Form::Tree, 0), "extant, tree"),
    (Side::Extant(Form::List, 0), "extant, list"),
    (Side::Extant(Form::Off, 0), "extant, none"),
    (Side::Kernel("nodelalloc"), "kernel ext4, nodelalloc"),
    (Side::Extant(Form::Tree, PAGE_CACHE_BYTES), "extant, tree, delayed"),
    (Side::Extant(Form::List, PAGE_CACHE_BYTES), "extant, list, delayed"),
    (Side::Kernel("delalloc"), "kernel ext4, delalloc"),
];

/// Sides over others.
const RATIOS: [(usize, usize); 5] = [(0, 1), (0, 2), (0, 3), (4, 5), (4, 6)];

/// A mounted disk of either kind.
trait Disk: Sync {
    type File;

    fn create(&self, name: &str) -> Result<Self::File>;
    fn write(&self, file: &Self::File, at: u64, bytes: &[u8]) -> Result<()>;
    fn sync(&self) -> Result<()>;
}

impl Disk for Filesystem {
    type File = extant::File;

    fn create(&self, name: &str) -> Result<Self::File> {
        Ok(self.options().write(true).create_new(true).open(name)?)
    }

    fn write(&self, file: &Self::File, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(file.write_all_at(bytes, at)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(Self::sync(self)?)
    }
}

impl Disk for KernelMount {
    type File = std::fs::File;

    fn create(&self, name: &str) -> Result<Self::File> {
        Ok(std::fs::File::create_new(self.path().join(name))?)
    }

    fn write(&self, file: &Self::File, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(file.write_all_at(bytes, at)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(Self::sync(self)?)
    }
}

impl Load {
    /// Does it `count` times, with a sync behind: how many times per second.
    fn run<D: Disk>(self, disk: &D, count: u64) -> Result<f64> {
        let bytes = [7; SMALL_BYTES as usize];
        let burst = &bytes[..BURST_BYTES as usize];
        let offsets = self.offsets(count);
        let start = Instant::now();
        // The one file stays open until all is written back, as fio, which was used then, keeps it.
        let file;
        if self == Self::SmallFiles {
            small_files(disk, count, &bytes)?;
        } else {
            file = disk.create("file")?;
            for at in offsets {
                disk.write(&file, at, burst)?;
            }
        }
        disk.sync()?;
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }

    /// Where the writes go.
    fn offsets(self, count: u64) -> Vec<u64> {
        let in_a_row = match self {
            Self::SmallFiles => return Vec::new(),
            Self::SparseWrites => return (0..count).map(|index| index * SPARSE_STEP_BYTES).collect(),
            Self::RandomFill => 1,
            Self::RandomFillBySequences => SEQUENTIAL,
        };
        let mut places: Vec<u64> = (0..count / in_a_row).collect();
        Random::new(1).shuffle(&mut places);
        let writes = |place| (0..in_a_row).map(move |index| (place * in_a_row + index) * BURST_BYTES);
        places.into_iter().flat_map(writes).collect()
    }
}

fn small_files<D: Disk>(disk: &D, count: u64, bytes: &[u8]) -> Result<()> {
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let failed = &failed;
            scope.spawn(move || {
                for index in (thread as u64..count).step_by(THREADS) {
                    let written =
                        disk.create(&format!("small-{index}")).and_then(|file| disk.write(&file, 0, bytes));
                    if let Err(error) = written {
                        eprintln!("extant-bench: {error}");
                        failed.store(true, Ordering::Relaxed);
                        break;
                    }
                }
            });
        }
    });
    if failed.into_inner() { Err("a thread failed".into()) } else { Ok(()) }
}

/// How many times per second, and for the library what look-ups did until the end.
fn measure(
    side: Side,
    load: Load,
    scratch: &Scratch,
    count: u64,
) -> Result<(f64, Option<PreallocStatistics>)> {
    let image = match load {
        // With room for all preallocations, and not so full that none are made.
        Load::SparseWrites => scratch.sparse_image("disk.img", count * SPARSE_STEP_BYTES * 3 / 2)?,
        _ => scratch.image("disk.img")?,
    };
    match side {
        Side::Extant(form, page_cache_bytes) => {
            let fs = Mount::new().tuning(form.tuning()?).page_cache_bytes(page_cache_bytes).open(&image)?;
            let rate = load.run(&fs, count)?;
            let statistics = fs.prealloc_statistics();
            fs.unmount()?;
            Ok((rate, Some(statistics)))
        }
        Side::Kernel(options) => {
            let mount = KernelMount::with_options(&image, &scratch.path("kernel"), options)?;
            let rate = load.run(&mount, count)?;
            mount.unmount()?;
            Ok((rate, None))
        }
    }
}

/// See [`crate::What::Preallocations`].
pub fn compare(rounds: usize, count: u64, dir: &Path) -> Result<()> {
    // Before anything is measured.
    Form::List.tuning()?;
    let scratch = Scratch::new(dir)?;
    let mut series: [[Series; SIDES.len()]; LOADS.len()] = Default::default();
    let mut lookups: [[_; SIDES.len()]; LOADS.len()] = Default::default();
    let mut random = Random::new(1);
    for _ in 0..rounds {
        for (((load, _), series), lookups) in LOADS.into_iter().zip(&mut series).zip(&mut lookups) {
            // In no order, for whoever comes after the kernel has its last writes beside it.
            let mut order: Vec<usize> = (0..SIDES.len()).collect();
            random.shuffle(&mut order);
            for side in order {
                let rate;
                (rate, lookups[side]) = measure(SIDES[side].0, load, &scratch, count)?;
                series[side].push(rate);
            }
        }
    }
    println!("{count} operations with a sync behind, {rounds} rounds, each in an order of its own");
    for (((_, name), sides), lookups) in LOADS.into_iter().zip(&series).zip(&lookups) {
        println!("{name}");
        for ((_, side), series) in SIDES.into_iter().zip(sides) {
            println!("  {}", series.line(side, 1e3, "k/s"));
        }
        for ((_, side), lookups) in SIDES.into_iter().zip(lookups) {
            if let Some(PreallocStatistics { lookups, visits, .. }) = lookups.filter(|s| s.lookups > 0) {
                let each = visits as f64 / lookups as f64;
                println!("  {side}: {lookups} look-ups, {each:.1} ranges visited by each");
            }
        }
        for (side, other) in RATIOS {
            let name = format!("{} / {}", SIDES[side].1, SIDES[other].1);
            println!("  {}", sides[side].over(&sides[other]).ratio_line(&name));
        }
    }
    Ok(())
}
