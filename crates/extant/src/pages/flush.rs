//! Writing an inode's pages to the disk, in ascending order: data, then the update that names it, run by run.
//!
//! So the inode's size on the disk grows over a block only after the block and all dirty ones before it were written, the
//! zeroes behind the old end among them.

use std::io::IoSlice;

use extant_ondisk::extent::MAX_LEN;
use extant_ondisk::{FsBlock, LogicalBlock, Structure};
use extant_rt::{Arc, Ordering};

use super::write::Busy;
use super::{DirtyRun, NodePages, Pages};
use crate::error::{Error, Place, Result};
use crate::map::Mapping;
use crate::node::Node;
use crate::prealloc::Wanted;
use crate::update::{Change, Need, Update};
use crate::volume::Volume;
use crate::write::RUN_CREDITS;

/// Bytes that are written and named at once.
const RUN_BYTES_MAX: u32 = 8 << 20;

impl Volume {
    /// Writes all that memory has of an inode: its dirty blocks, and times.
    ///
    /// # Errors
    /// The first. What could not be written is lost, and noted for all who have the file open.
    ///
    /// # Locks
    /// Takes `INODE`.
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
        let _content = node.content.write();
        self.flush_locked(pages, node, times)
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
    pub(crate) fn read_written<'n>(&self, node: &'n Arc<Node>) -> extant_rt::RwLockReadGuard<'n, ()> {
        loop {
            let content = node.content.read();
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
        let flushed = self.flush_locked(pages, node, true);
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
        if node_pages.is_busy {
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

    /// [`Volume::flush_with`].
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(super) fn flush_locked(&self, pages: &Pages, node: &Arc<Node>, times: bool) -> Result<()> {
        self.flush_some(pages, node, times, u64::MAX).1
    }

    /// [`Volume::flush_locked`], but no more runs once `bytes` bytes are written: how many were, and the first error.
    ///
    /// # Locks
    /// As there.
    pub(super) fn flush_some(
        &self,
        pages: &Pages,
        node: &Arc<Node>,
        times: bool,
        bytes: u64,
    ) -> (u64, Result<()>) {
        let busy = Busy::new(node);
        node.is_replaced.store(false, Ordering::Relaxed);
        let (done, written) = self.flush_runs(pages, node, bytes);
        let timed = if times { self.put_times(node) } else { Ok(()) };
        let mut node_pages = node.pages().lock();
        if !pages.keeps_clean
            && let Some(folios) = &mut node_pages.folios
        {
            folios.drop_clean();
        }
        self.settle_pages(pages, node, &mut node_pages);
        drop(node_pages);
        drop(busy);
        if node.user_count() == 0 {
            self.discard_preallocations(node);
            self.nodes.let_go(node);
        }
        (done, written.and(timed))
    }

    fn flush_runs(&self, pages: &Pages, node: &Arc<Node>, bytes: u64) -> (u64, Result<()>) {
        let len_max = (RUN_BYTES_MAX / self.geometry.block_size).clamp(1, u32::from(MAX_LEN));
        let mut result = Ok(());
        let (mut at, mut done) = (0, 0);
        while done < bytes {
            let run = node.pages().lock().folios.as_ref().and_then(|folios| folios.next_dirty(at, len_max));
            let Some(run) = run else { break };
            let flushed = match &result {
                // The file must not grow over what was not written.
                Err(_) if self.run_end(node, run) > node.core().inode.size() => Ok(None),
                _ => self.flush_run(node, run).map(Some),
            };
            let mut node_pages = node.pages().lock();
            let Some(folios) = &mut node_pages.folios else { break };
            match flushed {
                Ok(Some(len)) => {
                    folios.clean(DirtyRun { len, ..run });
                    at = run.block + len;
                    done += u64::from(len) * u64::from(self.geometry.block_size);
                }
                lost => {
                    folios.drop_run(run);
                    at = run.block + run.len;
                    result = result.and(lost.map(drop));
                }
            }
            let delayed = folios.delayed();
            let _ = self.keep(node, &mut node_pages, 0);
            node_pages.account(pages, node);
            node.core().ahead.delayed = delayed;
        }
        if result.is_err() {
            node.losses.add();
            self.losses.add();
        }
        (done, result)
    }

    /// Where a run ends in the file.
    fn run_end(&self, node: &Node, run: DirtyRun) -> u64 {
        let end = (u64::from(run.block) + u64::from(run.len)) * u64::from(self.geometry.block_size);
        end.min(node.core().size())
    }

    /// That no data was lost of any file since this was told last.
    ///
    /// # Errors
    /// `Io` if some was.
    pub(crate) fn check_losses(&self) -> Result<()> {
        let error = || Place::of(Structure::Inode).io(std::io::Error::other("data of some files was lost"));
        if self.losses.tell(&self.losses_told) { Err(error()) } else { Ok(()) }
    }

    /// The error of data that was lost earlier.
    pub(crate) fn lost(&self, node: &Node) -> Error {
        Place::of(Structure::Inode)
            .inode(node.number)
            .io(std::io::Error::other("data written before was lost"))
    }

    /// Writes the first blocks of a run: how many.
    fn flush_run(&self, node: &Arc<Node>, run: DirtyRun) -> Result<u32> {
        if run.is_delayed { self.flush_delayed(node, run) } else { self.flush_in_place(node, run) }
    }

    fn flush_in_place(&self, node: &Arc<Node>, run: DirtyRun) -> Result<u32> {
        let place = Place::of(Structure::Inode).inode(node.number);
        let Mapping::Data { start, len, unwritten: false } =
            self.map(node, LogicalBlock(run.block), run.len)?
        else {
            return Err(place.corrupt("a block that was written is not mapped"));
        };
        let run = DirtyRun { len, ..run };
        self.write_run(node, run, start)?;
        let end = self.run_end(node, run);
        if end > node.core().inode.size() {
            self.begin(Need::new(1, 0))?.grow_to(node, end);
        }
        Ok(len)
    }

    fn flush_delayed(&self, node: &Arc<Node>, run: DirtyRun) -> Result<u32> {
        let logical = LogicalBlock(run.block);
        let hole = self.hole(node, logical)?;
        let wanted = Wanted {
            logical,
            len: run.len.min(hole.len_max()),
            end: node.core().size(),
            // Who closed the file is done with it.
            grows: node.user_count() > 0,
            privileged: true,
        };
        let mut kept = self.allocator.resume(std::mem::take(&mut node.pages().lock().kept));
        let taken = self.take_content(node, &hole, wanted, Some(&mut kept));
        node.pages().lock().kept += kept.keep();
        let (taken, reservation) = taken?;
        let run = DirtyRun { len: taken.len, ..run };
        let written = match hole.can_name(taken) {
            true => self.write_run(node, run, taken.start),
            false => Err(Error::NoSpace),
        };
        let opened = written.and_then(|()| self.begin_reserved(hole.credits() + RUN_CREDITS, reservation));
        let mut update = match opened {
            Ok(update) => update,
            Err(error) => {
                self.allocator.give_back(taken);
                return Err(error);
            }
        };
        update.map_run(node, hole, logical, taken, false)?;
        update.grow_to(node, self.run_end(node, run));
        Ok(run.len)
    }

    fn write_run(&self, node: &Arc<Node>, run: DirtyRun, start: FsBlock) -> Result<()> {
        let place = Place::of(Structure::Inode).inode(node.number);
        let parts = node.pages().lock().folios.as_mut().map(|folios| folios.parts(run)).unwrap_or_default();
        let bytes = run.len as usize * self.geometry.block_size as usize;
        let at = self.data_offset(start, 0, bytes, place)?;
        let bufs: Vec<_> = parts.iter().map(|part| IoSlice::new(part.bytes())).collect();
        self.device.write_vectored_at(at, &bufs).map_err(|e| place.block(start).io(e))
    }

    /// Puts the time of the last write into the inode.
    fn put_times(&self, node: &Arc<Node>) -> Result<()> {
        if node.core().ahead.time.is_none() {
            return Ok(());
        }
        let begun = self.begin(Need::new(1, 0));
        match begun {
            Ok(mut update) => update.put_times(node),
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
