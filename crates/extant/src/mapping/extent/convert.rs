//! Making blocks of an unwritten extent written, and the other way.
//!
//! A conversion is planned first, so that it reserves the tree blocks that it takes and no more: a file that is written in
//! order takes none, because each piece joins the one before. Where no tree block can be allocated, a wider range becomes
//! written and the part that the caller does not write is zeroed on the disk, so that the leaf gets no more entries.
//!
//! Source: `ext4_ext_convert_to_initialized`, `ext4_split_extent_at`, `ext4_ext_zeroout`. Tests: `leaf`,
//! `tests/fallocated.rs`.

use extant_ondisk::{Extent, FsBlock, LogicalBlock, Run, Structure};
use extant_rt::Arc;

use super::leaf::{self, Splice};
use super::path::Path;
use crate::error::{Location, Result};
use crate::incore::inode::Inode;

use crate::mapping::{BlockMap, ContentChange};
use crate::metadata::update::MetadataUpdate;

/// A change of blocks within one extent from unwritten to written or back, before it is made.
#[derive(Debug)]
pub(crate) struct Conversion {
    path: Path,
    splice: Splice,
    /// The blocks of the file that were asked for: the first, and the one behind the last.
    asked: (u64, u64),
    /// Blocks of the disk beside those asked for that become written too, and must be zeroed before.
    pub(crate) to_zero: Vec<Run>,
    /// Credits that it takes.
    pub(crate) credits: u32,
    /// Blocks that it takes for tree nodes.
    pub(crate) blocks: u32,
}

impl Conversion {
    fn new(path: Path, splice: Splice, asked: (u64, u64)) -> Self {
        let blocks = path.growth(splice.added());
        let credits = path.credits(blocks);
        Self { path, splice, asked, to_zero: Vec::new(), credits, blocks }
    }

    /// The same with as many of the blocks around written as it takes for the tree to get no block. None if that would have
    /// blocks from `end_max` on written, which must not be behind the end of the file.
    pub(crate) fn zeroing_out(self, end_max: u64) -> Option<Self> {
        let (from, end) = self.asked;
        let extent = *self.path.before()?;
        let extent_end = extent.end().min(end_max.max(end));
        let start = u64::from(extent.logical.0);
        let mut ranges = [(start, end), (from, extent_end), (start, extent_end)];
        ranges.sort_by_key(|(from, end)| end - from);
        let (range, splice) = ranges.into_iter().find_map(|(from, end)| {
            let splice = leaf::convert(self.path.extents(), from, end, false)?;
            (self.path.growth(splice.added()) == 0).then_some(((from, end), splice))
        })?;
        let around = [(range.0, from), (end, range.1)];
        let to_zero = around.into_iter().filter_map(|(from, end)| blocks_of(&extent, from, end)).collect();
        Some(Self { to_zero, ..Self::new(self.path, splice, self.asked) })
    }
}

/// The blocks of the disk of a part of an extent.
fn blocks_of(extent: &Extent, from: u64, end: u64) -> Option<Run> {
    let len = u32::try_from(end.checked_sub(from)?).ok().filter(|len| *len > 0)?;
    Some(Run { start: FsBlock(extent.start.0 + (from - u64::from(extent.logical.0))), len })
}

impl BlockMap {
    /// Plans to make `len` blocks from `logical` on, all within one extent, written or unwritten.
    ///
    /// # Errors
    /// `Corrupt` if they are not in one extent; `Io`.
    pub(crate) fn conversion(
        &self,
        inode: &Inode,
        logical: LogicalBlock,
        len: u32,
        unwritten: bool,
    ) -> Result<Conversion> {
        let path = self.extent_path(inode, &inode.raw(), logical)?;
        let (from, end) = (u64::from(logical.0), u64::from(logical.0) + u64::from(len));
        let location = Location::of(Structure::ExtentNode).inode(inode.number);
        let splice = leaf::convert(path.extents(), from, end, unwritten)
            .ok_or(location.corrupt("changed under a lock"))?;
        Ok(Conversion::new(path, splice, (from, end)))
    }
}

impl MetadataUpdate<'_> {
    /// Carries out a conversion, all but what the inode says of it. The zeroes around the range are on the disk already.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn convert_extent(
        &mut self,
        inode: &Arc<Inode>,
        conversion: Conversion,
    ) -> Result<ContentChange> {
        self.edit_leaf(inode, conversion.path, conversion.splice)
    }
}
