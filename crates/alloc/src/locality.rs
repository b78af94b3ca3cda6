//! Locality groups: chunks of blocks taken ahead for small files, which are packed one behind the other in them. A chunk is
//! searched for once for many files, and threads that write in different groups meet neither in a lock nor in a buddy.
//!
//! A file's [`LocalityHint`] is the group of its inode and its directory. Chunks of groups that fall into one slot of their
//! band share a lock. A directory takes over the chunk of the one that wrote before it in their group; one that comes
//! back to find its chunk taken over gets one of its own, so that directories written one after the other are packed,
//! and those written at once do not mix. No chunk is searched for while a group's own free runs are shorter and suffice: small
//! files fill these. The chunks of a full group are sought in groups where no other slot found its last
//! one: whoever fills a group marks each block under its lock.
//!
//! Invariant: as of [`crate::prealloc`]; a search for a chunk is announced, so that whoever lacks blocks waits for it.
//!
//! Locks: `LOCALITY`, one per slot, held over no search. Source: kernel `ext4_mb_group_or_file`, `struct
//! ext4_locality_group`, which goes by the CPU instead. Tests: below and `tests/alloc/locality.rs`.

use std::collections::VecDeque;

use extant_ondisk::{Cluster, GroupNumber, InodeNumber};
use extant_rt::{AtomicU32, Condvar, LockClass, Mutex, Ordering, Padded};

use crate::bands::Bands;
use crate::group::{ClusterRun, Group};

/// Slots of a band at most: one for each group of a band of the least size, so that directories far apart share none.
const SLOTS_MAX: u32 = 64;
/// Slots by which groups of a band that are [`SLOTS_MAX`] apart are: more than a neighbourhood of flex groups has, and twice, four and eight times
/// as many are too.
const SLOTS_APART: u32 = 20;
/// Chunks of a slot, and of one group of inodes.
const CHUNKS_MAX: usize = 8;
const CHUNKS_PER_GROUP_MAX: usize = 4;
/// Orders of free blocks that are told apart (kernel `PREALLOC_TB_SIZE`).
const ORDERS: usize = 10;

/// Where a small file belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalityHint {
    /// The group of its inode.
    pub inode_group: GroupNumber,
    /// The directory that it was made in; 0 if that is not known.
    pub directory: InodeNumber,
}

/// What is left of a chunk, and the hint of the file that took of it last.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    hint: LocalityHint,
    run: ClusterRun,
}

#[derive(Debug, Default)]
struct LocalityGroup {
    /// By the order of their free blocks, at least one; of one order, the newest last.
    chunks: [Vec<Chunk>; ORDERS],
    /// Hints whose chunks others took over, the newest last.
    displaced: VecDeque<LocalityHint>,
    /// Threads that search for a chunk.
    searching: u32,
    /// How often the blocks that are asked for were halved, because no run of so many was found.
    halved: u32,
}

#[derive(Debug)]
struct Slot {
    locality: Mutex<LocalityGroup>,
    /// A search has ended.
    searched: Condvar,
    /// The group where the last chunk was found.
    group: AtomicU32,
}

/// The locality groups of a disk.
#[derive(Debug)]
pub(crate) struct LocalityGroups {
    bands: Bands,
    per_band: u32,
    slots: Box<[Padded<Slot>]>,
}

fn order(len: u32) -> usize {
    (len.max(1).ilog2() as usize).min(ORDERS - 1)
}

impl LocalityGroups {
    pub fn new(bands: Bands) -> Self {
        let slot = |_| {
            let locality = Mutex::new(LockClass::LOCALITY, LocalityGroup::default());
            Padded(Slot { locality, searched: Condvar::new(), group: AtomicU32::new(u32::MAX) })
        };
        let per_band = bands.groups(0).1.min(SLOTS_MAX);
        Self { bands, per_band, slots: (0..bands.count() * per_band).map(slot).collect() }
    }

    fn slot(&self, inode_group: GroupNumber) -> &Slot {
        &self.slots[self.slot_of(inode_group) as usize].0
    }

    /// The number of the slot of a group of inodes.
    fn slot_of(&self, inode_group: GroupNumber) -> u32 {
        let band = self.bands.of(inode_group);
        let (first, _) = self.bands.groups(band);
        let within = inode_group.0.saturating_sub(first.0);
        // Trees begin at even distances, and should not all meet in the first slots.
        band * self.per_band + (within + within / SLOTS_MAX * SLOTS_APART) % self.per_band
    }

