//! Inodes in memory.
//!
//! A [`Node`] is an inode that somebody uses or lately used. Its fields are an `Arc<Inode>`: readers take a
//! snapshot, an update changes them in place, or a copy of them while a snapshot or the committer holds the old.
//!
//! Invariants: there is one node per inode number; a node that the running transaction changed, or that a commit
//! under way has frozen, is held by that transaction and so stays in the cache. An inode without links is deleted
//! when its last [`NodeRef`] is gone.
//!
//! Locks: `INODE`, with a page cache `FLUSH` and `STEP` ([`ContentLocks`]) (the content), and `XATTR`, keyed by number; `PAGES` (the content in memory); `INODE_CORE` (the fields).

use std::ops::Deref;

use extant_alloc::{LastGroup, Preallocations};
use extant_ondisk::{FileType, FsBlock, Inode, InodeNumber, TransactionId};
use extant_rt::{
    Arc, AtomicBool, AtomicU32, AtomicU64, LockClass, Mutex, MutexGuard, OnceBox, Ordering, Padded, RwLock,
    SHARDS, thread_slot,
};

use crate::buffer::Owner;
use crate::cache::{Cache, Cached};
use crate::content::ContentLocks;
use crate::error::Result;
use crate::pages::{Ahead, NodePages, UnreportedErrors, WritebackError};

/// An inode in memory.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: InodeNumber,
    pub(crate) generation: u32,
    /// The content: extents and data of a file, entries of a directory. Readers share it.
    pub(crate) content: RwLock<()>,
    /// The extended attributes.
    pub(crate) xattrs: RwLock<()>,
    /// Where its inode stands: the block of the table and the byte in it.
    pub(crate) home: (FsBlock, usize),
    /// Blocks taken ahead for its content; made when they are first asked for.
    preallocations: OnceBox<Arc<Preallocations>>,
    /// The directory that it was made in, if that was since it came into memory.
    pub(crate) directory: InodeNumber,
    /// Where its last subdirectory went, of a directory.
    pub(crate) last_group: LastGroup,
    /// What it has of the page cache; made when it is first asked for.
    paged: OnceBox<Paged>,
    /// Data that could not be written back.
    pub(crate) writeback_error: WritebackError,
    /// Cut to nothing since it was last flushed: what is written then must not be lost with what was there before.
    pub(crate) is_replaced: AtomicBool,
    /// Tells a directory that names are kept of from all others that were ever in memory; 0 if none are.
    pub(crate) identity: AtomicU64,
    /// Of a directory: some of its names in memory had no room near the others.
    pub(crate) has_far_names: AtomicBool,
    core: Mutex<Core>,
    users: AtomicU32,
    recently_used: AtomicBool,
    /// Made without a name, and may get one.
    linkable: AtomicBool,
    /// In the orphan list. Changes under its lock.
    orphan: AtomicBool,
}

/// What a node has of the page cache.
#[derive(Debug)]
struct Paged {
    locks: ContentLocks,
    pages: Mutex<NodePages>,
    writeback: extant_writeback::InodeWriteback,
}

/// The fields of a node, under `INODE_CORE`.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) inode: Arc<Inode>,
    /// What it does not have yet.
    pub(crate) ahead: Ahead,
    /// In the running transaction's list.
    pub(crate) dirty: bool,
    /// Freed in the running or an earlier transaction; the number may be given out again.
    pub(crate) deleted: bool,
    /// The last transaction that changed anything.
    pub(crate) sync_tid: Option<TransactionId>,
    /// The last transaction that changed what `fdatasync` must make durable: size and block mapping.
    pub(crate) datasync_tid: Option<TransactionId>,
}

impl Core {
    /// Where the content ends, which the inode on the disk may not know yet.
    pub(crate) fn size(&self) -> u64 {
        self.inode.size().max(self.ahead.end)
    }
}

