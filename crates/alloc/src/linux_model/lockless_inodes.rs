//! The kernel's searches for a free inode. A bit is found without the group's lock, and then tested and set under it: who
//! loses goes on from the next bit without the lock (before 4.14), finds one in a second hold and sets it (as posted for
//! 4.14), or finds it in the same hold (since). The descriptor changes in a further one.
//!
//! Source: `__ext4_new_inode` of Linux 4.13 and 4.14, and what the commit of the latter says of a second try.

use extant_ondisk::{GroupNumber, TransactionId, bitmap};
use extant_rt::AtomicU64;

use super::InodeSearch;
use super::inode_search::{LocklessInodeSearch, checksum};
use crate::ialloc::{InodeAllocator, InodeKind, NewInode};

impl InodeAllocator {
    /// An inode of a group, if it has one.
    pub(crate) fn allocate_inode_as_older(
        &self,
        tid: TransactionId,
        group: GroupNumber,
        kind: InodeKind,
    ) -> Option<Option<NewInode>> {
        let lockless = self.older_inode_search.0.as_ref()?;
        Some(self.allocate_inode_lockless(lockless, tid, group, kind))
    }

    fn allocate_inode_lockless(
        &self,
        lockless: &LocklessInodeSearch,
        tid: TransactionId,
        number: GroupNumber,
        kind: InodeKind,
    ) -> Option<NewInode> {
        let copy = lockless.groups.get(number.0 as usize)?;
        if copy.get().is_none() {
            let read = |disk: &[u8]| {
                let words = disk.chunks(8).map(|bytes| {
                    let mut eight = [0xff; 8];
                    eight[..bytes.len()].copy_from_slice(bytes);
                    AtomicU64::new(u64::from_le_bytes(eight))
                });
                words.collect()
            };
            self.with_inode_bits(number, |_, _, bits| {
                copy.get_or_init(|| read(&bits.disk));
                Ok(())
            })
            .ok()?;
        }
        let (mut from, end) = (self.first_usable_bit(number), self.geometry.inodes_per_group);
        let form = self.tuning.linux_model.inode_search;
        let mut in_hold = false;
        loop {
            let seen = if in_hold { None } else { Some(lockless.find(number, from, end)?) };
            let won = self.with_inode_bits(number, |_, _, bits| {
                let is_free = |bit: &u32| !bitmap::is_set(&bits.disk, *bit);
                let mut free = seen.filter(is_free);
                if free.is_none() && (in_hold || form == InodeSearch::Recheck) {
                    free = lockless.find(number, seen.unwrap_or(from), end).filter(is_free);
                }
                if let Some(bit) = free {
                    bits.set(bit);
                    lockless.set(number, bit);
                }
                Ok(free)
            });
            if let Some(bit) = won.ok()? {
                let note = |group: &_, record: &mut _, _: &mut _| {
                    checksum(end);
                    Ok(self.note_inode(tid, number, bit, kind, (group, record)))
                };
                return self.with_inode_bits(number, note).ok();
            }
            from = seen.filter(|_| form != InodeSearch::Recheck)? + 1;
            in_hold = form == InodeSearch::Locked;
        }
    }
}
