//! The page cache: files' bytes in memory, and blocks that are allocated when those are written back.
//!
//! A write into a file with extents goes into memory; a hole that it fills gets a reservation and no blocks. Flushing the inode ([`flush`])
//! does what a write past the cache ([`write_through`]) does at once, for each run of such blocks as a whole: it places it, writes it, and
//! names it ([`place`]). The state that
//! the on-disk inode does not have yet is in [`DelallocState`](crate::incore::pages::DelallocState): the size of the file, the time of its last write, and the count of delayed
//! blocks. Files without extents, writes into blocks that were allocated and never written, and writes for which no reservation is
//! available go to the disk at once, as all do where there is no page cache.
//!
//! Invariants: docs/design/writeback.md, by number.
//!
//! Concurrency:
//! - *Flush and truncate, range operations*: an operation on blocks holds `INODE` alone, flushes first, and keeps holding it.
//! - *Hits*: a read of blocks that are all in memory holds `PAGES` alone, which what drops or changes them takes too; such an overwrite
//!   holds what a write holds.
//! - *Flush, write and read*: hold `INODE` shared and work beside each other ([`crate::incore::content`]). Bytes written into a run that is being
//!   written back stay dirty.
//! - *Flush and unlink*: the last name is removed without `INODE`. Both look at [`InodePages::is_flushed`] with `PAGES` held: while a flush
//!   works the inode becomes an orphan; else its pages are dropped first, and a later flush finds nothing. Times are put into an inode only
//!   while it is not deleted, in one hold of `INODE_STATE`.
//! - *Flush and commit*: a flush waits for nothing while its update is open; it has waited for the data before.
//! - *Flush and unmount*: the lists of inodes with something to write are closed before the last flush; a thread that would dirty another
//!   inode then is refused.
//! - *Search for memory and all others*: it takes clean folios only, of inodes that no thread writes into, with `PAGES` held. A reader that
//!   misses one reads it again; a writer marks the inode from its first look at the pages to its last.
//! - *No space within the flush*: every delayed block holds a token, and each run of them as many as its tree may need ([`tree_need`]), so
//!   a flush runs out of space only on a disk with wrong bitmaps. Then, and when the device fails, the run's pages are dropped, and each
//!   open file reports it once ([`WritebackError`]).
//! - *No space elsewhere*: tokens held for trees may be too many, so an operation that is refused a block has all inodes flushed, with no
//!   lock held, and tries again ([`PageCache::retry_on_no_space`]).
//!
//! Locks: `INODE`, `WRITEBACK`, `MAPPING`; inside them `PAGES` for the folios, never over I/O; inside that `CACHE` for the queues, and those of `writeback`.
//!
//! Tests: `tests/pages.rs`, `tests/files.rs` (a model), `../tests/crash`, `../tests/threads`.

mod contexts;
mod flush;
mod place;
mod read;
mod read_ahead;
mod write;
mod write_through;
pub(crate) mod writeback_extents;
mod writeback_ranges;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;

use extant_block::Buffers;
use extant_ondisk::RawInode;
use extant_rt::{Arc, LockClass, Mutex, Padded, Weak, shard_of};

pub(crate) use self::contexts::PageCacheOwner;
use self::contexts::{Contexts, Owner};
use self::read_ahead::ReadAheadThreads;
pub(crate) use self::writeback_ranges::WritebackRanges;

use extant_writeback::Writeback;

use crate::error::Result;
use crate::incore::budget::Budget;
use crate::incore::errseq::{ErrorCursor, WritebackError};
use crate::incore::folios::Folios;
use crate::incore::inode::Inode;
use crate::incore::pages::InodePages;
use crate::mapping::BlockMap;
use crate::mapping::MapKind;

/// The content of files in memory.
pub(crate) struct PageCache {
    lower: BlockMap,
    /// None if all is written at once.
    pub(crate) pages: Option<Arc<Pages>>,
    /// Writeback errors of all inodes, and those that a sync has reported.
    writeback_error: WritebackError,
    reported_error: ErrorCursor,
}

impl Deref for PageCache {
    type Target = BlockMap;

    fn deref(&self) -> &BlockMap {
        &self.lower
    }
}

/// The pages of all files.
pub(crate) struct Pages {
    /// The memory for folios.
    memory: Arc<Budget>,
    buffers: Arc<Buffers>,
    owner: Owner,
    read_ahead: ReadAheadThreads,
    /// Its writeback, and how much is dirty.
    contexts: Contexts,
    /// Inodes with folios, by shards, in the order of the search for memory.
    queues: Vec<Padded<Mutex<VecDeque<Weak<Inode>>>>>,
    /// Clean folios are kept. Else the cache holds only what is to be written.
    keeps_clean: bool,
}

/// Shards of the lists.
const SHARDS: usize = 64;
/// How much a search for memory takes of an inode at once.
const EVICTED_BYTES: u64 = 1 << 20;
/// Folios that it looks at in one hold of `PAGES`: some 20 us, for which readers and writers of the file wait.
const EVICT_LOOKS_MAX: usize = 1024;

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, dirty) = self.used();
        write!(f, "{bytes} bytes, {dirty} dirty")
    }
}

