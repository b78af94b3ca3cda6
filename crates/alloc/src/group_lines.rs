//! What Linux's allocator changes of a group on its way to it, beside what its lock guards, so that the lab sees these cache
//! lines pass to and fro. Only for measurements, through [`crate::Tuning`].
//!
//! Source: kernel before 6.17, `struct ext4_group_info` (its first line has the state and what is free), `ext4_mb_prefetch`,
//! `ext4_mb_load_buddy`.

use extant_ondisk::GroupNumber;
use extant_rt::{AtomicU64, Ordering, Padded};

/// See the module; of no group unless the older form is used.
#[derive(Debug)]
pub(crate) struct GroupLines(Box<[Lines]>);

#[derive(Debug, Default)]
struct Lines {
    info: Padded<AtomicU64>,
    /// References to the pages of the bitmap and of the buddy.
    pages: [Padded<AtomicU64>; 2],
}

/// Keeps a group's bitmap and buddy in memory.
#[derive(Debug)]
pub(crate) struct LoadedBuddy<'a>(Option<&'a Lines>);

impl GroupLines {
    /// Of `groups` groups.
    pub fn new(groups: u32, is_used: bool) -> Self {
        let count = if is_used { groups } else { 0 };
        Self((0..count).map(|_| Lines::default()).collect())
    }

    /// A search begins here: what it may read of the flex group from here on is marked as read.
    pub fn prefetch(&self, goal: GroupNumber, groups_per_flex: u32) {
        let (from, flex) = (goal.0 as usize, groups_per_flex.max(1) as usize);
        let groups = self.0.iter().take((from / flex + 1) * flex).skip(from);
        groups.for_each(|lines| _ = lines.info.0.fetch_or(1, Ordering::Relaxed));
    }

    /// What the group has is looked at.
    pub fn look(&self, group: GroupNumber) {
        if let Some(lines) = self.of(group) {
            lines.info.0.load(Ordering::Relaxed);
        }
    }

    /// What the group has, or had freed, changes.
    pub fn change(&self, group: GroupNumber) {
        if let Some(lines) = self.of(group) {
            lines.info.0.store(1, Ordering::Relaxed);
        }
    }

    /// Has the group's bitmap and buddy in memory.
    pub fn load_buddy(&self, group: GroupNumber) -> LoadedBuddy<'_> {
        let lines = self.of(group);
        let pages = lines.iter().flat_map(|lines| &lines.pages);
        pages.for_each(|page| _ = page.0.fetch_add(1, Ordering::Relaxed));
        LoadedBuddy(lines)
    }

    fn of(&self, group: GroupNumber) -> Option<&Lines> {
        self.0.get(group.0 as usize)
    }
}

impl Drop for LoadedBuddy<'_> {
    fn drop(&mut self) {
        let pages = self.0.iter().flat_map(|lines| &lines.pages);
        pages.for_each(|page| _ = page.0.fetch_sub(1, Ordering::Relaxed));
    }
}
