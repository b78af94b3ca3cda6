//! Making a file system smaller: blocks that are chosen outside of the allocator, and groups that become shorter or go.
//!
//! Leaves out: which blocks, groups and inodes those are; the superblock.
//!
//! Invariant: [`GroupChanges::shrink_group`] and [`GroupChanges::move_tables`] come last: what they change is changed on the disk only, and
//! nothing may be allocated after them.
//!
//! Locks: the group's (`GROUP`).
//!
//! Source: `ext2fs_block_alloc_stats_range`, `adjust_fs_info` of e2fsprogs. Tests: `tests/resize` of `extant`.

use extant_ondisk::{GroupDescriptor, GroupFlags, GroupNumber, TransactionId, bitmap};

use super::GroupChanges;
use crate::bitmap64::FreeExtent;
use crate::group::ClusterRun;
use crate::{Error, Reservation, Result};

impl GroupChanges {
    /// Takes these very blocks out of the free ones, as an allocation does that finds them. They are to be marked
    /// ([`GroupChanges::mark_used`]) or given back ([`GroupChanges::free_unmarked`]).
    ///
    /// # Errors
    /// `NoSpace` if fewer are reserved; `Corrupt` if a block is not free: those of the groups before it are taken then; `Store` and
    /// `Corrupt` if a bitmap cannot be had.
    pub fn allocate_exactly(&self, reservation: &mut Reservation<'_>, run: ClusterRun) -> Result<()> {
        if reservation.blocks() < u64::from(run.len) {
            return Err(Error::NoSpace);
        }
        for (number, gap) in self.pieces(run).ok_or_else(Error::outside)? {
            self.with_block_bits(number, |_, bits| {
                if bits.buddy.run_at(gap.start, gap.len).len < gap.len {
                    return Err(Error::Corrupt { group: number, what: "block allocated that is in use" });
                }
                self.change_free(number, bits, |buddy| buddy.mark_used(gap));
                Ok(())
            })?;
            reservation.consume(u64::from(gap.len));
        }
        Ok(())
    }

    /// Makes a group as short as `blocks`, and frees blocks in it that were the file system's own, in the running transaction `tid`.
    /// Gives how many blocks the transaction did not have to write before.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if the group's bitmap cannot be had; `Corrupt` if it says that a block behind the new end is in use, or
    /// that one of `own` is free. Nothing was changed.
    pub fn shrink_group(
        &self,
        tid: TransactionId,
        number: GroupNumber,
        blocks: u32,
        own: &[ClusterRun],
    ) -> Result<u32> {
        let first = self.geometry.group_first_cluster(number).0;
        self.with_block_bits(number, |record, bits| {
            let len = bits.buddy.busy().len();
            let cut = FreeExtent { start: blocks.min(len), len: len.saturating_sub(blocks) };
            let gap = |run: &ClusterRun| FreeExtent {
                start: run.start.0.saturating_sub(first) as u32,
                len: run.len,
            };
            if own.iter().any(|run| !bits.is_used(gap(run))) {
                return Err(Error::Corrupt { group: number, what: "file system metadata in free blocks" });
            }
            let mut disk = bits.disk.to_vec();
            own.iter().for_each(|run| bitmap::clear_range(&mut disk, gap(run).range()));
            if !bitmap::is_range_clear(&disk, cut.range()) {
                return Err(Error::Corrupt { group: number, what: "blocks in use behind the new end" });
            }
            bitmap::set_range(&mut disk, cut.range());
            bits.disk_mut().copy_from_slice(&disk);
            let freed: u32 = own.iter().map(|run| run.len).sum();
            let free = (record.descriptor.free_blocks_count() + freed).saturating_sub(cut.len);
            record.descriptor.set_free_blocks_count(free);
            let written = record.change_blocks(tid);
            self.changed.insert(number);
            self.counters.disk_free.add(u64::from(freed));
            self.counters.disk_free.subtract(u64::from(cut.len));
            Ok(written)
        })
    }

    /// Notes in the running transaction `tid` where a group keeps its bitmaps and its inode table: `change` says it of the descriptor.
    /// Gives how many blocks the transaction did not have to write before. What is in memory of the group's places stays as it was.
    ///
    /// # Errors
    /// `Corrupt` if there is no such group; `Store` if its descriptor cannot be had.
    pub fn move_tables(
        &self,
        tid: TransactionId,
        number: GroupNumber,
        change: impl FnOnce(&mut GroupDescriptor),
    ) -> Result<u32> {
        let mut state = self.lock(number, self.group(number)?);
        let written = state.record.change_flags(tid, GroupFlags::empty());
        change(&mut state.record.descriptor);
        self.changed.insert(number);
        Ok(written)
    }

    /// Leaves the free blocks and inodes of groups out of the counts that the running transaction takes off the disk.
    pub fn uncount_groups(&self, free_blocks: u64, free_inodes: u64) {
        self.counters.disk_free.subtract(free_blocks);
        self.counters.free_inodes.subtract(free_inodes);
    }
}
