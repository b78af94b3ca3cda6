//! Fast commits: records of what changed since the last full commit, in the area behind the log. Little-endian.
//!
//! A record is a tag, its length and a value, and lies within one block. The first block of the area begins with HEAD; each fast commit
//! ends with TAIL, which sums the records since the TAIL before it. PAD fills a block.
//!
//! Leaves out: where the area is and which records of it count (crate `journal`); what they change (the engine).
//!
//! Invariant: every length read from a block is checked against the block and against its tag before it is used.
//!
//! Source: kernel `fs/ext4/fast_commit.{c,h}`. Checked by `crates/extant/tests/fast_commit` against the kernel.

use crate::error::{Error, Result, Structure};
use crate::extent::{ENTRY_SIZE, Extent};
use crate::field;
use crate::inode::GOOD_OLD_INODE_SIZE;
use crate::types::{InodeNumber, LogicalBlock, TransactionId};

/// Bytes of a tag and its length.
pub const TAG_BYTES: usize = 4;
/// `EXT4_NAME_LEN`.
const NAME_MAX: usize = 255;
const RANGE_BYTES: usize = 12;
const DENTRY_BYTES: usize = 8;
const NUMBER_BYTES: usize = 4;
const PAIR_BYTES: usize = 8;

/// The type of a record (`EXT4_FC_TAG_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Tag {
    /// Blocks of a file that are mapped.
    AddRange = 1,
    /// Blocks of a file that are not mapped.
    DelRange = 2,
    /// A name, and its inode is new.
    Creat = 3,
    /// A name that is there.
    Link = 4,
    /// A name that is not there.
    Unlink = 5,
    /// The fields of an inode, without its map.
    Inode = 6,
    /// Nothing.
    Pad = 7,
    /// The end of a fast commit.
    Tail = 8,
    /// The beginning of the area.
    Head = 9,
}

impl Tag {
    fn from_raw(raw: u16) -> Option<Self> {
        Some(match raw {
            1 => Self::AddRange,
            2 => Self::DelRange,
            3 => Self::Creat,
            4 => Self::Link,
            5 => Self::Unlink,
            6 => Self::Inode,
            7 => Self::Pad,
            8 => Self::Tail,
            9 => Self::Head,
            _ => return None,
        })
    }

    /// Whether a value of this tag may have so many bytes (`ext4_fc_value_len_isvalid`).
    fn accepts(self, bytes: usize) -> bool {
        match self {
            Self::AddRange => bytes == NUMBER_BYTES + ENTRY_SIZE,
            Self::DelRange => bytes == RANGE_BYTES,
            Self::Creat | Self::Link | Self::Unlink => {
                (DENTRY_BYTES + 1..=DENTRY_BYTES + NAME_MAX).contains(&bytes)
            }
            Self::Inode => bytes >= NUMBER_BYTES + GOOD_OLD_INODE_SIZE,
            Self::Pad => true,
            Self::Tail => bytes >= PAIR_BYTES,
            Self::Head => bytes == PAIR_BYTES,
        }
    }
}

/// A record as it lies in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its type.
    pub tag: Tag,
    /// Its value.
    pub value: &'a [u8],
    /// The tag, the length and the value.
    pub bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at `offset` of a block; `None` if there is none, or its length is impossible.
    #[must_use]
    pub fn at(block: &'a [u8], offset: usize) -> Option<Self> {
        let rest = block.get(offset..)?;
        let tag = Tag::from_raw(field::get(rest, 0)?)?;
        let len = usize::from(field::get::<u16>(rest, 2)?);
        let bytes = rest.get(..TAG_BYTES + len)?;
        tag.accepts(len).then_some(Self { tag, value: &bytes[TAG_BYTES..], bytes })
    }

    /// The two numbers of a HEAD, its features and its transaction, or of a TAIL, its transaction and its checksum.
    #[must_use]
    pub fn pair(&self) -> (u32, u32) {
        (field::read(self.value, 0), field::read(self.value, 4))
    }

    /// The bytes of a TAIL that its checksum covers.
    #[must_use]
    pub fn summed_tail(&self) -> &'a [u8] {
        &self.bytes[..self.bytes.len().min(TAG_BYTES + 4)]
    }
}

