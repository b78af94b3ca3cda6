//! Blocks: each has one owner, none is lost, and nobody is refused one that is there.

use std::collections::{BTreeSet, VecDeque};

use extant_alloc::{
    Allocator, AllocatorSnapshot, ClusterRun, Error, MayUse, Preallocated, Preallocations, Purpose, Request,
    Scan, Tuning,
};
use extant_ondisk::{Cluster, GroupFlags, GroupNumber, InodeNumber, LogicalCluster, TransactionId, bitmap};
use extant_rt::{Arc, LockClass, Mutex, RwLock, explore, parallel, yield_now};
use extant_testing::Random;

use crate::disk::{Disk, Platter};
use crate::ledger::{Block, Ledger, numbers};
use crate::{SCHEDULES, plan};

/// Small groups, so that searches meet.
pub const BLOCKS_PER_GROUP: u32 = 32;
/// Logical blocks of each task in every file.
const PART: u32 = 1000;
/// Runs that are freed at the end.
const FREED_MAX: u32 = 20;

struct Stage {
    alloc: Allocator,
    ledger: Ledger,
    kept: i64,
    /// Few blocks are left, and tasks want few: they meet more often.
    is_tight: bool,
    owners: Vec<Arc<Preallocations>>,
    /// Stands in for the journal: handles hold it shared, a freeze alone.
    running: RwLock<TransactionId>,
    /// What is written of commits, and those that are not durable; whoever commits holds it.
    durable: Mutex<(Disk, VecDeque<(TransactionId, AllocatorSnapshot)>)>,
    /// What is durable.
    platter: Platter,
    /// Runs in use that anybody may free.
    used: std::sync::Mutex<Vec<ClusterRun>>,
}

fn tuning(random: &mut Random) -> Tuning {
    let scans = [Scan::NearestFit, Scan::Nearest, Scan::Ordered, Scan::Linear];
    let tuning = Tuning {
        scan: scans[random.below(4) as usize],
        preallocation: random.below(3) > 0,
        stream_goals: random.below(5) > 0,
        ..Tuning::default()
    };
    older(random, tuning)
}

#[cfg(not(extant_linux_model))]
fn older(_: &mut Random, tuning: Tuning) -> Tuning {
    tuning
}

/// The same with forms of older kernels.
#[cfg(extant_linux_model)]
fn older(random: &mut Random, tuning: Tuning) -> Tuning {
    use extant_alloc::linux_model::{Frees, LinuxModel, ListHead, StreamGoals};
    let heads = [ListHead::Off, ListHead::Index, ListHead::Lists];
    let goals = [StreamGoals::Locked, StreamGoals::One, StreamGoals::ByNumber, StreamGoals::Several];
    let frees = [Frees::OneList, Frees::CountedApart, Frees::JoinedFirst, Frees::Joined];
    let stream_goals = goals[random.below(4) as usize];
    let linux_model = LinuxModel {
        list_head: heads[random.below(3) as usize],
        skip_busy: random.below(4) > 0,
        stream_goals,
        frees: frees[random.below(4) as usize],
        preallocation_list: random.below(2) == 0,
        ..LinuxModel::default()
    };
    Tuning {
        stream_goals: tuning.stream_goals && stream_goals == StreamGoals::Several,
        linux_model,
        ..tuning
    }
}

