//! Extended attributes as ext4 keeps them: behind the fixed fields of an inode, and in a block of their own.
//!
//! Leaves out: the choice of the place of an attribute; sharing of blocks; the content of values in inodes of their own
//! (`ea_inode`), of which entries keep the reference.
//!
//! Both forms are a list of entries that grows upwards, ended by four zero bytes, and values that grow downwards from the
//! end, each rounded up to 4 bytes. In a block the entries are sorted and have hashes; in an inode they are in any order
//! and have no hash.
//!
//! Invariant: what [`parse_ibody`] and [`parse_block`] return can be written back by [`write_ibody`] and
//! [`write_block`] into the same space.
//!
//! Source: kernel `fs/ext4/xattr.c` (`check_xattrs`, `ext4_xattr_set_entry`, `ext4_xattr_hash_entry`,
//! `ext4_xattr_rehash`, `ext4_xattr_block_csum`). Tests: `tests/dirs_and_xattrs/xattr.rs`, `xattr_image.rs`.

mod name;
mod parse;
mod value_inode;
mod write;

pub use name::{full_name, index, split_name};
pub use parse::{has_all_entry_hashes, parse_block, parse_ibody, verify_block_hashes, verify_ibody_hashes};
pub use write::{NoRoom, block_bytes, entry_bytes, ibody_bytes, value_bytes, write_block, write_ibody};

use crate::checksum::Checksums;
use crate::crcs::crc32c;
use crate::error::{Error, Result, Structure};
use crate::field;
use crate::types::FsBlock;

/// `EXT4_XATTR_MAGIC`: begins both forms.
const MAGIC: u32 = 0xEA02_0000;
/// Bytes of `ext4_xattr_ibody_header`.
const IBODY_HEADER_BYTES: usize = 4;
/// Bytes of `ext4_xattr_header`.
const BLOCK_HEADER_BYTES: usize = 32;
/// Bytes of `ext4_xattr_entry` before the name.
const ENTRY_HEADER_BYTES: usize = 16;
/// Zero bytes that end the entries.
const END_BYTES: usize = 4;
/// The offsets of `h_refcount`, `h_blocks`, `h_hash` and `h_checksum` in a block.
const REFCOUNT_OFFSET: usize = 4;
const BLOCKS_OFFSET: usize = 8;
const HASH_OFFSET: usize = 12;
pub(crate) const CHECKSUM_OFFSET: usize = 16;
/// The longest name behind its prefix, in bytes.
pub const NAME_MAX: usize = 255;
/// `EXT4_XATTR_SIZE_MAX`: the longest value, in bytes.
pub const VALUE_BYTES_MAX: u32 = 1 << 24;

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Which prefix the name has: see [`index`].
    pub name_index: u8,
    /// The name behind the prefix.
    pub name: Vec<u8>,
    /// The value.
    pub value: XattrValue,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum XattrValue {
    /// The value is in the same inode or block as the entry.
    Inline(Vec<u8>),
    /// The value is in an inode of its own (`ea_inode`), which the entry refers to.
    Inode {
        /// `e_value_inum`: the inode.
        inum: u32,
        /// `e_value_size`, in bytes.
        size: u32,
        /// `e_hash`: covers the value, so it cannot be found anew from the entry.
        hash: u32,
    },
}

impl Xattr {
    /// An attribute with its value beside the entry.
    #[must_use]
    pub fn new(name_index: u8, name: &[u8], value: &[u8]) -> Self {
        Self { name_index, name: name.to_vec(), value: XattrValue::Inline(value.to_vec()) }
    }

    /// The value, unless it is in an inode of its own.
    #[must_use]
    pub fn inline_value(&self) -> Option<&[u8]> {
        match &self.value {
            XattrValue::Inline(value) => Some(value),
            XattrValue::Inode { .. } => None,
        }
    }

    /// The sort key of a block's entries.
    fn sort_key(&self) -> (u8, usize, &[u8]) {
        (self.name_index, self.name.len(), &self.name)
    }
}

/// `h_refcount`: the inodes that share the block.
///
/// # Errors
/// `Corrupt` when the block is no xattr block.
pub fn refcount(block: &[u8]) -> Result<u32> {
    check_block_header(block)?;
    Ok(field::get::<u32>(block, REFCOUNT_OFFSET).unwrap_or(0))
}

/// Sets `h_refcount`; the checksum is left for [`Checksums::update_xattr_block`].
///
/// # Errors
/// `Corrupt`, and no change, when the block is no xattr block.
pub fn set_refcount(block: &mut [u8], refcount: u32) -> Result<()> {
    check_block_header(block)?;
    field::write::<u32>(block, REFCOUNT_OFFSET, refcount);
    Ok(())
}

impl Checksums {
    /// The checksum of the xattr block `number`.
    #[must_use]
    pub fn xattr_block(&self, number: FsBlock, block: &[u8]) -> u32 {
        let before = block.get(..CHECKSUM_OFFSET).unwrap_or_default();
        let after = block.get(CHECKSUM_OFFSET + 4..).unwrap_or_default();
        let sum = crc32c(crc32c(self.seed, &number.0.to_le_bytes()), before);
        crc32c(crc32c(sum, &[0; 4]), after)
    }

    /// Whether the checksum of an xattr block is right.
    #[must_use]
    pub fn verify_xattr_block(&self, number: FsBlock, block: &[u8]) -> bool {
        !self.has_metadata_checksums()
            || field::get(block, CHECKSUM_OFFSET) == Some(self.xattr_block(number, block))
    }

    /// Writes the checksum of an xattr block, if the disk has checksums.
    pub fn update_xattr_block(&self, number: FsBlock, block: &mut [u8]) {
        if self.has_metadata_checksums() {
            let sum = self.xattr_block(number, block);
            field::write(block, CHECKSUM_OFFSET, sum);
        }
    }
}

fn check_block_header(block: &[u8]) -> Result<()> {
    if block.len() < BLOCK_HEADER_BYTES || field::get::<u32>(block, 0) != Some(MAGIC) {
        return Err(Error::corrupt(Structure::XattrBlock, "magic number is wrong"));
    }
    if field::get::<u32>(block, BLOCKS_OFFSET) != Some(1) {
        return Err(Error::corrupt(Structure::XattrBlock, "h_blocks is not 1"));
    }
    Ok(())
}

/// `ext4_xattr_hash_entry`: the hash of a name and the words of its value; `signed` takes name bytes as signed, as
/// disks written by some machines have it.
fn hash_entry(name: &[u8], value: &[u8], signed: bool) -> u32 {
    let widen = |byte: u8| {
        if signed { i32::from(byte as i8) as u32 } else { u32::from(byte) }
    };
    let hash = name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(5) ^ widen(byte));
    value.chunks(4).fold(hash, |hash, chunk| {
        let mut word = [0; 4];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// `ext4_xattr_rehash`: the hash of a block from those of its entries; 0 when one of them has none.
fn hash_block(mut entry_hashes: impl Iterator<Item = u32>) -> u32 {
    entry_hashes
        .try_fold(0_u32, |hash, entry| (entry != 0).then_some(hash.rotate_left(16) ^ entry))
        .unwrap_or(0)
}
