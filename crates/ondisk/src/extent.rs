//! Nodes of an extent tree: in the 60 bytes of an inode (the root) or in a block.
//!
//! There are two interfaces: [`ExtentNode`] checks and decodes a whole node, to change it; [`search_leaf`] and
//! [`search_index`] find one entry in bytes that were checked before, without allocating.
//!
//! Leaves out: whether blocks lie on the disk, and whether a child fits its parent's range.
//!
//! Invariant: entries of a parsed node ascend by logical block, do not overlap, and end below block 2³² − 1.
//!
//! Source: kernel `ext4_extents.h`, `__ext4_ext_check`, `ext4_ext_binsearch`, `ext4_extent_block_csum`.

use crate::checksum::Checksums;
use crate::crcs::crc32c;
use crate::error::{Error, Result, Structure};
use crate::field;
use crate::types::{FsBlock, InodeNumber, LogicalBlock};

/// Bytes of a node's header, and of an entry.
pub const ENTRY_SIZE: usize = 12;
/// Entries that fit the root in an inode.
pub const ROOT_CAPACITY: u16 = 4;
/// The deepest a tree may be: levels of index nodes above the leaves.
pub const MAX_DEPTH: u16 = 5;
/// The most blocks of a written extent.
pub const MAX_LEN: u16 = 1 << 15;
/// The most blocks of an unwritten extent.
pub const MAX_UNWRITTEN_LEN: u16 = MAX_LEN - 1;

const MAGIC: u16 = 0xF30A;
const EH_ENTRIES: usize = 2;
const EH_MAX: usize = 4;
const EH_DEPTH: usize = 6;

/// Entries that fit a node of a whole block.
#[must_use]
pub const fn block_capacity(block_size: u32) -> u16 {
    (block_size as usize).saturating_sub(ENTRY_SIZE).saturating_div(ENTRY_SIZE) as u16
}

/// A run of blocks of a file that lie together on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Its first block in the file.
    pub logical: LogicalBlock,
    /// Blocks: 1 to [`MAX_LEN`], or to [`MAX_UNWRITTEN_LEN`] when unwritten.
    pub len: u16,
    /// Its first block on the disk, of 48 bits.
    pub start: FsBlock,
    /// Whether it reads as zeros until written.
    pub unwritten: bool,
}

impl Extent {
    /// The block of the file behind the last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        u64::from(self.logical.0) + u64::from(self.len)
    }

    /// The block on the disk of a block of the file; `None` outside of the extent.
    #[must_use]
    pub fn map(&self, logical: LogicalBlock) -> Option<FsBlock> {
        let offset = logical.0.checked_sub(self.logical.0)?;
        (offset < u32::from(self.len)).then(|| FsBlock(self.start.0.saturating_add(u64::from(offset))))
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let raw_len: u16 = field::read(bytes, 4);
        let unwritten = raw_len > MAX_LEN;
        let high: u16 = field::read(bytes, 6);
        let low: u32 = field::read(bytes, 8);
        Self {
            logical: LogicalBlock(field::read(bytes, 0)),
            len: if unwritten { raw_len - MAX_LEN } else { raw_len },
            start: FsBlock(u64::from(high) << 32 | u64::from(low)),
            unwritten,
        }
    }

    pub(crate) fn encode(&self, bytes: &mut [u8]) -> Result<()> {
        let max = if self.unwritten { MAX_UNWRITTEN_LEN } else { MAX_LEN };
        if self.len == 0 || self.len > max || self.start.0 >> 48 != 0 {
            return Err(Error::NotRepresentable("extent"));
        }
        let raw_len = if self.unwritten { self.len + MAX_LEN } else { self.len };
        field::write(bytes, 0, self.logical.0);
        field::write(bytes, 4, raw_len);
        field::write(bytes, 6, (self.start.0 >> 32) as u16);
        field::write(bytes, 8, self.start.0 as u32);
        Ok(())
    }
}

/// An entry of an index node: the node below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtentIndex {
    /// The first block of the file that the child may map.
    pub logical: LogicalBlock,
    /// The block of the child, of 48 bits.
    pub child: FsBlock,
}

impl ExtentIndex {
    fn decode(bytes: &[u8]) -> Self {
        let low: u32 = field::read(bytes, 4);
        let high: u16 = field::read(bytes, 8);
        Self {
            logical: LogicalBlock(field::read(bytes, 0)),
            child: FsBlock(u64::from(high) << 32 | u64::from(low)),
        }
    }

    fn encode(&self, bytes: &mut [u8]) -> Result<()> {
        if self.child.0 >> 48 != 0 {
            return Err(Error::NotRepresentable("extent index"));
        }
        field::write(bytes, 0, self.logical.0);
        field::write(bytes, 4, self.child.0 as u32);
        field::write(bytes, 8, (self.child.0 >> 32) as u16);
        field::write(bytes, 10, 0_u16);
        Ok(())
    }
}

