//! Disks that only one host may write to at a time: Extant, the kernel and e2fsck keep each other off.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use extant::{Error, Filesystem, MmpHolder, Mount};
use extant_block::BlockDevice;
use extant_ondisk::{Checksums, Mmp, Superblock, mmp};
use extant_testing::{Output, has_e2fsprogs, read_at, scratch, text, write_at};

use super::disk::{assert_clean, make, run, unmount_by_kernel};

/// An image that nothing keeps from being opened twice, as a disk is that two hosts reach.
struct Shared(File);

impl BlockDevice for Shared {
    fn size(&self) -> u64 {
        self.0.metadata().expect("an image").len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        read_at(&self.0, buf, offset)
    }

    fn write_vectored_at(&self, mut offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        for buf in bufs {
            write_at(&self.0, buf, offset)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        write_at(&self.0, &vec![0; bytes as usize], offset)
    }
}

fn shared(image: &Path) -> Shared {
    Shared(File::options().read(true).write(true).open(image).expect("an image"))
}

fn open(image: &Path) -> Result<Filesystem, Error> {
    Mount::new().background(false).open_device(Arc::new(shared(image)))
}

/// A disk whose block a mount renews every second, by a thread.
fn disk(scratch: &Path, features: &str) -> Option<PathBuf> {
    extant_testing::has_threads().then(|| unmounted_disk(scratch, features)).flatten()
}

/// A disk whose block is to be renewed every second.
fn unmounted_disk(scratch: &Path, features: &str) -> Option<PathBuf> {
    if !has_e2fsprogs() {
        return None;
    }
    let features = format!("mmp,{features}");
    let options = ["-O", &features, "-E", "mmp_update_interval=1"];
    Some(make(scratch, &options, |tree| fs::write(tree.join("f"), b"x").expect("a file")))
}

/// The block, its position and its checksum.
fn block(image: &Path) -> (Mmp, u64, Checksums) {
    let device = shared(image);
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).expect("a superblock");
    let superblock = Superblock::parse(&bytes).expect("a superblock");
    let (offset, checksums) = (superblock.s_mmp_block() * 1024, Checksums::new(&superblock));
    device.read_at(offset, &mut bytes).expect("the block");
    (Mmp::parse(&bytes, &checksums).expect("a sound block"), offset, checksums)
}

