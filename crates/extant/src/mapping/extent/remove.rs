//! Freeing a range of a file, from its end to its beginning, in steps that each fit an update.

use extant_ondisk::{Extent, LogicalBlock, Run, Structure};
use extant_rt::Arc;

use super::leaf::{self, Splice};
use super::path::Path;
use crate::error::{Location, Result};
use crate::incore::inode::Inode;
use crate::mapping::cluster::ClustersLeft;
use crate::mapping::{BlockMap, ContentKind};
use crate::metadata::update::MetadataUpdate;

/// One step of freeing a range of a tree: what is cut out of one leaf.
#[derive(Debug)]
pub(crate) struct Removal {
    path: Path,
    splice: Splice,
    /// Its blocks, of metadata.
    unmapped: Vec<Run>,
    /// The clusters of its blocks that no other is in.
    freed: ClustersLeft,
    kind: ContentKind,
    /// Credits that the step takes.
    pub(crate) credits: u32,
    /// Blocks that the step may take for nodes: a hole in an extent makes two of it.
    pub(crate) blocks: u32,
    /// The end of the remaining range; nothing is left if that is its start.
    pub(crate) end: u64,
}

impl Removal {
    /// Levels of the tree below its root.
    pub(crate) fn depth(&self) -> usize {
        self.path.depth()
    }
}

impl BlockMap {
    /// The next step of freeing the blocks from `from` up to `end`, of about `credits_max` credits. None if there
    /// are none.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn extent_removal(
        &self,
        inode: &Inode,
        from: u64,
        mut end: u64,
        credits_max: u32,
    ) -> Result<Option<Removal>> {
        let location = Location::of(Structure::ExtentNode).inode(inode.number);
        let kind = ContentKind::of(inode);
        while from < end {
            let last = u32::try_from(end - 1).map_err(|_| location.corrupt("beyond the largest file"))?;
            let path = self.extent_path(inode, &inode.raw(), LogicalBlock(last))?;
            let mut cut_from = end;
            let mut credits = path.credits(path.growth(1));
            let mut room = kind.step_blocks_max();
            for extent in path.extents()[..path.position()].iter().rev() {
                // With no room left the part is empty.
                let least = extent.end().min(end).saturating_sub(room);
                let Some(cut) = leaf::part(extent, from.max(least), end) else { break };
                let cost = self.run_credits(run_of(&cut));
                if cut_from < end && credits.saturating_add(cost) > credits_max {
                    break;
                }
                credits = credits.saturating_add(cost);
                room -= u64::from(cut.len);
                cut_from = u64::from(cut.logical.0);
            }
            if cut_from < end {
                let (splice, parts) = leaf::remove(path.extents(), cut_from, end);
                let unmapped = match kind {
                    ContentKind::Data => Vec::new(),
                    ContentKind::Metadata => parts.iter().map(run_of).collect(),
                };
                let freed = self.clusters_of_only(inode, cut_from..end, parts)?;
                freed.clusters.iter().try_for_each(|run| self.allocator.prepare_free(*run))?;
                path.nodes().try_for_each(|block| self.prepare_free_block(block))?;
                let blocks = path.growth(splice.added());
                let end = left_end(&path, splice.at.start, from, cut_from);
                return Ok(Some(Removal { path, splice, unmapped, freed, kind, credits, blocks, end }));
            }
            if path.position() > 0 || path.is_leftmost() {
                return Ok(None);
            }
            // This leaf is empty, as no ext4 leaves one.
            end = end.min(path.from);
        }
        Ok(None)
    }

    /// Credits for marking or freeing a run: the bitmap and the descriptor of each group.
    pub(crate) fn run_credits(&self, run: Run) -> u32 {
        let group =
            |block| self.geometry.group_of(extant_ondisk::FsBlock(block)).map_or(0, |(group, _)| group.0);
        let last = run.start.0.saturating_add(u64::from(run.len.saturating_sub(1)));
        2 * (1 + group(last).saturating_sub(group(run.start.0)))
    }
}

fn run_of(extent: &Extent) -> Run {
    Run { start: extent.start, len: u32::from(extent.len) }
}

/// Where what is left of a range from `from` ends, when a leaf was cut from `cut_from` on, in or behind its extent
/// `first`.
fn left_end(path: &Path, first: usize, from: u64, cut_from: u64) -> u64 {
    // The rest of that extent, or the extent before it that the next step finds.
    if path.extents().get(first).is_some_and(|extent| u64::from(extent.logical.0) < cut_from) {
        return cut_from;
    }
    match first.checked_sub(1).and_then(|before| path.extents().get(before)) {
        Some(before) if before.end() <= from => from,
        Some(_) => cut_from,
        None if path.from <= from || path.is_leftmost() => from,
        None => cut_from.min(path.from),
    }
}

impl MetadataUpdate<'_> {
    /// Carries out a step.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn remove_extents(&mut self, inode: &Arc<Inode>, removal: Removal) -> Result<()> {
        let Removal { path, splice, unmapped, freed, kind, .. } = removal;
        self.unmap_extents(inode, path, splice, &freed)?;
        self.free_content(kind, &unmapped, &freed.clusters)
    }

    /// Carries out a step but for freeing the clusters that no block is in any more.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn unmap_only(&mut self, inode: &Arc<Inode>, removal: Removal) -> Result<()> {
        self.unmap_extents(inode, removal.path, removal.splice, &removal.freed)
    }

    fn unmap_extents(
        &mut self,
        inode: &Arc<Inode>,
        path: Path,
        splice: Splice,
        freed: &ClustersLeft,
    ) -> Result<()> {
        let change = self.edit_leaf(inode, path, splice)?;
        self.change_content(inode, change.with_clusters(-freed.count()), |_| ())?;
        if freed.has_shared {
            inode.state_mut().unmapped_tid = Some(self.tid());
        }
        Ok(())
    }
}
