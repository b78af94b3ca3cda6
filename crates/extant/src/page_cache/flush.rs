//! Writing an inode's pages to the disk, in ascending order: run by run: data first, then the update that maps it.
//!
//! So the inode's size on the disk grows over a block only after the block and all dirty ones before it were written, the
//! zeroes behind the old end among them. A thread that writes into the file meanwhile does not wait for a run to be written.
//! What it changes in a run that is being written stays dirty; the run's update grows the file no further than to the end that
//! the file had when the write of the run began.

use std::ops::Range;

use extant_alloc::{MayUse, Reservation};
use extant_ondisk::Structure;
use extant_ondisk::extent::MAX_LEN;
use extant_rt::{Arc, BiasedWriteGuard, Ordering};

use super::Pages;
use super::writeback_extents::{Batch, Outcome};
use crate::error::{Error, Location, Result};
use crate::incore::content::{ReadGuard, WritebackGuard};
use crate::incore::folios::{DirtyRun, Folios};
use crate::incore::inode::Inode;
use crate::incore::pages::InodePages;
use crate::metadata::update::{Credits, MetadataUpdate};
use crate::page_cache::PageCache;

/// Bytes that are written and named at once, at most.
const RUN_BYTES_MAX: u32 = 8 << 20;
/// Bytes of a run at least. Above that a run is at most a quarter of a context's dirty limit, because the context's writers
/// wait for the run that is being written once they have dirtied the rest.
const RUN_BYTES_MIN: u32 = 256 << 10;

impl Pages {
    /// Bytes that are written and named at once.
    pub(super) fn run_bytes(&self) -> u32 {
        let quarter = u32::try_from(self.writeback().context_bytes_max() / 4).unwrap_or(u32::MAX);
        quarter.clamp(RUN_BYTES_MIN, RUN_BYTES_MAX)
    }
}

/// What of an inode is written back.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// Times too.
    pub(super) times: bool,
    /// No more runs once so many bytes are written.
    pub(super) bytes_max: u64,
    pub(super) blocks: Range<u32>,
}

impl Scope {
    pub(super) const ALL: Self = Self { times: true, bytes_max: u64::MAX, blocks: 0..u32::MAX };
}

/// Marks the pages of an inode as being written back.
struct Flushed<'n>(&'n Inode);

impl Flushed<'_> {
    /// Takes the mark away from the pages that the caller holds.
    fn end(self, inode_pages: &mut InodePages) {
        inode_pages.is_flushed = false;
        std::mem::forget(self);
    }
}

impl Drop for Flushed<'_> {
    fn drop(&mut self) {
        self.0.pages().write_beside_folios().is_flushed = false;
    }
}

/// The writeback of an inode, which has begun.
struct Flush<'f, 'n> {
    inode: &'f Arc<Inode>,
    held: &'f WritebackGuard<'n>,
    mapping: Option<BiasedWriteGuard<'n, ()>>,
    mark: Flushed<'f>,
    scope: Scope,
    /// The blocks that it has not come to.
    left: Range<u32>,
    /// Blocks of a batch at most.
    len_max: u32,
    /// Bytes that are written.
    done: u64,
    /// The first error.
    result: Result<()>,
    is_tail_lost: bool,
}

impl PageCache {
    /// Writes all that memory has of an inode: its dirty blocks, and times.
    ///
    /// # Errors
    /// The first. Data that could not be written is lost, and the loss is noted for all that have the file open.
    ///
    /// # Locks
    /// Takes `INODE`, shared, and `WRITEBACK`.
    pub(crate) fn flush(&self, inode: &Arc<Inode>) -> Result<()> {
        self.flush_with(inode, true)
    }

