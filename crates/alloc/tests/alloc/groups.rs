//! Claims about single groups: uninitialised, damaged, reserved, and where runs come from.

use crate::disk::{Disk, request};
use extant_alloc::{
    Allocator, ClusterRun, Error, InodeKind, MayUse, NewInode, Purpose, Request, Scan, Tuning,
};
use extant_ondisk::{Cluster, FsBlock, GroupFlags, GroupNumber, InodeNumber, TransactionId, bitmap};

const TID: TransactionId = TransactionId(5);

fn take(alloc: &Allocator, goal: u64, len: u32) -> ClusterRun {
    let mut reservation = alloc.reserve(u64::from(len), MayUse::RootBlocks).expect("free blocks");
    alloc.allocate(&mut reservation, &request(goal, len)).expect("a reserved block")
}

fn run(start: u64, len: u32) -> ClusterRun {
    ClusterRun { start: Cluster(start), len }
}

#[test]
fn uninitialised_groups_need_no_store_and_lose_their_flag_with_their_first_bit() {
    let disk = Disk::new(1 + 256 * 5, 256, true);
    let alloc = disk.open();
    let group = GroupNumber(3);
    let taken = take(&alloc, 1 + 256 * 3 + 100, 4);
    assert_eq!(taken, run(1 + 256 * 3 + 100, 4));
    assert!(alloc.freeze(TID).groups.is_empty(), "taking is nothing the disk knows of");
    alloc.mark_used(TID, taken).expect("taken blocks");
    let frozen = alloc.freeze(TID);
    let [only] = &frozen.groups[..] else { panic!("one group changed") };
    assert_eq!(only.group, group);
    assert_eq!(only.descriptor.flags(), GroupFlags::INODE_UNINIT);
    assert!(only.inode_bitmap.is_none());
    let bits = only.block_bitmap.as_ref().expect("a changed bitmap");
    assert!(
        bitmap::is_range_set(bits, 100..104) && bitmap::is_range_set(bits, 256..8192),
        "bits and padding"
    );

    let inode = alloc.allocate_inode(TID.next(), group, InodeKind::Other).expect("an inode").number;
    assert_eq!(inode.0, 3 * 32 + 1);
    let frozen = alloc.freeze(TID.next());
    assert_eq!(frozen.groups[0].descriptor.flags(), GroupFlags::empty());
    assert_eq!(frozen.groups[0].descriptor.itable_unused(), 31);
    assert!(frozen.groups[0].block_bitmap.is_none());
    assert_eq!(alloc.itable_unused(group).expect("a group"), 31);
}

#[test]
fn a_frozen_bitmap_does_not_see_later_changes() {
    let alloc = Disk::new(1 + 256 * 2, 256, false).open();
    let (first, second) = (take(&alloc, 300, 8), take(&alloc, 300, 8));
    alloc.mark_used(TID, first).expect("taken blocks");
    let frozen = alloc.freeze(TID);
    alloc.mark_used(TID.next(), second).expect("taken blocks");
    alloc.mark_free(TID.next(), first).expect("used blocks");
    let bits = frozen.groups[0].block_bitmap.as_ref().expect("a changed bitmap");
    let bit = (first.start.0 - 1 - 256) as u32;
    assert!(bitmap::is_range_set(bits, bit..bit + 8) && bitmap::is_range_clear(bits, bit + 8..bit + 16));
}

#[test]
fn freed_blocks_come_back_only_when_their_transaction_is_committed() {
    let alloc = Disk::new(1 + 256, 256, false).open();
    let all = alloc.free_blocks();
    let held: Vec<ClusterRun> =
        std::iter::from_fn(|| (alloc.free_blocks() > 0).then(|| take(&alloc, 0, 1))).collect();
    for run in &held {
        alloc.mark_used(TID, *run).expect("taken blocks");
    }
    alloc.freeze(TID);
    for run in &held {
        alloc.mark_free(TID.next(), *run).expect("used blocks");
    }
    assert_eq!((alloc.free_blocks(), alloc.pending_free(), alloc.disk_free_blocks()), (0, all, all));
    alloc.committed(TID);
    alloc.freeze(TID.next());
    alloc.committed(TID);
    assert!(matches!(alloc.reserve(1, MayUse::RootBlocks), Err(Error::NoSpace)));
    alloc.committed(TID.next());
    assert_eq!((alloc.free_blocks(), alloc.pending_free()), (all, 0));
    assert_eq!(u64::from(take(&alloc, 0, all as u32).len), all, "freed blocks join with their neighbours");
}

