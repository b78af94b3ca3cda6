//! One linear directory block: entries end to end, and the checksum tail behind them.
//!
//! For: finding ([`find`], [`search`]), adding and removing names in one block. Leaves out: which block (that is [`crate::htree`]) and
//! what a name may contain (names are bytes; `/` and NUL are the engine's to refuse).
//!
//! Invariants: entries cover `usable` bytes exactly; every `rec_len` is a multiple of 4 that holds its name; a block
//! that breaks this is an error at the first broken entry and is never written to.
//!
//! `usable` is the whole block, or the block less [`TAIL_BYTES`] if metadata has checksums: see [`usable_bytes`]. Without the
//! `filetype` feature the type byte is the high half of a 16-bit name length; as names end at 255 bytes it is 0 on such a disk, and
//! callers write [`crate::FileType::Unknown`]'s.
//!
//! Source: kernel `fs/ext4/dir.c` (`__ext4_check_dir_entry`), `namei.c` (`ext4_find_dest_de`,
//! `ext4_generic_delete_entry`, `ext4_dirblock_csum_verify`). Tests: `tests/dirs_and_xattrs/dirent_model.rs`, `dir_image.rs`.

mod search;

pub use search::{Search, find, search};

use crate::checksum::Checksums;
use crate::crcs::crc32c;
use crate::dir_hash::NameHash;
use crate::error::{Error, Result, Structure};
use crate::field;
use crate::types::InodeNumber;

/// Bytes of the tail that holds a summed block's checksum.
pub const TAIL_BYTES: usize = 12;
/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;

/// Type byte of the checksum tail.
const FT_DIR_CSUM: u8 = 0xDE;

/// Bytes of an entry before its name.
pub const HEADER_BYTES: usize = 8;
/// The shortest entry: a header and a one-byte name, rounded.
const MIN_REC_LEN: usize = 12;

/// One entry of a block; unused when [`DirEntry::inode`] is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Where the entry starts in the block, in bytes.
    pub offset: usize,
    /// The inode named, or 0 when the entry is free.
    pub inode: InodeNumber,
    /// Bytes to the next entry.
    pub rec_len: usize,
    /// The name; stale when the entry is free.
    pub name: &'a [u8],
    /// The raw type byte: see [`crate::FileType::from_dirent`].
    pub file_type: u8,
}

impl DirEntry<'_> {
    /// Whether the entry names an inode.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.inode.0 != 0
    }

    /// Bytes of `rec_len` that the entry itself needs; the rest is slack.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        if self.is_live() { entry_bytes(self.name.len()) } else { 0 }
    }
}

/// Bytes an entry with a name of `name_len` bytes takes.
#[must_use]
pub const fn entry_bytes(name_len: usize) -> usize {
    (HEADER_BYTES + name_len).next_multiple_of(4)
}

/// Bytes of a block of `block_bytes` that hold entries.
#[must_use]
pub const fn usable_bytes(block_bytes: usize, has_csum: bool) -> usize {
    if has_csum { block_bytes.saturating_sub(TAIL_BYTES) } else { block_bytes }
}

/// The validated entries of a block, free ones included. Ends after the first error.
pub fn entries(block: &[u8], usable: usize) -> Entries<'_> {
    Entries { block, usable: usable.min(block.len()), offset: 0 }
}

/// Iterator of [`entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    block: &'a [u8],
    usable: usize,
    offset: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<DirEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.usable {
            return None;
        }
        let entry = entry_at(self.block, self.usable, self.offset);
        // An error ends the walk: where the next entry starts is unknown.
        self.offset = entry.as_ref().map_or(self.usable, |e| e.offset + e.rec_len);
        Some(entry)
    }
}

/// The entries that name an inode.
pub fn live_entries(block: &[u8], usable: usize) -> impl Iterator<Item = Result<DirEntry<'_>>> {
    entries(block, usable).filter(|e| e.as_ref().map_or(true, DirEntry::is_live))
}

