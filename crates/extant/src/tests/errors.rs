//! The superblock's record of errors, and the cost of writing it.

use std::io;
use std::time::Duration;

use extant_block::{BlockDevice, FaultDevice, MemoryDevice};
use extant_ondisk::{InodeNumber, LogicalBlock, State, Structure, Superblock};
use extant_rt::{Arc, AtomicBool, AtomicU64, Ordering};

use super::disk::{assert_clean, format, has_e2fsprogs, mount};
use super::names::new;
use crate::error::{Error, Location};
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::NewKind;

fn superblock(device: &dyn BlockDevice) -> Superblock {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    Superblock::parse(&bytes).unwrap()
}

/// A disk with a directory whose block is damaged.
fn damaged_directory() -> MemoryDevice {
    let device = Arc::new(format(&["-b", "1024", "-J", "size=1", "-N", "64"], 8 << 10, &[]).0);
    let volume = mount(&device);
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let dir = volume.create(&root, b"dir", &new(NewKind::Directory)).unwrap();
    let block = volume.directory_block(&dir, LogicalBlock(0)).unwrap();
    drop((root, dir));
    volume.unmount().unwrap();
    device.write_at(block.0 * 1024 + 50, &[0xFF]).unwrap();
    device.snapshot()
}

#[test]
fn a_damaged_block_that_is_read_again_and_again_costs_few_writes() {
    const READS: u32 = 10_000;
    if !has_e2fsprogs() {
        return;
    }
    let requests = Arc::new(AtomicU64::new(0));
    let seen = requests.clone();
    let device = Arc::new(FaultDevice::new(damaged_directory(), move |request| {
        use extant_block::Operation::{Flush, Write, WriteFua};
        let counts = matches!(request.operation, Write | WriteFua | Flush);
        seen.fetch_add(u64::from(counts), Ordering::Relaxed);
        extant_block::Fault::None
    }));
    let options = Options { background: false, ..Options::default() };
    let volume = Volume::mount(device.clone(), &options).unwrap().0;
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let dir = volume.lookup(&root, b"dir").unwrap();
    let before = requests.load(Ordering::Relaxed);
    for read in 1..=READS {
        let error = volume.lookup(&dir, b"name").map(drop).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        volume.handle_error(&error);
        if read == 1 {
            assert!(superblock(&*device).state().contains(State::ERROR), "the first is not told at once");
        }
    }
    let cost = requests.load(Ordering::Relaxed) - before;
    // A write and a flush for each power of two up to the count.
    assert!(cost <= 2 * u64::from(READS.ilog2() + 1), "{READS} reads cost {cost} writes and flushes");
    assert!(superblock(&*device).s_error_count() >= READS / 2);
    drop((root, dir));
    volume.unmount().unwrap();
    assert_eq!(superblock(&*device).s_error_count(), READS, "not all are counted");
}

/// A device that holds back the next write of the superblock past the journal, until a checkpoint ended or is waiting
/// for it.
struct Slow {
    inner: MemoryDevice,
    is_armed: AtomicBool,
    is_held: AtomicBool,
    is_passed: AtomicBool,
}

