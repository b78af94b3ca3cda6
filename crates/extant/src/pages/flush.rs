//! Writing an inode's pages to the disk, in ascending order: data, then the update that names it, run by run.
//!
//! So the inode's size on the disk grows over a block only after the block and all dirty ones before it were written, the
//! zeroes behind the old end among them. Whoever writes into the file meanwhile waits for no run to be written. What he
//! changes of a run on its way stays dirty; where the file ended when the run set off is as far as its update makes it grow.

use std::io::IoSlice;
use std::ops::Range;

use extant_alloc::{MayUse, Reservation, Run};
use extant_ondisk::extent::MAX_LEN;
use extant_ondisk::{FsBlock, LogicalBlock, Structure};
use extant_rt::{Arc, Ordering};

use super::folios::Part;
use super::{DirtyRun, NodePages, Pages};
use crate::content::{Flush, View};
use crate::error::{Error, Place, Result};
use crate::map::{Hole, Mapping};
use crate::node::Node;
use crate::prealloc::Wanted;
use crate::update::{Change, Need, Update};
use crate::volume::Volume;
use crate::write::RUN_CREDITS;

/// Bytes that are written and named at once, at most.
const RUN_BYTES_MAX: u32 = 8 << 20;
/// And at least, where they would be more than a quarter of what a context may have dirty: its writers wait for a run on its
/// way once they have dirtied the rest.
const RUN_BYTES_MIN: u32 = 256 << 10;

/// Requests of a run that may fail before the rest of it is no longer tried by halves: a device that is gone takes no more
/// writes for each block, and a few bad blocks are still told from their neighbours.
const FAILED_WRITES_MAX: u32 = 64;

impl Pages {
    /// Bytes that are written and named at once.
    pub(super) fn run_bytes(&self) -> u32 {
        let quarter = u32::try_from(self.writeback().context_bytes_max() / 4).unwrap_or(u32::MAX);
        quarter.clamp(RUN_BYTES_MIN, RUN_BYTES_MAX)
    }
}

/// A run on its way to the disk.
struct Flight<'v> {
    run: DirtyRun,
    parts: Vec<Part>,
    start: FsBlock,
    /// Where it ends in the file, which ended there or behind when it set off.
    end: u64,
    /// Of a delayed one.
    naming: Option<Naming<'v>>,
}

/// How the blocks of a run come into the inode's map.
struct Naming<'v> {
    /// Of the run's first block, until it is filled.
    hole: Option<Hole>,
    taken: Run,
    reservation: Reservation<'v>,
}

impl Naming<'_> {
    /// Those of the taken blocks that a part of the run goes to.
    fn part(&self, range: &Range<u32>) -> Run {
        Run { start: FsBlock(self.taken.start.0 + u64::from(range.start)), len: range.end - range.start }
    }
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

/// What became of a run.
#[derive(Default)]
struct Landed {
    written: Vec<DirtyRun>,
    lost: Vec<DirtyRun>,
    /// The block of the file behind it.
    end: u32,
    /// Why something was lost.
    error: Option<Error>,
}

impl Landed {
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

/// Marks the pages of a node as being written back.
struct Flushed<'n>(&'n Node);

impl<'n> Flushed<'n> {
    fn new(node: &'n Node) -> Self {
        node.pages().lock().is_flushed = true;
        Self(node)
    }
}

impl Drop for Flushed<'_> {
    fn drop(&mut self) {
        self.0.pages().lock().is_flushed = false;
    }
}

impl Volume {
    /// Writes all that memory has of an inode: its dirty blocks, and times.
    ///
    /// # Errors
    /// The first. What could not be written is lost, and noted for all who have the file open.
    ///
    /// # Locks
    /// Takes `INODE`, shared, and `FLUSH`.
    pub(crate) fn flush(&self, node: &Arc<Node>) -> Result<()> {
        self.flush_with(node, true)
    }