/// Writes what another host may write.
fn put_block(image: &Path, seq: u32, node: &[u8]) -> Mmp {
    let (mut mmp, offset, checksums) = block(image);
    let mut field = [0; 64];
    field[..node.len()].copy_from_slice(node);
    mmp.set_mmp_seq(seq);
    mmp.set_mmp_nodename(field);
    mmp.set_mmp_bdevname(*b"sdz\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    mmp.set_mmp_time(1_700_000_000);
    mmp.update_checksum(&checksums);
    shared(image).write_at(offset, mmp.as_bytes()).expect("the block");
    mmp
}

fn mount_by_kernel(image: &Path, at: &Path) -> Output {
    fs::create_dir_all(at).expect("a directory");
    run("mount", &["-t", "ext4", "-o", "loop", text(image)], at)
}

/// Whether the kernel mounts disks with protection at all; else says that the test is skipped.
fn kernel_mounts(scratch: &Path) -> bool {
    let apart = scratch.join("apart");
    fs::create_dir(&apart).expect("a directory");
    let Some(image) = disk(&apart, "64bit") else { return false };
    let mounted = mount_by_kernel(&image, &apart.join("at"));
    if mounted.status.success() {
        assert!(unmount_by_kernel(&apart.join("at"), &image));
    } else {
        println!("skipped: no mount by the kernel: {mounted:?}");
    }
    mounted.status.success()
}

fn refused(result: Result<Filesystem, Error>) -> MmpHolder {
    match result {
        Err(Error::InUse(by)) => by,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_disk_in_use_here_is_refused_by_the_kernel_and_e2fsck() {
    let scratch = scratch();
    let Some(image) = disk(scratch.path(), "metadata_csum") else { return };
    let has_kernel = cfg!(target_os = "linux") && kernel_mounts(scratch.path());
    let at = scratch.path().join("at");
    let fs = open(&image).expect("a mount");
    fs.write("/ours", b"ours").expect("a file");
    thread::scope(|scope| {
        scope.spawn(|| {
            let judged = run("e2fsck", &["-p"], &image);
            let said = String::from_utf8_lossy(&judged.stderr);
            assert!(!judged.status.success() && said.contains("MMP"), "{judged:?}");
        });
        if has_kernel {
            let mounted = mount_by_kernel(&image, &at);
            assert!(!mounted.status.success(), "mounted twice");
        }
    });
    fs.write("/more", b"more").expect("a file");
    fs.unmount().expect("unmount");
    let (mmp, ..) = block(&image);
    assert_eq!((mmp.mmp_seq(), mmp.mmp_nodename()), (mmp::SEQ_CLEAN, [0; 64]));
    assert_clean(&image, "given up");
    if has_kernel {
        let mounted = mount_by_kernel(&image, &at);
        assert!(mounted.status.success(), "{mounted:?}");
        assert_eq!(fs::read(at.join("more")).expect("a file"), b"more");
        assert!(unmount_by_kernel(&at, &image));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_the_kernel_has_mounted_is_refused_and_the_host_named() {
    let scratch = scratch();
    if !kernel_mounts(scratch.path()) {
        return;
    }
    let Some(image) = disk(scratch.path(), "^metadata_csum") else { return };
    let at = scratch.path().join("at");
    assert!(mount_by_kernel(&image, &at).status.success());
    let result = open(&image);
    assert!(unmount_by_kernel(&at, &image));
    let by = refused(result);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(by.node, host);
    assert!(by.device.starts_with("loop") && !by.is_fsck, "{by:?}");
    open(&image).expect("given up").unmount().expect("unmount");
    assert_clean(&image, "after both");
}

#[test]
fn what_a_dead_host_left_is_taken_after_a_wait() {
    let scratch = scratch();
    let Some(image) = disk(scratch.path(), "metadata_csum") else { return };
    let fs = open(&image).expect("a mount");
    fs.write("/f", b"durable").expect("a file");
    fs.sync().expect("sync");
    let copy = scratch.path().join("copy");
    fs::copy(&image, &copy).expect("a copy");
    fs.unmount().expect("unmount");
    let start = Instant::now();
    let fs = open(&copy).expect("nobody renews it");
    assert!(start.elapsed() >= Duration::from_secs(11));
    assert!(fs.mounted().replayed_blocks > 0);
    assert_eq!(fs.read("/f").expect("a file"), b"durable");
    fs.unmount().expect("unmount");
    assert_clean(&copy, "taken over");
}

#[test]
fn a_check_under_way_is_refused_at_once_and_named() {
    let scratch = scratch();
    let Some(image) = unmounted_disk(scratch.path(), "metadata_csum") else { return };
    put_block(&image, mmp::SEQ_FSCK, b"evil\x1b[2J");
    let before = fs::read(&image).expect("an image");
    let by = refused(open(&image));
    let named = MmpHolder {
        node: "evil\\x1b[2J".to_owned(),
        device: "sdz".to_owned(),
        time_s: 1_700_000_000,
        is_fsck: true,
    };
    assert_eq!(by, named);
    let reading =
        Mount::new().read_only(true).open_device(Arc::new(shared(&image))).expect("reading asks nobody");
    assert_eq!(reading.mmp_holder().expect("a sound block"), Some(named));
    assert_eq!(reading.read("/f").expect("a file"), b"x");
    drop(reading);
    assert!(fs::read(&image).expect("an image") == before, "something was written");
}

#[test]
fn another_host_that_takes_the_disk_ends_all_writing() {
    let scratch = scratch();
    let Some(image) = disk(scratch.path(), "metadata_csum") else { return };
    let fs = open(&image).expect("a mount");
    let first = block(&image).0.mmp_seq();
    thread::sleep(Duration::from_millis(1500));
    assert_ne!(block(&image).0.mmp_seq(), first, "not renewed");
    fs.write("/f", b"in memory").expect("a file");
    let theirs = put_block(&image, 7, b"elsewhere");
    thread::sleep(Duration::from_millis(1500));
    let before = fs::read(&image).expect("an image");
    let said = fs.sync().expect_err("nothing can be written").to_string();
    assert!(said.contains("in use on host elsewhere, as sdz"), "{said}");
    assert!(matches!(fs.create_dir("/d").map_err(Error::into_cause), Err(Error::ReadOnly)));
    assert!(fs.unmount().is_err());
    assert!(fs::read(&image).expect("an image") == before, "something was written");
    assert_eq!(block(&image).0, theirs);
}

#[test]
fn intervals_and_places_that_no_host_writes_are_bounded() {
    let scratch = scratch();
    let Some(image) = disk(scratch.path(), "^metadata_csum") else { return };
    let with = |change: &dyn Fn(&mut Superblock)| {
        let device = shared(&image);
        let mut bytes = [0; 1024];
        device.read_at(1024, &mut bytes).expect("a superblock");
        let mut superblock = Superblock::parse(&bytes).expect("a superblock");
        change(&mut superblock);
        superblock.update_checksum();
        device.write_at(1024, superblock.as_bytes()).expect("a superblock");
        let opened = open(&image);
        device.write_at(1024, &bytes).expect("a superblock");
        opened
    };
    for place in [0, 1 << 20, u64::MAX / 1024, u64::MAX] {
        let opened = with(&|superblock| superblock.set_s_mmp_block(place));
        assert!(matches!(opened, Err(Error::Corrupt { .. })), "block {place}: {opened:?}");
    }
    for seconds in [0, u16::MAX] {
        let fs = with(&|superblock| superblock.set_s_mmp_update_interval(seconds)).expect("a mount");
        let interval_s = block(&image).0.mmp_check_interval();
        assert_eq!(interval_s, if seconds == 0 { 10 } else { 300 });
        fs.unmount().expect("unmount");
    }
}

#[test]
fn no_disk_makes_anybody_wait_for_more_than_six_minutes() {
    let scratch = scratch();
    let Some(image) = unmounted_disk(scratch.path(), "metadata_csum") else { return };
    let wait = |read_only| {
        Mount::new().read_only(read_only).mmp_wait(&shared(&image)).expect("a sound block").as_secs()
    };
    for (seq, interval_s, wait_s) in [
        (mmp::SEQ_CLEAN, u16::MAX, 0),
        (mmp::SEQ_FSCK, u16::MAX, 0),
        (7, 0, 11),
        (7, 10, 21),
        (7, 300, 360),
        (7, u16::MAX, 360),
    ] {
        let mut mmp = put_block(&image, seq, b"elsewhere");
        let (_, offset, checksums) = block(&image);
        mmp.set_mmp_check_interval(interval_s);
        mmp.update_checksum(&checksums);
        shared(&image).write_at(offset, mmp.as_bytes()).expect("the block");
        assert_eq!((wait(false), wait(true)), (wait_s, 0), "sequence {seq}, {interval_s} s");
    }
}

/// A device that reports lost writes once, to the renewal that it is armed for, and only while a flush overlaps it or after a while.
struct TellsOnce {
    inner: Shared,
    block_offset: u64,
    is_armed: AtomicBool,
    is_renewing: AtomicBool,
    is_synced: AtomicBool,
}

impl BlockDevice for TellsOnce {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.inner.write_vectored_at(offset, bufs)
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, buf)?;
        if offset == self.block_offset && self.is_armed.swap(false, Ordering::SeqCst) {
            self.is_renewing.store(true, Ordering::SeqCst);
            (0..100)
                .take_while(|_| !self.is_synced.load(Ordering::SeqCst))
                .for_each(|_| thread::sleep(Duration::from_millis(10)));
            return Err(io::Error::other("writes were lost"));
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.write_zeroes(offset, bytes)
    }
}

#[test]
fn no_sync_that_overlaps_a_renewal_that_is_told_of_lost_writes_succeeds() {
    let scratch = scratch();
    let Some(image) = disk(scratch.path(), "metadata_csum") else { return };
    let device = Arc::new(TellsOnce {
        inner: shared(&image),
        block_offset: block(&image).1,
        is_armed: AtomicBool::new(false),
        is_renewing: AtomicBool::new(false),
        is_synced: AtomicBool::new(false),
    });
    let fs = Mount::new().background(false).open_device(device.clone()).expect("a mount");
    fs.write("/f", b"lost").expect("a file");
    device.is_armed.store(true, Ordering::SeqCst);
    while !device.is_renewing.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
    let synced = fs.sync();
    device.is_synced.store(true, Ordering::SeqCst);
    assert!(synced.is_err(), "the journal was not told of the loss");
    assert!(fs.unmount().is_err());
}
