//! The sequence of all writes of data, from memory or from a writer's own bytes: blocks are *placed*, the data is written there, and
//! only then an update *names* them: it marks them as used, maps them, and has the file reach to their end.
//!
//! So a crash shows what was there before or what was written, never what another file left in a block. Over the I/O no update
//! is open; what is not named after all is given back. Only [`PageCache::place_through`] names blocks that are still to be written, for the
//! makers of new disks.
//!
//! Locks: the caller holds `INODE` of the file alone, or shared with `MAPPING` alone while it places and while it names.
//!
//! Source: `ext4_map_blocks`, `ext4_end_io_end`, `ext4_convert_unwritten_extents`, `file_remove_privs`.

use std::ops::Range;

use extant_alloc::{ClusterRun, MayUse, Reservation};
use extant_ondisk::mode::without_set_id;
use extant_ondisk::{Cluster, FsBlock, LogicalBlock, RawInode, Run, Timestamp};
use extant_rt::Arc;

use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::mapping::cluster::NewBlocks;
use crate::mapping::extent::Conversion;
use crate::mapping::prealloc::{Allocated, Wanted};
use crate::mapping::{Hole, Mapping};
use crate::metadata::quota::reserve::QuotaReservation;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate, RUN_CREDITS};
use crate::page_cache::PageCache;

/// Adjacent blocks of a file with a place of their own on the disk, to be written and then named.
pub(super) struct Placed<'v> {
    logical: LogicalBlock,
    pub(super) start: FsBlock,
    pub(super) len: u32,
    pending: Pending<'v>,
}

/// What the map needs of blocks once they are written.
enum Pending<'v> {
    /// The map has them as written.
    None,
    /// The map has them as unwritten. They are named as a whole.
    Conversion(Conversion, Reservation<'v>),
    /// They were taken for a hole.
    Mapping(Filling<'v>),
}

/// The filling of a hole: parts of it are named in ascending order.
struct Filling<'v> {
    /// The hole, until the map changes: a part of it is filled, or another one.
    hole: Option<Hole>,
    reservation: Reservation<'v>,
    /// Clusters that were taken and in which no block is named yet; none where the file had the cluster.
    taken: Option<ClusterRun>,
    /// What of limits is taken for them.
    quota: QuotaReservation<'v>,
}

impl Filling<'_> {
    /// Takes the clusters out that are those of `clusters`, of blocks to be named, and those before them, of blocks that are not named.
    fn split(&mut self, clusters: ClusterRun) -> (Option<ClusterRun>, Option<ClusterRun>) {
        let Some(taken) = self.taken else { return (None, None) };
        let end = taken.start.0 + u64::from(taken.len);
        let from = clusters.start.0.clamp(taken.start.0, end);
        let to = (clusters.start.0 + u64::from(clusters.len)).clamp(from, end);
        let run = |from: u64, to: u64| {
            (from < to).then(|| ClusterRun { start: Cluster(from), len: (to - from) as u32 })
        };
        self.taken = run(to, end);
        (run(taken.start.0, from), run(from, to))
    }
}

impl<'v> Placed<'v> {
    /// Blocks that the map has as written.
    pub(super) const fn in_map(logical: LogicalBlock, start: FsBlock, len: u32) -> Self {
        Self { logical, start, len, pending: Pending::None }
    }

    /// The block of the disk behind them.
    pub(super) fn end(&self) -> FsBlock {
        FsBlock(self.start.0 + u64::from(self.len))
    }

    /// Whether they held what the file has there before the write.
    pub(super) const fn is_in_map(&self) -> bool {
        matches!(self.pending, Pending::None)
    }

    /// Has the map looked up again when they are named, because it changes until then.
    pub(super) fn forget_hole(&mut self) {
        if let Pending::Mapping(filling) = &mut self.pending {
            filling.hole = None;
        }
    }

    /// Has the map need what is kept, too.
    pub(super) fn reserve_more(&mut self, kept: &mut Reservation<'v>) {
        if let Pending::Mapping(filling) = &mut self.pending {
            filling.reservation.merge(kept.split(u64::MAX));
        }
    }

    /// Keeps what the map did not need.
    pub(super) fn reserve_less(&mut self, kept: &mut Reservation<'v>) {
        if let Pending::Mapping(filling) = &mut self.pending {
            kept.merge(filling.reservation.split(u64::MAX));
        }
    }

