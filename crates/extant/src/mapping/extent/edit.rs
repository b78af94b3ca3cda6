//! Applying a change of a leaf, and the changes that follow from it up to the root.
//!
//! Blocks for new nodes are allocated before anything is changed; from then on only damage can fail.

use extant_ondisk::extent::{ROOT_CAPACITY, block_capacity};
use extant_ondisk::{Entries, Extent, ExtentIndex, ExtentNode, GroupNumber, LogicalBlock, Run, Structure};
use extant_rt::Arc;

use super::leaf::{self, Splice};
use super::path::{Level, Path};
use crate::error::{Error, Location, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::Inode;
use crate::mapping::ContentChange;
use crate::mapping::extent::path::read_node;
use crate::metadata::update::MetadataUpdate;

impl MetadataUpdate<'_> {
    /// Maps a hole, which begins where the path was looked for, to blocks.
    ///
    /// # Errors
    /// `Corrupt` if it is no hole; `NoSpace` if the update did not reserve [`Path::growth`] of 1.
    pub(crate) fn insert_extent(
        &mut self,
        inode: &Arc<Inode>,
        path: Path,
        logical: LogicalBlock,
        run: Run,
        unwritten: bool,
    ) -> Result<ContentChange> {
        let len = u16::try_from(run.len).map_err(|_| Error::InvalidArgument("run too long"))?;
        let extent = Extent { logical, len, start: run.start, unwritten };
        let splice = leaf::insert(path.extents(), extent)
            .filter(|_| extent.end() <= path.end)
            .ok_or(self.corrupt(Structure::ExtentNode, inode, "mapped twice"))?;
        self.edit_leaf(inode, path, splice)
    }

    /// Changes the path's leaf, and its parents as it needs, up to the root.
    pub(super) fn edit_leaf(
        &mut self,
        inode: &Arc<Inode>,
        mut path: Path,
        splice: Splice,
    ) -> Result<ContentChange> {
        let mut spare = self.allocate_nodes(inode, path.growth(splice.added()))?;
        let (mut clusters, mut new_root) = (i64::try_from(spare.len()).unwrap_or(0), None);
        let shrinks = splice.entries.len() < splice.at.len();
        self.track_range(inode, splice.range(path.extents()));
        if let Some(Entries::Leaf(extents)) = path.levels.last_mut().map(|leaf| &mut leaf.node.entries) {
            extents.splice(splice.at, splice.entries);
        }
        // The level below this one is stored; this one is changed in memory, or needs no change.
        let mut changed = true;
        while let Some(mut level) = path.levels.pop().filter(|_| changed || shrinks) {
            let Some(parent) = path.levels.last_mut() else {
                if changed || self.only_child(inode, &level.node).is_some() {
                    let (root, freed) = self.fit_root(inode, level.node, &mut spare)?;
                    (clusters, new_root) = (clusters - freed, Some(root));
                }
                break;
            };
            if !changed {
                continue;
            }
            let Entries::Index(indexes) = &mut parent.node.entries else { break };
            let Some(buffer) = level.buffer.clone() else { break };
            let Some(first) = first_block(&level.node.entries) else {
                self.free_metadata(buffer.block)?;
                clusters -= 1;
                indexes.remove(parent.position);
                continue;
            };
            changed = false;
            if let Some(right) = split(&mut level) {
                let sibling = spare.pop().ok_or(Error::NoSpace)?;
                if let Some(logical) = first_block(&right.entries) {
                    indexes.insert(parent.position + 1, ExtentIndex { logical, child: sibling.block });
                    changed = true;
                }
                self.store_node(inode, &sibling, &right)?;
            }
            if let Some(index) = indexes.get_mut(parent.position).filter(|index| index.logical != first) {
                index.logical = first;
                changed = true;
            }
            self.store_node(inode, &buffer, &level.node)?;
        }
        // The root may be as it was. The inode changes all the same: a sync of the file must wait for its nodes.
        Ok(new_root.map(ContentChange::of_root).unwrap_or_default().with_clusters(clusters))
    }

    /// Buffers for new nodes: at the start of the inode's flex group, out of the way of the file's next blocks
    /// (kernel `ext4_inode_to_goal_block`).
    fn allocate_nodes(&mut self, inode: &Arc<Inode>, count: u32) -> Result<Vec<Arc<Buffer>>> {
        let (geometry, group) = (&self.sbi.geometry, self.sbi.group_of_inode(inode.number));
        let goal =
            geometry.group_first_block(GroupNumber(group.0 - group.0 % geometry.groups_per_flex.max(1)));
        (0..count).map(|_| self.allocate_metadata(goal, BufferKind::Extent(inode.owner()))).collect()
    }

    fn store_node(&mut self, inode: &Arc<Inode>, buffer: &Arc<Buffer>, content: &ExtentNode) -> Result<()> {
        let location = Location::of(Structure::ExtentNode).inode(inode.number).block(buffer.block);
        self.modify_buffer(buffer, |bytes| content.write(bytes)).map_err(|e| location.format(e))
    }

    /// The root, one level higher if its entries do not fit, or lower if those of its only child do; and how many nodes were
    /// freed.
    fn fit_root(
        &mut self,
        inode: &Arc<Inode>,
        mut root: ExtentNode,
        spare: &mut Vec<Arc<Buffer>>,
    ) -> Result<(ExtentNode, i64)> {
        let mut freed = 0;
        if root.entries.is_empty() {
            root = ExtentNode::empty_leaf(ROOT_CAPACITY);
        }
        if root.entries.len() > usize::from(ROOT_CAPACITY) {
            let below = spare.pop().ok_or(Error::NoSpace)?;
            let logical = first_block(&root.entries).unwrap_or_default();
            let depth = root.depth + 1;
            let moved = ExtentNode { max_entries: block_capacity(self.sbi.geometry.block_size), ..root };
            self.store_node(inode, &below, &moved)?;
            let index = ExtentIndex { logical, child: below.block };
            root = ExtentNode { depth, max_entries: ROOT_CAPACITY, entries: Entries::Index(vec![index]) };
        } else {
            // A child that cannot be read stays where it is: the tree is right without this.
            while let Some(child) = self.only_child(inode, &root) {
                self.free_metadata(child.0)?;
                freed += 1;
                root = ExtentNode { max_entries: ROOT_CAPACITY, ..child.1 };
            }
        }
        Ok((root, freed))
    }

    /// The only node below the root, if its entries fit the root.
    fn only_child(
        &self,
        inode: &Arc<Inode>,
        root: &ExtentNode,
    ) -> Option<(extant_ondisk::FsBlock, ExtentNode)> {
        let Entries::Index(indexes) = &root.entries else { return None };
        let [index] = indexes.as_slice() else { return None };
        let child = read_node(self.sbi, inode.owner(), index.child, root.depth - 1).ok()?.1;
        self.sbi.prepare_free_block(index.child).ok()?;
        let fits = !child.entries.is_empty() && child.entries.len() <= usize::from(ROOT_CAPACITY);
        fits.then_some((index.child, child))
    }
}

/// The first block that a node maps.
fn first_block(entries: &Entries) -> Option<LogicalBlock> {
    match entries {
        Entries::Leaf(extents) => extents.first().map(|extent| extent.logical),
        Entries::Index(indexes) => indexes.first().map(|index| index.logical),
    }
}

/// Cuts a node that has too many entries: its right part. One that grows at its end stays full, for a file that is
/// written in order then has full leaves.
fn split(level: &mut Level) -> Option<ExtentNode> {
    let max = usize::from(level.node.max_entries);
    let count = level.node.entries.len();
    if count <= max {
        return None;
    }
    let at = if level.position + 1 >= max { max } else { count / 2 };
    let entries = match &mut level.node.entries {
        Entries::Leaf(extents) => Entries::Leaf(extents.split_off(at)),
        Entries::Index(indexes) => Entries::Index(indexes.split_off(at)),
    };
    Some(ExtentNode { entries, ..level.node.clone() })
}
