//! Reading attributes, with every check the kernel makes and two more: values do not overlap, and empty values have a
//! valid offset too.

use super::{
    BLOCK_HEADER_BYTES, END_BYTES, ENTRY_HEADER_BYTES, HASH_OFFSET, IBODY_HEADER_BYTES, MAGIC,
    VALUE_BYTES_MAX, Xattr, XattrValue, check_block_header, entry_bytes, hash_block, hash_entry, value_bytes,
};
use crate::error::{Error, Result, Structure};
use crate::field;

/// The attributes behind the fixed fields of an inode; none when the region has no magic number.
///
/// `region` is the inode's bytes from `128 + i_extra_isize` to its end.
///
/// # Errors
/// `Corrupt` when entries or values do not fit or overlap.
pub fn parse_ibody(region: &[u8]) -> Result<Vec<Xattr>> {
    match region.get(IBODY_HEADER_BYTES..) {
        Some(list) if field::get::<u32>(region, 0) == Some(MAGIC) => {
            let raw = List { bytes: list, first: 0, structure: Structure::InodeXattrs }.entries()?;
            Ok(raw.iter().map(RawEntry::to_xattr).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// The attributes of a block, in its order. Hashes and checksum are not looked at.
///
/// # Errors
/// `Corrupt` when the header is wrong, or entries or values do not fit or overlap.
pub fn parse_block(block: &[u8]) -> Result<Vec<Xattr>> {
    Ok(block_entries(block)?.iter().map(RawEntry::to_xattr).collect())
}

/// Whether the hashes in a block are right, with name bytes taken as unsigned or as signed. A hash of 0 is none and
/// right; an entry whose value is in an inode of its own cannot be checked here.
///
/// # Errors
/// As [`parse_block`].
pub fn verify_block_hashes(block: &[u8]) -> Result<bool> {
    let entries = block_entries(block)?;
    let whole = hash_block(entries.iter().map(|e| e.hash));
    let stored = field::get::<u32>(block, HASH_OFFSET).unwrap_or(0);
    Ok(entries.iter().all(RawEntry::has_right_hash_or_none) && (stored == 0 || stored == whole))
}

/// Whether every entry of a block has its hash, as `e2fsck` wants it; a hash of 0 is right only for what sums to 0.
///
/// # Errors
/// As [`parse_block`].
pub fn has_all_entry_hashes(block: &[u8]) -> Result<bool> {
    Ok(block_entries(block)?.iter().all(|entry| entry.value_inum != 0 || entry.has_right_hash()))
}

/// Whether the hashes behind the fixed fields of an inode are right; a hash of 0 is none and right.
///
/// # Errors
/// As [`parse_ibody`].
pub fn verify_ibody_hashes(region: &[u8]) -> Result<bool> {
    match region.get(IBODY_HEADER_BYTES..) {
        Some(list) if field::get::<u32>(region, 0) == Some(MAGIC) => {
            let raw = List { bytes: list, first: 0, structure: Structure::InodeXattrs }.entries()?;
            Ok(raw.iter().all(RawEntry::has_right_hash_or_none))
        }
        _ => Ok(true),
    }
}

fn block_entries(block: &[u8]) -> Result<Vec<RawEntry<'_>>> {
    check_block_header(block)?;
    List { bytes: block, first: BLOCK_HEADER_BYTES, structure: Structure::XattrBlock }.entries()
}

/// An entry with its value, both still in place.
struct RawEntry<'a> {
    name_index: u8,
    name: &'a [u8],
    value_offs: usize,
    value: &'a [u8],
    value_inum: u32,
    value_size: u32,
    hash: u32,
}

impl RawEntry<'_> {
    fn has_right_hash(&self) -> bool {
        [false, true].iter().any(|signed| self.hash == hash_entry(self.name, self.value, *signed))
    }

    fn has_right_hash_or_none(&self) -> bool {
        self.value_inum != 0 || self.hash == 0 || self.has_right_hash()
    }

    fn to_xattr(&self) -> Xattr {
        let value = match self.value_inum {
            0 => XattrValue::Inline(self.value.to_vec()),
            inum => XattrValue::Inode { inum, size: self.value_size, hash: self.hash },
        };
        Xattr { name_index: self.name_index, name: self.name.to_vec(), value }
    }
}

/// A list of entries: from `first` on in `bytes`, from whose start values are counted.
struct List<'a> {
    bytes: &'a [u8],
    first: usize,
    structure: Structure,
}

impl<'a> List<'a> {
    fn entries(&self) -> Result<Vec<RawEntry<'a>>> {
        let mut entries = Vec::new();
        let mut at = self.first;
        while self.word(at)? != 0 {
            let entry = self.entry(at)?;
            at += entry_bytes(entry.name.len());
            entries.push(entry);
        }
        // Values begin behind the zero bytes that end the entries.
        let mut free_from = at + END_BYTES;
        let mut values: Vec<(usize, usize)> =
            entries.iter().filter(|e| !e.value.is_empty()).map(|e| (e.value_offs, e.value.len())).collect();
        values.sort_unstable();
        for (start, bytes) in values {
            if start < free_from {
                return Err(self.corrupt("a value overlaps another or the entries"));
            }
            free_from = start + value_bytes(bytes);
        }
        Ok(entries)
    }

    /// The entry at `at`, whose name and value lie inside.
    fn entry(&self, at: usize) -> Result<RawEntry<'a>> {
        let Some(header) = self.bytes.get(at..at + ENTRY_HEADER_BYTES) else {
            return Err(self.corrupt("entries run past the end"));
        };
        let name_at = at + ENTRY_HEADER_BYTES;
        let name_len = usize::from(field::read::<u8>(header, 0));
        let Some(name) = self.bytes.get(name_at..name_at + name_len) else {
            return Err(self.corrupt("entries run past the end"));
        };
        if name.contains(&0) {
            return Err(self.corrupt("a name contains NUL"));
        }
        let mut entry = RawEntry {
            name_index: field::read(header, 1),
            name,
            value_offs: usize::from(field::read::<u16>(header, 2)),
            value: &[],
            value_inum: field::read(header, 4),
            value_size: field::read(header, 8),
            hash: field::read(header, 12),
        };
        if entry.value_size > VALUE_BYTES_MAX {
            return Err(self.corrupt("a value is too long"));
        }
        if entry.value_inum == 0 && entry.value_offs > self.bytes.len() {
            return Err(self.corrupt("a value runs past the end"));
        }
        if entry.value_inum == 0 && entry.value_size != 0 {
            let (start, bytes) = (entry.value_offs, entry.value_size as usize);
            // The rounded value must fit too, so that it can be written back.
            match self.bytes.get(start..start + value_bytes(bytes)).and_then(|rounded| rounded.get(..bytes)) {
                Some(value) => entry.value = value,
                None => return Err(self.corrupt("a value runs past the end")),
            }
        }
        Ok(entry)
    }

    /// The word at `at`: 0 where the entries end.
    fn word(&self, at: usize) -> Result<u32> {
        field::get(self.bytes, at).ok_or_else(|| self.corrupt("entries run past the end"))
    }

    fn corrupt(&self, reason: &'static str) -> Error {
        Error::corrupt(self.structure, reason)
    }
}
