//! The committed blocks that are not yet at their final location: for each its newest committed bytes.
//!
//! A read of a metadata block looks here before it reads the device.
//!
//! Invariant: an entry is in the log's copy of its transaction, so there are never more of them than blocks
//! of the log. Only a commit and a checkpoint change it, under the journal's state lock.
//!
//! Locks: its shards are `JOURNAL`, keys from [`FIRST_KEY`]; one at a time, inside the state lock.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::{Arc, LockClass, Padded, RwLock, SHARDS, spread};

/// Locks of the journal with smaller keys are outer.
pub const FIRST_KEY: u64 = 16;

/// The newest committed copy of a block.
#[derive(Clone, Debug)]
pub struct CommittedBlock {
    pub block: FsBlock,
    pub tid: TransactionId,
    pub bytes: Arc<[u8]>,
}

type Shard = RwLock<BTreeMap<FsBlock, (TransactionId, Arc<[u8]>)>>;

/// See the module.
#[derive(Debug)]
pub struct CommittedBlocks {
    /// Neighbours, as groups' bitmaps are, lie in different ones.
    shards: Vec<Padded<Shard>>,
}

impl CommittedBlocks {
    pub fn new() -> Self {
        let shard =
            |index| Padded(RwLock::with_key(LockClass::JOURNAL, FIRST_KEY + index as u64, BTreeMap::new()));
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    fn shard(&self, block: FsBlock) -> &Shard {
        &self.shards[spread(block.0, SHARDS)]
    }

    pub fn get(&self, block: FsBlock) -> Option<Arc<[u8]>> {
        self.shard(block).read().get(&block).map(|(_, bytes)| Arc::clone(bytes))
    }

    /// The entry of a block.
    pub fn entry(&self, block: FsBlock) -> Option<CommittedBlock> {
        let (tid, bytes) = self.shard(block).read().get(&block).cloned()?;
        Some(CommittedBlock { block, tid, bytes })
    }

    /// The transaction of the entry.
    pub fn tid(&self, block: FsBlock) -> Option<TransactionId> {
        self.shard(block).read().get(&block).map(|(tid, _)| *tid)
    }

    /// Puts a newer copy in; returns the transaction whose copy it supersedes.
    pub fn insert(&self, copy: CommittedBlock) -> Option<TransactionId> {
        self.shard(copy.block).write().insert(copy.block, (copy.tid, copy.bytes)).map(|(tid, _)| tid)
    }

    /// Takes an entry out; returns its transaction.
    pub fn remove(&self, block: FsBlock) -> Option<TransactionId> {
        self.shard(block).write().remove(&block).map(|(tid, _)| tid)
    }

    /// Takes an entry out if no newer copy came.
    pub fn remove_if(&self, block: FsBlock, tid: TransactionId) -> bool {
        match self.shard(block).write().entry(block) {
            Entry::Occupied(entry) if entry.get().0 == tid => {
                entry.remove();
                true
            }
            _ => false,
        }
    }

    /// All entries, ascending by block.
    pub fn sorted(&self) -> Vec<CommittedBlock> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.read().iter().map(|(block, (tid, bytes))| CommittedBlock {
                block: *block,
                tid: *tid,
                bytes: Arc::clone(bytes),
            }));
        }
        all.sort_unstable_by_key(|copy| copy.block);
        all
    }
}
