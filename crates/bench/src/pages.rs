//! The page cache: small files, writes in order and at random with and without it, each with the `sync` at its end, on an image or with a
//! latency of each request; and the memory that a large file takes.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use extant::mkfs::Mkfs;
use extant::{Filesystem, Mount};
use extant_block::{BlockDevice, DeviceAccess, FileDevice, MemoryDevice, Model, ModelledDevice};

use crate::Result;
use crate::report::Series;
use crate::scratch::Scratch;
use extant_loads::Random;

const BLOCK: u64 = 4096;
const CACHE_BYTES: u64 = 256 << 20;
const FILE_BYTES: u64 = 256 << 20;
const FILES: u64 = 20_000;
const DIRECTORIES: u64 = 16;
const RANDOM_WRITES: u64 = 60_000;
/// How much of the large file is written and read at once.
const PIECE_BYTES: u64 = 128 << 10;

/// What is measured: its name, and what it does on a fresh disk, giving how often.
type Work = (&'static str, fn(&Filesystem) -> Result<u64>);

const WORKS: [Work; 4] = [
    ("small files of 4 KiB", small_files),
    ("writes of 4 KiB in order", in_order),
    ("writes of 4 KiB at random, new", at_random),
    ("writes of 4 KiB at random, over old", over_old),
];

fn small_files(fs: &Filesystem) -> Result<u64> {
    for directory in 0..DIRECTORIES {
        fs.create_dir(format!("/{directory}"))?;
    }
    let content = [5; BLOCK as usize];
    for file in 0..FILES {
        fs.write(format!("/{}/{file}", file % DIRECTORIES), content)?;
    }
    Ok(FILES)
}

fn in_order(fs: &Filesystem) -> Result<u64> {
    let file = fs.options().write(true).create(true).open("/file")?;
    for at in (0..FILE_BYTES).step_by(BLOCK as usize) {
        file.write_all_at(&[5; BLOCK as usize], at)?;
    }
    Ok(FILE_BYTES / BLOCK)
}

fn at_random(fs: &Filesystem) -> Result<u64> {
    let file = fs.options().write(true).create(true).open("/file")?;
    let mut random = Random::new(1);
    for _ in 0..RANDOM_WRITES {
        file.write_all_at(&[5; BLOCK as usize], random.below(FILE_BYTES / BLOCK) * BLOCK)?;
    }
    Ok(RANDOM_WRITES)
}

fn over_old(fs: &Filesystem) -> Result<u64> {
    at_random(fs)
}

/// Prints operations per second of each work without and with a page cache, in turns; each request to the device takes at least
/// `latency_us` microseconds.
pub fn compare(rounds: usize, latency_us: u64, dir: &Path) -> Result<()> {
    println!("| operations/s, with the sync at the end | without | with {} MiB | |", CACHE_BYTES >> 20);
    println!("|---|---|---|---|");
    for (name, work) in WORKS {
        let mut rates = [Series::default(), Series::default()];
        for round in 0..2 * rounds {
            let bytes = if round % 2 == 0 { 0 } else { CACHE_BYTES };
            rates[round % 2].push(rate(dir, latency_us, bytes, name, work)?);
        }
        let [without, with] = &rates;
        let ratio = with.over(without);
        println!("| {name} | {} | {} | {} |", without.cell(1.0, 0), with.cell(1.0, 0), ratio.cell(1.0, 2));
    }
    Ok(())
}

fn rate(
    dir: &Path,
    latency_us: u64,
    cache_bytes: u64,
    name: &str,
    work: fn(&Filesystem) -> Result<u64>,
) -> Result<f64> {
    let scratch = Scratch::new(dir)?;
    let device = FileDevice::open(&scratch.image("image")?, DeviceAccess::read_write())?;
    let mount = Mount::new().page_cache_bytes(cache_bytes);
    let fs = match latency_us * 1000 {
        0 => mount.open_device(Arc::new(device))?,
        // Otherwise as fast as memory, sixteen requests at a time.
        latency => {
            let memory = Model::kept("pmem")?;
            let model =
                Model { queue_depth: 16, read_latency_ns: latency, write_latency_ns: latency, ..memory };
            mount.open_device(Arc::new(ModelledDevice::new(device, model)))?
        }
    };
    if name.ends_with("old") {
        in_order(&fs)?;
        fs.sync()?;
    }
    let start = Instant::now();
    let count = work(&fs)?;
    fs.sync()?;
    let seconds = start.elapsed().as_secs_f64();
    fs.unmount()?;
    Ok(count as f64 / seconds)
}

/// Takes large writes and forgets them, so that only who writes takes time.
struct Forgetful(MemoryDevice);

impl BlockDevice for Forgetful {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: usize = bufs.iter().map(|buf| buf.len()).sum();
        if bytes >= 1 << 20 { Ok(()) } else { self.0.write_vectored_at(offset, bufs) }
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.discard(offset, bytes)
    }
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.write_zeroes(offset, bytes)
    }
}