impl Node {
    pub(crate) fn new(number: InodeNumber, home: (FsBlock, usize), inode: Inode) -> Self {
        let generation = inode.generation();
        let core = Core {
            inode: Arc::new(inode),
            ahead: Ahead::default(),
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
            core: Mutex::new(LockClass::INODE_CORE, core),
            users: AtomicU32::new(0),
            recently_used: AtomicBool::new(true),
            linkable: AtomicBool::new(false),
            orphan: AtomicBool::new(false),
        }
    }

    fn paged(&self) -> &Paged {
        self.paged.get_or_init(|| Paged {
            locks: ContentLocks::new(u64::from(self.number.0)),
            pages: Mutex::new(LockClass::PAGES, NodePages::default()),
            writeback: extant_writeback::InodeWriteback::new(),
        })
    }

    pub(crate) fn content_locks(&self) -> &ContentLocks {
        &self.paged().locks
    }

    /// Its content in memory.
    pub(crate) fn pages(&self) -> &Mutex<NodePages> {
        &self.paged().pages
    }

    /// Its place in writeback.
    pub(crate) fn writeback(&self) -> &extant_writeback::InodeWriteback {
        &self.paged().writeback
    }

    /// Says whether an inode without links may get a name. `INODE` is held exclusively, or nobody else uses the inode yet.
    pub(crate) fn set_linkable(&self, is_linkable: bool) {
        self.linkable.store(is_linkable, Ordering::Release);
    }

    /// Whether an inode without links may get a name.
    pub(crate) fn is_linkable(&self) -> bool {
        self.linkable.load(Ordering::Acquire)
    }

    /// Whether it stands in the orphan list.
    pub(crate) fn is_orphan(&self) -> bool {
        self.orphan.load(Ordering::Acquire)
    }

    /// To be called with the orphan list's lock held.
    pub(crate) fn set_orphan(&self, is_orphan: bool) {
        self.orphan.store(is_orphan, Ordering::Release);
    }

    /// The blocks taken ahead for its content.
    pub(crate) fn preallocations(&self) -> &Arc<Preallocations> {
        self.preallocations.get_or_init(|| Arc::new(Preallocations::new(self.number)))
    }

    /// Whether blocks may be taken ahead for its content.
    pub(crate) fn may_have_preallocations(&self) -> bool {
        self.preallocations.get().is_some_and(|preallocations| preallocations.may_be_live())
    }

    /// The fields as they are now. Holding them makes the next change copy them.
    pub(crate) fn inode(&self) -> Arc<Inode> {
        self.core.lock().inode.clone()
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner { inode: self.number, generation: self.generation }
    }

