//! Directories: names in blocks, linear or under a hash index.
//!
//! Leaves out: which operations there are ([`crate::namespace`]), and the bytes of a block ([`extant_ondisk::dirent`],
//! [`extant_ondisk::htree`]).
//!
//! A directory of one block is linear. With the `dir_index` feature its first overflow makes it an indexed one: block 0
//! becomes the root of a tree by hash of name, whose leaves are plain blocks. An index is never dropped. If an index is
//! damaged, names are still found by going through all blocks; none can be added. One whose entries are in its inode is
//! read as the one block that it will be once it changes ([`crate::mapping::inline`]).
//!
//! Invariants: a change is planned before its update opens, under the directory's lock, so that only damage in the
//! bitmaps can stop it later; a block given to a directory is a valid empty one at once.
//!
//! Locks: the caller holds `INODE` of the directory, shared to look and alone to change; or shared, with the lock of the leaf that alone
//! may hold the name ([`leaf_lock`]). Inside: `BUFFER`.
//!
//! Source: `fs/ext4/namei.c`, `fs/ext4/dir.c`. Tests: `tests/names.rs`, `tests/large_dirs.rs`, `tests/read_dir.rs`.

mod casefold;
mod grow;
mod index;
mod insert;
mod iterate;
mod leaf_lock;
mod leaf_pair;
mod lookup;
mod negative_lookup;
mod recent_attributes;
mod recent_blocks;
mod scan;

pub(crate) use insert::{InsertPlan, Insertion};
pub use iterate::DirItem;
pub(crate) use leaf_lock::{HeldLeaf, LeafHold};
pub(crate) use leaf_pair::{HeldDirectory, HeldPair};
pub(crate) use lookup::{Found, Looked};
pub(crate) use negative_lookup::NegativeLookupHint;
pub(crate) use recent_blocks::RecentDirectoryBlocks;

use std::ops::Deref;

use self::recent_attributes::RecentDirectoryAttributes;
use extant_ondisk::{FileType, FsBlock, InodeFlags, LogicalBlock, RawInode, Structure};
use extant_rt::Arc;

use crate::error::{Error, Location, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::Inode;
use crate::incore::leaf_map::LeafMapsLeft;
use crate::inode::Inodes;

/// Flags of directories whose names are not stored as they are looked up.
const NAME_FORMS: InodeFlags = InodeFlags::ENCRYPT.union(InodeFlags::CASEFOLD);

/// The directories of a mounted file system.
pub(crate) struct Directories {
    lower: Inodes,
    negative_lookups: NegativeLookupHint,
    recent_blocks: RecentDirectoryBlocks,
    recent_attributes: RecentDirectoryAttributes,
    leaf_maps_left: Arc<LeafMapsLeft>,
}

impl Deref for Directories {
    type Target = Inodes;

    fn deref(&self) -> &Inodes {
        &self.lower
    }
}

impl Directories {
    pub(crate) fn new(lower: Inodes) -> Self {
        // Leaves that stay in memory are a small part of what may.
        let kept_max = lower.buffers.count_max() / 8;
        Self {
            lower,
            negative_lookups: NegativeLookupHint::new(),
            recent_blocks: RecentDirectoryBlocks::new(),
            recent_attributes: RecentDirectoryAttributes::new(),
            leaf_maps_left: LeafMapsLeft::new(kept_max),
        }
    }

    /// The attributes of a directory; other fields may be older if threads change it at once.
    pub(crate) fn attributes_of_directory(&self, dir: &Inode) -> Arc<RawInode> {
        match dir.leaf_map() {
            Some(map) => self.recent_attributes.get(dir, map),
            None => dir.raw(),
        }
    }

    /// Checks that the inode is a directory of a supported kind.
    ///
    /// # Errors
    /// `NotADirectory`; `Unsupported` if it is encrypted or folds case on a disk where none does.
    pub(crate) fn check_directory(&self, raw: &RawInode) -> Result<()> {
        if raw.file_type() != FileType::Directory {
            return Err(Error::NotADirectory);
        }
        if !(raw.flags() & (NAME_FORMS - self.dir_format.forms)).is_empty() {
            return Err(Error::Unsupported("an encrypted or case-folding directory"));
        }
        Ok(())
    }

    /// Blocks of a directory.
    ///
    /// # Errors
    /// `Corrupt` for a size that is no number of blocks, or more than the disk has.
    pub(crate) fn directory_len(&self, dir: &Inode) -> Result<u32> {
        let raw = dir.raw();
        if raw.has_inline_data() {
            return Ok(1);
        }
        let size = raw.size();
        let block_bytes = self.dir_format.block_bytes as u64;
        let location = Location::of(Structure::Inode).inode(dir.number);
        // Directories have no holes: one of more blocks than the disk would keep its reader busy for ever.
        match u32::try_from(size / block_bytes) {
            Ok(len) if len == 0 || !size.is_multiple_of(block_bytes) => {
                Err(location.corrupt("directory size is no number of blocks"))
            }
            Ok(len) if u64::from(len) <= self.geometry.blocks_count => Ok(len),
            _ => Err(location.corrupt("directory is larger than the disk")),
        }
    }

    /// A block of a directory.
    pub(crate) fn directory_buffer(
        &self,
        dir: &Arc<Inode>,
        logical: LogicalBlock,
        kind: BufferKind,
    ) -> Result<Arc<Buffer>> {
        let structure = match kind {
            BufferKind::HtreeNode(_) => Structure::HtreeNode,
            _ => Structure::DirectoryBlock,
        };
        let recent = &self.recent_blocks;
        if let Some(buffer) = recent.get(dir, logical).filter(|buffer| buffer.is_valid(kind)) {
            return Ok(buffer);
        }
        if let Some(bytes) = self.inline_directory(dir)? {
            return Ok(Buffer::new(FsBlock(0), kind, bytes.into()));
        }
        let block = self.directory_block(dir, logical)?;
        let buffer = self.buffer(block, kind, Location::of(structure).inode(dir.number))?;
        recent.keep(dir, logical, &buffer);
        Ok(buffer)
    }

    /// The first block of a directory, which holds `.` and `..`, and how many of its bytes entries cover.
    fn first_directory_buffer(&self, dir: &Arc<Inode>) -> Result<(Arc<Buffer>, usize)> {
        let (kind, usable) = if self.dir_format.is_indexed(&dir.raw()) {
            (BufferKind::HtreeNode(dir.owner()), self.dir_format.block_bytes)
        } else {
            (BufferKind::Directory(dir.owner()), self.dir_format.usable)
        };
        Ok((self.directory_buffer(dir, LogicalBlock(0), kind)?, usable))
    }
}

/// The place of damage in a block of a directory.
fn place_in(dir: &Inode, buffer: &Buffer) -> Location {
    Location::of(Structure::DirectoryBlock).inode(dir.number).block(buffer.block)
}
