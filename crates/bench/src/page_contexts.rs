//! The page cache with one writeback context beside as many as there can be: loads that gain nothing from more must not lose.
//!
//! On an image by itself, or with the latencies and rates of a modelled device, in real time.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use extant::{File, Filesystem, Mount};
use extant_block::{DeviceAccess, FileDevice, Model, ModelledDevice};
use extant_loads::Random;
use extant_loads::ageing::{self, Sizes};
use extant_loads::layout;

use crate::Result;
use crate::report::Series;
use crate::scratch::Scratch;

const THREADS: u64 = 4;
const BLOCK: u64 = 4096;
const CACHE_BYTES: u64 = 64 << 20;
/// Of each thread.
const FILE_BYTES: u64 = 64 << 20;
const RANDOM_WRITES: u64 = 40_000;
const FILES: u64 = 10_000;
const MAILS: u64 = 1500;
const AGED_PERCENT: u64 = 60;
const AGED_SIZES: Sizes = Sizes { middle_bytes: 32 << 10, most_bytes: 64 << 20 };

/// On which disk threads work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    Fresh,
    /// Their files are there.
    Written,
    /// Full to [`AGED_PERCENT`] with files that came and went.
    Aged,
}

/// What each thread does in its directory; how often.
type Work = fn(&Filesystem, u64) -> Result<u64>;

const WORKS: [(&str, Disk, Work); 7] = [
    ("writes of 4 KiB at random, new", Disk::Fresh, at_random),
    ("writes of 4 KiB at random, over old", Disk::Written, at_random),
    ("writes of 1 MiB in order", Disk::Fresh, in_order),
    ("small files of 4 KiB", Disk::Fresh, small_files),
    ("mails: a file of 4 KiB, fsync, a rename", Disk::Fresh, mails),
    ("writes of 4 KiB at random, aged disk", Disk::Aged, at_random),
    ("writes of 1 MiB in order, aged disk", Disk::Aged, in_order),
];

fn file(fs: &Filesystem, thread: u64) -> Result<File> {
    Ok(fs.options().write(true).create(true).open(format!("/{thread}/file"))?)
}

fn at_random(fs: &Filesystem, thread: u64) -> Result<u64> {
    let (file, mut random) = (file(fs, thread)?, Random::new(thread));
    for _ in 0..RANDOM_WRITES {
        file.write_all_at(&[5; BLOCK as usize], random.below(FILE_BYTES / BLOCK) * BLOCK)?;
    }
    Ok(RANDOM_WRITES)
}

fn in_order(fs: &Filesystem, thread: u64) -> Result<u64> {
    let (file, piece) = (file(fs, thread)?, vec![5; 1 << 20]);
    for at in (0..4 * FILE_BYTES).step_by(piece.len()) {
        file.write_all_at(&piece, at)?;
    }
    Ok(4 * FILE_BYTES / piece.len() as u64)
}

fn small_files(fs: &Filesystem, thread: u64) -> Result<u64> {
    for index in 0..FILES {
        fs.write(format!("/{thread}/{index}"), [5; BLOCK as usize])?;
    }
    Ok(FILES)
}

fn mails(fs: &Filesystem, thread: u64) -> Result<u64> {
    for index in 0..MAILS {
        let (arriving, arrived) = (format!("/{thread}/new-{index}"), format!("/{thread}/mail-{index}"));
        let mail = fs.options().write(true).create(true).open(&arriving)?;
        mail.write_all_at(&[5; BLOCK as usize], 0)?;
        mail.sync_all()?;
        fs.rename(&arriving, &arrived)?;
    }
    Ok(MAILS)
}

/// Prints operations per second of four threads with one context and with all, in turns.
pub fn compare(rounds: usize, devices: &[String], dir: &Path) -> Result<()> {
    if devices.is_empty() {
        return compare_on(None, rounds, dir);
    }
    for device in devices {
        println!("{device}\n");
        compare_on(Some(Model::kept(device)?), rounds, dir)?;
        println!();
    }
    Ok(())
}

fn compare_on(device: Option<Model>, rounds: usize, dir: &Path) -> Result<()> {
    println!(
        "| operations/s, with the sync at the end | one context | all | ratio | extents per file: one | all |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, disk, work) in WORKS {
        let mut rates = [Series::default(), Series::default()];
        let mut extents = [Series::default(), Series::default()];
        for round in 0..2 * rounds {
            // Either is the first as often.
            let is_many = (round + round / 2) % 2;
            let (rate, per_file) = measure(dir, device, is_many == 1, disk, work)?;
            rates[is_many].push(rate);
            extents[is_many].push(per_file);
        }
        let [one, many] = &rates;
        let cells = [one.cell(1.0, 0), many.cell(1.0, 0), many.over(one).cell(1.0, 2)];
        let extents = extents.map(|extents| extents.cell(1.0, 2));
        println!("| {name} | {} | {} |", cells.join(" | "), extents.join(" | "));
    }
    Ok(())
}

/// How often in a second, and how many extents files have: 0 of loads with many small ones.
fn measure(dir: &Path, device: Option<Model>, is_many: bool, disk: Disk, work: Work) -> Result<(f64, f64)> {
    let scratch = Scratch::new(dir)?;
    // Groups of 8 MiB: eight bands, of eight ranges each.
    let image = scratch.image_with("image", &["-g", "2048"])?;
    let mount = Mount::new().page_cache_bytes(CACHE_BYTES);
    let fs = match device {
        None => mount.open(image)?,
        Some(model) => {
            let inner = FileDevice::open(image, DeviceAccess::read_write())?;
            mount.open_device(Arc::new(ModelledDevice::new(inner, model)))?
        }
    };
    let (_, contexts_max) = fs.writeback_contexts().ok_or("no page cache")?;
    fs.set_writeback_contexts(if is_many { contexts_max } else { 1 })?;
    if disk == Disk::Aged {
        ageing::age(&fs, 1, AGED_PERCENT, AGED_SIZES)?;
    }
    for thread in 0..THREADS {
        fs.create_dir(format!("/{thread}"))?;
        if disk == Disk::Written {
            in_order(&fs, thread)?;
        }
    }
    fs.sync()?;
    let start = Instant::now();
    let counts: Vec<Result<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let fs = &fs;
                scope.spawn(move || work(fs, thread))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err("a thread panicked".into()))).collect()
    });
    let count: u64 = counts.into_iter().sum::<Result<u64>>()?;
    fs.sync()?;
    let seconds = start.elapsed().as_secs_f64();
    let mut extents = 0;
    for thread in 0..THREADS {
        if let Ok(file) = fs.lookup(format!("/{thread}/file")) {
            extents += layout::pieces(&file)?;
        }
    }
    fs.unmount()?;
    Ok((count as f64 / seconds, extents as f64 / THREADS as f64))
}