    /// The locality group of a group of inodes.
    pub fn chunk_owner(&self, inode_group: GroupNumber) -> ChunkOwner<'_> {
        ChunkOwner { groups: self, inode_group }
    }

    /// Takes `len` blocks for a file with a hint.
    pub fn use_pa(&self, hint: LocalityHint, len: u32) -> Option<ClusterRun> {
        let mut locality = self.slot(hint.inode_group).locality.lock();
        let (at, index) = locality.find(hint, len)?;
        let mut chunk = locality.chunks[at].remove(index);
        if chunk.hint != hint {
            locality.displace(std::mem::replace(&mut chunk.hint, hint));
        }
        let taken = ClusterRun { len, ..chunk.run };
        chunk.run =
            ClusterRun { start: Cluster(chunk.run.start.0 + u64::from(len)), len: chunk.run.len - len };
        locality.put(chunk);
        Some(taken)
    }

    /// Takes up to `len` blocks from `goal` on, if a chunk of the group begins there: a file that outgrows its chunk
    /// stays in one piece.
    pub fn use_pa_at(&self, inode_group: GroupNumber, goal: Cluster, len: u32) -> Option<ClusterRun> {
        let mut locality = self.slot(inode_group).locality.lock();
        let mut chunk = locality.remove(|chunk| chunk.run.start == goal)?;
        let taken = ClusterRun { len: len.min(chunk.run.len), ..chunk.run };
        chunk.run =
            ClusterRun { start: Cluster(goal.0 + u64::from(taken.len)), len: chunk.run.len - taken.len };
        locality.put(chunk);
        Some(taken)
    }

    /// Announces a search for a chunk.
    pub fn begin_search(&self, hint: LocalityHint) -> ChunkSearch<'_> {
        let slot = self.slot(hint.inode_group);
        let mut locality = slot.locality.lock();
        locality.searching += 1;
        ChunkSearch { slot, hint, halved: locality.halved, has_ended: false }
    }

    /// Takes blocks back into the chunk that they were taken from last: whether there is one.
    pub fn return_pa(&self, inode_group: GroupNumber, run: ClusterRun) -> bool {
        let mut locality = self.slot(inode_group).locality.lock();
        let end = run.start.0 + u64::from(run.len);
        let Some(mut chunk) = locality.remove(|chunk| chunk.run.start.0 == end) else { return false };
        chunk.run = ClusterRun { start: run.start, len: chunk.run.len + run.len };
        locality.put(chunk);
        true
    }

    /// Takes all chunks out, slot by slot, those too that are being searched for.
    pub fn drain(&self) -> impl Iterator<Item = Vec<ClusterRun>> {
        self.slots.iter().map(|slot| {
            let mut locality = slot.locality.lock();
            while locality.searching > 0 {
                locality = slot.searched.wait(locality);
            }
            let chunks = std::mem::take(&mut locality.chunks);
            chunks.into_iter().flatten().map(|chunk| chunk.run).collect()
        })
    }
}

/// A locality group for which mballoc searches a chunk: where the last ones of others were found, so that it is found apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkOwner<'l> {
    groups: &'l LocalityGroups,
    inode_group: GroupNumber,
}

impl ChunkOwner<'_> {
    /// The group of the inodes that it is for.
    pub fn inode_group(self) -> GroupNumber {
        self.inode_group
    }

    /// Whether a group has the last chunk of another slot. A hint.
    pub fn is_chunk_of_other_in(self, number: GroupNumber, group: &Group) -> bool {
        group.chunk_slot().is_some_and(|slot| slot != self.slot() && self.is_last_in(slot, number))
    }

    /// A chunk was found in a group.
    pub fn set_found(self, number: GroupNumber, group: &Group) {
        let slot = self.slot();
        if self.is_last_in(slot, number) && group.chunk_slot() == Some(slot) {
            return;
        }
        if let Some(slot) = self.groups.slots.get(slot as usize) {
            slot.group.store(number.0, Ordering::Relaxed);
        }
        group.set_chunk_slot(slot);
    }

    fn slot(self) -> u32 {
        self.groups.slot_of(self.inode_group)
    }

    fn is_last_in(self, slot: u32, number: GroupNumber) -> bool {
        let slot = self.groups.slots.get(slot as usize);
        slot.is_some_and(|slot| slot.group.load(Ordering::Relaxed) == number.0)
    }
}

