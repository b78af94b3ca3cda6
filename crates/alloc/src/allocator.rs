//! The allocator's public face, over its layers.
//!
//! Locks: those of the layers.

use std::ops::Deref;

use extant_ondisk::{Geometry, TransactionId};

use crate::bitmap_cache::BitmapCache;
use crate::group_changes::{AllocatorSnapshot, GroupChanges};
use crate::group_table::GroupTable;
use crate::ialloc::InodeAllocator;
use crate::mballoc::Mballoc;
use crate::prealloc::Preallocator;
use crate::setup::{GroupStore, Setup};

/// Which blocks and which inode. Its methods are those of its layers, from [`InodeAllocator`] down to [`GroupTable`]. See the module
/// and ARCHITECTURE.md, "Free blocks".
pub struct Allocator {
    pub(crate) inodes: InodeAllocator,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator")
            .field("groups", &self.geometry.group_count)
            .field("counters", &self.counters)
            .finish()
    }
}

impl Deref for Allocator {
    type Target = InodeAllocator;

    #[inline]
    fn deref(&self) -> &InodeAllocator {
        &self.inodes
    }
}

impl Allocator {
    /// An allocator over the groups of a disk. Reads nothing.
    #[must_use]
    pub fn new(geometry: Geometry, setup: &Setup, store: Box<dyn GroupStore>) -> Self {
        let table = GroupTable::new(geometry, setup, store);
        let changes = GroupChanges::new(BitmapCache::new(table, setup.bitmap_bytes_max));
        Self { inodes: InodeAllocator::new(Preallocator::new(Mballoc::new(changes))) }
    }

    /// Ends the changes of `tid`; later ones belong to the next transaction. Copies no bitmap: a bitmap is copied
    /// on its first change afterwards.
    ///
    /// To be called with no handle open, so that nobody marks, allocates or frees meanwhile; taking and giving
    /// back goes on.
    ///
    /// # Locks
    /// Takes the changed groups', one after the other.
    pub fn freeze(&self, tid: TransactionId) -> AllocatorSnapshot {
        let snapshot = self.freeze_groups(tid);
        self.renew_averages();
        snapshot
    }
}
