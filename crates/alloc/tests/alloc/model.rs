//! Random operations of one thread against sets of block and inode numbers.

use std::collections::{BTreeSet, VecDeque};

use crate::disk::{Disk, INODES_PER_GROUP, Platter, request};
use extant_alloc::{Allocator, AllocatorSnapshot, ClusterRun, Error, InodeKind, MayUse, NewInode, Tuning};
use extant_ondisk::{Cluster, GroupNumber, InodeNumber, TransactionId};
use extant_testing::Random;

/// What the allocator should know, in plain sets.
struct Model {
    blocks: u64,
    /// In use in the running transaction.
    used: BTreeSet<u64>,
    /// Taken, not marked.
    taken: Vec<ClusterRun>,
    /// Marked and not freed; what the model may free.
    owned: Vec<ClusterRun>,
    /// Freed in the running transaction, and in those that wait for their commit.
    freed: Vec<u64>,
    waiting: VecDeque<(TransactionId, Vec<u64>, AllocatorSnapshot, Disk)>,
    inodes: BTreeSet<(u32, bool)>,
    durable: Disk,
}

fn numbers(run: ClusterRun) -> impl Iterator<Item = u64> {
    (0..u64::from(run.len)).map(move |i| run.start.0 + i)
}

impl Model {
    fn new(disk: &Disk) -> Self {
        let blocks = disk.geometry.blocks_count;
        Self {
            blocks,
            used: (1..blocks).filter(|block| disk.is_used(*block)).collect(),
            taken: Vec::new(),
            owned: Vec::new(),
            freed: Vec::new(),
            waiting: VecDeque::new(),
            inodes: BTreeSet::new(),
            durable: disk.clone(),
        }
    }

    fn busy(&self) -> BTreeSet<u64> {
        let taken = self.taken.iter().flat_map(|run| numbers(*run));
        let waiting = self.waiting.iter().flat_map(|(_, blocks, ..)| blocks.iter().copied());
        self.used.iter().copied().chain(taken).chain(waiting).chain(self.freed.iter().copied()).collect()
    }

    fn take(&mut self, alloc: &Allocator, random: &mut Random) {
        let (goal, len) = (random.below(self.blocks + 20), 1 + random.below(40) as u32);
        let busy = self.busy();
        let available = self.blocks - 1 - busy.len() as u64;
        assert_eq!(alloc.free_blocks(), available);
        match alloc.reserve(u64::from(len), MayUse::RootBlocks) {
            Ok(mut reservation) => {
                let run = alloc.allocate(&mut reservation, &request(goal, len)).expect("a reserved block");
                assert!(run.len >= 1 && run.len <= len);
                assert!(numbers(run).all(|block| !busy.contains(&block)), "{run:?} is busy");
                self.taken.push(run);
            }
            Err(Error::NoSpace) => assert!(available < u64::from(len)),
            Err(error) => panic!("{error}"),
        }
    }

    fn freeze(&mut self, alloc: &Allocator, tid: TransactionId) {
        let frozen = alloc.freeze(tid);
        let mut disk = self.waiting.back().map_or(&self.durable, |(.., disk)| disk).clone();
        disk.write(&frozen);
        disk.check();
        for block in 1..self.blocks {
            assert_eq!(disk.is_used(block), self.used.contains(&block), "block {block} of transaction {tid}");
        }
        assert_eq!(frozen.free_blocks, self.blocks - 1 - self.used.len() as u64);
        assert_eq!(frozen.free_blocks, disk.free_blocks());
        let all_inodes = u64::from(disk.geometry.inodes_count);
        assert_eq!(frozen.free_inodes, all_inodes - 10 - self.inodes.len() as u64);
        let directories: u32 =
            disk.descriptors.iter().map(extant_ondisk::GroupDescriptor::used_dirs_count).sum();
        assert_eq!(directories as usize, self.inodes.iter().filter(|inode| inode.1).count());
        self.waiting.push_back((tid, std::mem::take(&mut self.freed), frozen, disk));
    }

