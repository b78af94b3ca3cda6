//! In which group an inode goes.
//!
//! Directories at the top are spread over the disk, so that the trees below them have room and their writers do not meet.
//! Other directories stay in their parent's neighbourhood (its flex group) as long as that is not worse than most, and
//! take its groups in turns: creators in one tree work in different groups, while a directory and its files share one. Threads that make
//! files in one directory at once begin in groups of their own there.
//! Files go to their directory's group, then elsewhere in the neighbourhood, then where the neighbourhood has room: by the
//! slots in which streams of blocks remember their goals, so that a search begins where the last one ended.
//!
//! Nothing here is locked: all of it is hints, and whoever finds a group full goes on.
//!
//! Source: kernel `find_group_orlov`, `find_group_other`, which puts all that a flex group takes into its first group with
//! room, and looks at every flex group.

use std::iter;
use std::ops::Range;

use extant_ondisk::{GroupNumber, InodeNumber};
use extant_rt::{AtomicU32, AtomicU64, Ordering, thread_slot};

use super::{InodeAllocator, InodeKind, NewInode};
use crate::bands::Bands;

/// Groups that are looked at for a directory at the top.
const TOP_GROUPS_MAX: u32 = 128;
/// The root and lost+found, in the first group.
const DIRECTORIES_OF_MKFS: u32 = 2;
/// Groups of a neighbourhood where there are no flex groups, and at most.
const NEIGHBOURS: u32 = 16;
const NEIGHBOURS_MAX: u32 = 64;
/// Groups in which threads make the files of one directory side by side.
const GROUPS_OF_THREADS: u32 = 64;
/// Neighbourhoods that are looked at for another directory.
const NEIGHBOURHOODS_MAX: u32 = 64;

/// The directory in which an inode is made.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    /// Its number.
    pub number: InodeNumber,
    /// Its group.
    pub group: GroupNumber,
    /// Where its last subdirectory went, if that is known.
    pub last: Option<&'a LastGroup>,
    /// Threads make inodes in it at once.
    pub is_shared: bool,
}

impl From<GroupNumber> for Parent<'_> {
    fn from(group: GroupNumber) -> Self {
        Self { number: InodeNumber(0), group, last: None, is_shared: false }
    }
}

/// The group that a directory's last subdirectory went to (kernel `i_last_alloc_group`).
#[derive(Debug)]
pub struct LastGroup(AtomicU32);

impl Default for LastGroup {
    fn default() -> Self {
        Self(AtomicU32::new(u32::MAX))
    }
}

/// What a neighbourhood has on average, as of the last freeze.
#[derive(Debug)]
pub(super) struct Averages {
    free_blocks: AtomicU64,
    free_inodes: AtomicU64,
    directories: AtomicU64,
}

/// What groups have together.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    free_blocks: u64,
    free_inodes: u64,
    directories: u64,
}

impl Averages {
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { free_blocks: zero(), free_inodes: zero(), directories: zero() }
    }

    // Relaxed: each number stands for itself, and old ones do.
    fn get(&self) -> Sums {
        Sums {
            free_blocks: self.free_blocks.load(Ordering::Relaxed),
            free_inodes: self.free_inodes.load(Ordering::Relaxed),
            directories: self.directories.load(Ordering::Relaxed),
        }
    }
}

/// How far into `len` groups the thread of a slot begins: the lower slots, which few threads have, lie far apart (van der Corput's sequence),
/// for each thread goes on into the groups behind its first one.
fn place_of_slot(slot: usize, len: u32) -> u32 {
    let share = (slot as u32).reverse_bits();
    ((u64::from(share) * u64::from(len)) >> u32::BITS) as u32
}

impl InodeAllocator {
    /// The inode that `allocate` gives of the first group that has one, in the order that suits the inode.
    pub(super) fn find_group(
        &self,
        parent: Parent<'_>,
        kind: InodeKind,
        allocate: impl Fn(GroupNumber) -> Option<NewInode>,
    ) -> Option<NewInode> {
        let group = if parent.group.0 < self.geometry.group_count { parent.group } else { GroupNumber(0) };
        match kind {
            InodeKind::Other if parent.is_shared => self.find_group_of_thread(parent.number, group, allocate),
            InodeKind::Other => self.find_group_other(parent.number, group, allocate),
            InodeKind::TopDirectory | InodeKind::Directory => {
                let hint = parent.last.map_or(u32::MAX, |last| last.0.load(Ordering::Relaxed));
                let hint = Some(GroupNumber(hint)).filter(|hint| hint.0 < self.geometry.group_count);
                let made = self.find_group_orlov(group, hint, kind, allocate)?;
                let place = self.group_of(made.number);
                if let Some(last) = parent.last
                    && place != hint
                {
                    last.0.store(place.map_or(u32::MAX, |place| place.0), Ordering::Relaxed);
                }
                Some(made)
            }
        }
    }

    fn group_of(&self, inode: InodeNumber) -> Option<GroupNumber> {
        self.geometry.inode_location(inode).map(|(group, _)| group)
    }

