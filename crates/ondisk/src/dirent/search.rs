//! Looking for a name in a block.
//!
//! A block holds some hundred entries, and each look-up and each new name walks over them: the walk decodes only the
//! head of an entry, and compares the last word of two names before it compares them whole. Of a block that was walked over before, most
//! names are known to be missing by its words alone, many of which a CPU compares at once.

use super::{DirEntry, HEADER_BYTES, Head, NAME_MAX, entry_at, entry_bytes, flaw};
use crate::error::Result;

/// The result of [`search`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search<'a> {
    /// The live entry of that name.
    Found {
        /// Itself.
        entry: DirEntry<'a>,
        /// The offset of the entry before it; 0 if it is the first.
        before: usize,
    },
    /// It is not there, and there is room for it in the entry that begins at this offset: the first such.
    Room(usize),
    /// It is not there, and there is no room for it.
    Full,
}

/// The live entry of that name.
///
/// # Errors
/// `Corrupt` when a broken entry precedes it.
pub fn find<'a>(block: &'a [u8], usable: usize, name: &[u8]) -> Result<Option<DirEntry<'a>>> {
    walk(block, usable, name, |_, _| ())
}

/// Looks for a name and for where it could go in one walk over the block.
///
/// `known` is the offset of an entry if a walk has found all of them whole since the block was read; they may have been changed by this
/// module's functions since. If it has room for the name, it may be what is found, though it is not the first.
///
/// # Errors
/// `Corrupt` when an entry is broken that is not behind the name.
pub fn search<'a>(block: &'a [u8], usable: usize, name: &[u8], known: Option<usize>) -> Result<Search<'a>> {
    let needed = if (1..=NAME_MAX).contains(&name.len()) { entry_bytes(name.len()) } else { usize::MAX };
    let end = usable.min(block.len());
    if let Some((offset, head)) = known.and_then(|offset| Some((offset, Head::at(block, end, offset)?))) {
        let slack = offset + head.used_bytes()..offset + head.rec_len;
        let (before, behind) = (&block[..slack.start], &block[slack.end..end]);
        if slack.len() >= needed && !may_have(before, name) && !may_have(behind, name) {
            return Ok(Search::Room(offset));
        }
    }
    let (mut room, mut before) = (None, 0);
    let found = walk(block, usable, name, |offset, head| {
        before = offset;
        if head.rec_len - head.used_bytes() >= needed {
            room.get_or_insert(offset);
        }
    })?;
    Ok(match (found, room) {
        (Some(entry), _) => Search::Found { entry, before },
        (None, Some(offset)) => Search::Room(offset),
        (None, None) => Search::Full,
    })
}

/// Walks to the live entry of that name; `pass` gets the heads of the entries before it.
#[inline]
fn walk<'a>(
    block: &'a [u8],
    usable: usize,
    name: &[u8],
    mut pass: impl FnMut(usize, Head),
) -> Result<Option<DirEntry<'a>>> {
    let end = usable.min(block.len());
    let wanted = Ending::of(name);
    let mut offset = 0;
    while offset < end {
        let Some(head) = Head::at(block, end, offset) else {
            return Err(flaw(block, usable, offset));
        };
        if wanted.may_be(block, offset, head) {
            let entry = entry_at(block, usable, offset)?;
            if entry.is_live() && entry.name == name {
                return Ok(Some(entry));
            }
        }
        pass(offset, head);
        offset += head.rec_len;
    }
    Ok(None)
}

/// Whether an entry of that name may be among whole ones: whether the end of one is, with the length where that lies before it. Names begin at
/// multiples of four bytes, so that words are compared, and without an end in between: many at once.
fn may_have(entries: &[u8], name: &[u8]) -> bool {
    // The second word of an entry, with the name's length in it, and those of the name: which bits, and what they are.
    let count = 1 + name.len().div_ceil(4);
    let word = |index: usize| match index.checked_sub(1) {
        None => (0xFF << 16, (name.len() as u32) << 16),
        Some(at) => {
            let own = &name[4 * at..name.len().min(4 * at + 4)];
            let mut bytes = [0; 4];
            bytes[..own.len()].copy_from_slice(own);
            (u32::MAX >> (8 * (4 - own.len())), u32::from_le_bytes(bytes))
        }
    };
    // The last three of them, the first of which may be any.
    let last = [0, 1, 2].map(|index| (count + index).checked_sub(3).map_or((0, 0), word));
    let words = entries.as_chunks::<4>().0;
    let (Some(second), Some(third)) = (words.get(1..), words.get(2..)) else { return false };
    let mut found = false;
    for ((a, b), c) in words.iter().zip(second).zip(third) {
        let differs = |word: &[u8; 4], (mask, own): (u32, u32)| u32::from_le_bytes(*word) & mask ^ own;
        found |= differs(a, last[0]) | differs(b, last[1]) | differs(c, last[2]) == 0;
    }
    found
}

/// The length of a name and its last bytes, where names of one directory differ most.
struct Ending {
    name_len: usize,
    /// Up to four, the last one highest.
    word: u32,
    /// The bits of `word` that are the name's.
    mask: u32,
}

impl Ending {
    fn of(name: &[u8]) -> Self {
        let last = &name[name.len().saturating_sub(4)..];
        let mut bytes = [0; 4];
        bytes[4 - last.len()..].copy_from_slice(last);
        let mask = u32::MAX.checked_shl(8 * (4 - last.len() as u32)).unwrap_or(0);
        Self { name_len: name.len(), word: u32::from_le_bytes(bytes), mask }
    }

    /// Whether the entry at `offset` has a name of that length and that ending.
    #[inline]
    fn may_be(&self, block: &[u8], offset: usize, head: Head) -> bool {
        // The four bytes up to the end of the name, the head's last ones among them if it is shorter. They lie in the
        // block if the entry's name has the length; else they may be another entry's, or none.
        let at = offset + HEADER_BYTES + self.name_len - 4;
        let word =
            block.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word));
        (head.name_len == self.name_len) & (word & self.mask == self.word)
    }
}
