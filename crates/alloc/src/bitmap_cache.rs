//! The cache of groups' bitmaps and buddies.
//!
//! Reading a bitmap evicts others until the cache is within its limit; so does the end of a commit. A group's bitmaps are
//! evicted if the group was not used since the clock hand last passed it (second chance), no transaction under way has
//! changed it, and its buddy knows nothing that the disk does not: no block of it is allocated and unmarked, preallocated, or
//! freed and not committed. If no group qualifies, the cache exceeds its limit.
//!
//! An evicted bitmap is read again as the last transaction left it. A reader does not hold the group's lock during I/O: it
//! compares the group's count of evictions before and after, and reads again if another thread read, changed and evicted the
//! bitmap meanwhile.
//!
//! Finding bitmaps in memory writes nothing here: it sets the reference bit under the group's own lock.
//!
//! Locks: a group's (`GROUP`), tried only. Tests: `tests/alloc/bitmap_cache.rs`.

use extant_ondisk::{GroupDescriptor, GroupNumber, TransactionId};
use extant_rt::{AtomicU32, AtomicU64, Ordering, Padded, SHARDS, thread_slot};

use crate::group::{Bitmap, Group, State};
use crate::group_set::GroupSet;
use crate::linux_model::GroupGuard;
use crate::{Allocator, Result};

/// See the module.
#[derive(Debug)]
pub(crate) struct BitmapCache {
    /// Groups with a bitmap in memory.
    groups: GroupSet,
    /// The clock hand: where the next scan for bitmaps to evict begins.
    hand: AtomicU32,
    /// Of the size of a block, but for those in `uncounted`; in two's complement.
    bitmaps: Padded<AtomicU64>,
    /// What threads counted and did not add to `bitmaps` yet: less than a step each.
    uncounted: Box<[Padded<AtomicU64>]>,
    step: u64,
    bitmaps_max: u64,
}

/// Bitmaps that a thread counts by itself at most, if that is a small part of what there is room for.
const STEP_MAX: u64 = 64;
/// Of the room, for all threads together.
const STEPS_SHARE: u64 = 4;

/// A block bitmap, what may be given out of it, and the chunks of that.
pub(crate) const BLOCK_BITMAP_COST: u64 = 3;
pub(crate) const INODE_BITMAP_COST: u64 = 1;
/// Groups scanned to make room for one bitmap.
const GROUPS_SCANNED_MAX: u64 = 64;

impl BitmapCache {
    /// Nothing yet, of `groups` groups; room for so many bitmaps.
    pub fn new(groups: u32, bitmaps_max: u64) -> Self {
        Self {
            groups: GroupSet::new(groups),
            hand: AtomicU32::new(0),
            bitmaps: Padded::default(),
            uncounted: (0..SHARDS).map(|_| Padded::default()).collect(),
            step: (bitmaps_max / (STEPS_SHARE * SHARDS as u64)).min(STEP_MAX),
            bitmaps_max,
        }
    }

    /// Bitmaps of a group came into memory. To be called with its lock held.
    pub fn add(&self, group: GroupNumber, bitmaps: u64) {
        self.groups.insert(group);
        let own = &self.uncounted[thread_slot() % SHARDS];
        if own.fetch_add(bitmaps, Ordering::Relaxed) + bitmaps >= self.step {
            self.bitmaps.fetch_add(own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn has_room(&self) -> bool {
        self.counted() < self.bitmaps_max
    }

    /// Bitmaps, but for those in `uncounted`.
    fn counted(&self) -> u64 {
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
        let uncounted = self.bitmap_cache.uncounted.iter().map(|own| own.load(Ordering::Relaxed));
        let bitmaps = uncounted.fold(self.bitmap_cache.bitmaps.load(Ordering::Relaxed), u64::wrapping_add);
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
        let (descriptor, evictions) = (state.record.descriptor.clone(), state.evictions);
        drop(state);
        self.evict_for_room(GROUPS_SCANNED_MAX);
        let loaded = load(&descriptor);
        let mut state = self.lock(number, group);
        if state.evictions == evictions {
            install(&mut state, loaded)?;
        }
        Ok(state)
    }

    /// Scans, after a commit, as many groups for bitmaps to evict as hold the excess.
    pub(crate) fn evict_excess(&self) {
        let excess = self.bitmap_cache.counted().saturating_sub(self.bitmap_cache.bitmaps_max);
        self.evict_for_room(excess.div_ceil(BLOCK_BITMAP_COST));
    }

    /// Evicts bitmaps of up to `groups_scanned` groups until there is room for more.
    fn evict_for_room(&self, groups_scanned: u64) {
        for _ in 0..groups_scanned {
            if self.bitmap_cache.has_room() {
                return;
            }
            let Some(number) = self.bitmap_cache.next() else { return };
            self.evict_bitmaps(number);
        }
    }

    fn evict_bitmaps(&self, number: GroupNumber) {
        let Some(group) = self.groups.touched(number) else { return };
        let Some(mut state) = self.locks.try_lock(number, group) else { return };
        if std::mem::take(&mut state.is_referenced) {
            return;
        }
        let evicted = state.evict_bitmaps(self.durable());
        self.bitmap_cache.bitmaps.fetch_sub(evicted, Ordering::Relaxed);
        let has_any = matches!(state.blocks, Bitmap::Loaded(_)) || matches!(state.inodes, Bitmap::Loaded(_));
        if !has_any {
            self.bitmap_cache.groups.remove(number);
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
    /// Evicts the bitmaps that can be read again: how many.
    fn evict_bitmaps(&mut self, durable: Option<TransactionId>) -> u64 {
        let Self { record, blocks, inodes, .. } = self;
        let is_changed = record.blocks_changed || record.inodes_changed || !record.freed.is_empty();
        let is_durable =
            record.changed_in().is_none_or(|tid| durable.is_some_and(|durable| !tid.is_after(durable)));
        if is_changed || !is_durable {
            return 0;
        }
        let mut evicted = 0;
        // What the buddy lacks is a part of what the disk has free: as much is the same.
        let free = record.descriptor.free_blocks_count();
        if matches!(blocks, Bitmap::Loaded(bits) if bits.buddy.free() == free) {
            *blocks = Bitmap::Unread;
            evicted += BLOCK_BITMAP_COST;
        }
        if matches!(inodes, Bitmap::Loaded(_)) {
            *inodes = Bitmap::Unread;
            evicted += INODE_BITMAP_COST;
        }
        self.evictions = self.evictions.wrapping_add(u32::from(evicted > 0));
        evicted
    }
}
