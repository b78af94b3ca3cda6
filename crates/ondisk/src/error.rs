//! Errors in the bytes of a disk, and in values that are to be encoded.
//!
//! Leaves out: the place. A structure does not know the block it was read from; the reader adds it.

use std::fmt;

use crate::feature::IncompatFeatures;

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why bytes were refused, or a value cannot be written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A structure contradicts itself, its checksum or the format.
    Corrupt(Corrupt),
    /// The disk uses features under which its bytes must not be interpreted.
    Incompatible(IncompatFeatures),
    /// A value does not fit the field that the disk has for it.
    NotRepresentable(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(error) => error.fmt(f),
            Self::Incompatible(features) => write!(f, "incompatible features: {features}"),
            Self::NotRepresentable(what) => write!(f, "{what} does not fit the on-disk field"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Corrupt(error) => error.source(),
            _ => None,
        }
    }
}

impl From<Corrupt> for Error {
    fn from(error: Corrupt) -> Self {
        Self::Corrupt(error)
    }
}

impl Error {
    /// A [`Corrupt`] as an error.
    #[must_use]
    pub const fn corrupt(structure: Structure, reason: &'static str) -> Self {
        Self::Corrupt(Corrupt { structure, reason })
    }
}

/// A structure that is wrong, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt {
    /// The kind of structure.
    pub structure: Structure,
    /// The reason that it is refused.
    pub reason: &'static str,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { structure, reason } = self;
        write!(f, "corrupt {structure}: {reason}")
    }
}

impl std::error::Error for Corrupt {}

/// The kinds of structure on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// The superblock or a copy of it.
    Superblock,
    /// A group descriptor.
    GroupDescriptor,
    /// A group's bitmap of clusters.
    BlockBitmap,
    /// A group's bitmap of inodes.
    InodeBitmap,
    /// An inode.
    Inode,
    /// A node of an extent tree, in an inode or in a block.
    ExtentNode,
    /// A block of block numbers.
    IndirectBlock,
    /// A block of directory entries.
    DirectoryBlock,
    /// A node of a directory's hash tree.
    HtreeNode,
    /// A directory kept inside its inode.
    InlineDirectory,
    /// A block of extended attributes.
    XattrBlock,
    /// Extended attributes kept inside an inode.
    InodeXattrs,
    /// A value of an extended attribute kept in an inode of its own.
    XattrInode,
    /// An access control list.
    Acl,
    /// The target of a symbolic link.
    Symlink,
    /// The journal.
    Journal,
    /// A block of the orphan file.
    OrphanFile,
    /// The chain of orphaned inodes.
    OrphanList,
    /// The multiple-mount protection block.
    Mmp,
    /// A file of usage and limits.
    QuotaFile,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superblock => "superblock",
            Self::GroupDescriptor => "group descriptor",
            Self::BlockBitmap => "block bitmap",
            Self::InodeBitmap => "inode bitmap",
            Self::Inode => "inode",
            Self::ExtentNode => "extent node",
            Self::IndirectBlock => "indirect block",
            Self::DirectoryBlock => "directory block",
            Self::HtreeNode => "htree node",
            Self::InlineDirectory => "inline directory",
            Self::XattrBlock => "xattr block",
            Self::InodeXattrs => "inode xattrs",
            Self::XattrInode => "xattr inode",
            Self::Acl => "access control list",
            Self::Symlink => "symbolic link",
            Self::Journal => "journal",
            Self::OrphanFile => "orphan file",
            Self::OrphanList => "orphan list",
            Self::Mmp => "MMP block",
            Self::QuotaFile => "quota file",
        })
    }
}
