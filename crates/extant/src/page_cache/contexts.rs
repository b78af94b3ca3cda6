//! Writeback of inodes: the crate `writeback`, with this file system's geometry.
//!
//! Each context owns whole ranges of groups ([`WritebackRanges`]), so that threads of different contexts contend for no group. An
//! inode belongs to the range of its own group, where its blocks are searched first.

use std::fmt;

use extant_ondisk::Structure;
use extant_rt::{Arc, AtomicBool, LockClass, Mutex, OnceLock, Ordering, Weak};
use extant_writeback::{Inode as WritebackInode, Progress, Reason, RemainingWork, Store, Tuning, Writeback};

use crate::error::{Error, Location, Result};
use crate::incore::inode::Inode;
use crate::page_cache::PageCache;
use crate::page_cache::flush::Scope;
use crate::page_cache::writeback_ranges::WritebackRanges;

/// What holds the page cache, while its threads do not.
pub(crate) trait PageCacheOwner: Send + Sync {
    fn page_cache(&self) -> &PageCache;

    /// Called with no lock held when a thread has worked on an inode: it may have lost its last user meanwhile.
    fn worked_on_inode(&self);
}

/// The owner, once there is one. Threads hold it only while they work.
#[derive(Clone, Default)]
pub(super) struct Owner(Arc<OnceLock<Weak<dyn PageCacheOwner>>>);

impl Owner {
    pub(super) fn get(&self) -> Option<Arc<dyn PageCacheOwner>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

/// The contexts and what they write to.
#[derive(Debug)]
pub(super) struct Contexts {
    pub(super) writeback: Writeback<Inode>,
    target: Arc<Target>,
    /// Nothing may become dirty any more.
    is_closed: AtomicBool,
}

/// The state of the contexts' threads.
struct Target {
    owner: Owner,
    /// The first error since one was last reported.
    failed: Mutex<Option<Error>>,
}

impl WritebackInode for Inode {
    fn number(&self) -> u64 {
        self.number.0.into()
    }

