//! The cache of groups' bitmaps and buddies.
//!
//! Reading a bitmap evicts others until the cache is within its limit; so does the end of a commit. A group's bitmaps are
//! evicted if the group was not used since the clock hand last passed it (second chance), no transaction under way has
//! changed it, and its buddy knows nothing that the disk does not: no block of it is allocated and unmarked, preallocated, or
//! freed and not committed. If no group qualifies, the cache exceeds its limit.
//!
//! An evicted bitmap is read again as the last transaction left it. A reader does not hold the group's lock during I/O: it
//! compares the group's count of evictions before and after, and reads again if another thread read, changed and evicted the
//! bitmap meanwhile.
//!
//! Finding bitmaps in memory writes nothing here: it sets the reference bit under the group's own lock.
//!
//! Locks: a group's (`GROUP`), tried only. Tests: `tests/alloc/bitmap_cache.rs`.

mod evict;
pub(crate) mod expectation;
mod load;

use std::ops::Deref;

use extant_ondisk::{
    Cluster, Geometry, GroupDescriptor, GroupFlags, GroupNumber, InodeNumber, TransactionId, bitmap,
};
use extant_rt::{AtomicU64, Ordering, Padded};

use self::evict::LoadedBitmaps;
use self::expectation::Expectation;
use crate::bitmap64::FreeExtent;
use crate::group::{Bitmap, BlockBits, ClusterRun, Group, GroupState, InodeBits, State};
use crate::group_table::GroupTable;
use crate::{Error, Result};

/// The groups with their bitmaps, which are read when they are first needed. See the module.
pub struct BitmapCache {
    pub(crate) table: GroupTable,
    /// The groups whose bitmaps are in memory.
    loaded: LoadedBitmaps,
    /// What the bitmaps read so far say of those not read.
    pub(crate) expectation: Expectation,
    /// The last transaction known to be durable, with bit 32 once there is one.
    committed: Padded<AtomicU64>,
}

impl Deref for BitmapCache {
    type Target = GroupTable;

    #[inline]
    fn deref(&self) -> &GroupTable {
        &self.table
    }
}

impl BitmapCache {
    /// Of no group; room for so many bytes of bitmaps and buddies beside those in use.
    pub(crate) fn new(table: GroupTable, bitmap_bytes_max: u64) -> Self {
        let bitmaps_max = bitmap_bytes_max / u64::from(table.geometry.block_size.max(1));
        Self {
            loaded: LoadedBitmaps::new(table.geometry.group_count, bitmaps_max),
            expectation: Expectation::new(),
            committed: Padded(AtomicU64::new(0)),
            table,
        }
    }

    /// Has room for the new groups of a disk. To be called by one thread at a time.
    pub(crate) fn extend(&self, geometry: &Geometry, descriptors: &[GroupDescriptor]) {
        self.loaded.extend(geometry.group_count);
        self.table.extend(geometry, descriptors);
    }

    /// What `tid` and the transactions before it wrote is found by who reads it.
    pub(crate) fn set_durable(&self, tid: TransactionId) {
        // Release, with the acquire of `durable`.
        self.committed.store(1 << u32::BITS | u64::from(tid.0), Ordering::Release);
    }

    /// The last transaction known to be durable: what it wrote is found by who reads.
    pub(crate) fn durable(&self) -> Option<TransactionId> {
        // Acquire, with the release of `committed`: what is durable is seen.
        let committed = self.committed.load(Ordering::Acquire);
        (committed >> u32::BITS != 0).then_some(TransactionId(committed as u32))
    }

    /// Whether none of the blocks is in use, as the running transaction says. `false` for blocks outside the disk.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if a bitmap cannot be had.
    pub fn is_free(&self, run: ClusterRun) -> Result<bool> {
        self.each_piece(run, |group, gap| self.with_block_bits(group, |_, bits| Ok(bits.is_free(gap))))
    }

    /// Whether all of the blocks are in use, as the running transaction says. `false` for blocks outside the disk.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if a bitmap cannot be had.
    pub fn is_used(&self, run: ClusterRun) -> Result<bool> {
        self.each_piece(run, |group, gap| self.with_block_bits(group, |_, bits| Ok(bits.is_used(gap))))
    }

