//! Reading and writing the blocks of files: bytes to blocks, whole blocks, and what zeroes belong around them.
//!
//! Locks: `INODE` of the file, shared, over the I/O: no range is freed or moved while it is read.

use std::io::IoSlice;

use extant_ondisk::{FsBlock, LogicalBlock, Run, Structure};
use extant_rt::is_interrupted;

use crate::error::{Error, Location, Result};
use crate::incore::inode::Inode;
use crate::mapping::{BlockMap, LOGICAL_END, Mapping};

impl BlockMap {
    /// [`Files::read_at`](crate::file::Files::read_at) of what has nothing in memory.
    ///
    /// # Errors
    /// `Io`; `Corrupt`; `Interrupted`.
    ///
    /// # Locks
    /// `INODE` is held.
    pub(crate) fn read_content(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let location = Location::of(Structure::Inode).inode(inode.number);
        let raw = inode.raw();
        let bytes = raw.size().saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut rest = &mut buf[..bytes];
        let mut at = offset;
        while !rest.is_empty() {
            if is_interrupted() {
                return Err(Error::Interrupted);
            }
            let (logical, within) =
                self.block_at(at).map_err(|_| location.corrupt("larger than the format allows"))?;
            let mapping = self.map(inode, &raw, logical, self.block_count(within, rest.len()))?;
            let (piece, behind) = rest.split_at_mut(self.bytes_in(mapping.len(), within, rest.len()));
            match mapping {
                Mapping::Data { start, unwritten: false, .. } => {
                    self.read_data(start, within, piece, location)?
                }
                _ => piece.fill(0),
            }
            at += piece.len() as u64;
            rest = behind;
        }
        Ok(bytes)
    }

    /// The block of a byte of a file, and the byte in it.
    ///
    /// # Errors
    /// `FileTooLarge` beyond the last block that a file may have.
    pub(crate) fn block_at(&self, offset: u64) -> Result<(LogicalBlock, u64)> {
        // Every cached read and write comes here, and a division takes longer than what it needs to know.
        let block_bits = self.geometry.block_size.ilog2();
        let logical =
            Some(offset >> block_bits).filter(|logical| *logical < LOGICAL_END).ok_or(Error::FileTooLarge)?;
        Ok((LogicalBlock(logical as u32), offset & ((1 << block_bits) - 1)))
    }

    /// Blocks that `bytes` bytes from a byte of a block on touch, at most as many as a file may have.
    pub(crate) fn block_count(&self, within: u64, bytes: usize) -> u32 {
        self.blocks_of(within.saturating_add(bytes as u64)).clamp(1, LOGICAL_END) as u32
    }

    /// How many of `bytes` bytes, from byte `within` of a block on, lie in `len` blocks.
    pub(crate) fn bytes_in(&self, len: u32, within: u64, bytes: usize) -> usize {
        let room = u64::from(len) * u64::from(self.geometry.block_size) - within;
        room.min(bytes as u64) as usize
    }

    /// Writes `buf` from a byte of a block on, with zeroes before it to the start of the block if `head`, and with
    /// zeroes behind it to the end of the block if `tail`.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if outside the disk.
    pub(crate) fn write_padded(
        &self,
        inode: &Inode,
        (start, within): (FsBlock, u64),
        buf: &[u8],
        (head, tail): (bool, bool),
    ) -> Result<()> {
        let location = Location::of(Structure::Inode).inode(inode.number);
        let before = if head { within as usize } else { 0 };
        let end = within as usize + buf.len();
        let behind = if tail { end.next_multiple_of(self.geometry.block_size as usize) - end } else { 0 };
        let at = self.data_offset(start, within - before as u64, before + buf.len() + behind, location)?;
        let zeroes = vec![0; before.max(behind)];
        let bufs = [&zeroes[..before], buf, &zeroes[..behind]].map(IoSlice::new);
        self.device.write_vectored_at(at, &bufs).map_err(|e| location.block(start).io(e))
    }

    /// Writes zeroes over a run of blocks of a file.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if outside the disk.
    pub(crate) fn zero_blocks(&self, inode: &Inode, run: Run) -> Result<()> {
        let location = Location::of(Structure::Inode).inode(inode.number);
        let bytes = u64::from(run.len) * u64::from(self.geometry.block_size);
        let at = self.data_offset(run.start, 0, bytes as usize, location)?;
        self.device.write_zeroes(at, bytes).map_err(|e| location.block(run.start).io(e))
    }

    /// Writes zeroes over bytes of one block of a file, if the block is there and was written.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn zero_in_block(&self, inode: &Inode, from: u64, end: u64) -> Result<()> {
        if from >= end {
            return Ok(());
        }
        let (logical, within) = self.block_at(from)?;
        if let Mapping::Data { start, unwritten: false, .. } = self.map(inode, &inode.raw(), logical, 1)? {
            let bytes = (end - from).min(u64::from(self.geometry.block_size) - within);
            self.write_padded(inode, (start, within), &vec![0; bytes as usize], (false, false))?;
        }
        Ok(())
    }

    /// Writes zeroes from `size` to the end of its block, before the file grows beyond it or after it was cut there.
    ///
    /// # Errors
    /// As [`BlockMap::zero_in_block`].
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn zero_tail(&self, inode: &Inode, size: u64) -> Result<()> {
        let end = size.checked_next_multiple_of(u64::from(self.geometry.block_size)).unwrap_or(size);
        self.zero_in_block(inode, size, end)
    }
}
