//! What transactions change in the groups: marking, freeing, the freeze of a commit, and its end.
//!
//! Leaves out: where to allocate blocks ([`crate::mballoc`]) and inodes ([`crate::ialloc`]).
//!
//! What a transaction freed waits in its group while the transaction runs ([`FreedRuns`]), then in a queue until it is durable.
//! Nothing of the disk as a whole is locked or written on the way.
//!
//! Locks: `DISCARDING` across a discard ([`trim`]); a group's (`GROUP`); the queue's (`FREED`), never together with a group's.
//! Source: kernel `ext4_mb_mark_diskspace_used`, `ext4_mb_free_metadata`, `ext4_process_freed_data`. Tests:
//! `tests/alloc/model.rs`, `tests/alloc/groups.rs`.

mod extend;
mod freeze;
mod shrink;
mod trim;

use std::collections::VecDeque;
use std::ops::Deref;

use extant_ondisk::{Cluster, GroupFlags, GroupNumber, TransactionId, bitmap};
use extant_rt::{LockClass, Mutex};

pub use self::freeze::{AllocatorSnapshot, GroupSnapshot};
use crate::bitmap_cache::BitmapCache;
use crate::bitmap64::FreeExtent;
use crate::group::ClusterRun;
use crate::group::freed_runs::FreedRuns;
use crate::group_set::GroupSet;
use crate::{Error, Result};

/// The groups with what transactions changed in them. See the module.
pub struct GroupChanges {
    pub(crate) cache: BitmapCache,
    /// Groups changed in the running transaction.
    pub(crate) changed: GroupSet,
    /// Runs freed in frozen transactions that are not committed, oldest first.
    freed: Mutex<VecDeque<Freed>>,
    /// Held while a free run is out of its group, so that a caller that misses it can wait.
    pub(crate) discarding: Mutex<()>,
}

/// What a frozen transaction freed.
#[derive(Debug)]
struct Freed {
    tid: TransactionId,
    groups: Vec<(GroupNumber, FreedRuns)>,
}

impl Deref for GroupChanges {
    type Target = BitmapCache;

    #[inline]
    fn deref(&self) -> &BitmapCache {
        &self.cache
    }
}

impl GroupChanges {
    /// Of no transaction.
    pub(crate) fn new(cache: BitmapCache) -> Self {
        Self {
            changed: GroupSet::new(cache.geometry.group_count),
            freed: Mutex::new(LockClass::FREED, VecDeque::new()),
            discarding: Mutex::new(LockClass::DISCARDING, ()),
            cache,
        }
    }

    /// Undoes a [`Mballoc::allocate`](crate::Mballoc::allocate), or a part of one, of blocks that were not marked.
    ///
    /// # Panics
    /// In debug builds, if a block was not taken or is marked.
    pub fn free_unmarked(&self, run: ClusterRun) {
        for (number, gap) in self.pieces(run).into_iter().flatten() {
            let given = self.with_block_bits(number, |_, bits| {
                let taken = bits.is_free(gap) && bits.buddy.busy().is_set(gap.start, gap.len);
                if taken {
                    bits.discarded = u32::MAX;
                    self.change_free(number, bits, |buddy| buddy.mark_free(gap));
                    self.counters.release(u64::from(gap.len));
                }
                Ok(taken)
            });
            debug_assert!(matches!(given, Ok(true)), "{run:?} freed that was not allocated");
        }
    }

