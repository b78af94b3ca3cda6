//! The hash index of a directory: its root, its inner nodes, and the splits that grow it.
//!
//! For: searching and changing one index block, and dividing a full leaf. Leaves out: which blocks the directory
//! has and the walk over the levels, which are the engine's.
//!
//! An index block holds `count` of at most `limit` entries (hash, block), in order of hash; entry 0 has no hash of its
//! own (`count` and `limit` are in its place) and covers every hash below entry 1's. Leaves are plain directory blocks
//! ([`crate::dirent`]), unordered inside. Bit 0 of an entry's hash is set when its leaf continues a run of names of one
//! hash that began in the leaf before: a search that ended with hash `h` and did not find its name goes on to the next
//! leaf while that one's entry is `h` or `h | 1`.
//!
//! Source: kernel `fs/ext4/namei.c` (`dx_probe`, `do_split`, `ext4_dx_add_entry`, `make_indexed_dir`,
//! `ext4_dx_csum`). Tests: `tests/dirs_and_xattrs/htree_model.rs`, `dir_image.rs`.

mod leaf;
mod node;
mod pack;

pub use leaf::{Dots, LeafSplit, make_root_from_linear};
pub use node::{DxNode, DxNodeMut, init_node, set_has_csum};
pub use pack::PackedDirectory;

use crate::checksum::Checksums;
use crate::crcs::crc32c;
use crate::dir_hash::HashVersion;
use crate::dirent::{self, entry_bytes, rec_len_at};
use crate::error::{Error, Result, Structure};
use crate::field;
use crate::types::InodeNumber;

/// Bytes of one index entry.
const DX_ENTRY_BYTES: usize = 8;
/// Bytes of the reserved word and the checksum behind the entries.
const DX_TAIL_BYTES: usize = 8;
/// The offset of the root's `dx_root_info`: behind `.` and `..`.
const ROOT_INFO_OFFSET: usize = 24;
/// `info_length`: bytes of `dx_root_info`.
const ROOT_INFO_BYTES: usize = 8;
/// The offset of `indirect_levels` in a root.
const LEVELS_OFFSET: usize = ROOT_INFO_OFFSET + 6;

/// Which of the two forms an index block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DxKind {
    /// Block 0 of the directory: `.`, `..`, `dx_root_info`, entries.
    Root,
    /// An inner node: one free directory entry over the whole block, hiding the index entries.
    Node,
}

impl DxKind {
    /// Where the entries start, in bytes.
    const fn entries_offset(self) -> usize {
        match self {
            Self::Root => ROOT_INFO_OFFSET + ROOT_INFO_BYTES,
            Self::Node => 8,
        }
    }

    /// The form of a block that is known to be part of an index (`get_dx_countlimit`): a node is hidden behind one entry
    /// over the whole block, a root begins with `.`.
    #[must_use]
    pub fn of(block: &[u8]) -> Option<Self> {
        match rec_len_at(block, 0)? {
            len if len == block.len() => Some(Self::Node),
            len if len == entry_bytes(1) => Some(Self::Root),
            _ => None,
        }
    }

    /// Entries that fit a block of `block_bytes` (`dx_root_limit`, `dx_node_limit`).
    #[must_use]
    pub const fn limit(self, block_bytes: usize, has_csum: bool) -> usize {
        let tail = if has_csum { DX_TAIL_BYTES } else { 0 };
        block_bytes.saturating_sub(self.entries_offset() + tail) / DX_ENTRY_BYTES
    }
}

/// The largest `indirect_levels` a root may have: levels of nodes between the root and the leaves.
#[must_use]
pub const fn max_indirect_levels(large_dir: bool) -> u8 {
    if large_dir { 2 } else { 1 }
}

/// The fields of a root besides its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootInfo {
    /// The hash function as the disk numbers it: 0 to 2; see [`RootInfo::hash_version`].
    pub version: u8,
    /// Levels of nodes between the root and the leaves.
    pub indirect_levels: u8,
}

