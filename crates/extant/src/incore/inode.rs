//! Inodes in memory.
//!
//! An [`Inode`] is an inode in use, or recently in use. The fields it has on the disk are an `Arc<RawInode>`: readers take a
//! snapshot, an update changes them in place, or a copy of them while a snapshot or the committer holds the old.
//!
//! Invariants: there is one [`Inode`] per number; one that the running transaction changed, or that a commit
//! under way has frozen, is held by that transaction and so stays in the cache. An inode without links is deleted
//! when its last [`InodeRef`](crate::incore::inode_cache::InodeRef) is gone.
//!
//! Locks: `INODE`, with a page cache `WRITEBACK` and `MAPPING` ([`ContentLocks`]) (the content), and `XATTR`, keyed by number; `PAGES` (the content in memory); `INODE_STATE` (the fields).

use extant_alloc::{LastGroup, Preallocations};
use extant_ondisk::mode::without_set_id;
use extant_ondisk::{FileType, FsBlock, InodeFlags, InodeNumber, RawInode, Timestamp, TransactionId};
use extant_rt::{
    Arc, AtomicBool, AtomicU32, AtomicU64, BiasedMutex, BiasedReadGuard, BiasedRwLock, BiasedWriteGuard,
    LockClass, Mutex, OnceBox, Ordering, Padded, RwLock, SHARDS, thread_slot,
};

use crate::incore::buffer::Owner;
use crate::incore::cache::Cached;
use crate::incore::content::{ContentLocks, ReadGuard, WriteGuard, WritebackGuard};
use crate::incore::dirty_in::DirtyIn;
use crate::incore::errseq::WritebackError;
use crate::incore::folios::Folios;
use crate::incore::leaf_map::LeafMap;
use crate::incore::pages::{BATCH_BLOCKS, DelallocState, InodePages};

/// An inode in memory.
///
/// Its fields lie in this order: what all who use it look at and few change, what is seldom used, then what changes often. So no cache line
/// has both of the first and of the last, wherever it begins.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Inode {
    pub(crate) number: InodeNumber,
    pub(crate) generation: u32,
    /// The content: extents and data of a file, entries of a directory. Readers share it.
    pub(crate) content: BiasedRwLock<()>,
    /// The inode's flags, and above them its type and permissions, for readers without `INODE_STATE`.
    flags_and_mode: AtomicU64,
    /// See [`Inode::needs_time`].
    time_noted: AtomicU64,
    /// Its state in the page cache; made when it is first asked for.
    paged: OnceBox<Paged>,
    /// Distinguishes a directory whose names are cached from all others that were ever in memory; 0 if none are.
    pub(crate) identity: AtomicU64,
    /// For a directory: the regions of the dcache's index in which its names have places, beside the near one, a bit each.
    pub(crate) regions: AtomicU32,

    /// The directory that it was made in, if that was since it came into memory.
    pub(crate) directory: InodeNumber,
    /// The position of its inode: the block of the table and the byte in it.
    pub(crate) home: (FsBlock, usize),
    /// The extended attributes.
    pub(crate) xattrs: RwLock<()>,
    /// Blocks preallocated for its content; made when they are first asked for.
    preallocations: OnceBox<Arc<Preallocations>>,
    /// Where its last subdirectory went, of a directory.
    pub(crate) last_group: LastGroup,
    /// Data that could not be written back.
    pub(crate) writeback_error: WritebackError,
    /// Cut to nothing since it was last flushed: what is written then must not be lost with what was there before.
    pub(crate) is_replaced: AtomicBool,
    /// Made without a name, and may get one.
    linkable: AtomicBool,
    /// In the orphan list. Changes under its lock.
    orphan: AtomicBool,
    recently_used: AtomicBool,
    pub(crate) users: AtomicU32,

    state: BiasedMutex<InodeState>,
    /// Where the content ends ([`InodeState::size`]), for readers without `INODE_STATE` (kernel `i_size_read`), and [`IS_FILLED`].
    size: AtomicU64,
}

/// In [`Inode::size`]: threads fill holes, so that only the fields tell where the content ends. No file is so large.
const IS_FILLED: u64 = 1 << 63;

