//! The pages of an inode, and what its on-disk inode does not have yet.
//!
//! Leaves out: reading, writing and writeback ([`crate::page_cache`]).

use extant_ondisk::Timestamp;
use extant_rt::Arc;

use crate::incore::budget::Budget;
use crate::incore::folios::Folios;
use crate::incore::usage::Taken;

/// The window of the second read in a row.
const WINDOW_BYTES_MIN: u64 = 16 << 10;

/// Delayed-allocation state: the size, the time of the last write and the block count that are not yet in the on-disk inode.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DelallocState {
    /// The file ends here, if its inode does not say that it ends later.
    pub(crate) end: u64,
    /// Blocks without a place.
    pub(crate) delayed: u64,
    /// When it was last written.
    pub(crate) time: Option<Timestamp>,
}

/// The pages of an inode, under `PAGES`.
#[derive(Debug, Default)]
pub(crate) struct InodePages {
    /// None until the first.
    pub(crate) folios: Option<Folios>,
    /// A thread writes into them, and relies on which there are.
    pub(crate) is_changed: bool,
    /// A thread writes them back.
    pub(crate) is_flushed: bool,
    /// Blocks that are reserved for those delayed and their tree.
    pub(crate) kept: u64,
    /// What is taken of the limits of its ids for those delayed.
    pub(crate) quota: Taken,
    pub(crate) is_queued: bool,
    /// The bytes reported: bytes of folios to the budget, and dirty ones to the contexts.
    pub(crate) accounted: (u64, u64),
    pub(crate) read_ahead: ReadAhead,
    /// The budget of the memory that they take.
    pub(crate) memory: Option<Arc<Budget>>,
}

impl InodePages {
    /// Reports to the budget what changed, if no dirty bytes did.
    pub(crate) fn account_memory(&mut self, memory: &Budget) {
        let now = self.folios.as_ref().map_or(0, Folios::bytes);
        let before = std::mem::replace(&mut self.accounted.0, now);
        match now.checked_sub(before) {
            Some(0) => {}
            Some(more) => memory.take(more),
            None => memory.give_back(before - now),
        }
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.folios.as_ref().map_or(0, Folios::dirty_bytes)
    }
}

impl Drop for InodePages {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.folios = None;
            self.account_memory(&memory);
        }
    }
}

/// Where the last read that missed ended, and how much to read at least if the next one that misses goes on there.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// The block behind what was read.
    next: u32,
    window_bytes: u64,
}

impl ReadAhead {
    /// Bytes to read at least from a block on that is not in memory, `bytes_max` at most.
    pub(crate) fn window(&mut self, block: u32, bytes_max: u64) -> u64 {
        self.window_bytes = match block == self.next && block > 0 {
            true => (2 * self.window_bytes).clamp(WINDOW_BYTES_MIN, bytes_max.max(WINDOW_BYTES_MIN)),
            false => 0,
        };
        self.window_bytes
    }

    /// Notes that blocks up to `next` were read.
    pub(crate) fn read_to(&mut self, next: u32) {
        self.next = next;
    }
}
