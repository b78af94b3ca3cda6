//! The extents that are written back at once, from the pages' dirty runs to the inode that has them.
//!
//! A batch of dirty runs gets its places in one hold of `MAPPING`. Runs whose places follow one another, of one inode or of several, are written by
//! one request; where the device takes time, several of these are in flight. The runs are named in ascending order, once all of them were
//! written. Where blocks are allocated by clusters, a run without a place is a batch of its own: its place may be in the cluster of the run
//! before it, which the map knows once that is named.
//!
//! Locks: the caller holds the content for writing back, and `MAPPING` where a function says so.

use std::io::IoSlice;
use std::ops::Range;

use extant_alloc::{MayUse, Reservation};
use extant_ondisk::{FsBlock, LogicalBlock, Structure};
use extant_rt::{Arc, share_work};
use smallvec::{SmallVec, smallvec};

use super::place::{FieldChange, Placed};
use crate::error::{Error, Location, Result};
use crate::incore::folios::{DirtyRun, FolioSlice};
use crate::incore::inode::Inode;
use crate::incore::pages::InodePages;
use crate::mapping::Mapping;
use crate::mapping::prealloc::Wanted;
use crate::metadata::quota::reserve::QuotaReservation;
use crate::page_cache::PageCache;

/// Runs that are looked up in one hold of `MAPPING`, for which writers of the file wait.
pub(crate) const BATCH_RUNS_MAX: usize = 256;

/// Requests that pay for a thread: it costs as much as one of a fast device.
const REQUESTS_PER_THREAD: usize = 4;

/// Requests of a run that may fail before the rest of it is no longer tried by halves: a device that is gone takes no more
/// writes for each block, and a few bad blocks are still distinguished from their neighbours.
const FAILED_WRITES_MAX: u32 = 64;

/// One of something, as of a small file, or more.
type OneOrMore<T> = SmallVec<[T; 1]>;

/// The runs that are written at once.
pub(super) type Batch<'v> = Vec<WritebackExtent<'v>>;

/// A run that is being written to the disk.
pub(super) struct WritebackExtent<'v> {
    run: DirtyRun,
    parts: Vec<FolioSlice>,
    /// Its end in the file, which ended there or behind when the write of the run began.
    end: u64,
    placed: Placed<'v>,
    written: Written,
}

impl WritebackExtent<'_> {
    /// Where a later block of the file would be if it lay as far behind these on the disk as in the file, as the map's goals are.
    fn place_of(&self, block: u32) -> Option<FsBlock> {
        Some(FsBlock(self.placed.start.0.checked_add(u64::from(block.checked_sub(self.run.block)?))?))
    }
}

/// Blocks of a run that reached the device, counted from its start, in ascending order; and the first error.
#[derive(Default)]
struct Written {
    ranges: OneOrMore<Range<u32>>,
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

/// The outcome of writing runs back.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) written: OneOrMore<DirtyRun>,
    pub(super) lost: OneOrMore<DirtyRun>,
    /// The block of the file behind them.
    pub(super) end: u32,
    /// The last block that the inode on the disk has of the file was not written: what is behind the end of the file there may be
    /// anything, and must not come into it.
    pub(super) is_tail_lost: bool,
    /// Why something was lost first.
    pub(super) error: Option<Error>,
    /// Tokens of the inode that the runs did not need.
    pub(super) kept: u64,
}

impl Outcome {
    fn lose(&mut self, run: DirtyRun, range: Range<u32>) {
        if !range.is_empty() {
            self.lost.push(part_of(run, range));
        }
    }

    /// Adds the outcome of the runs behind.
    fn add(&mut self, behind: Self) {
        self.written.extend(behind.written);
        self.lost.extend(behind.lost);
        self.end = behind.end;
        self.is_tail_lost |= behind.is_tail_lost;
        self.error = self.error.take().or(behind.error);
        self.kept += behind.kept;
    }

    /// Blocks that were written.
    pub(super) fn blocks(&self) -> u64 {
        self.written.iter().map(|run| u64::from(run.len)).sum()
    }
}

/// What an inode keeps for its delayed blocks, while they get places.
struct InodeReservation<'v> {
    blocks: Reservation<'v>,
    quota: QuotaReservation<'v>,
}

