//! Allocating and freeing inodes.
//!
//! Leaves out: Orlov's statistics; directories go where there is room, from their parent's flex group on. The
//! inodes' contents are the caller's.
//!
//! A free bit is found and set in one hold of the group's lock, so creators never race for one bit (kernel
//! `find_inode_bit`, post C).

use extant_ondisk::{GroupFlags, GroupNumber, InodeNumber, TransactionId, bitmap};
use extant_rt::Ordering;

use crate::group::{Group, InodeBits, Summary};
use crate::{Allocator, Error, Result};

/// What an inode is to be, as far as its place goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeKind {
    /// A directory: spread, and counted in its group.
    Directory,
    /// Anything else: near its directory.
    Other,
}

impl Allocator {
    /// Allocates an inode in the running transaction `tid`: in the parent's group or the next ones to the right
    /// and round; a directory from the start of its parent's flex group on, where there are free blocks too.
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
    ) -> Result<(InodeNumber, u32)> {
        let parent = if parent.0 < self.geometry.group_count { parent } else { GroupNumber(0) };
        let roomy = match kind {
            InodeKind::Directory => {
                let flex_start = parent.0 - parent.0 % self.geometry.groups_per_flex.max(1);
                let has_blocks = |group: &GroupNumber| {
                    self.groups.get(group.0 as usize).is_some_and(|group| group.hint().free > 0)
                };
                self.with_inodes
                    .walk(GroupNumber(flex_start))
                    .filter(has_blocks)
                    .find_map(|group| self.allocate_inode_in(tid, group, kind))
            }
            InodeKind::Other => None,
        };
        roomy
            .or_else(|| {
                self.with_inodes.walk(parent).find_map(|group| self.allocate_inode_in(tid, group, kind))
            })
            .ok_or(Error::NoInodes)
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
        self.with_inode_bits(number, |_, summary, bits| {
            if !bitmap::is_set(&bits.disk, bit) {
                return Err(Error::Corrupt { group: number, what: "free inode freed" });
            }
            bitmap::clear(bits.disk_mut(), bit);
            bits.first_free = bits.first_free.min(bit);
            let free = summary.descriptor.free_inodes_count() + 1;
            summary.descriptor.set_free_inodes_count(free);
            if kind == InodeKind::Directory {
                let directories = summary.descriptor.used_dirs_count();
                summary.descriptor.set_used_dirs_count(directories.saturating_sub(1));
            }
            let written = summary.change_inodes(tid);
            self.with_inodes.insert(number);
            self.changed.insert(number);
            self.counters.free_inodes.fetch_add(1, Ordering::Relaxed);
            Ok(written)
        })
    }

    fn allocate_inode_in(
        &self,
        tid: TransactionId,
        number: GroupNumber,
        kind: InodeKind,
    ) -> Option<(InodeNumber, u32)> {
        let inodes_per_group = self.geometry.inodes_per_group;
        let take = |_: &Group, summary: &mut Summary, bits: &mut InodeBits| {
            let Some(bit) = bitmap::find_zero(&bits.disk, bits.first_free..inodes_per_group) else {
                self.with_inodes.remove(number);
                return Ok(None);
            };
            bitmap::set(bits.disk_mut(), bit);
            bits.first_free = bit + 1;
            let behind = inodes_per_group - bit - 1;
            let unused = match summary.descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
                true => behind,
                false => summary.descriptor.itable_unused().min(behind),
            };
            summary.descriptor.set_itable_unused(unused);
            let free = summary.descriptor.free_inodes_count().saturating_sub(1);
            summary.descriptor.set_free_inodes_count(free);
            if kind == InodeKind::Directory {
                summary.descriptor.set_used_dirs_count(summary.descriptor.used_dirs_count() + 1);
            }
            let written = summary.change_inodes(tid);
            if free == 0 {
                self.with_inodes.remove(number);
            }
            self.changed.insert(number);
            self.counters.free_inodes.fetch_sub(1, Ordering::Relaxed);
            Ok(Some((bit, written)))
        };
        let (bit, written) = self.with_inode_bits(number, take).ok().flatten()?;
        Some((InodeNumber(number.0 * inodes_per_group + bit + 1), written))
    }
}