#[test]
fn the_groups_own_blocks_cannot_be_freed() {
    let disk = Disk::new(1 + 256 * 6, 256, false);
    let alloc = disk.open();
    let own = [1, 2].map(FsBlock).into_iter().chain(disk.descriptors.iter().flat_map(|descriptor| {
        let last = FsBlock(descriptor.inode_table().0 + 3);
        [descriptor.block_bitmap(), descriptor.inode_bitmap(), descriptor.inode_table(), last]
    }));
    for block in own {
        let run = ClusterRun { start: alloc.geometry().cluster_of(block), len: 1 };
        assert!(alloc.is_system(run).expect("descriptors") && alloc.is_used(run).expect("a bitmap"));
        assert!(matches!(alloc.mark_free(TID, run), Err(Error::Corrupt { .. })), "block {block}");
    }
    for outside in [run(0, 1), run(1 + 256 * 6, 1), run(256 * 6, 2), run(u64::MAX, 2), run(5, 0)] {
        assert!(alloc.mark_free(TID, outside).is_err(), "{outside:?}");
    }
    assert!(alloc.mark_used(TID, run(1 + 200, 1)).is_err(), "nobody took it");
    assert!(alloc.freeze(TID).groups.is_empty());
}

#[test]
fn a_damaged_group_is_skipped_and_its_blocks_are_not_counted() {
    let mut disk = Disk::new(1 + 256 * 3, 256, false);
    disk.blocks.remove(&GroupNumber(1));
    bitmap::set(disk.blocks.get_mut(&GroupNumber(2)).expect("a bitmap"), 77);
    let alloc = disk.open();
    let good = u64::from(disk.descriptors[0].free_blocks_count());
    let mut reservation =
        alloc.reserve(alloc.free_blocks(), MayUse::RootBlocks).expect("what descriptors promise");
    let mut taken = 0;
    loop {
        match alloc.allocate(&mut reservation, &request(300, 50)) {
            Ok(run) => {
                assert!(run.start.0 <= 256);
                taken += u64::from(run.len);
            }
            Err(error) => break assert!(matches!(error, Error::NoSpace)),
        }
    }
    assert_eq!(taken, good);
    assert!(alloc.is_used(run(1 + 256, 1)).is_err());
    drop(reservation);
    assert_eq!(alloc.free_blocks(), 0);
    disk.inodes.remove(&GroupNumber(0));
    let made = disk.open().allocate_inode(TID, GroupNumber(0), InodeKind::Other);
    let inode = made.expect("another group's inode").number;
    assert_eq!(inode.0, 33);
}

#[test]
fn runs_are_contiguous_from_the_goal_and_long_ones_are_preferred() {
    let alloc = Disk::new(1 + 256 * 4, 256, false).open();
    assert_eq!(take(&alloc, 400, 10), run(400, 10));
    assert_eq!(
        take(&alloc, 400, 10),
        run(259, 10),
        "the goal is taken: where the run of the group's smallest chunk of ten blocks begins"
    );
    let elsewhere = take(&alloc, 395, 10);
    assert!(
        elsewhere.len == 10 && elsewhere.start.0 < 395,
        "five blocks at the goal are too few: {elsewhere:?}"
    );
    assert_eq!(take(&alloc, 395, 5), run(395, 5));
    let widest = take(&alloc, 1 + 256, 300);
    assert_eq!(widest.len, 256, "no run crosses a group");
    assert_eq!(widest.start.0, 1 + 256 * 2);
}

#[test]
fn reserved_blocks_are_for_the_privileged() {
    let disk = Disk::new(1 + 256, 256, false);
    let alloc = disk.open_with(10, Tuning::default());
    let all = alloc.free_blocks();
    assert!(matches!(alloc.reserve(all - 9, MayUse::Free), Err(Error::NoSpace)));
    let mut most = alloc.reserve(all - 10, MayUse::Free).expect("all but the reserved");
    assert!(matches!(alloc.reserve(1, MayUse::Free), Err(Error::NoSpace)));
    most.merge(alloc.reserve(10, MayUse::RootBlocks).expect("the reserved"));
    assert_eq!((most.blocks(), alloc.free_blocks()), (all, 0));
    let part = most.split(7);
    most.shrink_to(3);
    assert_eq!((part.blocks(), most.blocks(), alloc.free_blocks()), (7, 3, all - 10));
    drop((part, most));
    assert_eq!(alloc.free_blocks(), all);
    assert!(matches!(alloc.reserve(u64::MAX, MayUse::RootBlocks), Err(Error::NoSpace)));
}

