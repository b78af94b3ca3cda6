//! The inodes that have preallocations, so that whoever needs their blocks finds them.
//!
//! Locks: `PREALLOCATING`, one per shard; inodes near each other share one, so that directories apart do not.

use std::collections::BTreeMap;

use extant_ondisk::InodeNumber;
use extant_rt::{Arc, LockClass, Mutex, Padded, SHARDS, shard_of};

use super::Preallocations;

type Shard = Mutex<BTreeMap<InodeNumber, Arc<Preallocations>>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Owners {
    shards: Box<[Padded<Shard>]>,
}

impl Owners {
    pub fn new() -> Self {
        let shard = |_| Padded(Mutex::new(LockClass::PREALLOCATING, BTreeMap::new()));
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    fn shard(&self, inode: InodeNumber) -> &Shard {
        &self.shards[shard_of(u64::from(inode.0), SHARDS)].0
    }

    pub fn insert(&self, owner: Arc<Preallocations>) {
        self.shard(owner.inode).lock().insert(owner.inode, owner);
    }

    pub fn remove(&self, inode: InodeNumber) {
        self.shard(inode).lock().remove(&inode);
    }

    /// All of them, shard by shard; no lock is held meanwhile.
    pub fn iter(&self) -> impl Iterator<Item = Arc<Preallocations>> {
        self.shards.iter().flat_map(|shard| {
            let owners: Vec<_> = shard.lock().values().cloned().collect();
            owners
        })
    }
}
