//! Revoke records of the running transaction.
//!
//! A freed metadata block may be allocated again for file content. A copy of it that is still in the log would
//! then overwrite that content at recovery, so the freeing transaction says that older copies are void. A block
//! that the same transaction logs again is not revoked: its copy is newer than the freeing. The freeze takes its record out.
//!
//! Each thread has a shard of the records, so that threads which free blocks do not meet; a shard takes its part of the transaction's share
//! by portions.
//!
//! Locks: `JOURNAL` key 2, alone.
//!
//! Source: `fs/jbd2/revoke.c`. Checked by `tests/crash.rs`.

use std::collections::BTreeSet;

use extant_ondisk::FsBlock;
use extant_rt::{AtomicUsize, LockClass, Mutex, Ordering, Padded, SHARDS, thread_slot};

/// Records of a portion at most.
const PORTION_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Revoked {
    shards: Box<[Padded<Mutex<Shard>>]>,
    /// Records that the shards have or may take.
    granted: AtomicUsize,
    /// Of a transaction.
    records_max: usize,
}

#[derive(Debug, Default)]
struct Shard {
    blocks: BTreeSet<FsBlock>,
    /// So many more without another portion.
    room: usize,
}

impl Revoked {
    pub fn new(records_max: usize) -> Self {
        let shard = || Padded(Mutex::with_key(LockClass::JOURNAL, 2, Shard::default()));
        let shards = (0..SHARDS).map(|_| shard()).collect();
        Self { shards, granted: AtomicUsize::new(0), records_max }
    }

    /// Adds a record; whether the transaction's share is used up.
    pub fn insert(&self, block: FsBlock) -> bool {
        let mut shard = self.shards[thread_slot() % SHARDS].lock();
        if !shard.blocks.insert(block) {
            return false;
        }
        if let Some(left) = shard.room.checked_sub(1) {
            shard.room = left;
            return false;
        }
        // Should each shard have room in vain, three quarters are in use.
        let portion = (self.records_max / (4 * SHARDS)).clamp(1, PORTION_MAX);
        shard.room = portion - 1;
        self.granted.fetch_add(portion, Ordering::Relaxed) + portion >= self.records_max
    }

    /// All records; there are none afterwards. No handle is open.
    pub fn take(&self) -> BTreeSet<FsBlock> {
        let mut blocks = BTreeSet::new();
        if self.granted.swap(0, Ordering::Relaxed) > 0 {
            for shard in &self.shards {
                blocks.append(&mut std::mem::take(&mut *shard.lock()).blocks);
            }
        }
        blocks
    }
}
