//! Files that are read in order on a device with latency: threads read them into memory ahead of their readers.
//!
//! A read that misses, or that reaches what was asked for last, asks for a window of the file ([`ReadAheadState`](crate::incore::pages::ReadAheadState)),
//! in pieces of a folio, and waits for the pieces that have its own blocks. It holds no lock then: a thread takes those of a reader for its
//! piece. What a thread could not read is read again by who needs it.
//!
//! Locks: `READ_AHEAD`, inside which none is taken.
//!
//! Source: `mm/readahead.c` of Linux for the window and its marker.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use extant_block::BUFFER_BYTES;
use extant_ondisk::LogicalBlock;
use extant_rt::{Arc, AtomicUsize, Condvar, JoinHandle, LockClass, Mutex, Ordering, is_current, spawn};

use super::Pages;
use super::contexts::Owner;
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::mapping::Mapping;
use crate::page_cache::PageCache;

/// The largest window: so much that waiting is a small part of it.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// A window takes at most this part of the cache.
const WINDOW_SHARE: u64 = 8;

/// The threads that read ahead.
pub(super) struct ReadAheadThreads {
    shared: Arc<Shared>,
}

struct Shared {
    owner: Owner,
    state: Mutex<State>,
    /// How many pieces are pending, for a look without the lock.
    pending: AtomicUsize,
    /// There are pieces to read.
    work: Condvar,
    /// A piece is no longer pending.
    done: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Piece>,
    /// The inode's number and the blocks of each piece that there is.
    pending: Vec<(u32, Range<u32>)>,
    threads: Vec<JoinHandle<()>>,
    is_stopped: bool,
}

/// Blocks of a file to read: pending until it is dropped.
struct Piece {
    shared: Arc<Shared>,
    inode: InodeRef,
    blocks: Range<u32>,
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let own = (self.inode.number.0, self.blocks.clone());
        if let Some(index) = state.pending.iter().position(|piece| *piece == own) {
            state.pending.swap_remove(index);
        }
        self.shared.pending.store(state.pending.len(), Ordering::Relaxed);
        drop(state);
        self.shared.done.notify_all();
    }
}

impl fmt::Debug for ReadAheadThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pieces pending", self.shared.pending.load(Ordering::Relaxed))
    }
}

impl ReadAheadThreads {
    /// None yet: they are started when there is something to read.
    pub(super) fn new(owner: Owner) -> Self {
        let state = Mutex::new(LockClass::READ_AHEAD, State::default());
        let pending = AtomicUsize::new(0);
        Self {
            shared: Arc::new(Shared { owner, state, pending, work: Condvar::new(), done: Condvar::new() }),
        }
    }

    /// Has pieces of a file read, by at most `threads_max` threads; none if the host gives no thread.
    fn ask(&self, inode: &InodeRef, pieces: impl Iterator<Item = Range<u32>>, threads_max: usize) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        if state.is_stopped {
            return;
        }
        for blocks in pieces {
            state.pending.push((inode.number.0, blocks.clone()));
            state.queue.push_back(Piece { shared: shared.clone(), inode: inode.clone(), blocks });
        }
        while state.threads.len() < threads_max.min(state.pending.len()) {
            let shared = shared.clone();
            let Ok(thread) = spawn("read-ahead", move || shared.read_pieces()) else { break };
            state.threads.push(thread);
        }
        shared.pending.store(state.pending.len(), Ordering::Relaxed);
        let unread =
            if state.threads.is_empty() { std::mem::take(&mut state.queue) } else { VecDeque::new() };
        drop(state);
        drop(unread);
        shared.work.notify_all();
    }

    /// Waits until no piece is pending that has some of the blocks.
    fn wait(&self, inode: &Inode, blocks: &Range<u32>) {
        if self.shared.pending.load(Ordering::Relaxed) == 0 {
            return;
        }
        let has_some = |(number, piece): &(u32, Range<u32>)| {
            *number == inode.number.0 && piece.start < blocks.end && blocks.start < piece.end
        };
        let mut state = self.shared.state.lock();
        while state.pending.iter().any(has_some) {
            state = self.shared.done.wait(state);
        }
    }

    /// Ends the threads; what they did not begin with stays unread.
    pub(super) fn stop(&self) {
        let mut state = self.shared.state.lock();
        state.is_stopped = true;
        let (threads, unread) = (std::mem::take(&mut state.threads), std::mem::take(&mut state.queue));
        drop(state);
        drop(unread);
        self.shared.work.notify_all();
        // A thread itself comes here if it lets go of the owner last.
        for thread in threads.into_iter().filter(|thread| !is_current(thread)) {
            let _ = thread.join();
        }
    }
}