/// A search that was announced. A panic ends it too: who drains the chunks waits for its end.
#[derive(Debug)]
#[must_use = "a search is ended with what it found"]
pub(crate) struct ChunkSearch<'l> {
    slot: &'l Slot,
    hint: LocalityHint,
    /// How often to halve what is asked for.
    pub halved: u32,
    has_ended: bool,
}

impl ChunkSearch<'_> {
    /// Ends the search with what it found, of `asked` blocks: chunks that must go for it.
    pub fn end(mut self, asked: u32, found: Option<ClusterRun>) -> Vec<ClusterRun> {
        let mut locality = self.slot.locality.lock();
        locality.searching -= 1;
        self.has_ended = true;
        let gone = match found {
            Some(run) => {
                let is_short = run.len < asked / 2;
                locality.halved =
                    if is_short { locality.halved + 1 } else { locality.halved.saturating_sub(1) };
                locality.displaced.retain(|displaced| *displaced != self.hint);
                locality.put(Chunk { hint: self.hint, run });
                locality.trim()
            }
            None => Vec::new(),
        };
        drop(locality);
        self.slot.searched.notify_all();
        gone
    }
}

impl Drop for ChunkSearch<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.slot.locality.lock().searching -= 1;
            self.slot.searched.notify_all();
        }
    }
}

impl LocalityGroup {
    /// The chunk for `len` blocks of a place: its order and its index there.
    fn find(&self, hint: LocalityHint, len: u32) -> Option<(usize, usize)> {
        let (mut newest, mut of_home) = (None, 0);
        for (at, chunks) in self.chunks.iter().enumerate().skip(order(len)) {
            for (index, chunk) in chunks.iter().enumerate() {
                if chunk.hint.inode_group != hint.inode_group || chunk.run.len < len {
                    continue;
                }
                if chunk.hint == hint {
                    return Some((at, index));
                }
                of_home += 1;
                newest = Some((at, index));
            }
        }
        newest.filter(|_| of_home >= CHUNKS_PER_GROUP_MAX || !self.displaced.contains(&hint))
    }

    fn displace(&mut self, hint: LocalityHint) {
        if self.displaced.len() >= CHUNKS_MAX {
            self.displaced.pop_front();
        }
        self.displaced.push_back(hint);
    }

    fn remove(&mut self, is_it: impl Fn(&Chunk) -> bool) -> Option<Chunk> {
        self.chunks.iter_mut().find_map(|chunks| {
            let index = chunks.iter().position(&is_it)?;
            Some(chunks.remove(index))
        })
    }

    fn put(&mut self, chunk: Chunk) {
        if chunk.run.len > 0 {
            self.chunks[order(chunk.run.len)].push(chunk);
        }
    }