    /// Whether the inode is in use, as the running transaction says. `false` if there is no such inode.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if a bitmap cannot be had.
    pub fn is_inode_allocated(&self, inode: InodeNumber) -> Result<bool> {
        let Some((group, bit)) = self.geometry.inode_location(inode) else { return Ok(false) };
        self.with_inode_bits(group, |_, _, bits| Ok(bitmap::is_set(&bits.disk, bit)))
    }

    /// The runs of blocks of a group that can be given out, in order.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if its bitmap cannot be had.
    pub fn free_runs(&self, group: GroupNumber) -> Result<Vec<ClusterRun>> {
        let first = self.geometry.group_first_cluster(group).0;
        let run = |gap: FreeExtent| ClusterRun { start: Cluster(first + u64::from(gap.start)), len: gap.len };
        self.with_block_bits(group, |_, bits| Ok(bits.buddy.runs().map(run).collect()))
    }

    /// Loads what [`GroupChanges::mark_free`](crate::GroupChanges::mark_free) needs of the groups of a run: in the middle of an
    /// update, a bitmap that cannot be read would leave it half done. It stays for as long as a bitmap that was just used.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if bitmaps or descriptors cannot be had.
    pub fn prepare_free(&self, run: ClusterRun) -> Result<()> {
        for (number, _) in self.pieces(run).ok_or_else(Error::outside)? {
            self.older.touch_group_lookup();
            self.with_block_bits(number, |_, _| Ok(()))?;
        }
        Ok(())
    }

    /// Loads what [`InodeAllocator::free_inode`](crate::InodeAllocator::free_inode) needs of an inode's group, as
    /// [`BitmapCache::prepare_free`] does for blocks.
    ///
    /// # Errors
    /// `Corrupt` if it is outside the disk; `Store` and `Corrupt` if the bitmap cannot be had.
    pub fn prepare_free_inode(&self, inode: InodeNumber) -> Result<()> {
        let (number, _) = self
            .geometry
            .inode_location(inode)
            .ok_or(Error::Corrupt { group: GroupNumber(0), what: "inode outside the disk freed" })?;
        self.with_inode_bits(number, |_, _, _| Ok(()))
    }

    /// Refuses a group in which an inode is in use that the descriptor says was never used.
    ///
    /// # Errors
    /// `Corrupt` then; `Store` if the bitmap cannot be read.
    pub fn check_unused_inodes(&self, number: GroupNumber) -> Result<()> {
        if self.descriptor(number)?.flags().contains(GroupFlags::INODE_UNINIT) {
            return Ok(());
        }
        let all = self.geometry.inodes_per_group;
        self.with_inode_bits(number, |_, record, bits| {
            let unused = all.saturating_sub(record.descriptor.itable_unused())..all;
            match bitmap::find_one(&bits.disk, unused) {
                Some(_) => Err(Error::Corrupt { group: number, what: "unused inode in use" }),
                None => Ok(()),
            }
        })
    }

    /// Calls `act` with the group's lock held and its block bitmaps loaded.
    pub(crate) fn with_block_bits<T>(
        &self,
        number: GroupNumber,
        act: impl FnOnce(&mut GroupState, &mut BlockBits) -> Result<T>,
    ) -> Result<T> {
        let group = self.group(number)?;
        let mut state = self.lock(number, group);
        while matches!(state.blocks, Bitmap::Unread) {
            state = self.read_blocks(number, group, state)?;
        }
        state.is_referenced = true;
        let State { record, blocks, .. } = &mut *state;
        match blocks {
            Bitmap::Loaded(bits) => act(record, bits),
            Bitmap::Bad(contradiction) => Err(Error::unusable(number, *contradiction)),
            Bitmap::Unread => Err(Error::unusable(number, None)),
        }
    }

    /// Calls `act` with the group's lock held and its inode bitmap loaded.
    pub(crate) fn with_inode_bits<T>(
        &self,
        number: GroupNumber,
        act: impl FnOnce(&Group, &mut GroupState, &mut InodeBits) -> Result<T>,
    ) -> Result<T> {
        let group = self.group(number)?;
        let mut state = self.lock(number, group);
        while matches!(state.inodes, Bitmap::Unread) {
            state = self.read_inodes(number, group, state)?;
        }
        state.is_referenced = true;
        let State { record, inodes, .. } = &mut *state;
        match inodes {
            Bitmap::Loaded(bits) => act(group, record, bits),
            Bitmap::Bad(contradiction) => Err(Error::unusable(number, *contradiction)),
            Bitmap::Unread => Err(Error::unusable(number, None)),
        }
    }
}