impl InodeReservation<'_> {
    fn put_back(self, inode_pages: &mut InodePages) {
        inode_pages.kept += self.blocks.into_claimed();
        inode_pages.quota = self.quota.into_taken();
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

impl PageCache {
    /// Finds or takes places for the first dirty runs among `blocks`, of at most `len_max` blocks together. After a `lost_tail` runs that the
    /// file would grow over are refused.
    ///
    /// # Errors
    /// What is lost of the first run, because it has no place, and why.
    ///
    /// # Locks
    /// `MAPPING` is held.
    pub(super) fn next_batch(
        &self,
        inode: &Arc<Inode>,
        blocks: Range<u32>,
        len_max: u32,
        lost_tail: bool,
    ) -> Result<Batch<'_>, (DirtyRun, Error)> {
        let (runs, mut kept) = {
            let mut inode_pages = inode.pages().write();
            let runs = self.dirty_runs(&mut inode_pages, blocks, len_max);
            if runs.is_empty() {
                return Ok(Batch::new());
            }
            (runs, self.take_kept(&mut inode_pages))
        };
        let batch = self.place_runs(inode, runs, &mut kept, lost_tail);
        let mut inode_pages = inode.pages().write();
        kept.put_back(&mut inode_pages);
        let mut batch = batch?;
        if let Some(folios) = &mut inode_pages.folios {
            for extent in &mut batch {
                folios.set_off(extent.run);
                extent.parts = folios.parts(extent.run);
            }
        }
        Ok(batch)
    }

    fn take_kept(&self, inode_pages: &mut InodePages) -> InodeReservation<'_> {
        let blocks = self.allocator.reservation_of_claimed(std::mem::take(&mut inode_pages.kept));
        InodeReservation {
            blocks,
            quota: QuotaReservation::of_taken(self, std::mem::take(&mut inode_pages.quota)),
        }
    }

    /// The first dirty runs among `blocks`, of at most `len_max` blocks together. With clusters, a run without a place is alone.
    fn dirty_runs(
        &self,
        inode_pages: &mut InodePages,
        blocks: Range<u32>,
        len_max: u32,
    ) -> OneOrMore<DirtyRun> {
        let has_clusters = self.geometry.cluster_ratio > 1;
        let mut runs: OneOrMore<DirtyRun> = SmallVec::new();
        let (mut at, mut left) = (blocks.start, len_max);
        while left > 0
            && at < blocks.end
            && runs.len() < BATCH_RUNS_MAX
            && let Some(folios) = &mut inode_pages.folios
            && let Some(run) = folios.next_dirty(at, left)
            && run.block < blocks.end
            && (runs.is_empty() || !run.is_delayed || !has_clusters)
        {
            let run = DirtyRun { len: run.len.min(blocks.end - run.block), ..run };
            (at, left) = (run.block + run.len, left - run.len);
            runs.push(run);
            if run.is_delayed && has_clusters {
                break;
            }
        }
        runs
    }

    /// [`PageCache::next_batch`] of these runs, out of what is kept for them.
    fn place_runs<'v>(
        &'v self,
        inode: &Arc<Inode>,
        runs: OneOrMore<DirtyRun>,
        kept: &mut InodeReservation<'v>,
        lost_tail: bool,
    ) -> Result<Batch<'v>, (DirtyRun, Error)> {
        let mut batch = Batch::with_capacity(runs.len());
        for run in runs {
            let mut left = run;
            while left.len > 0 {
                let near = batch.last().and_then(|last| last.place_of(left.block));
                let near = near.filter(|block| self.geometry.is_valid_block_run(*block, 1));
                let mut placed = match self.place_run(inode, left, near, kept, lost_tail) {
                    Ok(placed) => placed,
                    Err(lost) if batch.is_empty() => return Err(lost),
                    // It may have one once these are named.
                    Err(_) => return Ok(batch),
                };
                if !batch.is_empty() {
                    placed.forget_hole();
                }
                let run = DirtyRun { len: placed.len, ..left };
                left = part_of(left, run.len..left.len);
                let end = self.run_end(inode, run);
                batch.push(WritebackExtent {
                    run,
                    parts: Vec::new(),
                    end,
                    placed,
                    written: Written::default(),
                });
                // The rest is sought behind this, once the map has it.
                if run.is_delayed && (left.len > 0 || self.geometry.cluster_ratio > 1) {
                    return Ok(batch);
                }
            }
        }
        Ok(batch)
    }

    /// Whether the inode on the disk ends before a byte of the file.
    fn grows(&self, inode: &Inode, end: u64) -> bool {
        end > inode.state().raw.size()
    }

    /// Finds the place of a run's first blocks, or takes one.
    ///
    /// # Errors
    /// What is lost of it, and why.
    fn place_run<'v>(
        &'v self,
        inode: &Arc<Inode>,
        run: DirtyRun,
        near: Option<FsBlock>,
        kept: &mut InodeReservation<'v>,
        lost_tail: bool,
    ) -> Result<Placed<'v>, (DirtyRun, Error)> {
        if lost_tail && self.grows(inode, self.run_end(inode, run)) {
            return Err((run, self.lost(inode)));
        }
        let placed = match run.is_delayed {
            true => self.place_delayed(inode, run, near, kept),
            false => self.place_mapped(inode, run),
        };
        placed.map_err(|error| (DirtyRun { len: self.unplaced_len(inode, run), ..run }, error))
    }

    fn place_mapped(&self, inode: &Arc<Inode>, run: DirtyRun) -> Result<Placed<'_>> {
        let logical = LogicalBlock(run.block);
        let location = Location::of(Structure::Inode).inode(inode.number);
        match self.map(inode, &inode.raw(), logical, run.len)? {
            Mapping::Data { start, len, unwritten: false } => Ok(Placed::in_map(logical, start, len)),
            _ => Err(location.corrupt("a block that was written is not mapped")),
        }
    }

    fn place_delayed<'v>(
        &'v self,
        inode: &Arc<Inode>,
        run: DirtyRun,
        near: Option<FsBlock>,
        kept: &mut InodeReservation<'v>,
    ) -> Result<Placed<'v>> {
        let wanted = Wanted {
            logical: LogicalBlock(run.block),
            len: run.len,
            end: inode.state().size(),
            // A file that is closed is not expected to grow.
            grows: inode.user_count() > 0,
            near,
            // The write was accepted.
            may_use: MayUse::Reserved,
        };
        let mut placed = self.place_in_hole(inode, &inode.raw(), wanted, Some(&mut kept.blocks))?;
        placed.hold_quota(kept.quota.split(self.bytes_of(placed.len)));
        Ok(placed)
    }

    /// How many blocks from the start of a run on have no place, which none was found for: of a mapped run those
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

    /// Writes extents of inodes, those whose places follow one another by one request, and waits.
    pub(super) fn write_extents<'e, 'v: 'e>(
        &self,
        extents: impl Iterator<Item = (&'e Arc<Inode>, &'e mut WritebackExtent<'v>)>,
    ) {
        let mut extents: OneOrMore<_> = extents.collect();
        extents.sort_unstable_by_key(|(_, extent)| extent.placed.start);
        let requests = extents.chunk_by_mut(|(_, one), (_, next)| next.placed.start == one.placed.end());
        let requests: OneOrMore<_> = requests.collect();
        let threads = self.requests_in_flight().min(requests.len() / REQUESTS_PER_THREAD);
        share_work(threads, requests.into_iter(), |request| self.write_request(request));
    }

    /// Writes extents to their places, which follow one another. If that fails each is written by a request of its own, so that a bad block
    /// is an error of its file alone. A failure that does not come again is one of the first file.
    fn write_request(&self, extents: &mut [(&Arc<Inode>, &mut WritebackExtent<'_>)]) {
        let together = if extents.len() > 1 { Some(self.write_adjacent(extents)) } else { None };
        if let Some(Ok(())) = together {
            extents.iter_mut().for_each(|(_, extent)| extent.written.add(0..extent.run.len));
            return;
        }
        extents.iter_mut().for_each(|(inode, extent)| extent.written = self.write_out(inode, extent));
        if let Some(Err(error)) = together
            && extents.iter().all(|(_, extent)| extent.written.error.is_none())
            && let Some((_, first)) = extents.first_mut()
        {
            first.written.error = Some(error);
        }
    }

    fn write_adjacent(&self, extents: &[(&Arc<Inode>, &mut WritebackExtent<'_>)]) -> Result<()> {
        let Some((inode, first)) = extents.first() else { return Ok(()) };
        let location = Location::of(Structure::Inode).inode(inode.number);
        let parts = extents.iter().flat_map(|(_, extent)| extent.parts.iter().map(FolioSlice::bytes));
        let bufs: Vec<_> = parts.map(IoSlice::new).collect();
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        let at = self.data_offset(first.placed.start, 0, bytes, location)?;
        self.device.write_vectored_at(at, &bufs).map_err(|e| location.block(first.placed.start).io(e))
    }

    /// Writes a run to its place, and waits. A failed request is tried again by halves, so that a bad block does not lose
    /// others.
    fn write_out(&self, inode: &Arc<Inode>, extent: &WritebackExtent<'_>) -> Written {
        let mut written = Written::default();
        let mut failures = 0;
        let whole = 0..extent.run.len;
        let mut left: OneOrMore<_> = smallvec![whole];
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
        let mut bufs: OneOrMore<IoSlice<'_>> = SmallVec::with_capacity(extent.parts.len());
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

    /// Names what was written of a batch, in ascending order, and has the file reach to its end. After a `lost_tail` the file does not grow.
    ///
    /// # Locks
    /// `MAPPING` is held.
    pub(super) fn end_batch<'v>(&'v self, inode: &Arc<Inode>, batch: Batch<'v>, lost_tail: bool) -> Outcome {
        let mut all = Outcome { is_tail_lost: lost_tail, ..Outcome::default() };
        // Each run may need what all have reserved: the tree that one of them makes larger is another one for the next.
        let mut kept = self.allocator.reservation_of_claimed(std::mem::take(&mut inode.pages().write().kept));
        for mut extent in batch {
            extent.placed.reserve_more(&mut kept);
            let outcome = if all.is_tail_lost && self.grows(inode, extent.end) {
                self.outcome_lost(inode, extent.run, self.lost(inode))
            } else {
                self.end_io(inode, &mut extent)
            };
            extent.placed.reserve_less(&mut kept);
            self.give_back_rest(extent.placed);
            all.add(outcome);
        }
        all.kept = kept.into_claimed();
        all
    }

    /// Whether one of the blocks is the last one that the inode on the disk has of the file.
    fn has_tail(&self, inode: &Inode, runs: &[DirtyRun]) -> bool {
        if runs.is_empty() {
            return false;
        }
        let tail = inode.state().raw.size() / u64::from(self.geometry.block_size);
        let has_tail = |run: &DirtyRun| {
            !run.is_delayed && (u64::from(run.block)..u64::from(run.block + run.len)).contains(&tail)
        };
        runs.iter().any(has_tail)
    }

    /// All of a run is lost.
    pub(super) fn outcome_lost(&self, inode: &Inode, run: DirtyRun, error: Error) -> Outcome {
        Outcome {
            lost: SmallVec::from([run]),
            end: run.block + run.len,
            is_tail_lost: self.has_tail(inode, &[run]),
            error: Some(error),
            ..Outcome::default()
        }
    }

    /// Names what was written of a run, and has the file reach to its end.
    fn end_io<'v>(&'v self, inode: &Arc<Inode>, extent: &mut WritebackExtent<'v>) -> Outcome {
        let WritebackExtent { run, end, ref mut placed, .. } = *extent;
        let written = std::mem::take(&mut extent.written);
        let mut outcome = Outcome { end: run.block + run.len, error: written.error, ..Outcome::default() };
        let block_size = u64::from(self.geometry.block_size);
        let mut at = 0;
        for range in written.ranges {
            outcome.lose(run, at..range.start);
            let end = end.min((u64::from(run.block) + u64::from(range.end)) * block_size);
            at = range.end;
            match self.name(inode, placed, range.clone(), FieldChange { end, privileged: None }) {
                Ok(()) => outcome.written.push(part_of(run, range)),
                Err(error) => {
                    outcome.error.get_or_insert(error);
                    outcome.lose(run, range);
                }
            }
        }
        outcome.lose(run, at..run.len);
        outcome.is_tail_lost = self.has_tail(inode, &outcome.lost);
        outcome
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