    /// Marks taken blocks as used on the disk, in the running transaction `tid`. Gives how many blocks the
    /// transaction did not have to write before.
    ///
    /// # Errors
    /// `Corrupt` if a block is in use already or was not taken; the groups before it are marked.
    pub fn mark_used(&self, tid: TransactionId, run: ClusterRun) -> Result<u32> {
        let mut written = 0;
        for (number, gap) in self.pieces(run).ok_or_else(Error::outside)? {
            self.older.touch_group_lookup();
            written += self.with_block_bits(number, |record, bits| {
                if !bits.is_free(gap) {
                    return Err(Error::Corrupt { group: number, what: "block allocated twice" });
                }
                if !bits.buddy.busy().is_set(gap.start, gap.len) {
                    return Err(Error::Corrupt { group: number, what: "block allocated that was not taken" });
                }
                bitmap::set_range(bits.disk_mut(), gap.range());
                let free = record.descriptor.free_blocks_count();
                record.descriptor.set_free_blocks_count(free.saturating_sub(gap.len));
                let written = self.note_change(number, record.change_blocks(tid));
                self.counters.disk_free.subtract(u64::from(gap.len));
                Ok(written)
            })?;
        }
        Ok(written)
    }

    /// Marks used blocks as free on the disk, in the running transaction `tid`. They are given out again only
    /// after [`GroupChanges::committed`]. Gives how many blocks the transaction did not have to write before.
    ///
    /// # Errors
    /// `Corrupt` if a block is free already or holds a superblock, descriptor, bitmap or inode table; the groups
    /// before it are freed.
    pub fn mark_free(&self, tid: TransactionId, run: ClusterRun) -> Result<u32> {
        let mut written = 0;
        for (number, gap) in self.pieces(run).ok_or_else(Error::outside)? {
            if self.has_system_block(number, gap)? {
                return Err(Error::Corrupt { group: number, what: "file system metadata freed" });
            }
            self.older.touch_group_lookup();
            written += self.with_block_bits(number, |record, bits| {
                if !bits.is_used(gap) {
                    return Err(Error::Corrupt { group: number, what: "free block freed" });
                }
                bitmap::clear_range(bits.disk_mut(), gap.range());
                record.descriptor.set_free_blocks_count(record.descriptor.free_blocks_count() + gap.len);
                let joined = record.freed.add(gap);
                self.older.blocks_freed(gap.len, joined);
                let written = self.note_change(number, record.change_blocks(tid));
                self.counters.disk_free.add(u64::from(gap.len));
                self.counters.pending.add(u64::from(gap.len));
                self.older.change_group_info(number);
                Ok(written)
            })?;
        }
        Ok(written)
    }

    /// Notes in the running transaction `tid` that a group's whole inode table was written. Gives how many blocks the
    /// transaction did not have to write before.
    ///
    /// # Errors
    /// `Corrupt` if there is no such group.
    pub fn mark_table_zeroed(&self, tid: TransactionId, number: GroupNumber) -> Result<u32> {
        let mut state = self.lock(number, self.group(number)?);
        Ok(self.note_change(number, state.record.change_flags(tid, GroupFlags::INODE_ZEROED)))
    }

    /// Notes that a group changed, if it did not before: if `written` blocks are new to the running transaction. Returns them. The group's lock
    /// is held.
    pub(crate) fn note_change(&self, number: GroupNumber, written: u32) -> u32 {
        // The others find it in the set, whose words many groups share.
        if written > 0 {
            self.changed.insert(number);
        }
        written
    }

    /// The runs that `tid` and the transactions before it freed and that [`GroupChanges::committed`] will let be given out. Once
    /// `tid` is durable they are nobody's.
    ///
    /// # Locks
    /// Takes the queue's.
    #[must_use]
    pub fn freed(&self, tid: TransactionId) -> Vec<ClusterRun> {
        let queue = self.freed.lock();
        let groups = queue.iter().filter(|freed| !freed.tid.is_after(tid)).flat_map(|freed| &freed.groups);
        let run = |(number, runs): &(GroupNumber, FreedRuns)| {
            let first = self.geometry.group_first_cluster(*number).0;
            let run = move |gap: FreeExtent| ClusterRun {
                start: Cluster(first + u64::from(gap.start)),
                len: gap.len,
            };
            runs.iter().map(run).collect::<Vec<_>>()
        };
        groups.flat_map(run).collect()
    }
}
