//! What an fsync costs: flushes and durable writes of the device, alone and where many threads sync.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use extant::mkfs::Mkfs;
use extant::{File, Filesystem, Mount};
use extant_block::{BlockDevice, MemoryDevice};

const MIB: u64 = 1 << 20;
const BLOCK: [u8; 4096] = [7; 4096];

/// A device that counts flushes and durable writes, each of which takes a while.
struct Counted {
    memory: MemoryDevice,
    latency: Duration,
    flushes: AtomicU64,
    durable_writes: AtomicU64,
}

impl BlockDevice for Counted {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.memory.write_vectored_at(offset, bufs)
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.durable_writes.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.latency);
        self.memory.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.latency);
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.memory.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.memory.write_zeroes(offset, bytes)
    }
}

impl Counted {
    /// Flushes and durable writes so far.
    fn counts(&self) -> (u64, u64) {
        (self.flushes.load(Ordering::Relaxed), self.durable_writes.load(Ordering::Relaxed))
    }

    /// Flushes and durable writes of `act`.
    fn count(&self, act: impl FnOnce()) -> (u64, u64) {
        let before = self.counts();
        act();
        let after = self.counts();
        (after.0 - before.0, after.1 - before.1)
    }
}

/// An empty disk, mounted without threads of its own.
fn mounted(latency: Duration, page_cache_bytes: u64) -> (Arc<Counted>, Filesystem) {
    mounted_with("", latency, page_cache_bytes)
}

/// A disk that has these features too.
fn mounted_with(features: &str, latency: Duration, page_cache_bytes: u64) -> (Arc<Counted>, Filesystem) {
    let memory = MemoryDevice::new(256 * MIB);
    Mkfs::new().features(features).expect("features").format(&memory).expect("format");
    let device =
        Arc::new(Counted { memory, latency, flushes: AtomicU64::new(0), durable_writes: AtomicU64::new(0) });
    let mount = Mount::new().background(false).page_cache_bytes(page_cache_bytes);
    let fs = mount.open_device(device.clone()).expect("mount");
    (device, fs)
}

fn create(fs: &Filesystem, name: &str) -> File {
    fs.options().read(true).write(true).create(true).open(name).expect("a file")
}

#[test]
fn an_fsync_of_an_append_flushes_once_before_its_commit_block() {
    for page_cache_bytes in [0, 64 * MIB] {
        let (device, fs) = mounted(Duration::ZERO, page_cache_bytes);
        let file = create(&fs, "/file");
        file.sync_all().expect("sync");
        for index in 0..20 {
            file.write_all_at(&BLOCK, index * BLOCK.len() as u64).expect("write");
            let counts = device.count(|| file.sync_all().expect("sync"));
            assert_eq!(counts, (1, 1), "append {index}, page cache of {page_cache_bytes} bytes");
        }
        fs.unmount().expect("unmount");
    }
}

#[test]
fn an_fsync_of_an_append_by_a_fast_commit_flushes_once_before_its_one_block() {
    for page_cache_bytes in [0, 64 * MIB] {
        let (device, fs) = mounted_with("fast_commit", Duration::ZERO, page_cache_bytes);
        let file = create(&fs, "/file");
        file.sync_all().expect("sync");
        let before = fs.journal_statistics().expect("a journal");
        for index in 0..20 {
            file.write_all_at(&BLOCK, index * BLOCK.len() as u64).expect("write");
            let counts = device.count(|| file.sync_all().expect("sync"));
            assert_eq!(counts, (1, 1), "append {index}, page cache of {page_cache_bytes} bytes");
        }
        let after = fs.journal_statistics().expect("a journal");
        let blocks =
            (after.log_blocks - before.log_blocks, after.fast_commit_blocks - before.fast_commit_blocks);
        assert_eq!(blocks, (0, 20));
        fs.unmount().expect("unmount");
    }
}

#[test]
fn an_fdatasync_of_an_overwrite_flushes_once_and_commits_nothing() {
    for page_cache_bytes in [0, 64 * MIB] {
        let (device, fs) = mounted(Duration::ZERO, page_cache_bytes);
        let file = create(&fs, "/file");
        file.write_all_at(&BLOCK.repeat(64), 0).expect("write");
        file.sync_all().expect("sync");
        for index in 0..20 {
            file.write_all_at(&BLOCK, index * 7 % 64 * BLOCK.len() as u64).expect("write");
            let counts = device.count(|| file.sync_data().expect("sync"));
            assert_eq!(counts, (1, 0), "overwrite {index}, page cache of {page_cache_bytes} bytes");
        }
        fs.unmount().expect("unmount");
    }
}

#[test]
fn threads_that_sync_share_commits_and_flushes() {
    const THREADS: u64 = 16;
    const SYNCS: u64 = 50;
    for page_cache_bytes in [0, 64 * MIB] {
        let (device, fs) = mounted(Duration::from_millis(1), page_cache_bytes);
        let files: Vec<File> = (0..THREADS).map(|thread| create(&fs, &format!("/file-{thread}"))).collect();
        fs.sync().expect("sync");
        let (flushes, commits) = device.count(|| {
            std::thread::scope(|scope| {
                for file in &files {
                    scope.spawn(move || {
                        for index in 0..SYNCS {
                            file.write_all_at(&BLOCK, index * BLOCK.len() as u64).expect("write");
                            file.sync_all().expect("sync");
                        }
                    });
                }
            });
        });
        println!("{THREADS} threads, {} fsyncs: {commits} commits, {flushes} flushes", THREADS * SYNCS);
        assert!(flushes * 5 <= commits * 6, "{flushes} flushes of {commits} commits");
        assert!(commits * 4 <= THREADS * SYNCS, "{commits} commits of {} fsyncs", THREADS * SYNCS);
        fs.unmount().expect("unmount");
    }
}
