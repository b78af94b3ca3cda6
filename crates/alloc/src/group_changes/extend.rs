//! The growth of a disk as the allocator takes part in it: the last group gets more blocks, and the counts those of new groups.
//!
//! Leaves out: new groups. They are known to the allocator of the next mount.
//!
//! Source: kernel `ext4_group_add_blocks`, `ext4_update_super`.

use extant_ondisk::{GroupNumber, TransactionId, bitmap};

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
}
