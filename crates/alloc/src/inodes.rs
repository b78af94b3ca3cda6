//! Allocating and freeing inodes.
//!
//! Directories at the top are spread over the disk, so that the trees below them have room and their writers do not
//! meet; other directories go where there is room, from the start of their parent's flex group on; files go to their
//! directory's group (kernel `find_group_orlov`, `find_group_other`). The inodes' contents are the caller's.
//!
//! A free bit is found and set in one hold of the group's lock, so creators never race for one bit (kernel
//! `find_inode_bit`, post C).

use extant_ondisk::{GroupFlags, GroupNumber, InodeNumber, TransactionId, bitmap};

use crate::group::{Group, InodeBits, Record};
use crate::{Allocator, Error, Result};

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

/// Groups that are looked at for a directory at the top.
const TOP_GROUPS_MAX: u32 = 64;

impl Allocator {
    /// Allocates an inode in the running transaction `tid`, in the group that its kind calls for, or the next ones to
    /// the right and round; for directories first where there are free blocks too.
    ///
    /// Lowers `itable_unused` to what lies behind the inode. Reserved inodes are never given out.
    ///
    /// # Errors
    /// `NoInodes` if no group has one. Groups with bad bitmaps are skipped.
    pub fn allocate_inode(
        &self,
        tid: TransactionId,
        parent: GroupNumber,
        kind: InodeKind,
    ) -> Result<NewInode> {
        let parent = if parent.0 < self.geometry.group_count { parent } else { GroupNumber(0) };
        let start = match kind {
            InodeKind::TopDirectory if self.tuning.spread_directories => self.group_of_top(),
            InodeKind::TopDirectory | InodeKind::Directory => {
                GroupNumber(parent.0 - parent.0 % self.geometry.groups_per_flex.max(1))
            }
            InodeKind::Other => parent,
        };
        let has_blocks = |group: &GroupNumber| self.free_in(*group) > 0;
        let allocate = |group| self.allocate_inode_in(tid, group, kind);
        let roomy = match kind.is_directory() {
            true => self.with_inodes.walk(start).filter(has_blocks).find_map(allocate),
            false => None,
        };
        roomy.or_else(|| self.with_inodes.walk(start).find_map(allocate)).ok_or(Error::NoInodes)
    }

    /// Of groups evenly over the disk, the one with the fewest directories that has its share of the free blocks; of
    /// equals, the one farthest from those before it: the first, the middle, the quarters, and so on.
    fn group_of_top(&self) -> GroupNumber {
        let groups = self.geometry.group_count;
        let share = self.free_blocks() / u64::from(groups.max(1));
        let candidates = groups.min(TOP_GROUPS_MAX);
        let bits = candidates.next_power_of_two().ilog2();
        (0..1 << bits)
            .map(|index: u32| index.reverse_bits().checked_shr(u32::BITS - bits).unwrap_or(0))
            .filter(|place| *place < candidates)
            .map(|place| (u64::from(place) * u64::from(groups) / u64::from(candidates)) as u32)
            .map(GroupNumber)
            .filter(|group| u64::from(self.free_in(*group)) >= share)
            .min_by_key(|group| self.groups[group.0 as usize].directories())
            .unwrap_or(GroupNumber(0))
    }

    fn free_in(&self, group: GroupNumber) -> u32 {
        self.groups.get(group.0 as usize).map_or(0, |group| group.summary().free)
    }

    /// Frees an inode in the running transaction `tid`. It may be given out again at once. Gives how many blocks
    /// the transaction did not have to write before.
    ///
    /// # Errors
    /// `Corrupt` if it is free, reserved or outside the disk; nothing has changed then. `Store` if the bitmap
    /// cannot be read.
    pub fn free_inode(&self, tid: TransactionId, inode: InodeNumber, kind: InodeKind) -> Result<u32> {
        let (number, bit) = self
            .geometry
            .inode_place(inode)
            .ok_or(Error::Corrupt { group: GroupNumber(0), what: "inode outside the disk freed" })?;
        if bit < self.first_usable_bit(number) {
            return Err(Error::Corrupt { group: number, what: "reserved inode freed" });
        }
        self.with_inode_bits(number, |group, record, bits| {
            if !bitmap::is_set(&bits.disk, bit) {
                return Err(Error::Corrupt { group: number, what: "free inode freed" });
            }
            bitmap::clear(bits.disk_mut(), bit);
            bits.first_free = bits.first_free.min(bit);
            let free = record.descriptor.free_inodes_count() + 1;
            record.descriptor.set_free_inodes_count(free);
            if kind.is_directory() {
                group.count_directories(record, record.descriptor.used_dirs_count().saturating_sub(1));
            }
            let written = record.change_inodes(tid);
            self.with_inodes.insert(number);
            self.changed.insert(number);
            self.counters.free_inodes.add(number, 1);
            Ok(written)
        })
    }

    fn allocate_inode_in(
        &self,
        tid: TransactionId,
        number: GroupNumber,
        kind: InodeKind,
    ) -> Option<NewInode> {
        let inodes_per_group = self.geometry.inodes_per_group;
        let take = |group: &Group, record: &mut Record, bits: &mut InodeBits| {
            let Some(bit) = bitmap::find_zero(&bits.disk, bits.first_free..inodes_per_group) else {
                self.with_inodes.remove(number);
                return Ok(None);
            };
            bitmap::set(bits.disk_mut(), bit);
            bits.first_free = bit + 1;
            let behind = inodes_per_group - bit - 1;
            let unused = match record.descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
                true => behind,
                false => record.descriptor.itable_unused().min(behind),
            };
            record.descriptor.set_itable_unused(unused);
            let free = record.descriptor.free_inodes_count().saturating_sub(1);
            record.descriptor.set_free_inodes_count(free);
            if kind.is_directory() {
                group.count_directories(record, record.descriptor.used_dirs_count() + 1);
            }
            record.inodes_made = record.inodes_made.wrapping_add(1);
            let written = record.change_inodes(tid);
            if free == 0 {
                self.with_inodes.remove(number);
            }
            self.changed.insert(number);
            self.counters.free_inodes.subtract(number, 1);
            let number = InodeNumber(number.0 * inodes_per_group + bit + 1);
            Ok(Some(NewInode { number, turn: record.inodes_made, written }))
        };
        self.with_inode_bits(number, take).ok().flatten()
    }
}
