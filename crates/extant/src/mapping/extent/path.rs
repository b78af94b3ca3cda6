//! The path from the root of a tree to a leaf, decoded.

use extant_ondisk::{Entries, Extent, ExtentIndex, ExtentNode, FsBlock, LogicalBlock, RawInode, Structure};
use extant_rt::Arc;

use super::lookup::{check_begin, check_range};
use crate::error::{Location, Result};
use crate::incore::buffer::{Buffer, BufferKind, Owner};
use crate::incore::inode::Inode;
use crate::mapping::{BlockMap, LOGICAL_END};
use crate::metadata::SbInfo;

/// A node on the way.
#[derive(Debug)]
pub(super) struct Level {
    /// None for the root.
    pub(super) buffer: Option<Arc<Buffer>>,
    pub(super) node: ExtentNode,
    /// In an index node, the entry of the next level; in a leaf, how many extents start at or before the block
    /// that was looked for.
    pub(super) position: usize,
}

/// The way from the root to the leaf where a block is mapped, or would be.
#[derive(Debug)]
pub(crate) struct Path {
    /// From the root to the leaf; never empty.
    pub(super) levels: Vec<Level>,
    /// The range that the leaf may map: from the block that its parent names to the next leaf.
    pub(super) from: u64,
    pub(super) end: u64,
}

impl Path {
    /// Levels below the root.
    pub(super) fn depth(&self) -> usize {
        self.levels.len() - 1
    }

    /// The blocks of the levels below the root.
    pub(super) fn nodes(&self) -> impl Iterator<Item = FsBlock> {
        self.levels.iter().filter_map(|level| level.buffer.as_ref().map(|buffer| buffer.block))
    }

    /// The extents of the leaf.
    pub(super) fn extents(&self) -> &[Extent] {
        match self.levels.last().map(|leaf| &leaf.node.entries) {
            Some(Entries::Leaf(extents)) => extents,
            _ => &[],
        }
    }

    /// How many extents of the leaf start at or before the block that was looked for.
    pub(super) fn position(&self) -> usize {
        self.levels.last().map_or(0, |leaf| leaf.position)
    }

    /// The extent at or before the block that was looked for.
    pub(crate) fn before(&self) -> Option<&Extent> {
        self.position().checked_sub(1).and_then(|position| self.extents().get(position))
    }

    /// The extent behind it, in the same leaf.
    pub(crate) fn after(&self) -> Option<&Extent> {
        self.extents().get(self.position())
    }

    /// Where to allocate a block so that the file lies in order (`ext4_ext_find_goal`).
    pub(crate) fn goal(&self, logical: LogicalBlock) -> Option<FsBlock> {
        if let Some(before) = self.before() {
            return before.start.checked_add(u64::from(logical.0 - before.logical.0));
        }
        let after = self.after()?;
        after.start.0.checked_sub(u64::from(after.logical.0 - logical.0)).map(FsBlock)
    }

    /// Blocks for tree nodes that an edit of the leaf may take, if it adds up to `added` entries.
    pub(crate) fn growth(&self, added: usize) -> u32 {
        let mut added = added;
        let mut blocks = 0;
        for level in self.levels.iter().rev() {
            if level.node.entries.len() + added <= usize::from(level.node.max_entries) {
                break;
            }
            blocks += 1;
            added = 1;
        }
        blocks
    }

    /// Whether no leaf comes before this one.
    pub(super) fn is_leftmost(&self) -> bool {
        self.levels.iter().rev().skip(1).all(|level| level.position == 0)
    }

    /// Credits for an edit of the leaf that takes `growth` blocks: the inode; the nodes on the way; bitmap and
    /// descriptor of each node that is freed, on the way and of those that move up into the root; and each new node
    /// with its bitmap and its descriptor.
    pub(crate) fn credits(&self, growth: u32) -> u32 {
        let depth = self.depth() as u32;
        1 + depth + 2 * 2 * depth + 3 * growth
    }
}

impl BlockMap {
    /// The way to the leaf of a block, of an inode whose fields are `raw`.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn extent_path(&self, inode: &Inode, raw: &RawInode, logical: LogicalBlock) -> Result<Path> {
        let owner = inode.owner();
        let location = Location::of(Structure::ExtentNode).inode(owner.inode);
        let root = ExtentNode::parse(raw.i_block(), None).map_err(|e| location.format(e))?;
        let (mut from, mut end) = (0, LOGICAL_END);
        let mut levels = Vec::with_capacity(usize::from(root.depth) + 1);
        check_range(&root, from, end).map_err(|reason| location.corrupt(reason))?;
        let (mut buffer, mut current) = (None, root);
        loop {
            let next = match &current.entries {
                Entries::Leaf(extents) => {
                    let position = extents.partition_point(|extent| extent.logical <= logical);
                    levels.push(Level { buffer, node: current, position });
                    return Ok(Path { levels, from, end });
                }
                Entries::Index(indexes) => {
                    let position =
                        indexes.partition_point(|index| index.logical <= logical).saturating_sub(1);
                    let index =
                        indexes.get(position).ok_or(location.corrupt("index node without entries"))?;
                    from = u64::from(index.logical.0);
                    end = indexes.get(position + 1).map_or(end, |next| u64::from(next.logical.0));
                    (position, *index, current.depth - 1)
                }
            };
            levels.push(Level { buffer, node: current, position: next.0 });
            let (child, node) = self.child_node(owner, &next.1, next.2, end)?;
            (buffer, current) = (Some(child), node);
        }
    }

    /// The node that an entry of its parent names. It maps nothing from block `end` of the file on.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if it is none, or maps other blocks of the file than its parent says.
    pub(super) fn child_node(
        &self,
        owner: Owner,
        index: &ExtentIndex,
        depth: u16,
        end: u64,
    ) -> Result<(Arc<Buffer>, ExtentNode)> {
        let (buffer, node) = read_node(self, owner, index.child, depth)?;
        check_begin(&node, index.logical)
            .and_then(|()| check_range(&node, u64::from(index.logical.0), end))
            .map_err(|reason| {
                Location::of(Structure::ExtentNode).inode(owner.inode).block(index.child).corrupt(reason)
            })?;
        Ok((buffer, node))
    }
}

/// A node of a tree in a block.
///
/// # Errors
/// `Io`; `Corrupt`.
pub(super) fn read_node(
    sbi: &SbInfo,
    owner: Owner,
    block: FsBlock,
    depth: u16,
) -> Result<(Arc<Buffer>, ExtentNode)> {
    let location = Location::of(Structure::ExtentNode).inode(owner.inode);
    let buffer = sbi.buffer(block, BufferKind::Extent(owner), location)?;
    let node = buffer
        .read(|bytes| ExtentNode::parse(bytes, Some(depth)))
        .map_err(|e| location.block(block).format(e))?;
    Ok((buffer, node))
}
