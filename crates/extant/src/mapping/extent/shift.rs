//! Moving the extents behind a block of a file to other blocks of it, leaf by leaf.
//!
//! A shift to the left begins at the first leaf, one to the right at the last: after each step the extents are in
//! order, and an extent always moves into a hole.

use extant_ondisk::{Extent, LogicalBlock};
use extant_rt::Arc;

use super::leaf::{self, Shift, Splice};
use super::path::Path;
use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::mapping::{BlockMap, LOGICAL_END};
use crate::metadata::update::MetadataUpdate;

/// One step: the extents of one leaf.
#[derive(Debug)]
pub(crate) struct Move {
    path: Path,
    splice: Splice,
    /// Credits that the step takes.
    pub(crate) credits: u32,
    /// Blocks that the step may take for nodes: none but for cutting an extent.
    pub(crate) blocks: u32,
    /// Where to look for the next step; None after the last one.
    pub(crate) next: Option<u64>,
}

impl BlockMap {
    /// The step of moving the extents from block `from` on that begins at `at`: for a shift to the left first
    /// `from`, for one to the right first [`LOGICAL_END`]; then what the step before said. None if there is no
    /// such extent.
    ///
    /// # Errors
    /// `InvalidArgument` if an extent would move beyond the last block; `Io`; `Corrupt`.
    pub(crate) fn extent_move(
        &self,
        inode: &Inode,
        from: u64,
        at: u64,
        shift: Shift,
    ) -> Result<Option<Move>> {
        let mut at = Some(at);
        while let Some(looked_at) = at {
            let logical = match shift {
                Shift::Left(_) => looked_at,
                Shift::Right(_) => looked_at.saturating_sub(1),
            };
            let logical = u32::try_from(logical).map_err(|_| Error::FileTooLarge)?;
            let path = self.extent_path(inode, &inode.raw(), LogicalBlock(logical))?;
            let splice = leaf::shift(path.extents(), from, shift)
                .ok_or(Error::InvalidArgument("would move beyond the last block"))?;
            let next = match shift {
                Shift::Left(_) => Some(path.end).filter(|end| *end < LOGICAL_END),
                // An extent that stays is the last one that does.
                Shift::Right(_) if path.extents().first().is_some_and(|e| u64::from(e.logical.0) < from) => {
                    None
                }
                Shift::Right(_) => Some(path.from).filter(|start| *start > from && !path.is_leftmost()),
            };
            if !splice.at.is_empty() {
                let blocks = path.growth(splice.added());
                let credits = path.credits(blocks);
                return Ok(Some(Move { path, splice, credits, blocks, next }));
            }
            at = next;
        }
        Ok(None)
    }

    /// The step of cutting the extent that holds `at` behind its first block in two. None if there is none.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn extent_cut(&self, inode: &Inode, at: u64) -> Result<Option<Move>> {
        let logical = u32::try_from(at).map_err(|_| Error::FileTooLarge)?;
        let path = self.extent_path(inode, &inode.raw(), LogicalBlock(logical))?;
        let Some(splice) = leaf::cut(path.extents(), at) else { return Ok(None) };
        let blocks = path.growth(splice.added());
        let credits = path.credits(blocks);
        Ok(Some(Move { path, splice, credits, blocks, next: None }))
    }

    /// The block of the file behind its last extent.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn extents_end(&self, inode: &Inode) -> Result<u64> {
        let path = self.extent_path(inode, &inode.raw(), LogicalBlock((LOGICAL_END - 1) as u32))?;
        Ok(path.extents().last().map_or(0, Extent::end))
    }
}

impl MetadataUpdate<'_> {
    /// Carries out a step.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn move_extents(&mut self, inode: &Arc<Inode>, step: Move) -> Result<()> {
        let change = self.edit_leaf(inode, step.path, step.splice)?;
        self.change_content(inode, change, |_| ())
    }
}