/// The state of an inode whose content is in the page cache, or is used by several threads.
#[derive(Debug)]
#[repr(C)]
struct Paged {
    /// The leaves of a directory whose names threads change at once; away from the locks, which they take more seldom.
    leaf_map: OnceBox<LeafMap>,
    /// Waits of threads that change a directory's names for each other.
    waits: AtomicU32,
    pages: BiasedRwLock<InodePages>,
    /// What threads filled beside each other and the fields do not have yet, by thread.
    filled: OnceBox<[Padded<Filled>; SHARDS]>,
    writeback: extant_writeback::InodeWriteback,
    writers: Writers,
    locks: ContentLocks,
}

/// What threads filled of a file beside others, which are those of one shard.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    /// The file ends here at least.
    end: AtomicU64,
    /// Blocks that the fields do not count yet.
    delayed: AtomicU64,
    /// Blocks that they may fill still, and the batches of which those are.
    left: AtomicU64,
    batches: AtomicU64,
    /// Clusters that are reserved for those.
    kept: AtomicU64,
}

impl Filled {
    /// Has a batch more to fill, which was reported, and for which so many clusters are kept.
    pub(crate) fn add_batch(&self, kept: u64) {
        self.kept.fetch_add(kept, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.left.fetch_add(u64::from(BATCH_BLOCKS), Ordering::Relaxed);
    }

    /// Takes so many blocks to fill, if there are such.
    pub(crate) fn take(&self, blocks: u32) -> bool {
        let less = |left: u64| left.checked_sub(u64::from(blocks));
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Notes that of so many blocks, which were taken, `added` are new, and where the last ends.
    pub(crate) fn note(&self, taken: u32, added: u32, end: u64) {
        self.left.fetch_add(u64::from(taken - added), Ordering::Relaxed);
        self.delayed.fetch_add(u64::from(added), Ordering::Relaxed);
        // Release: a thread that finds the end finds the blocks.
        self.end.fetch_max(end, Ordering::Release);
    }

    fn clear(&self) {
        for count in [&self.end, &self.delayed, &self.left, &self.batches, &self.kept] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// The lock of an inode's pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagesLock<'n> {
    inode: &'n Inode,
    pages: &'n BiasedRwLock<InodePages>,
}

impl<'n> PagesLock<'n> {
    pub(crate) fn read(self) -> BiasedReadGuard<'n, InodePages> {
        self.pages.read()
    }

    /// Ends that threads fill holes beside each other.
    #[inline]
    pub(crate) fn write(self) -> BiasedWriteGuard<'n, InodePages> {
        let mut pages = self.pages.write();
        if pages.has_window() {
            self.inode.end_filling(&mut pages);
        }
        pages
    }

    /// [`PagesLock::write`], unless another thread holds it.
    pub(crate) fn try_write(self) -> Option<BiasedWriteGuard<'n, InodePages>> {
        let mut pages = self.pages.try_write()?;
        if pages.has_window() {
            self.inode.end_filling(&mut pages);
        }
        Some(pages)
    }

    /// For what has nothing to do with folios.
    pub(crate) fn write_beside_folios(self) -> BiasedWriteGuard<'n, InodePages> {
        self.pages.write()
    }
}

/// Whether several threads write into a file.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    last: AtomicU32,
    /// Writes that came from another thread than the one before.
    hand_overs: AtomicU32,
}

impl Writers {
    /// So many are several: a single writer pays for what it shares.
    const HAND_OVERS: u32 = if cfg!(extant_rt = "shuttle") { 1 } else { 16 };

    /// Notes a write of the calling thread, which holds `PAGES` alone.
    pub(crate) fn note(&self) {
        let thread = thread_slot() as u32;
        if self.last.load(Ordering::Relaxed) != thread {
            self.last.store(thread, Ordering::Relaxed);
            let hand_overs = self.hand_overs.load(Ordering::Relaxed);
            self.hand_overs.store(hand_overs.saturating_add(1), Ordering::Relaxed);
        }
    }

    pub(crate) fn are_several(&self) -> bool {
        self.hand_overs.load(Ordering::Relaxed) >= Self::HAND_OVERS
    }
}

/// The fields of an inode, under `INODE_STATE`.
#[derive(Debug)]
pub(crate) struct InodeState {
    pub(crate) raw: Arc<RawInode>,
    /// The state that is not yet in the on-disk inode.
    pub(crate) delalloc: DelallocState,
    /// Threads fill holes beside each other.
    is_filled: bool,
    /// Of a directory: threads count subdirectories beside each other.
    counts_subdirectories: bool,
    pub(crate) dirty_in: DirtyIn,
    /// Freed in the running or an earlier transaction; the number may be allocated again.
    pub(crate) deleted: bool,
    /// The last transaction that changed anything.
    pub(crate) sync_tid: Option<TransactionId>,
    /// The last transaction that changed what `fdatasync` must make durable: size and block mapping.
    pub(crate) datasync_tid: Option<TransactionId>,
    /// The last transaction that unmapped blocks of clusters which the file kept.
    pub(crate) unmapped_tid: Option<TransactionId>,
}

