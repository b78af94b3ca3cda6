//! Where inodes go, and what their creators cost each other.

use std::collections::BTreeSet;
use std::sync::Barrier;

use crate::disk::{Disk, INODES_PER_GROUP};
use extant_alloc::{Allocator, InodeKind, LastGroup, Parent, Tuning};
use extant_ondisk::{GroupNumber, InodeNumber, TransactionId};

const TID: TransactionId = TransactionId(5);
const CREATORS: usize = 48;

fn group_of(inode: InodeNumber) -> u32 {
    (inode.0 - 1) / INODES_PER_GROUP
}

/// Makes an inode in a directory of group `parent`.
fn make(alloc: &Allocator, parent: u32, last: &LastGroup, kind: InodeKind) -> InodeNumber {
    let parent =
        Parent { number: InodeNumber(0), group: GroupNumber(parent), last: Some(last), is_shared: false };
    alloc.allocate_inode(TID, parent, kind).expect("an inode").number
}

/// Makes a file in a directory.
fn make_in(alloc: &Allocator, directory: InodeNumber) -> InodeNumber {
    let parent =
        Parent { number: directory, group: GroupNumber(group_of(directory)), last: None, is_shared: false };
    alloc.allocate_inode(TID, parent, InodeKind::Other).expect("an inode").number
}

fn locks(alloc: &Allocator) -> u64 {
    let statistics = alloc.statistics();
    statistics.locks + statistics.other_locks
}

/// Group-lock acquisitions for each inode that 48 threads make, in one directory or each in its own.
pub fn locks_per_inode(tuning: Tuning, is_apart: bool) -> f64 {
    const EACH: usize = 400;
    let disk = Disk::new(1 + 256 * 1024, 256, true);
    let alloc = disk.open_with(0, tuning);
    let top = LastGroup::default();
    let shared = make(&alloc, 0, &top, InodeKind::Directory);
    let own: Vec<_> = (0..CREATORS).map(|_| make(&alloc, 0, &top, InodeKind::Directory)).collect();
    let before = locks(&alloc);
    let made = extant_rt::parallel(CREATORS, |thread| {
        let directory = if is_apart { own[thread] } else { shared };
        (0..EACH).map(|_| make_in(&alloc, directory)).collect::<Vec<_>>()
    });
    let taken = locks(&alloc) - before;
    let distinct: BTreeSet<u32> = made.iter().flatten().map(|inode| inode.0).collect();
    assert_eq!(distinct.len(), CREATORS * EACH, "an inode was given out twice");
    taken as f64 / distinct.len() as f64
}

#[test]
fn creators_take_the_groups_lock_once() {
    for (is_apart, place) in [(false, "one directory"), (true, "48 directories")] {
        let locks = locks_per_inode(Tuning::default(), is_apart);
        println!("{CREATORS} creators in {place}: {locks:.3} locks of groups per inode");
        // One, a second to read each group's bitmap, and those that find that others took the group's last.
        assert!(locks < 1.5, "{locks}");
    }
}

#[test]
fn full_groups_are_not_looked_at() {
    let alloc = Disk::new(1 + 256 * 64, 256, true).open();
    let last = LastGroup::default();
    for _ in 0..32 * 32 {
        make(&alloc, 1, &last, InodeKind::Other);
    }
    let before = locks(&alloc);
    for _ in 0..20 {
        make(&alloc, 1, &LastGroup::default(), InodeKind::Other);
    }
    assert!(locks(&alloc) - before <= 22, "{} locks", locks(&alloc) - before);
}

#[test]
fn subdirectories_take_the_groups_of_their_parents_neighbourhood_in_turns_and_files_stay_with_theirs() {
    let alloc = Disk::new(1 + 256 * 64, 256, true).open();
    let top = LastGroup::default();
    let groups: Vec<u32> = (0..8).map(|_| group_of(make(&alloc, 20, &top, InodeKind::Directory))).collect();
    assert_eq!(groups, [21, 22, 23, 20, 21, 22, 23, 20]);
    for group in groups {
        let last = LastGroup::default();
        let files: BTreeSet<u32> =
            (0..5).map(|_| group_of(make(&alloc, group, &last, InodeKind::Other))).collect();
        assert_eq!(files, BTreeSet::from([group]));
    }
}

#[test]
fn files_that_their_directorys_group_has_no_room_for_stay_together() {
    let alloc = Disk::new(1 + 256 * 64, 256, true).open();
    let last = LastGroup::default();
    let groups: Vec<u32> = (0..100).map(|_| group_of(make(&alloc, 20, &last, InodeKind::Other))).collect();
    assert_eq!(groups.chunk_by(|a, b| a == b).map(<[u32]>::len).collect::<Vec<_>>(), [32, 32, 32, 4]);
    assert_eq!((groups[0], groups[32]), (20, 21));
}

/// The groups in which threads that run at once make files in one directory of group 100: each in one.
fn groups_of_threads(alloc: &Allocator) -> BTreeSet<u32> {
    const THREADS: usize = 6;
    let parent = Parent { number: InodeNumber(77), group: GroupNumber(100), last: None, is_shared: true };
    let barrier = Barrier::new(THREADS);
    let groups = extant_rt::parallel(THREADS, |_| {
        let make = |_| alloc.allocate_inode(TID, parent, InodeKind::Other).expect("an inode").number;
        let made = (0..8).map(|file| group_of(make(file))).collect::<BTreeSet<u32>>();
        // One that ended would leave its number to the next.
        barrier.wait();
        made
    });
    assert!(groups.iter().all(|of_thread| of_thread.len() == 1), "{groups:?}");
    let all: BTreeSet<u32> = groups.into_iter().flatten().collect();
    // Threads that work beside each other have different numbers, of which only some may be as many apart as there are groups.
    assert!(all.len() >= THREADS / 2, "{all:?}");
    all
}

