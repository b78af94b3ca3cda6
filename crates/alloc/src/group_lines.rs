//! What searches of Linux's allocator change of groups beside their locks: a cache line of each, so that the lab sees these lines
//! pass to and fro. Only for measurements, through [`crate::Tuning`].
//!
//! Source: kernel before 6.17, the first line of `struct ext4_group_info`, which has the group's state and what is free in it;
//! `ext4_mb_prefetch`, `ext4_mb_good_group`.

use extant_ondisk::GroupNumber;
use extant_rt::{AtomicU64, Ordering, Padded};

/// See the module; of no group unless the older form is used.
#[derive(Debug)]
pub(crate) struct GroupLines(Box<[Padded<AtomicU64>]>);

impl GroupLines {
    /// Of `groups` groups.
    pub fn new(groups: u32, is_used: bool) -> Self {
        Self((0..if is_used { groups } else { 0 }).map(|_| Padded::default()).collect())
    }

    /// A search begins here: the groups of the flex group from here on are marked as read.
    pub fn prefetch(&self, goal: GroupNumber, groups_per_flex: u32) {
        let (from, flex) = (goal.0 as usize, groups_per_flex.max(1) as usize);
        let groups = self.0.iter().take((from / flex + 1) * flex).skip(from);
        groups.for_each(|line| _ = line.fetch_or(1, Ordering::Relaxed));
    }

    /// What the group has is looked at.
    pub fn look(&self, group: GroupNumber) {
        if let Some(line) = self.0.get(group.0 as usize) {
            line.load(Ordering::Relaxed);
        }
    }

    /// What the group has, or had freed, changes.
    pub fn change(&self, group: GroupNumber) {
        if let Some(line) = self.0.get(group.0 as usize) {
            line.store(1, Ordering::Relaxed);
        }
    }
}
