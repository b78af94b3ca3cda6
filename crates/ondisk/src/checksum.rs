//! The two checksums of ext4, and the seeds that a disk's structures need to compute them.
//!
//! Each structure's module adds its own methods to [`Checksums`]; on a disk without the feature all of
//! them accept every checksum and change nothing.
//!
//! Source: kernel `ext4_chksum`, `crc16`, `ext4_group_desc_csum`.

use crate::feature::RoCompatFeatures;
use crate::superblock::Superblock;
use crate::types::InodeNumber;

/// CRC-32C without inversion before or after (`crc32c_le`), continued from `seed`.
#[inline]
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

const CRC16: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_ARC);

/// CRC-16 of polynomial 0x8005, reflected, without final inversion, continued from `seed`.
#[must_use]
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    let mut digest = CRC16.digest_with_initial(seed.reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

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
        let sum = crc32c(self.seed, &ino.0.to_le_bytes());
        crc32c(sum, &generation.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_of_the_check_string_is_the_published_one_uninverted() {
        assert_eq!(crc32c(!0, b"123456789"), !0xE306_9283);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), !0xE306_9283);
    }

    #[test]
    fn crc16_continues_from_its_seed() {
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        assert_eq!(crc16(crc16(0xFFFF, b"1234"), b"56789"), 0x4B37);
    }
}
