//! Small files out of chunks: packed by directory, none lost, and nobody refused what lies in a chunk.

use std::collections::BTreeSet;

use crate::disk::{Disk, request};
use extant_alloc::{Allocator, ClusterRun, Error, LocalityHint, MayUse, Preallocations, Tuning};
use extant_ondisk::{Cluster, GroupNumber, InodeNumber, LogicalCluster, TransactionId};
use extant_rt::Arc;

fn place(home: u32, directory: u32) -> LocalityHint {
    LocalityHint { inode_group: GroupNumber(home), directory: InodeNumber(directory) }
}

fn owner(number: u32) -> Arc<Preallocations> {
    Arc::new(Preallocations::new(InodeNumber(number)))
}

/// The first blocks of a small file, of its locality group or of the disk.
fn take(
    alloc: &Allocator,
    hint: LocalityHint,
    owner: &Arc<Preallocations>,
    len: u32,
    surplus: u32,
) -> Option<ClusterRun> {
    let goal = alloc.geometry().group_first_block(hint.inode_group).0;
    let request = request(goal, len);
    alloc.use_group_pa(&request, hint, owner, LogicalCluster(0), surplus).or_else(|| {
        let mut reservation = alloc.reserve(u64::from(len), MayUse::RootBlocks).ok()?;
        Some(alloc.allocate(&mut reservation, &request).expect("a reserved block"))
    })
}

/// The runs of 3 blocks that threads get in turns, each for the files of its own directory.
fn in_turns(group_prealloc: u32, homes: [u32; 4]) -> Vec<Vec<ClusterRun>> {
    let disk = Disk::new(1 + 1024 * 32, 1024, true);
    let alloc = disk.open_with(0, Tuning { group_prealloc, ..Tuning::default() });
    let mut runs = vec![Vec::new(); homes.len()];
    for file in 0..30 {
        for (directory, home) in homes.into_iter().enumerate() {
            let owner = owner(file * 4 + directory as u32 + 11);
            let run = take(&alloc, place(home, 50 + directory as u32), &owner, 3, 0).expect("room");
            assert_eq!(run.len, 3);
            alloc.mark_used(TransactionId(1), run).expect("taken");
            runs[directory].push(run);
        }
    }
    let free = alloc.free_blocks() + alloc.preallocated_blocks();
    assert_eq!(free, disk.free_blocks() - 4 * 30 * 3);
    alloc.discard_preallocations(u64::MAX);
    assert_eq!((alloc.free_blocks(), alloc.preallocated_blocks()), (free, 0));
    runs
}

fn pieces(runs: &[ClusterRun]) -> usize {
    1 + runs.windows(2).filter(|pair| pair[0].start.0 + u64::from(pair[0].len) != pair[1].start.0).count()
}

#[test]
fn files_of_one_directory_lie_behind_each_other_beside_other_writers() {
    for homes in [[5, 5, 5, 5], [5, 6, 7, 8]] {
        let local: Vec<usize> = in_turns(512, homes).iter().map(|runs| pieces(runs)).collect();
        let plain: Vec<usize> = in_turns(0, homes).iter().map(|runs| pieces(runs)).collect();
        println!("pieces of 30 files in groups {homes:?}: {local:?}, without locality groups {plain:?}");
        assert!(local.iter().all(|pieces| *pieces <= 4), "{local:?}");
    }
    assert!(in_turns(0, [5; 4]).iter().all(|runs| pieces(runs) > 20), "they are apart anyway");
}

#[test]
fn files_of_two_homes_share_no_group_while_there_are_others() {
    let disk = Disk::new(1 + 1024 * 16, 1024, true);
    let alloc = disk.open();
    // One comes upon the other's home, then upon whatever it fills; both go round the disk.
    let homes = [5, 6].map(|home| place(home, 50 + home));
    let mut groups = [(); 2].map(|()| BTreeSet::new());
    while alloc.free_blocks() > 4096 {
        for (hint, groups) in homes.into_iter().zip(&mut groups) {
            let run = take(&alloc, hint, &owner(11), 8, 0).expect("room");
            groups.insert(alloc.geometry().cluster_location(run.start).expect("on the disk").0);
        }
    }
    assert!(groups[0].is_disjoint(&groups[1]) && groups.iter().all(|groups| groups.len() >= 5), "{groups:?}");
    // The last groups with room for a chunk are shared before anybody goes without.
    let mut turns = homes.into_iter().cycle();
    while take(&alloc, turns.next().expect("no end"), &owner(11), 8, 0).is_some() {}
    assert!(alloc.free_blocks() < 8 && alloc.preallocated_blocks() == 0);
}

