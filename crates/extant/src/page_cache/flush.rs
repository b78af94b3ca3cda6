//! Writing an inode's pages to the disk, in ascending order: run by run: data first, then the update that maps it.
//!
//! So the inode's size on the disk grows over a block only after the block and all dirty ones before it were written, the
//! zeroes behind the old end among them. A thread that writes into the file meanwhile does not wait for a run to be written.
//! What it changes in a run that is being written stays dirty; the run's update grows the file no further than to the end that
//! the file had when the write of the run began.

use std::io::IoSlice;
use std::ops::Range;

use extant_alloc::{MayUse, Reservation};
use extant_ondisk::extent::MAX_LEN;
use extant_ondisk::{FsBlock, LogicalBlock, Structure};
use extant_rt::{Arc, Ordering};

use super::Pages;
use super::place::{FieldChange, Placed};
use crate::error::{Error, Location, Result};
use crate::incore::content::{ReadGuard, WritebackGuard};
use crate::incore::folios::{DirtyRun, FolioSlice, Folios};
use crate::incore::inode::Inode;
use crate::incore::pages::InodePages;
use crate::mapping::Mapping;
use crate::mapping::prealloc::Wanted;
use crate::metadata::quota::reserve::QuotaReservation;
use crate::metadata::update::{Credits, MetadataUpdate};
use crate::page_cache::PageCache;

/// Bytes that are written and named at once, at most.
const RUN_BYTES_MAX: u32 = 8 << 20;
/// Bytes of a run at least. Above that a run is at most a quarter of a context's dirty limit, because the context's writers
/// wait for the run that is being written once they have dirtied the rest.
const RUN_BYTES_MIN: u32 = 256 << 10;

/// Requests of a run that may fail before the rest of it is no longer tried by halves: a device that is gone takes no more
/// writes for each block, and a few bad blocks are still distinguished from their neighbours.
const FAILED_WRITES_MAX: u32 = 64;

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

/// A run that is being written to the disk.
struct WritebackExtent<'v> {
    run: DirtyRun,
    parts: Vec<FolioSlice>,
    /// Its end in the file, which ended there or behind when the write of the run began.
    end: u64,
    placed: Placed<'v>,
}

/// Blocks of a run that reached the device, counted from its start, in ascending order; and the first error.
#[derive(Default)]
struct Written {
    ranges: Vec<Range<u32>>,
    error: Option<Error>,
}

impl Written {
    fn add(&mut self, range: Range<u32>) {
        match self.ranges.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => self.ranges.push(range),
        }
    }
}

/// The outcome of a run.
#[derive(Default)]
struct RunOutcome {
    written: Vec<DirtyRun>,
    lost: Vec<DirtyRun>,
    /// The block of the file behind it.
    end: u32,
    /// Why something was lost.
    error: Option<Error>,
}

impl RunOutcome {
    /// All of a run is lost.
    fn lost(run: DirtyRun, error: Error) -> Self {
        Self { lost: vec![run], end: run.block + run.len, error: Some(error), ..Self::default() }
    }

    fn lose(&mut self, run: DirtyRun, range: Range<u32>) {
        if !range.is_empty() {
            self.lost.push(part_of(run, range));
        }
    }

    /// Blocks that were written.
    fn blocks(&self) -> u64 {
        self.written.iter().map(|run| u64::from(run.len)).sum()
    }
}

/// Blocks of a run, counted from its start.
fn part_of(run: DirtyRun, range: Range<u32>) -> DirtyRun {
    DirtyRun { block: run.block + range.start, len: range.end - range.start, ..run }
}

/// How many of `len` blocks fail, the first of which does, if those that fail lie together. It asks for few of them: for one twice as far
/// each time, then between the last two.
fn failing_len(len: u32, fails: impl Fn(u32) -> bool) -> u32 {
    let (mut bad, mut step) = (0, 1);
    let mut good = loop {
        let next = (bad + step).min(len - 1);
        if !fails(next) {
            break next;
        }
        if next == len - 1 {
            return len;
        }
        (bad, step) = (next, 2 * step);
    };
    while bad + 1 < good {
        let middle = bad.midpoint(good);
        if fails(middle) {
            bad = middle;
        } else {
            good = middle;
        }
    }
    good
}

