//! The position and length of the log on its device, and writing to it.
//!
//! Leaves out: what the blocks mean (`extant_ondisk::jbd2`), which of them are in use (`transaction.rs`).

use std::io::{self, IoSlice};

use extant_block::{BlockDevice, Write};
use extant_ondisk::FsBlock;
use extant_ondisk::jbd2::{Format, SUPERBLOCK_BYTES, Superblock, SuperblockFault};
use extant_rt::Arc;

use crate::{Corrupt, Error, Result};

/// Buffers per vectored write; hosts take at most 1,024.
const SLICES_MAX: usize = 512;

/// Where the blocks of the log are on the log's device.
#[derive(Clone, Debug)]
pub struct LogMap {
    /// `(first log block, first device block)`, ascending, without gaps.
    extents: Vec<(u32, FsBlock)>,
    len: u32,
    device_end: u64,
}

impl LogMap {
    /// From the extents `(first log block, first device block, blocks)` of the journal's inode, in any order.
    ///
    /// # Errors
    /// [`Error::BadMap`] unless they cover the log blocks from 0 without gap or overlap, and no device block twice.
    pub fn new(mut extents: Vec<(u32, FsBlock, u32)>) -> Result<Self> {
        let mut on_device = Vec::with_capacity(extents.len());
        for (_, start, len) in &extents {
            let end = start.checked_add(u64::from(*len)).ok_or(Error::BadMap("an extent has no end"))?;
            if *len == 0 {
                return Err(Error::BadMap("an empty extent"));
            }
            on_device.push((start.0, end.0));
        }
        on_device.sort_unstable();
        if on_device.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err(Error::BadMap("two extents share a block"));
        }
        extents.sort_unstable_by_key(|(first, ..)| *first);
        let mut len = 0_u32;
        for (first, _, blocks) in &extents {
            if *first != len {
                return Err(Error::BadMap("a gap or an overlap"));
            }
            len = len.checked_add(*blocks).ok_or(Error::BadMap("too long"))?;
        }
        if len == 0 {
            return Err(Error::BadMap("no blocks"));
        }
        Ok(Self {
            extents: extents.into_iter().map(|(first, start, _)| (first, start)).collect(),
            len,
            device_end: on_device.last().map_or(0, |(_, end)| *end),
        })
    }

    /// A log in one piece.
    ///
    /// # Errors
    /// As [`LogMap::new`].
    pub fn contiguous(start: FsBlock, len: u32) -> Result<Self> {
        Self::new(vec![(0, start, len)])
    }

    /// Its length in blocks, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no map is empty")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The device block of a log block, or `None` past the end.
    #[must_use]
    pub fn get(&self, log_block: u32) -> Option<FsBlock> {
        self.run(log_block, 1).map(|(block, _)| block)
    }

    /// The device block of a log block and how many of `count` blocks follow it on the device too.
    pub(crate) fn run(&self, log_block: u32, count: u32) -> Option<(FsBlock, u32)> {
        if log_block >= self.len {
            return None;
        }
        let index = self.extents.partition_point(|(first, _)| *first <= log_block).checked_sub(1)?;
        let (first, start) = *self.extents.get(index)?;
        let end = self.extents.get(index + 1).map_or(self.len, |(next, _)| *next);
        Some((FsBlock(start.0 + u64::from(log_block - first)), count.min(end - log_block)))
    }
}

/// The log: its place, its format, and the ring of blocks that hold transactions.
pub struct Log {
    pub device: Arc<dyn BlockDevice>,
    pub map: LogMap,
    pub format: Format,
    pub ring: Ring,
}

/// The log blocks that hold transactions: `first..end`, then from `first` again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    pub first: u32,
    pub end: u32,
}

impl Ring {
    /// From a superblock whose numbers are compared with the map and the block size.
    pub fn new(sb: &Superblock, map: &LogMap, block_size: u32) -> Result<Self> {
        let impossible = |field| Err(Corrupt::Field(field).into());
        if sb.s_blocksize != block_size {
            return impossible("s_blocksize");
        }
        if sb.s_maxlen > map.len() {
            return impossible("s_maxlen");
        }
        let Some(end) = sb.s_maxlen.checked_sub(sb.fast_commit_blocks()) else {
            return impossible("s_num_fc_blks");
        };
        if sb.s_first == 0 || sb.s_first >= end {
            return impossible("s_first");
        }
        if sb.s_start != 0 && !(sb.s_first..end).contains(&sb.s_start) {
            return impossible("s_start");
        }
        Ok(Self { first: sb.s_first, end })
    }

    pub fn len(self) -> u32 {
        self.end - self.first
    }

