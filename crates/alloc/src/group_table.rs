//! The block groups of a disk as their descriptors and summaries have them: what every part of the allocator works with.
//!
//! [`GroupTable`] is the lowest of the allocator's layers. Each layer owns the one below and derefs to it, so that the compiler
//! refuses calls upwards: [`GroupTable`] < [`BitmapCache`](crate::BitmapCache) < [`GroupChanges`](crate::GroupChanges) <
//! [`Mballoc`](crate::Mballoc) < [`Preallocator`](crate::Preallocator) < [`InodeAllocator`](crate::InodeAllocator) <
//! [`Allocator`](crate::Allocator).
//!
//! Leaves out: bitmaps ([`crate::bitmap_cache`]); checksums, descriptor blocks and superblocks (the committer writes them); which
//! blocks belong to what (the caller knows).
//!
//! Invariant: the summary of a group in the index changes under the group's lock only.
//!
//! Locks: a group's (`GROUP`, keyed by its number), never two at once; `DESCRIPTORS` while descriptors are entered
//! ([`meta_groups`]). Source: kernel `ext4_get_group_desc`, `ext4_get_group_info`.

mod meta_groups;
pub(crate) mod order_index;

use extant_ondisk::{Cluster, Geometry, GroupDescriptor, GroupNumber};
use extant_rt::Versioned;

use self::meta_groups::{MetaGroups, unknown};
use self::order_index::OrderIndex;
use crate::Result;
use crate::bitmap64::FreeExtent;
use crate::counters::{Counters, ShardedCounter, Totals};
use crate::group::buddy::{self, Buddy};
use crate::group::summary::Summary;
use crate::group::{BlockBits, ClusterRun, Group};
use crate::group_set::GroupSet;
use crate::linux_model::{GroupGuard, GroupLocks, OlderForms};
use crate::setup::{GroupStore, Setup};
use crate::tuning::Tuning;

/// The part of a disk that is not taken ahead: preallocations are for disks with room.
const SCARCE_PART: u64 = 32;

/// The groups of a disk, their locks, the index of their free space and the counts of the disk. See the module.
pub struct GroupTable {
    pub(crate) geometry: Versioned<Geometry>,
    pub(crate) tuning: Tuning,
    /// The highest order of a buddy.
    pub(crate) order_max: u8,
    pub(crate) store: Box<dyn GroupStore>,
    meta_groups: MetaGroups,
    pub(crate) locks: GroupLocks,
    /// Times a group's lock was taken by no search.
    pub(crate) other_locks: ShardedCounter,
    /// Groups by their free space.
    pub(crate) index: OrderIndex,
    /// Groups that may have free inodes.
    pub(crate) with_inodes: GroupSet,
    pub(crate) counters: Counters,
    pub(crate) older: OlderForms,
}

impl GroupTable {
    /// The groups of a disk. Reads nothing.
    pub(crate) fn new(geometry: Geometry, setup: &Setup, store: Box<dyn GroupStore>) -> Self {
        let (count, tuning) = (geometry.group_count, setup.tuning);
        let totals = Totals {
            free_blocks: setup.free_blocks.min(geometry.clusters_count()),
            free_inodes: setup.free_inodes.min(u64::from(geometry.inodes_count)),
            directories: 0,
            root_blocks: setup.root_blocks,
            reserved_blocks: setup.reserved_blocks,
            scarce_blocks: geometry.clusters_count() / SCARCE_PART,
        };
        let order_max = buddy::order_max(&geometry);
        let (first, last) = (GroupNumber(0), GroupNumber(count.saturating_sub(1)));
        let of = |group| unknown(&geometry, group, order_max);
        let index = OrderIndex::full(count, of(first));
        // Only the last group may be shorter.
        index.set(last, of(last));
        Self {
            meta_groups: MetaGroups::new(&geometry),
            locks: GroupLocks::new(&tuning),
            other_locks: ShardedCounter::new(0),
            index,
            with_inodes: GroupSet::full(count),
            counters: Counters::new(&totals),
            older: OlderForms::new(&tuning, count, of(first), of(last)),
            tuning,
            order_max,
            geometry: Versioned::new(geometry),
            store,
        }
    }

    /// Knows the new groups of a disk, of which nothing can be allocated yet.
    pub(crate) fn extend(&self, geometry: &Geometry, descriptors: &[GroupDescriptor]) {
        self.meta_groups.extend(geometry, descriptors);
    }

    /// Lists the groups that were added last by what their descriptors count.
    pub(crate) fn list_new_groups(&self, descriptors: &[GroupDescriptor]) {
        let groups = self.geometry.group_count;
        self.index.extend(groups);
        self.with_inodes.extend_full(groups);
        for (group, descriptor) in (groups - descriptors.len() as u32..groups).zip(descriptors) {
            self.list(GroupNumber(group), Some(descriptor));
        }
    }

    /// A group that was touched, so that it has a lock and may have bitmaps in memory.
    pub(crate) fn touched(&self, number: GroupNumber) -> Option<&Group> {
        self.meta_groups.touched(number)
    }

    /// Forgets a group that was touched.
    pub(crate) fn forget(&mut self, number: GroupNumber) {
        self.meta_groups.forget(number);
    }