    fn find_group_other(
        &self,
        directory: InodeNumber,
        own: GroupNumber,
        allocate: impl Fn(GroupNumber) -> Option<NewInode>,
    ) -> Option<NewInode> {
        let near = self.neighbourhood(own);
        if let Some(made) = self.round(near.clone(), own).find_map(&allocate) {
            return Some(made);
        }
        let goal = self.goals.inodes(own, directory);
        let roomy = goal.filter(|goal| self.with_inodes.contains(*goal));
        let start = roomy.or_else(|| self.neighbour_with_room(own, goal, self.goals.turn(own, directory)));
        self.find_goal(directory, own, start.unwrap_or(GroupNumber(near.end)), allocate)
    }

    /// Where threads make files side by side: a group of the calling thread's own around the directory's, as far as there are so many, and
    /// when these are full around the one where the directory's inodes go on.
    fn find_group_of_thread(
        &self,
        directory: InodeNumber,
        own: GroupNumber,
        allocate: impl Fn(GroupNumber) -> Option<NewInode>,
    ) -> Option<NewInode> {
        let mut end = 0;
        for around in iter::once(own).chain(self.goals.inodes(own, directory)) {
            let near = self.groups_around(around, GROUPS_OF_THREADS.next_multiple_of(self.neighbours()));
            end = near.end;
            let len = near.len().max(1) as u32;
            let first = near.start + (around.0 - near.start + place_of_slot(thread_slot(), len)) % len;
            if let Some(made) = self.round(near, GroupNumber(first)).find_map(&allocate) {
                return Some(made);
            }
        }
        self.find_goal(directory, own, GroupNumber(end), allocate)
    }

    /// The first group from `start` on that has an inode, where those of the directory go on from now on.
    fn find_goal(
        &self,
        directory: InodeNumber,
        own: GroupNumber,
        start: GroupNumber,
        allocate: impl Fn(GroupNumber) -> Option<NewInode>,
    ) -> Option<NewInode> {
        let made = self.with_inodes.walk(start).find_map(&allocate)?;
        if let Some(group) = self.group_of(made.number) {
            self.goals.set_inodes(own, directory, group);
        }
        Some(made)
    }

    /// The groups with inodes of a stretch, from `first` on and round.
    fn round(&self, groups: Range<u32>, first: GroupNumber) -> impl Iterator<Item = GroupNumber> {
        self.with_inodes.range(first.0..groups.end).chain(self.with_inodes.range(groups.start..first.0))
    }

    fn find_group_orlov(
        &self,
        parent: GroupNumber,
        hint: Option<GroupNumber>,
        kind: InodeKind,
        allocate: impl Fn(GroupNumber) -> Option<NewInode>,
    ) -> Option<NewInode> {
        let start = match kind {
            _ if !self.tuning.spread_directories => GroupNumber(self.neighbourhood(parent).start),
            InodeKind::TopDirectory => self.spread_top_directory(),
            _ => self
                .neighbour_with_room(parent, hint, 0)
                .or_else(|| self.with_inodes.walk(parent).find(|group| self.has_share_of_inodes(*group)))
                .unwrap_or(parent),
        };
        let has_blocks = |group: &GroupNumber| self.free_in(*group) > 0;
        let roomy = self.with_inodes.walk(start).filter(has_blocks).find_map(&allocate);
        roomy.or_else(|| self.with_inodes.walk(start).find_map(&allocate))
    }

    /// Of groups evenly over the disk that have their share of the free blocks and inodes, one of the band whose such groups
    /// have the fewest directories: of those the one with the fewest, and of equals the one farthest from those before it: the
    /// first, the middle, the quarters, and so on. If all are first groups of flex groups, with the tables of the others, a
    /// quarter of the share will do.
    fn spread_top_directory(&self) -> GroupNumber {
        let groups = self.geometry.group_count;
        let share = self.free_blocks() / u64::from(groups.max(1));
        let candidates = groups.min(TOP_GROUPS_MAX);
        let bits = candidates.next_power_of_two().ilog2();
        let evenly: Vec<_> = (0..1 << bits)
            .map(|index: u32| index.reverse_bits().checked_shr(u32::BITS - bits).unwrap_or(0))
            .filter(|place| *place < candidates)
            .map(|place| (u64::from(place) * u64::from(groups) / u64::from(candidates)) as u32)
            .map(GroupNumber)
            .collect();
        let directories = |group: GroupNumber| match group {
            GroupNumber(0) => self.counts_of(group).directories.saturating_sub(DIRECTORIES_OF_MKFS),
            _ => self.counts_of(group).directories,
        };
        let bands = Bands::new(groups);
        let mut of_band = vec![0; bands.count() as usize];
        for group in &evenly {
            of_band[bands.of(*group) as usize] += directories(*group);
        }
        let fewest = |share: u64| {
            let has_share = |group: &GroupNumber| {
                u64::from(self.free_in(*group)) >= share && self.has_share_of_inodes(*group)
            };
            let key = |group: &GroupNumber| (of_band[bands.of(*group) as usize], directories(*group));
            evenly.iter().copied().filter(has_share).min_by_key(key)
        };
        fewest(share).or_else(|| fewest(share / 4)).unwrap_or(GroupNumber(0))
    }