/// The entries of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Entries of a leaf: extents.
    Leaf(Vec<Extent>),
    /// Entries of an index node: nodes.
    Index(Vec<ExtentIndex>),
}

impl Entries {
    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Index(entries) => entries.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A decoded node. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentNode {
    /// Levels below this one; 0 for a leaf.
    pub depth: u16,
    /// Entries that fit.
    pub max_entries: u16,
    /// The entries.
    pub entries: Entries,
}

impl ExtentNode {
    /// An empty leaf.
    #[must_use]
    pub fn empty_leaf(max_entries: u16) -> Self {
        Self { depth: 0, max_entries, entries: Entries::Leaf(Vec::new()) }
    }

    /// Reads a node from the 60 bytes of an inode or from a block, and checks it.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when it is no node, not of `expected_depth`, or breaks the module's invariant.
    pub fn parse(bytes: &[u8], expected_depth: Option<u16>) -> Result<Self> {
        let header = Header::read(bytes).ok_or(corrupt("no header"))?;
        if header.depth > MAX_DEPTH {
            return Err(corrupt("too deep"));
        }
        if expected_depth.is_some_and(|depth| depth != header.depth) {
            return Err(corrupt("unexpected depth"));
        }
        let room = bytes.len().saturating_sub(ENTRY_SIZE) / ENTRY_SIZE;
        if header.max == 0 || usize::from(header.max) > room {
            return Err(corrupt("more entries promised than fit"));
        }
        if header.entries > header.max {
            return Err(corrupt("too many entries"));
        }
        if header.depth > 0 && header.entries == 0 {
            return Err(corrupt("index node without entries"));
        }
        let raw = bytes[ENTRY_SIZE..].chunks_exact(ENTRY_SIZE).take(usize::from(header.entries));
        let entries = if header.depth == 0 {
            Entries::Leaf(check_extents(raw.map(Extent::decode).collect())?)
        } else {
            Entries::Index(check_indexes(raw.map(ExtentIndex::decode).collect())?)
        };
        Ok(Self { depth: header.depth, max_entries: header.max, entries })
    }

    /// Writes the node over `bytes`; room for further entries is zeroed, all else kept.
    ///
    /// # Errors
    ///
    /// [`Error::NotRepresentable`] when entries are too many, or one is out of range; `bytes` are then undefined.
    pub fn write(&self, bytes: &mut [u8]) -> Result<()> {
        const TOO_MANY: Error = Error::NotRepresentable("extent node");
        let room = usize::from(self.max_entries) * ENTRY_SIZE;
        if self.entries.len() > usize::from(self.max_entries) {
            return Err(TOO_MANY);
        }
        let slots = bytes.get_mut(ENTRY_SIZE..ENTRY_SIZE + room).ok_or(TOO_MANY)?;
        slots.fill(0);
        let slots = slots.chunks_exact_mut(ENTRY_SIZE);
        match &self.entries {
            Entries::Leaf(extents) => {
                extents.iter().zip(slots).try_for_each(|(extent, slot)| extent.encode(slot))?;
            }
            Entries::Index(indexes) => {
                indexes.iter().zip(slots).try_for_each(|(index, slot)| index.encode(slot))?;
            }
        }
        field::write(bytes, 0, MAGIC);
        field::write(bytes, EH_ENTRIES, self.entries.len() as u16);
        field::write(bytes, EH_MAX, self.max_entries);
        field::write(bytes, EH_DEPTH, self.depth);
        Ok(())
    }
}

fn check_extents(extents: Vec<Extent>) -> Result<Vec<Extent>> {
    let mut end = 0;
    for extent in &extents {
        if extent.len == 0 {
            return Err(corrupt("empty extent"));
        }
        if u64::from(extent.logical.0) < end {
            return Err(corrupt("extents overlap or are out of order"));
        }
        end = extent.end();
        if end > u64::from(u32::MAX) {
            return Err(corrupt("extent beyond the largest file"));
        }
    }
    Ok(extents)
}

fn check_indexes(indexes: Vec<ExtentIndex>) -> Result<Vec<ExtentIndex>> {
    if indexes.windows(2).any(|pair| pair[0].logical >= pair[1].logical) {
        return Err(corrupt("index entries out of order"));
    }
    Ok(indexes)
}

/// The header of a node whose magic number is right.
struct Header {
    entries: u16,
    max: u16,
    depth: u16,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= ENTRY_SIZE && field::read::<u16>(bytes, 0) == MAGIC).then(|| Self {
            entries: field::read(bytes, EH_ENTRIES),
            max: field::read(bytes, EH_MAX),
            depth: field::read(bytes, EH_DEPTH),
        })
    }
}

