//! The numbers by which the kernel calls inodes.

/// The kernel's number of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount, whatever its inode number.
    pub const ROOT: Self = Self(1);
}
