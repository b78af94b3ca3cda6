//! Changing a file's size, and freeing its blocks.
//!
//! Blocks are freed from the end to the beginning, in steps that each fit an update. If more than one is needed, or the
//! rest of the last block must be zeroed, the inode is in the orphan list meanwhile: after a crash mounting continues where
//! the last durable step ended. The size on the disk is the new one from the first step on.
//!
//! Locks: `INODE` of the file, exclusively.
//!
//! Source: `ext4_setattr`, `ext4_truncate`, `ext4_block_truncate_page`.
//!
//! Tests: `tests/files.rs`, `tests/restart.rs` (crashes), `tests/reuse.rs`.

use extant_ondisk::InodeFlags;
use extant_rt::{Arc, Ordering};

use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::inode::Inodes;
use crate::mapping::extent::Removal;
use crate::mapping::indirect::IndirectRemoval;
use crate::mapping::{BlockMap, LOGICAL_END, MapKind, Mapping};
use crate::metadata::orphan_list::ORPHAN_CREDITS;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate, RUN_CREDITS};

/// About how many credits a step of freeing takes at most; enough for some dozens of extents.
const STEP_CREDITS: u32 = 128;

/// Credits for [`MetadataUpdate::try_free_all`]: each extent of a root with its bitmap and its descriptor.
pub(crate) const FREE_ALL_CREDITS: u32 = 4 * RUN_CREDITS;

/// A step of freeing blocks of a file.
pub(crate) enum Step {
    Extents(Removal),
    Indirect(IndirectRemoval),
}

impl Step {
    /// The credits that it needs.
    pub(crate) fn need(&self) -> Credits {
        match self {
            Self::Extents(removal) => Credits::nofail(removal.credits, removal.blocks),
            Self::Indirect(removal) => Credits::new(removal.credits, 0),
        }
    }

    /// Where what is left of the range ends.
    pub(crate) fn end(&self) -> u64 {
        match self {
            Self::Extents(removal) => removal.end,
            Self::Indirect(removal) => removal.end,
        }
    }
}

