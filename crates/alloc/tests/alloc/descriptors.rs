//! Claims about descriptors that are read on demand: disks of several meta groups, of 32 groups each.

use crate::disk::{Disk, request};
use extant_alloc::{Allocator, ClusterRun, Error, InodeKind, MayUse, Setup};
use extant_ondisk::{Cluster, FsBlock, GroupFlags, GroupNumber, TransactionId, bitmap};
use extant_testing::Random;

const TID: TransactionId = TransactionId(5);
const GROUPS: u32 = 200;
const META_GROUPS: u32 = 7;

fn disk(uninit: bool) -> Disk {
    Disk::new(1 + 256 * u64::from(GROUPS), 256, uninit)
}

/// An allocator that is told so many free blocks and inodes.
fn open(disk: &Disk, free_blocks: u64, free_inodes: u64) -> Allocator {
    let setup = Setup { free_blocks, free_inodes, bitmap_bytes_max: u64::MAX, ..Setup::default() };
    Allocator::new(disk.geometry.clone(), &setup, Box::new(disk.clone()))
}

/// Takes all blocks that can be had, one after the other.
fn take_all(alloc: &Allocator) -> u64 {
    let mut taken = 0;
    while let Ok(mut reservation) = alloc.reserve(1, MayUse::RootBlocks) {
        match alloc.allocate(&mut reservation, &request(taken * 7, 1)) {
            Ok(run) => taken += u64::from(run.len),
            Err(error) => assert!(matches!(error, Error::NoSpace), "{error}"),
        }
        if alloc.descriptor_blocks_read() == META_GROUPS && alloc.free_blocks() == 0 {
            break;
        }
    }
    taken
}

#[test]
fn a_wrong_count_in_the_superblock_neither_hides_blocks_nor_makes_any() {
    let disk = disk(false);
    let (all, inodes) =
        (disk.free_blocks(), disk.descriptors.iter().map(|d| u64::from(d.free_inodes_count())));
    let inodes = inodes.sum::<u64>();
    for (blocks_claimed, inodes_claimed) in [(all, inodes), (0, 0), (all / 3, 5), (all + 999, inodes + 7)] {
        let alloc = open(&disk, blocks_claimed, inodes_claimed);
        assert_eq!(alloc.descriptor_blocks_read(), 0);
        assert_eq!((alloc.free_blocks(), alloc.free_inodes()), (blocks_claimed, inodes_claimed));
        assert_eq!(take_all(&alloc), all, "{blocks_claimed} claimed");
        assert_eq!(alloc.descriptor_blocks_read(), META_GROUPS);
        assert_eq!((alloc.free_blocks(), alloc.disk_free_blocks(), alloc.free_inodes()), (0, all, inodes));

        let alloc = open(&disk, blocks_claimed, inodes_claimed);
        let mut made = 0;
        while alloc.allocate_inode(TID, GroupNumber(made % GROUPS), InodeKind::Other).is_ok() {
            made += 1;
        }
        assert_eq!(u64::from(made), inodes);
        assert!(!alloc.count_exactly(), "the search for an inode read all descriptors");
        assert_eq!((alloc.free_blocks(), alloc.free_inodes()), (all, 0));
    }
}

#[test]
fn descriptors_are_read_where_blocks_are_looked_for() {
    let mut disk = disk(false);
    let free = disk.free_blocks();
    let take = |disk: &Disk, goal| {
        let alloc = open(disk, free, 0);
        let mut reservation = alloc.reserve(8, MayUse::RootBlocks).expect("blocks");
        let run = alloc.allocate(&mut reservation, &request(goal, 8)).expect("blocks");
        (run.start.0, alloc.descriptor_blocks_read())
    };
    let goal = 1 + 256 * 101 + 77;
    assert_eq!(take(&disk, goal), (goal, 1));
    // Full from the goal on, but for the last group.
    for group in 90..GROUPS - 1 {
        let bits = disk.blocks.get_mut(&GroupNumber(group)).expect("a bitmap");
        bitmap::set_range(bits, 0..256);
        disk.descriptors[group as usize].set_free_blocks_count(0);
    }
    let last = 1 + 256 * u64::from(GROUPS - 1);
    assert_eq!(take(&disk, goal), (last, 4));
}