    fn inode_writeback(&self) -> &extant_writeback::InodeWriteback {
        self.writeback()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl Store<Inode> for Arc<Target> {
    fn write(&self, inodes: &[Arc<Inode>], bytes: u64, reason: Reason) -> Vec<Progress> {
        let mut progress = vec![Progress { written: 0, left: RemainingWork::Busy }; inodes.len()];
        let Some(owner) = self.owner.get() else { return progress };
        let cache = owner.page_cache();
        let Some(pages) = &cache.pages else { return progress };
        if inodes.len() > 1 {
            let lock = |(index, inode)| {
                let inode: &Arc<Inode> = inode;
                Some((index, (inode, inode.try_lock_for_writeback()?)))
            };
            let (indices, free): (Vec<_>, Vec<_>) = inodes.iter().enumerate().filter_map(lock).unzip();
            for (index, flushed) in indices.into_iter().zip(cache.flush_together(pages, &free)) {
                progress[index] = self.progress_of(flushed, bytes);
            }
        }
        // Those that are not written yet, with no other's lock held.
        for (inode, progress) in inodes.iter().zip(&mut progress) {
            let held = match (progress.left, reason) {
                (RemainingWork::Busy, Reason::Sync) => Some(inode.lock_for_writeback()),
                (RemainingWork::Busy, _) if inodes.len() == 1 => inode.try_lock_for_writeback(),
                _ => None,
            };
            if let Some(held) = held {
                let scope = Scope { bytes_max: bytes, ..Scope::ALL };
                *progress = self.progress_of(cache.flush_some(pages, inode, &held, scope), bytes);
            }
        }
        owner.worked_on_inode();
        progress
    }

    fn panicked(&self) {
        if let Some(owner) = self.owner.get() {
            owner.page_cache().abort_after_panic("a thread that writes files back panicked");
        }
    }
}

impl Target {
    /// What was done of an inode of which `bytes` bytes were wanted.
    fn progress_of(&self, (written, result): (u64, Result<()>), bytes: u64) -> Progress {
        let left = match result {
            Ok(()) if written >= bytes => RemainingWork::More,
            Ok(()) => RemainingWork::Clean,
            Err(error) => {
                self.failed.lock().get_or_insert(error);
                RemainingWork::Failed
            }
        };
        Progress { written, left }
    }
}

impl Contexts {
    /// With `dirty_bytes_max` bytes that may be dirty; with threads if `background`.
    ///
    /// # Errors
    /// `Io` if the host gives no threads.
    pub fn new(
        owner: Owner,
        dirty_bytes_max: u64,
        ranges: WritebackRanges,
        background: bool,
    ) -> Result<Self> {
        let failed = Mutex::with_key(LockClass::TABLES, 3, None);
        let target = Arc::new(Target { owner, failed });
        let dispatch_threads = if background { ranges.threads_per_context() } else { 0 };
        let tuning = Tuning { dispatch_threads, ..Tuning::new(dirty_bytes_max) };
        let writeback = Writeback::new(target.clone(), ranges, tuning)
            .map_err(|error| Location::of(Structure::Inode).io(error))?;
        Ok(Self { writeback, target, is_closed: AtomicBool::new(false) })
    }

    /// Whether nothing may become dirty any more.
    pub fn is_closed(&self) -> bool {
        // SeqCst, as where it is set: either a thread that has listed an inode finds it closed, or the last flush finds the inode.
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Says that the inode will have something to write: before it has, so that a thread that waits for all finds it.
    ///
    /// # Errors
    /// `ReadOnly` while the volume is being unmounted.
    pub fn list(&self, inode: &Arc<Inode>) -> Result<()> {
        self.writeback.dirtied_times(inode);
        if self.is_closed() {
            if inode.state().delalloc.time.is_none() {
                self.writeback.cleaned_times(inode);
            }
            return Err(Error::ReadOnly);
        }
        Ok(())
    }
}

impl PageCache {
    /// Lets threads work for this volume.
    pub(crate) fn start_threads(&self, owner: Weak<dyn PageCacheOwner>) {
        if let Some(pages) = &self.pages {
            let _ = pages.owner.0.set(owner);
        }
    }

    /// Flushes all inodes: the contexts do, where there are any.
    ///
    /// # Errors
    /// The first since one was last reported; the others are flushed all the same.
    ///
    /// # Locks
    /// None may be held.
    pub(crate) fn flush_all(&self) -> Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        let contexts = &pages.contexts;
        // A volume that is dropped is out of the contexts' reach.
        let alive = pages.owner.get();
        if alive.is_some() && contexts.writeback.has_threads() {
            contexts.writeback.write_all(Reason::Sync);
            return contexts.target.failed.lock().take().map_or(Ok(()), Err);
        }
        let mut result = Ok(());
        for inode in contexts.writeback.listed() {
            let flushed = self.flush(&inode);
            result = result.and(flushed);
        }
        result
    }

    /// Refuses to have more dirtied, ends the contexts, and flushes all.
    ///
    /// # Errors
    /// The first of flushing.
    pub(crate) fn finish_flushing(&self) -> Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        pages.contexts.is_closed.store(true, Ordering::SeqCst);
        pages.read_ahead.stop();
        let flushed = self.flush_all();
        pages.contexts.writeback.stop();
        // Pages that the threads left unwritten when they ended.
        let rest = self.flush_all();
        flushed.and(rest)
    }

    /// Changes the count of contexts.
    ///
    /// # Errors
    /// As [`crate::Filesystem::set_writeback_contexts`].
    pub(crate) fn set_writeback_contexts(&self, count: usize) -> Result<()> {
        let Some(pages) = &self.pages else {
            return Err(Error::InvalidArgument("there are no writeback contexts without a page cache"));
        };
        let max = pages.writeback().contexts_max();
        if !(1..=max).contains(&count) {
            let what = "the count of writeback contexts";
            return Err(Error::OutOfRange { what, min: 1, max: max as u64 });
        }
        pages.writeback().set_contexts(count).map_err(|error| Location::of(Structure::Inode).io(error))
    }
}