impl InodeState {
    /// Threads change the inode beside these fields.
    fn changes_beside(&self) -> bool {
        self.is_filled || self.counts_subdirectories
    }

    /// Where the content ends, which the inode on the disk may not know yet.
    pub(crate) fn size(&self) -> u64 {
        self.raw.size().max(self.delalloc.end)
    }
}

impl Inode {
    pub(crate) fn new(number: InodeNumber, home: (FsBlock, usize), raw: RawInode) -> Self {
        let (generation, size, flags_and_mode) = (raw.generation(), raw.size(), flags_and_mode(&raw));
        let state = InodeState {
            raw: Arc::new(raw),
            delalloc: DelallocState::default(),
            is_filled: false,
            counts_subdirectories: false,
            dirty_in: DirtyIn::None,
            deleted: false,
            sync_tid: None,
            datasync_tid: None,
            unmapped_tid: None,
        };
        Self {
            number,
            generation,
            content: BiasedRwLock::with_key(LockClass::INODE, u64::from(number.0), ()),
            xattrs: RwLock::with_key(LockClass::XATTR, u64::from(number.0), ()),
            home,
            preallocations: OnceBox::new(),
            directory: InodeNumber::default(),
            last_group: LastGroup::default(),
            paged: OnceBox::new(),
            writeback_error: WritebackError::default(),
            is_replaced: AtomicBool::new(false),
            identity: AtomicU64::new(0),
            regions: AtomicU32::new(0),
            state: BiasedMutex::new(LockClass::INODE_STATE, state),
            size: AtomicU64::new(size),
            flags_and_mode: AtomicU64::new(flags_and_mode),
            time_noted: AtomicU64::new(0),
            users: AtomicU32::new(0),
            recently_used: AtomicBool::new(true),
            linkable: AtomicBool::new(false),
            orphan: AtomicBool::new(false),
        }
    }

    fn paged(&self) -> &Paged {
        self.paged.get_or_init(|| Paged {
            locks: ContentLocks::new(u64::from(self.number.0)),
            pages: BiasedRwLock::new(LockClass::PAGES, InodePages::default()),
            filled: OnceBox::new(),
            writeback: extant_writeback::InodeWriteback::new(),
            writers: Writers::default(),
            leaf_map: OnceBox::new(),
            waits: AtomicU32::new(0),
        })
    }

    pub(crate) fn content_locks(&self) -> &ContentLocks {
        &self.paged().locks
    }