/// The hash behind the name, of an entry in a directory that is encrypted and folds case; nothing if there is no room for it.
#[must_use]
pub fn stored_hash(block: &[u8], entry: &DirEntry<'_>) -> NameHash {
    let at = entry_bytes(entry.name.len());
    let words = block.get(entry.offset..).and_then(|rest| rest.get(..entry.rec_len)?.get(at..at + 8));
    let word = |at: usize| {
        words.and_then(|words| words[at..].first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
    };
    NameHash { hash: word(0), minor: word(4) }
}

/// The entry that begins at `offset`, checked as [`entries`] checks it. The caller knows that one begins there.
///
/// # Errors
/// `Corrupt` when the bytes are no entry that fits the block.
#[inline]
pub fn entry_at(block: &[u8], usable: usize, offset: usize) -> Result<DirEntry<'_>> {
    let head = Head::at(block, usable.min(block.len()), offset).ok_or_else(|| flaw(block, usable, offset))?;
    let name_start = offset + HEADER_BYTES;
    let name = block.get(name_start..name_start + head.name_len).unwrap_or_default();
    let Head { inode, rec_len, file_type, .. } = head;
    Ok(DirEntry { offset, inode: InodeNumber(inode), rec_len, name, file_type })
}

/// The fields before an entry's name.
#[derive(Clone, Copy)]
struct Head {
    inode: u32,
    rec_len: usize,
    name_len: usize,
    file_type: u8,
}

impl Head {
    /// The head of an entry that fits the block.
    #[inline]
    fn at(block: &[u8], usable: usize, offset: usize) -> Option<Self> {
        let room = usable.checked_sub(offset)?;
        let [i0, i1, i2, i3, r0, r1, name_len, file_type] = *block.get(offset..)?.first_chunk()?;
        let inode = u32::from_le_bytes([i0, i1, i2, i3]);
        let rec_len = decode_rec_len(u16::from_le_bytes([r0, r1]), block.len());
        let name_len = usize::from(name_len);
        // As one condition, for a walk over a block comes to this some hundred times.
        let fits = (rec_len >= MIN_REC_LEN)
            & rec_len.is_multiple_of(4)
            & (rec_len >= entry_bytes(name_len))
            & ((rec_len == room) | (rec_len + MIN_REC_LEN <= room))
            & ((inode == 0) | (name_len != 0));
        fits.then_some(Self { inode, rec_len, name_len, file_type })
    }

    /// Bytes of `rec_len` that the entry itself needs.
    #[inline]
    const fn used_bytes(self) -> usize {
        if self.inode == 0 { 0 } else { entry_bytes(self.name_len) }
    }
}

/// Why there is no entry at `offset`.
#[cold]
fn flaw(block: &[u8], usable: usize, offset: usize) -> Error {
    let usable = usable.min(block.len());
    let room = usable.saturating_sub(offset);
    let header = block.get(offset..usable).filter(|rest| rest.len() >= MIN_REC_LEN);
    let [_, _, _, _, r0, r1, name_len, ..] = *header.unwrap_or_default() else {
        return corrupt("entry starts too close to the end of the block");
    };
    let rec_len = decode_rec_len(u16::from_le_bytes([r0, r1]), block.len());
    corrupt(if rec_len < MIN_REC_LEN {
        "rec_len is smaller than the smallest entry"
    } else if !rec_len.is_multiple_of(4) {
        "rec_len is not a multiple of 4"
    } else if rec_len < entry_bytes(usize::from(name_len)) {
        "rec_len is too small for the name"
    } else if rec_len > room {
        "entry runs past the end of the block"
    } else if rec_len != room && room - rec_len < MIN_REC_LEN {
        "entry ends too close to the end of the block"
    } else {
        "entry has an inode and no name"
    })
}

/// Adds an entry in the room that [`search`] found at `offset`, and gives its own offset; `None`, and no change, when there is no room.
///
/// # Errors
/// `Corrupt`, and no change, when no entry begins at `offset`.
pub fn insert_at(
    block: &mut [u8],
    usable: usize,
    offset: usize,
    entry: &NewEntry<'_>,
) -> Result<Option<usize>> {
    let Some(slot) = Slot::of(&entry_at(block, usable, offset)?, entry.name.len()) else {
        return Ok(None);
    };
    slot.fill(block, entry);
    Ok(Some(slot.offset + slot.used))
}

