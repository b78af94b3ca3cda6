//! Bytes of ext4 and jbd2: every structure on the disk as a type that reads, checks and writes it.
//!
//! Leaves out: I/O, locks, clocks. All functions are pure.
//!
//! Invariant: nothing here panics, overflows or allocates a size from an unchecked field, whatever
//! the bytes.
#![forbid(unsafe_code)]

pub mod acl;
pub mod bitmap;
pub mod casefold;
pub mod checksum;
mod crcs;
pub mod dir_hash;
pub mod dirent;
pub mod error;
pub mod extent;
pub mod fast_commit;
pub mod feature;
mod field;
pub mod file_type;
pub mod geometry;
pub mod group_desc;
pub mod htree;
pub mod indirect;
pub mod inline_data;
pub mod inode;
pub mod inode_flags;
pub mod jbd2;
pub mod mmp;
pub mod mode;
pub mod nokey;
pub mod orphan_file;
pub mod quota;
mod reseed;
pub mod superblock;
pub mod time;
mod types;
pub mod xattr;

pub use checksum::{ChecksumKind, Checksums};
pub use crcs::{crc16, crc32c};
pub use error::{Corrupt, Error, Result, Structure};
pub use extent::{Entries, Extent, ExtentIndex, ExtentNode};
pub use feature::{CompatFeatures, IncompatFeatures, RoCompatFeatures};
pub use file_type::FileType;
pub use geometry::Geometry;
pub use group_desc::{GroupDescriptor, GroupFlags};
pub use inode::RawInode;
pub use inode_flags::InodeFlags;
pub use mmp::Mmp;
pub use quota::{Dqblk, QuotaType};
pub use reseed::Reseed;
pub use superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, SuperFlags, Superblock};
pub use time::Timestamp;
pub use types::{
    Cluster, FsBlock, GroupNumber, InodeNumber, LogicalBlock, LogicalCluster, Run, TransactionId,
};