#[test]
fn groups_whose_descriptors_cannot_be_read_are_left_alone_and_not_counted() {
    let mut disk = disk(false);
    disk.descriptors.truncate(64);
    let free = |disk: &Disk| disk.free_blocks();
    let alloc = open(&disk, free(&disk) * 3, 6400);
    assert!(matches!(alloc.inode_table(GroupNumber(64)), Err(Error::Store { .. })));
    assert!(matches!(alloc.inode_table(GroupNumber(65)), Err(Error::Corrupt { .. })));
    assert!(alloc.is_used(ClusterRun { start: Cluster(1 + 256 * 65), len: 1 }).is_err());
    assert_eq!(take_all(&alloc), free(&disk));
    assert_eq!(alloc.disk_free_blocks(), free(&disk));
    assert_eq!(alloc.free_inodes(), 64 * 32 - 10);
    assert!(alloc.inode_table(GroupNumber(GROUPS)).is_err(), "no such group");
}

#[test]
fn a_block_that_another_group_keeps_is_not_freed_once_that_group_is_read() {
    let mut disk = disk(false);
    // The table of a group of the fourth meta group lies in the first.
    let table = disk.geometry.group_first_block(GroupNumber(2)).0 + 200;
    disk.descriptors[100].set_inode_table(FsBlock(table));
    let bits = disk.blocks.get_mut(&GroupNumber(2)).expect("a bitmap");
    bitmap::set_range(bits, 200..204);
    disk.descriptors[2].set_free_blocks_count(bitmap::count_zeros(bits, 0..256));
    let alloc = open(&disk, disk.free_blocks(), 0);
    let run = ClusterRun { start: Cluster(table + 1), len: 1 };
    assert_eq!(alloc.inode_table(GroupNumber(100)).expect("a descriptor"), FsBlock(table));
    assert!(alloc.is_system(run).expect("descriptors"));
    assert!(matches!(alloc.mark_free(TID, run), Err(Error::Corrupt { .. })));
    // The group that holds it agrees with its bitmap, and gives it to nobody.
    assert_eq!(
        alloc.free_runs(GroupNumber(2)).expect("a bitmap").iter().map(|run| run.len).sum::<u32>(),
        252
    );

    // A group that was never used cannot hold it, or its count is wrong: it is left alone.
    disk.descriptors[2].set_flags(GroupFlags::BLOCK_UNINIT);
    disk.descriptors[2].set_free_blocks_count(256);
    let alloc = open(&disk, disk.free_blocks(), 0);
    alloc.read_descriptors(0..META_GROUPS).expect("descriptors");
    assert!(alloc.free_runs(GroupNumber(2)).is_err());
}

#[test]
fn every_table_is_found_however_they_lie() {
    let mut disk = disk(true);
    let mut random = Random::new(0x5CA1E);
    for round in 0..3 {
        let alloc = open(&disk, 0, 0);
        for (group, descriptor) in (0..).zip(&disk.descriptors) {
            let found = alloc.inode_table(GroupNumber(group)).expect("a descriptor");
            assert_eq!(found, descriptor.inode_table(), "group {group}, round {round}");
        }
        // Some tables elsewhere, then all.
        for descriptor in disk.descriptors.iter_mut().step_by(if round == 0 { 7 } else { 1 }) {
            descriptor.set_inode_table(FsBlock(2 + random.below(256 * u64::from(GROUPS) - 8)));
        }
    }
}

#[test]
fn threads_that_read_the_same_descriptors_count_them_once() {
    let disk = disk(true);
    let all = disk.free_blocks();
    for _ in 0..20 {
        let alloc = open(&disk, 1000, 0);
        let taken: u64 = extant_rt::parallel(4, |thread| {
            let mut taken = 0;
            for group in 0..GROUPS {
                let goal = 1 + 256 * u64::from(group) + thread as u64;
                if let Ok(mut reservation) = alloc.reserve(1, MayUse::RootBlocks)
                    && let Ok(run) = alloc.allocate(&mut reservation, &request(goal, 1))
                {
                    taken += u64::from(run.len);
                }
            }
            taken
        })
        .into_iter()
        .sum();
        alloc.count_exactly();
        assert_eq!((alloc.free_blocks(), alloc.disk_free_blocks()), (all - taken, all));
        assert_eq!(take_all(&alloc), all - taken);
    }
}
