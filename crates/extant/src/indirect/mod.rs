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
use extant_ondisk::{Extent, FsBlock, Inode, InodeNumber, LogicalBlock, Structure};
use extant_rt::Arc;

use crate::buffer::{Buffer, Kind};
use crate::error::{Place, Result};
use crate::map::{LOGICAL_END, Mapping};
use crate::volume::Volume;

pub(crate) use grow::IndirectHole;
pub(crate) use remove::IndirectRemoval;

impl Volume {
    /// [`Volume::map`] of a file whose block numbers in the inode are `root`.
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
        let block_size = self.geometry.block_size;
        let Some(path) = indirect::path(logical, block_size) else {
            return Ok(Mapping::Hole { len: len_max });
        };
        let mut pointer = indirect::pointer(root, path.offsets()[0]).unwrap_or(0);
        let mut table: Option<Arc<Buffer>> = None;
        for level in 1..path.offsets().len() {
            if pointer == 0 {
                return Ok(Mapping::Hole { len: hole(path.offsets(), level, block_size).min(len_max) });
            }
            let place = Place::of(Structure::IndirectBlock).inode(number);
            let buffer = self.buffer(FsBlock(u64::from(pointer)), Kind::Indirect, place)?;
            pointer = buffer.read(|bytes| indirect::pointer(bytes, path.offsets()[level]).unwrap_or(0));
            table = Some(buffer);
        }
        let index = path.offsets()[path.offsets().len() - 1];
        let most = path.following.saturating_add(1).min(len_max);
        let continues = |bytes: &[u8]| {
            let next = |ahead: u32| indirect::pointer(bytes, index + ahead);
            let expected = |ahead: u32| if pointer == 0 { Some(0) } else { pointer.checked_add(ahead) };
            (1..most).take_while(|ahead| next(*ahead) == expected(*ahead)).count() as u32
        };
        let len = 1 + match &table {
            Some(buffer) => buffer.read(continues),
            None => continues(root),
        };
        Ok(match pointer {
            0 => Mapping::Hole { len },
            _ => Mapping::Data { start: FsBlock(u64::from(pointer)), len, unwritten: false },
        })
    }

    /// The blocks of a file without extents, in order.
    ///
    /// # Errors
    /// `Io`; `Corrupt`, also for more blocks than the disk has.
    pub(crate) fn all_indirect_extents(&self, number: InodeNumber, inode: &Inode) -> Result<Vec<Extent>> {
        const PIECE: u32 = 1 << 15;
        let end = self.blocks_of(inode.size()).min(LOGICAL_END);
        let (mut at, mut blocks) = (0, 0);
        let mut extents = Vec::new();
        while at < end {
            let logical = LogicalBlock(at as u32);
            if indirect::path(logical, self.geometry.block_size).is_none() {
                break;
            }
            let mapping =
                self.map_indirect(number, inode.i_block(), logical, PIECE.min((end - at) as u32))?;
            at += u64::from(mapping.len());
            let Mapping::Data { start, len, .. } = mapping else { continue };
            blocks += u64::from(len);
            if blocks > self.geometry.blocks_count {
                return Err(Place::of(Structure::IndirectBlock)
                    .inode(number)
                    .corrupt("more blocks than the disk has"));
            }
            extents.push(Extent { logical, len: len as u16, start, unwritten: false });
        }
        Ok(extents)
    }
}

/// How many blocks of a hole follow, when the pointer at a level is zero: what it would stand for, less what lies
/// before the block that was looked for.
fn hole(offsets: &[u32], level: usize, block_size: u32) -> u32 {
    let per_block = u64::from(block_size / 4);
    let (mut span, mut skipped) = (1, 0);
    for offset in offsets[level..].iter().rev() {
        skipped += u64::from(*offset) * span;
        span *= per_block;
    }
    (span - skipped).min(LOGICAL_END) as u32
}
