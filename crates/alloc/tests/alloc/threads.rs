//! Many threads on small groups.

use std::collections::BTreeSet;

use crate::disk::{Disk, Platter, request};
use extant_alloc::{ClusterRun, InodeKind, MayUse, NewInode, Purpose, Request, Tuning};
use extant_ondisk::{GroupNumber, InodeNumber, TransactionId, bitmap};
use extant_rt::{AtomicU64, LockClass, Mutex, Ordering, RwLock};
use extant_testing::Random;

const THREADS: u64 = 8;

/// Threads take and free runs of a small disk, on which every block is free in the end.
pub fn share_a_full_disk(seed: u64, bitmap_bytes_max: u64, tuning: Tuning) {
    println!("seed {seed}");
    let mut disk = Disk::new(1 + 64 * 12, 64, true);
    let platter = Platter::new(&disk);
    let alloc = platter.open(0, bitmap_bytes_max, tuning);
    let all = alloc.free_blocks();
    let owners: Vec<AtomicU64> = (0..disk.geometry.blocks_count).map(|_| AtomicU64::new(0)).collect();
    // Stands in for the journal: handles hold it shared, a freeze alone.
    let running = RwLock::new(LockClass::HANDLE, TransactionId(1));
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (alloc, owners, running, platter) = (&alloc, &owners, &running, &platter);
            scope.spawn(move || {
                let mut random = Random::new(seed * 1000 + thread);
                let mut held: Vec<ClusterRun> = Vec::new();
                for _ in 0..3000 {
                    if random.below(2) == 0 {
                        let len = 1 + random.below(12) as u32;
                        let Ok(mut reservation) = alloc.reserve(u64::from(len), MayUse::RootBlocks) else {
                            continue;
                        };
                        let run = alloc
                            .allocate(&mut reservation, &request(random.below(768), len))
                            .expect("reserved");
                        for block in run.start.0..run.start.0 + u64::from(run.len) {
                            assert_eq!(
                                owners[block as usize].swap(thread, Ordering::SeqCst),
                                0,
                                "given twice"
                            );
                        }
                        held.push(run);
                    } else if !held.is_empty() {
                        let run = held.swap_remove(random.below(held.len() as u64) as usize);
                        for block in run.start.0..run.start.0 + u64::from(run.len) {
                            assert_eq!(owners[block as usize].swap(0, Ordering::SeqCst), thread);
                        }
                        if random.below(3) == 0 {
                            alloc.free_unmarked(run);
                        } else {
                            let tid = running.read();
                            alloc.mark_used(*tid, run).expect("taken");
                            alloc.mark_free(*tid, run).expect("used");
                        }
                    }
                    if random.below(40) == 0 {
                        let mut tid = running.write();
                        platter.write(&alloc.freeze(*tid));
                        alloc.committed(*tid);
                        *tid = tid.next();
                    }
                }
                for run in held {
                    for block in run.start.0..run.start.0 + u64::from(run.len) {
                        assert_eq!(owners[block as usize].swap(0, Ordering::SeqCst), thread);
                    }
                    alloc.free_unmarked(run);
                }
            });
        }
    });
    let tid = *running.read();
    let frozen = alloc.freeze(tid);
    platter.write(&frozen);
    alloc.committed(tid);
    assert_eq!((alloc.free_blocks(), alloc.pending_free(), frozen.free_blocks), (all, 0, all));
    disk.write(&frozen);
    let mut reservation = alloc.reserve(all, MayUse::RootBlocks).expect("all blocks");
    while reservation.blocks() > 0 {
        alloc.allocate(&mut reservation, &request(0, 64)).expect("no block is lost");
    }
}

#[test]
fn threads_share_a_full_disk_without_losing_or_doubling_a_block() {
    let (all_stay, none_stay) = (u64::MAX, 0);
    share_a_full_disk(1, all_stay, Tuning::default());
    share_a_full_disk(2, none_stay, Tuning::default());
}

#[test]
fn small_extensions_go_to_the_most_fragmented_group_around_until_streams_meet() {
    let mut disk = Disk::new(1 + 256 * 128, 256, false);
    for group in [20, 100] {
        let bits = disk.blocks.get_mut(&GroupNumber(group)).expect("a group");
        (0..256).filter(|bit| bit % 3 == 0).for_each(|bit| bitmap::set(bits, bit));
        let free = bitmap::count_zeros(bits, 0..256);
        disk.descriptors[group as usize].set_free_blocks_count(free);
    }
    let alloc = disk.open();
    // Two blocks behind a block of that group which is taken.
    let extend = |group: u32| {
        let goal = alloc.geometry().group_first_block(GroupNumber(group)).0 + 100;
        let mut reservation = alloc.reserve(3, MayUse::RootBlocks).expect("free blocks");
        if alloc.free_runs(GroupNumber(group)).expect("a group").len() == 1 {
            alloc.allocate(&mut reservation, &request(goal, 1)).expect("reserved");
        }
        let purpose = Purpose::Stream(InodeNumber(12));
        let request = Request { purpose, ..request(goal, 2) };
        alloc.allocate(&mut reservation, &request).expect("reserved")
    };
    let group_of = |run: ClusterRun| alloc.geometry().cluster_location(run.start).expect("on the disk").0.0;
    assert_eq!(
        [10, 50, 70].map(|group| group_of(extend(group))),
        [20, 50, 100],
        "nothing is broken up from 50 on"
    );
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while alloc.statistics().skipped == 0 {
                    alloc.free_unmarked(extend(10));
                }
            });
        }
    });
    assert_eq!([10, 70].map(|group| group_of(extend(group))), [10, 100], "one band's streams met");
}

#[test]
fn creators_get_every_inode_once() {
    let mut disk = Disk::new(1 + 64 * 12, 64, true);
    let alloc = disk.open();
    let got = Mutex::new(LockClass::DEVICE, BTreeSet::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u32 {
            let (alloc, got) = (&alloc, &got);
            scope.spawn(move || {
                let kind = if thread % 2 == 0 { InodeKind::Directory } else { InodeKind::Other };
                while let Ok(NewInode { number: inode, .. }) =
                    alloc.allocate_inode(TransactionId(1), GroupNumber(thread), kind)
                {
                    assert!(got.lock().insert(inode.0), "inode {inode} twice");
                }
            });
        }
    });
    assert_eq!(got.into_inner(), (11..=12 * 32).collect());
    let frozen = alloc.freeze(TransactionId(1));
    assert_eq!(frozen.free_inodes, 0);
    disk.write(&frozen);
    disk.check();
}