/// Leaves `left` blocks of a disk free, here and there, and gives the others that are not its own, as runs in use.
pub fn fill(disk: &mut Disk, left: u64, random: &mut Random) -> Vec<ClusterRun> {
    let mut runs: Vec<ClusterRun> = Vec::new();
    let blocks = disk.geometry.blocks_count;
    let mut free = (1..blocks).filter(|block| !disk.is_used(*block)).count() as u64;
    let mut left = left.min(free);
    for group in (0..disk.geometry.group_count).map(GroupNumber) {
        let mut bits = disk.blocks[&group].clone();
        let first = disk.geometry.group_first_block(group).0;
        for bit in 0..disk.geometry.blocks_in_group(group) {
            if bitmap::is_set(&bits, bit) {
                continue;
            }
            let stays_free = random.below(free) < left;
            free -= 1;
            if stays_free {
                left -= 1;
                continue;
            }
            bitmap::set(&mut bits, bit);
            let block = Cluster(first + u64::from(bit));
            match runs.last_mut().filter(|run| bit > 0 && run.start.0 + u64::from(run.len) == block.0) {
                Some(run) if random.below(8) > 0 => run.len += 1,
                _ => runs.push(ClusterRun { start: block, len: 1 }),
            }
        }
        let descriptor = &mut disk.descriptors[group.0 as usize];
        descriptor.set_free_blocks_count(bitmap::count_zeros(&bits, 0..disk.geometry.blocks_in_group(group)));
        descriptor.set_flags(descriptor.flags() - GroupFlags::BLOCK_UNINIT);
        disk.blocks.insert(group, bits);
    }
    runs
}

impl Stage {
    /// A disk on which all but a few blocks are in use.
    fn new(disk: &Disk, tasks: usize, random: &mut Random) -> Self {
        let kept = random.below(3) * 3;
        let is_tight = random.below(2) == 0;
        let mut filled = disk.clone();
        let used = fill(&mut filled, 1 + random.below(if is_tight { 9 } else { 60 }), random);
        let ledger = Ledger::new(disk, tasks, TransactionId(0));
        for run in &used {
            ledger.take(*run);
            ledger.change(*run, Block::Taken, Block::Used);
            ledger.expect(-i64::from(run.len));
        }
        let platter = Platter::new(&filled);
        let bitmap_bytes_max = [0, u64::MAX][random.below(2) as usize];
        Self {
            alloc: platter.open(kept, bitmap_bytes_max, tuning(random)),
            ledger,
            kept: kept as i64,
            is_tight,
            owners: (0..3).map(|index| Arc::new(Preallocations::new(InodeNumber(11 + index * 50)))).collect(),
            running: RwLock::new(LockClass::HANDLE, TransactionId(1)),
            platter,
            durable: Mutex::new(LockClass::RENAME, (filled, VecDeque::new())),
            used: std::sync::Mutex::new(used),
        }
    }

    fn mark_used(&self, run: ClusterRun) {
        let tid = self.running.read();
        self.alloc.mark_used(*tid, run).expect("taken blocks");
        self.ledger.change(run, Block::Taken, Block::Used);
        self.used.lock().expect("no panic").push(run);
    }

    /// Frees blocks that are in use, whosever they are.
    fn mark_free(&self, random: &mut Random) {
        let run = {
            let mut used = self.used.lock().expect("no panic");
            let Some(last) = used.len().checked_sub(1) else { return };
            used.swap_remove(random.below(last as u64 + 1) as usize)
        };
        let tid = self.running.read();
        self.ledger.change(run, Block::Used, Block::Freed(*tid));
        self.alloc.mark_free(*tid, run).expect("used blocks");
    }

    fn give_back(&self, run: ClusterRun) {
        self.ledger.change(run, Block::Taken, Block::Free);
        self.alloc.free_unmarked(run);
        self.ledger.expect(i64::from(run.len));
    }

    /// Begins a commit.
    fn freeze(&self) {
        let (durable, waiting) = &mut *self.durable.lock();
        let (tid, frozen) = {
            let mut running = self.running.write();
            let tid = *running;
            *running = tid.next();
            (tid, self.alloc.freeze(tid))
        };
        durable.write(&frozen);
        durable.check();
        assert_eq!(frozen.free_blocks, durable.free_blocks(), "the superblock and the descriptors");
        waiting.push_back((tid, frozen));
    }

