//! The older form of the live ranges (kernel before 6.4): a linked list of what was taken ahead at a time, last used first,
//! capped and trimmed.
//!
//! An item stands for the whole of what was taken ahead until its last block is given, whichever are gone, so that a file
//! that is filled at random has as many as before. A look-up goes through the list until an item gives the block. If none
//! does, what the block can have is found in two further passes, each of which takes the lock of every item: one for the
//! room behind the block, one to be sure that nothing overlaps it. What is left of an item is asked without being counted:
//! the kernel has it in the group's bitmap.
//!
//! Locks: `PREALLOCATIONS` with key 1, one per item; the inode's own is held.
//!
//! Source: kernel 6.3 `ext4_mb_use_preallocated`, `ext4_mb_normalize_request`, `ext4_mb_release_context`,
//! `ext4_mb_trim_inode_pa`.

use std::collections::LinkedList;

use extant_ondisk::LogicalBlock;
use extant_rt::{LockClass, Mutex};

use crate::prealloc::ranges::{Found, PaRange};
use crate::prealloc::tree::PaTree;

/// Items at most (kernel `mb_max_inode_prealloc`), and how many more before the oldest go.
const ITEMS_MAX: usize = 512;
const EXCESS_MAX: usize = ITEMS_MAX / 4 + 1;

#[derive(Debug)]
struct Item {
    /// As it was taken ahead.
    whole: PaRange,
    /// What of it was not given yet.
    left: PaTree,
    lock: Mutex<()>,
}

impl Item {
    fn new(whole: PaRange) -> Self {
        let mut left = PaTree::default();
        left.insert(whole);
        Self { whole, left, lock: Mutex::with_key(LockClass::PREALLOCATIONS, 1, ()) }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PaList {
    items: LinkedList<Item>,
}

impl PaList {
    /// Takes up to `len` blocks for `logical`, with how many items were looked at.
    pub fn use_at(&mut self, logical: LogicalBlock, len: u32) -> (Found, u64) {
        let mut visits = 0;
        for (place, item) in self.items.iter_mut().enumerate() {
            visits += 1;
            // The whole does not change, so this needs no lock.
            if !item.whole.covers(logical) {
                continue;
            }
            let locked = item.lock.lock();
            let (found, _) = item.left.use_at(logical, len);
            drop(locked);
            if let Found::Run(_) = found {
                self.move_used(place);
                return (found, visits);
            }
        }
        let mut room = u32::MAX;
        for item in &self.items {
            let _item = item.lock.lock();
            visits += 1;
            room = room.min(item.left.around(logical).room(logical));
        }
        for item in &self.items {
            let _item = item.lock.lock();
            visits += 1;
            debug_assert!(
                item.left.around(logical).covering(logical).is_none(),
                "{item:?} covers {logical:?}"
            );
        }
        (Found::Room(room), visits)
    }

    /// Moves an item that gave blocks to the front; takes it out if none are left.
    fn move_used(&mut self, place: usize) {
        let mut used = self.items.split_off(place);
        let mut behind = used.split_off(1);
        self.items.append(&mut behind);
        if used.front().is_some_and(|item| !item.left.is_empty()) {
            used.append(&mut self.items);
            self.items = used;
        }
    }

    /// Whether a range overlaps none that is left, without their locks.
    pub fn is_apart(&self, range: PaRange) -> bool {
        self.items.iter().all(|item| item.left.is_apart(range))
    }

    /// Adds a range; what is left of the oldest items, if there are too many.
    pub fn insert(&mut self, range: PaRange) -> Vec<PaRange> {
        self.items.push_front(Item::new(range));
        if self.items.len() <= ITEMS_MAX + EXCESS_MAX {
            return Vec::new();
        }
        Self { items: self.items.split_off(ITEMS_MAX) }.into_ranges()
    }

    pub fn into_ranges(self) -> Vec<PaRange> {
        self.items.into_iter().flat_map(|item| item.left.into_ranges()).collect()
    }
}

#[cfg(test)]
impl PaList {
    /// A list beyond its cap, to measure look-ups.
    pub fn uncapped(ranges: impl Iterator<Item = PaRange>) -> Self {
        Self { items: ranges.map(Item::new).collect() }
    }
}