#[test]
fn small_files_fill_a_home_in_pieces_and_cut_no_chunk_for_it() {
    let alloc = Disk::new(1 + 1024 * 16, 1024, true).open();
    // Behind a backup of the superblock.
    let home = alloc.geometry().group_first_block(GroupNumber(5)).0 + 2;
    // Holes of three blocks up to the middle of the group, and the rest in one.
    let mut reservation = alloc.reserve(1024, MayUse::RootBlocks).expect("free blocks");
    for start in (home..home + 512).step_by(8) {
        let run = alloc.allocate(&mut reservation, &request(start, 5)).expect("reserved");
        assert_eq!(run, ClusterRun { start: Cluster(start), len: 5 });
    }
    drop(reservation);
    for file in 0..32 {
        let run = take(&alloc, place(5, 50), &owner(file + 11), 3, 0).expect("room");
        assert_eq!(run, ClusterRun { start: Cluster(home + 5 + 8 * u64::from(file)), len: 3 });
        assert_eq!(alloc.preallocated_blocks(), 0);
    }
}

#[test]
fn what_a_small_file_had_ahead_goes_back_to_its_chunk_when_it_is_closed() {
    let alloc = Disk::new(1 + 1024 * 32, 1024, true).open();
    let (first, second) = (owner(5 * 32 + 1), owner(5 * 32 + 2));
    let run = take(&alloc, place(5, 50), &first, 1, 3).expect("room");
    let blocks = alloc.preallocated_blocks();
    assert_eq!(alloc.prealloc_statistics().blocks, 3);
    alloc.discard_inode_preallocations(&first);
    assert_eq!((alloc.prealloc_statistics().blocks, alloc.preallocated_blocks()), (0, blocks));
    let next = take(&alloc, place(5, 50), &second, 2, 0).expect("room");
    assert_eq!(next.start.0, run.start.0 + 1);
}

#[test]
fn threads_that_fill_a_disk_out_of_chunks_are_refused_only_when_it_is_full() {
    for seed in 1..=4_u32 {
        let disk = Disk::new(1 + 1024 * 16, 1024, true);
        let alloc = disk.open();
        // Nobody else is at home there: what is left of its chunk is to be had by discarding it.
        take(&alloc, place(15, 99), &owner(15 * 32 + 1), 1, 0).expect("room");
        let all = alloc.free_blocks() + alloc.preallocated_blocks();
        assert!(alloc.preallocated_blocks() > 0, "no chunk");
        let taken = extant_rt::parallel(4, |thread| {
            let mut blocks = Vec::new();
            for file in 0_u32.. {
                let hint = place((thread as u32 * seed + file / 50) % 12, thread as u32);
                let owner = owner(hint.inode_group.0 * 32 + 1 + thread as u32);
                match take(&alloc, hint, &owner, 1, file % 3) {
                    Some(run) => blocks.extend(run.start.0..run.start.0 + u64::from(run.len)),
                    None => return blocks,
                }
                // Its file is closed.
                alloc.discard_inode_preallocations(&owner);
            }
            unreachable!("a disk without end")
        });
        let distinct: BTreeSet<u64> = taken.iter().flatten().copied().collect();
        assert_eq!(distinct.len(), taken.iter().map(Vec::len).sum::<usize>(), "a block was given twice");
        assert_eq!(distinct.len() as u64, all, "refused with blocks left");
        assert!(matches!(alloc.reserve(1, MayUse::RootBlocks), Err(Error::NoSpace)));
        assert_eq!(alloc.preallocated_blocks(), 0);
        let statistics = alloc.prealloc_statistics();
        assert!(statistics.local_hits > all / 2 && statistics.shortages > 0, "{statistics:?}");
    }
}
