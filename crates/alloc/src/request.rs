//! A request for blocks (kernel `struct ext4_allocation_request`).

use extant_ondisk::{Cluster, InodeNumber};

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where it would be best; the start of the disk if it lies outside.
    pub goal: Cluster,
    /// Blocks wanted in one run.
    pub len: u32,
    /// Blocks that are enough, when longer runs would have to be searched for.
    pub least: u32,
    /// Of them, blocks taken ahead of what is needed now.
    pub ahead: u32,
    /// What for.
    pub purpose: Purpose,
}

/// What blocks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The file system's own: directories, trees, attributes.
    Metadata,
    /// The content of a small file.
    Data,
    /// The content of a large file that has some near the goal, where it goes on.
    Stream(InodeNumber),
    /// The first of it: it begins where streams of its band and number went on last.
    NewStream(InodeNumber),
}

impl Purpose {
    /// The large file.
    pub(crate) fn stream(self) -> Option<InodeNumber> {
        match self {
            Self::Stream(inode) | Self::NewStream(inode) => Some(inode),
            Self::Metadata | Self::Data => None,
        }
    }
}