    pub(crate) fn file_type(&self) -> FileType {
        self.core.lock().inode.file_type()
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// Whether it is in use on the disk and has a name, or is a directory that has one.
    pub(crate) fn is_named(&self) -> bool {
        let core = self.core.lock();
        core.inode.links_count() > 0 && !core.deleted
    }

    /// How many [`NodeRef`]s there are.
    pub(crate) fn user_count(&self) -> u32 {
        self.users.load(Ordering::Acquire)
    }
}

/// A use of a node: an open file, a working directory, an operation under way. The inode is not deleted while one
/// exists.
#[derive(Debug)]
pub(crate) struct NodeRef {
    node: Arc<Node>,
    doomed: Arc<Padded<Doomed>>,
}

/// Nodes without users that are to be deleted or have blocks taken ahead, for whoever next may take locks.
#[derive(Debug)]
struct Doomed {
    /// The cache's `any_doomed`, of which this shard has one bit; more shards may have the same.
    any: Arc<Padded<AtomicU64>>,
    bit: u64,
    nodes: Mutex<Vec<Arc<Node>>>,
    /// What other nodes without users may leave.
    cache: Arc<Cache<Node>>,
}

impl NodeRef {
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Deref for NodeRef {
    type Target = Arc<Node>;
    fn deref(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Clone for NodeRef {
    fn clone(&self) -> Self {
        self.node.users.fetch_add(1, Ordering::Relaxed);
        Self { node: self.node.clone(), doomed: self.doomed.clone() }
    }
}

impl Drop for NodeRef {
    fn drop(&mut self) {
        // Release: what this user did happens before the deletion by whoever sees zero (`user_count`).
        if self.node.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let core = self.node.core.lock();
        let doomed = core.inode.links_count() == 0 && !core.deleted;
        drop(core);
        let is_replaced = self.node.is_replaced.load(Ordering::Relaxed);
        if doomed || is_replaced || self.node.may_have_preallocations() {
            self.doomed.nodes.lock().push(self.node.clone());
            self.doomed.any.fetch_or(self.doomed.bit, Ordering::Release);
        } else {
            self.doomed.cache.let_go(&self.node);
        }
    }
}

impl Cached for Node {
    fn key(&self) -> u64 {
        u64::from(self.number.0)
    }

    fn recently_used(&self) -> &AtomicBool {
        &self.recently_used
    }
}

/// The inodes in memory, by number.
#[derive(Debug)]
pub(crate) struct NodeCache {
    nodes: Arc<Cache<Node>>,
    /// A bit for each shard that may hold any.
    any_doomed: Arc<Padded<AtomicU64>>,
    /// By [`thread_slot`]: each use counts on one, and threads that have nothing in common write no common line.
    doomed: Vec<Arc<Padded<Doomed>>>,
    pub(crate) unreported_errors: UnreportedErrors,
}

impl NodeCache {
    /// A cache of about `count_max` inodes that nobody uses.
    pub(crate) fn new(count_max: usize) -> Self {
        let any_doomed = Arc::new(Padded(AtomicU64::new(0)));
        let cache = Arc::new(Cache::new(count_max));
        let shard = |index| {
            let nodes = Mutex::new(LockClass::CACHE, Vec::new());
            Arc::new(Padded(Doomed {
                any: any_doomed.clone(),
                bit: 1_u64 << (index % u64::BITS as usize),
                nodes,
                cache: cache.clone(),
            }))
        };
        let doomed = (0..SHARDS).map(shard).collect();
        Self { nodes: cache, any_doomed, doomed, unreported_errors: UnreportedErrors::new() }
    }

    /// Takes the nodes out that lost their last user and leave something to do.
    pub(crate) fn take_doomed(&self) -> Vec<Arc<Node>> {
        let mut nodes = Vec::new();
        if self.any_doomed.load(Ordering::Relaxed) == 0 {
            return nodes;
        }
        // Before the nodes: one that comes later sets its bit again.
        let mut bits = self.any_doomed.swap(0, Ordering::AcqRel);
        while bits != 0 {
            for doomed in self.doomed.iter().skip(bits.trailing_zeros() as usize).step_by(u64::BITS as usize)
            {
                nodes.append(&mut doomed.nodes.lock());
            }
            bits &= bits - 1;
        }
        nodes
    }

    /// A use of the inode, which `read` brings from the disk if it is not in memory.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn get_or_read(
        &self,
        number: InodeNumber,
        read: impl Fn() -> Result<Node>,
    ) -> Result<NodeRef> {
        let read = || {
            let node = read()?;
            self.unreported_errors.restore(&node);
            Ok(Arc::new(node))
        };
        self.nodes.get_or_read(u64::from(number.0), |node| self.used(node), read)
    }

    /// Adds the node of a number that was given out just now, in place of a deleted one.
    pub(crate) fn replace(&self, node: Node) -> NodeRef {
        let node = Arc::new(node);
        let used = self.used(&node);
        self.nodes.replace(node);
        used
    }

    /// Drops a node that nobody uses and the caller is the last to hold, if there is no room for it.
    pub(crate) fn let_go(&self, node: &Arc<Node>) {
        self.nodes.let_go(node);
    }

    /// A use of a node that the caller knows to be in the cache.
    pub(crate) fn used(&self, node: &Arc<Node>) -> NodeRef {
        node.users.fetch_add(1, Ordering::Relaxed);
        NodeRef { node: node.clone(), doomed: self.doomed[thread_slot() % SHARDS].clone() }
    }
}