/// What a name that changed names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dentry<'a> {
    /// Its directory.
    pub parent: InodeNumber,
    /// Its inode.
    pub inode: InodeNumber,
    /// The name: 1 to 255 bytes.
    pub name: &'a [u8],
}

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change<'a> {
    /// An inode maps these blocks.
    AddRange(InodeNumber, Extent),
    /// An inode does not map `len` blocks from this one on.
    DelRange(InodeNumber, LogicalBlock, u32),
    /// A name of a new inode is there.
    Creat(Dentry<'a>),
    /// A name is there.
    Link(Dentry<'a>),
    /// A name is not there.
    Unlink(Dentry<'a>),
    /// The bytes of an inode up to the end of its fields, of which its map does not count.
    Inode(InodeNumber, &'a [u8]),
}

impl<'a> Change<'a> {
    /// The change that a record says; `None` for a record that says none.
    ///
    /// # Errors
    /// `Corrupt` if the value is not what the tag says.
    pub fn parse(tag: Tag, value: &'a [u8]) -> Result<Option<Self>> {
        if !tag.accepts(value.len()) {
            return Err(Error::corrupt(Structure::Journal, "a fast-commit record has an impossible length"));
        }
        let number = |at| InodeNumber(field::read(value, at));
        let dentry = || Dentry { parent: number(0), inode: number(4), name: &value[DENTRY_BYTES..] };
        Ok(Some(match tag {
            Tag::AddRange => {
                let extent = Extent::decode(&value[NUMBER_BYTES..]);
                if extent.len == 0 || extent.end() > u64::from(u32::MAX) {
                    return Err(Error::corrupt(
                        Structure::Journal,
                        "a fast commit maps an impossible extent",
                    ));
                }
                Self::AddRange(number(0), extent)
            }
            Tag::DelRange => {
                Self::DelRange(number(0), LogicalBlock(field::read(value, 4)), field::read(value, 8))
            }
            Tag::Creat => Self::Creat(dentry()),
            Tag::Link => Self::Link(dentry()),
            Tag::Unlink => Self::Unlink(dentry()),
            Tag::Inode => Self::Inode(number(0), &value[NUMBER_BYTES..]),
            Tag::Pad | Tag::Tail | Tag::Head => return Ok(None),
        }))
    }

    /// Appends its record.
    ///
    /// # Errors
    /// `NotRepresentable` for an impossible extent, name or inode.
    pub fn write(&self, into: &mut Vec<u8>) -> Result<()> {
        let (tag, mut value) = match *self {
            Self::AddRange(inode, extent) => {
                let mut value = inode.0.to_le_bytes().to_vec();
                value.resize(NUMBER_BYTES + ENTRY_SIZE, 0);
                extent.encode(&mut value[NUMBER_BYTES..])?;
                (Tag::AddRange, value)
            }
            Self::DelRange(inode, logical, len) => {
                (Tag::DelRange, [inode.0, logical.0, len].map(u32::to_le_bytes).concat())
            }
            Self::Creat(dentry) => (Tag::Creat, dentry.to_bytes()),
            Self::Link(dentry) => (Tag::Link, dentry.to_bytes()),
            Self::Unlink(dentry) => (Tag::Unlink, dentry.to_bytes()),
            Self::Inode(inode, raw) => (Tag::Inode, [&inode.0.to_le_bytes(), raw].concat()),
        };
        let len = u16::try_from(value.len()).ok().filter(|_| tag.accepts(value.len()));
        let len = len.ok_or(Error::NotRepresentable("fast-commit record"))?;
        put_tag(tag, len, into);
        into.append(&mut value);
        Ok(())
    }
}

impl Dentry<'_> {
    fn to_bytes(self) -> Vec<u8> {
        [&self.parent.0.to_le_bytes(), &self.inode.0.to_le_bytes(), self.name].concat()
    }
}

/// Appends the HEAD of an area that belongs to a transaction.
pub fn put_head(tid: TransactionId, into: &mut Vec<u8>) {
    put_tag(Tag::Head, PAIR_BYTES as u16, into);
    into.extend([0, tid.0].map(u32::to_le_bytes).concat());
}

/// Appends a PAD to a block, which it fills.
pub fn put_pad(block_bytes: usize, into: &mut Vec<u8>) {
    let len = block_bytes.saturating_sub(into.len() + TAG_BYTES);
    put_tag(Tag::Pad, len.min(usize::from(u16::MAX)) as u16, into);
    into.resize(block_bytes.max(into.len()), 0);
}

/// Appends the TAIL of a fast commit, up to its checksum, to a block of which it is to fill the rest: `block_bytes` are the whole
/// block's. [`put_checksum`] is to follow.
///
/// # Panics
/// If the block has no room for it.
pub fn put_tail(tid: TransactionId, block_bytes: usize, into: &mut Vec<u8>) {
    let len = block_bytes - into.len() - TAG_BYTES;
    assert!(len >= PAIR_BYTES, "a TAIL needs {} bytes", TAG_BYTES + PAIR_BYTES);
    put_tag(Tag::Tail, len.min(usize::from(u16::MAX)) as u16, into);
    into.extend(tid.0.to_le_bytes());
}

/// Appends the checksum of a TAIL, and fills its block.
pub fn put_checksum(checksum: u32, block_bytes: usize, into: &mut Vec<u8>) {
    into.extend(checksum.to_le_bytes());
    into.resize(block_bytes.max(into.len()), 0);
}

fn put_tag(tag: Tag, len: u16, into: &mut Vec<u8>) {
    into.extend((tag as u16).to_le_bytes());
    into.extend(len.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FsBlock;

    fn written(change: Change<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        change.write(&mut bytes).expect("a record");
        bytes
    }

    #[test]
    fn each_change_is_read_as_it_was_written() {
        let dentry = Dentry { parent: InodeNumber(2), inode: InodeNumber(12), name: b"name" };
        let extent =
            |unwritten| Extent { logical: LogicalBlock(7), len: 9, start: FsBlock(1 << 40), unwritten };
        let raw = [3; 160];
        let changes = [
            Change::AddRange(InodeNumber(12), extent(false)),
            Change::AddRange(InodeNumber(12), extent(true)),
            Change::DelRange(InodeNumber(12), LogicalBlock(5), u32::MAX),
            Change::Creat(dentry),
            Change::Link(dentry),
            Change::Unlink(dentry),
            Change::Inode(InodeNumber(12), &raw),
        ];
        for change in changes {
            let bytes = written(change);
            let record = Record::at(&bytes, 0).expect("a record");
            assert_eq!(record.bytes, bytes);
            assert_eq!(Change::parse(record.tag, record.value).expect("a value"), Some(change));
        }
    }

    #[test]
    fn records_of_impossible_lengths_are_none() {
        let bytes = written(Change::DelRange(InodeNumber(1), LogicalBlock(2), 3));
        for end in 0..bytes.len() {
            assert_eq!(Record::at(&bytes[..end], 0), None, "{end} bytes of it");
        }
        let mut long = bytes.clone();
        long[2] += 1;
        long.push(0);
        assert_eq!(Record::at(&long, 0), None, "a byte too many");
        assert_eq!(Record::at(&bytes, usize::MAX), None);
        let unknown = [&10_u16.to_le_bytes()[..], &bytes[2..]].concat();
        assert_eq!(Record::at(&unknown, 0), None);
        assert!(Change::parse(Tag::Creat, &[0; 8]).is_err(), "an empty name");
        assert!(Change::parse(Tag::AddRange, &[0; 16]).is_err(), "an empty extent");
        assert!(Change::parse(Tag::AddRange, &[0xFF; 16]).is_err(), "past the largest file");
        assert_eq!(Change::parse(Tag::Pad, &[]).expect("nothing"), None);
    }

    #[test]
    fn a_tail_fills_its_block() {
        let mut block = Vec::new();
        put_head(TransactionId(9), &mut block);
        put_tail(TransactionId(9), 1024, &mut block);
        put_checksum(77, 1024, &mut block);
        let head = Record::at(&block, 0).expect("a head");
        assert_eq!((head.tag, head.pair()), (Tag::Head, (0, 9)));
        let tail = Record::at(&block, head.bytes.len()).expect("a tail");
        assert_eq!((tail.tag, tail.pair(), block.len()), (Tag::Tail, (9, 77), 1024));
        assert_eq!((tail.summed_tail().len(), head.bytes.len() + tail.bytes.len()), (8, 1024));
    }
}
