//! Blocks of inode tables that are read together, where the device takes time.
//!
//! Source: `__ext4_get_inode_loc` and `inode_readahead_blks` of Linux.

use extant_ondisk::{FsBlock, GroupNumber, InodeNumber, Run};
use extant_rt::Arc;

use crate::error::Result;
use crate::incore::buffer::{Buffer, BufferKind};
use crate::metadata::SbInfo;

/// Blocks of an inode table that are read at once, as many as Linux reads by default.
const TABLE_BLOCKS: u32 = 32;

/// Requests in flight at once, where they take time. A thread waits for each.
const REQUESTS_IN_FLIGHT: usize = 16;

impl SbInfo {
    /// Requests that it pays to have in flight at once.
    pub(crate) fn requests_in_flight(&self) -> usize {
        if self.device.has_latency() { REQUESTS_IN_FLIGHT } else { 1 }
    }

    /// The place of an inode's block among those of the tables that are read at once: the group, and the number in its table.
    fn chunk_of(&self, number: InodeNumber) -> Option<(GroupNumber, u32)> {
        let (group, index) = self.geometry.inode_location(number)?;
        Some((group, index / self.geometry.inodes_per_block() / TABLE_BLOCKS))
    }

    /// The blocks of the table that are read with that of an inode, of a valid number: as many as lie together at a multiple of their count.
    ///
    /// # Errors
    /// `Corrupt` if the group has no table.
    fn table_chunk(&self, number: InodeNumber) -> Result<Option<Run>> {
        let Some((group, chunk)) = self.chunk_of(number) else { return Ok(None) };
        let table = self.allocator.inode_table(group)?;
        let first = chunk * TABLE_BLOCKS;
        let len = self.geometry.inode_table_blocks_per_group.saturating_sub(first).min(TABLE_BLOCKS);
        Ok(Some(Run { start: FsBlock(table.0 + u64::from(first)), len }))
    }

    /// Reads the block of the inode table that has an inode into memory, and those beside it, where the device takes time. What cannot be
    /// read is found when it is needed.
    pub(crate) fn read_ahead_inode(&self, number: InodeNumber) {
        if !self.device.has_latency() {
            return;
        }
        let Ok(Some(chunk)) = self.table_chunk(number) else { return };
        let Ok((own, _)) = self.inode_table_location(number) else { return };
        if self.buffers.get(own.0, |_| ()).is_some() {
            return;
        }
        let block_size = self.geometry.block_size as usize;
        let blocks = (0..u64::from(chunk.len)).map(|at| FsBlock(chunk.start.0 + at));
        let absent: Vec<_> = blocks.map(|block| self.buffers.absent(block.0)).collect();
        let is_inside = chunk.start.0 + u64::from(chunk.len) <= self.geometry.blocks_count;
        let mut bytes = vec![0; chunk.len as usize * block_size];
        let at = chunk.start.0 * u64::from(self.geometry.block_size);
        if !is_inside || self.device.read_at(at, &mut bytes).is_err() {
            return;
        }
        for ((at, bytes), absent) in (0..).zip(bytes.chunks_exact(block_size)).zip(absent) {
            let block = FsBlock(chunk.start.0 + at);
            // A block that is in the log is newer there.
            let is_logged = self.replayed.contains_key(&block)
                || self.journal.as_ref().is_some_and(|journal| journal.committed_block(block).is_some());
            if let Some(absent) = absent.filter(|_| !is_logged) {
                let buffer = Buffer::new(block, BufferKind::InodeTable, Arc::from(bytes));
                self.buffers.add(absent, buffer);
            }
        }
    }

    /// One inode of each set of those that [`SbInfo::read_ahead_inode`] reads together.
    pub(crate) fn one_of_each_chunk(&self, mut numbers: Vec<InodeNumber>) -> Vec<InodeNumber> {
        numbers.sort_unstable();
        numbers.dedup_by_key(|number| self.chunk_of(*number));
        numbers
    }
}
