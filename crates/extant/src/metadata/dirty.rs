//! What the running transaction has changed, for its commit to find; and how that was before, of what the next transaction changes first.
//!
//! The lists are cut into [`Shards`], so that threads of different groups share none. A freeze takes them and does not go through them.
//!
//! Invariant: what a list of the transaction in its commit has is either as that transaction left it, or there is a copy
//! ([`DirtyIn`](crate::incore::dirty_in::DirtyIn)), which is made under the same lock as the change.
//!
//! Locks: `CACHE`, one shard at a time, also inside `INODE_STATE` and `BUFFER`.

use std::collections::BTreeMap;

use extant_ondisk::{FsBlock, GroupNumber};
use extant_rt::{Arc, AtomicBool, LockClass, Mutex, Ordering, Padded, spread};

use crate::incore::buffer::Buffer;
use crate::incore::inode::Inode;
use crate::metadata::growth::Growth;
use crate::metadata::shards::{SHARDS, Shards};
use crate::metadata::snapshots::{BufferSnapshot, EarlySnapshots, InodeSnapshot};

/// The inodes of a block of the inode table, ascending by the byte in it where each begins. Each place once: where a number was deleted and
/// allocated again within one transaction, the last one has it.
pub(crate) type InodesOfBlock = Vec<(usize, Arc<Inode>)>;

/// What a thread has changed, beside inodes.
#[derive(Debug, Default)]
struct OfThread {
    /// A block that was freed is allocated again only after the commit, so none is listed twice.
    buffers: Vec<Arc<Buffer>>,
    early: EarlySnapshots,
}

/// The changes of the running transaction.
#[derive(Debug)]
pub(crate) struct DirtyMetadata {
    by_thread: Shards<OfThread>,
    /// By group, and there by block of the inode table.
    inodes: Shards<BTreeMap<FsBlock, InodesOfBlock>>,
    superblock: Padded<AtomicBool>,
    growth: Mutex<Option<Growth>>,
}

/// What a transaction has changed.
pub(crate) struct Changes {
    pub(crate) buffers: Vec<Arc<Buffer>>,
    /// Each table block once: it is of one group, and that of one shard.
    pub(crate) inodes: Vec<BTreeMap<FsBlock, InodesOfBlock>>,
    pub(crate) superblock: bool,
    pub(crate) growth: Option<Growth>,
}

impl DirtyMetadata {
    pub(crate) fn new() -> Self {
        Self {
            by_thread: Shards::new(),
            inodes: Shards::new(),
            superblock: Padded(AtomicBool::new(false)),
            growth: Mutex::new(LockClass::CACHE, None),
        }
    }

    /// Takes all of them out. At the freeze only: no handle is open, and the journal orders it after every closed one.
    pub(crate) fn take(&self) -> Changes {
        let mut buffers = Vec::new();
        self.by_thread.visit(|shard| {
            debug_assert!(shard.early.buffers.is_empty() && shard.early.inodes.is_empty(), "copies left");
            buffers.append(&mut shard.buffers);
        });
        let mut inodes = Vec::new();
        self.inodes.visit(|shard| inodes.push(std::mem::take(shard)));
        let superblock = self.superblock.swap(false, Ordering::Relaxed);
        Changes { buffers, inodes, superblock, growth: self.growth.lock().take() }
    }

    /// Takes the copies out: all that there will be, once the commit has come to all that its transaction lists.
    pub(crate) fn take_early(&self) -> EarlySnapshots {
        let mut early = EarlySnapshots::default();
        self.by_thread.visit_in_use(|shard| {
            early.buffers.append(&mut shard.early.buffers);
            early.inodes.append(&mut shard.early.inodes);
        });
        early
    }

    pub(crate) fn add_buffer(&self, buffer: Arc<Buffer>) {
        self.by_thread.lock_of_thread().buffers.push(buffer);
    }

    /// A copy of a block that is about to change, for the commit of the transaction before. Its state is locked.
    pub(crate) fn add_early_buffer(&self, snapshot: BufferSnapshot) {
        self.by_thread.lock_of_thread().early.buffers.push(snapshot);
    }

    /// A copy of an inode that is about to change, likewise. Its fields are locked.
    pub(crate) fn add_early_inode(&self, snapshot: InodeSnapshot) {
        self.by_thread.lock_of_thread().early.inodes.push(snapshot);
    }

    /// Whether the table block was not in yet.
    pub(crate) fn add_inode(&self, group: GroupNumber, inode: Arc<Inode>) -> bool {
        let (block, offset) = inode.home;
        // Dropped last, without the lock.
        let _deleted;
        let mut shard = self.inodes.lock(spread(u64::from(group.0), SHARDS));
        let inodes = shard.entry(block).or_default();
        let is_first = inodes.is_empty();
        match inodes.binary_search_by_key(&offset, |(offset, _)| *offset) {
            Ok(at) => _deleted = std::mem::replace(&mut inodes[at].1, inode),
            Err(at) => inodes.insert(at, (offset, inode)),
        }
        is_first
    }

    /// The transaction makes the file system larger. Once per transaction.
    pub(crate) fn set_growth(&self, growth: Growth) {
        *self.growth.lock() = Some(growth);
    }

    /// Whether the superblock was not in yet.
    pub(crate) fn add_superblock(&self) -> bool {
        !self.superblock.swap(true, Ordering::Relaxed)
    }
}
