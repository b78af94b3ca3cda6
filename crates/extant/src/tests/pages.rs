//! The page cache and delayed allocation: where pages are, which are kept, which errors are reported.

use std::io::{self, IoSlice};
use std::time::Duration;

use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::InodeNumber;
use extant_rt::{Arc, AtomicBool, AtomicU64, Ordering, parallel, sleep, yield_now};

use super::disk::{Random, assert_clean, format, has_e2fsprogs, has_threads, mount_with_pages};
use super::names::new;
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::file::seek::SeekTo;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::{NewKind, RenameFlags};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;

fn disk(kilobytes: u32) -> Arc<MemoryDevice> {
    Arc::new(format(&["-b", "4096", "-J", "size=4", "-N", "256"], kilobytes, &[]).0)
}

fn create(volume: &Arc<Volume>, name: &str) -> InodeRef {
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    volume.create(&root, name.as_bytes(), &new(NewKind::File)).unwrap()
}

fn write(volume: &Volume, file: &InodeRef, at: u64, bytes: u64) {
    let buf = vec![7; bytes as usize];
    assert_eq!(volume.write_at(file, Some(at), &buf, true).unwrap(), buf.len());
}

/// The blocks that are reserved among those that the disk says are free.
fn kept(volume: &Volume) -> u64 {
    let allocator = &volume.allocator;
    allocator.disk_free_blocks()
        - allocator.free_blocks()
        - allocator.preallocated_blocks()
        - allocator.pending_free()
}

/// A device that counts, and fails to write data or holds it up on command.
struct Watched {
    inner: Arc<MemoryDevice>,
    reads: AtomicU64,
    writes: AtomicU64,
    is_broken: AtomicBool,
    is_held_up: AtomicBool,
    /// Writes of data that are held up.
    waiting: AtomicU64,
}

impl Watched {
    fn new(inner: &Arc<MemoryDevice>) -> Arc<Self> {
        let (reads, writes) = (AtomicU64::new(0), AtomicU64::new(0));
        let (is_broken, is_held_up) = (AtomicBool::new(false), AtomicBool::new(false));
        let (inner, waiting) = (inner.clone(), AtomicU64::new(0));
        Arc::new(Self { inner, reads, writes, is_broken, is_held_up, waiting })
    }
}

impl BlockDevice for Watched {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        // Content here is of sevens.
        let is_content = bufs.first().is_some_and(|buf| buf.first() == Some(&7));
        if is_content && self.is_broken.load(Ordering::Relaxed) {
            return Err(io::Error::other("broken"));
        }
        self.writes.fetch_add(u64::from(is_content), Ordering::Relaxed);
        if is_content {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            // A thread that waits for it in vain is released in the end, and finds that it is no longer held up.
            for _ in 0..10_000 {
                if !self.is_held_up.load(Ordering::SeqCst) {
                    break;
                }
                sleep(Duration::from_millis(1));
            }
            self.is_held_up.store(false, Ordering::SeqCst);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        self.inner.write_vectored_at(offset, bufs)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.discard(offset, bytes)
    }
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.write_zeroes(offset, bytes)
    }
}

fn mount_watched(device: &Arc<Watched>, bytes: u64) -> Arc<Volume> {
    let options = Options { background: false, page_cache_bytes: Some(bytes), ..Options::default() };
    Volume::mount(device.clone(), &options).unwrap().0
}

#[test]
fn what_is_written_gets_blocks_when_it_is_flushed_and_is_counted_before() {
    if !has_e2fsprogs() {
        return;
    }
    let device = disk(32 << 10);
    let volume = mount_with_pages(&device, 16 * MIB, true);
    let (file, other) = (create(&volume, "a"), create(&volume, "b"));
    volume.sync().unwrap();
    let free = volume.statistics().free_blocks;
    // In turns: without delay they would lie in each other's way.
    for block in 0..100 {
        write(&volume, &file, block * BLOCK, BLOCK);
        write(&volume, &other, block * BLOCK, BLOCK);
    }
    let told = volume.attributes(&file);
    assert_eq!((told.size, told.blocks_512), (100 * BLOCK, 100 * BLOCK / 512));
    assert_eq!((file.raw().size(), file.raw().blocks_512(4096)), (0, 0));
    let reserved = free - volume.statistics().free_blocks;
    assert!((200..230).contains(&reserved), "{reserved} blocks kept for 200");
    assert_eq!(volume.seek(&other, 0, SeekTo::Hole).unwrap(), 100 * BLOCK, "flushed before it is told");
    assert_eq!(other.raw().size(), 100 * BLOCK);
    volume.sync().unwrap();
    assert_eq!(file.raw().size(), 100 * BLOCK);
    for file in [&file, &other] {
        assert_eq!(volume.all_extents(file.number, &file.raw()).unwrap().len(), 1);
    }
    assert_eq!((free - volume.statistics().free_blocks, kept(&volume)), (200, 0));
    volume.unmount().unwrap();
    assert!(matches!(volume.write_at(&file, Some(0), b"x", true), Err(Error::ReadOnly)));
    assert_clean(&*device, "after an unmount");
}

