//! Where the content of a file stands: one question for files with extents and with block maps.
//!
//! Leaves out: changing it, see `extent` and `indirect`.
//!
//! Locks: the caller holds `INODE` of the file, shared or not.

use extant_ondisk::{Extent, FileType, FsBlock, Inode, InodeFlags, InodeNumber, LogicalBlock, Structure};

use crate::buffer::Owner;
use crate::error::{Error, Place, Result};
use crate::node::Node;
use crate::volume::Volume;

/// The number of blocks that a file may have at most; no block has this number.
pub(crate) const LOGICAL_END: u64 = u32::MAX as u64;

/// What a block of a file and those behind it are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Nothing: reads as zeroes.
    Hole {
        /// Blocks, at least one.
        len: u32,
    },
    /// Blocks in one run.
    Data {
        /// The first block.
        start: FsBlock,
        /// Blocks, at least one.
        len: u32,
        /// Allocated, but reads as zeroes.
        unwritten: bool,
    },
}

impl Mapping {
    /// Blocks, at least one.
    pub(crate) fn len(&self) -> u32 {
        match *self {
            Self::Hole { len } | Self::Data { len, .. } => len,
        }
    }
}

/// How an inode says where its content stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// A tree of extents.
    Extents,
    /// Blocks of block numbers.
    Indirect,
    /// It has no blocks: a device, a short symbolic link.
    None,
}

/// How an inode says where its content stands.
pub(crate) fn map_kind(inode: &Inode, block_size: u32) -> MapKind {
    let flags = inode.flags();
    match inode.file_type() {
        FileType::Regular | FileType::Directory if flags.contains(InodeFlags::INLINE_DATA) => MapKind::None,
        FileType::Symlink if is_fast_symlink(inode, block_size) => MapKind::None,
        FileType::Regular | FileType::Directory | FileType::Symlink if flags.contains(InodeFlags::EXTENTS) => {
            MapKind::Extents
        }
        FileType::Regular | FileType::Directory | FileType::Symlink => MapKind::Indirect,
        _ => MapKind::None,
    }
}

/// Whether a symbolic link's target stands in the inode (`ext4_inode_is_fast_symlink`).
pub(crate) fn is_fast_symlink(inode: &Inode, block_size: u32) -> bool {
    let of_attributes = if inode.file_acl().0 == 0 { 0 } else { u64::from(block_size) };
    inode.file_type() == FileType::Symlink && inode.blocks_bytes(block_size) <= of_attributes
}

impl Volume {
    /// What up to `len_max` blocks from `logical` on are. `len_max` is at least 1.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn map(&self, node: &Node, logical: LogicalBlock, len_max: u32) -> Result<Mapping> {
        let inode = node.inode();
        match map_kind(&inode, self.geometry.block_size) {
            MapKind::Extents => self.map_extents(node.owner(), inode.i_block(), logical, len_max),
            MapKind::Indirect => self.map_indirect(node.number, inode.i_block(), logical, len_max),
            MapKind::None => Ok(Mapping::Hole { len: len_max }),
        }
    }

    /// The blocks of an inode as extents, in order.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn all_extents(&self, number: InodeNumber, inode: &Inode) -> Result<Vec<Extent>> {
        match map_kind(inode, self.geometry.block_size) {
            MapKind::Extents => {
                let owner = Owner { inode: number, generation: inode.generation() };
                self.all_tree_extents(owner, inode.i_block())
            }
            MapKind::Indirect => self.all_indirect_extents(number, inode),
            MapKind::None => Ok(Vec::new()),
        }
    }

    /// Blocks that bytes up to `bytes` take.
    pub(crate) fn blocks_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.geometry.block_size))
    }

    /// The largest size that an inode may have, by how it maps its blocks.
    pub(crate) fn size_max(&self, inode: &Inode) -> u64 {
        self.geometry.max_file_size(inode.flags().contains(InodeFlags::EXTENTS))
    }

    /// Refuses what is not a regular file.
    ///
    /// # Errors
    /// `IsADirectory`; `InvalidArgument`.
    pub(crate) fn check_regular(&self, node: &Node) -> Result<()> {
        match node.file_type() {
            FileType::Regular => Ok(()),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::InvalidArgument("not a regular file")),
        }
    }

    /// The block of a directory's (or a symbolic link's) content.
    ///
    /// # Errors
    /// `Corrupt` if there is none, or it was never written; `Io`.
    pub(crate) fn directory_block(&self, node: &Node, logical: LogicalBlock) -> Result<FsBlock> {
        let place = Place::of(Structure::DirectoryBlock).inode(node.number);
        match self.map(node, logical, 1)? {
            Mapping::Data { start, unwritten: false, .. } => Ok(start),
            _ => Err(place.corrupt("a hole in the directory")),
        }
    }
}