impl Pages {
    /// A page cache of at most `bytes` bytes, half of them dirty; written back in the background if `background`.
    ///
    /// # Errors
    /// `Io` if the host gives no threads.
    pub(crate) fn new(
        bytes: u64,
        keeps_clean: bool,
        ranges: WritebackRanges,
        background: bool,
    ) -> Result<Self> {
        let queue = |_| Padded(Mutex::new(LockClass::CACHE, VecDeque::new()));
        let owner = Owner::default();
        Ok(Self {
            memory: Arc::new(Budget::new(bytes)),
            buffers: Buffers::new(),
            contexts: Contexts::new(owner.clone(), bytes / 2, ranges, background)?,
            queues: (0..SHARDS).map(queue).collect(),
            keeps_clean,
            read_ahead: ReadAheadThreads::new(owner.clone()),
            owner,
        })
    }

    /// The contexts that write it back.
    pub(crate) fn writeback(&self) -> &Writeback<Inode> {
        &self.contexts.writeback
    }

    /// Bytes of folios, and of dirty blocks.
    pub(crate) fn used(&self) -> (u64, u64) {
        (self.memory.used(), self.writeback().dirty_bytes())
    }

    /// Drops clean folios until there is room again, or none is left that may go.
    fn make_room(&self, near: u64) {
        let first = shard_of(near, SHARDS);
        for index in (first..SHARDS).chain(0..first) {
            let count = self.queues[index].lock().len();
            for _ in 0..count {
                if !self.memory.is_exhausted() {
                    return;
                }
                self.evict_from(&self.queues[index]);
            }
        }
    }

    fn evict_from(&self, queue: &Mutex<VecDeque<Weak<Inode>>>) {
        let Some(weak) = queue.lock().pop_front() else { return };
        let Some(inode) = weak.upgrade() else { return };
        let (mut bytes_left, mut looks_left) = (EVICTED_BYTES, None);
        while bytes_left > 0
            && looks_left != Some(0)
            && let Some(mut pages) = inode.pages().try_write()
            && !pages.is_changed
            && let Some(folios) = &mut pages.folios
        {
            let left = *looks_left.get_or_insert_with(|| folios.looks_max());
            let (freed, looks) = folios.evict(bytes_left, left.min(EVICT_LOOKS_MAX));
            bytes_left = bytes_left.saturating_sub(freed);
            looks_left = Some(if looks > 0 { left - looks } else { 0 });
            let is_empty = folios.bytes() == 0;
            pages.account_memory(&self.memory);
            if is_empty {
                pages.is_queued = false;
                return;
            }
        }
        queue.lock().push_back(weak);
    }
}

impl InodePages {
    /// Reports to the budget and the contexts what changed.
    fn account(&mut self, pages: &Pages, inode: &Arc<Inode>) {
        self.account_memory(&pages.memory);
        let now = self.dirty_bytes();
        let before = self.accounted.1;
        // Never more than was reported, even if the report panics: a rise is noted afterwards, a fall before.
        if now > before {
            pages.writeback().dirtied(inode, now - before);
            self.accounted.1 = now;
        } else if now < before {
            self.accounted.1 = now;
            pages.writeback().cleaned(inode, before - now);
        }
    }

    /// Has the folios, of an inode that comes into the queue of those that have any.
    fn folios_of(&mut self, inode: &Arc<Inode>, pages: &Arc<Pages>, block_size: u32) -> &mut Folios {
        if !std::mem::replace(&mut self.is_queued, true) {
            let queue = &pages.queues[shard_of(u64::from(inode.number.0), SHARDS)];
            queue.lock().push_back(Arc::downgrade(inode));
        }
        self.memory.get_or_insert_with(|| pages.memory.clone());
        self.folios.get_or_insert_with(|| Folios::new(block_size, pages.buffers.clone()))
    }
}

/// How many clusters must be kept for `delayed` clusters in `runs` runs, of a tree that is `depth` deep: their own, and those
/// of the blocks that the tree may take. A run goes into one place of the tree: each of the nodes on its way may be full, and the tree may
/// become one deeper; if it comes in pieces, each half of a node full of them takes another node.
fn tree_need(delayed: u64, runs: u64, depth: u64, block_size: u32) -> u64 {
    let half_node = (u64::from(block_size) / 12 - 1) / 2;
    delayed + runs * (depth + 2) + 2 * (delayed / half_node)
}

impl PageCache {
    pub(crate) fn new(lower: BlockMap, pages: Option<Arc<Pages>>) -> Self {
        let writeback_error = WritebackError::default();
        Self { lower, pages, reported_error: writeback_error.sample(), writeback_error }
    }

    /// The page cache, if the inode's content goes through it.
    pub(crate) fn pages_of(&self, raw: &RawInode) -> Option<&Arc<Pages>> {
        let pages = self.pages.as_ref()?;
        let is_regular = raw.file_type() == extant_ondisk::FileType::Regular;
        let has_extents = || self.map_kind(raw) == MapKind::Extents;
        (is_regular && has_extents()).then_some(pages)
    }
}
