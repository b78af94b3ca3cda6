//! What the running transaction has changed, for its freeze to find.
//!
//! The lists are cut into [`Shards`], so that threads of different groups share none. A freeze moves what they list once.
//!
//! Locks: `CACHE`, one shard at a time.

use std::collections::BTreeMap;

use extant_ondisk::{FsBlock, GroupNumber};
use extant_rt::{Arc, AtomicBool, LockClass, Mutex, Ordering, Padded, spread};

use crate::incore::buffer::Buffer;
use crate::incore::inode::Inode;
use crate::metadata::growth::Growth;
use crate::metadata::shards::{SHARDS, Shards};

/// Inodes by the block of the inode table that holds them.
type InodesByBlock = BTreeMap<FsBlock, Vec<Arc<Inode>>>;

/// The changes of the running transaction.
#[derive(Debug)]
pub(crate) struct DirtyMetadata {
    /// By thread: a block that was freed is allocated again only after the commit, so none is listed twice.
    buffers: Shards<Vec<Arc<Buffer>>>,
    /// By group, and there by block of the inode table, in the order of their first change: a number that was deleted and allocated
    /// again within one transaction is listed twice, the later last.
    inodes: Shards<InodesByBlock>,
    superblock: Padded<AtomicBool>,
    growth: Mutex<Option<Growth>>,
}

/// What a transaction has changed.
pub(crate) struct Changes {
    pub(crate) buffers: Vec<Arc<Buffer>>,
    /// Each table block once: it is of one group, and that of one shard.
    pub(crate) inodes: Vec<(FsBlock, Vec<Arc<Inode>>)>,
    pub(crate) superblock: bool,
    pub(crate) growth: Option<Growth>,
}

impl DirtyMetadata {
    pub(crate) fn new() -> Self {
        Self {
            buffers: Shards::new(),
            inodes: Shards::new(),
            superblock: Padded(AtomicBool::new(false)),
            growth: Mutex::new(LockClass::CACHE, None),
        }
    }

    /// Takes all of them out. At the freeze only: no handle is open, and the journal orders it after every closed one.
    pub(crate) fn take(&self) -> Changes {
        let mut buffers = Vec::new();
        self.buffers.visit(|shard| buffers.append(shard));
        let mut inodes = Vec::new();
        self.inodes.visit(|shard| inodes.extend(std::mem::take(shard)));
        let superblock = self.superblock.swap(false, Ordering::Relaxed);
        Changes { buffers, inodes, superblock, growth: self.growth.lock().take() }
    }

    pub(crate) fn add_buffer(&self, buffer: Arc<Buffer>) {
        self.buffers.lock_of_thread().push(buffer);
    }

    /// Whether the table block was not in yet.
    pub(crate) fn add_inode(&self, group: GroupNumber, inode: Arc<Inode>) -> bool {
        let mut shard = self.inodes.lock(spread(u64::from(group.0), SHARDS));
        let inodes = shard.entry(inode.home.0).or_default();
        inodes.push(inode);
        inodes.len() == 1
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
