//! Extent trees: each node's place, checksum, order and range.

use extant_ondisk::extent::{ENTRY_SIZE, ExtentNode};
use extant_ondisk::{Entries, Extent, ExtentIndex, FsBlock, Structure};

use super::Checker;
use super::maps::{Run, Walk};
use crate::error::{Location, Result};

/// Slots that a node may leave for a tail.
const SPARE_SLOTS: usize = 2;

/// Children of a node that are read ahead together.
const CHILDREN_AHEAD: usize = 128;

/// The blocks of the file that a node may map.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: u64,
    end: u64,
}

impl Checker<'_> {
    pub(super) fn map_extents(&mut self, root: &[u8], walk: &mut Walk<'_>) -> Result<()> {
        let location = Location::of(Structure::ExtentNode).inode(walk.number);
        let Some(node) = self.parse_node(root, None, location) else { return Ok(()) };
        self.map_node(node, Range { start: 0, end: 1 << 32 }, location, walk)
    }

    fn parse_node(&mut self, bytes: &[u8], depth: Option<u16>, location: Location) -> Option<ExtentNode> {
        let node = match ExtentNode::parse(bytes, depth) {
            Ok(node) => node,
            Err(error) => {
                self.findings.add_format(location, error);
                return None;
            }
        };
        let room = bytes.len().saturating_sub(ENTRY_SIZE) / ENTRY_SIZE;
        if usize::from(node.max_entries) + SPARE_SLOTS < room {
            self.findings.add(location, "fewer entries promised than fit");
        }
        Some(node)
    }

    /// Recursion is as deep as the tree: [`ExtentNode::parse`] bounds its depth, and each level has one less.
    fn map_node(
        &mut self,
        node: ExtentNode,
        range: Range,
        location: Location,
        walk: &mut Walk<'_>,
    ) -> Result<()> {
        match node.entries {
            Entries::Leaf(extents) => {
                for extent in extents {
                    if self.findings.is_full() {
                        break;
                    }
                    self.map_extent(extent, range, location, walk);
                }
            }
            Entries::Index(indexes) => {
                let children: Vec<_> = indexes.iter().map(|index| index.child).collect();
                let ends: Vec<u64> = indexes.iter().skip(1).map(|next| u64::from(next.logical.0)).collect();
                for (position, index) in indexes.into_iter().enumerate() {
                    if position.is_multiple_of(CHILDREN_AHEAD) {
                        self.read_ahead(children.iter().copied().skip(position).take(CHILDREN_AHEAD));
                    }
                    let end = ends.get(position).copied().unwrap_or(range.end);
                    self.map_child(index, end, node.depth - 1, range, walk)?;
                }
            }
        }
        Ok(())
    }

    fn map_extent(&mut self, extent: Extent, range: Range, location: Location, walk: &mut Walk<'_>) {
        let logical = u64::from(extent.logical.0);
        if logical < range.start || extent.end() > range.end {
            self.findings.add(location, format!("the extent at {logical} is outside its node's range"));
        }
        if walk.runs.is_some() && extent.unwritten {
            self.findings.add(location, format!("the directory's blocks from {logical} on are unwritten"));
        }
        let run = Run { logical, start: extent.start, len: u64::from(extent.len) };
        self.claim_content(walk, run, extent.unwritten, location);
    }

    fn map_child(
        &mut self,
        index: ExtentIndex,
        end: u64,
        depth: u16,
        parent: Range,
        walk: &mut Walk<'_>,
    ) -> Result<()> {
        let block: FsBlock = index.child;
        let start = u64::from(index.logical.0);
        let location = Location::of(Structure::ExtentNode).inode(walk.number).block(block);
        if start < parent.start || start >= parent.end {
            self.findings.add(location, "outside its parent's range");
        }
        if self.findings.is_full() || !self.claim_map_block(walk, block, Structure::ExtentNode) {
            return Ok(());
        }
        let bytes = self.read_last(block, location)?;
        if !self.checksums.verify_extent_block(walk.number, walk.generation, &bytes) {
            self.findings.add(location, "bad checksum");
        }
        let Some(node) = self.parse_node(&bytes, Some(depth), location) else { return Ok(()) };
        let first = match &node.entries {
            Entries::Leaf(extents) => extents.first().map(|extent| extent.logical),
            Entries::Index(indexes) => indexes.first().map(|index| index.logical),
        };
        if first != Some(index.logical) {
            self.findings.add(location, "does not begin where its parent says");
        }
        self.map_node(node, Range { start, end }, location, walk)
    }
}
