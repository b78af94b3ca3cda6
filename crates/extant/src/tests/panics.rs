//! A panic of a background thread ends in errors for the threads that depend on it; no thread waits for ever.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::InodeNumber;
use extant_rt::{Arc, AtomicBool, Ordering};

use super::disk::{assert_clean, format, has_e2fsprogs, has_threads, mount};
use super::names::new;
use crate::error::Error;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::NewKind;

/// More than any of these takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A device that panics at a write of a thread of some name.
struct Trap {
    inner: MemoryDevice,
    thread: &'static str,
    is_armed: AtomicBool,
}

impl Trap {
    fn spring(&self) {
        let is_meant = std::thread::current().name().is_some_and(|name| name.starts_with(self.thread));
        let springs = is_meant && self.is_armed.swap(false, Ordering::SeqCst);
        assert!(!springs, "a panic of {} for a test", self.thread);
    }
}

impl BlockDevice for Trap {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.spring();
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

/// Runs `body` on a disk whose device panics in threads of that name, once it is armed; what was synced before must be there
/// afterwards.
fn with_trap(thread: &'static str, body: fn(&Trap, &Arc<Volume>)) {
    if !has_e2fsprogs() {
        return;
    }
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let inner = format(&["-b", "1024", "-J", "size=1", "-N", "64"], 16 << 10, &[]).0;
        let device = Arc::new(Trap { inner, thread, is_armed: AtomicBool::new(false) });
        let options = Options { page_cache_bytes: Some(4 << 20), ..Options::default() };
        let volume = Volume::mount(device.clone(), &options).unwrap().0;
        let root = volume.inode(InodeNumber::ROOT).unwrap();
        drop(volume.create(&root, b"before", &new(NewKind::File)).unwrap());
        volume.sync().unwrap();
        drop(root);
        body(&device, &volume);
        let synced = volume.sync();
        assert!(matches!(synced, Err(Error::Journal(_) | Error::ReadOnly)), "{synced:?}");
        assert!(volume.unmount().is_err());
        drop(volume);
        let crashed = Arc::new(device.inner.snapshot());
        let volume = mount(&crashed);
        let root = volume.inode(InodeNumber::ROOT).unwrap();
        volume.lookup(&root, b"before").unwrap();
        drop(root);
        volume.unmount().unwrap();
        assert_clean(&*crashed, thread);
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(PATIENCE).expect("it hangs or failed");
}

#[test]
fn a_panic_of_a_writeback_thread_lets_go_of_those_who_sync() {
    if !has_threads() {
        return;
    }
    with_trap("writeback", |device, volume| {
        let root = volume.inode(InodeNumber::ROOT).unwrap();
        let file = volume.create(&root, b"file", &new(NewKind::File)).unwrap();
        volume.write_at(&file, Some(0), &[7; 100_000], true).unwrap();
        device.is_armed.store(true, Ordering::SeqCst);
        assert!(volume.sync().is_err(), "a sync of what a dead thread was to write succeeds");
        assert!(!device.is_armed.load(Ordering::SeqCst), "no thread of the contexts wrote");
    });
}

#[test]
fn a_panic_of_the_committing_thread_stops_all_writing() {
    if !has_threads() {
        return;
    }
    with_trap("extant-journal", |device, volume| {
        let root = volume.inode(InodeNumber::ROOT).unwrap();
        drop(volume.create(&root, b"file", &new(NewKind::File)).unwrap());
        device.is_armed.store(true, Ordering::SeqCst);
        let journal = volume.journal.as_ref().unwrap();
        journal.ask_for_commit();
        while !journal.is_aborted() {
            extant_rt::sleep(Duration::from_millis(5));
        }
    });
}