    /// Has what they are charged be out of what was taken of limits when the write was accepted.
    pub(super) fn hold_quota(&mut self, more: QuotaReservation<'v>) {
        if let Pending::Mapping(filling) = &mut self.pending {
            filling.quota.merge(more);
        }
    }

    /// Blocks beside them that are to be zeroed before they are named.
    pub(super) fn to_zero(&self) -> &[Run] {
        match &self.pending {
            Pending::Conversion(conversion, _) => &conversion.to_zero,
            _ => &[],
        }
    }

    /// A part of them, counted from the first.
    fn part(&self, range: &Range<u32>) -> Run {
        Run { start: FsBlock(self.start.0 + u64::from(range.start)), len: range.end - range.start }
    }
}

/// What a write changes in an inode beside the map.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldChange {
    /// The byte that the file reaches to at least; 0 if it does not grow.
    pub(super) end: u64,
    /// Whether the writer is privileged; none where the times and the mode were changed before.
    pub(super) privileged: Option<bool>,
}

impl FieldChange {
    fn apply(self, raw: &mut RawInode, now: Timestamp) {
        if self.end > raw.size() {
            raw.set_size(self.end);
        }
        if let Some(privileged) = self.privileged {
            raw.set_mtime(now);
            raw.set_ctime(now);
            if !privileged {
                drop_privileges(raw);
            }
        }
    }
}

/// Takes set-user-id and set-group-id away (`should_remove_suid`).
pub(super) fn drop_privileges(raw: &mut RawInode) {
    let mode = without_set_id(raw.mode());
    if mode != raw.mode() {
        raw.set_mode(mode);
    }
}