    fn free_in(&self, group: GroupNumber) -> u32 {
        self.counts_of(group).free_blocks
    }

    /// Whether the group has at least a quarter of the free inodes that groups have on average. The kernel asks for the
    /// average itself, which one inode more than in all the others suffices to miss.
    fn has_share_of_inodes(&self, number: GroupNumber) -> bool {
        let average = self.averages.get().free_inodes / u64::from(self.neighbours());
        let free = self.counts_of(number).free_inodes;
        free > 0 && u64::from(free) >= average / 4
    }

    fn neighbours(&self) -> u32 {
        match self.geometry.groups_per_flex {
            0 | 1 => NEIGHBOURS,
            groups => groups.min(NEIGHBOURS_MAX),
        }
    }

    /// The groups of a group's neighbourhood.
    fn neighbourhood(&self, group: GroupNumber) -> Range<u32> {
        self.groups_around(group, self.neighbours())
    }

    /// The stretch of so many groups that has a group.
    fn groups_around(&self, group: GroupNumber, count: u32) -> Range<u32> {
        let start = group.0 - group.0 % count;
        start..(start + count).min(self.geometry.group_count)
    }

    /// The next group in turn of the first neighbourhood, from that of the last group on, that is not much worse than
    /// most: in directories, free inodes and free blocks. In a neighbourhood that is entered it is the group of that turn.
    fn neighbour_with_room(
        &self,
        parent: GroupNumber,
        last: Option<GroupNumber>,
        turn: u32,
    ) -> Option<GroupNumber> {
        let last = last.unwrap_or(parent);
        let average = self.averages.get();
        let mut start = self.neighbourhood(last).start;
        for _ in 0..NEIGHBOURHOODS_MAX.min(self.neighbourhood_count()) {
            let groups = self.neighbourhood(GroupNumber(start));
            let sums = self.sums(groups.clone());
            let inodes = u64::from(self.geometry.inodes_per_group) * groups.len() as u64;
            let blocks = u64::from(self.geometry.clusters_per_group) * groups.len() as u64;
            let is_good = sums.directories < average.directories + (inodes / 16).max(1)
                && sums.free_inodes >= average.free_inodes.saturating_sub(inodes / 4).max(1)
                && sums.free_blocks >= average.free_blocks.saturating_sub(blocks / 4);
            if is_good {
                let share = sums.free_blocks / groups.len() as u64 / 2;
                return self.next_in_turn(groups, last, turn, share as u32);
            }
            start = if groups.end < self.geometry.group_count { groups.end } else { 0 };
        }
        None
    }

    fn neighbourhood_count(&self) -> u32 {
        self.geometry.group_count.div_ceil(self.neighbours())
    }

    fn sums(&self, groups: Range<u32>) -> Sums {
        groups.map(|group| self.counts_of(GroupNumber(group))).fold(Sums::default(), |sums, group| Sums {
            free_blocks: sums.free_blocks + u64::from(group.free_blocks),
            free_inodes: sums.free_inodes + u64::from(group.free_inodes),
            directories: sums.directories + u64::from(group.directories),
        })
    }

    /// The first of the groups behind `last`, and round, that has free inodes and at least `blocks` free blocks.
    fn next_in_turn(
        &self,
        groups: Range<u32>,
        last: GroupNumber,
        turn: u32,
        blocks: u32,
    ) -> Option<GroupNumber> {
        let entered = || groups.start + turn % groups.len().max(1) as u32;
        let from = if groups.contains(&last.0) { last.0 + 1 } else { entered() };
        let in_turn = |number: &u32| {
            let group = self.counts_of(GroupNumber(*number));
            group.free_inodes > 0 && group.free_blocks >= blocks.max(1)
        };
        (from..groups.end).chain(groups.start..from).find(in_turn).map(GroupNumber)
    }

    /// Sets what neighbourhoods have on average.
    pub(crate) fn renew_averages(&self) {
        let count = u64::from(self.neighbourhood_count().max(1));
        let averages = &self.averages;
        averages.free_blocks.store(self.disk_free_blocks() / count, Ordering::Relaxed);
        averages.free_inodes.store(self.free_inodes() / count, Ordering::Relaxed);
        // Of the groups that were read; others are taken to have as many.
        let (blocks, read) = (self.geometry.descriptor_block_count(), self.descriptor_blocks_read());
        let directories = self.counters.directories.sum() as f64 * f64::from(blocks) / f64::from(read.max(1));
        averages.directories.store(directories as u64 / count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_threads_begin_far_apart() {
        for (slots, len) in [(1, 64), (2, 64), (4, 64), (64, 64), (128, 64), (3, 48), (8, 5)] {
            let mut places: Vec<_> = (0..slots).map(|slot| place_of_slot(slot, len)).collect();
            places.sort_unstable();
            let around = places.iter().skip(1).copied().chain([places[0] + len]);
            let apart = places.iter().zip(around).map(|(place, next)| next - place).min();
            assert!(apart >= Some(len / (slots as u32).next_power_of_two()), "{slots} in {len}: {places:?}");
            assert!(places.iter().all(|place| *place < len));
        }
    }
}
