//! Writing into the page cache.

use extant_ondisk::mode::without_set_id;
use extant_ondisk::{ExtentNode, FsBlock, InodeFlags, LogicalBlock, Structure, Timestamp};
use extant_rt::{Arc, copied};

use super::place::drop_privileges;
use super::{Pages, tree_need};
use crate::error::{Error, Location, Result};
use crate::incore::fill_window::{Missing, SPAN_BLOCKS, WINDOW_BLOCKS_MAX};
use crate::incore::folios::{Block, Folios};
use crate::incore::inode::{Inode, PagesLock};
use crate::incore::pages::{BATCH_BLOCKS, InodePages};
use crate::incore::usage::Usage;
use crate::mapping::{LOGICAL_END, Mapping};
use crate::metadata::quota::ids_of;
use crate::metadata::quota::reserve::QuotaReservation;
use crate::metadata::reserve::writer_may_use;
use crate::metadata::update::{Credits, InodeDirty};
use crate::page_cache::PageCache;

/// Bytes that are copied into memory in one hold of `PAGES`, and between two looks at how much is dirty.
const PIECE_BYTES: usize = 1 << 20;
/// A write of more holds the content alone, and is written back in between where too much is dirty.
const BESIDE_BYTES_MAX: usize = 8 << 20;

/// Bytes that are read from memory, or written there over others, without a look at the map: they are copied in one hold of `PAGES`.
pub(super) const HIT_BYTES_MAX: usize = 64 << 10;

/// A context may have so many batches dirty, or threads do not fill holes beside each other: all of a batch is reported at once.
const CONTEXT_BATCHES_MIN: u64 = 64;
/// Clusters that are kept for a block which is filled so, at most: its own, and those of a tree that is as deep as trees may be.
const FILL_CLUSTERS_MAX: u64 = 10;

/// Blocks that a write touches and that are not in memory.
struct Gap {
    block: u32,
    len: u32,
    /// None in a hole.
    start: Option<FsBlock>,
}

/// What a write beside others lacks.
enum Lack {
    /// It is not known which blocks of the span of this one are holes.
    Span(u32),
    /// The thread has no blocks left to fill.
    Batch,
    /// It is another write.
    Other,
}

/// Marks the pages of an inode as written into.
struct Changed<'n>(&'n Inode);

impl<'n> Changed<'n> {
    fn new(inode: &'n Inode) -> Self {
        inode.pages().write_beside_folios().is_changed = true;
        Self(inode)
    }
}

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        self.0.pages().write_beside_folios().is_changed = false;
    }
}

/// Notes the time of a write up to `end`. False, and nothing is noted, if the file ends before or the write would be refused or change more.
fn note_write(inode: &Inode, end: u64, privileged: bool, now: Timestamp) -> bool {
    let mut state = inode.state_mut_beside_filling();
    let raw = &state.raw;
    let loses_set_id = !privileged && without_set_id(raw.mode()) != raw.mode();
    if end > state.size() || raw.flags().intersects(InodeFlags::FIXED_CONTENT) || loses_set_id {
        return false;
    }
    inode.note_time(&mut state, now);
    true
}

/// Aborts the journal if a panic ends a write into memory: a later sync would pass over dirty blocks that writeback does not know
/// of.
struct Told<'v>(&'v PageCache);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if extant_rt::panicking() {
            self.0.abort_after_panic("a write into memory panicked");
        }
    }
}

