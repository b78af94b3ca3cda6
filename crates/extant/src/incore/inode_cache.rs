//! The inodes in memory, by number, and their uses.
//!
//! Invariants: there is one [`Inode`] per number; an inode without links is deleted when its last [`InodeRef`] is gone.
//!
//! Locks: `CACHE` for the lists of inodes that lost their last user.

use std::fmt;
use std::ops::Deref;

use extant_ondisk::InodeNumber;
use extant_rt::{Arc, AtomicBool, LockClass, Mutex, Ordering, Padded, SHARDS, thread_slot};

use crate::error::Result;
use crate::incore::cache::Cache;
use crate::incore::inode::Inode;
use crate::incore::unreported_errors::UnreportedErrors;

/// A use of an inode: an open file, a working directory, an operation under way. The inode is not deleted while one
/// exists.
pub(crate) struct InodeRef {
    inode: Arc<Inode>,
    anchor: Arc<Padded<Anchor>>,
}

impl fmt::Debug for InodeRef {
    /// Without the cache that it is in.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InodeRef").field(&self.inode.number).finish()
    }
}

/// Inodes without users that are to be deleted or have preallocated blocks, for the thread that let them go, once it may take locks.
#[derive(Debug)]
struct EvictList {
    has_any: AtomicBool,
    inodes: Mutex<Vec<Arc<Inode>>>,
}

/// By [`thread_slot`].
#[derive(Debug)]
struct EvictLists(Box<[Padded<EvictList>]>);

/// What an [`InodeRef`] needs of the cache. There is one for each thread's slot: each use counts on one, and unrelated threads write no
/// common cache line.
#[derive(Debug)]
struct Anchor {
    evict_lists: Arc<EvictLists>,
    cache: Arc<Cache<Inode>>,
}

impl EvictLists {
    fn of_thread(&self) -> &EvictList {
        &self.0[thread_slot() % SHARDS]
    }
}

impl EvictList {
    fn new() -> Self {
        Self { has_any: AtomicBool::new(false), inodes: Mutex::new(LockClass::CACHE, Vec::new()) }
    }

    fn push(&self, inode: Arc<Inode>) {
        self.inodes.lock().push(inode);
        self.has_any.store(true, Ordering::Release);
    }

    fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Relaxed)
    }

    fn take(&self) -> Vec<Arc<Inode>> {
        // Before the inodes: one that comes later sets it again.
        self.has_any.swap(false, Ordering::AcqRel);
        std::mem::take(&mut *self.inodes.lock())
    }
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
        Self { inode: self.inode.clone(), anchor: self.anchor.clone() }
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        // Release: what this user did happens before the deletion by the thread that sees zero (`user_count`).
        if self.inode.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let state = self.inode.state();
        let is_unlinked = state.raw.links_count() == 0 && !state.deleted;
        drop(state);
        let is_replaced = self.inode.is_replaced.load(Ordering::Relaxed);
        if is_unlinked || is_replaced || self.inode.may_have_preallocations() {
            self.anchor.evict_lists.of_thread().push(self.inode.clone());
        } else {
            self.anchor.cache.let_go(&self.inode);
        }
    }
}

/// The inodes in memory, by number.
#[derive(Debug)]
pub(crate) struct InodeCache {
    inodes: Arc<Cache<Inode>>,
    evict_lists: Arc<EvictLists>,
    /// By [`thread_slot`].
    anchors: Vec<Arc<Padded<Anchor>>>,
    pub(crate) unreported_errors: UnreportedErrors,
}

impl InodeCache {
    /// A cache of about `count_max` inodes that are not in use.
    pub(crate) fn new(count_max: usize) -> Self {
        let cache = Arc::new(Cache::new(count_max));
        let evict_lists = Arc::new(EvictLists((0..SHARDS).map(|_| Padded(EvictList::new())).collect()));
        let anchor = |_| Arc::new(Padded(Anchor { evict_lists: evict_lists.clone(), cache: cache.clone() }));
        let anchors = (0..SHARDS).map(anchor).collect();
        Self { inodes: cache, evict_lists, anchors, unreported_errors: UnreportedErrors::new() }
    }

    /// Whether inodes have lost their last user by the calling thread and leave something to do.
    #[inline]
    pub(crate) fn has_evictable(&self) -> bool {
        self.evict_lists.of_thread().has_any()
    }

    /// Takes those inodes out.
    pub(crate) fn take_evictable(&self) -> Vec<Arc<Inode>> {
        self.evict_lists.of_thread().take()
    }

    /// As [`InodeCache::take_evictable`], of any thread.
    pub(crate) fn take_all_evictable(&self) -> Vec<Arc<Inode>> {
        let lists = self.evict_lists.0.iter().filter(|list| list.has_any());
        lists.flat_map(|list| list.take()).collect()
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
        InodeRef { inode: inode.clone(), anchor: self.anchors[thread_slot() % SHARDS].clone() }
    }
}
