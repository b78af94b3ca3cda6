//! Reading attributes, with every check the kernel makes and one more: values do not overlap.

use super::{
    BLOCK_HEADER_BYTES, ENTRY_HEADER_BYTES, HASH_OFFSET, IBODY_HEADER_BYTES, MAGIC,
    VALUE_BYTES_MAX, Xattr, XattrValue, check_block_header, entry_bytes, hash_block, hash_entry,
    value_bytes,
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
            let raw = List {
                bytes: list,
                first: 0,
                structure: Structure::InodeXattrs,
            }
            .entries()?;
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
    Ok(block_entries(block)?
        .iter()
        .map(RawEntry::to_xattr)
        .collect())
}

/// Whether the hashes in a block are right, with name bytes taken as unsigned or as signed. A hash of 0 is none and
/// right; an entry whose value is in an inode of its own cannot be checked here.
///
/// # Errors
/// As [`parse_block`].
pub fn verify_block_hashes(block: &[u8]) -> Result<bool> {
    let entries = block_entries(block)?;
    let entry_ok = |entry: &RawEntry<'_>| {
        entry.value_inum != 0
            || entry.hash == 0
            || [false, true]
                .iter()
                .any(|signed| entry.hash == hash_entry(entry.name, entry.value, *signed))
    };
    let whole = hash_block(entries.iter().map(|e| e.hash));
    let stored = field::get::<u32>(block, HASH_OFFSET).unwrap_or(0);
    Ok(entries.iter().all(entry_ok) && (stored == 0 || stored == whole))
}

fn block_entries(block: &[u8]) -> Result<Vec<RawEntry<'_>>> {
    check_block_header(block)?;
    List {
        bytes: block,
        first: BLOCK_HEADER_BYTES,
        structure: Structure::XattrBlock,
    }
    .entries()
}

/// An entry with its value, both still in place.
struct RawEntry<'a> {
    name_index: u8,
    name: &'a [u8],
    value: &'a [u8],
    value_inum: u32,
    value_size: u32,
    hash: u32,
}

impl RawEntry<'_> {
    fn to_xattr(&self) -> Xattr {
        let value = match self.value_inum {
            0 => XattrValue::Inline(self.value.to_vec()),
            inum => XattrValue::Inode {
                inum,
                size: self.value_size,
                hash: self.hash,
            },
        };
        Xattr {
            name_index: self.name_index,
            name: self.name.to_vec(),
            value,
        }
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
        let mut ranges = Vec::new();
        let mut at = self.first;
        loop {
            match field::get::<u32>(self.bytes, at) {
                None => return Err(self.corrupt("entries run past the end")),
                Some(0) => break,
                Some(_) => {}
            }
            let (entry, range, next) = self.entry(at)?;
            ranges.extend(range);
            entries.push(entry);
            at = next;
        }
        // Values begin behind the zero bytes that end the entries.
        let mut free_from = at + super::END_BYTES;
        ranges.sort_unstable();
        for (start, end) in ranges {
            if start < free_from {
                return Err(self.corrupt("a value overlaps another or the entries"));
            }
            free_from = end;
        }
        Ok(entries)
    }

    /// The entry at `at`, the range its value takes (rounded), and the place of the next entry.
    fn entry(&self, at: usize) -> Result<(RawEntry<'a>, Option<(usize, usize)>, usize)> {
        let header = self
            .bytes
            .get(at..)
            .and_then(|b| b.first_chunk::<ENTRY_HEADER_BYTES>());
        let Some(
            &[
                name_len,
                name_index,
                o0,
                o1,
                i0,
                i1,
                i2,
                i3,
                s0,
                s1,
                s2,
                s3,
                h0,
                h1,
                h2,
                h3,
            ],
        ) = header
        else {
            return Err(self.corrupt("entries run past the end"));
        };
        let value_offs = usize::from(u16::from_le_bytes([o0, o1]));
        let value_inum = u32::from_le_bytes([i0, i1, i2, i3]);
        let value_size = u32::from_le_bytes([s0, s1, s2, s3]);
        let hash = u32::from_le_bytes([h0, h1, h2, h3]);
        let next = at + entry_bytes(usize::from(name_len));
        let name_at = at + ENTRY_HEADER_BYTES;
        let name = self.bytes.get(name_at..name_at + usize::from(name_len));
        let Some(name) = name.filter(|_| next < self.bytes.len()) else {
            return Err(self.corrupt("entries run past the end"));
        };
        if name.contains(&0) {
            return Err(self.corrupt("a name contains NUL"));
        }
        if value_size > VALUE_BYTES_MAX {
            return Err(self.corrupt("a value is too long"));
        }
        let mut entry = RawEntry {
            name_index,
            name,
            value: &[],
            value_inum,
            value_size,
            hash,
        };
        if value_inum != 0 || value_size == 0 {
            return Ok((entry, None, next));
        }
        let bytes = value_size as usize;
        let rounded_end = value_offs + value_bytes(bytes);
        match self.bytes.get(value_offs..value_offs + bytes) {
            Some(value) if rounded_end <= self.bytes.len() => entry.value = value,
            _ => return Err(self.corrupt("a value runs past the end")),
        }
        Ok((entry, Some((value_offs, rounded_end)), next))
    }

    fn corrupt(&self, reason: &'static str) -> Error {
        Error::corrupt(self.structure, reason)
    }
}