impl RootInfo {
    /// Reads and checks the root's fixed part; `large_dir` is the `largedir` feature.
    ///
    /// # Errors
    /// `Corrupt` when `.` and `..` are not where they must be, or the index is of a kind that is not known.
    pub fn parse(block: &[u8], large_dir: bool) -> Result<Self> {
        let dot = dirent::entry_at(block, block.len(), 0)?;
        if dot.name != b"." || dot.rec_len != entry_bytes(1) {
            return Err(corrupt("index root does not begin with `.`"));
        }
        let dotdot = dirent::entry_at(block, block.len(), dot.rec_len)?;
        if dotdot.name != b".." || dot.rec_len + dotdot.rec_len != block.len() {
            return Err(corrupt("index root's `..` does not cover the block"));
        }
        let info = block.get(ROOT_INFO_OFFSET..).and_then(|b| b.first_chunk::<ROOT_INFO_BYTES>());
        let Some(&[r0, r1, r2, r3, version, info_length, indirect_levels, unused_flags]) = info else {
            return Err(corrupt("block is too small for an index root"));
        };
        if [r0, r1, r2, r3] != [0; 4] || usize::from(info_length) != ROOT_INFO_BYTES {
            return Err(corrupt("index root's info is malformed"));
        }
        if HashVersion::from_disk(version, false).is_none() {
            return Err(corrupt("index root's hash version is unknown"));
        }
        if unused_flags & 1 != 0 {
            return Err(corrupt("index root has an unknown flag"));
        }
        if indirect_levels > max_indirect_levels(large_dir) {
            return Err(corrupt("index is too deep"));
        }
        Ok(Self { version, indirect_levels })
    }

    /// The hash function, where `unsigned` is the superblock's `EXT2_FLAGS_UNSIGNED_HASH`.
    #[must_use]
    pub fn hash_version(&self, unsigned: bool) -> HashVersion {
        // `parse` has refused every version this could not name.
        HashVersion::from_disk(self.version, unsigned).unwrap_or(HashVersion::HalfMd4)
    }
}

impl Checksums {
    /// Whether the checksum of an index block, root or node, is right.
    #[must_use]
    pub fn verify_htree_node(&self, ino: InodeNumber, generation: u32, block: &[u8]) -> bool {
        !self.has_metadata_checksums()
            || self
                .htree_node(ino, generation, block)
                .is_ok_and(|(sum, at)| field::get(block, at) == Some(sum))
    }

    /// Writes the checksum of an index block, if the disk has checksums. A block without a valid entry count, which the
    /// checksum needs, is not changed and will not pass [`Checksums::verify_htree_node`].
    pub fn update_htree_node(&self, ino: InodeNumber, generation: u32, block: &mut [u8]) {
        if self.has_metadata_checksums()
            && let Ok((sum, at)) = self.htree_node(ino, generation, block)
        {
            field::write(block, at, sum);
        }
    }

    /// The checksum (the bytes to the last entry, then the tail with the sum itself as 0) and its place.
    fn htree_node(&self, ino: InodeNumber, generation: u32, block: &[u8]) -> Result<(u32, usize)> {
        let kind = DxKind::of(block).ok_or_else(|| corrupt("block is no part of an index"))?;
        let (limit, count) = counts(block, kind, true)?;
        let summed_end = kind.entries_offset() + count * DX_ENTRY_BYTES;
        let tail_at = kind.entries_offset() + limit * DX_ENTRY_BYTES;
        let (Some(summed), Some(reserved)) = (block.get(..summed_end), block.get(tail_at..tail_at + 4))
        else {
            return Err(corrupt("index entries run past the end of the block"));
        };
        let sum = crc32c(self.inode_seed(ino, generation), summed);
        Ok((crc32c(crc32c(sum, reserved), &[0; 4]), tail_at + 4))
    }
}

/// `limit` and `count`, checked: the limit is the one this block must have, and `1 <= count <= limit`.
fn counts(block: &[u8], kind: DxKind, has_csum: bool) -> Result<(usize, usize)> {
    let at = kind.entries_offset();
    let (Some(limit), Some(count)) = (field::get::<u16>(block, at), field::get::<u16>(block, at + 2)) else {
        return Err(corrupt("block is too small for an index"));
    };
    let (limit, count) = (usize::from(limit), usize::from(count));
    if limit != kind.limit(block.len(), has_csum) {
        return Err(corrupt("index limit does not match the block"));
    }
    if count == 0 || count > limit {
        return Err(corrupt("index count is 0 or above the limit"));
    }
    Ok((limit, count))
}

/// Whether a block looks like an inner node: one free entry over all of it.
fn covers_block(block: &[u8]) -> bool {
    field::get::<u32>(block, 0) == Some(0) && rec_len_at(block, 0) == Some(block.len())
}

fn corrupt(reason: &'static str) -> Error {
    Error::corrupt(Structure::HtreeNode, reason)
}