/// The depth in a node's header; `None` when it is no node.
#[must_use]
pub fn depth(bytes: &[u8]) -> Option<u16> {
    Header::read(bytes).map(|header| header.depth)
}

/// The number of entries in a node's header, at most as many as there are bytes for.
#[must_use]
pub fn entry_count(bytes: &[u8]) -> usize {
    slots(bytes).len() / ENTRY_SIZE
}

/// The first block of the file that a node maps; `None` for one without entries.
#[must_use]
pub fn first_logical(bytes: &[u8]) -> Option<LogicalBlock> {
    // Both kinds of entry begin with the logical block.
    slot(slots(bytes), 0).map(|entry| LogicalBlock(field::read(entry, 0)))
}

/// The extent at a position of a leaf that was checked before.
#[must_use]
pub fn extent_at(bytes: &[u8], position: usize) -> Option<Extent> {
    slot(slots(bytes), position).map(Extent::decode)
}

/// The entry at a position of an index node that was checked before.
#[must_use]
pub fn index_at(bytes: &[u8], position: usize) -> Option<ExtentIndex> {
    slot(slots(bytes), position).map(ExtentIndex::decode)
}

/// The last extent of a leaf that starts at or before `logical`, with its position. It may end before `logical`.
///
/// On bytes that were not checked the answer may be wrong; it is never a panic.
#[must_use]
pub fn search_leaf(bytes: &[u8], logical: LogicalBlock) -> Option<(usize, Extent)> {
    let slots = slots(bytes);
    let position = count_up_to(slots, logical).checked_sub(1)?;
    Some((position, Extent::decode(slot(slots, position)?)))
}

/// The entry of an index node whose child may map `logical`, with its position: the last one that starts at or
/// before it, else the first. `None` when there are no entries.
///
/// On bytes that were not checked the answer may be wrong; it is never a panic.
#[must_use]
pub fn search_index(bytes: &[u8], logical: LogicalBlock) -> Option<(usize, ExtentIndex)> {
    let slots = slots(bytes);
    let position = count_up_to(slots, logical).saturating_sub(1);
    Some((position, ExtentIndex::decode(slot(slots, position)?)))
}

/// The bytes of the entries.
fn slots(bytes: &[u8]) -> &[u8] {
    let entries = Header::read(bytes).map_or(0, |header| usize::from(header.entries));
    let room = bytes.get(ENTRY_SIZE..).unwrap_or_default();
    &room[..entries.min(room.len() / ENTRY_SIZE) * ENTRY_SIZE]
}

fn slot(slots: &[u8], position: usize) -> Option<&[u8]> {
    let start = position.checked_mul(ENTRY_SIZE)?;
    slots.get(start..start.checked_add(ENTRY_SIZE)?)
}

/// How many entries start at or before `logical`. Both kinds of entry begin with the logical block.
fn count_up_to(slots: &[u8], logical: LogicalBlock) -> usize {
    let (mut low, mut high) = (0, slots.len() / ENTRY_SIZE);
    while low < high {
        let middle = low + (high - low) / 2;
        if field::read::<u32>(slots, middle * ENTRY_SIZE) <= logical.0 {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl Checksums {
    /// The checksum of a node in a block.
    #[must_use]
    pub fn extent_block(&self, ino: InodeNumber, generation: u32, block: &[u8]) -> u32 {
        let summed = block.get(..tail_offset(block)).unwrap_or(block);
        crc32c(self.inode_seed(ino, generation), summed)
    }

    /// Whether the checksum of a node in a block is right.
    #[must_use]
    pub fn verify_extent_block(&self, ino: InodeNumber, generation: u32, block: &[u8]) -> bool {
        !self.has_metadata_checksums()
            || (tail_offset(block) + 4 <= block.len()
                && field::read::<u32>(block, tail_offset(block)) == self.extent_block(ino, generation, block))
    }

    /// Sets the checksum of a node in a block, if the disk has checksums. Roots in inodes have none.
    pub fn update_extent_block(&self, ino: InodeNumber, generation: u32, block: &mut [u8]) {
        if self.has_metadata_checksums() {
            let sum = self.extent_block(ino, generation, block);
            field::write(block, tail_offset(block), sum);
        }
    }
}

/// The tail is behind the last slot, used or not.
pub(crate) fn tail_offset(block: &[u8]) -> usize {
    ENTRY_SIZE + ENTRY_SIZE * usize::from(field::read::<u16>(block, EH_MAX))
}

fn corrupt(reason: &'static str) -> Error {
    Error::corrupt(Structure::ExtentNode, reason)
}
