//! What a commit takes from the allocator, and what it gives back when it is durable.

use extant_ondisk::{GroupDescriptor, GroupNumber, TransactionId};
use extant_rt::Arc;

use super::{Freed, GroupChanges};
use crate::group::freed_runs::FreedRuns;
use crate::group::{Bitmap, State};

/// A group as a transaction left it.
#[derive(Clone, Debug)]
pub struct GroupSnapshot {
    /// Which.
    pub group: GroupNumber,
    /// Its counts and flags; the checksums are stale.
    pub descriptor: GroupDescriptor,
    /// Inodes at the start of its table that stand in blocks which were written before.
    pub inodes_written: u32,
    /// The block bitmap, if the transaction changed it.
    pub block_bitmap: Option<Arc<[u8]>>,
    /// The inode bitmap, if the transaction changed it.
    pub inode_bitmap: Option<Arc<[u8]>>,
}

/// All that a transaction changed here.
#[derive(Clone, Debug)]
pub struct AllocatorSnapshot {
    /// The changed groups, in order.
    pub groups: Vec<GroupSnapshot>,
    /// Free blocks of the disk, for the superblock.
    pub free_blocks: u64,
    /// Free inodes of the disk, for the superblock.
    pub free_inodes: u64,
}

impl GroupChanges {
    /// [`Allocator::freeze`](crate::Allocator::freeze) of the groups.
    ///
    /// # Locks
    /// Takes the changed groups', one after the other; then the queue's.
    pub(crate) fn freeze_groups(&self, tid: TransactionId) -> AllocatorSnapshot {
        let mut freed = Vec::new();
        let changed = self.changed.drain();
        let groups = changed.into_iter().filter_map(|number| {
            let mut state = self.locks.lock(number, self.touched(number)?);
            let State { record, blocks, inodes, .. } = &mut *state;
            debug_assert_eq!(record.tid, tid, "group {number} was changed by another transaction");
            let runs = std::mem::take(&mut record.freed);
            if !runs.is_empty() {
                freed.push((number, runs));
            }
            let block_bitmap = match blocks {
                Bitmap::Loaded(bits) if record.blocks_changed => Some(Arc::clone(&bits.disk)),
                _ => None,
            };
            let inode_bitmap = match inodes {
                Bitmap::Loaded(bits) if record.inodes_changed => Some(Arc::clone(&bits.disk)),
                _ => None,
            };
            record.blocks_changed = false;
            record.inodes_changed = false;
            let used = self.geometry.inodes_per_group.saturating_sub(record.descriptor.itable_unused());
            let inodes_written = record.inodes_written;
            record.inodes_written = inodes_written.max(used);
            Some(GroupSnapshot {
                group: number,
                descriptor: record.descriptor.clone(),
                inodes_written,
                block_bitmap,
                inode_bitmap,
            })
        });
        let groups = groups.collect();
        if !freed.is_empty() {
            self.older.freed_frozen();
            self.freed.lock().push_back(Freed { tid, groups: freed });
        }
        AllocatorSnapshot { groups, free_blocks: self.disk_free_blocks(), free_inodes: self.free_inodes() }
    }

    /// Lets the blocks be given out again that `tid` and the transactions before it freed.
    ///
    /// # Locks
    /// Takes the queue's, then the groups', one after the other.
    pub fn committed(&self, tid: TransactionId) {
        self.set_durable(tid);
        loop {
            let mut freed = self.freed.lock();
            if freed.front().is_none_or(|oldest| oldest.tid.is_after(tid)) {
                break;
            }
            let oldest = freed.pop_front();
            drop(freed);
            let Some(Freed { groups, .. }) = oldest else { break };
            groups.iter().for_each(|(number, runs)| self.release_group(*number, runs));
        }
        self.evict_excess();
    }

    fn release_group(&self, number: GroupNumber, runs: &FreedRuns) {
        let Some(group) = self.touched(number) else { return };
        let mut state = self.locks.lock(number, group);
        // Blocks are freed in loaded bitmaps only, and those stay until their blocks have come back.
        let Bitmap::Loaded(bits) = &mut state.blocks else { return };
        bits.discarded = u32::MAX;
        for gap in runs.iter() {
            self.change_free(number, bits, |buddy| buddy.mark_free(gap));
            self.older.freed_released(gap.len);
            self.counters.release(u64::from(gap.len));
            self.counters.pending.subtract(u64::from(gap.len));
        }
    }
}
