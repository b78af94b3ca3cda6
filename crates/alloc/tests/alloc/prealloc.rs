//! Blocks taken ahead: none is lost, none has two owners, and nobody is refused one that lies there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::disk::{Disk, request};
use extant_alloc::{Allocator, ClusterRun, Error, FileWrite, MayUse, Preallocated, Preallocations, Tuning};
use extant_ondisk::{Cluster, GroupNumber, InodeNumber, LogicalCluster, TransactionId};
use extant_rt::Arc;
use extant_testing::Random;

fn numbers(run: ClusterRun) -> impl Iterator<Item = u64> {
    (0..u64::from(run.len)).map(move |i| run.start.0 + i)
}

fn free_blocks(alloc: &Allocator, disk: &Disk) -> BTreeSet<u64> {
    (0..disk.geometry.group_count)
        .flat_map(|group| alloc.free_runs(GroupNumber(group)).expect("a bitmap"))
        .flat_map(numbers)
        .collect()
}

fn owners(count: u32) -> Vec<Arc<Preallocations>> {
    (0..count).map(|index| Arc::new(Preallocations::new(InodeNumber(11 + index * 50)))).collect()
}

/// Takes up to `len` blocks for `logical`, ahead if need be.
fn take(
    alloc: &Allocator,
    owner: &Arc<Preallocations>,
    (logical, len, surplus): (u32, u32, u32),
    goal: u64,
) -> Result<ClusterRun, Error> {
    let room = match alloc.use_inode_pa(owner, LogicalCluster(logical), len) {
        Preallocated::Run(run) => return Ok(run),
        Preallocated::None { room } => room,
    };
    let len = len.min(room);
    let mut reservation = alloc.reserve(u64::from(len), MayUse::RootBlocks)?;
    let surplus = surplus.min(room - len);
    let request = request(goal, len);
    alloc.new_inode_pa(&mut reservation, &request, owner, LogicalCluster(logical), surplus)
}

