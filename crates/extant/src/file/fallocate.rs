//! Allocating, zeroing, punching, removing and inserting ranges of a file.
//!
//! Each works in steps that fit an update, and the file is valid after each; a crash may leave some steps done.
//! Removing and inserting a range happens within one transaction if it has room for all steps.
//!
//! Locks: `INODE` of the file, exclusively.
//!
//! Source: `ext4_fallocate`, `ext4_zero_range`, `ext4_punch_hole`, `ext4_collapse_range`, `ext4_insert_range`,
//! `vfs_fallocate`.
//!
//! Tests: `tests/files.rs` (a model), `tests/fallocated.rs` (full disks), `tests/trees.rs`, `tests/restart.rs` (crashes).

use extant_ondisk::extent::MAX_UNWRITTEN_LEN;
use extant_ondisk::{InodeFlags, LogicalBlock};
use extant_rt::Arc;

use crate::error::{Error, Result};
use crate::file::Files;
use crate::incore::inode::Inode;
use crate::mapping::extent::Shift;
use crate::mapping::prealloc::{Allocated, Wanted};
use crate::mapping::{LOGICAL_END, MapKind, Mapping};
use crate::metadata::reserve::writer_may_use;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate, RUN_CREDITS};

/// The change to make to a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallocate {
    /// Allocates blocks where there are none, so that writing there needs no space.
    Allocate {
        /// Leave the size, even if the range ends behind it.
        keep_size: bool,
    },
    /// Makes the range read as zeroes, with blocks allocated.
    ZeroRange {
        /// Leave the size, even if the range ends behind it.
        keep_size: bool,
    },
    /// Makes the range read as zeroes, and frees its blocks. The size stays.
    PunchHole,
    /// Takes the range out; what is behind it moves to its start. Whole blocks only (with `bigalloc`, whole clusters), and not up to the end.
    CollapseRange,
    /// Puts a hole in; what begins there moves behind it. Whole blocks only (with `bigalloc`, whole clusters), and not at the end.
    InsertRange,
}

/// A range in bytes.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
    /// Whether its blocks may be those kept for root.
    privileged: bool,
}

