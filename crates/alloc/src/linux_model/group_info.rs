//! The cache lines that searches of Linux's allocator read and change beside groups' locks, so that the lab sees them pass to and fro:
//! one of each group, and that of the disk's lock ([`MdLock::touch`](super::md_lock::MdLock::touch)). With
//! [`block_group_locks`](super::LinuxModel::block_group_locks) alone.
//!
//! Source: kernel before 6.17, the first line of `struct ext4_group_info`, which has the group's state and what is free in it;
//! `ext4_mb_prefetch`, `ext4_mb_prefetch_fini`, `ext4_mb_good_group`, `ext4_get_group_info`, `mb_find_buddy`.

use extant_ondisk::{Geometry, GroupNumber};
use extant_rt::{AtomicU64, Ordering, Padded};

use super::OlderForms;

/// Of each group the line that has what is free in it; of no group unless the older form is used.
#[derive(Debug)]
pub(crate) struct GroupInfoLines(Box<[Padded<AtomicU64>]>);

impl GroupInfoLines {
    /// Of `groups` groups.
    pub fn new(groups: u32, is_used: bool) -> Self {
        Self((0..if is_used { groups } else { 0 }).map(|_| Padded::default()).collect())
    }
}

impl OlderForms {
    /// A search begins at a goal: the groups of the flex group from there on are looked up and marked as read.
    pub fn search_begins(&self, goal: GroupNumber, geometry: &Geometry) {
        self.each_of_flex(goal, geometry, |line| _ = line.fetch_or(1, Ordering::Relaxed));
    }

    /// The search is at its end: whether the same groups are read in is looked at.
    pub fn search_ends(&self, goal: GroupNumber, geometry: &Geometry) {
        self.each_of_flex(goal, geometry, |line| _ = line.load(Ordering::Relaxed));
    }

    fn each_of_flex(&self, goal: GroupNumber, geometry: &Geometry, access: impl Fn(&AtomicU64)) {
        let (from, flex) = (goal.0 as usize, geometry.groups_per_flex.max(1) as usize);
        for line in self.group_info.0.iter().take((from / flex + 1) * flex).skip(from) {
            self.touch_group_lookup();
            access(line);
        }
    }

    /// What a group has is looked at.
    pub fn touch_group_info(&self, group: GroupNumber) {
        if let Some(line) = self.group_info.0.get(group.0 as usize) {
            self.touch_group_lookup();
            line.load(Ordering::Relaxed);
        }
    }

    /// A group or its buddy is looked up.
    pub fn touch_group_lookup(&self) {
        if !self.group_info.0.is_empty() {
            self.md_lock.touch();
        }
    }

    /// What a group has, or had freed, changes.
    pub fn change_group_info(&self, group: GroupNumber) {
        if let Some(line) = self.group_info.0.get(group.0 as usize) {
            line.store(1, Ordering::Relaxed);
        }
    }
}
