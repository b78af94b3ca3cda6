//! Which checksums a disk has, and the seeds that its structures need to compute them.
//!
//! Each structure's module adds its own methods to [`Checksums`]; on a disk without the feature all of
//! them accept every checksum and change nothing.
//!
//! [`Reseed`] changes checksums to another seed without a look at what they sum.
//!
//! Source: kernel `ext4_chksum`, `ext4_group_desc_csum`.

use crate::crcs::{crc16, crc32c};
use crate::dirent;
use crate::feature::RoCompatFeatures;
use crate::orphan_file;
use crate::superblock::Superblock;
use crate::types::InodeNumber;

/// The number and the generation of an inode, with which [`Checksums::inode_seed`] goes on.
pub(crate) const INODE_SEED_BYTES: usize = 8;
/// The number of a block that is summed.
const PLACE_BYTES: usize = 8;

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

/// The way of checksums from one seed to another.
///
/// CRC-32C is linear: what two sums of the same bytes differ by depends on their seeds and on the number of the bytes. So a right checksum
/// becomes right under the other seed, and a wrong one stays wrong.
#[derive(Clone, Copy, Debug)]
pub struct Reseed {
    seeds: u32,
    /// The difference for an inode.
    pub(crate) inode: u32,
    /// That for a linear directory block or a leaf.
    pub(crate) dir_block: u32,
    /// That for an xattr block.
    pub(crate) xattr_block: u32,
    /// That for a block of the orphan file.
    pub(crate) orphan_block: u32,
}

impl Reseed {
    /// Between two seeds of a disk on which all metadata is summed under both; `None` for another disk.
    #[must_use]
    pub fn between(from: &Checksums, to: &Checksums, inode_size: u16, block_size: u32) -> Option<Self> {
        if !from.has_metadata_checksums() || !to.has_metadata_checksums() {
            return None;
        }
        let block = block_size as usize;
        let mut reseed =
            Self { seeds: from.seed ^ to.seed, inode: 0, dir_block: 0, xattr_block: 0, orphan_block: 0 };
        reseed.inode = reseed.difference(INODE_SEED_BYTES + usize::from(inode_size));
        reseed.dir_block = reseed.difference(INODE_SEED_BYTES + block.saturating_sub(dirent::TAIL_BYTES));
        reseed.xattr_block = reseed.difference(PLACE_BYTES + block);
        reseed.orphan_block = reseed
            .difference(INODE_SEED_BYTES + PLACE_BYTES + 4 * orphan_file::entries_per_block(block_size));
        Some(reseed)
    }

    /// What two sums of so many bytes differ by.
    pub(crate) fn difference(&self, mut bytes: usize) -> u32 {
        const ZEROES: &[u8] = &[0; 4096];
        let mut sum = self.seeds;
        while bytes > 0 {
            let piece = bytes.min(ZEROES.len());
            sum = crc32c(sum, ZEROES.get(..piece).unwrap_or_default());
            bytes -= piece;
        }
        sum
    }
}