impl BlockDevice for Slow {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        if offset == 1024 && self.is_armed.swap(false, Ordering::SeqCst) {
            self.is_held.store(true, Ordering::SeqCst);
            for _ in 0..50 {
                if self.is_passed.load(Ordering::SeqCst) {
                    break;
                }
                extant_rt::sleep(Duration::from_millis(5));
            }
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

#[test]
fn a_note_of_an_error_does_not_bring_an_older_superblock_home_after_a_checkpoint() {
    if !has_e2fsprogs() {
        return;
    }
    // Blocks of 4 KiB, so that checkpoints do not write where the superblock begins.
    let inner = format(&["-b", "4096", "-N", "64"], 16 << 10, &[]).0;
    let [is_armed, is_held, is_passed] = [false; 3].map(AtomicBool::new);
    let device = Arc::new(Slow { inner, is_armed, is_held, is_passed });
    let options = Options { background: false, ..Options::default() };
    let volume = Volume::mount(device.clone(), &options).unwrap().0;
    let damage = Location::of(Structure::Inode).corrupt("for a test");
    device.is_armed.store(true, Ordering::SeqCst);
    extant_rt::parallel(2, |thread| {
        if thread == 0 {
            return volume.handle_error(&damage);
        }
        while !device.is_held.load(Ordering::SeqCst) {
            extant_rt::sleep(Duration::from_millis(1));
        }
        let root = volume.inode(InodeNumber::ROOT).unwrap();
        // The head of the list of orphans is in the superblock.
        let orphan = volume.tmpfile(&root, &new(NewKind::File)).unwrap();
        let journal = volume.journal.as_ref().unwrap();
        journal.commit_running().unwrap();
        journal.checkpoint().unwrap();
        device.is_passed.store(true, Ordering::SeqCst);
        std::mem::forget(orphan);
    });
    let home = superblock(&*device);
    assert!(home.state().contains(State::ERROR));
    assert_ne!(home.s_last_orphan(), 0, "a checkpoint wrote an older superblock");
    let crashed = Arc::new(device.inner.snapshot());
    mount(&crashed).unmount().unwrap();
}

/// Labels, notes of errors, commits and checkpoints all write the superblock's block.
#[test]
fn threads_that_write_the_superblock_take_nothing_from_each_other() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, _) = format(&["-b", "1024", "-J", "size=1", "-N", "256"], 8 << 10, &[]);
    let device = Arc::new(device);
    for round in 0..20_u8 {
        let volume = mount(&device);
        let before = superblock(&*device).s_error_count();
        let damage = Location::of(Structure::Inode).corrupt("for a test");
        extant_rt::parallel(4, |thread| {
            let root = volume.inode(InodeNumber::ROOT).unwrap();
            for step in 0..16_u8 {
                match thread {
                    0 => volume.handle_error(&damage),
                    1 => volume.set_label(&[b'a' + round, b'a' + step]).unwrap(),
                    2 => volume.journal.as_ref().unwrap().checkpoint().unwrap(),
                    _ => {
                        // The head of the list of orphans is in the superblock.
                        drop(volume.tmpfile(&root, &new(NewKind::File)).unwrap());
                        volume.sync().unwrap();
                    }
                }
            }
        });
        if round % 2 == 0 {
            volume.unmount().unwrap();
        } else {
            volume.sync().unwrap();
            let crashed = Arc::new(device.snapshot());
            volume.unmount().unwrap();
            mount(&crashed).unmount().unwrap();
            assert_clean(&*crashed, "after a crash");
        }
        let found = superblock(&*device);
        assert_eq!(&found.s_volume_name()[..3], &[b'a' + round, b'p', 0], "round {round}");
        assert_eq!(found.s_error_count(), before + 16, "round {round}");
        assert!(found.state().contains(State::ERROR));
    }
}

#[test]
fn errors_written_past_the_journal_outlast_a_replay() {
    if !has_e2fsprogs() {
        return;
    }
    let device = Arc::new(damaged_directory());
    let volume = mount(&device);
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    volume.create(&root, b"file", &new(NewKind::File)).unwrap();
    volume.sync().unwrap();
    // From here on the journal has a superblock without errors.
    let dir = volume.lookup(&root, b"dir").unwrap();
    volume.handle_error(&volume.lookup(&dir, b"name").map(drop).unwrap_err());
    let crashed = device.snapshot();
    let written = superblock(&crashed);
    assert_eq!(written.s_error_count(), 1);
    let has_errors = |found: &Superblock| {
        found.state().contains(State::ERROR)
            && found.s_error_count() == 1
            && found.s_first_error_block() == written.s_first_error_block()
            && found.s_last_error_func() == written.s_last_error_func()
            && found.last_error_time() == written.last_error_time()
    };
    let reading = Options { read_only: true, ..Options::default() };
    let (read, mounted) = Volume::mount(Arc::new(crashed.snapshot()), &reading).unwrap();
    assert!(mounted.replayed_blocks > 0 && has_errors(&read.superblock.lock()), "a replay into memory");
    let device = Arc::new(crashed);
    let volume = mount(&device);
    assert!(has_errors(&superblock(&*device)), "a replay");
    volume.unmount().unwrap();
    assert!(has_errors(&superblock(&*device)), "unmounting after it");
}

#[test]
fn errors_in_the_journal_that_are_newer_than_those_on_the_disk_are_replayed() {
    if !has_e2fsprogs() {
        return;
    }
    let device = Arc::new(damaged_directory());
    let volume = mount(&device);
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let dir = volume.lookup(&root, b"dir").unwrap();
    for _ in 0..3 {
        volume.handle_error(&volume.lookup(&dir, b"name").map(drop).unwrap_err());
    }
    volume.create(&root, b"file", &new(NewKind::File)).unwrap();
    volume.sync().unwrap();
    let crashed = device.snapshot();
    assert_eq!(superblock(&crashed).s_error_count(), 2, "the third is not written past the journal");
    let crashed = Arc::new(crashed);
    mount(&crashed).unmount().unwrap();
    assert_eq!(superblock(&*crashed).s_error_count(), 3);
}
