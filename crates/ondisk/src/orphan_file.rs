//! Blocks of the orphan file: inode numbers of files to truncate or delete at the next mount, 0 where free.
//!
//! Functions over a block's bytes, as such blocks are changed in place.
//!
//! Source: kernel `struct ext4_orphan_block_tail`, `ext4_orphan_file_block_csum`.

use crate::checksum::{Checksums, crc32c};
use crate::error::{Error, Result, Structure};
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

/// Checks a block's magic number and checksum. `seed` is [`Checksums::inode_seed`] of the orphan file.
///
/// # Errors
///
/// [`Error::Corrupt`] when one of them is wrong.
pub fn check(block: &[u8], checksums: &Checksums, seed: u32, place: FsBlock) -> Result<()> {
    let tail = tail_offset(block).ok_or(corrupt("too short"))?;
    if field::read::<u32>(block, tail) != MAGIC {
        return Err(corrupt("wrong magic number"));
    }
    if checksums.is_crc32c() && field::read::<u32>(block, tail + 4) != sum(block, seed, place) {
        return Err(corrupt("wrong checksum"));
    }
    Ok(())
}

/// Makes a block of zeros an empty block of the orphan file, but for its checksum.
pub fn initialise(block: &mut [u8]) {
    block.fill(0);
    if let Some(tail) = tail_offset(block) {
        field::write(block, tail, MAGIC);
    }
}

/// Sets a block's checksum, if the disk has checksums. `seed` as in [`check`].
pub fn update_checksum(block: &mut [u8], checksums: &Checksums, seed: u32, place: FsBlock) {
    if let Some(tail) = tail_offset(block)
        && checksums.is_crc32c()
    {
        field::write(block, tail + 4, sum(block, seed, place));
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

fn sum(block: &[u8], seed: u32, place: FsBlock) -> u32 {
    crc32c(crc32c(seed, &place.0.to_le_bytes()), entries(block))
}

fn corrupt(reason: &'static str) -> Error {
    Error::corrupt(Structure::OrphanFile, reason)
}
