//! Blocks of the orphan file: inode numbers of files to truncate or delete at the next mount, 0 where free.
//!
//! Functions over a block's bytes, because such blocks are changed in place.
//!
//! Source: kernel `struct ext4_orphan_block_tail`, `ext4_orphan_file_block_csum`.

use crate::checksum::Checksums;
use crate::crcs::crc32c;
use crate::field;
use crate::types::{FsBlock, InodeNumber};

/// The value of `ob_magic`.
pub const MAGIC: u32 = 0x0B10_CA04;
/// Magic number and checksum.
const TAIL_SIZE: usize = 8;

/// The numbers that one block holds.
#[must_use]
pub const fn entries_per_block(block_size: u32) -> usize {
    (block_size as usize).saturating_sub(TAIL_SIZE) / 4
}

/// Whether the magic number and the checksum of a block are right, given the orphan file's number and generation
/// and the block's place.
#[must_use]
pub fn verify(
    checksums: &Checksums,
    ino: InodeNumber,
    generation: u32,
    place: FsBlock,
    block: &[u8],
) -> bool {
    let Some(tail) = tail_offset(block) else {
        return false;
    };
    let sum = || sum(checksums.inode_seed(ino, generation), place, block);
    field::read::<u32>(block, tail) == MAGIC
        && (!checksums.has_metadata_checksums() || field::read::<u32>(block, tail + 4) == sum())
}

/// Sets the checksum of a block, if the disk has checksums.
pub fn update(checksums: &Checksums, ino: InodeNumber, generation: u32, place: FsBlock, block: &mut [u8]) {
    if let Some(tail) = tail_offset(block)
        && checksums.has_metadata_checksums()
    {
        let sum = sum(checksums.inode_seed(ino, generation), place, block);
        field::write(block, tail + 4, sum);
    }
}

/// Makes a block of zeros an empty block of the orphan file, but for its checksum.
pub fn initialise(block: &mut [u8]) {
    block.fill(0);
    if let Some(tail) = tail_offset(block) {
        field::write(block, tail, MAGIC);
    }
}

/// The inode at a place of a block; 0 where it is free or outside of the block.
#[must_use]
pub fn entry(block: &[u8], index: usize) -> InodeNumber {
    InodeNumber(field::read(entries(block), index.saturating_mul(4)))
}

/// Sets [`entry`]; nothing outside of the block.
pub fn set_entry(block: &mut [u8], index: usize, ino: InodeNumber) {
    let end = entries(block).len();
    field::write(block.get_mut(..end).unwrap_or_default(), index.saturating_mul(4), ino.0);
}

fn entries(block: &[u8]) -> &[u8] {
    &block[..tail_offset(block).map_or(0, |tail| tail / 4 * 4)]
}

fn tail_offset(block: &[u8]) -> Option<usize> {
    block.len().checked_sub(TAIL_SIZE)
}

fn sum(seed: u32, place: FsBlock, block: &[u8]) -> u32 {
    crc32c(crc32c(seed, &place.0.to_le_bytes()), entries(block))
}
