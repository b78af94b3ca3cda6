//! Directories: names in blocks, linear or under a hash index.
//!
//! Leaves out: which operations there are ([`crate::namei`]), and the bytes of a block ([`extant_ondisk::dirent`],
//! [`extant_ondisk::htree`]).
//!
//! A directory of one block is linear. With the `dir_index` feature its first overflow makes it an indexed one: block 0
//! becomes the root of a tree by hash of name, whose leaves are plain blocks. An index is never dropped. If an index is
//! damaged, names are still found by going through all blocks; none can be added. One whose entries are in its inode is
//! read as the one block that it will be once it changes ([`crate::inline`]).
//!
//! Invariants: a change is planned before its update opens, under the directory's lock, so that only damage in the
//! bitmaps can stop it later; a block given to a directory is a valid empty one at once.
//!
//! Locks: the caller holds `INODE` of the directory, shared to look and alone to change. Inside: `BUFFER`.
//!
//! Source: `fs/ext4/namei.c`, `fs/ext4/dir.c`. Tests: `tests/names.rs`, `tests/large_dirs.rs`, `tests/read_dir.rs`.

mod casefold;
mod index;
mod insert;
mod iterate;
mod lookup;
mod negative_lookup;
mod recent_blocks;
mod scan;

pub(crate) use insert::{InsertPlan, Insertion};
pub use iterate::DirItem;
pub(crate) use lookup::Found;
pub(crate) use negative_lookup::NegativeLookupHint;
pub(crate) use recent_blocks::RecentDirectoryBlocks;

use extant_ondisk::dir_hash::{DirHasher, HashVersion};
use extant_ondisk::{
    CompatFeatures, FileType, FsBlock, IncompatFeatures, InodeFlags, LogicalBlock, RawInode, Structure,
    SuperFlags, Superblock, dirent, extent,
};
use extant_rt::Arc;

use crate::buffer::{Buffer, BufferKind};
use crate::error::{Error, Location, Result};
use crate::inode::Inode;
use crate::update::Credits;
use crate::volume::Volume;

/// Flags of directories whose names are not stored as they are looked up.
const NAME_FORMS: InodeFlags = InodeFlags::ENCRYPT.union(InodeFlags::CASEFOLD);

/// How the directories of a volume are laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) block_bytes: usize,
    /// Bytes of a linear block that hold entries.
    pub(crate) usable: usize,
    pub(crate) has_csum: bool,
    /// Entries say what their inodes are.
    has_file_type: bool,
    /// The flags of directories, of those that change the form of names, that there may be.
    forms: InodeFlags,
    /// Directories that overflow a block are indexed.
    pub(crate) has_index: bool,
    pub(crate) has_large_dir: bool,
    hash_version: HashVersion,
    unsigned_hash: bool,
    hash_seed: [u32; 4],
}

impl Format {
    pub(crate) fn new(superblock: &Superblock) -> Self {
        let block_bytes = superblock.block_size() as usize;
        let has_csum = superblock.has_metadata_csum();
        let unsigned_hash = superblock.flags().contains(SuperFlags::UNSIGNED_HASH);
        // The kernel takes half an MD4 where a disk names no hash that it knows.
        let unknown = if unsigned_hash { HashVersion::HalfMd4Unsigned } else { HashVersion::HalfMd4 };
        let hash_version =
            HashVersion::from_disk(superblock.s_def_hash_version(), unsigned_hash).unwrap_or(unknown);
        let incompat = superblock.incompat();
        let mut forms = InodeFlags::empty();
        forms.set(InodeFlags::ENCRYPT, incompat.contains(IncompatFeatures::ENCRYPT));
        forms.set(InodeFlags::CASEFOLD, incompat.contains(IncompatFeatures::CASEFOLD));
        Self {
            block_bytes,
            usable: dirent::usable_bytes(block_bytes, has_csum),
            has_csum,
            has_file_type: superblock.incompat().contains(IncompatFeatures::FILETYPE),
            forms,
            has_index: superblock.compat().contains(CompatFeatures::DIR_INDEX),
            has_large_dir: superblock.incompat().contains(IncompatFeatures::LARGEDIR),
            hash_version,
            unsigned_hash,
            hash_seed: superblock.s_hash_seed(),
        }
    }