    /// Ends the oldest commit. False if there is none.
    fn commit(&mut self, alloc: &Allocator, platter: &Platter) -> bool {
        let Some((tid, mut blocks, frozen, disk)) = self.waiting.pop_front() else { return false };
        let runs = alloc.freed(tid);
        blocks.sort_unstable();
        assert_eq!(runs.iter().copied().flat_map(numbers).collect::<Vec<_>>(), blocks);
        let touches = |pair: &[ClusterRun]| {
            numbers(pair[0]).last().is_some_and(|last| last + 1 == pair[1].start.0 && last % 256 != 0)
        };
        assert!(!runs.windows(2).any(touches), "{runs:?}");
        platter.write(&frozen);
        alloc.committed(tid);
        self.durable = disk;
        true
    }

    fn inode(&mut self, alloc: &Allocator, tid: TransactionId, random: &mut Random) {
        if random.below(5) < 3 {
            let directory = random.below(3) == 0;
            let kind = match (directory, random.below(2)) {
                (false, _) => InodeKind::Other,
                (true, 0) => InodeKind::Directory,
                (true, _) => InodeKind::TopDirectory,
            };
            match alloc.allocate_inode(tid, GroupNumber(random.below(12) as u32), kind) {
                Ok(NewInode { number: inode, .. }) => {
                    assert!(
                        inode.0 >= 11 && !self.inodes.iter().any(|held| held.0 == inode.0),
                        "{inode} again"
                    );
                    assert!(alloc.is_inode_allocated(inode).expect("a bitmap"));
                    self.inodes.insert((inode.0, directory));
                }
                Err(Error::NoInodes) => {
                    assert_eq!(self.inodes.len() as u32, self.durable.geometry.inodes_count - 10);
                }
                Err(error) => panic!("{error}"),
            }
        } else if let Some(&held) =
            self.inodes.iter().nth(random.below(self.inodes.len().max(1) as u64) as usize)
        {
            let kind = if held.1 { InodeKind::Directory } else { InodeKind::Other };
            alloc.free_inode(tid, InodeNumber(held.0), kind).expect("an allocated inode");
            assert!(alloc.free_inode(tid, InodeNumber(held.0), kind).is_err(), "freed twice");
            self.inodes.remove(&held);
        }
    }
}

fn pick(runs: &mut Vec<ClusterRun>, random: &mut Random) -> Option<ClusterRun> {
    let at = random.below(runs.len().max(1) as u64) as usize;
    (at < runs.len()).then(|| runs.swap_remove(at))
}

pub fn random_operations(seed: u64, uninit: bool, bitmap_bytes_max: u64, tuning: Tuning) {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let disk = Disk::new(1 + 256 * 9 + 100, 256, uninit);
    let platter = Platter::new(&disk);
    let alloc = platter.open(0, bitmap_bytes_max, tuning);
    let mut model = Model::new(&disk);
    let mut tid = TransactionId(u32::MAX - 3);
    for operation in 0..4000 {
        if operation % 500 == 0 {
            // All is quiet: nothing keeps a bitmap in memory.
            model.taken.drain(..).for_each(|run| alloc.free_unmarked(run));
            model.freeze(&alloc, tid);
            tid = tid.next();
            while model.commit(&alloc, &platter) {}
        }
        match random.below(20) {
            0..7 => model.take(&alloc, &mut random),
            7..12 => {
                if let Some(run) = pick(&mut model.taken, &mut random) {
                    alloc.mark_used(tid, run).expect("taken blocks");
                    assert!(alloc.mark_used(tid, run).is_err(), "marked twice");
                    model.used.extend(numbers(run));
                    model.owned.push(run);
                }
            }
            12 => {
                if let Some(run) = pick(&mut model.taken, &mut random) {
                    alloc.free_unmarked(run);
                }
            }
            13..16 => {
                if let Some(mut run) = pick(&mut model.owned, &mut random) {
                    let part = ClusterRun { len: 1 + random.below(u64::from(run.len)) as u32, ..run };
                    alloc.mark_free(tid, part).expect("used blocks");
                    assert!(alloc.mark_free(tid, part).is_err(), "freed twice");
                    numbers(part).for_each(|block| assert!(model.used.remove(&block)));
                    model.freed.extend(numbers(part));
                    run = ClusterRun {
                        start: Cluster(run.start.0 + u64::from(part.len)),
                        len: run.len - part.len,
                    };
                    model.owned.extend((run.len > 0).then_some(run));
                }
            }
            16 | 17 => model.inode(&alloc, tid, &mut random),
            18 => {
                model.freeze(&alloc, tid);
                tid = tid.next();
            }
            _ => {
                model.commit(&alloc, &platter);
            }
        }
    }
    model.freeze(&alloc, tid);
    // Ten groups have two bitmaps each.
    let has_dropped = platter.reads() > 20;
    assert_eq!(has_dropped, bitmap_bytes_max == 0, "{} bitmaps read", platter.reads());
    reopened_after_a_crash_is_the_same(&model);
}