    /// Its content in memory.
    pub(crate) fn pages(&self) -> PagesLock<'_> {
        PagesLock { inode: self, pages: &self.paged().pages }
    }

    /// Its content in memory, if it ever had any.
    pub(crate) fn cached_pages(&self) -> Option<PagesLock<'_>> {
        self.paged.get().map(|paged| PagesLock { inode: self, pages: &paged.pages })
    }

    pub(crate) fn writers(&self) -> &Writers {
        &self.paged().writers
    }

    /// Its place in writeback.
    pub(crate) fn writeback(&self) -> &extant_writeback::InodeWriteback {
        &self.paged().writeback
    }

    /// Says whether an inode without links may get a name. `INODE` is held exclusively, or no other thread uses the inode yet.
    pub(crate) fn set_linkable(&self, is_linkable: bool) {
        self.linkable.store(is_linkable, Ordering::Release);
    }

    /// Whether an inode without links may get a name.
    pub(crate) fn is_linkable(&self) -> bool {
        self.linkable.load(Ordering::Acquire)
    }

    /// Whether it is in the orphan list.
    pub(crate) fn is_orphan(&self) -> bool {
        self.orphan.load(Ordering::Acquire)
    }

    /// To be called with the orphan list's lock held.
    pub(crate) fn set_orphan(&self, is_orphan: bool) {
        self.orphan.store(is_orphan, Ordering::Release);
    }

    /// The blocks preallocated for its content.
    pub(crate) fn preallocations(&self) -> &Arc<Preallocations> {
        self.preallocations.get_or_init(|| Arc::new(Preallocations::new(self.number)))
    }

    /// Whether blocks may be preallocated for its content.
    pub(crate) fn may_have_preallocations(&self) -> bool {
        self.preallocations.get().is_some_and(|preallocations| preallocations.may_be_live())
    }

    /// The fields as they are now. Holding them makes the next change copy them.
    pub(crate) fn raw(&self) -> Arc<RawInode> {
        self.state.read().raw.clone()
    }

    /// The fields, to look at beside others.
    #[inline]
    pub(crate) fn state(&self) -> BiasedReadGuard<'_, InodeState, Mutex<()>> {
        if self.is_filled() {
            drop(self.state_mut());
        }
        self.state.read()
    }

    /// The fields, to change.
    #[inline]
    pub(crate) fn state_mut(&self) -> BiasedWriteGuard<'_, InodeState, Mutex<()>> {
        let mut state = self.state.write();
        if state.changes_beside() {
            self.take_changes(&mut state);
        }
        state
    }

    /// [`Inode::state_mut`], unless another thread holds it.
    pub(crate) fn try_state_mut(&self) -> Option<BiasedWriteGuard<'_, InodeState, Mutex<()>>> {
        let mut state = self.state.try_write()?;
        if state.changes_beside() {
            self.take_changes(&mut state);
        }
        Some(state)
    }

    /// [`Inode::state_mut`] without what threads fill beside each other, for those threads: it would take their lines each time.
    pub(crate) fn state_mut_beside_filling(&self) -> BiasedWriteGuard<'_, InodeState, Mutex<()>> {
        self.state.write()
    }

    /// To be called with the state's lock held, after its size, flags or mode changed.
    pub(crate) fn publish(&self, state: &InodeState) {
        let is_filled = if state.is_filled { IS_FILLED } else { 0 };
        self.size.store(state.size() | is_filled, Ordering::Release);
        let flags_and_mode = flags_and_mode(&state.raw);
        if self.flags_and_mode.load(Ordering::Relaxed) != flags_and_mode {
            self.flags_and_mode.store(flags_and_mode, Ordering::Release);
        }
    }

    /// Lets threads fill holes beside each other; the caller holds `PAGES` alone, and publishes the state.
    pub(crate) fn begin_filling(&self, state: &mut InodeState) {
        self.paged().filled.get_or_init(|| std::array::from_fn(|_| Padded::default()));
        state.is_filled = true;
    }

    /// What the calling thread fills, if several do; `PAGES` is held.
    pub(crate) fn filled(&self) -> Option<&Filled> {
        Some(&self.paged().filled.get()?[thread_slot() % SHARDS])
    }

    /// Whether threads fill holes beside each other.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.size.load(Ordering::Acquire) & IS_FILLED != 0
    }

    /// Has what threads filled, and the subdirectories that they added, be in the fields.
    #[cold]
    fn take_changes(&self, state: &mut InodeState) {
        if let Some(map) = self.leaf_map() {
            let added = map.take_subdirectories();
            if added != 0 {
                count_subdirectories(Arc::make_mut(&mut state.raw), added, true);
            }
            return;
        }
        let before = state.delalloc.end;
        for own in self.paged().filled.get().into_iter().flatten() {
            state.delalloc.end = state.delalloc.end.max(own.end.load(Ordering::Acquire));
            if own.delayed.load(Ordering::Relaxed) > 0 {
                state.delalloc.delayed += own.delayed.swap(0, Ordering::Relaxed);
            }
        }
        if state.delalloc.end != before {
            self.publish(state);
        }
    }

    /// Closes the window in which threads filled holes.
    #[cold]
    fn end_filling(&self, pages: &mut InodePages) {
        let all = || self.paged().filled.get().into_iter().flatten();
        let sum =
            |count: fn(&Filled) -> &AtomicU64| all().map(|own| count(own).load(Ordering::Relaxed)).sum();
        // Before the fields are locked: there may be many blocks.
        pages.close_window(sum(|own| &own.batches), sum(|own| &own.kept));
        let mut state = self.state_mut();
        all().for_each(|own| own.clear());
        state.is_filled = false;
        state.delalloc.delayed = pages.folios.as_ref().map_or(0, Folios::delayed);
        self.publish(&state);
    }

    /// Whether a write at this time is to be noted in the fields, which may also refuse it or be changed by it. Not if another was noted in
    /// the same tick of 4 ms (as coarse as the kernel's clock) and the fields were neither looked at nor changed since, so that threads
    /// that write into one file write no common line for it.
    ///
    /// Source: multigrain timestamps of Linux 6.13.
    pub(crate) fn needs_time(&self, now: Timestamp) -> bool {
        self.time_noted.load(Ordering::Acquire) != tick(now)
    }

    /// Notes the time of a write in the fields. To be called with the state's lock held.
    pub(crate) fn note_time(&self, state: &mut InodeState, now: Timestamp) {
        state.delalloc.time = Some(now);
        let mode = state.raw.mode();
        // Else a write by another user would take set-id bits away.
        if without_set_id(mode) == mode {
            self.time_noted.store(tick(now), Ordering::Release);
        }
    }

    /// Whether a change of names at this time and in this transaction is to be noted in a directory's fields. Not if another one was, likewise.
    pub(crate) fn needs_touch(&self, now: Timestamp, tid: TransactionId) -> bool {
        self.time_noted.load(Ordering::Acquire) != touch(now, tid)
    }

    /// Notes that a directory's fields have the time of a change of names. To be called with the state's lock held.
    pub(crate) fn note_touch(&self, now: Timestamp, tid: TransactionId) {
        self.time_noted.store(touch(now, tid), Ordering::Release);
    }

    /// Counts `added` subdirectories of the directory, which has this map; its fields count them once they are locked to be changed.
    pub(crate) fn count_beside_fields(&self, map: &LeafMap, added: i32) {
        if map.counts_subdirectories() {
            return map.add_subdirectories(added);
        }
        let mut state = self.state_mut();
        state.counts_subdirectories = true;
        map.add_subdirectories(added);
    }

    /// [`Inode::state`], with the subdirectories that threads counted beside it.
    pub(crate) fn counted_state(&self) -> BiasedReadGuard<'_, InodeState, Mutex<()>> {
        if self.leaf_map().is_some_and(LeafMap::counts_subdirectories) {
            drop(self.state_mut());
        }
        self.state()
    }

    /// The leaves of a directory whose names threads change at once.
    pub(crate) fn leaf_map(&self) -> Option<&LeafMap> {
        self.paged.get()?.leaf_map.get()
    }

    /// Makes it a directory whose names threads change at once. `INODE` is held alone.
    pub(crate) fn set_leaf_map(&self, map: LeafMap) {
        self.paged().leaf_map.get_or_init(|| map);
    }

    /// Notes that a thread which changes a directory's names waited for another: how many did before.
    pub(crate) fn note_wait(&self) -> u32 {
        self.paged().waits.fetch_add(1, Ordering::Relaxed)
    }

    /// Drops the time of a write that was noted.
    pub(crate) fn drop_time(&self) {
        let mut state = self.state_mut();
        self.forget_time_noted();
        state.delalloc.time = None;
    }

    /// Has the next write noted: the fields were looked at or change. To be called with the state's lock held.
    pub(crate) fn forget_time_noted(&self) {
        if self.time_noted.load(Ordering::Relaxed) != 0 {
            self.time_noted.store(0, Ordering::Release);
        }
    }

    /// Where the content ends, for what needs no other field with it.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        match self.size.load(Ordering::Acquire) {
            size if size & IS_FILLED == 0 => size,
            _ => self.state().size(),
        }
    }

    /// The flags, for what needs no other field with them.
    pub(crate) fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags_and_mode.load(Ordering::Acquire) as u32)
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner { inode: self.number, generation: self.generation }
    }

    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_mode((self.flags_and_mode.load(Ordering::Acquire) >> 32) as u16)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// Whether it is in use on the disk and has a name, or is a directory that has one.
    pub(crate) fn is_named(&self) -> bool {
        let state = self.state();
        state.raw.links_count() > 0 && !state.deleted
    }

    /// How many [`InodeRef`](crate::incore::inode_cache::InodeRef)s there are.
    pub(crate) fn user_count(&self) -> u32 {
        self.users.load(Ordering::Acquire)
    }
}

