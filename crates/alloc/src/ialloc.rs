//! Allocating and freeing inodes.
//!
//! Leaves out: in which group ([`find_group`]); the inodes' contents (the caller's).
//!
//! A free bit is found and set in one hold of the group's lock, and the descriptor changes in the same hold, so creators
//! never race for one bit and each takes the lock once (post C). Groups without a free inode are not looked at.
//!
//! Locks: the group's (`GROUP`), once.
//!
//! Source: kernel `__ext4_new_inode`, `find_inode_bit`, `ext4_free_inode`. Tests: `tests/alloc/inodes.rs`.

mod find_group;

use std::ops::Deref;

use extant_ondisk::{GroupFlags, GroupNumber, InodeNumber, TransactionId, bitmap};

use self::find_group::Averages;
pub use self::find_group::{LastGroup, Parent};
use crate::group::{Group, GroupState, InodeBits};
use crate::linux_model::OlderInodeSearch;
use crate::prealloc::Preallocator;
use crate::{Error, Result};

/// Walks through the groups for one inode, while there are groups that have any.
const PASSES_MAX: u32 = 16;

/// What an inode is to be, as far as its place goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeKind {
    /// A directory in the root, or in one marked as the top of trees.
    TopDirectory,
    /// Any other directory.
    Directory,
    /// Anything else.
    Other,
}

impl InodeKind {
    fn is_directory(self) -> bool {
        self != Self::Other
    }
}

/// An inode that was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewInode {
    /// Which.
    pub number: InodeNumber,
    /// Counts the inodes given out in its group since mounting.
    pub turn: u32,
    /// Blocks that the transaction did not have to write before.
    pub written: u32,
}

/// The blocks' layers with what the choice of a group for an inode goes by. See the module.
pub struct InodeAllocator {
    pub(crate) preallocator: Preallocator,
    averages: Averages,
    pub(crate) older_inode_search: OlderInodeSearch,
}

impl Deref for InodeAllocator {
    type Target = Preallocator;

    #[inline]
    fn deref(&self) -> &Preallocator {
        &self.preallocator
    }
}

impl InodeAllocator {
    /// With the averages of the counts at mount.
    pub(crate) fn new(preallocator: Preallocator) -> Self {
        let groups = preallocator.geometry.group_count;
        let allocator = Self {
            averages: Averages::new(),
            older_inode_search: OlderInodeSearch::new(preallocator.tuning(), groups),
            preallocator,
        };
        allocator.renew_averages();
        allocator
    }

