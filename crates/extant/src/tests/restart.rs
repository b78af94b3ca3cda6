//! Crashes within operations that take many transactions: what the next mount finishes, and what it leaves.

use extant_block::{MemoryDevice, Recorder, Tearing};
use extant_ondisk::InodeNumber;
use extant_rt::Arc;

use super::disk::{Random, assert_clean, format, has_e2fsprogs, mount};
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Options;
use crate::mount::Volume;

const BLOCK: u64 = 1024;
const EXTENTS: u64 = 24_000;

/// A disk with a small journal and a file of so many extents that freeing them takes several transactions. Block `n` of
/// the file, where there is one, begins with `n`.
fn scattered() -> (MemoryDevice, InodeNumber) {
    let (device, inodes) = format(&["-b", "1024", "-J", "size=1", "-N", "64"], 64 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let inode = volume.inode(inodes[0]).unwrap();
    for block in 0..EXTENTS {
        let mut bytes = vec![1; BLOCK as usize];
        bytes[..8].copy_from_slice(&block.to_le_bytes());
        volume.write_at(&inode, Some(block * 2 * BLOCK), &bytes, true).unwrap();
    }
    volume.unmount().unwrap();
    drop((inode, volume));
    (device.snapshot(), inodes[0])
}

/// Images of crashes at places all over an operation, after which the disk was mounted once, and the volumes.
pub(super) fn crashes(
    base: &MemoryDevice,
    inode: InodeNumber,
    transactions_min: u64,
    operation: impl FnOnce(&Arc<Volume>, InodeRef),
    mut check: impl FnMut(&Arc<Volume>),
) {
    let recorder = Arc::new(Recorder::over(base.snapshot()));
    let options = Options { background: false, ..Options::default() };
    let volume = Volume::mount(recorder.clone(), &options).unwrap().0;
    let before = recorder.event_count();
    let commits = volume.writable().unwrap().stats().commits;
    let inode = volume.inode(inode).unwrap();
    operation(&volume, inode);
    volume.sync().unwrap();
    let transactions = volume.writable().unwrap().stats().commits - commits;
    assert!(transactions >= transactions_min, "{transactions} transactions");
    volume.unmount().unwrap();
    let log = recorder.log();
    let mut cursor = log.cursor();
    let mut random = Random::new(17);
    let step = ((log.events().len() - before) / 24).max(1);
    for events in (before..=log.events().len()).step_by(step) {
        cursor.advance_to(events).unwrap();
        let odds = random.below(5);
        let image = cursor.crash_image(Tearing::Requests, |_| random.below(4) < odds).unwrap();
        let image = Arc::new(image);
        let volume = mount(&image);
        check(&volume);
        volume.unmount().unwrap();
        assert_clean(&*image, &format!("after a crash at event {events}"));
    }
}

fn assert_begins_right(volume: &Volume, inode: &InodeRef, blocks: u64) {
    let mut head = [0; 8];
    for block in (0..blocks).step_by(97) {
        volume.read_at(inode, block * 2 * BLOCK, &mut head).unwrap();
        assert_eq!(u64::from_le_bytes(head), block);
    }
}

#[test]
fn a_long_truncate_is_done_or_not_begun() {
    if !has_e2fsprogs() {
        return;
    }
    let (base, inode) = scattered();
    let whole = (EXTENTS * 2 - 1) * BLOCK;
    let cut = 4_000 * BLOCK + 100;
    let check = |volume: &Arc<Volume>| {
        let inode = volume.inode(inode).unwrap();
        let size = inode.raw().size();
        assert!(size == whole || size == cut, "{size}");
        assert_begins_right(volume, &inode, if size == whole { EXTENTS } else { 2_000 });
        // Bytes behind the end must not come back.
        volume.set_size(&inode, whole).unwrap();
        let mut tail = vec![1; 5_000];
        volume.read_at(&inode, cut, &mut tail).unwrap();
        assert!(size == whole || tail.iter().all(|byte| *byte == 0));
    };
    crashes(&base, inode, 2, |volume, inode| volume.set_size(&inode, cut).unwrap(), check);
}

#[test]
fn a_long_deletion_is_done_or_not_begun() {
    if !has_e2fsprogs() {
        return;
    }
    let (base, inode) = scattered();
    let root = |volume: &Volume| volume.inode(InodeNumber::ROOT).unwrap();
    let delete = |volume: &Arc<Volume>, inode: InodeRef| {
        volume.unlink(&root(volume), b"a").unwrap();
        drop(inode);
        volume.evict_unlinked();
    };
    crashes(&base, inode, 2, delete, |volume| match volume.lookup(&root(volume), b"a") {
        Ok(inode) => assert_begins_right(volume, &inode, EXTENTS),
        Err(Error::NotFound) => assert!(volume.allocator.free_blocks() > EXTENTS),
        Err(error) => panic!("{error}"),
    });
}

#[test]
fn ranges_that_take_many_transactions_leave_a_valid_file_at_each() {
    if !has_e2fsprogs() {
        return;
    }
    let (base, inode) = scattered();
    let (offset, bytes) = (1_000 * BLOCK, 40_000 * BLOCK);
    // The kinds that may be half done do not need to be: one transaction may have room for all.
    for (what, transactions_min) in
        [(Fallocate::PunchHole, 2), (Fallocate::CollapseRange, 2), (Fallocate::InsertRange, 1)]
    {
        let operation = |volume: &Arc<Volume>, inode: InodeRef| {
            volume.fallocate(&inode, what, offset, bytes, true).unwrap();
        };
        crashes(&base, inode, transactions_min, operation, |volume| {
            let inode = volume.inode(inode).unwrap();
            assert_begins_right(volume, &inode, 500);
            assert!(inode.raw().size() >= bytes / 8, "{what:?}");
        });
    }
}