impl PageCache {
    /// [`Files::write_at`](crate::file::Files::write_at) of a file whose content goes through memory, with all its checks done.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn write_cached(
        &self,
        pages: &Arc<Pages>,
        inode: &Arc<Inode>,
        offset: Option<u64>,
        buf: &[u8],
        privileged: bool,
    ) -> Result<usize> {
        // Dropped after all locks.
        let _told = Told(self);
        self.balance_dirty(pages, inode);
        if buf.len() <= BESIDE_BYTES_MAX {
            let was_filled = inode.is_filled();
            let mut content = inode.lock_for_writing();
            // Threads that waited for the one before may all do what that one made possible.
            if let Some(offset) = offset.filter(|_| !was_filled && inode.is_filled()) {
                drop(content);
                if self.write_hit(inode, offset, buf, privileged) {
                    return Ok(buf.len());
                }
                content = inode.lock_for_writing();
            }
            let _content = content;
            let (offset, buf) = self.prepare_write(pages, inode, offset, buf, privileged)?;
            let done = self.write_pieces(pages, inode, offset, buf, privileged)?;
            if done > 0 {
                return Ok(done);
            }
        }
        let _content = inode.content.write();
        let (offset, buf) = self.prepare_write(pages, inode, offset, buf, privileged)?;
        let mut done = 0;
        while done < buf.len() {
            let (at, rest) = (offset + done as u64, &buf[done..]);
            let piece = &rest[..rest.len().min(PIECE_BYTES)];
            let written = self.write_pieces(pages, inode, at, piece, privileged)?;
            if written == 0 {
                // Tokens held for this file's own tree may be what is lacking.
                let _ = self.flush_locked(pages, inode);
                self.drop_pages(inode, 0..u32::MAX);
                return match self.write_through(inode, at, rest, privileged) {
                    Err(Error::NoSpace | Error::QuotaExceeded) if done > 0 => Ok(done),
                    written => Ok(done + written?),
                };
            }
            done += written;
            if pages.writeback().is_over_limit() {
                // A sync of the file reports an error.
                let _ = self.flush_locked(pages, inode);
            }
        }
        Ok(done)
    }

    /// A write into blocks that are all in memory, of a file that has something to write back: false, and nothing is written, if it is
    /// another. Of [`Files::write_at`](crate::file::Files::write_at) it makes all checks.
    pub(crate) fn write_hit(&self, inode: &Arc<Inode>, offset: u64, buf: &[u8], privileged: bool) -> bool {
        let (Some(pages), Some(lock)) = (&self.pages, inode.cached_pages()) else { return false };
        let Some(end) = offset.checked_add(buf.len() as u64) else { return false };
        if buf.is_empty() || buf.len() > HIT_BYTES_MAX || self.writable().is_err() {
            return false;
        }
        if inode.writers().are_several()
            && self.write_shared(pages, inode, lock, (offset, end), buf, privileged)
        {
            return true;
        }
        if end > inode.size() {
            return false;
        }
        let Some(dirtied) = self.write_present(pages, inode, lock, (offset, end), buf, privileged) else {
            return false;
        };
        if dirtied {
            self.balance_dirty(pages, inode);
        }
        true
    }

    /// [`PageCache::write_hit`] into blocks that threads write to beside each other, or of whole blocks of holes that they fill so.
    fn write_shared(
        &self,
        pages: &Pages,
        inode: &Arc<Inode>,
        lock: PagesLock<'_>,
        (offset, end): (u64, u64),
        buf: &[u8],
        privileged: bool,
    ) -> bool {
        // Dropped after all locks.
        let _told = Told(self);
        let mut has_dirtied = false;
        let is_written = {
            let _content = inode.lock_for_reading();
            loop {
                match self.write_beside(pages, inode, lock, (offset, end), buf, privileged) {
                    Ok(()) => break true,
                    Err(Lack::Span(block)) if self.add_span(inode, lock, block).is_ok() => {}
                    Err(Lack::Batch) if self.add_batch(pages, inode, lock, privileged) => has_dirtied = true,
                    Err(_) => break false,
                }
            }
        };
        if has_dirtied {
            if pages.memory.is_exhausted() {
                pages.make_room(u64::from(inode.number.0));
            }
            self.balance_dirty(pages, inode);
        }
        is_written
    }

    /// One try of [`PageCache::write_shared`].
    ///
    /// # Errors
    /// What it lacks.
    fn write_beside(
        &self,
        pages: &Pages,
        inode: &Inode,
        lock: PagesLock<'_>,
        (offset, end): (u64, u64),
        buf: &[u8],
        privileged: bool,
    ) -> Result<(), Lack> {
        let inode_pages = lock.read();
        let (first, within) = self.block_at(offset).map_err(|_| Lack::Other)?;
        let folios =
            inode_pages.folios.as_ref().filter(|_| !pages.contexts.is_closed()).ok_or(Lack::Other)?;
        let now = self.now();
        let mut may =
            || end <= inode.size() && (!inode.needs_time(now) || note_write(inode, end, privileged, now));
        if !folios.write_shared(first.0, within as usize, buf, &mut may) {
            let count = self.block_count(within, buf.len());
            let is_whole = within == 0 && buf.len().is_multiple_of(self.geometry.block_size as usize);
            let filled = inode.filled().filter(|_| is_whole).ok_or(Lack::Other)?;
            folios.check_fill(first.0..first.0 + count).map_err(|(block, missing)| match missing {
                Missing::Span => Lack::Span(block),
                Missing::Block => Lack::Other,
            })?;
            if !filled.take(count) {
                return Err(Lack::Batch);
            }
            // Wherever the file ends.
            if inode.needs_time(now) && !note_write(inode, 0, privileged, now) {
                filled.note(count, 0, 0);
                return Err(Lack::Other);
            }
            filled.note(count, folios.fill(first.0, buf), end);
        }
        copied(buf.len());
        // Whoever has put the time into the inode meanwhile may have been before this write.
        if inode.needs_time(now) {
            inode.note_time(&mut inode.state_mut_beside_filling(), self.now());
        }
        Ok(())
    }

    /// Finds out which blocks of the span of a block are holes.
    ///
    /// # Errors
    /// Those of the map.
    fn add_span(&self, inode: &Inode, lock: PagesLock<'_>, block: u32) -> Result<()> {
        let mut holes = [false; SPAN_BLOCKS as usize];
        let raw = inode.raw();
        let mut left = &mut holes[..];
        let mut at = block / SPAN_BLOCKS * SPAN_BLOCKS;
        while !left.is_empty() && u64::from(at) < LOGICAL_END {
            let mapping = self.map(inode, &raw, LogicalBlock(at), left.len() as u32)?;
            let len = (mapping.len() as usize).clamp(1, left.len());
            let (own, rest) = left.split_at_mut(len);
            own.fill(matches!(mapping, Mapping::Hole { .. }));
            (at, left) = (at.saturating_add(len as u32), rest);
        }
        if let Some(window) = lock.read().folios.as_ref().and_then(Folios::window) {
            window.add_span(block, holes);
        }
        Ok(())
    }

    /// Reserves a batch of blocks for the calling thread to fill, and reports it. False if there is no room, or no window any more.
    fn add_batch(&self, pages: &Pages, inode: &Arc<Inode>, lock: PagesLock<'_>, privileged: bool) -> bool {
        // Each block may be a run. Of the nodes that all batches fill together, the last is rounded up.
        let need = self.need_of(inode, u64::from(BATCH_BLOCKS), u64::from(BATCH_BLOCKS));
        let Some(need) = need.ok().and_then(|need| u32::try_from(need + 2).ok()) else { return false };
        let Ok(reservation) = self.reserve(need, need, writer_may_use(privileged)) else { return false };
        let bytes = self.bytes_of(BATCH_BLOCKS);
        // Before the first of its blocks: a sync after that finds the inode.
        pages.writeback().dirtied(inode, bytes);
        pages.memory.take(bytes);
        let inode_pages = lock.read();
        match inode.filled().filter(|_| inode_pages.has_window() && !pages.contexts.is_closed()) {
            Some(filled) => {
                filled.add_batch(reservation.into_claimed());
                true
            }
            None => {
                pages.memory.give_back(bytes);
                pages.writeback().cleaned(inode, bytes);
                false
            }
        }
    }

    /// Whether threads may fill holes of a file beside each other, after one wrote whole blocks: once several write into it, where there is
    /// room for all that they may keep, and no limit of an id would apply.
    fn may_fill(&self, pages: &Pages, inode: &Inode, inode_pages: &InodePages) -> bool {
        let kept_max = u64::from(WINDOW_BLOCKS_MAX) * FILL_CLUSTERS_MAX;
        inode.writers().are_several()
            && !inode_pages.is_flushed
            && inode_pages.quota.is_empty()
            && pages.writeback().context_bytes_max() >= CONTEXT_BATCHES_MIN * self.bytes_of(BATCH_BLOCKS)
            && self.countable_clusters(&inode.raw()) >= inode_pages.kept + kept_max
    }

    /// [`PageCache::write_hit`]: whether blocks became dirty by it; None if it is another write.
    fn write_present(
        &self,
        pages: &Pages,
        inode: &Arc<Inode>,
        lock: PagesLock<'_>,
        (offset, end): (u64, u64),
        buf: &[u8],
        privileged: bool,
    ) -> Option<bool> {
        // Dropped after all locks.
        let _told = Told(self);
        let _content = inode.lock_for_writing();
        let mut inode_pages = lock.write();
        let dirty = inode_pages.dirty_bytes();
        // With dirty blocks it is listed, so that the last flush of an unmount, which begins after the closing, finds it.
        if dirty == 0 || pages.contexts.is_closed() {
            return None;
        }
        let folios = inode_pages.folios.as_mut()?;
        let ((first, within), (last, _)) = (self.block_at(offset).ok()?, self.block_at(end - 1).ok()?);
        let blocks = first.0..=last.0;
        if !folios.has_all(blocks.clone()) || !note_write(inode, end, privileged, self.now()) {
            return None;
        }
        folios.write_all(first.0, within as usize, buf);
        copied(buf.len());
        inode.writers().note();
        if inode.writers().are_several() {
            blocks.for_each(|block| folios.share(block));
        }
        let dirtied = inode_pages.dirty_bytes() != dirty;
        if dirtied {
            inode_pages.account(pages, inode);
        }
        Some(dirtied)
    }

    /// Where a write begins, and what of it fits into the file; has the file ready for it.
    fn prepare_write<'b>(
        &self,
        pages: &Arc<Pages>,
        inode: &Arc<Inode>,
        offset: Option<u64>,
        buf: &'b [u8],
        privileged: bool,
    ) -> Result<(u64, &'b [u8])> {
        let (size, size_max) = {
            let state = inode.state();
            (state.size(), self.size_max(&state.raw))
        };
        let offset = offset.unwrap_or(size);
        let room =
            Some(size_max.saturating_sub(offset)).filter(|room| *room > 0).ok_or(Error::FileTooLarge)?;
        if !privileged {
            self.remove_set_ids(inode)?;
        }
        if offset > size {
            self.list(pages, inode)?;
            self.keep_tail(pages, inode, size)?;
        }
        Ok((offset, &buf[..room.min(buf.len() as u64) as usize]))
    }

    /// Copies a write into memory, up to what must go to the disk at once: how many bytes.
    fn write_pieces(
        &self,
        pages: &Arc<Pages>,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &[u8],
        privileged: bool,
    ) -> Result<usize> {
        let mut done = 0;
        for piece in buf.chunks(PIECE_BYTES) {
            // Each time: a flush in between takes it out.
            self.list(pages, inode)?;
            if !self.write_pages(pages, inode, offset + done as u64, piece, privileged)? {
                break;
            }
            done += piece.len();
        }
        if pages.memory.is_exhausted() {
            pages.make_room(u64::from(inode.number.0));
        }
        Ok(done)
    }

    /// Waits as is right for how much is dirty; where no thread writes it back in the background, flushes all if that is too much.
    fn balance_dirty(&self, pages: &Pages, inode: &Arc<Inode>) {
        pages.writeback().throttle(inode);
        if !pages.writeback().has_threads() && pages.writeback().is_over_limit() {
            let _ = self.flush_all();
        }
    }

    /// Puts an inode into the list of those with something to write.
    ///
    /// # Errors
    /// `ReadOnly` while the volume is being unmounted.
    fn list(&self, pages: &Pages, inode: &Arc<Inode>) -> Result<()> {
        pages.contexts.list(inode)
    }

    /// Takes set-user-id and set-group-id away, if the file has them.
    fn remove_set_ids(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut without = inode.raw();
        drop_privileges(Arc::make_mut(&mut without));
        if without.mode() != inode.state().raw.mode() {
            let mut update = self.begin(Credits::new(1, 0))?;
            update.modify_inode(inode, InodeDirty::Attributes, drop_privileges);
            update.finish();
        }
        Ok(())
    }

    /// Has the rest of the last block written as zeroes before the file grows over it, if the block is on the disk.
    fn keep_tail(&self, pages: &Arc<Pages>, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let (logical, within) = self.block_at(size)?;
        if within == 0 {
            return Ok(());
        }
        let zeroes = vec![0; (u64::from(self.geometry.block_size) - within) as usize];
        {
            let mut inode_pages = inode.pages().write();
            let written = match &mut inode_pages.folios {
                Some(folios) if folios.is_dirty(logical.0) => return Ok(()),
                Some(folios) => folios.write(logical.0, within as usize, &zeroes),
                None => 0,
            };
            if written > 0 {
                inode_pages.account(pages, inode);
                return Ok(());
            }
        }
        if let Mapping::Data { start, unwritten: false, .. } = self.map(inode, &inode.raw(), logical, 1)? {
            let old = self.old_block(inode, logical, Some(start), size)?;
            let mut inode_pages = inode.pages().write();
            inode_pages.folios_of(inode, pages, self.geometry.block_size).insert(
                logical.0,
                &old,
                Block::Dirty,
            );
            inode_pages.account(pages, inode);
        }
        Ok(())
    }

    /// The old content of a block: zeroes behind `size` and in a hole.
    fn old_block(
        &self,
        inode: &Inode,
        logical: LogicalBlock,
        start: Option<FsBlock>,
        size: u64,
    ) -> Result<Vec<u8>> {
        let block_size = u64::from(self.geometry.block_size);
        let mut old = vec![0; block_size as usize];
        let inside = size.saturating_sub(u64::from(logical.0) * block_size).min(block_size) as usize;
        if let Some(start) = start.filter(|_| inside > 0) {
            let location = Location::of(Structure::Inode).inode(inode.number);
            self.read_data(start, 0, &mut old, location)?;
            old[inside..].fill(0);
        }
        Ok(old)
    }

    /// Copies a write into memory. False, and nothing is done, if it must go to the disk at once.
    fn write_pages(
        &self,
        pages: &Arc<Pages>,
        inode: &Arc<Inode>,
        at: u64,
        buf: &[u8],
        privileged: bool,
    ) -> Result<bool> {
        let _changed = Changed::new(inode);
        let size = inode.state().size();
        let end = at + buf.len() as u64;
        let Some(gaps) = self.gaps(inode, at, buf.len())? else { return Ok(false) };
        let holes = || gaps.iter().filter(|gap| gap.start.is_none());
        let blocks: u64 = holes().map(|gap| u64::from(gap.len)).sum();
        let mut reservation = None;
        let mut quota = QuotaReservation::default();
        if blocks > 0 {
            let (kept, need) = {
                let inode_pages = inode.pages().write();
                let runs = inode_pages.folios.as_ref().map_or(0, Folios::delayed_runs);
                let delayed = inode_pages.folios.as_ref().map_or(0, Folios::delayed);
                let runs = runs + holes().count() as u64;
                (inode_pages.kept, self.need_of(inode, delayed + blocks, runs)?)
            };
            // Only where the blocks are allocated is it known how many the map takes.
            if need > self.countable_clusters(&inode.raw()) {
                return Ok(false);
            }
            let more = u32::try_from(need.saturating_sub(kept)).map_err(|_| Error::NoSpace)?;
            match self.reserve(more, more, writer_may_use(privileged)) {
                Ok(reserved) => reservation = Some(reserved),
                Err(Error::NoSpace) => return Ok(false),
                Err(error) => return Err(error),
            }
            let space = i64::try_from(blocks * u64::from(self.geometry.block_size)).unwrap_or(i64::MAX);
            let ids = ids_of(&inode.state().raw).map(Some);
            match self.reserve_quota(ids, Usage { space, inodes: 0 }) {
                Ok(reserved) => quota = reserved,
                // As much of it as is allowed is written at once.
                Err(Error::QuotaExceeded) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        let edges = self.edges(inode, &gaps, (at, end), size)?;
        let now = self.now();
        let mut inode_pages = inode.pages().write();
        let dirty = inode_pages.dirty_bytes();
        self.copy_in(inode_pages.folios_of(inode, pages, self.geometry.block_size), &gaps, edges, at, buf);
        copied(buf.len());
        if let Some(reservation) = reservation {
            quota.merge(QuotaReservation::of_taken(self, std::mem::take(&mut inode_pages.quota)));
            inode_pages.quota = quota.into_taken();
            self.keep(inode, &mut inode_pages, reservation.into_claimed())?;
        }
        inode_pages.account(pages, inode);
        let run = u64::from(pages.run_bytes());
        // Appended data is seldom written again.
        if at >= size && dirty / run < inode_pages.dirty_bytes() / run {
            pages.writeback().write_early(inode);
        }
        let delayed = inode_pages.folios.as_ref().map_or(0, Folios::delayed);
        inode.writers().note();
        let block_size = u64::from(self.geometry.block_size);
        let is_whole = blocks > 0 && (at | end).is_multiple_of(block_size);
        let may_fill = is_whole && self.may_fill(pages, inode, &inode_pages);
        let mut state = inode.state_mut();
        state.delalloc.end = state.delalloc.end.max(end);
        state.delalloc.delayed = delayed;
        inode.note_time(&mut state, now);
        if let Some(folios) = inode_pages.folios.as_mut().filter(|_| may_fill) {
            // No block behind an end that lies in the middle of one: the rest of that is to be zeroes first.
            let size = state.size();
            let bytes = if size.is_multiple_of(block_size) { self.size_max(&state.raw) } else { size };
            folios.open_window((at / block_size) as u32, (bytes / block_size).min(LOGICAL_END) as u32);
            inode.begin_filling(&mut state);
        }
        inode.publish(&state);
        Ok(true)
    }

    /// Keeps `more` tokens for an inode beside those that it has, and gives back what it does not need, of limits too.
    pub(super) fn keep(&self, inode: &Inode, inode_pages: &mut InodePages, more: u64) -> Result<()> {
        let (delayed, runs) =
            inode_pages.folios.as_ref().map_or((0, 0), |folios| (folios.delayed(), folios.delayed_runs()));
        let mut kept = self.allocator.reservation_of_claimed(std::mem::take(&mut inode_pages.kept) + more);
        let need = if delayed == 0 { 0 } else { self.need_of(inode, delayed, runs)? };
        kept.shrink_to(need);
        inode_pages.kept = kept.into_claimed();
        if !inode_pages.quota.is_empty() {
            let mut quota = QuotaReservation::of_taken(self, std::mem::take(&mut inode_pages.quota));
            quota.shrink_to(delayed * u64::from(self.geometry.block_size));
            inode_pages.quota = quota.into_taken();
        }
        Ok(())
    }

    /// [`tree_need`] of a node's tree.
    pub(crate) fn need_of(&self, inode: &Inode, delayed: u64, runs: u64) -> Result<u64> {
        let location = Location::of(Structure::ExtentNode).inode(inode.number);
        let root = ExtentNode::parse(inode.raw().i_block(), None).map_err(|e| location.format(e))?;
        let clusters = self.clusters_at_most(delayed, runs);
        Ok(tree_need(clusters, runs, u64::from(root.depth), self.geometry.block_size))
    }

    /// The ranges of a write that are not in memory. None if unwritten blocks are among them.
    fn gaps(&self, inode: &Arc<Inode>, at: u64, bytes: usize) -> Result<Option<Vec<Gap>>> {
        let (first, within) = self.block_at(at)?;
        let end = first.0 + self.block_count(within, bytes);
        let mut gaps = Vec::new();
        let mut block = first.0;
        while block < end {
            let gap = {
                let inode_pages = inode.pages().write();
                inode_pages.folios.as_ref().map_or(end - block, |folios| folios.gap(block, end - block))
            };
            if gap == 0 {
                block += 1;
                continue;
            }
            let (start, len) = match self.map(inode, &inode.raw(), LogicalBlock(block), gap)? {
                Mapping::Hole { len } => (None, len),
                Mapping::Data { start, len, unwritten: false } => (Some(start), len),
                Mapping::Data { .. } => return Ok(None),
            };
            gaps.push(Gap { block, len, start });
            block += len;
        }
        Ok(Some(gaps))
    }

    /// Reads the blocks that the write from `at` to `end` touches in part and that are not in memory.
    fn edges(
        &self,
        inode: &Arc<Inode>,
        gaps: &[Gap],
        (at, end): (u64, u64),
        size: u64,
    ) -> Result<Vec<(u32, Vec<u8>)>> {
        let block_size = u64::from(self.geometry.block_size);
        let mut edges: Vec<(u32, Vec<u8>)> = Vec::new();
        for offset in [at, end].into_iter().filter(|offset| !offset.is_multiple_of(block_size)) {
            let (logical, _) = self.block_at(offset)?;
            let known = edges.iter().any(|(block, _)| *block == logical.0);
            let gap = gaps.iter().find(|gap| (gap.block..gap.block + gap.len).contains(&logical.0));
            let (Some(gap), false) = (gap, known) else { continue };
            let start = gap.start.map(|start| FsBlock(start.0 + u64::from(logical.0 - gap.block)));
            // All of its bytes that are in the file are written.
            let is_covered = at <= u64::from(logical.0) * block_size && end >= size;
            edges.push((logical.0, self.old_block(inode, logical, start.filter(|_| !is_covered), size)?));
        }
        Ok(edges)
    }

    fn copy_in(
        &self,
        folios: &mut Folios,
        gaps: &[Gap],
        mut edges: Vec<(u32, Vec<u8>)>,
        at: u64,
        buf: &[u8],
    ) {
        let block_size = u64::from(self.geometry.block_size);
        let (mut at, mut rest) = (at, buf);
        let mut gaps = gaps.iter().peekable();
        while !rest.is_empty() {
            let (block, within) = ((at / block_size) as u32, (at % block_size) as usize);
            let mut bytes = folios.write(block, within, rest);
            if bytes == 0 {
                while gaps.next_if(|gap| gap.block + gap.len <= block).is_some() {}
                let Some(gap) = gaps.peek() else { return };
                let what = if gap.start.is_some() { Block::Dirty } else { Block::Delayed };
                if let Some(edge) = edges.iter_mut().find(|(edge, _)| *edge == block) {
                    bytes = rest.len().min(edge.1.len() - within);
                    edge.1[within..within + bytes].copy_from_slice(&rest[..bytes]);
                    folios.insert(block, &edge.1, what);
                } else {
                    let before_edge = edges.iter().map(|(edge, _)| *edge).filter(|edge| *edge > block).min();
                    let gap_end = before_edge.unwrap_or(u32::MAX).min(gap.block + gap.len);
                    bytes = rest.len().min((u64::from(gap_end - block) * block_size) as usize);
                    folios.insert(block, &rest[..bytes], what);
                }
            }
            at += bytes as u64;
            rest = &rest[bytes..];
        }
    }
}