impl Files {
    /// Does `what` to `bytes` bytes from `offset` on. A `privileged` caller may use the blocks kept for root.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty range, and by what [`Fallocate`] says of its kinds; `FileTooLarge`; `NoSpace`;
    /// `NotPermitted` for an immutable or verity file, or an append-only one unless allocating; `Unsupported` for a file
    /// without extents; `IsADirectory`; `ReadOnly`; `Io`; `Corrupt`. Steps done before stay done.
    pub(crate) fn fallocate(
        &self,
        inode: &Arc<Inode>,
        what: Fallocate,
        offset: u64,
        bytes: u64,
        privileged: bool,
    ) -> Result<()> {
        if bytes == 0 {
            return Err(Error::InvalidArgument("empty range"));
        }
        self.check_regular(&inode.raw())?;
        self.writable()?;
        let _content = inode.content.write();
        let touched_end = match what {
            // All behind it moves.
            Fallocate::CollapseRange | Fallocate::InsertRange => inode.size().max(offset),
            _ => offset.saturating_add(bytes),
        };
        self.flush_range_out(inode, offset..touched_end)?;
        let raw = inode.raw();
        let flags = raw.flags();
        let allocates = matches!(what, Fallocate::Allocate { .. });
        if flags.intersects(InodeFlags::FIXED_CONTENT) || (flags.contains(InodeFlags::APPEND) && !allocates) {
            return Err(Error::NotPermitted);
        }
        drop(raw);
        self.move_to_blocks(inode)?;
        let raw = inode.raw();
        if self.map_kind(&raw) != MapKind::Extents {
            return Err(Error::Unsupported("ranges of a file without extents"));
        }
        let end =
            offset.checked_add(bytes).filter(|end| *end <= self.size_max(&raw)).ok_or(Error::FileTooLarge)?;
        drop(raw);
        if !allocates {
            self.discard_preallocations(inode);
        }
        let range = Range { start: offset, end, privileged };
        match what {
            Fallocate::Allocate { keep_size } => self.allocate_range(inode, range, keep_size),
            Fallocate::ZeroRange { keep_size } => self.zero_range(inode, range, keep_size),
            Fallocate::PunchHole => self.punch_hole(inode, range),
            Fallocate::CollapseRange => self.collapse_range(inode, range),
            Fallocate::InsertRange => self.insert_range(inode, range),
        }
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.geometry.block_size)
    }

    fn allocate_range(&self, inode: &Arc<Inode>, range: Range, keep_size: bool) -> Result<()> {
        self.fill_holes(inode, range)?;
        self.finish_range(inode, range, keep_size)
    }

    /// Maps every hole that the range touches to unwritten blocks.
    fn fill_holes(&self, inode: &Arc<Inode>, range: Range) -> Result<()> {
        let end = self.blocks_of(range.end);
        let mut at = range.start / self.block_bytes();
        while at < end {
            let logical = LogicalBlock(at as u32);
            let mapping = self.map(inode, &inode.raw(), logical, (end - at) as u32)?;
            at += match mapping {
                Mapping::Hole { len } => u64::from(self.fill_hole(inode, logical, len, range.privileged)?),
                Mapping::Data { len, .. } => u64::from(len),
            };
        }
        Ok(())
    }

    /// Maps the first blocks of a hole to unwritten blocks: how many.
    fn fill_hole(
        &self,
        inode: &Arc<Inode>,
        logical: LogicalBlock,
        len: u32,
        privileged: bool,
    ) -> Result<u32> {
        let raw = inode.raw();
        let hole = self.hole(inode, &raw, logical)?;
        let len = len.min(u32::from(MAX_UNWRITTEN_LEN));
        let end = (u64::from(logical.0) + u64::from(len)) * self.block_bytes();
        // The caller of `fallocate` says how much is wanted.
        let wanted =
            Wanted { logical, len, end, grows: false, near: None, may_use: writer_may_use(privileged) };
        let allocated = self.allocate_file_blocks(inode, &raw, &hole, wanted, None)?;
        let Allocated { blocks, for_map, quota } = allocated;
        // Or the update would copy the fields.
        drop(raw);
        let mut update = match self.begin_reserved(hole.credits() + RUN_CREDITS, for_map) {
            Ok(update) => update.tracked(),
            Err(error) => {
                self.give_back_blocks(blocks);
                return Err(error);
            }
        };
        update.hold_quota(quota);
        let change = update.map_run(inode, hole, logical, blocks, true)?;
        update.change_content(inode, change, |_| ())?;
        update.finish();
        Ok(blocks.run.len)
    }

    /// Sets the size, if the range ends behind it, and the times.
    fn finish_range(&self, inode: &Arc<Inode>, range: Range, keep_size: bool) -> Result<()> {
        let size = inode.state().raw.size();
        if keep_size || range.end <= size {
            return self.touch_content(inode);
        }
        self.zero_tail(inode, size)?;
        self.resize(inode, range.end)
    }

    fn zero_range(&self, inode: &Arc<Inode>, range: Range, keep_size: bool) -> Result<()> {
        self.fill_holes(inode, range)?;
        let (mut at, end) = self.blocks_inside(range);
        while at < end {
            let logical = LogicalBlock(at as u32);
            let mapping = self.map(inode, &inode.raw(), logical, (end - at) as u32)?;
            at += u64::from(mapping.len());
            if let Mapping::Data { len, unwritten: false, .. } = mapping {
                let conversion = self.conversion(inode, logical, len, true)?;
                self.check_countable(&inode.raw(), conversion.blocks)?;
                let mut update = self.begin(Credits::new(conversion.credits, conversion.blocks))?.tracked();
                let change = update.convert_extent(inode, conversion)?;
                update.change_content(inode, change, |_| ())?;
                update.finish();
            }
        }
        self.zero_edges(inode, range)?;
        self.finish_range(inode, range, keep_size)
    }

    /// The whole blocks inside a range: the first, and the one behind the last.
    fn blocks_inside(&self, range: Range) -> (u64, u64) {
        let (from, end) = (range.start.div_ceil(self.block_bytes()), range.end / self.block_bytes());
        (from, end.max(from))
    }

    /// Zeroes the parts of blocks at both ends of a range. That needs no space, so it comes after what may.
    fn zero_edges(&self, inode: &Arc<Inode>, range: Range) -> Result<()> {
        let size = self.block_bytes();
        let (from, end) = self.blocks_inside(range);
        // Both may be within one block.
        self.zero_in_block(inode, range.start, (from * size).min(range.end))?;
        self.zero_in_block(inode, (end * size).max(range.start), range.end)
    }

    fn punch_hole(&self, inode: &Arc<Inode>, range: Range) -> Result<()> {
        // Blocks allocated behind the end of the file stay.
        let size_end = self.blocks_of(inode.state().raw.size()).saturating_mul(self.block_bytes());
        let range = Range { end: range.end.min(size_end), ..range };
        if range.start >= inode.state().raw.size() {
            return Ok(());
        }
        let (from, mut end) = self.blocks_inside(range);
        while from < end {
            let Some(step) = self.removal(inode, from, end)? else { break };
            end = step.end();
            let mut update = self.begin(step.need())?.tracked();
            update.remove(inode, step)?;
            update.finish();
        }
        self.zero_edges(inode, range)?;
        self.touch_content(inode)
    }

    /// Sets the times of a file whose content changed.
    fn touch_content(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut update = self.begin(Credits::new(1, 0))?.tracked();
        let now = update.now();
        update.modify_inode(inode, InodeDirty::Mapping, |raw| {
            raw.set_mtime(now);
            raw.set_ctime(now);
        });
        update.finish();
        Ok(())
    }

    /// The blocks of a range of whole clusters: a block stays at its place in its cluster when it moves.
    fn whole_clusters(&self, range: Range) -> Result<(u64, u32)> {
        let (size, whole) = (self.block_bytes(), self.geometry.cluster_bytes());
        if !range.start.is_multiple_of(whole) || !range.end.is_multiple_of(whole) {
            return Err(Error::InvalidArgument("not whole blocks (with `bigalloc`, not whole clusters)"));
        }
        let len = u32::try_from((range.end - range.start) / size).map_err(|_| Error::FileTooLarge)?;
        Ok((range.start / size, len))
    }

    fn collapse_range(&self, inode: &Arc<Inode>, range: Range) -> Result<()> {
        let (from, len) = self.whole_clusters(range)?;
        let size = inode.state().raw.size();
        if range.end >= size {
            return Err(Error::InvalidArgument("the range reaches the end"));
        }
        let (stop, mut end) = (from + u64::from(len), from + u64::from(len));
        let mut update = None;
        while from < end {
            let Some(step) = self.removal(inode, from, end)? else { break };
            end = step.end();
            self.joined(&mut update, step.need())?.remove(inode, step)?;
        }
        self.move_all(inode, stop, Some(stop), Shift::Left(len), &mut update)?;
        self.joined(&mut update, Credits::new(1, 0))?.resized(inode, size - (range.end - range.start));
        update.into_iter().for_each(MetadataUpdate::finish);
        Ok(())
    }

    fn insert_range(&self, inode: &Arc<Inode>, range: Range) -> Result<()> {
        let (from, len) = self.whole_clusters(range)?;
        let bytes = range.end - range.start;
        let (size, size_max) = {
            let raw = inode.raw();
            (raw.size(), self.size_max(&raw))
        };
        if range.start >= size {
            return Err(Error::InvalidArgument("the range begins at the end"));
        }
        let grown = size.checked_add(bytes).filter(|grown| *grown <= size_max).ok_or(Error::FileTooLarge)?;
        if self.extents_end(inode)? + u64::from(len) > LOGICAL_END {
            return Err(Error::InvalidArgument("would move beyond the last block"));
        }
        // The only step that may lack space comes first, and the size with it, so that no block is ever behind it.
        let cut = self.extent_cut(inode, from)?;
        self.check_countable(&inode.raw(), cut.as_ref().map_or(0, |cut| cut.blocks))?;
        let need = cut.as_ref().map_or(Credits::new(1, 0), |cut| Credits::nofail(cut.credits, cut.blocks));
        let mut first = self.begin(need)?;
        first.resized(inode, grown);
        if let Some(cut) = cut {
            first.move_extents(inode, cut)?;
        }
        let mut update = Some(first);
        self.move_all(inode, from, Some(LOGICAL_END), Shift::Right(len), &mut update)?;
        update.into_iter().for_each(MetadataUpdate::finish);
        Ok(())
    }

    /// Moves all extents from a block on.
    fn move_all<'v>(
        &'v self,
        inode: &Arc<Inode>,
        from: u64,
        mut at: Option<u64>,
        shift: Shift,
        update: &mut Option<MetadataUpdate<'v>>,
    ) -> Result<()> {
        while let Some(looked_at) = at {
            let Some(step) = self.extent_move(inode, from, looked_at, shift)? else { break };
            at = step.next;
            self.joined(update, Credits::new(step.credits, 0))?.move_extents(inode, step)?;
        }
        Ok(())
    }

    /// The open update, if it can take more; else another in its place.
    fn joined<'u, 'v>(
        &'v self,
        update: &'u mut Option<MetadataUpdate<'v>>,
        need: Credits,
    ) -> Result<&'u mut MetadataUpdate<'v>> {
        let extended = update.as_mut().is_some_and(|open| need.blocks == 0 && open.extend(need.credits));
        if !extended {
            // The old one is closed first: a handle must not wait for another of the same thread.
            update.take().into_iter().for_each(MetadataUpdate::finish);
            *update = Some(self.begin(need)?);
        }
        update.as_mut().ok_or(Error::NoSpace)
    }
}