/// Prints what one thread computes for each block of a file that it writes into memory, and that it writes back, beside a
/// device that takes no time.
pub fn work(rounds: usize) -> Result<()> {
    let (mut into, mut back) = (Series::default(), Series::default());
    let piece = vec![5; 1 << 20];
    for _ in 0..rounds {
        let device = Forgetful(MemoryDevice::new(4 << 30));
        Mkfs::new().format(&device)?;
        let fs =
            Mount::new().background(false).page_cache_bytes(4 * FILE_BYTES).open_device(Arc::new(device))?;
        let file = fs.options().write(true).create(true).open("/file")?;
        let blocks = (FILE_BYTES / BLOCK) as f64;
        let start = Instant::now();
        for at in (0..FILE_BYTES).step_by(piece.len()) {
            file.write_all_at(&piece, at)?;
        }
        into.push(start.elapsed().as_nanos() as f64 / blocks);
        let start = Instant::now();
        fs.sync()?;
        back.push(start.elapsed().as_nanos() as f64 / blocks);
    }
    println!(
        "ns for a block of 4 KiB: into memory {}, back to the disk {}",
        into.cell(1.0, 0),
        back.cell(1.0, 0)
    );
    Ok(())
}

/// Writes and reads a file of `gib` GiB through a page cache of `limit_mib` MiB, and prints the most memory that the process
/// had resident.
///
/// # Errors
/// If that is more than 1.2 times the limit and 64 MiB.
pub fn memory(gib: u64, limit_mib: u64, dir: &Path) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    let image = scratch.sparse_image("image", (gib + 1) << 30)?;
    let fs = Mount::new().page_cache_bytes(limit_mib << 20).open(&image)?;
    let file = fs.options().read(true).write(true).create(true).open("/file")?;
    let mut piece = vec![0; PIECE_BYTES as usize];
    let start = Instant::now();
    for at in (0..gib << 30).step_by(PIECE_BYTES as usize) {
        piece.fill((at / PIECE_BYTES) as u8);
        file.write_all_at(&piece, at)?;
    }
    fs.sync()?;
    let written = (start.elapsed().as_secs_f64(), resident_max_kib()?);
    for at in (0..gib << 30).step_by(PIECE_BYTES as usize) {
        file.read_at(&mut piece, at)?;
        if piece.iter().any(|byte| *byte != (at / PIECE_BYTES) as u8) {
            return Err(format!("other bytes at {at}").into());
        }
    }
    let most_kib = resident_max_kib()?;
    let allowed_kib = limit_mib * 1024 * 12 / 10 + (64 << 10);
    println!(
        "{gib} GiB through {limit_mib} MiB: written in {:.1} s; resident {} MiB after writing, {} MiB after reading, allowed {} MiB",
        written.0,
        written.1 >> 10,
        most_kib >> 10,
        allowed_kib >> 10
    );
    drop(file);
    fs.unmount()?;
    if most_kib > allowed_kib { Err("more memory than allowed".into()) } else { Ok(()) }
}

/// Makes as many empty files as there are inodes, on a disk whose log of `log_mib` MiB has room for all that they change, with a sync after
/// each 20,000, and prints the most memory that the process had resident. Its cache is of `cache_mib` MiB.
///
/// # Errors
/// If that is more than the cache, the half of it that committed blocks may take besides, and 64 MiB.
pub fn log_memory(log_mib: u64, cache_mib: u64, dir: &Path) -> Result<()> {
    const INODES: u64 = 2_000_000;
    const FILES_PER_DIRECTORY: u64 = 5000;
    let scratch = Scratch::new(dir)?;
    let image =
        scratch.image_with("image", &["-J", &format!("size={log_mib}"), "-N", &INODES.to_string()])?;
    let before_kib = resident_max_kib()?;
    let fs = Mount::new().cache_bytes(cache_mib << 20).open(&image)?;
    let files = INODES * 9 / 10;
    for file in 0..files {
        let directory = file / FILES_PER_DIRECTORY;
        if file % FILES_PER_DIRECTORY == 0 {
            fs.create_dir(format!("/{directory}"))?;
        }
        drop(fs.options().write(true).create(true).open(format!("/{directory}/{file}"))?);
        if file % 20_000 == 0 {
            fs.sync()?;
        }
    }
    let most_kib = resident_max_kib()?;
    fs.unmount()?;
    let allowed_kib = before_kib + (cache_mib << 10) * 3 / 2 + (64 << 10);
    println!(
        "{files} files, log of {log_mib} MiB, cache of {cache_mib} MiB: resident {} MiB, allowed {} MiB",
        most_kib >> 10,
        allowed_kib >> 10
    );
    if most_kib > allowed_kib { Err("more memory than allowed".into()) } else { Ok(()) }
}

fn resident_max_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