    /// Ends the oldest commit. False if there is none.
    fn committed(&self) -> bool {
        let (_, waiting) = &mut *self.durable.lock();
        let Some((tid, frozen)) = waiting.pop_front() else { return false };
        self.platter.write(&frozen);
        let freed = self.ledger.commit(tid);
        self.alloc.committed(tid);
        self.ledger.expect(freed);
        true
    }

    /// Blocks for `logical`, as a write takes them. `None` if there are none.
    fn take(&self, task: usize, (file, logical): (usize, u32), random: &mut Random) -> Option<ClusterRun> {
        let most = if self.is_tight { 3 } else { 20 };
        let (owner, len) = (&self.owners[file], 1 + random.below(most) as u32);
        self.ledger.expect(-i64::from(len));
        let room = match self.alloc.use_inode_pa(owner, LogicalCluster(logical), len) {
            Preallocated::Run(run) => {
                self.ledger.take(run);
                self.ledger.expect(i64::from(len - run.len));
                return Some(run);
            }
            Preallocated::None { room } => room,
        };
        self.ledger.expect(i64::from(len - len.min(room)));
        let (len, may_use) =
            (len.min(room), if random.below(3) == 0 { MayUse::RootBlocks } else { MayUse::Free });
        self.ledger.begin(task);
        let reserved = self.alloc.reserve(u64::from(len), may_use);
        let certain = self.ledger.end(task);
        let mut reservation = match reserved {
            Ok(reservation) => reservation,
            Err(Error::NoSpace) => {
                // What it wanted itself was counted out.
                let kept = if may_use > MayUse::Free { 0 } else { self.kept };
                assert!(
                    certain < kept,
                    "a false NoSpace: {len} wanted, {certain} more were there, {kept} kept"
                );
                self.ledger.expect(i64::from(len));
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let surplus = (room - len).min(random.below(16) as u32);
        let request = self.request(random, len);
        let ahead =
            self.alloc.new_inode_pa(&mut reservation, &request, owner, LogicalCluster(logical), surplus);
        let run = ahead.expect("a reserved block");
        self.ledger.take(run);
        assert!((1..=len).contains(&run.len), "{run:?} of {len}");
        drop(reservation);
        self.ledger.expect(i64::from(len - run.len));
        Some(run)
    }

    fn request(&self, random: &mut Random, len: u32) -> Request {
        let streams = Purpose::Stream(InodeNumber(11 + random.below(3) as u32));
        let purposes = [Purpose::Metadata, Purpose::Data, streams];
        let goal = Cluster(random.below(self.alloc.geometry().blocks_count));
        let least = 1 + random.below(u64::from(len)) as u32;
        Request { goal, len, least, ahead: 0, purpose: purposes[random.below(3) as usize] }
    }

    /// Discards the free blocks of a group, which nobody has meanwhile.
    fn trim(&self, random: &mut Random) {
        let group = GroupNumber(random.below(u64::from(self.alloc.geometry().group_count)) as u32);
        let least = 1 + random.below(3) as u32;
        let discard = |run| {
            self.ledger.take(run);
            yield_now();
            self.ledger.change(run, Block::Taken, Block::Free);
            Ok::<_, Error>(())
        };
        self.alloc.trim(group, 0..BLOCKS_PER_GROUP, least, discard).expect("a bitmap");
    }

    fn task(&self, task: usize, random: &mut Random) {
        let mut next = [task as u32 * PART; 3];
        let mut held = Vec::new();
        for _ in 0..3 + random.below(4) {
            let file = random.below(3) as usize;
            let choice = random.below(20);
            yield_now();
            match choice {
                // What is free moves from group to group while others look for it.
                0..12 => {
                    let moves = if choice < 4 { held.pop() } else { None };
                    moves.into_iter().for_each(|run| self.give_back(run));
                    yield_now();
                    let logical = next[file] + random.below(3) as u32;
                    let Some(run) = self.take(task, (file, logical), random) else { continue };
                    next[file] = logical + run.len;
                    if random.below(3) == 0 { self.mark_used(run) } else { held.push(run) }
                }
                12 => held.pop().into_iter().for_each(|run| self.give_back(run)),
                13..15 => self.mark_free(random),
                15 => drop(self.alloc.discard_inode_preallocations(&self.owners[file])),
                16 => self.freeze(),
                17..19 => drop(self.committed()),
                _ => self.trim(random),
            }
        }
        held.into_iter().for_each(|run| self.give_back(run));
    }

    /// What can be given out in each group is what is neither in use, nor freed in a transaction that is not committed,
    /// nor taken ahead.
    fn check(self, random: &mut Random) {
        self.freeze();
        let ahead = self.check_groups();
        assert_eq!(ahead, self.alloc.preallocated_blocks(), "blocks taken ahead");
        let discarded: u64 =
            self.owners.iter().map(|owner| self.alloc.discard_inode_preallocations(owner)).sum();
        assert_eq!((discarded, self.check_groups(), self.alloc.preallocated_blocks()), (ahead, 0, 0));
        for _ in 0..FREED_MAX {
            self.mark_free(random);
        }
        self.freeze();
        while self.committed() {
            assert_eq!(self.check_groups(), 0);
        }
        let free = self.ledger.free_blocks();
        assert_eq!((self.alloc.free_blocks(), self.alloc.pending_free()), (free, 0));
        assert_eq!((self.alloc.disk_free_blocks(), self.durable.lock().0.free_blocks()), (free, free));
        let mut all = self.alloc.reserve(free, MayUse::RootBlocks).expect("all blocks");
        while all.blocks() > 0 {
            let run = self.alloc.allocate(&mut all, &self.request(random, 32)).expect("no block is lost");
            self.ledger.take(run);
        }
    }

    /// Compares each group with the ledger, when nothing changed since a freeze. Gives how many blocks are busy that
    /// nobody knows of.
    fn check_groups(&self) -> u64 {
        let (durable, _) = &*self.durable.lock();
        let books = self.ledger.books();
        let mut unknown = 0;
        for group in (0..durable.geometry.group_count).map(GroupNumber) {
            let runs = self.alloc.free_runs(group).expect("a bitmap");
            let free: BTreeSet<usize> = runs.into_iter().flat_map(numbers).collect();
            let first = durable.geometry.group_first_block(group).0 as usize;
            for number in first..first + durable.geometry.blocks_in_group(group) as usize {
                let (can_be_given, is_busy) = (free.contains(&number), books.is_busy(number));
                assert!(!(can_be_given && is_busy), "block {number} can be given out and is somebody's");
                unknown += u64::from(!can_be_given && !is_busy);
                let is_used = matches!(books.blocks[number], Block::System | Block::Used);
                assert_eq!(durable.is_used(number as u64), is_used, "block {number} on the disk");
            }
        }
        unknown
    }
}

fn explore_disk(groups: u64) {
    let disk = Disk::new(1 + u64::from(BLOCKS_PER_GROUP) * groups, BLOCKS_PER_GROUP, true);
    explore(&plan::exploration(SCHEDULES), move |seed| {
        let mut random = Random::new(seed);
        let tasks = 2 + random.below(7) as usize;
        let stage = Stage::new(&disk, tasks, &mut random);
        let seeds: Vec<u64> = (0..tasks).map(|_| 1 + random.below(u64::MAX - 1)).collect();
        parallel(tasks, |task| stage.task(task, &mut Random::new(seeds[task])));
        stage.check(&mut random);
    });
}

#[test]
fn blocks_have_one_owner_and_none_is_lost() {
    explore_disk(4);
}

#[test]
fn blocks_of_many_groups_have_one_owner_and_none_is_lost() {
    explore_disk(66);
}

#[test]
fn blocks_of_nine_groups_have_one_owner_and_none_is_lost() {
    explore_disk(9);
}
