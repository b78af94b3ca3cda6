//! What `fallocate` promises: a write into allocated blocks needs no space, however full the disk is.

use extant_alloc::{MayUse, Reservation};
use extant_block::MemoryDevice;
use extant_ondisk::InodeNumber;
use extant_rt::Arc;

use super::disk::{Random, assert_clean, dumped, format, has_e2fsprogs, mount_with_pages};
use super::names::new;
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Volume;
use crate::namespace::NewKind;

const FILE_BYTES: u64 = 6 << 20;
/// A range of the file, whose last block is a hole.
const RANGE_BYTES: u64 = FILE_BYTES / 4;

/// The order in which a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Forwards,
    Backwards,
    /// Every other block, at random.
    Scattered,
}

fn disk(block_size: u64) -> Arc<MemoryDevice> {
    let block_size = block_size.to_string();
    Arc::new(format(&["-b", &block_size, "-J", "size=4", "-N", "256"], 24 << 10, &[]).0)
}

fn create(volume: &Arc<Volume>, name: &str) -> InodeRef {
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    volume.create(&root, name.as_bytes(), &new(NewKind::File)).unwrap()
}

/// Writes as root until nothing more can be written, not even one byte after a commit.
fn fill(volume: &Arc<Volume>) {
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let file = volume.lookup(&root, b"fill").unwrap_or_else(|_| create(volume, "fill"));
    let mut bytes = 1 << 20;
    let mut at = volume.attributes(&file).size;
    while bytes > 0 {
        match volume.write_at(&file, Some(at), &vec![9; bytes], true) {
            Ok(written) => at += written as u64,
            Err(Error::NoSpace) => {
                volume.sync().unwrap();
                bytes /= 2;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// The offsets of the blocks that are written, in their order.
fn offsets(order: Order, block_size: u64, random: &mut Random) -> Vec<u64> {
    let mut offsets: Vec<_> = (0..FILE_BYTES / block_size).map(|block| block * block_size).collect();
    offsets.retain(|offset| !(offset + block_size).is_multiple_of(RANGE_BYTES));
    match order {
        Order::Forwards => {}
        Order::Backwards => offsets.reverse(),
        Order::Scattered => {
            offsets.retain(|offset| offset / block_size % 2 == 1);
            for index in (1..offsets.len()).rev() {
                offsets.swap(index, random.below(index as u64 + 1) as usize);
            }
        }
    }
    offsets
}

/// A disk that is filled after a file on it was allocated.
#[derive(Clone, Copy, Debug)]
struct Case {
    block_size: u64,
    pages: u64,
    order: Order,
    /// The allocated blocks are behind the end of the file.
    keep_size: bool,
    /// Nor is anything left of the reserved pool.
    is_pool_empty: bool,
}

/// Takes all that is left, of the reserved pool too.
fn take_rest(volume: &Volume) -> Reservation<'_> {
    volume.sync().unwrap();
    let mut all = volume.allocator.reserve(0, MayUse::Reserved).unwrap();
    while let Ok(block) = volume.allocator.reserve(1, MayUse::Reserved) {
        all.merge(block);
    }
    all
}

fn overwrite(case: Case) {
    let Case { block_size, pages, order, keep_size, is_pool_empty } = case;
    let device = disk(block_size);
    let volume = mount_with_pages(&device, pages, true);
    let file = create(&volume, "allocated");
    // As many extents as the root of a tree has room for, a block apart: the first split needs a block.
    for at in (0..FILE_BYTES).step_by(RANGE_BYTES as usize) {
        let what = Fallocate::Allocate { keep_size };
        volume.fallocate(&file, what, at, RANGE_BYTES - block_size, false).unwrap();
    }
    assert_eq!(volume.all_extents(file.number, &file.raw()).unwrap().len(), 4, "{case:?}");
    fill(&volume);
    assert_eq!(volume.statistics().available_blocks, 0, "{case:?}");
    let rest = is_pool_empty.then(|| take_rest(&volume));
    let mut expected = vec![0; (FILE_BYTES - block_size) as usize];
    let mut random = Random::new(block_size ^ pages);
    for offset in offsets(order, block_size, &mut random) {
        let content = random.bytes(block_size as usize);
        let written = volume.write_at(&file, Some(offset), &content, false);
        assert_eq!(written.map_err(|error| error.to_string()), Ok(content.len()), "{case:?}: at {offset}");
        expected[offset as usize..][..content.len()].copy_from_slice(&content);
    }
    volume.sync_inode(&file, true).unwrap();
    drop(rest);
    if keep_size && order == Order::Scattered {
        // The last block of the file was not among those written.
        expected.truncate(expected.len() - block_size as usize);
    }
    let mut read = vec![1; expected.len()];
    assert_eq!(volume.read_at(&file, 0, &mut read).unwrap(), expected.len());
    assert!(read == expected, "{case:?}: read");
    let number = file.number;
    drop(file);
    volume.unmount().unwrap();
    assert_clean(&*device, &format!("{case:?}"));
    assert!(dumped(&*device, number) == expected, "{case:?}: by debugfs");
}

fn overwrite_all(is_pool_empty: bool) {
    if !has_e2fsprogs() {
        return;
    }
    for block_size in [1024, 4096] {
        for pages in [0, 16 << 20] {
            for order in [Order::Forwards, Order::Backwards, Order::Scattered] {
                for keep_size in [false, true] {
                    // Blocks behind the end must not be zeroed out, as in Linux.
                    let is_refused = is_pool_empty && keep_size && order != Order::Backwards;
                    if !is_refused {
                        overwrite(Case { block_size, pages, order, keep_size, is_pool_empty });
                    }
                }
            }
        }
    }
}

#[test]
fn a_file_that_was_allocated_can_be_written_on_a_full_disk() {
    overwrite_all(false);
}

#[test]
fn a_file_that_was_allocated_can_be_written_where_not_one_block_is_left() {
    overwrite_all(true);
}

#[test]
fn a_hole_can_be_punched_on_a_full_disk() {
    if !has_e2fsprogs() {
        return;
    }
    let device = disk(1024);
    let volume = mount_with_pages(&device, 0, true);
    let file = create(&volume, "whole");
    volume.write_at(&file, None, &vec![5; 1 << 20], false).unwrap();
    fill(&volume);
    for block in (1..1000).step_by(2) {
        volume.fallocate(&file, Fallocate::PunchHole, block * 1024, 1024, false).unwrap();
        // Other files take the freed block at once.
        if block % 20 == 1 {
            volume.sync().unwrap();
            fill(&volume);
        }
    }
    drop(file);
    volume.unmount().unwrap();
    assert_clean(&*device, "after holes");
}