#[test]
fn threads_that_share_a_directory_make_its_files_in_groups_of_their_own() {
    let alloc = Disk::new(1 + 256 * 192, 256, true).open();
    let groups = groups_of_threads(&alloc);
    assert!(groups.iter().all(|group| (64..128).contains(group)), "{groups:?}");
}

#[test]
fn threads_whose_directory_has_no_room_around_it_go_on_in_groups_of_their_own() {
    let alloc = Disk::new(1 + 256 * 192, 256, true).open();
    for group in 64..128 {
        let last = LastGroup::default();
        for _ in 0..INODES_PER_GROUP {
            make(&alloc, group, &last, InodeKind::Other);
        }
    }
    // The first file finds where inodes of the directory go on.
    let parent = Parent { number: InodeNumber(77), group: GroupNumber(100), last: None, is_shared: true };
    alloc.allocate_inode(TID, parent, InodeKind::Other).expect("an inode");
    let groups = groups_of_threads(&alloc);
    assert!(groups.iter().all(|group| (128..192).contains(group)), "{groups:?}");
}

#[test]
fn creators_whose_neighbourhood_is_full_go_on_in_different_groups_each_in_one() {
    const DIRECTORIES: usize = 4;
    let alloc = Disk::new(1 + 256 * 64, 256, true).open();
    let top = LastGroup::default();
    let directories = [0; DIRECTORIES].map(|_| make(&alloc, 20, &top, InodeKind::Directory));
    let in_neighbourhood = 4 * INODES_PER_GROUP as usize - DIRECTORIES;
    for _ in 0..in_neighbourhood {
        make(&alloc, 20, &top, InodeKind::Other);
    }
    let groups = directories.map(|directory| {
        let files: BTreeSet<u32> = (0..8).map(|_| group_of(make_in(&alloc, directory))).collect();
        assert_eq!(files.len(), 1, "files of {directory} are in groups {files:?}");
        files.into_iter().next()
    });
    assert_eq!(BTreeSet::from(groups).len(), DIRECTORIES, "{groups:?}");
    // Nothing is searched for again.
    let before = locks(&alloc);
    for directory in directories {
        make_in(&alloc, directory);
    }
    assert_eq!(locks(&alloc) - before, DIRECTORIES as u64);
}

#[test]
fn directories_leave_a_neighbourhood_that_is_much_worse_than_most() {
    let mut disk = Disk::new(1 + 256 * 64, 256, true);
    let alloc = disk.open();
    // More directories than one of 16 inodes, beside the average.
    let top = LastGroup::default();
    let groups: Vec<u32> = (0..100).map(|_| group_of(make(&alloc, 20, &top, InodeKind::Directory))).collect();
    assert!(groups[..8].iter().all(|group| (20..24).contains(group)), "{groups:?}");
    assert!(groups[8..16].iter().all(|group| (24..28).contains(group)), "{groups:?}");
    // Once frozen, the average has grown.
    disk.write(&alloc.freeze(TID));
    let next = alloc.allocate_inode(TID.next(), GroupNumber(20), InodeKind::Directory).expect("an inode");
    assert!((20..24).contains(&group_of(next.number)), "{}", next.number);
    // Few inodes are left in the first neighbourhood.
    let alloc = disk.open();
    let last = LastGroup::default();
    for _ in 0..40 {
        make(&alloc, 5, &last, InodeKind::Other);
    }
    disk.write(&alloc.freeze(TID));
    let directory = alloc.allocate_inode(TID.next(), GroupNumber(5), InodeKind::Directory).expect("an inode");
    assert!(group_of(directory.number) >= 8, "{}", directory.number);
}

#[test]
fn inodes_freed_without_a_journal_are_avoided_until_that_is_durable() {
    for (reuse_inodes, expected) in [(true, 33), (false, 35)] {
        let alloc =
            Disk::new(1 + 256 * 8, 256, true).open_with(0, Tuning { reuse_inodes, ..Tuning::default() });
        let last = LastGroup::default();
        let made = [0; 2].map(|_| make(&alloc, 1, &last, InodeKind::Other));
        assert_eq!(made.map(|inode| inode.0), [33, 34]);
        for inode in made {
            alloc.free_inode(TID, inode, InodeKind::Other).expect("in use");
        }
        let again = make(&alloc, 1, &last, InodeKind::Other);
        assert_eq!(again.0, expected, "reuse {reuse_inodes}");
        alloc.free_inode(TID, again, InodeKind::Other).expect("in use");
        alloc.freeze(TID);
        let other = alloc.allocate_inode(TID.next(), GroupNumber(1), InodeKind::Other).expect("an inode");
        assert_eq!(other.number.0, if reuse_inodes { 33 } else { 36 });
        alloc.committed(TID);
        let other = alloc.allocate_inode(TID.next(), GroupNumber(1), InodeKind::Other).expect("an inode");
        assert_eq!(other.number.0, if reuse_inodes { 34 } else { 33 });
        // A preference only: none is refused.
        let make =
            || alloc.allocate_inode(TID.next(), GroupNumber(1), InodeKind::Other).expect("an inode").number;
        let rest: Vec<_> = (0..30).map(|_| make()).collect();
        for inode in &rest {
            assert_eq!(group_of(*inode), 1);
            alloc.free_inode(TID.next(), *inode, InodeKind::Other).expect("in use");
        }
        assert!(rest.iter().all(|_| group_of(make()) == 1));
    }
}