/// Adds an entry in the first room there is; `false`, and no change, when there is none. Does not look for the name.
///
/// # Errors
/// `Corrupt`, and no change, when a broken entry precedes the room.
pub fn insert(
    block: &mut [u8],
    usable: usize,
    inode: InodeNumber,
    name: &[u8],
    file_type: u8,
) -> Result<bool> {
    for entry in entries(block, usable) {
        if let Some(slot) = Slot::of(&entry?, name.len()) {
            slot.fill(block, &NewEntry { inode, name, file_type });
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the live entry at `offset`: the entry before it takes its bytes, or, if it is the first, it becomes free.
/// The bytes are cleared, as the kernel clears them. An entry that is before it begins at `from`: 0, or as [`search`] says.
///
/// # Errors
/// `Corrupt`, and no change, when no live entry begins at `offset`.
pub fn remove(block: &mut [u8], usable: usize, offset: usize, from: usize) -> Result<()> {
    let end = usable.min(block.len());
    let (mut before, mut at) = (None, if from < offset { from } else { 0 });
    let rec_len = loop {
        let head = Head::at(block, end, at).ok_or_else(|| flaw(block, usable, at))?;
        if at >= offset {
            break (at == offset && head.inode != 0).then_some(head.rec_len);
        }
        before = Some((at, head.rec_len));
        at += head.rec_len;
        if at >= end {
            break None;
        }
    };
    let rec_len = rec_len.ok_or(corrupt("no entry begins where one is to be removed"))?;
    let bytes = block.get_mut(offset..offset + rec_len).unwrap_or_default();
    bytes.fill(0);
    match before {
        Some((at, len)) => put_rec_len(block, at, len + rec_len),
        None => put_rec_len(block, offset, rec_len),
    }
    Ok(())
}

/// Makes the entry that begins at `offset` name another inode, as rename over a name does.
///
/// # Errors
/// `Corrupt`, and no change, when the bytes at `offset` are no live entry.
pub fn set_inode(
    block: &mut [u8],
    usable: usize,
    offset: usize,
    inode: InodeNumber,
    file_type: u8,
) -> Result<()> {
    if !entry_at(block, usable, offset)?.is_live() {
        return Err(corrupt("no entry where an inode is to be set"));
    }
    field::write::<u32>(block, offset, inode.0);
    if let Some(byte) = block.get_mut(offset + 7) {
        *byte = file_type;
    }
    Ok(())
}

/// Makes the block one free entry, followed by a tail with no checksum yet when `usable` leaves room for it.
pub fn init_empty(block: &mut [u8], usable: usize) {
    block.fill(0);
    put_rec_len(block, 0, usable.min(block.len()));
    if block.len().saturating_sub(usable) >= TAIL_BYTES {
        init_tail(block);
    }
}

/// Makes the block the first one of a new directory: `.` and `..`, which takes the rest.
///
/// `file_type` is that of [`crate::FileType::Directory`], or of [`crate::FileType::Unknown`] without the `filetype` feature.
pub fn init_dot_dotdot(
    block: &mut [u8],
    usable: usize,
    own: InodeNumber,
    parent: InodeNumber,
    file_type: u8,
) {
    init_empty(block, usable);
    let dot = entry_bytes(1);
    put_entry(block, 0, dot, &NewEntry { inode: own, name: b".", file_type });
    let rest = usable.min(block.len()).saturating_sub(dot);
    put_entry(block, dot, rest, &NewEntry { inode: parent, name: b"..", file_type });
}

/// Whether the block is a linear directory block without names (`.` and `..` count as names).
///
/// # Errors
/// `Corrupt` when an entry is broken.
pub fn is_empty(block: &[u8], usable: usize) -> Result<bool> {
    live_entries(block, usable).next().transpose().map(|e| e.is_none())
}

/// Whether the last 12 bytes are a checksum tail.
#[must_use]
pub fn has_tail(block: &[u8]) -> bool {
    let Some(tail) = block.len().checked_sub(TAIL_BYTES).and_then(|at| block.get(at..)) else {
        return false;
    };
    tail.starts_with(&[0, 0, 0, 0, TAIL_BYTES as u8, 0, 0, FT_DIR_CSUM])
}

/// Writes a tail with checksum 0 over the last 12 bytes; nothing in a block shorter than that.
pub fn init_tail(block: &mut [u8]) {
    let Some(at) = block.len().checked_sub(TAIL_BYTES) else {
        return;
    };
    let tail = block.get_mut(at..).unwrap_or_default();
    tail.copy_from_slice(&[0, 0, 0, 0, TAIL_BYTES as u8, 0, 0, FT_DIR_CSUM, 0, 0, 0, 0]);
}

/// Makes room for a tail in a block without one, by moving its entries together, and writes it with checksum 0; `false`, and no change,
/// when they take all of the block.
///
/// # Errors
/// `Corrupt`, and no change, when an entry is broken.
pub fn make_tail(block: &mut [u8]) -> Result<bool> {
    let usable = usable_bytes(block.len(), true);
    let mut packed = vec![0; block.len()];
    init_empty(&mut packed, usable);
    for entry in live_entries(block, block.len()) {
        let entry = entry?;
        if !insert(&mut packed, usable, entry.inode, entry.name, entry.file_type)? {
            return Ok(false);
        }
    }
    block.copy_from_slice(&packed);
    Ok(true)
}

impl Checksums {
    /// The checksum of a linear directory block or a leaf: of everything before its tail.
    #[must_use]
    pub fn dir_block(&self, ino: InodeNumber, generation: u32, block: &[u8]) -> u32 {
        let end = block.len().saturating_sub(TAIL_BYTES);
        crc32c(self.inode_seed(ino, generation), block.get(..end).unwrap_or_default())
    }

    /// Whether the block has a tail with the right checksum.
    #[must_use]
    pub fn verify_dir_block(&self, ino: InodeNumber, generation: u32, block: &[u8]) -> bool {
        !self.has_metadata_checksums()
            || has_tail(block)
                && field::read::<u32>(block, block.len() - 4) == self.dir_block(ino, generation, block)
    }

    /// Writes the checksum into the tail, if the disk has checksums and the block a tail.
    pub fn update_dir_block(&self, ino: InodeNumber, generation: u32, block: &mut [u8]) {
        if self.has_metadata_checksums() && has_tail(block) {
            let sum = self.dir_block(ino, generation, block);
            field::write(block, block.len() - 4, sum);
        }
    }
}

/// The fields of an entry, without its place.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'a> {
    /// The inode to name.
    pub inode: InodeNumber,
    /// The name: 1 to [`NAME_MAX`] bytes.
    pub name: &'a [u8],
    /// The type byte: [`crate::FileType::dirent_byte`].
    pub file_type: u8,
}

/// Room for an entry: the bytes of an entry behind its first `used` ones.
struct Slot {
    offset: usize,
    used: usize,
    rec_len: usize,
}

impl Slot {
    /// The room of a checked entry for a name of `name_len` bytes, if there is enough.
    fn of(entry: &DirEntry<'_>, name_len: usize) -> Option<Self> {
        let used = entry.used_bytes();
        let fits = entry.rec_len - used >= entry_bytes(name_len) && (1..=NAME_MAX).contains(&name_len);
        fits.then_some(Self { offset: entry.offset, used, rec_len: entry.rec_len })
    }

    /// Writes an entry into it.
    fn fill(&self, block: &mut [u8], entry: &NewEntry<'_>) {
        if self.used > 0 {
            put_rec_len(block, self.offset, self.used);
        }
        put_entry(block, self.offset + self.used, self.rec_len - self.used, entry);
    }
}

/// Writes an entry; the padding behind the name becomes 0. Writes nothing where it would not fit.
pub(crate) fn put_entry(block: &mut [u8], offset: usize, rec_len: usize, entry: &NewEntry<'_>) {
    let raw_len = encode_rec_len(rec_len);
    let end = offset.saturating_add(entry_bytes(entry.name.len()));
    let (Ok(name_len), Some(bytes)) = (u8::try_from(entry.name.len()), block.get_mut(offset..end)) else {
        return;
    };
    bytes.fill(0);
    field::write::<u32>(bytes, 0, entry.inode.0);
    field::write::<u16>(bytes, 4, raw_len);
    let (head, name) = bytes.split_at_mut(HEADER_BYTES);
    head[6..].copy_from_slice(&[name_len, entry.file_type]);
    name[..entry.name.len()].copy_from_slice(entry.name);
}

fn put_rec_len(block: &mut [u8], offset: usize, rec_len: usize) {
    field::write::<u16>(block, offset + 4, encode_rec_len(rec_len));
}

/// `rec_len` of the entry at `offset`, not checked.
pub(crate) fn rec_len_at(block: &[u8], offset: usize) -> Option<usize> {
    field::get::<u16>(block, offset + 4).map(|raw| decode_rec_len(raw, block.len()))
}

/// 64 KiB does not fit 16 bits: it is written 65535, and read from 65535 or 0.
fn decode_rec_len(raw: u16, block_bytes: usize) -> usize {
    match raw {
        0 | u16::MAX if block_bytes >= 0x1_0000 => block_bytes,
        _ => usize::from(raw),
    }
}

pub(crate) fn encode_rec_len(rec_len: usize) -> u16 {
    u16::try_from(rec_len).unwrap_or(u16::MAX)
}

fn corrupt(reason: &'static str) -> Error {
    Error::corrupt(Structure::DirectoryBlock, reason)
}