#[test]
fn nothing_is_kept_once_all_is_written_cut_or_deleted() {
    if !has_e2fsprogs() {
        return;
    }
    for (seed, pages) in [(1, 64 << 10), (2, MIB), (3, 16 * MIB), (4, 16 * MIB)] {
        let device = disk(16 << 10);
        let volume = mount_with_pages(&device, pages, true);
        let root = volume.inode(InodeNumber::ROOT).unwrap();
        let mut random = Random::new(seed);
        for round in 0..60 {
            let name = format!("f{}", round % 7);
            let file = volume.lookup(&root, name.as_bytes()).unwrap_or_else(|_| create(&volume, &name));
            for _ in 0..random.below(40) {
                let at = random.below(400) * BLOCK + random.below(2) * random.below(BLOCK);
                write(&volume, &file, at, 1 + random.below(5 * BLOCK));
            }
            let (at, bytes) = (random.below(400) * BLOCK, 1 + random.below(40 * BLOCK));
            match random.below(8) {
                0 | 1 => volume.set_size(&file, random.below(400 * BLOCK)).unwrap(),
                2 => volume.fallocate(&file, Fallocate::PunchHole, at, bytes, true).unwrap(),
                3 | 4 => volume.unlink(&root, name.as_bytes()).unwrap(),
                5 => volume.sync_inode(&file, false).unwrap(),
                6 => volume.set_size(&file, 0).unwrap(),
                _ => {}
            }
            drop(file);
            volume.evict_unlinked();
        }
        volume.flush_all().unwrap();
        volume.allocator.discard_preallocations(u64::MAX);
        assert_eq!(kept(&volume), 0, "seed {seed}");
        let used = volume.pages.as_ref().unwrap().used();
        assert!(used.0 <= pages + MIB && used.1 == 0, "seed {seed}: {used:?}");
        volume.unmount().unwrap();
        assert_clean(&*device, "after all");
    }
}

#[test]
fn a_file_that_is_deleted_before_it_is_flushed_is_never_written() {
    if !has_e2fsprogs() {
        return;
    }
    let device = Watched::new(&disk(32 << 10));
    let volume = mount_watched(&device, 16 * MIB);
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    for (is_open, name) in [(false, "closed"), (true, "open")] {
        let file = create(&volume, name);
        write(&volume, &file, 0, MIB);
        let held = is_open.then(|| file.clone());
        drop(file);
        volume.unlink(&root, name.as_bytes()).unwrap();
        drop(held);
        volume.evict_unlinked();
    }
    volume.sync().unwrap();
    assert_eq!((device.writes.load(Ordering::Relaxed), kept(&volume)), (0, 0));
    assert_eq!(volume.pages.as_ref().unwrap().used(), (0, 0));
    volume.unmount().unwrap();
}

#[test]
fn what_replaces_a_file_is_written_before_it_does() {
    if !has_e2fsprogs() {
        return;
    }
    let device = disk(32 << 10);
    let volume = mount_with_pages(&device, 16 * MIB, true);
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    // Replaced by a rename.
    let old = create(&volume, "old");
    let file = create(&volume, "new");
    write(&volume, &file, 0, 3 * BLOCK);
    volume.rename(&root, b"new", &root, b"free", RenameFlags::default()).unwrap();
    assert_eq!(file.raw().size(), 0, "nothing is replaced");
    volume.rename(&root, b"free", &root, b"old", RenameFlags::default()).unwrap();
    assert_eq!(file.raw().size(), 3 * BLOCK);
    drop(old);
    // Truncated to zero bytes.
    volume.set_size(&file, 0).unwrap();
    write(&volume, &file, 0, 2 * BLOCK);
    assert_eq!(file.raw().size(), 0, "until it is closed");
    let again = file.clone();
    drop(file);
    drop(again);
    volume.evict_unlinked();
    assert_eq!(volume.lookup(&root, b"old").unwrap().raw().size(), 2 * BLOCK);
    volume.unmount().unwrap();
    assert_clean(&*device, "after all");
}

