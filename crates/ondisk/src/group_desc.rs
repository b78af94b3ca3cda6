//! Group descriptors: where a group's bitmaps and inode table are, and what is free in it.
//!
//! Leaves out: where descriptors lie (see [`crate::Geometry::descriptor_location`]).
//!
//! Invariant: a descriptor remembers its size; fields above 32 bytes exist only from 64 bytes on. Bytes of still
//! larger descriptors are kept, because the checksum covers them.
//!
//! Source: kernel `struct ext4_group_desc`, `ext4_group_desc_csum`, `ext4_block_bitmap_csum_set`.

use crate::checksum::{ChecksumKind, Checksums};
use crate::crcs::{crc16, crc32c};
use crate::error::{Error, Result, Structure};
use crate::field::fields;
use crate::types::{FsBlock, GroupNumber};

/// Bytes of a descriptor that have names.
const NAMED_SIZE: usize = 64;
const CHECKSUM_OFFSET: usize = 0x1E;

bitflags::bitflags! {
    /// `bg_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap and table were never written.
        const INODE_UNINIT = 0x1;
        /// The block bitmap was never written.
        const BLOCK_UNINIT = 0x2;
        /// The inode table is zeroed.
        const INODE_ZEROED = 0x4;
    }
}

/// A group descriptor. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescriptor {
    bytes: [u8; NAMED_SIZE],
    size: u16,
    beyond: Box<[u8]>,
}

impl GroupDescriptor {
    /// Reads a descriptor of `size` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when there are fewer bytes, or the size is no descriptor's.
    pub fn parse(bytes: &[u8], size: u16) -> Result<Self> {
        let mut descriptor = Self::new(size)?;
        let source = bytes.get(..usize::from(size)).ok_or(corrupt("too short"))?;
        let named = source.len().min(NAMED_SIZE);
        let (source_named, source_beyond) = source.split_at(named);
        for (to, from) in descriptor.bytes.iter_mut().zip(source_named) {
            *to = *from;
        }
        descriptor.beyond.copy_from_slice(source_beyond);
        Ok(descriptor)
    }

    /// A descriptor of zeros.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when the size is not a power of two between 32 and 1024.
    pub fn new(size: u16) -> Result<Self> {
        if !size.is_power_of_two() || !(32..=1024).contains(&size) {
            return Err(corrupt("size out of range"));
        }
        let beyond = vec![0; usize::from(size).saturating_sub(NAMED_SIZE)].into_boxed_slice();
        Ok(Self { bytes: [0; NAMED_SIZE], size, beyond })
    }

    /// Copies the descriptor to the start of `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::NotRepresentable`] when they are too few.
    pub fn write(&self, bytes: &mut [u8]) -> Result<()> {
        let to =
            bytes.get_mut(..usize::from(self.size)).ok_or(Error::NotRepresentable("group descriptor"))?;
        let (named, beyond) = to.split_at_mut(self.named().len());
        named.copy_from_slice(self.named());
        beyond.copy_from_slice(&self.beyond);
        Ok(())
    }

    /// Bytes of the descriptor on the disk.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.size
    }

    fn named(&self) -> &[u8] {
        &self.bytes[..usize::from(self.size).min(NAMED_SIZE)]
    }

    fn is_wide(&self) -> bool {
        usize::from(self.size) >= NAMED_SIZE
    }

    /// `bg_flags` as flags.
    #[must_use]
    pub fn flags(&self) -> GroupFlags {
        GroupFlags::from_bits_retain(self.bg_flags())
    }

    /// Sets [`Self::flags`].
    pub fn set_flags(&mut self, flags: GroupFlags) {
        self.set_bg_flags(flags.bits());
    }

    /// The checksum this descriptor should have; 0 on a disk without.
    #[must_use]
    pub fn checksum(&self, checksums: &Checksums, group: GroupNumber) -> u16 {
        let number = group.0.to_le_bytes();
        let (before, after) = self.named().split_at(CHECKSUM_OFFSET);
        let after = after.get(2..).unwrap_or_default();
        match checksums.kind {
            ChecksumKind::None => 0,
            ChecksumKind::Crc16(uuid) => {
                [&number[..], before, after, &self.beyond].into_iter().fold(uuid, crc16)
            }
            ChecksumKind::Crc32c => [&number[..], before, &[0, 0], after, &self.beyond]
                .into_iter()
                .fold(checksums.seed, crc32c) as u16,
        }
    }

    /// Whether the checksum is right.
    #[must_use]
    pub fn verify_checksum(&self, checksums: &Checksums, group: GroupNumber) -> bool {
        !checksums.has_group_checksums() || self.bg_checksum() == self.checksum(checksums, group)
    }

    /// Sets the checksum, if the disk has checksums.
    pub fn update_checksum(&mut self, checksums: &Checksums, group: GroupNumber) {
        if checksums.has_group_checksums() {
            self.set_bg_checksum(self.checksum(checksums, group));
        }
    }
}

