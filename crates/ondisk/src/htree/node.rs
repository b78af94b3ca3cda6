//! One index block: read, search, insert, split.

use super::{DX_ENTRY_BYTES, DxKind, LEVELS_OFFSET, corrupt, counts, covers_block};
use crate::dirent::encode_rec_len;
use crate::error::Result;
use crate::field;
use crate::types::LogicalBlock;

/// Bits of an entry's block field that number a block; the kernel masks off the rest.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// A checked view of an index block.
#[derive(Clone, Copy, Debug)]
pub struct DxNode<'a> {
    block: &'a [u8],
    kind: DxKind,
    limit: usize,
    count: usize,
}

impl<'a> DxNode<'a> {
    /// Checks the counts and the order of the hashes. A root's fixed part is [`super::RootInfo::parse`]'s to check.
    /// Cost: linear in the entries.
    ///
    /// # Errors
    /// `Corrupt` when the limit is not the one this block must have, the count is 0 or above it, the hashes are out of
    /// order, or a node is not hidden behind a free entry.
    pub fn parse(block: &'a [u8], kind: DxKind, has_csum: bool) -> Result<Self> {
        let node = Self::view(block, kind, has_csum)?;
        if (1..node.count).any(|index| node.hash(index - 1) > node.hash(index)) {
            return Err(corrupt("index hashes are out of order"));
        }
        Ok(node)
    }

    /// Checks the counts only, of a block that [`DxNode::parse_any`] has seen. Cost: constant.
    ///
    /// # Errors
    /// As [`DxNode::parse`], but for the order of the hashes.
    pub fn view(block: &'a [u8], kind: DxKind, has_csum: bool) -> Result<Self> {
        if kind == DxKind::Node && !covers_block(block) {
            return Err(corrupt("index node does not begin with a free entry over the block"));
        }
        let (limit, count) = counts(block, kind, has_csum)?;
        Ok(Self { block, kind, limit, count })
    }

    /// As [`DxNode::parse`] of a block that is known to be part of an index, root or node.
    ///
    /// # Errors
    /// As [`DxNode::parse`]; `Corrupt` if it is neither.
    pub fn parse_any(block: &'a [u8], has_csum: bool) -> Result<Self> {
        let kind = DxKind::of(block).ok_or_else(|| corrupt("block is no part of an index"))?;
        Self::parse(block, kind, has_csum)
    }

    /// Entries in use; at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Entries that fit.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether no entry can be added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count >= self.limit
    }

    /// The hash of an entry, continuation bit included; 0 for entry 0 and past the last.
    #[must_use]
    pub fn hash(&self, index: usize) -> u32 {
        if index == 0 || index >= self.count {
            return 0;
        }
        field::get::<u32>(self.block, place(self.kind, index)).unwrap_or(0)
    }

    /// The block an entry points to, or `None` past the last entry.
    #[must_use]
    pub fn child(&self, index: usize) -> Option<LogicalBlock> {
        if index >= self.count {
            return None;
        }
        field::get::<u32>(self.block, place(self.kind, index) + 4).map(|raw| LogicalBlock(raw & BLOCK_MASK))
    }

    /// The entry whose child holds `hash`: the last one not above it.
    #[must_use]
    pub fn search(&self, hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.hash(middle) > hash {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low - 1
    }

    /// Whether the child after entry `index` may hold more names of `hash`. `None` when `index` is the last entry
    /// here and the level above must be asked.
    #[must_use]
    pub fn continues(&self, index: usize, hash: u32) -> Option<bool> {
        (index + 1 < self.count).then(|| self.hash(index + 1) & !1 == hash & !1)
    }
}

/// A checked view of an index block to change.
#[derive(Debug)]
pub struct DxNodeMut<'a> {
    block: &'a mut [u8],
    kind: DxKind,
    limit: usize,
    count: usize,
    has_csum: bool,
}

impl<'a> DxNodeMut<'a> {
    /// As [`DxNode::parse`].
    ///
    /// # Errors
    /// As [`DxNode::parse`].
    pub fn parse(block: &'a mut [u8], kind: DxKind, has_csum: bool) -> Result<Self> {
        let DxNode { limit, count, .. } = DxNode::parse(block, kind, has_csum)?;
        Ok(Self { block, kind, limit, count, has_csum })
    }