#[test]
fn data_that_is_lost_is_told_once_and_the_file_does_not_grow_over_it() {
    if !has_e2fsprogs() {
        return;
    }
    let device = Watched::new(&disk(32 << 10));
    let volume = mount_watched(&device, 16 * MIB);
    let file = create(&volume, "a");
    write(&volume, &file, 0, 2 * BLOCK + 100);
    volume.sync().unwrap();
    let (one, other) = (file.writeback_error.sample(), file.writeback_error.sample());
    write(&volume, &file, 10 * BLOCK, BLOCK);
    write(&volume, &file, BLOCK, BLOCK);
    device.is_broken.store(true, Ordering::Relaxed);
    assert!(matches!(volume.sync_inode(&file, true), Err(Error::Io { .. })));
    assert_eq!(volume.attributes(&file).size, 2 * BLOCK + 100);
    assert!(
        file.writeback_error.check_and_advance(&one)
            && !file.writeback_error.check_and_advance(&one)
            && file.writeback_error.check_and_advance(&other)
    );
    assert_eq!(kept(&volume), 0);
    device.is_broken.store(false, Ordering::Relaxed);
    volume.sync_inode(&file, true).unwrap();
    assert!(!file.writeback_error.check_and_advance(&one));
    let mut read = vec![0; 3 * BLOCK as usize];
    assert_eq!(volume.read_at(&file, 0, &mut read).unwrap() as u64, 2 * BLOCK + 100);
    assert!(read[..2 * BLOCK as usize + 100].iter().all(|byte| *byte == 7));
    assert!(matches!(volume.sync(), Err(Error::Io { .. })), "who syncs all is told once too");
    volume.sync().unwrap();
    volume.unmount().unwrap();
    drop((file, volume));
    assert_clean(&*device.inner, "after losses");
}

#[test]
fn a_write_opens_no_update_and_its_time_is_seen_at_once() {
    if !has_e2fsprogs() {
        return;
    }
    let device = disk(32 << 10);
    let volume = mount_with_pages(&device, 16 * MIB, true);
    let file = create(&volume, "a");
    write(&volume, &file, 0, BLOCK);
    volume.sync().unwrap();
    let before = (volume.attributes(&file), file.state().sync_tid);
    std::thread::sleep(std::time::Duration::from_millis(2));
    write(&volume, &file, 100, 100);
    let after = volume.attributes(&file);
    assert!(after.mtime > before.0.mtime && after.ctime == after.mtime);
    assert_eq!(file.state().sync_tid, before.1);
    volume.sync_inode(&file, false).unwrap();
    assert_eq!(file.raw().mtime(), before.0.mtime, "fdatasync writes no times");
    assert_eq!(volume.attributes(&file), after);
    volume.sync_inode(&file, true).unwrap();
    assert_eq!(file.raw().mtime(), after.mtime);
    volume.unmount().unwrap();
}

#[test]
fn memory_stays_bounded_and_reading_on_reads_ahead() {
    if !has_e2fsprogs() {
        return;
    }
    const LIMIT: u64 = 4 * MIB;
    const BYTES: u64 = 40 * MIB;
    let device = Watched::new(&disk(64 << 10));
    let volume = mount_watched(&device, LIMIT);
    let pages = volume.pages.as_ref().unwrap();
    let file = create(&volume, "a");
    let mut most = (0, 0);
    for at in (0..BYTES).step_by(64 << 10) {
        write(&volume, &file, at, 64 << 10);
        most = (most.0.max(pages.used().0), most.1.max(pages.used().1));
    }
    // Beside the limit, what was written last.
    assert!(most.0 <= LIMIT + MIB && most.1 <= LIMIT / 2 + MIB, "{most:?}");
    volume.sync().unwrap();
    let reads = || device.reads.swap(0, Ordering::Relaxed);
    let mut buf = vec![0; BLOCK as usize];
    reads();
    for at in (0..BYTES).step_by(BLOCK as usize) {
        assert_eq!(volume.read_at(&file, at, &mut buf).unwrap() as u64, BLOCK);
        assert!(buf.iter().all(|byte| *byte == 7));
        assert!(pages.used().0 <= LIMIT + MIB);
    }
    let in_order = reads();
    assert!(in_order <= BYTES / (256 << 10) + 16, "{in_order} reads");
    let mut random = Random::new(1);
    for _ in 0..500 {
        volume.read_at(&file, random.below(BYTES / BLOCK) * BLOCK, &mut buf).unwrap();
    }
    let used = pages.used().0;
    assert!((300..=500).contains(&reads()) && used <= LIMIT + MIB, "random reads have nothing ahead");
    volume.unmount().unwrap();
}

