//! Checksums of a disk.

use extant_ondisk::{ChecksumKind, Checksums};

/// Checksums of a disk with `metadata_csum` and this seed.
pub fn checksums(seed: u32) -> Checksums {
    Checksums {
        kind: ChecksumKind::Crc32c,
        seed,
        desc_size: 64,
        block_bitmap_bytes: 4096,
        inode_bitmap_bytes: 1024,
    }
}