/// The last frozen state, read anew, gives out exactly what is free in it.
fn reopened_after_a_crash_is_the_same(model: &Model) {
    let (.., disk) = model.waiting.back().expect("a frozen transaction");
    let alloc = disk.open();
    let free: Vec<u64> = (1..model.blocks).filter(|block| !model.used.contains(block)).collect();
    let mut reservation = alloc.reserve(free.len() as u64, MayUse::RootBlocks).expect("the free blocks");
    let mut got = Vec::new();
    while reservation.blocks() > 0 {
        got.extend(numbers(alloc.allocate(&mut reservation, &request(700, 64)).expect("a reserved block")));
    }
    got.sort_unstable();
    assert_eq!(got, free);
    for inode in 11..=model.durable.geometry.inodes_count {
        let held = model.inodes.iter().any(|held| held.0 == inode);
        assert_eq!(alloc.is_inode_allocated(InodeNumber(inode)).expect("a bitmap"), held, "inode {inode}");
    }
}

#[test]
fn random_operations_agree_with_plain_sets_at_every_freeze() {
    for seed in 1..=12 {
        random_operations(seed, seed % 2 == 0, u64::MAX, Tuning::default());
        random_operations(seed, seed % 2 == 0, 0, Tuning::default());
    }
}

#[test]
fn every_block_is_given_out_and_then_there_is_no_space() {
    let disk = Disk::new(1 + 256 * 8 + 9, 256, true);
    let alloc = disk.open();
    let all = alloc.free_blocks();
    let mut reservation = alloc.reserve(all, MayUse::RootBlocks).expect("all blocks");
    assert!(matches!(alloc.reserve(1, MayUse::RootBlocks), Err(Error::NoSpace)));
    let mut seen = BTreeSet::new();
    while reservation.blocks() > 0 {
        let run = alloc.allocate(&mut reservation, &request(1000, 7)).expect("a reserved block");
        assert!(numbers(run).all(|block| seen.insert(block)));
        alloc.mark_used(TransactionId(1), run).expect("taken blocks");
    }
    assert_eq!(seen.len() as u64, all);
    assert!(matches!(alloc.allocate(&mut reservation, &request(0, 1)), Err(Error::NoSpace)));
    assert_eq!(alloc.freeze(TransactionId(1)).free_blocks, 0);
}

#[test]
fn all_inodes_are_given_out_but_the_reserved_ones() {
    let disk = Disk::new(1 + 256 * 5, 256, true);
    let alloc = disk.open();
    for expected in 11..=5 * INODES_PER_GROUP {
        let made = alloc.allocate_inode(TransactionId(1), GroupNumber(0), InodeKind::Other);
        assert_eq!(made.expect("an inode").number.0, expected);
    }
    let none = alloc.allocate_inode(TransactionId(1), GroupNumber(3), InodeKind::Directory);
    assert!(matches!(none, Err(Error::NoInodes)));
    let mut disk = disk;
    disk.write(&alloc.freeze(TransactionId(1)));
    disk.check();
    assert!(alloc.free_inode(TransactionId(2), InodeNumber(10), InodeKind::Other).is_err());
    assert!(alloc.free_inode(TransactionId(2), InodeNumber(0), InodeKind::Other).is_err());
    assert!(alloc.free_inode(TransactionId(2), InodeNumber(161), InodeKind::Other).is_err());
}
