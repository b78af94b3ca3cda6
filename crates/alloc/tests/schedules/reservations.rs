//! Reservations alone: nobody is refused blocks that move from one thread's share to another's.

use extant_alloc::{Allocator, Error, MayUse, Preallocations, Purpose, Request, Tuning};
use extant_ondisk::{Cluster, InodeNumber, LogicalCluster, TransactionId};
use extant_rt::{Arc, explore, parallel, yield_now};
use extant_testing::Random;

use crate::blocks::{BLOCKS_PER_GROUP, fill};
use crate::disk::Disk;
use crate::ledger::{Block, Ledger};
use crate::{SCHEDULES, plan};

/// Reserves again and again; `holds` all of it, or gives it back before the next time.
fn reserve(alloc: &Allocator, ledger: &Ledger, task: usize, kept: i64, holds: bool, random: &mut Random) {
    let mut held = Vec::new();
    for _ in 0..8 {
        if !holds && let Some((reservation, len)) = held.pop() {
            drop(reservation);
            ledger.expect(len);
        }
        // Others may be sure of what came back.
        yield_now();
        let (len, may_use) =
            (1 + random.below(2) as i64, [MayUse::RootBlocks, MayUse::Free][random.below(2) as usize]);
        ledger.expect(-len);
        ledger.begin(task);
        let reserved = alloc.reserve(len as u64, may_use);
        let certain = ledger.end(task);
        match reserved {
            Ok(reservation) => held.push((reservation, len)),
            Err(Error::NoSpace) => {
                let kept = if may_use > MayUse::Free { 0 } else { kept };
                assert!(certain < kept, "a false NoSpace: {len} wanted, {certain} more were there");
                ledger.expect(len);
            }
            Err(error) => panic!("{error}"),
        }
    }
    for (reservation, len) in held {
        drop(reservation);
        ledger.expect(len);
    }
}

fn explore_reservations(left: u64, ahead: u32, holds: bool) {
    let disk = Disk::new(1 + u64::from(BLOCKS_PER_GROUP) * 2, BLOCKS_PER_GROUP, true);
    explore(&plan::exploration(SCHEDULES), move |seed| {
        let mut random = Random::new(seed);
        let (tasks, left, kept) = (3 + random.below(3) as usize, left + random.below(3), random.below(2) * 2);
        let mut disk = disk.clone();
        fill(&mut disk, left, &mut random);
        let ledger = Ledger::new(&disk, tasks, TransactionId(0));
        let alloc = disk.open_with(kept, Tuning::default());
        let inodes = (0..ahead).map(|index| InodeNumber(11 + index * 70));
        let owners: Vec<_> = inodes.map(|inode| Arc::new(Preallocations::new(inode))).collect();
        for owner in &owners {
            let mut reservation = alloc.reserve(1, MayUse::RootBlocks).expect("room");
            let request = Request { goal: Cluster(0), len: 1, least: 1, ahead: 0, purpose: Purpose::Data };
            let ahead = alloc.new_inode_pa(&mut reservation, &request, owner, LogicalCluster(0), 2);
            ledger.take(ahead.expect("a reserved block"));
            ledger.expect(-1);
        }
        let seeds: Vec<u64> = (0..tasks).map(|_| 1 + random.below(u64::MAX - 1)).collect();
        parallel(tasks, |task| {
            reserve(&alloc, &ledger, task, kept as i64, holds, &mut Random::new(seeds[task]));
        });
        let left = left - u64::from(ahead);
        assert_eq!(alloc.free_blocks() + alloc.preallocated_blocks(), left);
    });
}

#[test]
fn nobody_is_refused_blocks_that_others_give_back() {
    explore_reservations(2, 0, false);
}

#[test]
fn nobody_is_refused_blocks_that_are_taken_ahead() {
    explore_reservations(28, 6, true);
}

/// Takes a block and others ahead, and gives all of them back, again and again.
fn preallocate(alloc: &Allocator, ledger: &Ledger, owner: &Arc<Preallocations>, random: &mut Random) {
    for _ in 0..4 {
        ledger.expect(-1);
        if let Ok(mut reservation) = alloc.reserve(1, MayUse::RootBlocks) {
            let goal = Cluster(random.below(alloc.geometry().blocks_count));
            let request = Request { goal, len: 1, least: 1, ahead: 0, purpose: Purpose::Data };
            let surplus = 1 + random.below(3) as u32;
            let taken = alloc.new_inode_pa(&mut reservation, &request, owner, LogicalCluster(0), surplus);
            let run = taken.expect("a reserved block");
            ledger.take(run);
            drop(reservation);
            yield_now();
            alloc.discard_inode_preallocations(owner);
            ledger.change(run, Block::Taken, Block::Free);
            alloc.free_unmarked(run);
        }
        ledger.expect(1);
        yield_now();
    }
}

#[test]
fn nobody_is_refused_blocks_that_others_take_ahead_by_turns() {
    let disk = Disk::new(1 + u64::from(BLOCKS_PER_GROUP), BLOCKS_PER_GROUP, true);
    explore(&plan::exploration(SCHEDULES), move |seed| {
        let mut random = Random::new(seed);
        let mut disk = disk.clone();
        // As many as are wanted, and one for each who takes ahead, which he may have.
        let (takers, wanted) = (2 + random.below(3) as usize, 1 + random.below(4));
        let left = wanted + takers as u64;
        fill(&mut disk, left, &mut random);
        let ledger = Ledger::new(&disk, takers + 1, TransactionId(0));
        let alloc = disk.open_with(0, Tuning::default());
        let owners: Vec<_> = (0..takers)
            .map(|index| Arc::new(Preallocations::new(InodeNumber(11 + index as u32 * 70))))
            .collect();
        let seeds: Vec<u64> = (0..=takers).map(|_| 1 + random.below(u64::MAX - 1)).collect();
        parallel(takers + 1, |task| match owners.get(task) {
            Some(owner) => preallocate(&alloc, &ledger, owner, &mut Random::new(seeds[task])),
            None => {
                for _ in 0..4 {
                    drop(alloc.reserve(wanted, MayUse::RootBlocks).expect("never fewer"));
                }
            }
        });
        assert_eq!((alloc.free_blocks(), alloc.preallocated_blocks()), (left, 0));
    });
}