#[test]
fn directories_prefer_groups_with_blocks() {
    let alloc = Disk::new(1 + 256 * 8, 256, true).open();
    let directory = alloc.allocate_inode(TID, GroupNumber(6), InodeKind::Directory).expect("an inode").number;
    assert_eq!(directory.0, 7 * 32 + 1, "the next group of the parent's flex group");
    while let Ok(mut reservation) = alloc.reserve(1, MayUse::RootBlocks) {
        let run = alloc.allocate(&mut reservation, &request(1 + 256 * 4, 1)).expect("a block");
        if run.start.0 > 256 * 5 {
            break;
        }
    }
    let directory = alloc.allocate_inode(TID, GroupNumber(7), InodeKind::Directory).expect("an inode").number;
    assert_eq!(directory.0, 5 * 32 + 1, "group 4 is full");
    let packed = Disk::new(1 + 256 * 8, 256, true).open_with(0, Tuning::packed());
    let directory =
        packed.allocate_inode(TID, GroupNumber(6), InodeKind::Directory).expect("an inode").number;
    assert_eq!(directory.0, 4 * 32 + 1, "the start of the parent's flex group");
}

/// A disk of so many groups, with the directories that mkfs makes.
fn made_disk(groups: u64) -> Disk {
    let mut disk = Disk::new(1 + 256 * groups, 256, true);
    disk.descriptors[0].set_used_dirs_count(2);
    disk
}

/// The groups of the next directories at the top.
fn top_directories(alloc: &Allocator, count: u32) -> Vec<u32> {
    let make = |_| alloc.allocate_inode(TID, GroupNumber(0), InodeKind::TopDirectory).expect("an inode");
    (0..count).map(make).map(|made| (made.number.0 - 1) / 32).collect()
}

#[test]
fn directories_at_the_top_are_spread_over_groups_with_room() {
    let alloc = made_disk(8).open();
    take(&alloc, 1 + 256 * 2, 200);
    let first = top_directories(&alloc, 8);
    assert_eq!(first, [0, 4, 6, 1, 5, 3, 7, 0], "fewest directories first; group 2 has too few blocks");
}

#[test]
fn directories_at_the_top_of_a_large_disk_share_no_group_though_each_begins_with_tables() {
    let mut groups = top_directories(&made_disk(1024).open(), 128);
    groups.sort_unstable();
    assert_eq!(groups, (0..1024).step_by(8).collect::<Vec<_>>());
}

#[test]
fn directories_at_the_top_are_in_as_many_bands_as_there_are() {
    for bands in [2, 5, 12, 16] {
        let mut used: Vec<_> = top_directories(&made_disk(64 * bands).open(), bands as u32)
            .iter()
            .map(|group| group / 64)
            .collect();
        used.sort_unstable();
        assert_eq!(used, (0..bands as u32).collect::<Vec<_>>());
    }
}

#[test]
fn a_change_costs_a_bitmap_and_a_descriptor_once_a_transaction() {
    let alloc = Disk::new(1 + 256 * 4, 256, true).open();
    let (first, second, other) = (take(&alloc, 300, 2), take(&alloc, 300, 2), take(&alloc, 800, 2));
    assert_eq!(alloc.mark_used(TID, first).expect("taken blocks"), 2);
    assert_eq!(alloc.mark_used(TID, second).expect("taken blocks"), 0);
    assert_eq!(alloc.mark_used(TID, other).expect("taken blocks"), 2);
    let NewInode { number: inode, written: blocks, .. } =
        alloc.allocate_inode(TID, GroupNumber(1), InodeKind::Other).expect("an inode");
    assert_eq!((inode.0, blocks), (33, 1), "the descriptor is written anyway");
    assert_eq!(alloc.freeze(TID).groups.len(), 2);
    assert_eq!(alloc.free_inode(TID.next(), inode, InodeKind::Other).expect("a used inode"), 2);
    assert_eq!(alloc.mark_free(TID.next(), first).expect("used blocks"), 1);
}

