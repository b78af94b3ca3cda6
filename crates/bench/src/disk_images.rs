//! A qcow2 image beside a raw one: requests to the devices, and files through the engine, in turns.

use std::path::Path;
use std::time::Instant;

use extant::Mount;
use extant::mkfs::Mkfs;
use extant_block::{BlockDevice, Create, DeviceAccess, FileDevice};
use extant_loads::Random;
use std::sync::Arc;

use crate::Result;
use crate::report::Series;
use crate::scratch::Scratch;

const DISK_BYTES: u64 = 1 << 30;
const BLOCK: u64 = 4096;
/// How much is read and written at once in order.
const PIECE_BYTES: u64 = 1 << 20;
const RANDOM_REQUESTS: u64 = 60_000;
const FILES: u64 = 10_000;

/// What is measured: its name, whether the disk was written before, and what it does, giving how often.
type Work = (&'static str, bool, fn(&Arc<dyn BlockDevice>) -> Result<u64>);

const WORKS: [Work; 7] = [
    ("1 MiB written in order, new", false, write_in_order),
    ("1 MiB written in order, over old", true, write_in_order),
    ("1 MiB read in order", true, read_in_order),
    ("4 KiB written at random, new", false, write_at_random),
    ("4 KiB written at random, over old", true, write_at_random),
    ("4 KiB read at random", true, read_at_random),
    ("files of 4 KiB through the engine", false, write_files),
];

fn write_in_order(device: &Arc<dyn BlockDevice>) -> Result<u64> {
    let piece = vec![5; PIECE_BYTES as usize];
    for at in (0..DISK_BYTES).step_by(PIECE_BYTES as usize) {
        device.write_at(at, &piece)?;
    }
    device.flush()?;
    Ok(DISK_BYTES / PIECE_BYTES)
}

fn read_in_order(device: &Arc<dyn BlockDevice>) -> Result<u64> {
    let mut piece = vec![0; PIECE_BYTES as usize];
    for at in (0..DISK_BYTES).step_by(PIECE_BYTES as usize) {
        device.read_at(at, &mut piece)?;
    }
    Ok(DISK_BYTES / PIECE_BYTES)
}

fn write_at_random(device: &Arc<dyn BlockDevice>) -> Result<u64> {
    let mut random = Random::new(1);
    for _ in 0..RANDOM_REQUESTS {
        device.write_at(random.below(DISK_BYTES / BLOCK) * BLOCK, &[6; BLOCK as usize])?;
    }
    device.flush()?;
    Ok(RANDOM_REQUESTS)
}

fn read_at_random(device: &Arc<dyn BlockDevice>) -> Result<u64> {
    let mut random = Random::new(1);
    let mut block = [0; BLOCK as usize];
    for _ in 0..RANDOM_REQUESTS {
        device.read_at(random.below(DISK_BYTES / BLOCK) * BLOCK, &mut block)?;
    }
    Ok(RANDOM_REQUESTS)
}

fn write_files(device: &Arc<dyn BlockDevice>) -> Result<u64> {
    Mkfs::new().format(&**device)?;
    let fs = Mount::new().open_device(device.clone())?;
    for directory in 0..FILES / 1000 {
        fs.create_dir(format!("/{directory}"))?;
    }
    for file in 0..FILES {
        fs.write(format!("/{}/{file}", file / 1000), [5; BLOCK as usize])?;
    }
    fs.unmount()?;
    Ok(FILES)
}

/// Prints requests per second of each work on a raw image and on one of qcow2.
pub fn compare(rounds: usize, dir: &Path) -> Result<()> {
    println!("| per second | raw | qcow2 | qcow2 / raw |");
    println!("|---|--:|--:|--:|");
    for (name, is_old, work) in WORKS {
        let mut rates = [Series::default(), Series::default()];
        for round in 0..2 * rounds {
            let side = round % 2;
            rates[side].push(rate(dir, side == 1, is_old, work)?);
        }
        let [raw, qcow2] = &rates;
        println!(
            "| {name} | {} | {} | {} |",
            raw.cell(1.0, 0),
            qcow2.cell(1.0, 0),
            qcow2.over(raw).cell(1.0, 2)
        );
    }
    Ok(())
}

fn rate(
    dir: &Path,
    is_qcow2: bool,
    is_old: bool,
    work: fn(&Arc<dyn BlockDevice>) -> Result<u64>,
) -> Result<f64> {
    let scratch = Scratch::new(dir)?;
    let path = scratch.path("image");
    let access = DeviceAccess { create: Create::New, ..DeviceAccess::read_write() };
    let mut file = FileDevice::open(&path, access)?;
    let device = if is_qcow2 {
        extant_diskimage::create_qcow2(&file, DISK_BYTES)?;
        extant_diskimage::open(&path, Arc::new(file), &[])?.device
    } else {
        file.set_len(DISK_BYTES)?;
        Arc::new(file)
    };
    if is_old {
        write_in_order(&device)?;
    }
    let start = Instant::now();
    let count = work(&device)?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