/// Marks the pages of an inode as being written back.
struct Flushed<'n>(&'n Inode);

impl<'n> Flushed<'n> {
    fn new(inode: &'n Inode) -> Self {
        inode.pages().write().is_flushed = true;
        Self(inode)
    }
}

impl Drop for Flushed<'_> {
    fn drop(&mut self) {
        self.0.pages().write().is_flushed = false;
    }
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
        inode.state().delalloc.time = None;
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
            let mut state = inode.state();
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
        let flushed = Flushed::new(inode);
        if scope.blocks == Scope::ALL.blocks {
            inode.is_replaced.store(false, Ordering::Relaxed);
        }
        let (done, written) = self.flush_runs(pages, inode, held, &scope);
        let _mapping = held.mapping();
        let timed = if scope.times { self.put_times(inode) } else { Ok(()) };
        let mut inode_pages = inode.pages().write();
        if !pages.keeps_clean
            && let Some(folios) = &mut inode_pages.folios
        {
            folios.drop_clean();
        }
        self.update_page_accounting(pages, inode, &mut inode_pages);
        drop(inode_pages);
        drop(flushed);
        if inode.user_count() == 0 {
            self.discard_preallocations(inode);
            self.inodes.let_go(inode);
        }
        (done, written.and(timed))
    }

    fn flush_runs(
        &self,
        pages: &Pages,
        inode: &Arc<Inode>,
        held: &WritebackGuard<'_>,
        scope: &Scope,
    ) -> (u64, Result<()>) {
        let len_max = (pages.run_bytes() / self.geometry.block_size).clamp(1, u32::from(MAX_LEN));
        let (mut result, mut is_tail_lost) = (Ok(()), false);
        let (mut at, mut done) = (scope.blocks.start, 0);
        // A writer that goes on and on is not followed.
        let dirty_end = inode.pages().read().folios.as_ref().map_or(0, Folios::dirty_end);
        let end = dirty_end.min(scope.blocks.end);
        while done < scope.bytes_max {
            let mapping = held.mapping();
            let run = inode.pages().write().folios.as_mut().and_then(|folios| {
                let run = folios.next_dirty(at, len_max).filter(|run| run.block < end)?;
                let run = DirtyRun { len: run.len.min(end - run.block), ..run };
                folios.set_off(run);
                Some(run)
            });
            let Some(run) = run else { break };
            let is_refused = is_tail_lost && self.run_end(inode, run) > inode.state().raw.size();
            let extent = if is_refused { Err(self.lost(inode)) } else { self.map_extent(inode, run) };
            drop(mapping);
            let written =
                extent.as_ref().ok().map(|extent| self.write_out(inode, extent)).unwrap_or_default();
            let _mapping = held.mapping();
            let outcome = match extent {
                Ok(extent) => self.end_io(inode, extent, written),
                Err(error) if is_refused => RunOutcome::lost(run, error),
                Err(error) => RunOutcome::lost(DirtyRun { len: self.unplaced_len(inode, run), ..run }, error),
            };
            at = outcome.end;
            done += outcome.blocks() * u64::from(self.geometry.block_size);
            is_tail_lost |= self.loses_tail(inode, &outcome);
            result = result.and(self.record_outcome(pages, inode, outcome));
        }
        (done, result)
    }

    /// Whether the last block that the inode on the disk has of the file was not written: what is behind the end of the file
    /// there may be anything, and must not come into it.
    fn loses_tail(&self, inode: &Inode, outcome: &RunOutcome) -> bool {
        let tail = inode.state().raw.size() / u64::from(self.geometry.block_size);
        let has_tail = |run: &DirtyRun| {
            !run.is_delayed && (u64::from(run.block)..u64::from(run.block + run.len)).contains(&tail)
        };
        outcome.lost.iter().any(has_tail)
    }

    /// Cleans what was written of a run and drops what was lost. An error is recorded before anything is clean.
    ///
    /// # Errors
    /// Why something was lost.
    fn record_outcome(&self, pages: &Pages, inode: &Arc<Inode>, outcome: RunOutcome) -> Result<()> {
        if outcome.error.is_some() {
            self.inodes.unreported_errors.record(inode);
            self.writeback_error.record();
        }
        // Lost runs returned their tokens, and may have been written to meanwhile: then they are delayed again.
        let lost = outcome.lost.iter().filter(|run| run.is_delayed);
        let lost = lost.map(|run| self.clusters_at_most(u64::from(run.len), 1)).sum();
        let again = self.allocator.reserve(lost, MayUse::Reserved).map_or(0, Reservation::into_claimed);
        let mut inode_pages = inode.pages().write();
        let mut delayed = 0;
        if let Some(folios) = &mut inode_pages.folios {
            // In this order: what is dropped takes the marks of what was written to meanwhile with it.
            outcome.written.iter().for_each(|run| folios.clean(*run));
            outcome.lost.iter().for_each(|run| folios.lose(*run));
            delayed = folios.delayed();
        }
        let _ = self.keep(inode, &mut inode_pages, again);
        inode_pages.account(pages, inode);
        inode.state().delalloc.delayed = delayed;
        outcome.error.map_or(Ok(()), Err)
    }

    /// Where a run ends in the file.
    fn run_end(&self, inode: &Inode, run: DirtyRun) -> u64 {
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

    /// Finds the place of a run's first blocks, or takes one: what can be written at once.
    fn map_extent(&self, inode: &Arc<Inode>, run: DirtyRun) -> Result<WritebackExtent<'_>> {
        let placed =
            if run.is_delayed { self.place_delayed(inode, run)? } else { self.place_mapped(inode, run)? };
        let run = DirtyRun { len: placed.len, ..run };
        let parts = inode.pages().write().folios.as_mut().map(|folios| folios.parts(run)).unwrap_or_default();
        Ok(WritebackExtent { run, parts, end: self.run_end(inode, run), placed })
    }

    fn place_mapped(&self, inode: &Arc<Inode>, run: DirtyRun) -> Result<Placed<'_>> {
        let logical = LogicalBlock(run.block);
        let location = Location::of(Structure::Inode).inode(inode.number);
        match self.map(inode, &inode.raw(), logical, run.len)? {
            Mapping::Data { start, len, unwritten: false } => Ok(Placed::in_map(logical, start, len)),
            _ => Err(location.corrupt("a block that was written is not mapped")),
        }
    }

    fn place_delayed(&self, inode: &Arc<Inode>, run: DirtyRun) -> Result<Placed<'_>> {
        let wanted = Wanted {
            logical: LogicalBlock(run.block),
            len: run.len,
            end: inode.state().size(),
            // A file that is closed is not expected to grow.
            grows: inode.user_count() > 0,
            // The write was accepted.
            may_use: MayUse::Reserved,
        };
        let mut kept = self.allocator.reservation_of_claimed(std::mem::take(&mut inode.pages().write().kept));
        let placed = self.place_in_hole(inode, &inode.raw(), wanted, Some(&mut kept));
        let mut inode_pages = inode.pages().write();
        inode_pages.kept += kept.into_claimed();
        let mut placed = placed?;
        let taken = std::mem::take(&mut inode_pages.quota);
        let mut quota = QuotaReservation::of_taken(self, taken);
        placed.hold_quota(quota.split(self.bytes_of(placed.len)));
        inode_pages.quota = quota.into_taken();
        Ok(placed)
    }

    /// How many blocks from the start of a run on have no place, which [`PageCache::map_extent`] found none for: of a mapped run those
    /// whose map is damaged or cannot be read; all of a delayed run, unless its map cannot be read.
    fn unplaced_len(&self, inode: &Inode, run: DirtyRun) -> u32 {
        let raw = inode.raw();
        let map = |from: u32| self.map(inode, &raw, LogicalBlock(run.block + from), run.len - from);
        match map(0) {
            Err(_) => failing_len(run.len, |from| map(from).is_err()),
            Ok(_) if run.is_delayed => run.len,
            // It could be read the second time.
            Ok(Mapping::Data { unwritten: false, .. }) => 1,
            Ok(mapping) => mapping.len().min(run.len),
        }
    }

    /// Writes a run to its place, and waits. A failed request is tried again by halves, so that a bad block does not lose
    /// others.
    fn write_out(&self, inode: &Arc<Inode>, extent: &WritebackExtent<'_>) -> Written {
        let mut written = Written::default();
        let mut failures = 0;
        let whole = 0..extent.run.len;
        let mut left = vec![whole];
        while let Some(range) = left.pop() {
            match self.write_range(inode, extent, &range) {
                Ok(()) => written.add(range),
                Err(error) => {
                    failures += 1;
                    written.error.get_or_insert(error);
                    if range.len() > 1 && failures < FAILED_WRITES_MAX {
                        let middle = range.start + (range.end - range.start) / 2;
                        left.extend([middle..range.end, range.start..middle]);
                    }
                }
            }
        }
        written
    }

    /// Writes blocks of a run, counted from its start.
    fn write_range(
        &self,
        inode: &Arc<Inode>,
        extent: &WritebackExtent<'_>,
        range: &Range<u32>,
    ) -> Result<()> {
        let location = Location::of(Structure::Inode).inode(inode.number);
        let block_size = self.geometry.block_size as usize;
        let start = FsBlock(extent.placed.start.0 + u64::from(range.start));
        let at = self.data_offset(start, 0, range.len() * block_size, location)?;
        let (mut skipped, mut left) = (range.start as usize * block_size, range.len() * block_size);
        let mut bufs = Vec::with_capacity(extent.parts.len());
        for bytes in extent.parts.iter().map(FolioSlice::bytes) {
            let own = &bytes[skipped.min(bytes.len())..];
            let own = &own[..left.min(own.len())];
            skipped = skipped.saturating_sub(bytes.len());
            left -= own.len();
            if !own.is_empty() {
                bufs.push(IoSlice::new(own));
            }
        }
        self.device.write_vectored_at(at, &bufs).map_err(|e| location.block(start).io(e))
    }

    /// Names what was written of a run, and has the file reach to its end; gives back what was not.
    fn end_io<'v>(&'v self, inode: &Arc<Inode>, extent: WritebackExtent<'v>, written: Written) -> RunOutcome {
        let WritebackExtent { run, end, mut placed, .. } = extent;
        let mut outcome =
            RunOutcome { end: run.block + run.len, error: written.error, ..RunOutcome::default() };
        let block_size = u64::from(self.geometry.block_size);
        let mut at = 0;
        for range in written.ranges {
            outcome.lose(run, at..range.start);
            let end = end.min((u64::from(run.block) + u64::from(range.end)) * block_size);
            at = range.end;
            match self.name(inode, &mut placed, range.clone(), FieldChange { end, privileged: None }) {
                Ok(()) => outcome.written.push(part_of(run, range)),
                Err(error) => {
                    outcome.error.get_or_insert(error);
                    outcome.lose(run, range);
                }
            }
        }
        self.give_back_rest(placed);
        outcome.lose(run, at..run.len);
        outcome
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
                inode.state().delalloc.time = None;
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn blocks_that_fail_are_found_by_few_looks() {
        for len in [1, 2, 3, 7, 64, 2048] {
            for bad in (1..=len).step_by(1 + len as usize / 64) {
                let looks = Cell::new(0);
                let fails = |block| {
                    looks.set(looks.get() + 1);
                    block < bad
                };
                assert_eq!(failing_len(len, fails), bad, "of {len}");
                assert!(looks.get() <= 2 * (u32::BITS - len.leading_zeros()), "{bad} of {len}");
            }
        }
    }
}
