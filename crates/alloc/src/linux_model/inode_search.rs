//! The kernel's searches for a free inode. A bit is found without the group's lock, and then tested and set under it: who
//! loses goes on from the next bit without the lock (before 4.14), finds one in a second hold and sets it (as posted for
//! 4.14), or finds it in the same hold (since). The descriptor changes in a further one.
//!
//! Source: `__ext4_new_inode` of Linux 4.13 and 4.14, and what the commit of the latter says of a second try.

use extant_ondisk::{GroupNumber, TransactionId, bitmap};
use extant_rt::{AtomicU64, OnceLock, Ordering, checksummed};

use super::InodeSearch;
use crate::Allocator;
use crate::ialloc::{InodeKind, NewInode};
use crate::tuning::Tuning;

/// Set if an older search is chosen.
#[derive(Debug)]
pub(crate) struct OlderInodeSearch(Option<LocklessInodeSearch>);

/// Copies of the inode bitmaps that searches read without a lock; each changes under its group's.
#[derive(Debug)]
struct LocklessInodeSearch {
    groups: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl LocklessInodeSearch {
    fn new(groups: u32) -> Self {
        Self { groups: (0..groups).map(|_| OnceLock::new()).collect() }
    }

    fn word(&self, group: GroupNumber, bit: u32) -> Option<&AtomicU64> {
        self.groups.get(group.0 as usize)?.get()?.get((bit / 64) as usize)
    }

    /// The first clear bit in `from..end`.
    fn find(&self, group: GroupNumber, mut from: u32, end: u32) -> Option<u32> {
        while from < end {
            let free = !self.word(group, from)?.load(Ordering::Relaxed) & (u64::MAX << (from % 64));
            let start = from - from % 64;
            if free != 0 {
                return Some(start + free.trailing_zeros()).filter(|bit| *bit < end);
            }
            from = start + 64;
        }
        None
    }

    /// Notes that a bit was set, with the group's lock held.
    fn set(&self, group: GroupNumber, bit: u32) {
        if let Some(word) = self.word(group, bit) {
            word.fetch_or(1 << (bit % 64), Ordering::Relaxed);
        }
    }

    /// Notes that a bit was cleared, with the group's lock held.
    fn clear(&self, group: GroupNumber, bit: u32) {
        if let Some(word) = self.word(group, bit) {
            word.fetch_and(!(1 << (bit % 64)), Ordering::Relaxed);
        }
    }
}

impl OlderInodeSearch {
    pub fn new(tuning: &Tuning, groups: u32) -> Self {
        let is_used = tuning.linux_model.inode_search != InodeSearch::Hold;
        Self(is_used.then(|| LocklessInodeSearch::new(groups)))
    }

    /// An inode was freed, with its group's lock held.
    pub fn freed(&self, group: GroupNumber, bit: u32, inodes_per_group: u32) {
        if let Some(lockless) = &self.0 {
            lockless.clear(group, bit);
            checksum(inodes_per_group);
        }
    }

    /// An inode of a group, if it has one.
    pub fn allocate(
        &self,
        alloc: &Allocator,
        tid: TransactionId,
        group: GroupNumber,
        kind: InodeKind,
    ) -> Option<Option<NewInode>> {
        let lockless = self.0.as_ref()?;
        Some(alloc.allocate_inode_lockless(lockless, tid, group, kind))
    }
}

/// Stands for the sums of the bitmap and the descriptor, which the kernel makes in the hold that changes them and the engine
/// when it commits.
fn checksum(inodes_per_group: u32) {
    checksummed((inodes_per_group / 8) as usize);
}

impl Allocator {
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