macro_rules! wide {
    ($($(#[$doc:meta])* $get:ident, $set:ident: $ty:ty, $half:ty, $lo:ident, $set_lo:ident, $hi:ident, $set_hi:ident;)*) => {
        impl GroupDescriptor {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $get(&self) -> $ty {
                    let high = if self.is_wide() { self.$hi() } else { 0 };
                    <$ty>::from(high) << <$half>::BITS | <$ty>::from(self.$lo())
                }

                #[doc = concat!("Sets [`Self::", stringify!($get), "`]; in a descriptor of 32 bytes its low half.")]
                pub fn $set(&mut self, value: $ty) {
                    self.$set_lo(value as $half);
                    if self.is_wide() {
                        self.$set_hi((value >> <$half>::BITS) as $half);
                    }
                }
            )*
        }
    };
}

wide! {
    /// Free clusters of the group, in clusters.
    free_blocks_count, set_free_blocks_count:
        u32, u16, bg_free_blocks_count_lo, set_bg_free_blocks_count_lo, bg_free_blocks_count_hi, set_bg_free_blocks_count_hi;
    /// Free inodes of the group.
    free_inodes_count, set_free_inodes_count:
        u32, u16, bg_free_inodes_count_lo, set_bg_free_inodes_count_lo, bg_free_inodes_count_hi, set_bg_free_inodes_count_hi;
    /// Directories among the group's inodes.
    used_dirs_count, set_used_dirs_count:
        u32, u16, bg_used_dirs_count_lo, set_bg_used_dirs_count_lo, bg_used_dirs_count_hi, set_bg_used_dirs_count_hi;
    /// Inodes at the end of the table that were never used.
    itable_unused, set_itable_unused:
        u32, u16, bg_itable_unused_lo, set_bg_itable_unused_lo, bg_itable_unused_hi, set_bg_itable_unused_hi;
    /// The checksum of the block bitmap; its low 16 bits in a descriptor of 32 bytes.
    block_bitmap_csum, set_block_bitmap_csum:
        u32, u16, bg_block_bitmap_csum_lo, set_bg_block_bitmap_csum_lo, bg_block_bitmap_csum_hi, set_bg_block_bitmap_csum_hi;
    /// The checksum of the inode bitmap; its low 16 bits in a descriptor of 32 bytes.
    inode_bitmap_csum, set_inode_bitmap_csum:
        u32, u16, bg_inode_bitmap_csum_lo, set_bg_inode_bitmap_csum_lo, bg_inode_bitmap_csum_hi, set_bg_inode_bitmap_csum_hi;
    /// The block of the block bitmap, as a number.
    raw_block_bitmap, set_raw_block_bitmap:
        u64, u32, bg_block_bitmap_lo, set_bg_block_bitmap_lo, bg_block_bitmap_hi, set_bg_block_bitmap_hi;
    /// The block of the inode bitmap, as a number.
    raw_inode_bitmap, set_raw_inode_bitmap:
        u64, u32, bg_inode_bitmap_lo, set_bg_inode_bitmap_lo, bg_inode_bitmap_hi, set_bg_inode_bitmap_hi;
    /// The first block of the inode table, as a number.
    raw_inode_table, set_raw_inode_table:
        u64, u32, bg_inode_table_lo, set_bg_inode_table_lo, bg_inode_table_hi, set_bg_inode_table_hi;
}

impl GroupDescriptor {
    /// The block of the block bitmap.
    #[must_use]
    pub fn block_bitmap(&self) -> FsBlock {
        FsBlock(self.raw_block_bitmap())
    }

    /// Sets [`Self::block_bitmap`].
    pub fn set_block_bitmap(&mut self, block: FsBlock) {
        self.set_raw_block_bitmap(block.0);
    }

    /// The block of the inode bitmap.
    #[must_use]
    pub fn inode_bitmap(&self) -> FsBlock {
        FsBlock(self.raw_inode_bitmap())
    }

    /// Sets [`Self::inode_bitmap`].
    pub fn set_inode_bitmap(&mut self, block: FsBlock) {
        self.set_raw_inode_bitmap(block.0);
    }

    /// The first block of the inode table.
    #[must_use]
    pub fn inode_table(&self) -> FsBlock {
        FsBlock(self.raw_inode_table())
    }

    /// Sets [`Self::inode_table`].
    pub fn set_inode_table(&mut self, block: FsBlock) {
        self.set_raw_inode_table(block.0);
    }
}

impl Checksums {
    /// The checksum of a block bitmap, given its whole block.
    #[must_use]
    pub fn block_bitmap(&self, bitmap: &[u8]) -> u32 {
        self.bitmap(bitmap, self.block_bitmap_bytes)
    }

    /// Whether a block bitmap has the checksum in its descriptor.
    #[must_use]
    pub fn verify_block_bitmap(&self, descriptor: &GroupDescriptor, bitmap: &[u8]) -> bool {
        !self.has_metadata_checksums()
            || self.as_stored(self.block_bitmap(bitmap)) == descriptor.block_bitmap_csum()
    }

    /// Puts the checksum of a block bitmap into its descriptor, if the disk has checksums.
    pub fn update_block_bitmap(&self, descriptor: &mut GroupDescriptor, bitmap: &[u8]) {
        if self.has_metadata_checksums() {
            descriptor.set_block_bitmap_csum(self.block_bitmap(bitmap));
        }
    }

    /// The checksum of an inode bitmap, given its whole block.
    #[must_use]
    pub fn inode_bitmap(&self, bitmap: &[u8]) -> u32 {
        self.bitmap(bitmap, self.inode_bitmap_bytes)
    }

    /// Whether an inode bitmap has the checksum in its descriptor.
    #[must_use]
    pub fn verify_inode_bitmap(&self, descriptor: &GroupDescriptor, bitmap: &[u8]) -> bool {
        !self.has_metadata_checksums()
            || self.as_stored(self.inode_bitmap(bitmap)) == descriptor.inode_bitmap_csum()
    }

    /// Puts the checksum of an inode bitmap into its descriptor, if the disk has checksums.
    pub fn update_inode_bitmap(&self, descriptor: &mut GroupDescriptor, bitmap: &[u8]) {
        if self.has_metadata_checksums() {
            descriptor.set_inode_bitmap_csum(self.inode_bitmap(bitmap));
        }
    }

    fn bitmap(&self, bitmap: &[u8], bytes: u32) -> u32 {
        crc32c(self.seed, bitmap.get(..bytes as usize).unwrap_or(bitmap))
    }

    fn as_stored(&self, sum: u32) -> u32 {
        if usize::from(self.desc_size) >= NAMED_SIZE { sum } else { sum & 0xFFFF }
    }
}

fn corrupt(reason: &'static str) -> Error {
    Error::corrupt(Structure::GroupDescriptor, reason)
}

fields! { GroupDescriptor, NAMED_SIZE;
    bg_block_bitmap_lo, set_bg_block_bitmap_lo: u32 = 0x0;
    bg_inode_bitmap_lo, set_bg_inode_bitmap_lo: u32 = 0x4;
    bg_inode_table_lo, set_bg_inode_table_lo: u32 = 0x8;
    bg_free_blocks_count_lo, set_bg_free_blocks_count_lo: u16 = 0xC;
    bg_free_inodes_count_lo, set_bg_free_inodes_count_lo: u16 = 0xE;
    bg_used_dirs_count_lo, set_bg_used_dirs_count_lo: u16 = 0x10;
    bg_flags, set_bg_flags: u16 = 0x12;
    bg_exclude_bitmap_lo, set_bg_exclude_bitmap_lo: u32 = 0x14;
    bg_block_bitmap_csum_lo, set_bg_block_bitmap_csum_lo: u16 = 0x18;
    bg_inode_bitmap_csum_lo, set_bg_inode_bitmap_csum_lo: u16 = 0x1A;
    bg_itable_unused_lo, set_bg_itable_unused_lo: u16 = 0x1C;
    bg_checksum, set_bg_checksum: u16 = 0x1E;
    bg_block_bitmap_hi, set_bg_block_bitmap_hi: u32 = 0x20;
    bg_inode_bitmap_hi, set_bg_inode_bitmap_hi: u32 = 0x24;
    bg_inode_table_hi, set_bg_inode_table_hi: u32 = 0x28;
    bg_free_blocks_count_hi, set_bg_free_blocks_count_hi: u16 = 0x2C;
    bg_free_inodes_count_hi, set_bg_free_inodes_count_hi: u16 = 0x2E;
    bg_used_dirs_count_hi, set_bg_used_dirs_count_hi: u16 = 0x30;
    bg_itable_unused_hi, set_bg_itable_unused_hi: u16 = 0x32;
    bg_exclude_bitmap_hi, set_bg_exclude_bitmap_hi: u32 = 0x34;
    bg_block_bitmap_csum_hi, set_bg_block_bitmap_csum_hi: u16 = 0x38;
    bg_inode_bitmap_csum_hi, set_bg_inode_bitmap_csum_hi: u16 = 0x3A;
}
