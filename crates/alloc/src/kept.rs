//! Which bitmaps stay in memory.
//!
//! There is room for so many bytes of them. Who reads one more drops others first, and so does who ends a commit: those of a
//! group that was not used since the search last passed it (second chance), that no transaction under way has changed, and
//! whose buddy knows nothing that the disk does not: no block of it is taken, preallocated or freed and not committed. While
//! there are only others, there is no end to what is kept.
//!
//! What is dropped is read again as the last transaction left it. Who reads without the group's lock sees by its count of
//! drops whether another thread read, changed and dropped the bitmap meanwhile, and reads once more.
//!
//! Nothing here is touched by who finds the bitmaps in memory, but for a mark under the group's own lock.
//!
//! Locks: a group's (`GROUP`), tried only. Tests: `tests/alloc/kept.rs`.

use extant_ondisk::{GroupDescriptor, GroupNumber, TransactionId};
use extant_rt::{AtomicU32, AtomicU64, Ordering, Padded, SHARDS, thread_slot};

use crate::group::{Bitmap, Group, State};
use crate::group_set::GroupSet;
use crate::linux_model::block_group_locks::GroupGuard;
use crate::{Allocator, Result};

/// See the module.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Groups with a bitmap in memory.
    groups: GroupSet,
    /// Where the search for bitmaps to drop goes on.
    hand: AtomicU32,
    /// Of the size of a block, but for those in `parts`; in two's complement.
    bitmaps: Padded<AtomicU64>,
    /// What threads counted since they last told: less than a step each.
    parts: Box<[Padded<AtomicU64>]>,
    step: u64,
    bitmaps_max: u64,
}

/// Bitmaps that a thread counts by itself at most, if that is a small part of what there is room for.
const STEP_MAX: u64 = 64;
/// Of the room, for all threads together.
const STEPS_PART: u64 = 4;

/// A block bitmap, what may be given out of it, and the chunks of that.
pub(crate) const OF_BLOCKS: u64 = 3;
pub(crate) const OF_INODES: u64 = 1;
/// Groups that are looked at for one bitmap.
const LOOKED_AT_MAX: u64 = 64;

impl Kept {
    /// Nothing yet, of `groups` groups; room for so many bitmaps.
    pub fn new(groups: u32, bitmaps_max: u64) -> Self {
        Self {
            groups: GroupSet::new(groups),
            hand: AtomicU32::new(0),
            bitmaps: Padded::default(),
            parts: (0..SHARDS).map(|_| Padded::default()).collect(),
            step: (bitmaps_max / (STEPS_PART * SHARDS as u64)).min(STEP_MAX),
            bitmaps_max,
        }
    }

