//! The inodes in memory, by number, and their uses.
//!
//! Invariants: there is one [`Inode`] per number; an inode without links is deleted when its last [`InodeRef`] is gone.
//!
//! Locks: `CACHE` for the lists of inodes that lost their last user.

use std::fmt;
use std::ops::Deref;

use extant_ondisk::InodeNumber;
use extant_rt::{Arc, AtomicU64, LockClass, Mutex, Ordering, Padded, SHARDS, thread_slot};

use crate::error::Result;
use crate::incore::cache::Cache;
use crate::incore::inode::Inode;
use crate::incore::unreported_errors::UnreportedErrors;

/// A use of an inode: an open file, a working directory, an operation under way. The inode is not deleted while one
/// exists.
pub(crate) struct InodeRef {
    inode: Arc<Inode>,
    evict_list: Arc<Padded<EvictList>>,
}

impl fmt::Debug for InodeRef {
    /// Without the cache that it is in.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InodeRef").field(&self.inode.number).finish()
    }
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
        let state = self.inode.state();
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

    /// Whether inodes have lost their last user and leave something to do.
    pub(crate) fn has_evictable(&self) -> bool {
        self.any_evictable.load(Ordering::Relaxed) != 0
    }

    /// Takes the inodes out that lost their last user and leave something to do.
    pub(crate) fn take_evictable(&self) -> Vec<Arc<Inode>> {
        let mut inodes = Vec::new();
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
