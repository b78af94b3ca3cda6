//! A superblock that a crash tore between its two sectors.
//!
//! Mounting and unmounting write it in place, as the kernel does, and its checksum covers both sectors, of which each is then older or
//! newer. The kernel refuses such a disk and leaves it to e2fsck. Extant compares all fields that neither a mount nor resizing changes with
//! the copy in the next group: if they are the same, it accepts the first superblock despite its checksum, and treats the disk as one that
//! crashed. The sizes that resizing changes lie in one sector, so that they are of one size, older or newer; the log has the rest.
//!
//! Leaves out: disks of one group, which have no copy.
//!
//! Tests: `tests/crash` and `tests/resize`, whose crashes tear it.

use std::ops::Range;

use extant_block::BlockDevice;
use extant_ondisk::{
    CompatFeatures, Geometry, GroupNumber, IncompatFeatures, RoCompatFeatures, State, Superblock,
};

/// Bytes that change while a file system is in use, or that differ between the copies.
const CHANGING: &[Range<usize>] = &[
    // Inodes, blocks, root's and free ones of them.
    0x000..0x014,
    // Times and count of mounts.
    0x02C..0x036,
    // State.
    0x03A..0x03C,
    // Time of the last check.
    0x040..0x044,
    // The copy's group, and the features, which are compared by themselves.
    0x05A..0x068,
    // Label, and where it was mounted.
    0x078..0x0C8,
    // Blocks reserved for descriptors.
    0x0CE..0x0D0,
    // The list of orphans.
    0x0E8..0x0EC,
    // Where descriptors are in their own groups.
    0x104..0x108,
    // Where the journal is.
    0x10C..0x150,
    // More of the counts of blocks.
    0x150..0x15C,
    // Bytes written.
    0x178..0x180,
    // Errors.
    0x194..0x200,
    // Blocks of the file system's own, and the groups with copies.
    0x248..0x254,
    // More of the times, and codes of errors.
    0x274..0x27C,
    // The checksum.
    0x3FC..0x400,
];

/// The superblock with these bytes, whose checksum is wrong, if the copy in the next group says that it is one.
pub(crate) fn recover_from_backup(device: &dyn BlockDevice, bytes: &[u8; 1024]) -> Option<Superblock> {
    let mut bytes = *bytes;
    let sum = extant_ondisk::crc32c(!0, &bytes[..0x3FC]);
    bytes[0x3FC..].copy_from_slice(&sum.to_le_bytes());
    let mut joined = Superblock::parse(&bytes).ok()?;
    let geometry = Geometry::new(&joined).ok()?;
    let location = geometry.super_block(GroupNumber(1))?.0.checked_mul(u64::from(geometry.block_size))?;
    let mut copy = [0; 1024];
    device.read_at(location, &mut copy).ok()?;
    let theirs = Superblock::parse(&copy).ok()?;
    if unchanging(&joined) != unchanging(&theirs) {
        return None;
    }
    for range in CHANGING {
        bytes[range.clone()].fill(0);
        copy[range.clone()].fill(0);
    }
    joined.set_state(joined.state() - State::VALID);
    (bytes == copy).then_some(joined)
}

/// The features without those that come and go.
fn unchanging(superblock: &Superblock) -> (CompatFeatures, IncompatFeatures, RoCompatFeatures) {
    (
        superblock.compat() - (CompatFeatures::EXT_ATTR | CompatFeatures::RESIZE_INODE),
        superblock.incompat() - (IncompatFeatures::RECOVER | IncompatFeatures::META_BG),
        superblock.ro_compat() - (RoCompatFeatures::ORPHAN_PRESENT | RoCompatFeatures::LARGE_FILE),
    )
}
