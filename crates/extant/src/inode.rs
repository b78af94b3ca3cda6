//! Inodes in memory.
//!
//! An [`Inode`] is an inode in use, or recently in use. The fields it has on the disk are an `Arc<RawInode>`: readers take a
//! snapshot, an update changes them in place, or a copy of them while a snapshot or the committer holds the old.
//!
//! Invariants: there is one [`Inode`] per number; one that the running transaction changed, or that a commit
//! under way has frozen, is held by that transaction and so stays in the cache. An inode without links is deleted
//! when its last [`InodeRef`] is gone.
//!
//! Locks: `INODE`, with a page cache `WRITEBACK` and `MAPPING` ([`ContentLocks`]) (the content), and `XATTR`, keyed by number; `PAGES` (the content in memory); `INODE_STATE` (the fields).

use std::ops::Deref;

use extant_alloc::{LastGroup, Preallocations};
use extant_ondisk::{FileType, FsBlock, InodeNumber, RawInode, TransactionId};
use extant_rt::{
    Arc, AtomicBool, AtomicU32, AtomicU64, LockClass, Mutex, MutexGuard, OnceBox, Ordering, Padded, RwLock,
    SHARDS, thread_slot,
};

use crate::buffer::Owner;
use crate::cache::{Cache, Cached};
use crate::content::ContentLocks;
use crate::error::Result;
use crate::pages::{DelallocState, InodePages, UnreportedErrors, WritebackError};

/// An inode in memory.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) number: InodeNumber,
    pub(crate) generation: u32,
    /// The content: extents and data of a file, entries of a directory. Readers share it.
    pub(crate) content: RwLock<()>,
    /// The extended attributes.
    pub(crate) xattrs: RwLock<()>,
    /// The position of its inode: the block of the table and the byte in it.
    pub(crate) home: (FsBlock, usize),
    /// Blocks preallocated for its content; made when they are first asked for.
    preallocations: OnceBox<Arc<Preallocations>>,
    /// The directory that it was made in, if that was since it came into memory.
    pub(crate) directory: InodeNumber,
    /// Where its last subdirectory went, of a directory.
    pub(crate) last_group: LastGroup,
    /// Its state in the page cache; made when it is first asked for.
    paged: OnceBox<Paged>,
    /// Data that could not be written back.
    pub(crate) writeback_error: WritebackError,
    /// Cut to nothing since it was last flushed: what is written then must not be lost with what was there before.
    pub(crate) is_replaced: AtomicBool,
    /// Distinguishes a directory whose names are cached from all others that were ever in memory; 0 if none are.
    pub(crate) identity: AtomicU64,
    /// For a directory: some of its cached names had no room near the others.
    pub(crate) has_far_names: AtomicBool,
    state: Mutex<InodeState>,
    users: AtomicU32,
    recently_used: AtomicBool,
    /// Made without a name, and may get one.
    linkable: AtomicBool,
    /// In the orphan list. Changes under its lock.
    orphan: AtomicBool,
}

/// The page-cache state of an inode.
#[derive(Debug)]
struct Paged {
    locks: ContentLocks,
    pages: Mutex<InodePages>,
    writeback: extant_writeback::InodeWriteback,
}

/// The fields of an inode, under `INODE_STATE`.
#[derive(Debug)]
pub(crate) struct InodeState {
    pub(crate) raw: Arc<RawInode>,
    /// The state that is not yet in the on-disk inode.
    pub(crate) delalloc: DelallocState,
    /// In the running transaction's list.
    pub(crate) dirty: bool,
    /// Freed in the running or an earlier transaction; the number may be allocated again.
    pub(crate) deleted: bool,
    /// The last transaction that changed anything.
    pub(crate) sync_tid: Option<TransactionId>,
    /// The last transaction that changed what `fdatasync` must make durable: size and block mapping.
    pub(crate) datasync_tid: Option<TransactionId>,
}