impl PageCache {
    /// Places the first of the blocks that are wanted of a file whose fields are `raw`.
    ///
    /// # Errors
    /// `NoSpace`; `QuotaExceeded`; `FileTooLarge` if the inode cannot count them; `ReadOnly`; `Io`; `Corrupt`.
    pub(super) fn place(&self, inode: &Arc<Inode>, raw: &RawInode, wanted: Wanted) -> Result<Placed<'_>> {
        let first = |len: u32| {
            let end = (u64::from(wanted.logical.0) + u64::from(len)) * u64::from(self.geometry.block_size);
            Wanted { len, end: wanted.end.min(end), ..wanted }
        };
        match self.map(inode, raw, wanted.logical, wanted.len)? {
            Mapping::Data { start, len, unwritten: false } => Ok(Placed::in_map(wanted.logical, start, len)),
            Mapping::Data { start, len, unwritten: true } => self.place_unwritten(inode, first(len), start),
            Mapping::Hole { len } => self.place_in_hole(inode, raw, first(len), None),
        }
    }

    /// Plans how unwritten blocks become written, and reserves what the tree needs for it: the writer was promised that it needs no
    /// space. With not even the reserved pool left, or more blocks than the inode can count, the blocks around are zeroed instead.
    fn place_unwritten(&self, inode: &Inode, wanted: Wanted, start: FsBlock) -> Result<Placed<'_>> {
        let Wanted { logical, len, .. } = wanted;
        let conversion = self.conversion(inode, logical, len, false)?;
        let reserved = self
            .check_countable(&inode.raw(), conversion.blocks)
            .and_then(|()| self.reserve(conversion.blocks, conversion.blocks, MayUse::Reserved));
        let (conversion, reservation) = match reserved {
            Err(Error::NoSpace | Error::FileTooLarge) => {
                let size = inode.state().raw.size().max(wanted.end);
                let wider = conversion.zeroing_out(self.blocks_of(size)).ok_or(Error::NoSpace)?;
                (wider, self.reserve(0, 0, MayUse::Reserved)?)
            }
            reserved => (conversion, reserved?),
        };
        Ok(Placed { logical, start, len, pending: Pending::Conversion(conversion, reservation) })
    }

    /// Takes blocks for the start of a hole, out of what is `kept` if there is such.
    ///
    /// # Errors
    /// As [`PageCache::place`].
    pub(super) fn place_in_hole<'v>(
        &'v self,
        inode: &Arc<Inode>,
        raw: &RawInode,
        wanted: Wanted,
        kept: Option<&mut Reservation<'v>>,
    ) -> Result<Placed<'v>> {
        let hole = self.hole(inode, raw, wanted.logical)?;
        let wanted = Wanted { len: wanted.len.min(hole.len_max()), ..wanted };
        let Allocated { blocks, for_map, quota } =
            self.allocate_file_blocks(inode, raw, &hole, wanted, kept)?;
        let NewBlocks { run, taken } = blocks;
        if !hole.can_name(run) {
            self.give_back_blocks(blocks);
            return Err(Error::NoSpace);
        }
        let pending = Pending::Mapping(Filling { hole: Some(hole), reservation: for_map, taken, quota });
        Ok(Placed { logical: wanted.logical, start: run.start, len: run.len, pending })
    }

    /// Names a part that was written, counted from the first block, after all parts before it; what cannot be named stays with the rest
    /// ([`PageCache::give_back_rest`]).
    ///
    /// # Errors
    /// `NoSpace`; `FileTooLarge`; `ReadOnly`; the journal's; `Io`; `Corrupt`.
    pub(super) fn name<'v>(
        &'v self,
        inode: &Arc<Inode>,
        placed: &mut Placed<'v>,
        range: Range<u32>,
        fields: FieldChange,
    ) -> Result<()> {
        let logical = LogicalBlock(placed.logical.0 + range.start);
        let run = placed.part(&range);
        let (mut update, change) = match std::mem::replace(&mut placed.pending, Pending::None) {
            Pending::None => return self.change_fields(inode, fields),
            Pending::Conversion(conversion, reservation) => {
                let mut update = self.begin_reserved(conversion.credits, reservation)?.tracked();
                let change = update.convert_extent(inode, conversion)?;
                (update, change)
            }
            Pending::Mapping(mut filling) => {
                let hole = filling.hole.take().filter(|_| range.start == 0);
                let clusters = self.to_clusters(run);
                let more = filling.taken.map_or(0, |_| clusters.len);
                let opened = self.begin_mapping(inode, logical, more, hole, &mut filling.reservation);
                let opened = match opened {
                    Ok(opened) => {
                        let (unnamed, taken) = filling.split(clusters);
                        unnamed.into_iter().for_each(|clusters| self.allocator.free_unmarked(clusters));
                        let charged = taken.map_or(0, |taken| self.bytes_of(self.to_blocks(taken).len));
                        Ok((opened, taken, filling.quota.split(charged)))
                    }
                    Err(error) => Err(error),
                };
                placed.pending = Pending::Mapping(filling);
                let ((mut update, hole), taken, quota) = opened?;
                update.hold_quota(quota);
                let change = update.map_run(inode, hole, logical, NewBlocks { run, taken }, false)?;
                (update, change)
            }
        };
        let now = update.now();
        update.change_content(inode, change, |raw| fields.apply(raw, now))?;
        update.note_size(fields.end);
        update.finish();
        Ok(())
    }

    /// Opens the update that maps blocks taken for a hole.
    fn begin_mapping<'v>(
        &'v self,
        inode: &Inode,
        logical: LogicalBlock,
        clusters: u32,
        hole: Option<Hole>,
        reservation: &mut Reservation<'v>,
    ) -> Result<(MetadataUpdate<'v>, Hole)> {
        let hole = match hole {
            Some(hole) => hole,
            None => self.hole(inode, &inode.raw(), logical)?,
        };
        let growth = hole.growth();
        // Other runs, or the tree, may have grown since this one was taken.
        self.check_countable(&inode.state().raw, growth.saturating_add(clusters))?;
        let reserved = self.reserve_of(Some(reservation), (growth, growth), MayUse::Reserved)?;
        Ok((self.begin_reserved(hole.credits() + RUN_CREDITS, reserved)?.tracked(), hole))
    }

    /// Changes the fields of an inode whose map has what was written, in an update of its own, if it changes any.
    ///
    /// # Errors
    /// `ReadOnly`; the journal's.
    pub(super) fn change_fields(&self, inode: &Arc<Inode>, fields: FieldChange) -> Result<()> {
        let grows = fields.end > 0 && fields.end > inode.state().raw.size();
        if !grows && fields.privileged.is_none() {
            return Ok(());
        }
        let dirty = if grows { InodeDirty::Mapping } else { InodeDirty::Attributes };
        let mut update = self.begin(Credits::new(1, 0))?.tracked();
        let now = update.now();
        update.modify_inode(inode, dirty, |raw| fields.apply(raw, now));
        update.note_size(fields.end);
        update.finish();
        Ok(())
    }

    /// Gives back the clusters in which no block is named.
    pub(super) fn give_back_rest(&self, placed: Placed<'_>) {
        if let Pending::Mapping(Filling { taken: Some(clusters), .. }) = placed.pending {
            self.allocator.free_unmarked(clusters);
        }
    }
}
