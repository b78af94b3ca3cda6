//! Which checksums a disk has, and the seeds that its structures need to compute them.
//!
//! Each structure's module adds its own methods to [`Checksums`]; on a disk without the feature all of
//! them accept every checksum and change nothing.
//!
//! Source: kernel `ext4_chksum`, `ext4_group_desc_csum`.

use crate::crcs::{crc16, crc32c};
use crate::feature::RoCompatFeatures;
use crate::superblock::Superblock;
use crate::types::InodeNumber;

/// Which checksums a disk carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumKind {
    /// None.
    None,
    /// Group descriptors only (`uninit_bg`); the CRC-16 of the UUID, from which they continue.
    Crc16(u16),
    /// All metadata (`metadata_csum`).
    Crc32c,
}

/// The seeds and features that the checksums of one disk depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksums {
    /// Which checksums there are.
    pub kind: ChecksumKind,
    /// The CRC-32C that every structure's checksum continues from.
    pub seed: u32,
    /// Bytes of a group descriptor.
    pub desc_size: u16,
    /// Bytes of a block bitmap that are summed.
    pub block_bitmap_bytes: u32,
    /// Bytes of an inode bitmap that are summed.
    pub inode_bitmap_bytes: u32,
}

impl Checksums {
    /// The checksums of the disk of `superblock`.
    #[must_use]
    pub fn new(superblock: &Superblock) -> Self {
        let kind = if superblock.has_metadata_csum() {
            ChecksumKind::Crc32c
        } else if superblock.ro_compat().contains(RoCompatFeatures::GDT_CSUM) {
            ChecksumKind::Crc16(crc16(!0, &superblock.s_uuid()))
        } else {
            ChecksumKind::None
        };
        Self {
            kind,
            seed: superblock.checksum_seed(),
            desc_size: superblock.desc_size(),
            block_bitmap_bytes: superblock.clusters_per_group() / 8,
            inode_bitmap_bytes: superblock.s_inodes_per_group() / 8,
        }
    }

    /// Whether all metadata is summed.
    #[inline]
    #[must_use]
    pub fn has_metadata_checksums(&self) -> bool {
        self.kind == ChecksumKind::Crc32c
    }

    /// Whether group descriptors are summed, so that their flags and `itable_unused` count.
    #[inline]
    #[must_use]
    pub fn has_group_checksums(&self) -> bool {
        self.kind != ChecksumKind::None
    }

    /// The sum that the checksums of an inode and of all its own blocks continue from.
    #[must_use]
    pub fn inode_seed(&self, ino: InodeNumber, generation: u32) -> u32 {
        crc32c(self.seed, &(u64::from(generation) << 32 | u64::from(ino.0)).to_le_bytes())
    }
}
