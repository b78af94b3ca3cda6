//! Files without extents: block maps in the inode and in blocks of block numbers.
//!
//! Locks: as for `extent`.
//!
//! Source: `fs/ext4/indirect.c`: `ext4_block_to_path`, `ext4_ind_map_blocks`, `ext4_ind_truncate`.
//!
//! Tests: `tests/files.rs`, `tests/damaged_maps.rs`.

mod grow;
mod remove;

use extant_ondisk::indirect;
use extant_ondisk::{Extent, FsBlock, InodeNumber, LogicalBlock, RawInode, Structure};
use extant_rt::Arc;

use crate::error::{Location, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::mapping::BlockMap;
use crate::mapping::{LOGICAL_END, Mapping};

pub(crate) use grow::IndirectHole;
pub(crate) use remove::IndirectRemoval;

/// The mapping of a block of a file.
enum Found {
    /// No table: a hole of so many blocks.
    Hole { len: u32 },
    /// The last table on the way, or the inode's own, with the block's index and how many entries follow it.
    Entry { table: Option<Arc<Buffer>>, index: u32, following: u32 },
}

impl BlockMap {
    /// [`BlockMap::map`] of a file whose block numbers in the inode are `root`.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn map_indirect(
        &self,
        number: InodeNumber,
        root: &[u8],
        logical: LogicalBlock,
        len_max: u32,
    ) -> Result<Mapping> {
        let (table, index, following) = match self.find_pointer(number, root, logical)? {
            Found::Hole { len } => return Ok(Mapping::Hole { len: len.min(len_max) }),
            Found::Entry { table, index, following } => (table, index, following),
        };
        let most = following.saturating_add(1).min(len_max);
        let run = |bytes: &[u8]| {
            let pointer = indirect::pointer(bytes, index).unwrap_or(0);
            let next = |ahead: u32| indirect::pointer(bytes, index + ahead);
            let expected = |ahead: u32| if pointer == 0 { Some(0) } else { pointer.checked_add(ahead) };
            let len = 1 + (1..most).take_while(|ahead| next(*ahead) == expected(*ahead)).count() as u32;
            (pointer, len)
        };
        Ok(match read_table(table.as_ref(), root, run) {
            (0, len) => Mapping::Hole { len },
            (pointer, len) => Mapping::Data { start: FsBlock(u64::from(pointer)), len, unwritten: false },
        })
    }

    /// Whether a block of a file without extents is allocated, and how many blocks from it on are known to be in the same state,
    /// wherever they are on the disk. Reads one table, and after a missing table skips all adjacent missing ones.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn allocated_indirect(
        &self,
        number: InodeNumber,
        root: &[u8],
        logical: LogicalBlock,
    ) -> Result<(bool, u32)> {
        let (table, index, following) = match self.find_pointer(number, root, logical)? {
            Found::Hole { len } => return Ok((false, len)),
            Found::Entry { table, index, following } => (table, index, following),
        };
        let most = following.saturating_add(1);
        let (is_allocated, len) =
            read_table(table.as_ref(), root, |bytes| indirect::count_alike(bytes, index, most));
        Ok((is_allocated, len.max(1)))
    }

    /// The entry of a block in the tables of a file whose block numbers in the inode are `root`.
    fn find_pointer(&self, number: InodeNumber, root: &[u8], logical: LogicalBlock) -> Result<Found> {
        let Some(path) = indirect::path(logical, self.geometry.block_size) else {
            return Ok(Found::Hole { len: LOGICAL_END as u32 - logical.0 });
        };
        let offsets = path.offsets();
        let mut pointer = indirect::pointer(root, offsets[0]).unwrap_or(0);
        let mut table: Option<Arc<Buffer>> = None;
        for level in 1..offsets.len() {
            if pointer == 0 {
                // Entries of the inode's own table name tables of different heights, and are looked at one by one.
                let also_missing = table.as_ref().map_or(0, |table| {
                    table.read(|bytes| {
                        let behind = (offsets[level - 1] + 1..).map(|index| indirect::pointer(bytes, index));
                        behind.take_while(|pointer| *pointer == Some(0)).count() as u64
                    })
                });
                return Ok(Found::Hole { len: hole(offsets, level, self.geometry.block_size, also_missing) });
            }
            let location = Location::of(Structure::IndirectBlock).inode(number);
            let buffer = self.buffer(FsBlock(u64::from(pointer)), BufferKind::Indirect, location)?;
            pointer = buffer.read(|bytes| indirect::pointer(bytes, offsets[level]).unwrap_or(0));
            table = Some(buffer);
        }
        Ok(Found::Entry { table, index: offsets[offsets.len() - 1], following: path.following })
    }

    /// The blocks of a file without extents, in order.
    ///
    /// # Errors
    /// `Io`; `Corrupt`, also for more blocks than the disk has.
    pub(crate) fn all_indirect_extents(&self, number: InodeNumber, raw: &RawInode) -> Result<Vec<Extent>> {
        const PIECE: u32 = 1 << 15;
        let end = self.blocks_of(raw.size()).min(LOGICAL_END);
        let (mut at, mut blocks) = (0, 0);
        let mut extents = Vec::new();
        while at < end {
            let logical = LogicalBlock(at as u32);
            if indirect::path(logical, self.geometry.block_size).is_none() {
                break;
            }
            let mapping = self.map_indirect(number, raw.i_block(), logical, PIECE.min((end - at) as u32))?;
            at += u64::from(mapping.len());
            let Mapping::Data { start, len, .. } = mapping else { continue };
            blocks += u64::from(len);
            if blocks > self.geometry.blocks_count {
                return Err(Location::of(Structure::IndirectBlock)
                    .inode(number)
                    .corrupt("more blocks than the disk has"));
            }
            extents.push(Extent { logical, len: len as u16, start, unwritten: false });
        }
        Ok(extents)
    }
}

/// Reads a table of block numbers: a block, or the inode's own.
fn read_table<R>(table: Option<&Arc<Buffer>>, root: &[u8], read: impl FnOnce(&[u8]) -> R) -> R {
    match table {
        Some(buffer) => buffer.read(read),
        None => read(root),
    }
}

/// How many blocks of a hole follow, when the pointer at a level is zero and so are `also_missing` pointers behind it: what they
/// would name, less what lies before the block that was looked for.
fn hole(offsets: &[u32], level: usize, block_size: u32, also_missing: u64) -> u32 {
    let per_block = u64::from(block_size / 4);
    let (mut span, mut skipped) = (1, 0);
    for offset in offsets[level..].iter().rev() {
        skipped += u64::from(*offset) * span;
        span *= per_block;
    }
    (span * (1 + also_missing) - skipped).min(LOGICAL_END) as u32
}