pub fn random_operations(seed: u64, tuning: Tuning) {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let disk = Disk::new(1 + 256 * 12, 256, seed.is_multiple_of(2));
    let alloc = disk.open_with(0, tuning);
    let owners = owners(6);
    let total = alloc.free_blocks();
    let (mut used, mut freed) = (BTreeMap::new(), VecDeque::from([BTreeSet::new()]));
    let mut mapped: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); owners.len()];
    let mut tid = TransactionId(5);
    for step in 0..3_000 {
        let at = random.below(owners.len() as u64) as usize;
        match random.below(20) {
            0..13 => {
                let logical = random.below(3_000) as u32;
                if mapped[at].contains(&logical) {
                    continue;
                }
                let room = mapped[at].range(logical..).next().map_or(u32::MAX, |next| next - logical);
                let len = room.min(1 + random.below(6) as u32);
                let surplus = (room - len).min(random.below(60) as u32);
                match take(&alloc, &owners[at], (logical, len, surplus), random.below(3_000)) {
                    Ok(run) => {
                        assert!(run.len >= 1 && run.len <= len);
                        alloc.mark_used(tid, run).expect("taken blocks");
                        for (index, block) in numbers(run).enumerate() {
                            let place = (at, logical + index as u32);
                            assert_eq!(used.insert(block, place), None, "block {block} has two owners");
                            assert!(freed.iter().all(|freed| !freed.contains(&block)));
                            mapped[at].insert(place.1);
                        }
                    }
                    Err(Error::NoSpace) => {
                        let waiting: usize = freed.iter().map(BTreeSet::len).sum();
                        assert!(total - ((used.len() + waiting) as u64) < u64::from(len), "a false NoSpace");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            13..17 => {
                let from = random.below(3_000);
                let some: Vec<_> =
                    used.range(from..).take(20).map(|(block, place)| (*block, *place)).collect();
                for (block, (at, logical)) in some {
                    alloc.mark_free(tid, ClusterRun { start: Cluster(block), len: 1 }).expect("a used block");
                    used.remove(&block);
                    mapped[at].remove(&logical);
                    // As cutting does: what is behind a hole that was cut is not where it was meant to be.
                    alloc.discard_inode_preallocations(&owners[at]);
                    freed.back_mut().expect("the running one").insert(block);
                }
            }
            17 => {
                alloc.discard_inode_preallocations(&owners[at]);
            }
            18 => {
                alloc.freeze(tid);
                freed.push_back(BTreeSet::new());
                tid = tid.next();
            }
            _ if freed.len() > 1 => {
                let done = TransactionId(tid.0 - (freed.len() as u32 - 1));
                alloc.committed(done);
                freed.pop_front();
            }
            _ => {}
        }
        if step % 50 > 0 {
            continue;
        }
        let free = free_blocks(&alloc, &disk);
        assert_eq!(free.len() as u64, alloc.free_blocks());
        assert!(free.iter().all(|block| !used.contains_key(block)));
        let waiting: usize = freed.iter().map(BTreeSet::len).sum();
        let ahead = alloc.preallocated_blocks();
        assert_eq!(free.len() as u64 + ahead + (used.len() + waiting) as u64, total, "seed {seed}");
    }
    assert!(alloc.prealloc_statistics().hits > 0, "nothing was taken ahead");
    for owner in &owners {
        alloc.discard_inode_preallocations(owner);
    }
    assert_eq!(alloc.preallocated_blocks(), 0);
    let waiting: usize = freed.iter().map(BTreeSet::len).sum();
    assert_eq!(free_blocks(&alloc, &disk).len() as u64 + (used.len() + waiting) as u64, total);
}

/// Blocks that a write gets, and those that its file has preallocated then; the hole that it fills is `hole` blocks long.
fn blocks_of_write(write: FileWrite, hole: u32) -> (u32, u64) {
    let alloc = Disk::new(1 + 256 * 12, 256, true).open();
    let owner = Arc::new(Preallocations::new(write.inode));
    let hole_len = |window: u32| Ok::<_, Error>(window.min(hole));
    let run = match alloc.use_preallocated(&owner, &write, hole_len).expect("a hole") {
        Preallocated::Run(run) => run,
        Preallocated::None { room } => {
            let len = u64::from(write.len.min(room));
            let mut reservation = alloc.reserve(len, MayUse::Free).expect("free blocks");
            alloc.allocate_file_blocks(&mut reservation, &owner, &write, room, hole_len).expect("reserved")
        }
    };
    (run.len, alloc.prealloc_statistics().blocks)
}

#[test]
fn a_growing_file_preallocates_up_to_its_predicted_size_and_within_its_hole() {
    const KIB: u64 = 1 << 10;
    let append = FileWrite {
        inode: InodeNumber(11),
        directory: InodeNumber(2),
        logical: LogicalCluster(40),
        len: 8,
        end: 48 * KIB,
        size: 40 * KIB,
        grows: true,
        goal: None,
    };
    let whole = FileWrite { logical: LogicalCluster(0), len: 40, end: 40 * KIB, size: 0, ..append };
    let inside = FileWrite { logical: LogicalCluster(10), len: 2, end: 12 * KIB, ..append };
    let small = FileWrite { logical: LogicalCluster(4), len: 2, end: 6 * KIB, size: 4 * KIB, ..append };
    let far = u32::MAX;
    assert_eq!(blocks_of_write(append, far), (8, 16), "up to 64 KiB");
    assert_eq!(blocks_of_write(append, 12), (8, 4), "up to the end of the hole");
    assert_eq!(blocks_of_write(append, 0), (8, 0), "nothing is known to be a hole");
    assert_eq!(blocks_of_write(FileWrite { grows: false, ..append }, far), (8, 0));
    assert_eq!(blocks_of_write(whole, far), (40, 0), "the whole file");
    assert_eq!(blocks_of_write(inside, far), (2, 28), "not behind the end of the file");
    assert_eq!(blocks_of_write(small, far), (2, 10), "of its locality group");
}

#[test]
fn random_takes_and_discards_lose_no_block_and_give_none_twice() {
    (1..=12).for_each(|seed| random_operations(seed, Tuning::default()));
}

/// The most runs of a file of 256 blocks, of eight that grow in turns; and whether look-ups were made.
pub fn runs_of_files_that_grow_in_turns(tuning: Tuning) -> (u32, bool) {
    let disk = Disk::new(1 + 1024 * 32, 1024, true);
    let alloc = disk.open_with(0, tuning);
    let owners = owners(8);
    let mut ends = vec![(0, 0_u32); owners.len()];
    for logical in 0..256_u32 {
        for (owner, (end, count)) in owners.iter().zip(&mut ends) {
            let surplus = (logical + 1).next_power_of_two() - logical - 1;
            let run = take(&alloc, owner, (logical, 1, surplus), *end).expect("room");
            *count += u32::from(run.start.0 != *end);
            *end = run.start.0 + 1;
        }
    }
    let most = ends.iter().map(|(_, count)| *count).max().expect("files");
    (most, alloc.prealloc_statistics().lookups > 0)
}

#[test]
fn files_that_grow_in_turns_get_long_runs_only_with_preallocation() {
    let [off, on] = [false, true]
        .map(|preallocation| runs_of_files_that_grow_in_turns(Tuning { preallocation, ..Tuning::default() }));
    println!("runs per file of 256 blocks, and look-ups: off {off:?}, on {on:?}");
    assert!(off.0 > 200 && !off.1, "{off:?}");
    assert!(on.0 <= 9 && on.1, "{on:?}");
}

#[test]
fn nothing_is_taken_ahead_of_scarce_or_kept_blocks() {
    let disk = Disk::new(1 + 256 * 8, 256, true);
    let blocks = disk.geometry.blocks_count;
    let free = disk.open().free_blocks();
    let kept = 300;
    let alloc = disk.open_with(kept, Tuning::default());
    let owner = &owners(1)[0];
    let spare = free - kept - blocks / 32;
    let hold = alloc.reserve(spare - 40, MayUse::RootBlocks).expect("what is spare");
    let run = take(&alloc, owner, (1, 1, 100), 0).expect("a block");
    assert_eq!((run.len, alloc.preallocated_blocks()), (1, 0), "100 are not spare");
    take(&alloc, owner, (2, 1, 8), 0).expect("a block");
    assert_eq!(alloc.preallocated_blocks(), 8);
    // The last blocks but for those kept include what was taken ahead.
    let least = free - 2 - hold.blocks();
    assert!(matches!(alloc.reserve(least - kept + 1, MayUse::Free), Err(Error::NoSpace)));
    let all = alloc.reserve(least - kept, MayUse::Free).expect("all but what is kept");
    assert_eq!(alloc.preallocated_blocks(), 0);
    drop((all, hold));
    assert_eq!(alloc.free_blocks(), free - 2);
}

/// Threads that take ahead fill a disk: none is refused before it is full, and no block is given twice.
pub fn fill_by_threads(tuning: Tuning) {
    let disk = Disk::new(1 + 1024 * 16, 1024, true);
    let alloc = disk.open_with(0, tuning);
    let (owners, all) = (owners(4), alloc.free_blocks());
    let taken = extant_rt::parallel(4, |thread| {
        let mut blocks = Vec::new();
        for logical in (0_u32..).map(|index| index * 3) {
            match take(&alloc, &owners[thread], (logical, 1, 200), blocks.last().copied().unwrap_or(0)) {
                Ok(run) => blocks.extend(numbers(run)),
                // Each asks for one block and holds no other reservation: none is left.
                Err(Error::NoSpace) => return blocks,
                Err(error) => panic!("{error}"),
            }
        }
        unreachable!("a disk without end")
    });
    let distinct: BTreeSet<u64> = taken.iter().flatten().copied().collect();
    assert_eq!(distinct.len(), taken.iter().map(Vec::len).sum::<usize>(), "a block was given twice");
    assert_eq!(distinct.len() as u64 + alloc.free_blocks() + alloc.preallocated_blocks(), all);
    assert_eq!(distinct.len() as u64, all, "refused with blocks left");
}

#[test]
fn threads_that_fill_a_disk_are_refused_only_when_it_is_full() {
    fill_by_threads(Tuning::default());
}