    /// How it works.
    #[must_use]
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// The layout of the disk.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Blocks that are free, not reserved and not preallocated.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.counters.available()
    }

    /// Blocks that become free when transactions commit.
    #[must_use]
    pub fn pending_free(&self) -> u64 {
        self.counters.pending.sum()
    }

    /// Whether a commit should begin now, before blocks run out: few are left, and at least a 32nd of the disk
    /// waits for it. Each request is told once.
    #[must_use]
    pub fn wants_commit(&self) -> bool {
        self.counters.consume_commit_request()
    }

    /// Free inodes.
    #[must_use]
    pub fn free_inodes(&self) -> u64 {
        self.counters.free_inodes.sum()
    }

    /// Free blocks as the running transaction says: what a superblock written now would claim.
    #[must_use]
    pub fn disk_free_blocks(&self) -> u64 {
        self.counters.disk_free.sum()
    }

    /// A group's descriptor as the running transaction says, its checksums stale.
    ///
    /// # Errors
    /// `Corrupt` if there is no such group.
    pub fn descriptor(&self, group: GroupNumber) -> Result<GroupDescriptor> {
        Ok(self.locks.lock(group, self.group(group)?).record.descriptor.clone())
    }

    /// How many inodes at the end of the group's table were never used: their table blocks need not hold zeros.
    ///
    /// # Errors
    /// `Corrupt` if there is no such group.
    pub fn itable_unused(&self, group: GroupNumber) -> Result<u32> {
        Ok(self.locks.lock(group, self.group(group)?).record.descriptor.itable_unused())
    }

    /// How many inodes of a group, from its first on, stand in table blocks that frozen transactions, or those before,
    /// wrote.
    ///
    /// # Errors
    /// `Corrupt` if there is no such group.
    pub fn inodes_written(&self, number: GroupNumber) -> Result<u32> {
        Ok(self.lock(number, self.group(number)?).record.inodes_written)
    }

    /// The checksums that a commit gave to a group's bitmaps, for who reads them again.
    pub fn set_checksums(&self, number: GroupNumber, block_bitmap: u32, inode_bitmap: u32) {
        let Some(group) = self.touched(number) else { return };
        let descriptor = &mut self.lock(number, group).record.descriptor;
        descriptor.set_block_bitmap_csum(block_bitmap);
        descriptor.set_inode_bitmap_csum(inode_bitmap);
    }

    /// Whether any of the blocks is a superblock, descriptor, bitmap or inode table, of any group of the same flex group or
    /// that was read. `false` for blocks outside the disk.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if descriptors cannot be read.
    pub fn is_system(&self, run: ClusterRun) -> Result<bool> {
        Ok(!self.each_piece(run, |group, gap| Ok(!self.has_system_block(group, gap)?))?
            && self.pieces(run).is_some())
    }

    /// Calls `each` for the part of a run in each group until it gives false: whether it never did. False if the run is not
    /// wholly inside the disk.
    pub(crate) fn each_piece(
        &self,
        run: ClusterRun,
        mut each: impl FnMut(GroupNumber, FreeExtent) -> Result<bool>,
    ) -> Result<bool> {
        let Some(pieces) = self.pieces(run) else { return Ok(false) };
        for (group, gap) in pieces {
            if !each(group, gap)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The parts of a run by group, or `None` if it is not wholly inside the disk.
    pub(crate) fn pieces(
        &self,
        run: ClusterRun,
    ) -> Option<impl Iterator<Item = (GroupNumber, FreeExtent)> + use<'_>> {
        let last = run.start.checked_add(u64::from(run.len).checked_sub(1)?)?;
        let ((first_group, _), (last_group, _)) =
            (self.geometry.cluster_location(run.start)?, self.geometry.cluster_location(last)?);
        Some((first_group.0..=last_group.0).map(GroupNumber).map(move |group| {
            let base = self.geometry.group_first_cluster(group).0;
            let from = run.start.0.max(base);
            let to = last.0.min(base + u64::from(self.geometry.clusters_in_group(group)) - 1);
            (group, FreeExtent { start: (from - base) as u32, len: (to - from + 1) as u32 })
        }))
    }

    /// The group of a goal and its bit there; the start of the disk if it lies outside.
    pub(crate) fn group_of_goal(&self, goal: Cluster) -> (GroupNumber, u32) {
        self.geometry.cluster_location(goal).unwrap_or((GroupNumber(0), 0))
    }

    /// The first bit of a group's inode bitmap that is not a reserved inode's.
    pub(crate) fn first_usable_bit(&self, group: GroupNumber) -> u32 {
        let before = u64::from(group.0) * u64::from(self.geometry.inodes_per_group);
        let first = u64::from(self.geometry.first_ino.saturating_sub(1)).saturating_sub(before);
        first.min(u64::from(self.geometry.inodes_per_group)) as u32
    }

    /// Takes a group's lock; blocks. Not for searches, which count theirs apart.
    pub(crate) fn lock<'a>(&'a self, number: GroupNumber, group: &'a Group) -> GroupGuard<'a> {
        self.other_locks.add(1);
        self.locks.lock(number, group)
    }

    /// Changes what may be given out of a group, with its lock held.
    pub(crate) fn change_free(
        &self,
        number: GroupNumber,
        bits: &mut BlockBits,
        change: impl FnOnce(&mut Buddy),
    ) {
        change(&mut bits.buddy);
        self.older.change_group_info(number);
        self.set_summary(number, Summary::of(&bits.buddy));
    }

    /// A group's free space changes. To be called with its lock held.
    pub(crate) fn set_summary(&self, number: GroupNumber, to: Summary) {
        self.older.set_summary(number, || self.index.get(number), to);
        self.index.set(number, to);
    }
}