#[test]
fn what_is_appended_is_written_once_it_is_long_and_what_is_written_over_is_not() {
    if !has_threads() {
        return;
    }
    let inner = disk(64 << 10);
    // A disk of one group has one context, whose runs are of 8 MiB.
    let options = Options { page_cache_bytes: Some(1 << 30), ..Options::default() };
    let volume = Volume::mount(inner, &options).unwrap().0;
    let file = create(&volume, "file");
    let dirty = || volume.pages.as_ref().unwrap().used().1;
    write(&volume, &file, 0, 7 * MIB);
    sleep(Duration::from_millis(20));
    assert_eq!(dirty(), 7 * MIB);
    write(&volume, &file, 7 * MIB, MIB);
    for _ in 0..1000 {
        if dirty() == 0 {
            break;
        }
        sleep(Duration::from_millis(10));
    }
    assert_eq!(dirty(), 0);
    write(&volume, &file, 0, 8 * MIB);
    sleep(Duration::from_millis(20));
    assert_eq!(dirty(), 8 * MIB);
}

#[test]
fn where_clean_pages_are_not_kept_memory_holds_only_what_is_to_be_written() {
    if !has_e2fsprogs() {
        return;
    }
    let device = disk(32 << 10);
    let volume = mount_with_pages(&device, 16 * MIB, false);
    let file = create(&volume, "a");
    write(&volume, &file, 0, MIB);
    assert_eq!(volume.pages.as_ref().unwrap().used(), (MIB, MIB));
    volume.sync_inode(&file, true).unwrap();
    let mut buf = vec![0; MIB as usize];
    assert_eq!(volume.read_at(&file, 0, &mut buf).unwrap() as u64, MIB);
    assert_eq!(volume.pages.as_ref().unwrap().used(), (0, 0));
    assert!(buf.iter().all(|byte| *byte == 7));
    volume.unmount().unwrap();
}

#[test]
fn the_time_of_a_write_is_told_as_exactly_as_the_inode_can_say_it() {
    if !has_e2fsprogs() {
        return;
    }
    for inode_size in ["128", "256"] {
        let arguments = ["-b", "4096", "-J", "size=4", "-N", "256", "-I", inode_size];
        let volume = mount_with_pages(&Arc::new(format(&arguments, 32 << 10, &[]).0), MIB, true);
        let file = create(&volume, "a");
        write(&volume, &file, 0, BLOCK);
        let told = volume.attributes(&file);
        volume.sync().unwrap();
        let after = volume.attributes(&file);
        assert_eq!((told.mtime, told.ctime), (after.mtime, after.ctime), "inodes of {inode_size}");
        volume.unmount().unwrap();
    }
}

