//! What the kernel's older searches for a free inode read without the group's lock ([`super::lockless_inodes`] searches).

use extant_ondisk::GroupNumber;
use extant_rt::{AtomicU64, OnceLock, Ordering, checksummed};

use super::InodeSearch;
use crate::tuning::Tuning;

/// Set if an older search is chosen.
#[derive(Debug)]
pub(crate) struct OlderInodeSearch(pub(super) Option<LocklessInodeSearch>);

/// Copies of the inode bitmaps that searches read without a lock; each changes under its group's.
#[derive(Debug)]
pub(super) struct LocklessInodeSearch {
    pub(super) groups: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl LocklessInodeSearch {
    fn new(groups: u32) -> Self {
        Self { groups: (0..groups).map(|_| OnceLock::new()).collect() }
    }

    fn word(&self, group: GroupNumber, bit: u32) -> Option<&AtomicU64> {
        self.groups.get(group.0 as usize)?.get()?.get((bit / 64) as usize)
    }

    /// The first clear bit in `from..end`.
    pub fn find(&self, group: GroupNumber, mut from: u32, end: u32) -> Option<u32> {
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
    pub fn set(&self, group: GroupNumber, bit: u32) {
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
}

/// Stands for the sums of the bitmap and the descriptor, which the kernel makes in the hold that changes them and the engine
/// when it commits.
pub(super) fn checksum(inodes_per_group: u32) {
    checksummed((inodes_per_group / 8) as usize);
}