    /// Allocates an inode in the running transaction `tid`, in a group that its kind and its parent call for.
    ///
    /// Lowers `itable_unused` to what lies behind the inode. Reserved inodes are never given out.
    ///
    /// # Errors
    /// `NoInodes` if no group has one. Groups with bad bitmaps are skipped.
    ///
    /// # Locks
    /// Takes the group's, once; may read its bitmap before.
    pub fn allocate_inode<'a>(
        &self,
        tid: TransactionId,
        parent: impl Into<Parent<'a>>,
        kind: InodeKind,
    ) -> Result<NewInode> {
        let parent = parent.into();
        let allocate = |group| {
            // Of a group whose descriptor was not read, nothing is known: it is not touched to find it full.
            if self.counts_of(group).free_inodes == 0 {
                return None;
            }
            self.allocate_inode_as_older(tid, group, kind)
                .unwrap_or_else(|| self.allocate_inode_in(tid, group, kind))
        };
        for _ in 0..PASSES_MAX {
            if let Some(made) = self.find_group(parent, kind, allocate) {
                return Ok(made);
            }
            // Others may have freed where this walk had passed, and taken where it came later.
            if self.with_inodes.next(GroupNumber(0)).is_none() {
                break;
            }
        }
        Err(Error::NoInodes)
    }

    /// Allocates this very inode in the running transaction `tid`: a fast commit names it. Gives how many blocks the transaction did not
    /// have to write before.
    ///
    /// # Errors
    /// `Corrupt` if it is in use, reserved or outside the disk; nothing has changed then. `Store` if the bitmap cannot be read.
    ///
    /// Source: kernel `ext4_mark_inode_used`.
    pub fn allocate_inode_at(&self, tid: TransactionId, inode: InodeNumber, kind: InodeKind) -> Result<u32> {
        let (number, bit) = self
            .geometry
            .inode_location(inode)
            .ok_or(Error::Corrupt { group: GroupNumber(0), what: "inode outside the disk allocated" })?;
        if bit < self.first_usable_bit(number) {
            return Err(Error::Corrupt { group: number, what: "reserved inode allocated" });
        }
        self.with_inode_bits(number, |group, record, bits| {
            if bitmap::is_set(&bits.disk, bit) {
                return Err(Error::Corrupt { group: number, what: "inode allocated twice" });
            }
            bits.set(bit);
            Ok(self.note_inode(tid, number, bit, kind, (group, record)).written)
        })
    }

    /// Frees an inode in the running transaction `tid`. It may be given out again at once, unless
    /// [`crate::Tuning::reuse_inodes`] says otherwise. Gives how many blocks the transaction did not have to write before.
    ///
    /// # Errors
    /// `Corrupt` if it is free, reserved or outside the disk; nothing has changed then. `Store` if the bitmap
    /// cannot be read.
    pub fn free_inode(&self, tid: TransactionId, inode: InodeNumber, kind: InodeKind) -> Result<u32> {
        let (number, bit) = self
            .geometry
            .inode_location(inode)
            .ok_or(Error::Corrupt { group: GroupNumber(0), what: "inode outside the disk freed" })?;
        if bit < self.first_usable_bit(number) {
            return Err(Error::Corrupt { group: number, what: "reserved inode freed" });
        }
        self.with_inode_bits(number, |group, record, bits| {
            if !bitmap::is_set(&bits.disk, bit) {
                return Err(Error::Corrupt { group: number, what: "free inode freed" });
            }
            if !self.tuning.reuse_inodes {
                bits.avoid_until_committed(tid);
            }
            bitmap::clear(bits.disk_mut(), bit);
            bits.first_free = bits.first_free.min(bit);
            self.older_inode_search.freed(number, bit, self.geometry.inodes_per_group);
            group.count_free_inodes(record, record.descriptor.free_inodes_count() + 1);
            if kind.is_directory() {
                group.count_directories(record, record.descriptor.used_dirs_count().saturating_sub(1));
                self.counters.directories.subtract(1);
            }
            let written = self.note_change(number, record.change_inodes(tid));
            self.with_inodes.insert(number);
            self.counters.free_inodes.add(1);
            Ok(written)
        })
    }

    /// Finds and sets a free bit of a group.
    fn allocate_inode_in(
        &self,
        tid: TransactionId,
        number: GroupNumber,
        kind: InodeKind,
    ) -> Option<NewInode> {
        let take = |group: &Group, record: &mut GroupState, bits: &mut InodeBits| {
            let Some(bit) = self.free_bit(bits) else {
                self.with_inodes.remove(number);
                return Ok(None);
            };
            bits.set(bit);
            Ok(Some(self.note_inode(tid, number, bit, kind, (group, record))))
        };
        self.with_inode_bits(number, take).ok().flatten()
    }

    /// A free bit, if there is one: rather not of an inode that was freed in a transaction that is not durable.
    fn free_bit(&self, bits: &mut InodeBits) -> Option<u32> {
        let end = self.geometry.inodes_per_group;
        let lowest = bitmap::find_zero(&bits.disk, bits.first_free..end)?;
        bits.first_free = lowest;
        // Relaxed: a stale number avoids inodes for longer.
        if let Some(durable) = self.durable() {
            bits.forget_avoided(durable);
        }
        let rather = bits.avoided.as_ref().and_then(|avoided| bitmap::find_zero(&avoided.used, lowest..end));
        rather.or(Some(lowest))
    }

    /// Notes in the descriptor and in the counts that a bit was set.
    pub(crate) fn note_inode(
        &self,
        tid: TransactionId,
        number: GroupNumber,
        bit: u32,
        kind: InodeKind,
        (group, record): (&Group, &mut GroupState),
    ) -> NewInode {
        let inodes_per_group = self.geometry.inodes_per_group;
        let behind = inodes_per_group - bit - 1;
        let unused = match record.descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
            true => behind,
            false => record.descriptor.itable_unused().min(behind),
        };
        record.descriptor.set_itable_unused(unused);
        let free = record.descriptor.free_inodes_count().saturating_sub(1);
        group.count_free_inodes(record, free);
        if kind.is_directory() {
            group.count_directories(record, record.descriptor.used_dirs_count() + 1);
            self.counters.directories.add(1);
        }
        record.inodes_made = record.inodes_made.wrapping_add(1);
        let written = self.note_change(number, record.change_inodes(tid));
        if free == 0 {
            self.with_inodes.remove(number);
        }
        self.counters.free_inodes.subtract(1);
        let number = InodeNumber(number.0 * inodes_per_group + bit + 1);
        NewInode { number, turn: record.inodes_made, written }
    }
}