#[test]
fn a_search_for_runs_that_do_not_exist_does_not_read_every_bitmap() {
    const GROUPS: u32 = 60;
    let mut disk = Disk::new(1 + 256 * u64::from(GROUPS), 256, false);
    for (number, bits) in &mut disk.blocks {
        (0..256).step_by(2).for_each(|bit| bitmap::set(bits, bit));
        let free = bitmap::count_zeros(bits, 0..256);
        disk.descriptors[number.0 as usize].set_free_blocks_count(free);
    }
    let bitmaps_read = |scan| {
        let alloc = disk.open_with(0, Tuning { scan, ..Tuning::default() });
        for goal in [300, 5000, 9000] {
            assert_eq!(take(&alloc, goal, 16).len, 1);
        }
        alloc.statistics().bitmaps_read
    };
    let (nearest_fit, nearest) = (bitmaps_read(Scan::NearestFit), bitmaps_read(Scan::Nearest));
    assert!(nearest_fit <= 6, "{nearest_fit} bitmaps read by three searches");
    assert!(nearest >= u64::from(GROUPS) - 1, "the descriptors' word is taken: {nearest}");
}

#[test]
fn the_longest_there_is_is_taken_under_one_lock_where_the_goal_is() {
    let mut disk = Disk::new(1 + 256 * 60, 256, false);
    for (number, bits) in &mut disk.blocks {
        (0..256).filter(|bit| bit % 3 == 0).for_each(|bit| bitmap::set(bits, bit));
        let free = bitmap::count_zeros(bits, 0..256);
        disk.descriptors[number.0 as usize].set_free_blocks_count(free);
    }
    let alloc = disk.open();
    (0..60).for_each(|group| assert!(alloc.free_runs(GroupNumber(group)).is_ok()));
    let before = alloc.statistics();
    assert_eq!(
        alloc.geometry().cluster_location(take(&alloc, 1 + 256 * 21, 16).start).expect("on the disk").0.0,
        21
    );
    let after = alloc.statistics();
    let considered = after.considered.iter().sum::<u64>() - before.considered.iter().sum::<u64>();
    assert_eq!((after.locks - before.locks, considered), (1, 1));
}

#[test]
fn a_run_without_an_aligned_chunk_is_found_in_the_goals_group() {
    let alloc = Disk::new(1 + 1024 * 16, 1024, true).open();
    let first = alloc.geometry().group_first_block(GroupNumber(5)).0;
    let mut reservation = alloc.reserve(2048, MayUse::RootBlocks).expect("free blocks");
    let mut take =
        |start: u64, len| alloc.allocate(&mut reservation, &request(first + start, len)).expect("reserved");
    // Behind a backup of the superblock: all but ten blocks, of which four and no more begin at a multiple.
    for (start, len) in [(2, 7), (19, 1005)] {
        assert_eq!(take(start, len), ClusterRun { start: Cluster(first + start), len });
    }
    assert_eq!(take(2, 8), ClusterRun { start: Cluster(first + 9), len: 8 });
}

#[test]
fn a_large_file_goes_on_with_what_there_is_where_it_ends_unless_that_is_a_crumb() {
    let alloc = Disk::new(1 + 1024 * 16, 1024, true).open();
    let first = alloc.geometry().group_first_block(GroupNumber(5)).0;
    let mut reservation = alloc.reserve(8192, MayUse::RootBlocks).expect("free blocks");
    let mut take = |start: u64, len, purpose| {
        let request = Request { purpose, ..request(first + start, len) };
        alloc.allocate(&mut reservation, &request).expect("reserved")
    };
    let large = Purpose::Stream(InodeNumber(12));
    // Free are 100 blocks, 15, and the rest.
    for (start, len) in [(200, 8), (308, 8), (331, 8)] {
        assert_eq!(take(start, len, Purpose::Data), ClusterRun { start: Cluster(first + start), len });
    }
    assert_eq!(take(316, 512, large).len, 512, "15 blocks are a crumb");
    assert_ne!(take(208, 512, Purpose::Data).start.0, first + 208, "a small file's are together");
    assert_eq!(take(208, 512, large), ClusterRun { start: Cluster(first + 208), len: 100 });
    assert_eq!(
        take(316, 15, large),
        ClusterRun { start: Cluster(first + 316), len: 15 },
        "all that is wanted"
    );
}