    /// Bitmaps of a group came into memory. To be called with its lock held.
    pub fn add(&self, group: GroupNumber, bitmaps: u64) {
        self.groups.insert(group);
        let part = &self.parts[thread_slot() % SHARDS];
        if part.fetch_add(bitmaps, Ordering::Relaxed) + bitmaps >= self.step {
            self.bitmaps.fetch_add(part.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn has_room(&self) -> bool {
        self.told() < self.bitmaps_max
    }

    /// Bitmaps, but for those in `parts`.
    fn told(&self) -> u64 {
        u64::try_from(self.bitmaps.load(Ordering::Relaxed).cast_signed()).unwrap_or(0)
    }

    /// The next group in turn.
    fn next(&self) -> Option<GroupNumber> {
        // Relaxed, and not in one step: two that look at the same group do no harm.
        let from = GroupNumber(self.hand.load(Ordering::Relaxed));
        let next = self.groups.next(from).or_else(|| self.groups.next(GroupNumber(0)))?;
        self.hand.store(next.0.wrapping_add(1), Ordering::Relaxed);
        Some(next)
    }
}

impl Allocator {
    /// Bytes of bitmaps and buddies in memory.
    #[must_use]
    pub fn bitmap_bytes(&self) -> u64 {
        let parts = self.kept.parts.iter().map(|part| part.load(Ordering::Relaxed));
        let bitmaps = parts.fold(self.kept.bitmaps.load(Ordering::Relaxed), u64::wrapping_add);
        bitmaps * u64::from(self.geometry.block_size)
    }

    /// Reads the block bitmap of a group, with its lock let go meanwhile; it may be missing again.
    pub(crate) fn read_blocks<'a>(
        &'a self,
        number: GroupNumber,
        group: &'a Group,
        state: GroupGuard<'a>,
    ) -> Result<GroupGuard<'a>> {
        let load = |descriptor: &GroupDescriptor| self.load_block_bits(number, descriptor);
        let install = |state: &mut State, loaded| self.install_block_bits(number, state, loaded);
        self.read_bitmap(number, group, state, load, install)
    }

    /// Reads the inode bitmap of a group, with its lock let go meanwhile; it may be missing again.
    pub(crate) fn read_inodes<'a>(
        &'a self,
        number: GroupNumber,
        group: &'a Group,
        state: GroupGuard<'a>,
    ) -> Result<GroupGuard<'a>> {
        let load = |descriptor: &GroupDescriptor| self.load_inode_bits(number, descriptor);
        let install = |state: &mut State, loaded| self.install_inode_bits(number, state, loaded);
        self.read_bitmap(number, group, state, load, install)
    }

    fn read_bitmap<'a, B>(
        &'a self,
        number: GroupNumber,
        group: &'a Group,
        state: GroupGuard<'a>,
        load: impl FnOnce(&GroupDescriptor) -> B,
        install: impl FnOnce(&mut State, B) -> Result<()>,
    ) -> Result<GroupGuard<'a>> {
        let (descriptor, drops) = (state.record.descriptor.clone(), state.drops);
        drop(state);
        self.make_room(LOOKED_AT_MAX);
        let loaded = load(&descriptor);
        let mut state = self.lock(number, group);
        if state.drops == drops {
            install(&mut state, loaded)?;
        }
        Ok(state)
    }

    /// Looks for bitmaps to drop, once at as many groups as hold those that are too many, after a commit.
    pub(crate) fn drop_excess(&self) {
        let excess = self.kept.told().saturating_sub(self.kept.bitmaps_max);
        self.make_room(excess.div_ceil(OF_BLOCKS));
    }

    /// Drops bitmaps of up to `looked_at` groups until there is room for more.
    fn make_room(&self, looked_at: u64) {
        for _ in 0..looked_at {
            if self.kept.has_room() {
                return;
            }
            let Some(number) = self.kept.next() else { return };
            self.drop_bitmaps(number);
        }
    }

    fn drop_bitmaps(&self, number: GroupNumber) {
        let Some(group) = self.groups.touched(number) else { return };
        let Some(mut state) = self.locks.try_lock(number, group) else { return };
        if std::mem::take(&mut state.is_used) {
            return;
        }
        let dropped = state.drop_bitmaps(self.durable());
        self.kept.bitmaps.fetch_sub(dropped, Ordering::Relaxed);
        let has_any = matches!(state.blocks, Bitmap::Loaded(_)) || matches!(state.inodes, Bitmap::Loaded(_));
        if !has_any {
            self.kept.groups.remove(number);
        }
    }

    /// The last transaction known to be durable: what it wrote is found by who reads.
    pub(crate) fn durable(&self) -> Option<TransactionId> {
        // Acquire, with the release of `committed`: what is durable is seen.
        let committed = self.committed.load(Ordering::Acquire);
        (committed >> u32::BITS != 0).then_some(TransactionId(committed as u32))
    }

    /// The checksums that a commit gave to a group's bitmaps, for who reads them again.
    pub fn set_checksums(&self, number: GroupNumber, block_bitmap: u32, inode_bitmap: u32) {
        let Some(group) = self.groups.touched(number) else { return };
        let descriptor = &mut self.lock(number, group).record.descriptor;
        descriptor.set_block_bitmap_csum(block_bitmap);
        descriptor.set_inode_bitmap_csum(inode_bitmap);
    }
}

impl State {
    /// Drops the bitmaps that can be read again: how many.
    fn drop_bitmaps(&mut self, durable: Option<TransactionId>) -> u64 {
        let Self { record, blocks, inodes, .. } = self;
        let is_changed = record.blocks_changed || record.inodes_changed || !record.freed.is_empty();
        let is_durable =
            record.changed_in().is_none_or(|tid| durable.is_some_and(|durable| !tid.is_after(durable)));
        if is_changed || !is_durable {
            return 0;
        }
        let mut dropped = 0;
        // What the buddy lacks is a part of what the disk has free: as much is the same.
        let free = record.descriptor.free_blocks_count();
        if matches!(blocks, Bitmap::Loaded(bits) if bits.buddy.free() == free) {
            *blocks = Bitmap::Unread;
            dropped += OF_BLOCKS;
        }
        if matches!(inodes, Bitmap::Loaded(_)) {
            *inodes = Bitmap::Unread;
            dropped += OF_INODES;
        }
        self.drops = self.drops.wrapping_add(u32::from(dropped > 0));
        dropped
    }
}
