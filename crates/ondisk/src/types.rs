//! Newtypes of the numbers that name places on a disk.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $raw);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A block of the file system, counted from the start of the device in units of the block size.
    FsBlock(u64)
}
number! {
    /// A block of a file, counted from the start of the file in units of the block size.
    LogicalBlock(u32)
}
number! {
    /// A cluster of the file system, counted from the start of the device in units of the cluster size: what is allocated at once.
    /// Without `bigalloc` it is a block, and has its number.
    Cluster(u64)
}
number! {
    /// A cluster of a file, counted from the start of the file. All of its blocks lie in one [`Cluster`], each at the place that it has
    /// in the cluster of the file.
    LogicalCluster(u32)
}
number! {
    /// A block group, from 0.
    GroupNumber(u32)
}
number! {
    /// An inode, from 1; 0 names none.
    InodeNumber(u32)
}

impl FsBlock {
    /// The block `len` blocks further, or `None` past the end of 64 bits.
    #[must_use]
    pub fn checked_add(self, len: u64) -> Option<Self> {
        self.0.checked_add(len).map(Self)
    }
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// The first block.
    pub start: FsBlock,
    /// How many blocks.
    pub len: u32,
}

impl Cluster {
    /// The cluster `len` clusters further, or `None` past the end of 64 bits.
    #[must_use]
    pub fn checked_add(self, len: u64) -> Option<Self> {
        self.0.checked_add(len).map(Self)
    }
}

impl InodeNumber {
    /// The root directory.
    pub const ROOT: Self = Self(2);
    /// The inode that holds the reserved descriptor blocks.
    pub const RESIZE: Self = Self(7);
    /// The journal's usual inode.
    pub const JOURNAL: Self = Self(8);
}

/// A journal transaction. Numbers wrap; compare with [`TransactionId::is_after`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct TransactionId(pub u32);

impl TransactionId {
    /// The number after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Whether this transaction came after `other`, by the sign of the wrapped difference (jbd2 `tid_gt`).
    #[must_use]
    pub fn is_after(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