impl Inode {
    /// Holds the content beside readers and one thread that writes back.
    pub(crate) fn lock_for_reading(&self) -> ReadGuard<'_> {
        let content = self.content.read();
        ReadGuard { _mapping: self.content_locks().mapping.read(), _content: content }
    }

    /// Holds the content beside one thread that writes back.
    pub(crate) fn lock_for_writing(&self) -> WriteGuard<'_> {
        let content = self.content.read();
        WriteGuard { _mapping: self.content_locks().mapping.write(), _content: content }
    }

    /// Holds the content beside threads that read and write in memory.
    pub(crate) fn lock_for_writeback(&self) -> WritebackGuard<'_> {
        let content = self.content.read();
        let ContentLocks { writeback, mapping } = self.content_locks();
        WritebackGuard::Beside { mapping, _writeback: writeback.lock(), _content: content }
    }

    /// As [`Inode::lock_for_writeback`], unless another thread holds it alone or writes back.
    pub(crate) fn try_lock_for_writeback(&self) -> Option<WritebackGuard<'_>> {
        let content = self.content.try_read()?;
        let ContentLocks { writeback, mapping } = self.content_locks();
        Some(WritebackGuard::Beside { mapping, _writeback: writeback.try_lock()?, _content: content })
    }
}

fn flags_and_mode(raw: &RawInode) -> u64 {
    u64::from(raw.mode()) << 32 | u64::from(raw.flags().bits())
}

