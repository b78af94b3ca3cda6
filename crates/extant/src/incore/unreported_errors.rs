//! Writeback errors of inodes that were evicted before any open file reported them.
//!
//! The numbers of such inodes stay in memory, and the error is recorded again when the inode is read, which Linux does not.
//!
//! Locks: `CACHE` with key 4 over a change of the numbers and of the error that it belongs to.
//!
//! Tests: `tests/writeback_errors.rs`.

use std::collections::BTreeSet;

use extant_ondisk::InodeNumber;
use extant_rt::{AtomicBool, LockClass, Mutex, Ordering};

use crate::incore::errseq::ErrorCursor;
use crate::incore::inode::Inode;

/// The inodes, by number and generation, with an error that no open file has reported.
#[derive(Debug)]
pub(crate) struct UnreportedErrors {
    inodes: Mutex<BTreeSet<(InodeNumber, u32)>>,
    /// Whether there ever was one, so that healthy disks take no lock.
    any: AtomicBool,
}

impl UnreportedErrors {
    pub(crate) fn new() -> Self {
        let inodes = Mutex::with_key(LockClass::CACHE, 4, BTreeSet::new());
        Self { inodes, any: AtomicBool::new(false) }
    }

    /// Records an error of an inode.
    pub(crate) fn record(&self, inode: &Inode) {
        let mut inodes = self.inodes.lock();
        inodes.insert((inode.number, inode.generation));
        self.any.store(true, Ordering::Relaxed);
        inode.writeback_error.record();
    }

    /// Records the error again that an inode had when it was evicted.
    pub(crate) fn restore(&self, inode: &Inode) {
        // Relaxed: the inode left the cache after its error was recorded, and is read after it left, each under the cache's lock.
        if self.any.load(Ordering::Relaxed) && self.inodes.lock().contains(&(inode.number, inode.generation))
        {
            inode.writeback_error.record();
        }
    }

    /// Whether an open file has an error of its inode to report. It has reported it afterwards.
    pub(crate) fn check_and_advance(&self, inode: &Inode, cursor: &ErrorCursor) -> bool {
        if !inode.writeback_error.check_and_advance(cursor) {
            return false;
        }
        let mut inodes = self.inodes.lock();
        if inode.writeback_error.is_seen() {
            inodes.remove(&(inode.number, inode.generation));
        }
        true
    }
}
