//! Blocks of inode tables that are read together, where the device takes time.
//!
//! A walk says so beforehand, and then as many blocks are read at once as Linux reads. One look-up reads the block that it needs; those that
//! follow it near by read as many more as are in memory there, so that at most half of what they read is unused.
//!
//! Source: `__ext4_get_inode_loc` and `inode_readahead_blks` of Linux. Test: `tests/requests_in_flight`.

use extant_block::REQUESTS_IN_FLIGHT;
use extant_ondisk::{FsBlock, GroupNumber, InodeNumber, Run};
use extant_rt::Arc;

use crate::error::Result;
use crate::incore::buffer::{Buffer, BufferKind};
use crate::metadata::SbInfo;

/// Blocks of an inode table that are read at once, as many as Linux reads by default.
const TABLE_BLOCKS: u32 = 32;

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

    /// One inode of each set of those that [`SbInfo::read_ahead_inode`] reads together.
    pub(crate) fn one_of_each_chunk(&self, mut numbers: Vec<InodeNumber>) -> Vec<InodeNumber> {
        numbers.sort_unstable();
        numbers.dedup_by_key(|number| self.chunk_of(*number));
        numbers
    }

    /// The blocks of the table that are read with that of an inode, of a valid number: as many as lie together at a multiple of their count,
    /// as far as the table is in use.
    ///
    /// # Errors
    /// `Corrupt` if the group has no table.
    fn table_chunk(&self, number: InodeNumber) -> Result<Option<Run>> {
        let Some((group, index)) = self.geometry.inode_location(number) else { return Ok(None) };
        let Some((_, chunk)) = self.chunk_of(number) else { return Ok(None) };
        let table = self.allocator.inode_table(group)?;
        let per_block = self.geometry.inodes_per_block();
        let first = chunk * TABLE_BLOCKS;
        let unused = match self.checksums.has_group_checksums() {
            true => self.allocator.itable_unused(group)?,
            false => 0,
        };
        let used = self.geometry.inodes_per_group.saturating_sub(unused).max(index + 1).div_ceil(per_block);
        let len = used.saturating_sub(first).min(TABLE_BLOCKS);
        Ok(Some(Run { start: FsBlock(table.0 + u64::from(first)), len }))
    }

    /// Reads blocks that lie together: each with its content, which is newer in the log if it is there. None if they are not all on the disk
    /// or cannot be read.
    #[cfg(feature = "check")]
    pub(crate) fn read_run(&self, run: Run) -> Vec<(FsBlock, Arc<[u8]>)> {
        let bytes = self.read_run_at_home(run).unwrap_or_default();
        let blocks = (0..).map(|at| FsBlock(run.start.0 + at));
        let content = bytes.chunks_exact(self.geometry.block_size as usize);
        blocks
            .zip(content)
            .map(|(block, bytes)| (block, self.logged(block).unwrap_or_else(|| bytes.into())))
            .collect()
    }

    /// The bytes of a run at its final location.
    fn read_run_at_home(&self, run: Run) -> Option<Vec<u8>> {
        let end = run.start.0.checked_add(run.len.into())?;
        let mut bytes = vec![0; run.len as usize * self.geometry.block_size as usize];
        let at = run.start.0.checked_mul(self.geometry.block_size.into())?;
        (end <= self.geometry.blocks_count && self.device.read_at(at, &mut bytes).is_ok()).then_some(bytes)
    }

    fn is_in_memory(&self, block: u64) -> bool {
        self.buffers.get(block, |_| ()).is_some()
    }

    /// The chunk of an inode's block that is to be read, if the device takes time and the block is not in memory: the block, and its chunk.
    /// What cannot be read is found when it is needed.
    fn missing_chunk(&self, number: InodeNumber) -> Option<(FsBlock, Run)> {
        let (own, _) = self.inode_table_location(number).ok().filter(|_| self.device.has_latency())?;
        let chunk = self.table_chunk(number).ok().flatten().filter(|_| !self.is_in_memory(own.0))?;
        Some((own, chunk))
    }

    /// Reads the block of the inode table that has an inode into memory, and its whole chunk, for a walk.
    pub(crate) fn read_ahead_inode(&self, number: InodeNumber) {
        if let Some((_, chunk)) = self.missing_chunk(number) {
            self.read_ahead_table(chunk);
        }
    }

    /// Reads the block of the inode table that has an inode into memory, for a look-up: and as many more of its chunk as others have brought,
    /// of that or of the one before, where a walk in order comes from.
    pub(crate) fn read_ahead_near_inode(&self, number: InodeNumber) {
        let Some((own, chunk)) = self.missing_chunk(number) else { return };
        let is_of_table = |at: &u64| {
            let buffer = self.buffers.get(*at, Arc::clone);
            buffer.is_some_and(|buffer| buffer.kind() == BufferKind::InodeTable)
        };
        let present = |from: u64| (from..from + u64::from(TABLE_BLOCKS)).filter(is_of_table).count();
        let before = chunk.start.0.saturating_sub(TABLE_BLOCKS.into());
        let window = present(chunk.start.0).max(present(before)) as u64;
        // The blocks around that are not in memory, those behind first.
        let (mut start, mut end) = (own.0, own.0 + 1);
        let last = chunk.start.0 + u64::from(chunk.len);
        while end - start < window && end < last && !self.is_in_memory(end) {
            end += 1;
        }
        while end - start < window && start > chunk.start.0 && !self.is_in_memory(start - 1) {
            start -= 1;
        }
        if end - start > 1 {
            self.read_ahead_table(Run { start: FsBlock(start), len: (end - start) as u32 });
        }
    }

    /// Reads blocks of an inode table that lie together into memory, unless they are there.
    pub(crate) fn read_ahead_table(&self, run: Run) {
        let blocks = (0..u64::from(run.len)).map(|at| FsBlock(run.start.0 + at));
        let absent: Vec<_> = blocks.map(|block| self.buffers.absent(block.0)).collect();
        let Some(bytes) = self.read_run_at_home(run) else { return };
        let content = bytes.chunks_exact(self.geometry.block_size as usize);
        for ((at, bytes), absent) in (0..).zip(content).zip(absent) {
            let block = FsBlock(run.start.0 + at);
            // A block that is in the log is newer there.
            if let Some(absent) = absent.filter(|_| self.logged(block).is_none()) {
                let buffer = Buffer::new(block, BufferKind::InodeTable, Arc::from(bytes));
                self.buffers.add(absent, buffer);
            }
        }
    }

    /// The blocks of inode tables that have inodes and are not in memory, those that lie together as one run. Half of each run at most has none
    /// of the inodes.
    pub(crate) fn table_runs(&self, numbers: &[InodeNumber]) -> Vec<Run> {
        let locations = numbers.iter().filter_map(|number| self.inode_table_location(*number).ok());
        let mut blocks: Vec<_> = locations.map(|(block, _)| block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.retain(|block| !self.is_in_memory(block.0));
        let mut runs: Vec<Run> = Vec::new();
        for block in blocks {
            match runs.last_mut() {
                // A block between two that are wanted costs less than a request.
                Some(run) if block.0 - run.start.0 < u64::from((run.len + 2).min(TABLE_BLOCKS)) => {
                    run.len = (block.0 - run.start.0 + 1) as u32;
                }
                _ => runs.push(Run { start: block, len: 1 }),
            }
        }
        runs
    }
}