#[test]
fn who_reads_and_writes_a_file_does_not_wait_for_the_device_that_writes_it_back() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let memory = disk(32 << 10);
    let device = Watched::new(&memory);
    let volume = mount_watched(&device, 16 * MIB);
    let file = create(&volume, "file");
    let number = file.number;
    write(&volume, &file, 0, 8 * BLOCK + 100);
    device.is_held_up.store(true, Ordering::SeqCst);
    parallel(2, |task| {
        if task == 0 {
            return volume.sync_inode(&file, false).unwrap();
        }
        while device.waiting.load(Ordering::SeqCst) == 0 {
            yield_now();
        }
        // Over blocks that are being written, over the tail, and behind a hole.
        for (at, byte) in [(2 * BLOCK + 5, 8), (8 * BLOCK + 50, 9), (20 * BLOCK, 10)] {
            assert_eq!(volume.write_at(&file, Some(at), &[byte; 1000], true).unwrap(), 1000);
            let mut read = [0; 1000];
            assert_eq!(volume.read_at(&file, at, &mut read).unwrap(), 1000);
            assert_eq!(read, [byte; 1000]);
        }
        assert!(device.is_held_up.load(Ordering::SeqCst), "it was waited for");
        device.is_held_up.store(false, Ordering::SeqCst);
    });
    // Data written meanwhile is still dirty, and the file has grown to its end at that time.
    assert_eq!(volume.pages.as_ref().unwrap().used().1, 3 * BLOCK);
    assert_eq!((file.raw().size(), volume.attributes(&file).size), (8 * BLOCK + 100, 20 * BLOCK + 1000));
    volume.sync().unwrap();
    assert_eq!((volume.pages.as_ref().unwrap().used().1, kept(&volume)), (0, 0));
    drop(file);
    volume.unmount().unwrap();
    assert_clean(&*memory, "after an unmount");
    let again = mount_with_pages(&memory, 0, true);
    let file = again.inode(number).unwrap();
    let mut wanted = vec![7; (8 * BLOCK + 100) as usize];
    wanted.resize((20 * BLOCK + 1000) as usize, 0);
    for (at, byte) in [(2 * BLOCK + 5, 8), (8 * BLOCK + 50, 9), (20 * BLOCK, 10)] {
        wanted[at as usize..at as usize + 1000].fill(byte);
    }
    let mut read = vec![1; wanted.len()];
    assert_eq!(again.read_at(&file, 0, &mut read).unwrap(), wanted.len());
    assert!(read == wanted);
}

/// In how many pieces a file lies that is written in order into a disk full of gaps, flushed each `flushed_bytes` bytes.
fn pieces_among_gaps(flushed_bytes: u64) -> usize {
    let device = disk(180 << 10);
    let volume = mount_with_pages(&device, 256 * MIB, true);
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let (mut random, names) = (Random::new(7), |index: u64| format!("between-{index}"));
    for index in 0..160 {
        let bytes = (1 + random.below(32)) * (MIB / 16);
        let what = Fallocate::Allocate { keep_size: false };
        volume.fallocate(&create(&volume, &names(index)), what, 0, bytes, true).unwrap();
    }
    for index in (0..160).step_by(2) {
        volume.unlink(&root, names(index).as_bytes()).unwrap();
    }
    volume.sync().unwrap();
    let file = create(&volume, "file");
    for at in (0..64 * MIB).step_by(flushed_bytes as usize) {
        write(&volume, &file, at, flushed_bytes);
        volume.flush(&file).unwrap();
    }
    let extents = volume.all_extents(file.number, &file.raw()).unwrap();
    drop(file);
    volume.unmount().unwrap();
    assert_clean(&*device, "gaps");
    let ends = extents.windows(2).filter(|pair| pair[0].start.0 + u64::from(pair[0].len) != pair[1].start.0);
    ends.count() + 1
}

#[test]
fn how_a_file_lies_hangs_little_on_how_often_it_is_flushed() {
    if !has_e2fsprogs() {
        return;
    }
    let [often, once] = [MIB / 2, 64 * MIB].map(pieces_among_gaps);
    println!("{often} pieces flushed each 512 KiB, {once} at once");
    assert!(once > 20 && often <= once + once / 20, "{often} pieces, {once} at once");
}

#[test]
fn files_that_are_filled_at_random_beside_each_other_lie_in_order() {
    if !has_e2fsprogs() {
        return;
    }
    let device = disk(256 << 10);
    let volume = mount_with_pages(&device, 64 * MIB, true);
    let files = [create(&volume, "first"), create(&volume, "second")];
    let mut random = Random::new(3);
    let mut places: Vec<u64> = (0..16 * MIB / BLOCK).collect();
    for at in (1..places.len()).rev() {
        places.swap(at, random.below(at as u64 + 1) as usize);
    }
    // Their ends come first, so that all the rest is a hole.
    for file in &files {
        write(&volume, file, 16 * MIB - BLOCK, BLOCK);
        volume.flush(file).unwrap();
    }
    for some in places.chunks(64) {
        for file in &files {
            some.iter().for_each(|block| write(&volume, file, block * BLOCK, BLOCK));
            volume.flush(file).unwrap();
        }
    }
    for file in &files {
        let extents = volume.all_extents(file.number, &file.raw()).unwrap();
        assert!(extents.len() <= 24, "{} extents", extents.len());
    }
    drop(files);
    volume.unmount().unwrap();
    assert_clean(&*device, "filled at random");
}
