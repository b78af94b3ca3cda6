//! Where a file has data and where it has holes.

use extant_ondisk::{FsBlock, InodeNumber, LogicalBlock, Structure};
use extant_rt::{Arc, is_interrupted};

use crate::error::{Error, Location, Result};
use crate::file::Files;
use crate::incore::inode::Inode;
use crate::mapping::{LOGICAL_END, MapKind, Mapping};

/// The kind of position to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// Bytes that were written.
    Data,
    /// Bytes that were not, or the end of the file.
    Hole,
}

/// A run of blocks of a file, as `FIEMAP` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// The first block in the file.
    pub logical: LogicalBlock,
    /// The first block on the disk.
    pub start: FsBlock,
    /// Blocks.
    pub len: u32,
    /// Reads as zeroes until written.
    pub unwritten: bool,
}

/// The most that a walk over a file's map can meet on a disk without damage. A map whose tables are shared or name themselves
/// would otherwise keep a reader for as long as the file says to be.
struct WalkLimit {
    number: InodeNumber,
    blocks_left: u64,
    steps_left: u64,
}

impl WalkLimit {
    fn new(volume: &Files, number: InodeNumber) -> Self {
        let blocks = volume.geometry.blocks_count;
        // A step passes blocks, or the entries of a table: at most two for each block of the disk, and those of the root.
        Self { number, blocks_left: blocks, steps_left: blocks.saturating_mul(2).saturating_add(64) }
    }

    /// Counts a step over so many allocated blocks.
    ///
    /// # Errors
    /// `Corrupt` if there are more than the disk has; `Interrupted`.
    fn step(&mut self, allocated: u64) -> Result<()> {
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
        let left = (self.blocks_left.checked_sub(allocated), self.steps_left.checked_sub(1));
        let (Some(blocks), Some(steps)) = left else {
            let location = Location::of(Structure::IndirectBlock).inode(self.number);
            return Err(location.corrupt("the file maps more blocks than the disk has; run e2fsck"));
        };
        (self.blocks_left, self.steps_left) = (blocks, steps);
        Ok(())
    }
}

impl Files {
    /// The first byte from `offset` on that is data, or in a hole. Blocks that were allocated but not written are
    /// holes.
    ///
    /// # Errors
    /// `NoSuchOffset` if there is none before the end of the file; `IsADirectory`; `Io`; `Corrupt`, also for a map of more blocks
    /// than the disk has; `Interrupted`.
    pub(crate) fn seek(&self, inode: &Arc<Inode>, offset: u64, to: SeekTo) -> Result<u64> {
        self.check_regular(&inode.raw())?;
        let _content = self.read_written(inode);
        let (size, is_inline) = {
            let state = inode.state();
            (state.size(), state.raw.has_inline_data())
        };
        if is_inline && to == SeekTo::Data && offset < size {
            return Ok(offset);
        }
        let mut at = if is_inline { size } else { offset };
        let mut limit = WalkLimit::new(self, inode.number);
        while at < size {
            let (logical, within) = self.block_at(at)?;
            let (is_data, len) = self.data_run(inode, logical)?;
            if is_data == (to == SeekTo::Data) {
                return Ok(at);
            }
            limit.step(if is_data { u64::from(len) } else { 0 })?;
            at += u64::from(len) * u64::from(self.geometry.block_size) - within;
        }
        if to == SeekTo::Hole && offset < size { Ok(size) } else { Err(Error::NoSuchOffset) }
    }

    /// Whether a block of a file was written, and how many blocks from it on are known to be in the same state.
    fn data_run(&self, inode: &Inode, logical: LogicalBlock) -> Result<(bool, u32)> {
        let raw = inode.raw();
        if self.map_kind(&raw) == MapKind::Indirect {
            return self.allocated_indirect(inode.number, raw.i_block(), logical);
        }
        let mapping = self.map(inode, &inode.raw(), logical, LOGICAL_END as u32)?;
        Ok((matches!(mapping, Mapping::Data { unwritten: false, .. }), mapping.len()))
    }

    /// Reports the runs of blocks that a range of a file, in bytes, touches; also behind its end. Adjacent runs are reported as
    /// one. Content in the inode has none.
    ///
    /// # Errors
    /// `Io`; `Corrupt`, also for a map of more blocks than the disk has; `Interrupted`.
    pub(crate) fn fiemap(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        bytes: u64,
        visit: &mut dyn FnMut(FileExtent),
    ) -> Result<()> {
        let _content = self.read_written(inode);
        let block_size = u64::from(self.geometry.block_size);
        let end = self.blocks_of(offset.saturating_add(bytes)).min(LOGICAL_END);
        let mut at = offset / block_size;
        let mut last = None::<FileExtent>;
        let mut limit = WalkLimit::new(self, inode.number);
        while at < end {
            let logical = LogicalBlock(at as u32);
            let mapping = self.map(inode, &inode.raw(), logical, (end - at) as u32)?;
            limit.step(if let Mapping::Data { len, .. } = mapping { u64::from(len) } else { 0 })?;
            at += u64::from(mapping.len());
            let Mapping::Data { start, len, unwritten } = mapping else { continue };
            match &mut last {
                Some(last)
                    if last.logical.0 + last.len == logical.0
                        && last.start.0 + u64::from(last.len) == start.0
                        && last.unwritten == unwritten =>
                {
                    last.len += len;
                }
                _ => last
                    .replace(FileExtent { logical, start, len, unwritten })
                    .into_iter()
                    .for_each(&mut *visit),
            }
        }
        last.into_iter().for_each(visit);
        Ok(())
    }

    /// The position on the device of a range of a file, in bytes, if it is contiguous there, written or not.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn device_offset(&self, inode: &Arc<Inode>, offset: u64, bytes: u64) -> Result<Option<u64>> {
        let block_size = u64::from(self.geometry.block_size);
        let mut extents = Vec::new();
        self.fiemap(inode, offset, bytes, &mut |extent| extents.push(extent))?;
        let Some(first) = extents.first() else { return Ok(None) };
        let (mut logical, mut start) = (offset / block_size, first.start.0);
        for extent in &extents {
            if u64::from(extent.logical.0) != logical || extent.start.0 != start {
                return Ok(None);
            }
            logical += u64::from(extent.len);
            start += u64::from(extent.len);
        }
        let is_whole = logical >= offset.saturating_add(bytes).div_ceil(block_size);
        Ok(is_whole.then_some(first.start.0 * block_size + offset % block_size))
    }
}