    /// [`PageCache::flush`], without the times unless `times`.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Locks
    /// As there.
    pub(crate) fn flush_with(&self, inode: &Arc<Inode>, times: bool) -> Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        if !inode.writeback().is_listed() {
            return Ok(());
        }
        let held = inode.lock_for_writeback();
        self.flush_some(pages, inode, &held, Scope { times, ..Scope::ALL }).1
    }

    /// Does `act`; if it finds no space while reserved blocks may be too many, flushes all inodes and does it again.
    ///
    /// # Errors
    /// As `act`.
    ///
    /// # Locks
    /// None may be held.
    pub(crate) fn retry_on_no_space<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        match act() {
            Err(Error::NoSpace)
                if self.pages.as_ref().is_some_and(|pages| pages.writeback().dirty_bytes() > 0) =>
            {
                // Each file reports its own lost data.
                let _ = self.flush_all();
                act()
            }
            other => other,
        }
    }

    /// Holds the content shared, with none of it dirty in memory.
    ///
    /// # Locks
    /// Takes `INODE`.
    pub(crate) fn read_written<'n>(&self, inode: &'n Arc<Inode>) -> ReadGuard<'n> {
        loop {
            let content = inode.lock_for_reading();
            if inode.pages().write().dirty_bytes() == 0 {
                return content;
            }
            drop(content);
            // Noted for the next sync; nothing is dirty then.
            let _ = self.flush(inode);
        }
    }

    /// Flushes a file and empties its pages, before its blocks are worked on.
    ///
    /// # Errors
    /// As [`PageCache::flush`].
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn flush_out(&self, inode: &Arc<Inode>) -> Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        let flushed = self.flush_locked(pages, inode);
        self.drop_pages(inode, 0..u32::MAX);
        flushed
    }

    /// The same of the blocks that a range of bytes touches. If the range reaches behind the end that the inode on the disk has, all of the
    /// file is written back: that end may not move over a block which is not written.
    ///
    /// # Errors
    /// As [`PageCache::flush`].
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn flush_range_out(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        let block = |block: u64| u32::try_from(block).unwrap_or(u32::MAX);
        let first = bytes.start / u64::from(self.geometry.block_size);
        let blocks = block(first)..block(self.blocks_of(bytes.end));
        let scope = match bytes.end > inode.state().raw.size() {
            true => Scope::ALL,
            false => Scope { blocks: blocks.clone(), ..Scope::ALL },
        };
        let (_, flushed) = self.flush_some(pages, inode, &WritebackGuard::Alone, scope);
        self.drop_pages(inode, blocks);
        flushed
    }

    /// Drops the pages of blocks of a file, written or not.
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn drop_pages(&self, inode: &Arc<Inode>, blocks: Range<u32>) {
        let Some(pages) = &self.pages else { return };
        let mut inode_pages = inode.pages().write();
        if let Some(folios) = &mut inode_pages.folios {
            folios.drop_range(blocks);
        }
        self.update_page_accounting(pages, inode, &mut inode_pages);
    }

    /// Drops all pages of a file that is to be deleted; false, and nothing is done, while another thread works on it.
    pub(crate) fn forget_pages(&self, inode: &Arc<Inode>) -> bool {
        let Some(pages) = &self.pages else { return true };
        let mut inode_pages = inode.pages().write();
        if inode_pages.is_changed || inode_pages.is_flushed {
            return false;
        }
        if let Some(folios) = &mut inode_pages.folios {
            folios.drop_range(0..u32::MAX);
        }
        inode.drop_time();
        self.update_page_accounting(pages, inode, &mut inode_pages);
        true
    }

    /// Gives back what the pages of an inode need no more, and puts right what it has ahead of its inode.
    fn update_page_accounting(&self, pages: &Pages, inode: &Arc<Inode>, inode_pages: &mut InodePages) {
        let delayed = inode_pages.folios.as_ref().map_or(0, Folios::delayed);
        // Blocks that cannot be counted stay reserved; the next flush returns them.
        let _ = self.keep(inode, inode_pages, 0);
        inode_pages.account(pages, inode);
        let is_clean = inode_pages.dirty_bytes() == 0;
        let has_time = {
            let mut state = inode.state_mut();
            state.delalloc.delayed = delayed;
            if is_clean {
                state.delalloc.end = 0;
                inode.publish(&state);
            }
            state.delalloc.time.is_some()
        };
        if !has_time {
            pages.writeback().cleaned_times(inode);
        }
    }

    /// [`PageCache::flush`].
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(super) fn flush_locked(&self, pages: &Pages, inode: &Arc<Inode>) -> Result<()> {
        self.flush_some(pages, inode, &WritebackGuard::Alone, Scope::ALL).1
    }

    /// Writes back what of an inode is dirty now and in `scope`: how many bytes, and the first error.
    pub(super) fn flush_some(
        &self,
        pages: &Pages,
        inode: &Arc<Inode>,
        held: &WritebackGuard<'_>,
        scope: Scope,
    ) -> (u64, Result<()>) {
        let mut flush = self.begin_flush(pages, inode, held, scope);
        self.flush_rest(pages, &mut flush);
        self.end_flush(pages, flush)
    }

    /// Writes back all that is dirty now of inodes of which little is: of each how many bytes, and the first error. The first batches of all
    /// are written before any of them is named.
    ///
    /// # Locks
    /// Takes `MAPPING` of one inode at a time.
    pub(crate) fn flush_together<'f, 'n>(
        &self,
        pages: &Pages,
        inodes: &'f [(&'f Arc<Inode>, WritebackGuard<'n>)],
    ) -> Vec<(u64, Result<()>)> {
        let begin = |(inode, held): &'f (&'f Arc<Inode>, WritebackGuard<'n>)| {
            let mut flush = self.begin_flush(pages, inode, held, Scope::ALL);
            let batch = self.place_batch(pages, &mut flush);
            // The next one's is taken.
            flush.mapping = None;
            (flush, batch.unwrap_or_default())
        };
        let mut begun: Vec<_> = inodes.iter().map(begin).collect();
        self.write_extents(
            begun.iter_mut().flat_map(|(flush, batch)| batch.iter_mut().map(|extent| (flush.inode, extent))),
        );
        let end = |(mut flush, batch)| {
            self.name_batch(pages, &mut flush, batch);
            self.flush_rest(pages, &mut flush);
            self.end_flush(pages, flush)
        };
        begun.into_iter().map(end).collect()
    }

    fn begin_flush<'f, 'n>(
        &self,
        pages: &Pages,
        inode: &'f Arc<Inode>,
        held: &'f WritebackGuard<'n>,
        scope: Scope,
    ) -> Flush<'f, 'n> {
        let (mark, dirty_end) = {
            let mut inode_pages = inode.pages().write();
            inode_pages.is_flushed = true;
            (Flushed(inode), inode_pages.folios.as_ref().map_or(0, Folios::dirty_end))
        };
        if scope.blocks == Scope::ALL.blocks {
            inode.is_replaced.store(false, Ordering::Relaxed);
        }
        Flush {
            inode,
            held,
            mapping: None,
            mark,
            // A writer that goes on and on is not followed.
            left: scope.blocks.start..scope.blocks.end.min(dirty_end),
            scope,
            len_max: (pages.run_bytes() / self.geometry.block_size).clamp(1, u32::from(MAX_LEN)),
            done: 0,
            result: Ok(()),
            is_tail_lost: false,
        }
    }

    /// Batch by batch: places them, writes them, and names them.
    fn flush_rest(&self, pages: &Pages, flush: &mut Flush<'_, '_>) {
        while let Some(mut batch) = self.place_batch(pages, flush) {
            let inode = flush.inode;
            self.write_extents(batch.iter_mut().map(|extent| (inode, extent)));
            self.name_batch(pages, flush, batch);
        }
    }

    /// The next runs, with their places. `MAPPING` is not held then, so that writers do not wait for the device.
    fn place_batch<'v>(&'v self, pages: &Pages, flush: &mut Flush<'_, '_>) -> Option<Batch<'v>> {
        while !flush.left.is_empty() && flush.done < flush.scope.bytes_max {
            // Those who wait for a batch to be named come before the next one.
            flush.mapping = None;
            flush.mapping = flush.held.mapping();
            match self.next_batch(flush.inode, flush.left.clone(), flush.len_max, flush.is_tail_lost) {
                Ok(batch) if batch.is_empty() => break,
                Ok(batch) => {
                    flush.mapping = None;
                    return Some(batch);
                }
                Err((run, error)) => {
                    let outcome = self.outcome_lost(flush.inode, run, error);
                    self.record_outcome(pages, flush, outcome);
                }
            }
        }
        None
    }

    /// Names what was written of a batch. `MAPPING` is held then.
    fn name_batch<'v>(&'v self, pages: &Pages, flush: &mut Flush<'_, '_>, batch: Batch<'v>) {
        if batch.is_empty() {
            return;
        }
        flush.mapping = flush.held.mapping();
        let outcome = self.end_batch(flush.inode, batch, flush.is_tail_lost);
        self.record_outcome(pages, flush, outcome);
    }

    fn end_flush(&self, pages: &Pages, flush: Flush<'_, '_>) -> (u64, Result<()>) {
        let Flush { inode, held, mapping, mark, scope, done, result, .. } = flush;
        let _mapping = mapping.or_else(|| held.mapping());
        let timed = if scope.times { self.put_times(inode) } else { Ok(()) };
        let mut inode_pages = inode.pages().write();
        if !pages.keeps_clean
            && let Some(folios) = &mut inode_pages.folios
        {
            folios.drop_clean();
        }
        self.update_page_accounting(pages, inode, &mut inode_pages);
        mark.end(&mut inode_pages);
        drop(inode_pages);
        if inode.user_count() == 0 {
            self.discard_preallocations(inode);
            self.inodes.let_go(inode);
        }
        (done, result.and(timed))
    }

    /// Cleans what was written of runs and drops what was lost. An error is recorded before anything is clean.
    fn record_outcome(&self, pages: &Pages, flush: &mut Flush<'_, '_>, outcome: Outcome) {
        let inode = flush.inode;
        flush.is_tail_lost |= outcome.is_tail_lost;
        flush.left.start = outcome.end;
        flush.done += outcome.blocks() * u64::from(self.geometry.block_size);
        if outcome.error.is_some() {
            self.inodes.unreported_errors.record(inode);
            self.writeback_error.record();
        }
        // Lost runs returned their tokens, and may have been written to meanwhile: then they are delayed again.
        let lost = outcome.lost.iter().filter(|run| run.is_delayed);
        let again = match lost.map(|run| self.clusters_at_most(u64::from(run.len), 1)).sum() {
            0 => 0,
            lost => self.allocator.reserve(lost, MayUse::Reserved).map_or(0, Reservation::into_claimed),
        };
        let mut inode_pages = inode.pages().write();
        let mut delayed = 0;
        if let Some(folios) = &mut inode_pages.folios {
            // In this order: what is dropped takes the marks of what was written to meanwhile with it.
            outcome.written.iter().for_each(|run| folios.clean(*run));
            outcome.lost.iter().for_each(|run| folios.lose(*run));
            delayed = folios.delayed();
        }
        let _ = self.keep(inode, &mut inode_pages, outcome.kept + again);
        inode_pages.account(pages, inode);
        inode.state_mut().delalloc.delayed = delayed;
        if flush.result.is_ok() {
            flush.result = outcome.error.map_or(Ok(()), Err);
        }
    }

    /// Where a run ends in the file.
    pub(super) fn run_end(&self, inode: &Inode, run: DirtyRun) -> u64 {
        let end = (u64::from(run.block) + u64::from(run.len)) * u64::from(self.geometry.block_size);
        end.min(inode.state().size())
    }

    /// Checks that no file has lost data since the last report.
    ///
    /// # Errors
    /// `Io` if some was.
    pub(crate) fn check_writeback_error(&self) -> Result<()> {
        let error =
            || Location::of(Structure::Inode).io(std::io::Error::other("data of some files was lost"));
        if self.writeback_error.check_and_advance(&self.reported_error) { Err(error()) } else { Ok(()) }
    }

    /// The error of data that was lost earlier.
    pub(crate) fn lost(&self, inode: &Inode) -> Error {
        Location::of(Structure::Inode)
            .inode(inode.number)
            .io(std::io::Error::other("data written before was lost"))
    }

    /// Puts the time of the last write into the inode.
    fn put_times(&self, inode: &Arc<Inode>) -> Result<()> {
        if inode.state().delalloc.time.is_none() {
            return Ok(());
        }
        let begun = self.begin(Credits::new(1, 0)).map(MetadataUpdate::tracked);
        match begun {
            Ok(mut update) => {
                update.put_times(inode);
                update.finish();
            }
            Err(error) => {
                inode.drop_time();
                return Err(error);
            }
        }
        Ok(())
    }
}