    /// The block in its current state.
    #[must_use]
    pub fn as_node(&self) -> DxNode<'_> {
        DxNode { block: self.block, kind: self.kind, limit: self.limit, count: self.count }
    }

    /// Adds an entry behind entry `index` (`dx_insert_block`); `false`, and no change, when the node is full.
    ///
    /// # Errors
    /// `Corrupt`, and no change, when `hash` would break the order: the leaf it comes from held names that do not
    /// belong there.
    pub fn insert_after(&mut self, index: usize, hash: u32, child: LogicalBlock) -> Result<bool> {
        if !self.as_node().accepts_after(index, hash) {
            return Err(corrupt("a leaf holds hashes outside its range"));
        }
        if self.count >= self.limit {
            return Ok(false);
        }
        let (from, to) = (place(self.kind, index + 1), place(self.kind, self.count));
        self.block.copy_within(from..to, from + DX_ENTRY_BYTES);
        field::write::<u32>(self.block, from, hash);
        field::write::<u32>(self.block, from + 4, child.0);
        self.set_count(self.count + 1);
        Ok(true)
    }

    /// Makes entry `index` point to another block.
    pub fn set_child(&mut self, index: usize, child: LogicalBlock) {
        if index < self.count {
            field::write::<u32>(self.block, place(self.kind, index) + 4, child.0);
        }
    }

    /// Keeps the first `count` entries, at least 1 and at most those there are.
    pub fn truncate(&mut self, count: usize) {
        self.set_count(count.clamp(1, self.count));
    }

    /// Moves the upper half of the entries into `upper`, which becomes a node; returns the hash under which the
    /// parent is to list it. An entry that was at `index >= count()` (afterwards) is at `index - count()` in `upper`.
    ///
    /// # Errors
    /// `Corrupt`, and no change, when there are fewer than two entries or `upper` is not as long as this block.
    pub fn split_upper(&mut self, upper: &mut [u8]) -> Result<u32> {
        let kept = self.count / 2;
        let hash = self.as_node().hash(kept);
        if kept == 0 {
            return Err(corrupt("an index block with one entry cannot be split"));
        }
        self.copy_entries(kept, upper)?;
        self.set_count(kept);
        Ok(hash)
    }

    /// Moves all entries of a root into `lower`, which becomes its only child at `child`, one level deeper. The caller
    /// has seen that the level is allowed ([`super::max_indirect_levels`]).
    ///
    /// # Errors
    /// `Corrupt`, and no change, when this is no root or `lower` is not as long as this block.
    pub fn push_down(&mut self, lower: &mut [u8], child: LogicalBlock) -> Result<()> {
        if self.kind != DxKind::Root {
            return Err(corrupt("only an index root can be pushed down"));
        }
        self.copy_entries(0, lower)?;
        self.set_count(1);
        self.set_child(0, child);
        if let Some(levels) = self.block.get_mut(LEVELS_OFFSET) {
            *levels = levels.saturating_add(1);
        }
        Ok(())
    }

    /// Makes `node` a node of the entries from `first` on.
    fn copy_entries(&self, first: usize, node: &mut [u8]) -> Result<()> {
        let from = self.block.get(place(self.kind, first)..place(self.kind, self.count));
        let Some(from) = from.filter(|_| node.len() == self.block.len()) else {
            return Err(corrupt("index blocks of different sizes"));
        };
        init_node(node, LogicalBlock(0), self.has_csum);
        let at = DxKind::Node.entries_offset();
        let Some(to) = node.get_mut(at..at + from.len()) else {
            return Err(corrupt("index entries do not fit a node"));
        };
        to.copy_from_slice(from);
        put_counts(node, DxKind::Node, self.has_csum, self.count - first);
        Ok(())
    }

    fn set_count(&mut self, count: usize) {
        self.count = count;
        put_counts(self.block, self.kind, self.has_csum, count);
    }
}

impl DxNode<'_> {
    /// Whether an entry of `hash` may follow entry `index` without breaking the order. To be asked before the leaf is
    /// divided.
    #[must_use]
    pub fn accepts_after(&self, index: usize, hash: u32) -> bool {
        let next = index + 1;
        index < self.count && self.hash(index) <= hash && (next == self.count || hash <= self.hash(next))
    }
}

/// Makes the block a node with one entry.
pub fn init_node(block: &mut [u8], child: LogicalBlock, has_csum: bool) {
    block.fill(0);
    field::write::<u16>(block, 4, encode_rec_len(block.len()));
    init_entries(block, DxKind::Node, child, has_csum);
}

/// Writes the counts and the first entry.
pub(super) fn init_entries(block: &mut [u8], kind: DxKind, child: LogicalBlock, has_csum: bool) {
    put_counts(block, kind, has_csum, 1);
    field::write::<u32>(block, place(kind, 0) + 4, child.0);
}

fn put_counts(block: &mut [u8], kind: DxKind, has_csum: bool, count: usize) {
    // Both fit: a block has at most 64 KiB, so 8,191 entries.
    field::write::<u16>(block, place(kind, 0), kind.limit(block.len(), has_csum) as u16);
    field::write::<u16>(block, place(kind, 0) + 2, count as u16);
}

const fn place(kind: DxKind, index: usize) -> usize {
    kind.entries_offset() + index * DX_ENTRY_BYTES
}

/// Gives an index block the limit that it has with or without a checksum, and an empty checksum; `false`, and no change, if its entries
/// take the checksum's room.
///
/// # Errors
/// As [`DxNode::parse`], of the block as it was; `Corrupt` if it is no part of an index.
pub fn set_has_csum(block: &mut [u8], has_csum: bool) -> Result<bool> {
    let DxNode { kind, count, .. } = DxNode::parse_any(block, !has_csum)?;
    let limit = kind.limit(block.len(), has_csum);
    if count > limit {
        return Ok(false);
    }
    put_counts(block, kind, has_csum, count);
    let least = kind.limit(block.len(), true);
    block.get_mut(kind.entries_offset() + least * DX_ENTRY_BYTES..).unwrap_or_default().fill(0);
    Ok(true)
}
