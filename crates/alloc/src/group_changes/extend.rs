//! The growth of a disk as the allocator takes part in it: the last group gets more blocks, and new groups follow it.
//!
//! The transaction that makes the disk larger changes the last group and the counts ([`GroupChanges::extend_group`],
//! [`GroupChanges::count_new_groups`]). When it is durable the allocator learns the new layout ([`GroupChanges::add_groups`]), and then
//! which blocks and inodes the new groups have ([`GroupChanges::open_groups`]): no search finds these before.
//!
//! Source: kernel `ext4_group_add_blocks`, `ext4_update_super`.

use extant_ondisk::{Geometry, GroupDescriptor, GroupNumber, TransactionId, bitmap};

use super::GroupChanges;
use crate::Result;
use crate::bitmap64::FreeExtent;

impl GroupChanges {
    /// Makes the last group as long as `blocks`, in the running transaction `tid`; the new blocks are free when it is durable. Gives
    /// how many blocks the transaction did not have to write before. Does nothing to a group of that length.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if the group's bitmap cannot be had, and nothing was changed.
    ///
    /// # Locks
    /// Takes the group's; may read its bitmap before.
    pub fn extend_group(&self, tid: TransactionId, number: GroupNumber, blocks: u32) -> Result<u32> {
        self.with_block_bits(number, |record, bits| {
            let start = bits.buddy.busy().len();
            let Some(len) = blocks.checked_sub(start).filter(|len| *len > 0) else { return Ok(0) };
            let gap = FreeExtent { start, len };
            bits.buddy = bits.buddy.extended(blocks);
            bitmap::clear_range(bits.disk_mut(), gap.range());
            record.descriptor.set_free_blocks_count(record.descriptor.free_blocks_count() + len);
            record.freed.add(gap);
            let written = record.change_blocks(tid);
            self.changed.insert(number);
            self.counters.disk_free.add(u64::from(len));
            self.counters.pending.add(u64::from(len));
            Ok(written)
        })
    }

    /// Counts the free blocks and inodes of new groups, which the running transaction adds to the disk.
    pub fn count_new_groups(&self, free_blocks: u64, free_inodes: u64) {
        self.counters.disk_free.add(free_blocks);
        self.counters.free_inodes.add(free_inodes);
    }

    /// Knows the new groups of a disk, whose transaction is durable, by their descriptors. All descriptors were read
    /// ([`GroupTable::count_exactly`](crate::GroupTable::count_exactly)). To be called by one thread at a time.
    pub fn add_groups(&self, geometry: &Geometry, descriptors: &[GroupDescriptor]) {
        if !descriptors.is_empty() {
            self.changed.extend(geometry.group_count);
            self.cache.extend(geometry, descriptors);
        }
        self.geometry.replace(geometry.clone());
    }

    /// Lets blocks and inodes of the groups be allocated that were added last.
    pub fn open_groups(&self, descriptors: &[GroupDescriptor]) {
        if descriptors.is_empty() {
            return;
        }
        self.list_new_groups(descriptors);
        self.counters.release(descriptors.iter().map(|it| u64::from(it.free_blocks_count())).sum());
    }
}