impl Inodes {
    /// The next step of freeing the blocks of a file from `from` up to `end`; None if there are none. Files without
    /// extents can be freed up to their end only.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn removal(&self, inode: &Inode, from: u64, end: u64) -> Result<Option<Step>> {
        let credits_max = STEP_CREDITS.min(self.writable()?.max_credits() / 2);
        let kind = self.map_kind(&inode.raw());
        Ok(match kind {
            MapKind::Extents => {
                let removal = self.extent_removal(inode, from, end, credits_max)?;
                let blocks = removal.as_ref().map_or(0, |removal| removal.blocks);
                self.check_countable(&inode.raw(), blocks)?;
                removal.map(Step::Extents)
            }
            MapKind::Indirect if self.geometry.cluster_ratio > 1 => {
                return Err(self.block_map_of_clusters(inode));
            }
            MapKind::Indirect => self.indirect_removal(inode, from, credits_max)?.map(Step::Indirect),
            MapKind::None => None,
        })
    }

    /// Cuts a file, or extends it with a hole.
    ///
    /// # Errors
    /// `FileTooLarge`; `NotPermitted` for an immutable, append-only or verity file; `IsADirectory`; `ReadOnly`;
    /// `Io`; `Corrupt`. The size is then the old or the new one; what
    /// could not be freed is freed when the disk is mounted next.
    pub(crate) fn set_size(&self, inode: &Arc<Inode>, size: u64) -> Result<()> {
        self.check_regular(&inode.raw())?;
        self.writable()?;
        let _content = inode.content.write();
        let (flags, size_max) = {
            let raw = inode.raw();
            (raw.flags(), self.size_max(&raw))
        };
        if flags.intersects(InodeFlags::FIXED_CONTENT | InodeFlags::APPEND) {
            return Err(Error::NotPermitted);
        }
        if size > size_max {
            return Err(Error::FileTooLarge);
        }
        self.cut_pages(inode, size);
        self.discard_preallocations(inode);
        if size == 0 && inode.state().raw.has_inline_data() {
            return self.empty_inline(inode);
        }
        self.move_to_blocks(inode)?;
        let size_old = inode.state().raw.size();
        if size > size_old {
            self.zero_tail(inode, size_old)?;
            return self.resize(inode, size);
        }
        let from = self.blocks_of(size);
        let step = self.removal(inode, from, LOGICAL_END)?;
        let whole = step.as_ref().is_none_or(|step| step.end() <= from) && !self.has_tail(inode, size)?;
        let need = step.as_ref().map_or(Credits::new(1, 0), Step::need);
        let mut update = self.begin(Credits { credits: need.credits + ORPHAN_CREDITS, ..need })?.tracked();
        update.resized(inode, size);
        if !whole {
            update.begin_truncate(inode);
        }
        if let Some(step) = step {
            update.remove(inode, step)?;
        }
        update.finish();
        if whole { Ok(()) } else { self.cut(inode) }
    }

    /// Sets a file's size in an update of its own.
    pub(crate) fn resize(&self, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let mut update = self.begin(Credits::new(1, 0))?.tracked();
        update.resized(inode, size);
        update.finish();
        Ok(())
    }

    /// Drops what memory has of a file behind `size`, and has written what the cut works on: the block that it goes through, or all, if
    /// the inode on the disk is to grow.
    fn cut_pages(&self, inode: &Arc<Inode>, size: u64) {
        if self.pages.is_none() {
            return;
        }
        let size_old = {
            let mut state = inode.state_mut();
            let size_old = state.size();
            state.delalloc.end = state.delalloc.end.min(size);
            inode.publish(&state);
            size_old
        };
        if size < size_old {
            self.drop_pages(inode, self.blocks_of(size).min(LOGICAL_END) as u32..u32::MAX);
        }
        let block_size = u64::from(self.geometry.block_size);
        // Noted for the next sync.
        let _ = self.flush_range_out(inode, size / block_size * block_size..size);
        if size == 0 && size_old > 0 {
            inode.is_replaced.store(true, Ordering::Relaxed);
        }
    }

    /// Whether bytes of a written block lie behind `size`.
    fn has_tail(&self, inode: &Inode, size: u64) -> Result<bool> {
        if size.is_multiple_of(u64::from(self.geometry.block_size)) {
            return Ok(false);
        }
        let (logical, _) = self.block_at(size)?;
        Ok(matches!(self.map(inode, &inode.raw(), logical, 1)?, Mapping::Data { unwritten: false, .. }))
    }

    /// Frees what lies behind the end of a file in the orphan list, which it leaves then if it has links. The hashes behind
    /// the end of a verity file stay.
    ///
    /// # Errors
    /// `ReadOnly`; `Io`; `Corrupt`. The file stays in the list.
    ///
    /// # Locks
    /// Takes `INODE`.
    pub(crate) fn finish_truncate(&self, inode: &Arc<Inode>) -> Result<()> {
        let _content = inode.content.write();
        if inode.raw().flags().contains(InodeFlags::VERITY) {
            let mut update = self.begin(Credits::new(1 + ORPHAN_CREDITS, 0))?;
            update.end_truncate(inode);
            update.finish();
            return Ok(());
        }
        self.cut(inode)
    }

    /// Frees what lies behind the end of a file in the orphan list, which it leaves then if it has links.
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn cut(&self, inode: &Arc<Inode>) -> Result<()> {
        let size = inode.state().raw.size();
        self.zero_tail(inode, size)?;
        let from = self.blocks_of(size);
        loop {
            let step = self.removal(inode, from, LOGICAL_END)?;
            let last = step.as_ref().is_none_or(|step| step.end() <= from);
            let need = step.as_ref().map_or(Credits::new(1, 0), Step::need);
            let mut update = self.begin(Credits { credits: need.credits + ORPHAN_CREDITS, ..need })?;
            if let Some(step) = step {
                update.remove(inode, step)?;
            }
            if last {
                update.end_truncate(inode);
            }
            update.finish();
            if last {
                return Ok(());
            }
        }
    }

    /// Frees all blocks of an inode that has no links, as the first part of deleting it.
    ///
    /// # Errors
    /// `ReadOnly`; `Io`; `Corrupt`. The inode is then in the orphan list, unless nothing was freed.
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn free_all_blocks(&self, inode: &Arc<Inode>) -> Result<()> {
        while let Some(step) = self.removal(inode, 0, LOGICAL_END)? {
            let need = step.need();
            let last = step.end() == 0;
            let mut update = self.begin(Credits { credits: need.credits + ORPHAN_CREDITS, ..need })?;
            // Even with one step left: the inode is deleted in another update, maybe another transaction.
            update.add_orphan(inode);
            update.remove(inode, step)?;
            update.finish();
            if last {
                break;
            }
        }
        Ok(())
    }
}

impl MetadataUpdate<'_> {
    /// Carries out a step of freeing.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn remove(&mut self, inode: &Arc<Inode>, step: Step) -> Result<()> {
        match step {
            Step::Extents(removal) => self.remove_extents(inode, removal),
            Step::Indirect(removal) => self.remove_indirect(inode, removal),
        }
    }

    /// Frees all blocks of an inode that has no links, in this update, for which its caller has stated
    /// [`FREE_ALL_CREDITS`]. False, and nothing is done, if they are too many for that or cannot be read.
    ///
    /// # Errors
    /// `Corrupt`, in the midst of it.
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn try_free_all(&mut self, map: &BlockMap, inode: &Arc<Inode>) -> Result<bool> {
        let kind = map.map_kind(&inode.raw());
        match kind {
            MapKind::None => return Ok(true),
            MapKind::Indirect => return Ok(inode.state().raw.i_block().iter().all(|byte| *byte == 0)),
            MapKind::Extents => {}
        }
        let removal = match map.extent_removal(inode, 0, LOGICAL_END, u32::MAX) {
            Ok(Some(removal)) => removal,
            Ok(None) => return Ok(true),
            Err(_) => return Ok(false),
        };
        if removal.end > 0
            || removal.depth() > 0
            || !self.extend(removal.credits.saturating_sub(FREE_ALL_CREDITS))
        {
            return Ok(false);
        }
        self.remove_extents(inode, removal)?;
        Ok(true)
    }

    /// Sets a file's size and the times that change with it. Takes one credit.
    pub(crate) fn resized(&mut self, inode: &Arc<Inode>, size: u64) {
        // Blocks before the end may still be dirty, and then say how far the file reached.
        {
            let mut state = inode.state_mut();
            state.delalloc.end = state.delalloc.end.min(size);
        }
        let now = self.now();
        self.modify_inode(inode, InodeDirty::Mapping, |raw| {
            raw.set_size(size);
            raw.set_mtime(now);
            raw.set_ctime(now);
        });
        self.note_size(size);
    }
}
