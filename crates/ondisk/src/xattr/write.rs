//! Writing attributes: the list anew each time, values packed against the end.

use std::fmt;

use super::{
    BLOCK_HEADER_BYTES, BLOCKS_OFFSET, END_BYTES, ENTRY_HEADER_BYTES, HASH_OFFSET, IBODY_HEADER_BYTES, MAGIC,
    NAME_MAX, REFCOUNT_OFFSET, Xattr, XattrValue, hash_block, hash_entry,
};
use crate::field;

/// The attributes do not fit the space, or a name is longer than [`NAME_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room for the extended attributes")
    }
}

impl std::error::Error for NoRoom {}

/// Bytes an entry with a name of `name_len` bytes takes, its value apart.
#[must_use]
pub const fn entry_bytes(name_len: usize) -> usize {
    (ENTRY_HEADER_BYTES + name_len).next_multiple_of(4)
}

/// Bytes a value of `len` bytes takes.
#[must_use]
pub const fn value_bytes(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Bytes of an inode's region that these attributes take.
#[must_use]
pub fn ibody_bytes(xattrs: &[Xattr]) -> usize {
    IBODY_HEADER_BYTES + list_bytes(xattrs)
}

/// Bytes of a block that these attributes take.
#[must_use]
pub fn block_bytes(xattrs: &[Xattr]) -> usize {
    BLOCK_HEADER_BYTES + list_bytes(xattrs)
}

/// Fills an inode's region (its bytes from `128 + i_extra_isize` to its end) with these attributes, in this order; with
/// none, with zeros.
///
/// # Errors
/// [`NoRoom`], and no change.
pub fn write_ibody(region: &mut [u8], xattrs: &[Xattr]) -> Result<(), NoRoom> {
    if xattrs.is_empty() {
        region.fill(0);
        return Ok(());
    }
    check_room(region.len(), ibody_bytes(xattrs), xattrs)?;
    region.fill(0);
    field::write::<u32>(region, 0, MAGIC);
    let list = region.get_mut(IBODY_HEADER_BYTES..).unwrap_or_default();
    // In an inode the kernel keeps no hash, except where it covers a value in another inode.
    put_list(list, 0, xattrs.iter().map(|x| (x, kept_hash(x).unwrap_or(0))));
    Ok(())
}

/// Fills a block with these attributes, sorted, and their hashes. The checksum is left 0, for
/// [`crate::Checksums::update_xattr_block`].
///
/// # Errors
/// [`NoRoom`], and no change.
pub fn write_block(block: &mut [u8], xattrs: &[Xattr], refcount: u32) -> Result<(), NoRoom> {
    check_room(block.len(), block_bytes(xattrs), xattrs)?;
    let mut sorted: Vec<(&Xattr, u32)> = xattrs.iter().map(|x| (x, entry_hash(x))).collect();
    sorted.sort_by_key(|(xattr, _)| xattr.sort_key());
    block.fill(0);
    field::write::<u32>(block, 0, MAGIC);
    field::write::<u32>(block, REFCOUNT_OFFSET, refcount);
    field::write::<u32>(block, BLOCKS_OFFSET, 1);
    field::write::<u32>(block, HASH_OFFSET, hash_block(sorted.iter().map(|(_, hash)| *hash)));
    put_list(block, BLOCK_HEADER_BYTES, sorted.into_iter());
    Ok(())
}

fn list_bytes(xattrs: &[Xattr]) -> usize {
    let one = |x: &Xattr| entry_bytes(x.name.len()) + value_bytes(x.inline_value().map_or(0, <[u8]>::len));
    END_BYTES + xattrs.iter().map(one).sum::<usize>()
}

fn check_room(room: usize, needed: usize, xattrs: &[Xattr]) -> Result<(), NoRoom> {
    let names_fit = xattrs.iter().all(|x| x.name.len() <= NAME_MAX);
    // Values end at a multiple of 4.
    if needed <= room & !3 && names_fit { Ok(()) } else { Err(NoRoom) }
}

fn kept_hash(xattr: &Xattr) -> Option<u32> {
    match xattr.value {
        XattrValue::Inline(_) => None,
        XattrValue::Inode { hash, .. } => Some(hash),
    }
}

fn entry_hash(xattr: &Xattr) -> u32 {
    kept_hash(xattr)
        .unwrap_or_else(|| hash_entry(&xattr.name, xattr.inline_value().unwrap_or_default(), false))
}

/// Writes entries from `first` on and their values from the end of `bytes` down, which are zero and have room.
fn put_list<'x>(bytes: &mut [u8], first: usize, list: impl Iterator<Item = (&'x Xattr, u32)>) {
    let (mut at, mut values_at) = (first, bytes.len() & !3);
    for (xattr, hash) in list {
        let (value_offs, inum, size) = match &xattr.value {
            XattrValue::Inode { inum, size, .. } => (0, *inum, *size),
            XattrValue::Inline(value) if value.is_empty() => (0, 0, 0),
            XattrValue::Inline(value) => {
                values_at -= value_bytes(value.len());
                copy_to(bytes, values_at, value);
                (values_at as u16, 0, value.len() as u32)
            }
        };
        // The name's length is at most 255: `check_room`.
        copy_to(bytes, at, &[xattr.name.len() as u8, xattr.name_index]);
        field::write::<u16>(bytes, at + 2, value_offs);
        field::write::<u32>(bytes, at + 4, inum);
        field::write::<u32>(bytes, at + 8, size);
        field::write::<u32>(bytes, at + 12, hash);
        copy_to(bytes, at + ENTRY_HEADER_BYTES, &xattr.name);
        at += entry_bytes(xattr.name.len());
    }
}

fn copy_to(bytes: &mut [u8], at: usize, from: &[u8]) {
    if let Some(to) = bytes.get_mut(at..at + from.len()) {
        to.copy_from_slice(from);
    }
}
