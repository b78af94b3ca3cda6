//! Blocks of directories that a thread used last, so that it finds them again past the tables that all threads share.
//!
//! Invariant: a block found here is one that the directory has. Its blocks are forgotten when they are freed, by its deletion or because it
//! gets others ([`crate::defrag`]); a buffer that is kept here stays in the cache.
//!
//! Locks: `CACHE`, one per slot, over nothing. Tests: `tests/large_dirs.rs`, `tests/dcache.rs`.

use extant_ondisk::LogicalBlock;
use extant_rt::{Arc, LockClass, Mutex, Padded, SHARDS, thread_slot};

use crate::incore::buffer::{Buffer, Owner};
use crate::incore::inode::Inode;

/// Blocks for each slot of threads: so many stay in memory whatever the cache's size.
const KEPT: usize = 16;

#[derive(Debug)]
struct Block {
    dir: Owner,
    logical: LogicalBlock,
    buffer: Arc<Buffer>,
}

type Slot = Mutex<[Option<Block>; KEPT]>;

/// See the module.
#[derive(Debug)]
pub(crate) struct RecentDirectoryBlocks(Vec<Padded<Slot>>);

impl RecentDirectoryBlocks {
    pub(crate) fn new() -> Self {
        let slot = |_| Padded(Mutex::new(LockClass::CACHE, Default::default()));
        Self((0..SHARDS).map(slot).collect())
    }

    fn slot(&self) -> &Slot {
        &self.0[thread_slot() % SHARDS]
    }

    /// A block of a directory; it may be forgotten.
    pub(super) fn get(&self, dir: &Inode, logical: LogicalBlock) -> Option<Arc<Buffer>> {
        let slot = self.slot().lock();
        let is_it = |block: &&Block| block.dir == dir.owner() && block.logical == logical;
        slot[place(dir, logical)].as_ref().filter(is_it).map(|block| block.buffer.clone())
    }

    /// Keeps a block of a directory, in place of another.
    pub(super) fn keep(&self, dir: &Inode, logical: LogicalBlock, buffer: &Arc<Buffer>) {
        let block = Block { dir: dir.owner(), logical, buffer: buffer.clone() };
        let old = self.slot().lock()[place(dir, logical)].replace(block);
        // Without the lock: it may be the last to hold a large block.
        drop(old);
    }
}

fn place(dir: &Inode, logical: LogicalBlock) -> usize {
    dir.number.0.wrapping_add(logical.0) as usize % KEPT
}