impl InodeState {
    /// Where the content ends, which the inode on the disk may not know yet.
    pub(crate) fn size(&self) -> u64 {
        self.raw.size().max(self.delalloc.end)
    }
}

impl Inode {
    pub(crate) fn new(number: InodeNumber, home: (FsBlock, usize), raw: RawInode) -> Self {
        let generation = raw.generation();
        let state = InodeState {
            raw: Arc::new(raw),
            delalloc: DelallocState::default(),
            dirty: false,
            deleted: false,
            sync_tid: None,
            datasync_tid: None,
        };
        Self {
            number,
            generation,
            content: RwLock::with_key(LockClass::INODE, u64::from(number.0), ()),
            xattrs: RwLock::with_key(LockClass::XATTR, u64::from(number.0), ()),
            home,
            preallocations: OnceBox::new(),
            directory: InodeNumber::default(),
            last_group: LastGroup::default(),
            paged: OnceBox::new(),
            writeback_error: WritebackError::default(),
            is_replaced: AtomicBool::new(false),
            identity: AtomicU64::new(0),
            has_far_names: AtomicBool::new(false),
            state: Mutex::new(LockClass::INODE_STATE, state),
            users: AtomicU32::new(0),
            recently_used: AtomicBool::new(true),
            linkable: AtomicBool::new(false),
            orphan: AtomicBool::new(false),
        }
    }

    fn paged(&self) -> &Paged {
        self.paged.get_or_init(|| Paged {
            locks: ContentLocks::new(u64::from(self.number.0)),
            pages: Mutex::new(LockClass::PAGES, InodePages::default()),
            writeback: extant_writeback::InodeWriteback::new(),
        })
    }

    pub(crate) fn content_locks(&self) -> &ContentLocks {
        &self.paged().locks
    }

    /// Its content in memory.
    pub(crate) fn pages(&self) -> &Mutex<InodePages> {
        &self.paged().pages
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
        self.state.lock().raw.clone()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, InodeState> {
        self.state.lock()
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner { inode: self.number, generation: self.generation }
    }

    pub(crate) fn file_type(&self) -> FileType {
        self.state.lock().raw.file_type()
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// Whether it is in use on the disk and has a name, or is a directory that has one.
    pub(crate) fn is_named(&self) -> bool {
        let state = self.state.lock();
        state.raw.links_count() > 0 && !state.deleted
    }

    /// How many [`InodeRef`]s there are.
    pub(crate) fn user_count(&self) -> u32 {
        self.users.load(Ordering::Acquire)
    }
}

/// A use of an inode: an open file, a working directory, an operation under way. The inode is not deleted while one
/// exists.
#[derive(Debug)]
pub(crate) struct InodeRef {
    inode: Arc<Inode>,
    evict_list: Arc<Padded<EvictList>>,
}

/// Inodes without users that are to be deleted or have preallocated blocks, for the next thread that may take locks.
#[derive(Debug)]
struct EvictList {
    /// The cache's `any_evictable`, of which this shard has one bit; more shards may have the same.
    any: Arc<Padded<AtomicU64>>,
    bit: u64,
    inodes: Mutex<Vec<Arc<Inode>>>,
    /// What other inodes without users may leave.
    cache: Arc<Cache<Inode>>,
}

impl InodeRef {
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }
}

impl Deref for InodeRef {
    type Target = Arc<Inode>;
    fn deref(&self) -> &Arc<Inode> {
        &self.inode
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> Self {
        self.inode.users.fetch_add(1, Ordering::Relaxed);
        Self { inode: self.inode.clone(), evict_list: self.evict_list.clone() }
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        // Release: what this user did happens before the deletion by the thread that sees zero (`user_count`).
        if self.inode.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let state = self.inode.state.lock();
        let is_unlinked = state.raw.links_count() == 0 && !state.deleted;
        drop(state);
        let is_replaced = self.inode.is_replaced.load(Ordering::Relaxed);
        if is_unlinked || is_replaced || self.inode.may_have_preallocations() {
            self.evict_list.inodes.lock().push(self.inode.clone());
            self.evict_list.any.fetch_or(self.evict_list.bit, Ordering::Release);
        } else {
            self.evict_list.cache.let_go(&self.inode);
        }
    }
}

impl Cached for Inode {
    fn key(&self) -> u64 {
        u64::from(self.number.0)
    }

