//! The cache lines that searches of Linux's allocator read and change beside groups' locks, so that the lab sees them pass to and fro:
//! one of each group, and that of the disk's lock ([`crate::linux_model::md_lock::MdLock::touch`]). Only for measurements, through [`crate::Tuning`].
//!
//! Source: kernel before 6.17, the first line of `struct ext4_group_info`, which has the group's state and what is free in it;
//! `ext4_mb_prefetch`, `ext4_mb_prefetch_fini`, `ext4_mb_good_group`, `ext4_get_group_info`, `mb_find_buddy`.

use extant_ondisk::GroupNumber;
use extant_rt::{AtomicU64, Ordering, Padded};

use crate::Allocator;

/// Of each group the line that has what is free in it; of no group unless the older form is used.
#[derive(Debug)]
pub(crate) struct GroupInfoLines(Box<[Padded<AtomicU64>]>);

impl GroupInfoLines {
    /// Of `groups` groups.
    pub fn new(groups: u32, is_used: bool) -> Self {
        Self((0..if is_used { groups } else { 0 }).map(|_| Padded::default()).collect())
    }

    /// What the group has, or had freed, changes.
    pub fn change(&self, group: GroupNumber) {
        if let Some(line) = self.0.get(group.0 as usize) {
            line.store(1, Ordering::Relaxed);
        }
    }
}

impl Allocator {
    /// A search begins at a goal: the groups of the flex group from there on are looked up and marked as read.
    pub(crate) fn touch_prefetch(&self, goal: GroupNumber) {
        self.each_of_flex(goal, |line| _ = line.fetch_or(1, Ordering::Relaxed));
    }

    /// The search is at its end: whether the same groups are read in is looked at.
    pub(crate) fn touch_prefetch_fini(&self, goal: GroupNumber) {
        self.each_of_flex(goal, |line| _ = line.load(Ordering::Relaxed));
    }

    fn each_of_flex(&self, goal: GroupNumber, access: impl Fn(&AtomicU64)) {
        let (from, flex) = (goal.0 as usize, self.geometry.groups_per_flex.max(1) as usize);
        for line in self.group_info.0.iter().take((from / flex + 1) * flex).skip(from) {
            self.touch_group_lookup();
            access(line);
        }
    }

    /// What the group has is looked at.
    pub(crate) fn touch_group_info(&self, group: GroupNumber) {
        if let Some(line) = self.group_info.0.get(group.0 as usize) {
            self.touch_group_lookup();
            line.load(Ordering::Relaxed);
        }
    }

    /// A group or its buddy is looked up.
    pub(crate) fn touch_group_lookup(&self) {
        if !self.group_info.0.is_empty() {
            self.md_lock.touch();
        }
    }
}