/// The number of a time's tick; not 0.
fn tick(time: Timestamp) -> u64 {
    const TICKS_PER_SECOND: u64 = 250;
    let nanoseconds = u64::from(time.nanoseconds);
    let within = nanoseconds * TICKS_PER_SECOND / 1_000_000_000;
    (time.seconds as u64).wrapping_mul(TICKS_PER_SECOND).wrapping_add(within + 1)
}

/// A time's tick and a transaction; not 0.
fn touch(now: Timestamp, tid: TransactionId) -> u64 {
    tick(now) << 24 ^ u64::from(tid.0) | 1 << 63
}

impl Cached for Inode {
    fn key(&self) -> u64 {
        u64::from(self.number.0)
    }

    fn recently_used(&self) -> &AtomicBool {
        &self.recently_used
    }
}

/// Takes the `INODE` locks of several inodes alone, in order.
pub(crate) fn lock_all<'n>(inodes: &[&'n Arc<Inode>]) -> Vec<BiasedWriteGuard<'n, ()>> {
    in_order(inodes).into_iter().map(|inode| inode.content.write()).collect()
}

/// Inodes in the order of their `INODE` locks, each once.
pub(crate) fn in_order<'n>(inodes: &[&'n Arc<Inode>]) -> Vec<&'n Arc<Inode>> {
    let mut inodes = inodes.to_vec();
    inodes.sort_by_key(|inode| inode.number);
    inodes.dedup_by_key(|inode| inode.number);
    inodes
}

/// Names of a file, and subdirectories of a directory without the `dir_nlink` feature: `EXT4_LINK_MAX`.
pub(crate) const LINKS_MAX: u16 = 65_000;

/// Counts `added` subdirectories more of a directory, or fewer. Past [`LINKS_MAX`] the count of an indexed one is 1 from then on.
pub(crate) fn count_subdirectories(raw: &mut RawInode, added: i32, is_indexed: bool) {
    let links = raw.links_count();
    if links == 1 && (added < 0 || is_indexed) {
        return;
    }
    let counted = i32::from(links) + added;
    let counted = match added {
        ..0 => counted.max(i32::from(links.min(2))),
        _ if is_indexed && counted > i32::from(LINKS_MAX) => 1,
        _ => counted,
    };
    raw.set_links_count(u16::try_from(counted).unwrap_or(u16::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdirectories_are_counted_up_to_65000() {
        let counted = |links, added, is_indexed| {
            let mut raw = RawInode::new(256, 32).expect("a size of inodes");
            raw.set_links_count(links);
            count_subdirectories(&mut raw, added, is_indexed);
            raw.links_count()
        };
        assert_eq!((counted(2, 3, true), counted(7, -5, true), counted(9, 0, true)), (5, 2, 9));
        assert_eq!((counted(LINKS_MAX - 1, 1, true), counted(LINKS_MAX, 1, true)), (LINKS_MAX, 1));
        assert_eq!((counted(1, 5, true), counted(1, -5, true), counted(1, -5, false)), (1, 1, 1));
        // Of damaged disks: a count that is too low stays, and one that cannot be larger.
        assert_eq!((counted(2, -1, true), counted(0, -1, true)), (2, 0));
        assert_eq!((counted(LINKS_MAX, 1, false), counted(u16::MAX, 1, false)), (LINKS_MAX + 1, u16::MAX));
    }
}
