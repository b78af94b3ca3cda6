//! Which groups' bitmaps are in memory, and the clock that evicts them (second chance).
//!
//! Locks: a group's (`GROUP`), tried only.

use extant_ondisk::{GroupNumber, TransactionId};
use extant_rt::{AtomicU32, AtomicU64, Ordering, Padded, SHARDS, thread_slot};

use super::BitmapCache;
use crate::group::{Bitmap, State};
use crate::group_set::GroupSet;

/// The groups with bitmaps in memory, how many bitmaps these are, and the clock hand.
#[derive(Debug)]
pub(super) struct LoadedBitmaps {
    /// Groups with a bitmap in memory.
    groups: GroupSet,
    /// The clock hand: where the next scan for bitmaps to evict begins.
    hand: AtomicU32,
    /// Of the size of a block, but for those in `uncounted`; in two's complement.
    bitmaps: Padded<AtomicU64>,
    /// What threads counted and did not add to `bitmaps` yet: less than a step each.
    uncounted: Box<[Padded<AtomicU64>]>,
    bitmaps_max: u64,
}

/// Bitmaps that a thread counts by itself at most.
const STEP_MAX: u64 = 256;
/// Where there is no more room, all threads together count one bitmap in so many of those that there is room for by themselves at most.
const STEPS_SHARE: u64 = 4;

/// A block bitmap, what may be given out of it, and the chunks of that.
pub(super) const BLOCK_BITMAP_COST: u64 = 3;
pub(super) const INODE_BITMAP_COST: u64 = 1;
/// Groups scanned to make room for one bitmap.
pub(super) const GROUPS_SCANNED_MAX: u64 = 64;

impl LoadedBitmaps {
    /// Nothing yet, of `groups` groups; room for so many bitmaps.
    pub fn new(groups: u32, bitmaps_max: u64) -> Self {
        Self {
            groups: GroupSet::new(groups),
            hand: AtomicU32::new(0),
            bitmaps: Padded::default(),
            uncounted: (0..SHARDS).map(|_| Padded::default()).collect(),
            bitmaps_max,
        }
    }

    /// Of more groups.
    pub fn extend(&self, groups: u32) {
        self.groups.extend(groups);
    }

    /// Bitmaps of a group came into memory. To be called with its lock held.
    pub fn add(&self, group: GroupNumber, bitmaps: u64) {
        self.groups.insert(group);
        let own = &self.uncounted[thread_slot() % SHARDS];
        if own.fetch_add(bitmaps, Ordering::Relaxed) + bitmaps >= self.step() {
            self.bitmaps.fetch_add(own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// As much as all threads together have room for.
    fn step(&self) -> u64 {
        let room = self.bitmaps_max.saturating_sub(self.counted()).max(self.bitmaps_max / STEPS_SHARE);
        (room / SHARDS as u64).min(STEP_MAX)
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

impl BitmapCache {
    /// Bytes of bitmaps and buddies in memory.
    #[must_use]
    pub fn bitmap_bytes(&self) -> u64 {
        let uncounted = self.loaded.uncounted.iter().map(|own| own.load(Ordering::Relaxed));
        let bitmaps = uncounted.fold(self.loaded.bitmaps.load(Ordering::Relaxed), u64::wrapping_add);
        bitmaps * u64::from(self.geometry.block_size)
    }

    /// Scans, after a commit, as many groups for bitmaps to evict as hold the excess.
    pub(crate) fn evict_excess(&self) {
        let excess = self.loaded.counted().saturating_sub(self.loaded.bitmaps_max);
        self.evict_for_room(excess.div_ceil(BLOCK_BITMAP_COST));
    }

    /// Evicts bitmaps of up to `groups_scanned` groups until there is room for more.
    pub(super) fn evict_for_room(&self, groups_scanned: u64) {
        for _ in 0..groups_scanned {
            if self.loaded.has_room() {
                return;
            }
            let Some(number) = self.loaded.next() else { return };
            self.evict_bitmaps(number);
        }
    }

    fn evict_bitmaps(&self, number: GroupNumber) {
        let Some(group) = self.touched(number) else { return };
        let Some(mut state) = self.locks.try_lock(number, group) else { return };
        if std::mem::take(&mut state.is_referenced) {
            return;
        }
        let evicted = state.evict_bitmaps(self.durable());
        self.loaded.bitmaps.fetch_sub(evicted, Ordering::Relaxed);
        let has_any = matches!(state.blocks, Bitmap::Loaded(_)) || matches!(state.inodes, Bitmap::Loaded(_));
        if !has_any {
            self.loaded.groups.remove(number);
        }
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