impl Drop for ReadAheadThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn read_pieces(&self) {
        while let Some(piece) = self.next() {
            let owner = self.owner.get();
            let cache = owner.as_deref().map(|owner| owner.page_cache());
            if let Some((cache, pages)) = cache.and_then(|cache| Some((cache, cache.pages.as_ref()?))) {
                cache.read_piece(pages, &piece.inode, piece.blocks.clone());
            }
            drop(piece);
            if let Some(owner) = owner {
                owner.worked_on_inode();
            }
        }
    }

    /// The next piece, once there is one; none if the threads are to end.
    fn next(&self) -> Option<Piece> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            match state.queue.pop_front() {
                None => state = self.work.wait(state),
                piece => return piece,
            }
        }
    }
}

impl PageCache {
    /// Has threads read what a read of a file's bytes shall find in memory, and what those that follow it shall, and waits for the former.
    /// Where the device takes no time it does nothing.
    ///
    /// # Locks
    /// None may be held.
    pub(crate) fn read_ahead(&self, pages: &Pages, inode: &Arc<Inode>, offset: u64, bytes: usize) {
        if !self.device.has_latency() || !pages.keeps_clean {
            return;
        }
        let file_end = u32::try_from(self.blocks_of(inode.size())).unwrap_or(u32::MAX);
        let Ok((first, within)) = self.block_at(offset) else { return };
        let blocks = first.0..first.0.saturating_add(self.block_count(within, bytes)).min(file_end);
        if blocks.is_empty() {
            return;
        }
        let block_size = self.geometry.block_size;
        let folio = BUFFER_BYTES as u32 / block_size;
        let window_max = (pages.memory.limit() / WINDOW_SHARE).min(WINDOW_BYTES_MAX);
        let asks = {
            let inode_pages = inode.pages().read();
            let folios = inode_pages.folios.as_ref();
            let is_missing = folios.is_none_or(|folios| !folios.has_all(blocks.start..=blocks.end - 1));
            is_missing || inode_pages.read_ahead.is_reached(&blocks)
        };
        if !asks {
            return;
        }
        let is_large = blocks.end - blocks.start > folio;
        let (mut at, asked_end) = {
            let read_ahead = &mut inode.pages().write().read_ahead;
            let asked = read_ahead.ask(&blocks, is_large, (block_size.ilog2(), window_max), file_end);
            (asked.start, asked.end)
        };
        if at < asked_end {
            let pieces = std::iter::from_fn(|| {
                let end = (at / folio + 1).saturating_mul(folio).min(asked_end);
                (at < asked_end).then(|| std::mem::replace(&mut at, end)..end)
            });
            pages.read_ahead.ask(&self.inodes.used(inode), pieces, self.requests_in_flight());
        }
        pages.read_ahead.wait(inode, &blocks);
    }

    /// Reads those blocks of a file into memory that are not there, as far as it can.
    fn read_piece(&self, pages: &Arc<Pages>, inode: &Arc<Inode>, blocks: Range<u32>) {
        let _content = inode.lock_for_reading();
        let raw = inode.raw();
        if raw.has_inline_data() || self.pages_of(&raw).is_none() {
            return;
        }
        let size = inode.size();
        let end = blocks.end.min(u32::try_from(self.blocks_of(size)).unwrap_or(u32::MAX));
        let mut at = blocks.start;
        while at < end {
            let gap =
                inode.pages().read().folios.as_ref().map_or(end - at, |folios| folios.gap(at, end - at));
            if gap == 0 {
                at += 1;
                continue;
            }
            let Ok(mapping) = self.map(inode, &raw, LogicalBlock(at), gap) else { return };
            let len = mapping.len().clamp(1, gap);
            if let Mapping::Data { start, unwritten: false, .. } = mapping {
                let Ok(folios) = self.read_folios(pages, inode, at..at + len, (start, size)) else { return };
                self.insert_folios(pages, inode, folios);
            }
            at += len;
        }
    }
}