    /// The hash of directories that have no index yet.
    fn default_hasher(&self) -> DirHasher {
        DirHasher::new(self.hash_version, self.hash_seed)
    }

    /// The type byte of an entry.
    pub(crate) fn file_type_byte(&self, file_type: FileType) -> u8 {
        if self.has_file_type { file_type.dirent_byte() } else { FileType::Unknown.dirent_byte() }
    }

    fn file_type(&self, byte: u8) -> Option<FileType> {
        match FileType::from_dirent(byte) {
            FileType::Unknown => None,
            file_type => self.has_file_type.then_some(file_type),
        }
    }
}

impl Volume {
    /// Checks that the inode is a directory of a supported kind.
    ///
    /// # Errors
    /// `NotADirectory`; `Unsupported` if it is encrypted or folds case on a disk where none does.
    pub(crate) fn check_directory(&self, raw: &RawInode) -> Result<()> {
        if raw.file_type() != FileType::Directory {
            return Err(Error::NotADirectory);
        }
        if !(raw.flags() & (NAME_FORMS - self.names.format.forms)).is_empty() {
            return Err(Error::Unsupported("an encrypted or case-folding directory"));
        }
        Ok(())
    }

    /// Whether there may be what is encrypted.
    pub(crate) fn has_encryption(&self) -> bool {
        self.names.format.forms.contains(InodeFlags::ENCRYPT)
    }

    /// Whether the directory has an index that is to be used.
    pub(crate) fn is_indexed(&self, dir: &RawInode) -> bool {
        self.names.format.has_index && dir.flags().contains(InodeFlags::INDEX) && !dir.has_inline_data()
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
        let block_bytes = self.names.format.block_bytes as u64;
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

    /// The credits for adding `blocks` blocks to a directory or a new inode.
    pub(crate) fn grow_need(&self, raw: &RawInode, blocks: u32) -> Credits {
        if blocks == 0 {
            return Credits::new(0, 0);
        }
        if !raw.flags().contains(InodeFlags::EXTENTS) {
            // So few blocks cross the end of at most one table: the inode, the tables on both sides of it, of which the
            // second ones may be new.
            return Credits::new(1 + 3 + 3 * (blocks + 3), blocks + 3);
        }
        let depth = u32::from(extent::depth(raw.i_block()).unwrap_or(0).min(extent::MAX_DEPTH));
        // Once a full path was split, or the tree became deeper, it has room for more blocks than are requested here.
        let nodes = depth + 2;
        // The inode, the path with what may be freed of it; each new block with its bitmap and its descriptor.
        Credits::new(1 + 5 * depth + 3 * (blocks + nodes), blocks + nodes)
    }

    /// A block of a directory.
    fn directory_buffer(
        &self,
        dir: &Arc<Inode>,
        logical: LogicalBlock,
        kind: BufferKind,
    ) -> Result<Arc<Buffer>> {
        let structure = match kind {
            BufferKind::HtreeNode(_) => Structure::HtreeNode,
            _ => Structure::DirectoryBlock,
        };
        let recent = &self.names.recent_blocks;
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
        let (kind, usable) = if self.is_indexed(&dir.raw()) {
            (BufferKind::HtreeNode(dir.owner()), self.names.format.block_bytes)
        } else {
            (BufferKind::Directory(dir.owner()), self.names.format.usable)
        };
        Ok((self.directory_buffer(dir, LogicalBlock(0), kind)?, usable))
    }
}

/// The place of damage in a block of a directory.
fn place_in(dir: &Inode, buffer: &Buffer) -> Location {
    Location::of(Structure::DirectoryBlock).inode(dir.number).block(buffer.block)
}
