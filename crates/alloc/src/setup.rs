//! What an allocator starts from: the disk's counts, and the [`GroupStore`] from which descriptors and bitmaps are read.

use extant_ondisk::{Geometry, GroupDescriptor, GroupNumber};

use crate::BoxError;
use crate::tuning::Tuning;

/// What the engine lends the allocators: descriptors and bitmaps as the last transaction left them.
pub trait GroupStore: Send + Sync {
    /// The descriptors of `count` groups from `first` on, all of one block of descriptors, checked: their places lie on
    /// the disk, whose layout is `geometry`, and they have flags only where it has checksums of groups. Never asked for one that changed.
    ///
    /// # Errors
    /// Whatever keeps one of them from being read or believed.
    fn load_descriptors(
        &self,
        geometry: &Geometry,
        first: GroupNumber,
        count: u32,
    ) -> Result<Vec<GroupDescriptor>, BoxError>;

    /// The block bitmap of a group without `BLOCK_UNINIT`, a whole block, its checksum verified.
    ///
    /// # Errors
    /// Whatever keeps it from being read or believed.
    fn load_block_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError>;

    /// The inode bitmap of a group without `INODE_UNINIT`, a whole block, its checksum verified.
    ///
    /// # Errors
    /// Whatever keeps it from being read or believed.
    fn load_inode_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError>;
}

/// What an allocator starts from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Free blocks of the disk, as the superblock says: believed until all descriptors are read.
    pub free_blocks: u64,
    /// Free inodes, likewise.
    pub free_inodes: u64,
    /// Root's blocks, which [`MayUse::Free`](crate::MayUse::Free) leaves alone.
    pub root_blocks: u64,
    /// The reserved pool, which only [`MayUse::Reserved`](crate::MayUse::Reserved) takes (kernel `s_resv_clusters`).
    pub reserved_blocks: u64,
    /// Bytes of bitmaps and buddies to keep in memory, beside those in use.
    pub bitmap_bytes_max: u64,
    /// How it works.
    pub tuning: Tuning,
}
