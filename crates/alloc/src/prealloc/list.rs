//! The older form of the live ranges (kernel before 6.4): a linked list, newest first, capped and trimmed.
//!
//! A look-up goes through it until a range covers the block. If none does, what the block can have is found in two further
//! passes, each of which takes the lock of every range: one for the room around the block, one to be sure that nothing
//! overlaps it.
//!
//! Locks: `PREALLOCATIONS` with key 1, one per range; the inode's own is held.
//!
//! Source: kernel 6.3 `ext4_mb_use_preallocated`, `ext4_mb_normalize_request`, `ext4_mb_trim_inode_pa`.

use std::collections::LinkedList;

use extant_ondisk::LogicalBlock;
use extant_rt::{LockClass, Mutex};

use super::ranges::{Around, Range};

/// Ranges at most (kernel `mb_max_inode_prealloc`), and how many more before the oldest go.
const RANGES_MAX: usize = 512;
const EXCESS_MAX: usize = RANGES_MAX / 4;

#[derive(Debug)]
struct Item {
    /// As under the lock, for passes that do without.
    range: Range,
    lock: Mutex<()>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct List {
    items: LinkedList<Item>,
}

impl List {
    /// Ends at the range that covers the block, if there is one.
    pub fn around(&self, logical: LogicalBlock) -> Around {
        let mut around = Around::default();
        for item in &self.items {
            around.visits += 1;
            if item.range.covers(logical) {
                around.before = Some(item.range);
                return around;
            }
        }
        for item in &self.items {
            let _range = item.lock.lock();
            around.visit(item.range, logical);
        }
        for item in &self.items {
            let _range = item.lock.lock();
            around.visits += 1;
            debug_assert!(!item.range.covers(logical), "{:?} covers {logical:?}", item.range);
        }
        around
    }

    /// All ranges, without their locks.
    pub fn ranges(&self) -> impl Iterator<Item = Range> {
        self.items.iter().map(|item| item.range)
    }

    /// Adds a range; the oldest, if there are too many.
    pub fn insert(&mut self, range: Range) -> Vec<Range> {
        self.items.push_front(Item { range, lock: Mutex::with_key(LockClass::PREALLOCATIONS, 1, ()) });
        if self.items.len() <= RANGES_MAX + EXCESS_MAX {
            return Vec::new();
        }
        self.items.split_off(RANGES_MAX).into_iter().map(|item| item.range).collect()
    }

    pub fn change(&mut self, logical: LogicalBlock, part: Range) {
        if let Some(item) = self.items.iter_mut().find(|item| item.range.logical == logical) {
            item.range = part;
        }
    }

    pub fn remove(&mut self, logical: LogicalBlock) {
        if let Some(place) = self.items.iter().position(|item| item.range.logical == logical) {
            let mut behind = self.items.split_off(place);
            behind.pop_front();
            self.items.append(&mut behind);
        }
    }

    pub fn into_ranges(self) -> Vec<Range> {
        self.items.into_iter().map(|item| item.range).collect()
    }
}

#[cfg(test)]
impl List {
    /// A list beyond its cap, to measure look-ups.
    pub fn uncapped(ranges: impl Iterator<Item = Range>) -> Self {
        let item = |range| Item { range, lock: Mutex::with_key(LockClass::PREALLOCATIONS, 1, ()) };
        Self { items: ranges.map(item).collect() }
    }
}