    /// The block `count` blocks after `at`; `count` is at most the length.
    pub fn advance(self, at: u32, count: u32) -> u32 {
        let left = self.end - at;
        if count < left { at + count } else { self.first + (count - left) }
    }
}

/// Reads and checks the superblock; returns it with the bytes of its block.
pub fn read_superblock(
    device: &dyn BlockDevice,
    map: &LogMap,
    block_size: u32,
) -> Result<(Superblock, Box<[u8]>)> {
    let size = u64::from(block_size);
    if (block_size as usize) < SUPERBLOCK_BYTES || !block_size.is_power_of_two() {
        return Err(Corrupt::Field("block size").into());
    }
    if map.device_end.checked_mul(size).is_none_or(|end| end > device.size()) {
        return Err(Error::BadMap("it leaves the device"));
    }
    let mut block = vec![0; block_size as usize].into_boxed_slice();
    read_block(device, map, 0, &mut block)?;
    let superblock = Superblock::parse(&block).map_err(|fault| match fault {
        SuperblockFault::Features(bits) => Error::Incompatible(bits),
        SuperblockFault::Checksum => Corrupt::SuperblockChecksum.into(),
        _ => Corrupt::NotASuperblock.into(),
    })?;
    Ok((superblock, block))
}

/// Reads one block of the log.
pub fn read_block(device: &dyn BlockDevice, map: &LogMap, log_block: u32, into: &mut [u8]) -> Result<()> {
    let block = map.get(log_block).ok_or(Error::BadMap("it is too short"))?;
    Ok(device.read_at(block.0 * into.len() as u64, into)?)
}

/// Writes one block of the log: durable with the next flush.
pub fn write_block(device: &dyn BlockDevice, map: &LogMap, log_block: u32, bytes: &[u8]) -> Result<()> {
    let block = map.get(log_block).ok_or(Error::BadMap("it is too short"))?;
    Ok(device.write_at(block.0 * bytes.len() as u64, bytes)?)
}

/// Writes the superblock into the bytes of its block; returns where these belong on the device, in bytes.
pub fn encode_superblock(map: &LogMap, sb: &Superblock, block: &mut [u8]) -> Result<u64> {
    sb.write(block);
    let at = map.get(0).ok_or(Error::BadMap("it is too short"))?;
    Ok(at.0 * block.len() as u64)
}

impl Log {
    /// Writes blocks from `at` on, around the end of the ring.
    pub fn write(&self, mut at: u32, mut blocks: &[Arc<[u8]>]) -> Result<()> {
        while !blocks.is_empty() {
            let wanted = blocks.len().min(SLICES_MAX) as u32;
            let (block, run) =
                self.map.run(at, wanted.min(self.ring.end - at)).ok_or(Error::BadMap("it is too short"))?;
            let (now, later) = blocks.split_at(run as usize);
            let Write { offset, bufs } = write_of_run(block, now)?;
            self.device.write_vectored_at(offset, &bufs)?;
            at = self.ring.advance(at, run);
            blocks = later;
        }
        Ok(())
    }

    /// Writes one block durably.
    pub fn write_fua(&self, at: u32, block: &[u8]) -> Result<()> {
        let to = self.map.get(at).ok_or(Error::BadMap("it is too short"))?;
        Ok(self.device.write_fua(to.0 * block.len() as u64, block)?)
    }
}

/// The write of blocks of equal length that follow each other on the device.
fn write_of_run<'b>(
    start: FsBlock,
    blocks: impl IntoIterator<Item = &'b Arc<[u8]>>,
) -> io::Result<Write<'b>> {
    let bufs: Vec<IoSlice<'_>> = blocks.into_iter().map(|bytes| IoSlice::new(bytes)).collect();
    let size = bufs.first().map_or(0, |bytes| bytes.len() as u64);
    let offset = start.0.checked_mul(size).ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(Write { offset, bufs })
}

/// Writes blocks, ascending by number, to their places: those that follow each other on the device at once, no more than a request may have.
pub fn write_sorted(device: &dyn BlockDevice, blocks: &[(FsBlock, Arc<[u8]>)]) -> io::Result<()> {
    let follows = |a: &(FsBlock, _), b: &(FsBlock, _)| a.0.checked_add(1) == Some(b.0);
    let runs = blocks.chunk_by(follows).flat_map(|run| run.chunks(SLICES_MAX));
    let writes = runs.map(|run| write_of_run(run[0].0, run.iter().map(|(_, bytes)| bytes)));
    device.write_many(&writes.collect::<io::Result<Vec<_>>>()?)
}
