//! Checksums that go on from another seed, without a look at what they sum.
//!
//! CRC-32C is linear: what two sums of the same bytes differ by depends on their seeds and on the number of the bytes. So a right checksum
//! becomes right under the other seed, and a wrong one stays wrong.
//!
//! Leaves out: descriptors and bitmaps, of which there are few; index blocks of directories, whose length the index says.

use crate::checksum::Checksums;
use crate::crcs::crc32c;
use crate::inode::{I_CHECKSUM_HI, I_CHECKSUM_LO, has_field};
use crate::{dirent, extent, field, orphan_file, xattr};

/// Bytes of an inode's number and generation, with which the seed of an inode and of its blocks goes on.
const INODE_SEED_BYTES: usize = 8;
/// Bytes of the number of a block, where that is summed too.
const PLACE_BYTES: usize = 8;

/// The way of the checksums of one disk from one seed to another.
#[derive(Clone, Copy, Debug)]
pub struct Reseed {
    seeds: u32,
    /// The differences for structures whose length the disk says.
    inode: u32,
    dir_block: u32,
    xattr_block: u32,
    orphan_block: u32,
}

impl Reseed {
    /// Between two seeds of a disk on which all metadata is summed under both; `None` for another disk.
    #[must_use]
    pub fn between(from: &Checksums, to: &Checksums, inode_size: u16, block_size: u32) -> Option<Self> {
        if !from.has_metadata_checksums() || !to.has_metadata_checksums() {
            return None;
        }
        let seeds = from.seed ^ to.seed;
        let block = block_size as usize;
        let orphans = 4 * orphan_file::entries_per_block(block_size);
        Some(Self {
            seeds,
            inode: difference(seeds, INODE_SEED_BYTES + usize::from(inode_size)),
            dir_block: difference(seeds, INODE_SEED_BYTES + block.saturating_sub(dirent::TAIL_BYTES)),
            xattr_block: difference(seeds, PLACE_BYTES + block),
            orphan_block: difference(seeds, INODE_SEED_BYTES + PLACE_BYTES + orphans),
        })
    }

    /// Changes the checksum in the bytes of an inode, all of them.
    pub fn inode(&self, bytes: &mut [u8]) {
        field::write(bytes, I_CHECKSUM_LO, field::read::<u16>(bytes, I_CHECKSUM_LO) ^ self.inode as u16);
        if has_field(bytes, I_CHECKSUM_HI, 2) {
            let high = field::read::<u16>(bytes, I_CHECKSUM_HI) ^ (self.inode >> 16) as u16;
            field::write(bytes, I_CHECKSUM_HI, high);
        }
    }

    /// Changes the checksum of a linear directory block or a leaf, if it has one.
    pub fn dir_block(&self, block: &mut [u8]) {
        if dirent::has_tail(block) {
            change(block, block.len() - 4, self.dir_block);
        }
    }

    /// Changes the checksum of an extent node in a block.
    pub fn extent_block(&self, block: &mut [u8]) {
        let at = extent::tail_offset(block);
        change(block, at, difference(self.seeds, INODE_SEED_BYTES + at));
    }

    /// Changes the checksum of an xattr block.
    pub fn xattr_block(&self, block: &mut [u8]) {
        change(block, xattr::CHECKSUM_OFFSET, self.xattr_block);
    }

    /// Changes the checksum of a block of the orphan file.
    pub fn orphan_block(&self, block: &mut [u8]) {
        if let Some(at) = block.len().checked_sub(4) {
            change(block, at, self.orphan_block);
        }
    }
}

/// Changes a checksum; nothing when the bytes end before it does.
fn change(bytes: &mut [u8], offset: usize, difference: u32) {
    field::write(bytes, offset, field::read::<u32>(bytes, offset) ^ difference);
}

/// What two sums of so many bytes differ by, given what their seeds do.
fn difference(seeds: u32, bytes: usize) -> u32 {
    const ZEROES: &[u8] = &[0; 4096];
    let (pieces, rest) = (bytes / ZEROES.len(), bytes % ZEROES.len());
    let sum = (0..pieces).fold(seeds, |sum, _| crc32c(sum, ZEROES));
    crc32c(sum, ZEROES.get(..rest).unwrap_or_default())
}