    fn recently_used(&self) -> &AtomicBool {
        &self.recently_used
    }
}

/// The inodes in memory, by number.
#[derive(Debug)]
pub(crate) struct InodeCache {
    inodes: Arc<Cache<Inode>>,
    /// A bit for each shard that may hold any.
    any_evictable: Arc<Padded<AtomicU64>>,
    /// By [`thread_slot`]: each use counts on one, and unrelated threads write no common cache line.
    evict_lists: Vec<Arc<Padded<EvictList>>>,
    pub(crate) unreported_errors: UnreportedErrors,
}

impl InodeCache {
    /// A cache of about `count_max` inodes that are not in use.
    pub(crate) fn new(count_max: usize) -> Self {
        let any_evictable = Arc::new(Padded(AtomicU64::new(0)));
        let cache = Arc::new(Cache::new(count_max));
        let shard = |index| {
            let inodes = Mutex::new(LockClass::CACHE, Vec::new());
            Arc::new(Padded(EvictList {
                any: any_evictable.clone(),
                bit: 1_u64 << (index % u64::BITS as usize),
                inodes,
                cache: cache.clone(),
            }))
        };
        let evict_lists = (0..SHARDS).map(shard).collect();
        Self { inodes: cache, any_evictable, evict_lists, unreported_errors: UnreportedErrors::new() }
    }

    /// Takes the inodes out that lost their last user and leave something to do.
    pub(crate) fn take_evictable(&self) -> Vec<Arc<Inode>> {
        let mut inodes = Vec::new();
        if self.any_evictable.load(Ordering::Relaxed) == 0 {
            return inodes;
        }
        // Before the inodes: one that comes later sets its bit again.
        let mut bits = self.any_evictable.swap(0, Ordering::AcqRel);
        while bits != 0 {
            for list in
                self.evict_lists.iter().skip(bits.trailing_zeros() as usize).step_by(u64::BITS as usize)
            {
                inodes.append(&mut list.inodes.lock());
            }
            bits &= bits - 1;
        }
        inodes
    }

    /// A use of the inode, which `read` brings from the disk if it is not in memory.
    ///
    /// # Errors
    /// The errors of `read`.
    pub(crate) fn get_or_read(
        &self,
        number: InodeNumber,
        read: impl Fn() -> Result<Inode>,
    ) -> Result<InodeRef> {
        let read = || {
            let inode = read()?;
            self.unreported_errors.restore(&inode);
            Ok(Arc::new(inode))
        };
        self.inodes.get_or_read(u64::from(number.0), |inode| self.used(inode), read)
    }

    /// Adds the inode of a number that was allocated just now, in place of a deleted one.
    pub(crate) fn replace(&self, inode: Inode) -> InodeRef {
        let inode = Arc::new(inode);
        let used = self.used(&inode);
        self.inodes.replace(inode);
        used
    }

    /// Drops an inode without users that the caller is the last to hold, if there is no room for it.
    pub(crate) fn let_go(&self, inode: &Arc<Inode>) {
        self.inodes.let_go(inode);
    }

    /// A use of an inode that the caller knows to be in the cache.
    pub(crate) fn used(&self, inode: &Arc<Inode>) -> InodeRef {
        inode.users.fetch_add(1, Ordering::Relaxed);
        InodeRef { inode: inode.clone(), evict_list: self.evict_lists[thread_slot() % SHARDS].clone() }
    }
}