    /// [`Volume::flush`], without the times unless `times`.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Locks
    /// As there.
    pub(crate) fn flush_with(&self, node: &Arc<Node>, times: bool) -> Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        if !node.writeback().is_listed() {
            return Ok(());
        }
        let held = node.flush();
        self.flush_some(pages, node, &held, times, u64::MAX).1
    }

    /// Does `act`; if it finds no space while reserved blocks may be too many, flushes all inodes and does it again.
    ///
    /// # Errors
    /// As `act`.
    ///
    /// # Locks
    /// None may be held.
    pub(crate) fn with_room<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        match act() {
            Err(Error::NoSpace)
                if self.pages.as_ref().is_some_and(|pages| pages.writeback().dirty_bytes() > 0) =>
            {
                // Who lost something is told by its own file.
                let _ = self.flush_all();
                act()
            }
            other => other,
        }
    }

    /// Holds the content shared, with nothing of it in memory only.
    ///
    /// # Locks
    /// Takes `INODE`.
    pub(crate) fn read_written<'n>(&self, node: &'n Arc<Node>) -> View<'n> {
        loop {
            let content = node.view();
            if node.pages().lock().dirty_bytes() == 0 {
                return content;
            }
            drop(content);
            // Noted for those who sync; nothing is dirty then.
            let _ = self.flush(node);
        }
    }

    /// Flushes a file and empties its pages, before its blocks are worked on.
    ///
    /// # Errors
    /// As [`Volume::flush`].
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn flush_out(&self, node: &Arc<Node>) -> Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        let flushed = self.flush_locked(pages, node);
        self.drop_pages_from(node, 0);
        flushed
    }

    /// Drops the pages of a file from a block on, written or not.
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn drop_pages_from(&self, node: &Arc<Node>, block: u32) {
        let Some(pages) = &self.pages else { return };
        let mut node_pages = node.pages().lock();
        if let Some(folios) = &mut node_pages.folios {
            folios.drop_from(block);
        }
        self.settle_pages(pages, node, &mut node_pages);
    }

    /// Drops all that memory has of a file that is to be deleted; false, and nothing is done, while somebody works on it.
    pub(crate) fn forget_pages(&self, node: &Arc<Node>) -> bool {
        let Some(pages) = &self.pages else { return true };
        let mut node_pages = node.pages().lock();
        if node_pages.is_changed || node_pages.is_flushed {
            return false;
        }
        if let Some(folios) = &mut node_pages.folios {
            folios.drop_from(0);
        }
        node.core().ahead.time = None;
        self.settle_pages(pages, node, &mut node_pages);
        true
    }

    /// Gives back what the pages of a node need no more, and puts right what it has ahead of its inode.
    fn settle_pages(&self, pages: &Pages, node: &Arc<Node>, node_pages: &mut NodePages) {
        let delayed = node_pages.folios.as_ref().map_or(0, super::Folios::delayed);
        // What cannot be counted stays reserved; the next to flush gives it back.
        let _ = self.keep(node, node_pages, 0);
        node_pages.account(pages, node);
        let is_clean = node_pages.dirty_bytes() == 0;
        let has_time = {
            let mut core = node.core();
            core.ahead.delayed = delayed;
            if is_clean {
                core.ahead.end = 0;
            }
            core.ahead.time.is_some()
        };
        if !has_time {
            pages.writeback().cleaned_times(node);
        }
    }

    /// [`Volume::flush`].
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(super) fn flush_locked(&self, pages: &Pages, node: &Arc<Node>) -> Result<()> {
        self.flush_some(pages, node, &Flush::Alone, true, u64::MAX).1
    }

    /// [`Volume::flush_with`], but of what is dirty now only, and no more runs once `bytes` bytes are written: how many were,
    /// and the first error.
    pub(super) fn flush_some(
        &self,
        pages: &Pages,
        node: &Arc<Node>,
        held: &Flush<'_>,
        times: bool,
        bytes: u64,
    ) -> (u64, Result<()>) {
        let flushed = Flushed::new(node);
        node.is_replaced.store(false, Ordering::Relaxed);
        let (done, written) = self.flush_runs(pages, node, held, bytes);
        let _step = held.step();
        let timed = if times { self.put_times(node) } else { Ok(()) };
        let mut node_pages = node.pages().lock();
        if !pages.keeps_clean
            && let Some(folios) = &mut node_pages.folios
        {
            folios.drop_clean();
        }
        self.settle_pages(pages, node, &mut node_pages);
        drop(node_pages);
        drop(flushed);
        if node.user_count() == 0 {
            self.discard_preallocations(node);
            self.nodes.let_go(node);
        }
        (done, written.and(timed))
    }

    fn flush_runs(&self, pages: &Pages, node: &Arc<Node>, held: &Flush<'_>, bytes: u64) -> (u64, Result<()>) {
        let len_max = (pages.run_bytes() / self.geometry.block_size).clamp(1, u32::from(MAX_LEN));
        let (mut result, mut is_tail_lost) = (Ok(()), false);
        let (mut at, mut done) = (0, 0);
        // A writer that goes on and on is not followed.
        let end = node.pages().lock().folios.as_ref().map_or(0, super::Folios::dirty_end);
        while done < bytes {
            let step = held.step();
            let run = node.pages().lock().folios.as_mut().and_then(|folios| {
                let run = folios.next_dirty(at, len_max).filter(|run| run.block < end)?;
                folios.set_off(run);
                Some(run)
            });
            let Some(run) = run else { break };
            let flight = match is_tail_lost && self.run_end(node, run) > node.core().inode.size() {
                true => Err(self.lost(node)),
                false => self.depart(node, run),
            };
            drop(step);
            let written = flight.as_ref().ok().map(|flight| self.write_out(node, flight)).unwrap_or_default();
            let _step = held.step();
            let landed = match flight {
                Ok(flight) => self.land(node, flight, written),
                Err(error) => Landed::lost(run, error),
            };
            at = landed.end;
            done += landed.blocks() * u64::from(self.geometry.block_size);
            is_tail_lost |= self.loses_tail(node, &landed);
            result = result.and(self.note_landed(pages, node, landed));
        }
        (done, result)
    }

    /// Whether the last block that the inode on the disk has of the file was not written: what is behind the end of the file
    /// there may be anything, and must not come into it.
    fn loses_tail(&self, node: &Node, landed: &Landed) -> bool {
        let tail = node.core().inode.size() / u64::from(self.geometry.block_size);
        let has_tail = |run: &DirtyRun| {
            !run.is_delayed && (u64::from(run.block)..u64::from(run.block + run.len)).contains(&tail)
        };
        landed.lost.iter().any(has_tail)
    }

    /// Cleans what was written of a run and drops what was lost. An error is recorded before anything is clean.
    ///
    /// # Errors
    /// Why something was lost.
    fn note_landed(&self, pages: &Pages, node: &Arc<Node>, landed: Landed) -> Result<()> {
        if landed.error.is_some() {
            self.nodes.unreported_errors.record(node);
            self.writeback_error.record();
        }
        // What is lost gave its tokens back, and may have been written to meanwhile: then it is delayed again.
        let lost: u64 = landed.lost.iter().filter(|run| run.is_delayed).map(|run| u64::from(run.len)).sum();
        let again = self.allocator.reserve(lost, MayUse::Reserved).map_or(0, Reservation::into_claimed);
        let mut node_pages = node.pages().lock();
        let mut delayed = 0;
        if let Some(folios) = &mut node_pages.folios {
            // In this order: what is dropped takes the marks of what was written to meanwhile with it.
            landed.written.iter().for_each(|run| folios.clean(*run));
            landed.lost.iter().for_each(|run| folios.lose(*run));
            delayed = folios.delayed();
        }
        let _ = self.keep(node, &mut node_pages, again);
        node_pages.account(pages, node);
        node.core().ahead.delayed = delayed;
        landed.error.map_or(Ok(()), Err)
    }

    /// Where a run ends in the file.
    fn run_end(&self, node: &Node, run: DirtyRun) -> u64 {
        let end = (u64::from(run.block) + u64::from(run.len)) * u64::from(self.geometry.block_size);
        end.min(node.core().size())
    }

    /// That no data was lost of any file since this was reported last.
    ///
    /// # Errors
    /// `Io` if some was.
    pub(crate) fn check_writeback_error(&self) -> Result<()> {
        let error = || Place::of(Structure::Inode).io(std::io::Error::other("data of some files was lost"));
        if self.writeback_error.check_and_advance(&self.reported_error) { Err(error()) } else { Ok(()) }
    }

    /// The error of data that was lost earlier.
    pub(crate) fn lost(&self, node: &Node) -> Error {
        Place::of(Structure::Inode)
            .inode(node.number)
            .io(std::io::Error::other("data written before was lost"))
    }

    /// Finds the place of a run's first blocks, or takes one: what can be written at once.
    fn depart(&self, node: &Arc<Node>, run: DirtyRun) -> Result<Flight<'_>> {
        let (run, start, naming) =
            if run.is_delayed { self.place_delayed(node, run)? } else { self.place_mapped(node, run)? };
        let parts = node.pages().lock().folios.as_mut().map(|folios| folios.parts(run)).unwrap_or_default();
        Ok(Flight { run, parts, start, end: self.run_end(node, run), naming })
    }

    fn place_mapped(
        &self,
        node: &Arc<Node>,
        run: DirtyRun,
    ) -> Result<(DirtyRun, FsBlock, Option<Naming<'_>>)> {
        let place = Place::of(Structure::Inode).inode(node.number);
        match self.map(node, LogicalBlock(run.block), run.len)? {
            Mapping::Data { start, len, unwritten: false } => Ok((DirtyRun { len, ..run }, start, None)),
            _ => Err(place.corrupt("a block that was written is not mapped")),
        }
    }

    fn place_delayed(
        &self,
        node: &Arc<Node>,
        run: DirtyRun,
    ) -> Result<(DirtyRun, FsBlock, Option<Naming<'_>>)> {
        let logical = LogicalBlock(run.block);
        let hole = self.hole(node, logical)?;
        let wanted = Wanted {
            logical,
            len: run.len.min(hole.len_max()),
            end: node.core().size(),
            // Who closed the file is done with it.
            grows: node.user_count() > 0,
            // The write was accepted.
            may_use: MayUse::Reserved,
        };
        let mut kept = self.allocator.reservation_of_claimed(std::mem::take(&mut node.pages().lock().kept));
        let taken = self.take_content(node, &hole, wanted, Some(&mut kept));
        node.pages().lock().kept += kept.into_claimed();
        let (taken, reservation) = taken?;
        if !hole.can_name(taken) {
            self.allocator.free_unmarked(taken);
            return Err(Error::NoSpace);
        }
        let run = DirtyRun { len: taken.len, ..run };
        Ok((run, taken.start, Some(Naming { hole: Some(hole), taken, reservation })))
    }

    /// Writes a run to its place, and waits. What fails is tried again by halves, so that a bad block costs no others.
    fn write_out(&self, node: &Arc<Node>, flight: &Flight<'_>) -> Written {
        let mut written = Written::default();
        let mut failures = 0;
        let whole = 0..flight.run.len;
        let mut left = vec![whole];
        while let Some(range) = left.pop() {
            match self.write_range(node, flight, &range) {
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
    fn write_range(&self, node: &Arc<Node>, flight: &Flight<'_>, range: &Range<u32>) -> Result<()> {
        let place = Place::of(Structure::Inode).inode(node.number);
        let block_size = self.geometry.block_size as usize;
        let start = FsBlock(flight.start.0 + u64::from(range.start));
        let at = self.data_offset(start, 0, range.len() * block_size, place)?;
        let (mut skipped, mut left) = (range.start as usize * block_size, range.len() * block_size);
        let mut bufs = Vec::with_capacity(flight.parts.len());
        for bytes in flight.parts.iter().map(Part::bytes) {
            let own = &bytes[skipped.min(bytes.len())..];
            let own = &own[..left.min(own.len())];
            skipped = skipped.saturating_sub(bytes.len());
            left -= own.len();
            if !own.is_empty() {
                bufs.push(IoSlice::new(own));
            }
        }
        self.device.write_vectored_at(at, &bufs).map_err(|e| place.block(start).io(e))
    }

    /// Names what was written of a run, and has the file reach to its end; gives back what was not.
    fn land<'v>(&'v self, node: &Arc<Node>, flight: Flight<'v>, written: Written) -> Landed {
        let Flight { run, end, mut naming, .. } = flight;
        let mut landed = Landed { end: run.block + run.len, error: written.error, ..Landed::default() };
        let block_size = u64::from(self.geometry.block_size);
        let mut at = 0;
        for range in written.ranges {
            self.give_up(&mut landed, run, at..range.start, naming.as_ref());
            let end = end.min((u64::from(run.block) + u64::from(range.end)) * block_size);
            at = range.end;
            let named = match &mut naming {
                None => self.grow_to_written(node, end),
                Some(naming) => self.name_written(node, naming, run, range.clone(), end),
            };
            match named {
                Ok(()) => landed.written.push(part_of(run, range)),
                Err(error) => {
                    landed.error.get_or_insert(error);
                    landed.lose(run, range);
                }
            }
        }
        self.give_up(&mut landed, run, at..run.len, naming.as_ref());
        landed
    }

    /// Loses blocks of a run, counted from its start, and gives back those that were taken for them.
    fn give_up(&self, landed: &mut Landed, run: DirtyRun, range: Range<u32>, naming: Option<&Naming<'_>>) {
        if let Some(naming) = naming.filter(|_| !range.is_empty()) {
            self.allocator.free_unmarked(naming.part(&range));
        }
        landed.lose(run, range);
    }

    /// Has a file reach to `end`, up to which its blocks are written and named.
    fn grow_to_written(&self, node: &Arc<Node>, end: u64) -> Result<()> {
        if end > node.core().inode.size() {
            let mut update = self.begin(Need::new(1, 0))?;
            update.grow_to(node, end);
            update.finish();
        }
        Ok(())
    }

    /// Names a part of a run that was written.
    fn name_written<'v>(
        &'v self,
        node: &Arc<Node>,
        naming: &mut Naming<'v>,
        run: DirtyRun,
        range: Range<u32>,
        end: u64,
    ) -> Result<()> {
        let logical = LogicalBlock(run.block + range.start);
        let taken = naming.part(&range);
        let mut opened = || {
            let hole = match naming.hole.take().filter(|_| range.start == 0) {
                Some(hole) => hole,
                None => self.hole(node, logical)?,
            };
            let growth = hole.growth();
            // Other runs, or the tree, may have grown since this one was taken.
            self.check_countable(&node.inode(), growth.saturating_add(taken.len))?;
            let kept = Some(&mut naming.reservation);
            let reservation = self.reserve_of(kept, (growth, growth), MayUse::Reserved)?;
            Ok((self.begin_reserved(hole.credits() + RUN_CREDITS, reservation)?, hole))
        };
        let (mut update, hole) = opened().inspect_err(|_: &Error| self.allocator.free_unmarked(taken))?;
        update.map_run(node, hole, logical, taken, false)?;
        update.grow_to(node, end);
        update.finish();
        Ok(())
    }

    /// Puts the time of the last write into the inode.
    fn put_times(&self, node: &Arc<Node>) -> Result<()> {
        if node.core().ahead.time.is_none() {
            return Ok(());
        }
        let begun = self.begin(Need::new(1, 0));
        match begun {
            Ok(mut update) => {
                update.put_times(node);
                update.finish();
            }
            Err(error) => {
                node.core().ahead.time = None;
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Update<'_> {
    /// Sets the size of a file whose data was written up to `end`, if it is smaller. Takes one credit.
    fn grow_to(&mut self, node: &Arc<Node>, end: u64) {
        self.modify_inode(node, Change::Mapping, |inode| {
            if end > inode.size() {
                inode.set_size(end);
            }
        });
        self.note_size(end);
    }
}
