//! Finding blocks in a tree, without decoding whole nodes.

use extant_ondisk::extent::{self, MAX_DEPTH};
use extant_ondisk::{Entries, Extent, ExtentNode, FsBlock, LogicalBlock, Structure};
use extant_rt::Arc;

use crate::error::{Location, Result};
use crate::incore::buffer::{Buffer, BufferKind, Owner};
use crate::mapping::{BlockMap, LOGICAL_END, Mapping};

/// A node's answer for a block.
enum Step {
    /// Ask the child, which begins at `from`; what it does not map is a hole up to `end`.
    Down {
        child: FsBlock,
        from: LogicalBlock,
        end: u64,
    },
    Found(Extent),
    Hole {
        end: u64,
    },
}

/// Looks into one node. `from` is where its parent says that it begins; None for the root.
fn step(
    bytes: &[u8],
    depth: u16,
    logical: LogicalBlock,
    (from, end): (Option<LogicalBlock>, u64),
) -> Result<Step, &'static str> {
    if extent::depth(bytes) != Some(depth) {
        return Err("not a node of this depth");
    }
    if let Some(from) = from
        && extent::first_logical(bytes).is_some_and(|first| first != from)
    {
        return Err(BEGINS_ELSEWHERE);
    }
    if depth > 0 {
        let (position, index) = extent::search_index(bytes, logical).ok_or("index node without entries")?;
        let next = if index.logical > logical { Some(index) } else { extent::index_at(bytes, position + 1) };
        let end = next.map_or(end, |next| end.min(u64::from(next.logical.0)));
        return Ok(if index.logical > logical {
            Step::Hole { end }
        } else {
            Step::Down { child: index.child, from: index.logical, end }
        });
    }
    let (next, found) = match extent::search_leaf(bytes, logical) {
        Some((position, found)) => (position + 1, Some(found)),
        None => (0, None),
    };
    if let Some(found) = found.filter(|found| found.end() > u64::from(logical.0)) {
        return Ok(Step::Found(found));
    }
    let next = extent::extent_at(bytes, next).map_or(end, |next| end.min(u64::from(next.logical.0)));
    Ok(Step::Hole { end: next })
}

impl BlockMap {
    /// [`BlockMap::map`] of a tree whose root is `root`.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn map_extents(
        &self,
        owner: Owner,
        root: &[u8],
        logical: LogicalBlock,
        len_max: u32,
    ) -> Result<Mapping> {
        let location = Location::of(Structure::ExtentNode).inode(owner.inode);
        let mut depth = root_depth(root, location)?;
        let mut found =
            step(root, depth, logical, (None, LOGICAL_END)).map_err(|reason| location.corrupt(reason))?;
        loop {
            match found {
                Step::Down { child, from, end } => {
                    depth -= 1;
                    let buffer = self.buffer(child, BufferKind::Extent(owner), location)?;
                    found = buffer
                        .read(|bytes| step(bytes, depth, logical, (Some(from), end)))
                        .map_err(|reason| location.block(child).corrupt(reason))?;
                }
                Step::Found(extent) => {
                    let skipped = logical.0 - extent.logical.0;
                    let start = FsBlock(extent.start.0 + u64::from(skipped));
                    let len = (u32::from(extent.len) - skipped).min(len_max);
                    return Ok(Mapping::Data { start, len, unwritten: extent.unwritten });
                }
                Step::Hole { end } => {
                    let len = end.saturating_sub(u64::from(logical.0)).clamp(1, u64::from(len_max));
                    return Ok(Mapping::Hole { len: len as u32 });
                }
            }
        }
    }

    /// The extents of a tree whose root is `root`, in order.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn all_tree_extents(&self, owner: Owner, root: &[u8]) -> Result<Vec<Extent>> {
        Ok(self.whole_tree(owner, root)?.1)
    }

    /// The nodes below the root `root`, and the extents of the tree in order.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn whole_tree(&self, owner: Owner, root: &[u8]) -> Result<(Vec<Arc<Buffer>>, Vec<Extent>)> {
        let location = Location::of(Structure::ExtentNode).inode(owner.inode);
        let root = ExtentNode::parse(root, None).map_err(|e| location.format(e))?;
        check_range(&root, 0, LOGICAL_END).map_err(|reason| location.corrupt(reason))?;
        let mut tree = (Vec::new(), Vec::new());
        self.collect(owner, &root, LOGICAL_END, &mut tree)?;
        Ok(tree)
    }

    /// Ends, because the depth falls, and because each child maps a range of its own or is an empty leaf.
    fn collect(
        &self,
        owner: Owner,
        node: &ExtentNode,
        end: u64,
        tree: &mut (Vec<Arc<Buffer>>, Vec<Extent>),
    ) -> Result<()> {
        match &node.entries {
            Entries::Leaf(own) => tree.1.extend_from_slice(own),
            Entries::Index(indexes) => {
                for (position, index) in indexes.iter().enumerate() {
                    let next = indexes.get(position + 1).map_or(end, |next| u64::from(next.logical.0));
                    let (buffer, child) = self.child_node(owner, index, node.depth - 1, next)?;
                    tree.0.push(buffer);
                    self.collect(owner, &child, next, tree)?;
                }
            }
        }
        Ok(())
    }
}

/// The depth of a tree by its root.
fn root_depth(root: &[u8], location: Location) -> Result<u16> {
    extent::depth(root)
        .filter(|depth| *depth <= MAX_DEPTH)
        .ok_or(location.corrupt("no root of an extent tree"))
}

const BEGINS_ELSEWHERE: &str = "does not begin where its parent says";

/// Checks that a node begins where its parent says, as `ext4_valid_extent_entries` does. An empty leaf passes.
pub(super) fn check_begin(node: &ExtentNode, from: LogicalBlock) -> Result<(), &'static str> {
    let first = match &node.entries {
        Entries::Leaf(extents) => extents.first().map(|extent| extent.logical),
        Entries::Index(indexes) => indexes.first().map(|index| index.logical),
    };
    if first.is_some_and(|first| first != from) { Err(BEGINS_ELSEWHERE) } else { Ok(()) }
}

/// Whether the entries of a node lie within what its parent says of it.
pub(super) fn check_range(node: &ExtentNode, from: u64, end: u64) -> Result<(), &'static str> {
    let (first, last) = match &node.entries {
        Entries::Leaf(extents) => (extents.first().map(|e| e.logical), extents.last().map(Extent::end)),
        Entries::Index(indexes) => {
            (indexes.first().map(|e| e.logical), indexes.last().map(|e| u64::from(e.logical.0) + 1))
        }
    };
    let outside = first.is_some_and(|first| u64::from(first.0) < from) || last.is_some_and(|last| last > end);
    if outside { Err("maps blocks that belong to another node") } else { Ok(()) }
}