    /// Takes out the chunks with the fewest blocks, if there are too many.
    fn trim(&mut self) -> Vec<ClusterRun> {
        let count: usize = self.chunks.iter().map(Vec::len).sum();
        let mut gone = Vec::new();
        for chunks in &mut self.chunks {
            let excess = count.saturating_sub(CHUNKS_MAX + gone.len()).min(chunks.len());
            gone.extend(chunks.drain(..excess).map(|chunk| chunk.run));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(inode_group: u32, directory: u32) -> LocalityHint {
        LocalityHint { inode_group: GroupNumber(inode_group), directory: InodeNumber(directory) }
    }

    fn add(groups: &LocalityGroups, hint: LocalityHint, start: u64, len: u32) -> Vec<ClusterRun> {
        groups.begin_search(hint).end(len, Some(ClusterRun { start: Cluster(start), len }))
    }

    fn starts(groups: &LocalityGroups, hint: LocalityHint, count: usize) -> Vec<Option<u64>> {
        (0..count).map(|_| groups.use_pa(hint, 2).map(|run| run.start.0)).collect()
    }

    #[test]
    fn trees_at_even_distances_in_a_band_have_slots_of_their_own() {
        for groups in [64 * 64, 64 * 256, 64 * 1024] {
            let groups = LocalityGroups::new(Bands::new(groups));
            let (first, count) = groups.bands.groups(3);
            // Each in its neighbourhood of 16 groups.
            for apart in [64, 128, 256, 512].into_iter().filter(|apart| apart + 16 <= count) {
                let slots = |from: u32| {
                    (from..from + 16)
                        .map(|group| groups.slot_of(GroupNumber(first.0 + group)))
                        .collect::<Vec<_>>()
                };
                let (near, far) = (slots(0), slots(apart));
                assert!(near.iter().all(|slot| !far.contains(slot)), "{apart}: {near:?} {far:?}");
            }
            let mut own: Vec<_> = (0..64).map(|group| groups.slot_of(GroupNumber(first.0 + group))).collect();
            own.sort_unstable();
            own.dedup();
            assert_eq!(own.len(), 64, "neighbours share none");
        }
    }

    #[test]
    fn directories_in_turn_are_packed_and_those_at_once_are_kept_apart() {
        let groups = LocalityGroups::new(Bands::new(8));
        let [first, second, third] = [1, 2, 3].map(|directory| hint(5, directory));
        assert_eq!(starts(&groups, first, 1), [None]);
        add(&groups, first, 100, 20);
        assert_eq!(starts(&groups, first, 2), [Some(100), Some(102)]);
        assert_eq!(starts(&groups, second, 2), [Some(104), Some(106)], "packed behind the first");
        assert_eq!(starts(&groups, first, 1), [None], "displaced: one of its own is to be searched");
        add(&groups, first, 200, 20);
        assert_eq!(starts(&groups, first, 2), [Some(200), Some(202)]);
        assert_eq!(starts(&groups, second, 2), [Some(108), Some(110)]);
        assert_eq!(starts(&groups, hint(6, 1), 1), [None], "another group");
        assert!(starts(&groups, third, 1)[0].is_some());
    }

    #[test]
    fn what_was_taken_last_can_be_given_back_and_small_rests_serve_small_files() {
        let groups = LocalityGroups::new(Bands::new(8));
        let here = hint(5, 1);
        add(&groups, here, 100, 8);
        let taken = groups.use_pa(here, 5).expect("a chunk");
        assert!(
            !groups.return_pa(here.inode_group, ClusterRun { len: 2, ..taken }),
            "not what comes before the chunk"
        );
        assert!(groups.return_pa(here.inode_group, ClusterRun { start: Cluster(103), len: 2 }));
        assert_eq!(groups.use_pa(here, 4).expect("a chunk").start.0, 103);
        assert_eq!(groups.use_pa(here, 2), None);
        assert_eq!(groups.use_pa_at(here.inode_group, Cluster(106), 1), None);
        let rest = groups.use_pa_at(here.inode_group, Cluster(107), 9);
        assert_eq!(rest, Some(ClusterRun { start: Cluster(107), len: 1 }));
        assert_eq!(groups.drain().flatten().count(), 0);
    }

    #[test]
    fn chunks_with_the_fewest_blocks_go_first_and_short_runs_halve_what_is_asked_for() {
        let groups = LocalityGroups::new(Bands::new(8));
        let lens: Vec<u32> = vec![64, 3, 64, 64, 64, 1, 64, 64];
        for (index, len) in lens.iter().enumerate() {
            assert!(add(&groups, hint(5, index as u32), index as u64 * 100, *len).is_empty());
        }
        let gone = add(&groups, hint(5, 9), 900, 64);
        assert_eq!(gone, [ClusterRun { start: Cluster(500), len: 1 }]);
        let search = groups.begin_search(hint(5, 9));
        assert_eq!(search.halved, 0);
        search.end(512, Some(ClusterRun { start: Cluster(2000), len: 9 }));
        let search = groups.begin_search(hint(5, 9));
        assert_eq!(search.halved, 1);
        search.end(256, None);
        assert_eq!(groups.drain().flatten().map(|run| run.len).sum::<u32>(), 7 * 64 + 9);
    }

    #[test]
    fn a_search_that_panics_has_ended() {
        if cfg!(panic = "abort") {
            println!("skipped: a panic ends the process");
            return;
        }
        let groups = LocalityGroups::new(Bands::new(8));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _search = groups.begin_search(hint(5, 1));
            panic!("in the search");
        }));
        assert!(panicked.is_err());
        // It would wait for ever.
        assert_eq!(groups.slot(GroupNumber(5)).locality.lock().searching, 0);
        assert_eq!(groups.drain().flatten().count(), 0);
    }
}
