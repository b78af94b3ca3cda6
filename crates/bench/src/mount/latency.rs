//! How long requests take at worst while one of them waits for a slow block, and while other programs want all CPUs.

use std::fs::{self, File};
use std::io::{self, IoSlice, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use extant_block::{BlockDevice, DeviceAccess, FileDevice};
use extant_fuse::{MountOptions, Server, ServerOptions, Session, TimedDevice};
use rustix::fs::OFlags;

use super::side::Side;
use crate::Result;
use crate::mounted::Mounted;
use crate::scratch::Scratch;

/// How long the device takes to answer a read of the slow block.
const SLOW: Duration = Duration::from_secs(1);
const SLOW_NAME: &str = "slow";
const BLOCK_BYTES: usize = 4096;
const FILE_BYTES: usize = 2048;
/// Programs that keep CPUs busy.
const SPINNERS: usize = 2;

/// The operations that are timed, in this order, of one new file after the other.
const OPERATIONS: [&str; 5] = ["create", "write 2 KiB", "stat", "fsync", "unlink"];

/// The times of each of [`OPERATIONS`], in seconds.
type Times = [Vec<f64>; OPERATIONS.len()];

/// A device of which reads of some bytes take [`SLOW`].
#[derive(Debug)]
struct SlowDevice {
    device: FileDevice,
    slow: Range<u64>,
}

impl BlockDevice for SlowDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset < self.slow.end && self.slow.start < offset + buf.len() as u64 {
            std::thread::sleep(SLOW);
        }
        self.device.read_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.device.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.device.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.device.write_zeroes(offset, bytes)
    }
}

/// Serves `image` at `point` until it is unmounted, with a file [`SLOW_NAME`] whose one block is slow to read.
pub fn serve_slow(image: &Path, point: &Path) -> Result<()> {
    let fs = extant::Mount::new().open(image)?;
    fs.write(Path::new("/").join(SLOW_NAME), [1; BLOCK_BYTES])?;
    let at = fs.open(Path::new("/").join(SLOW_NAME))?.device_offset(0, BLOCK_BYTES as u64)?;
    fs.unmount()?;
    let at = at.ok_or("the file has no block")?;
    let device = SlowDevice {
        device: FileDevice::open(image, DeviceAccess::read_write())?,
        slow: at..at + BLOCK_BYTES as u64,
    };
    let fs = extant::Mount::new().open_device(Arc::new(TimedDevice::new(device)))?;
    let server = Server::new(fs, ServerOptions::default())?;
    let options = MountOptions { source: "slow".into(), ..MountOptions::default() };
    Session::mount(server.clone(), point, &options)?.run()?;
    Ok(server.finish()?)
}

/// Times [`OPERATIONS`] in `dir` until `time` is over.
fn measure(dir: &Path, time: Duration) -> Result<Times> {
    let mut times = Times::default();
    let start = Instant::now();
    for number in 0_u64.. {
        if start.elapsed() > time {
            break;
        }
        let path = dir.join(number.to_string());
        let mut file = None;
        let mut timed = |operation: usize, act: &mut dyn FnMut() -> io::Result<()>| {
            let start = Instant::now();
            act()?;
            times[operation].push(start.elapsed().as_secs_f64());
            Ok::<_, io::Error>(())
        };
        timed(0, &mut || {
            file = Some(File::create_new(&path)?);
            Ok(())
        })?;
        let mut file = file.ok_or("no file")?;
        timed(1, &mut || file.write_all(&[2; FILE_BYTES]))?;
        timed(2, &mut || fs::metadata(&path).map(drop))?;
        timed(3, &mut || file.sync_all())?;
        drop(file);
        timed(4, &mut || fs::remove_file(&path))?;
    }
    Ok(times)
}

/// The time that so many of a hundred stay below.
fn percentile(times: &mut [f64], percent: usize) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Prints the lines of a table, in milliseconds.
fn print(name: &str, times: &mut Times) {
    for (operation, times) in OPERATIONS.iter().zip(times) {
        let [middle, high, most] = [50, 99, 100].map(|percent| percentile(times, percent) * 1e3);
        println!("| {name} | {operation} | {} | {middle:.3} | {high:.3} | {most:.3} |", times.len());
    }
}

/// Times requests while another thread reads the slow block again and again, past the kernel's pages.
fn beside_slow_block(scratch: &Scratch, time: Duration) -> Result<Times> {
    let (image, point) = (scratch.image("slow.img")?, scratch.path("slow"));
    let own = std::env::current_exe()?;
    let mounted = Mounted::served(&own, &["serve-slow".as_ref(), image.as_ref(), point.as_ref()], &point)?;
    let ends = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        let reader = scope.spawn(|| -> Result<usize> {
            let mut options = File::options();
            options.read(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
            let file = options.open(point.join(SLOW_NAME))?;
            let mut buf = vec![0; 2 * BLOCK_BYTES];
            let start = buf.as_ptr().align_offset(BLOCK_BYTES);
            let mut reads = 0;
            while !ends.load(Ordering::Relaxed) {
                file.read_exact_at(&mut buf[start..start + BLOCK_BYTES], 0)?;
                reads += 1;
            }
            Ok(reads)
        });
        let times = measure(&point, time);
        ends.store(true, Ordering::Relaxed);
        let reads = reader.join().map_err(|_| "the reader failed")??;
        println!("the slow block was read {reads} times, each in {} s or more", SLOW.as_secs());
        times
    })?;
    mounted.end()?;
    Ok(times)
}

/// Programs that only run; they end with it.
struct Spinners(Vec<Child>);

impl Spinners {
    fn start() -> Result<Self> {
        let start = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        Ok(Self((0..SPINNERS).map(|_| start()).collect::<io::Result<_>>()?))
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// See [`crate::What::MountLatency`].
pub fn latency(rounds: usize, time: Duration, dir: &Path) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    println!("| server | operation | count | median, ms | p99, ms | most, ms |\n|---|---|---|---|---|---|");
    print("extant, a slow block", &mut beside_slow_block(&scratch, time)?);
    let sides = [Side::Extant, Side::EmptyOnImage, Side::Fuse2fs];
    let mut all = sides.map(|_| Times::default());
    for _ in 0..rounds {
        for (side, all) in sides.iter().zip(&mut all) {
            let mounted = match side.mount(&scratch) {
                Err(error) if side.may_be_missing() => {
                    eprintln!("{}: not measured ({error})", side.name());
                    continue;
                }
                mounted => mounted?,
            };
            let spinners = Spinners::start()?;
            let times = measure(mounted.path(), time)?;
            drop(spinners);
            mounted.end()?;
            all.iter_mut().zip(times).for_each(|(all, times)| all.extend(times));
        }
    }
    for (side, times) in sides.iter().zip(&mut all) {
        print(&format!("{}, {SPINNERS} programs spin", side.name()), times);
    }
    let [own, others @ ..] = &mut all;
    for (side, other) in sides[1..].iter().zip(others) {
        for (operation, (own, other)) in OPERATIONS.iter().zip(own.iter_mut().zip(other)) {
            let ratio = percentile(own, 99) / percentile(other, 99);
            println!("p99 of {operation}: extant / {} {ratio:.2}", side.name());
        }
    }
    Ok(())
}
