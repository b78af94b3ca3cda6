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

use extant_ondisk::LogicalCluster;
use extant_rt::{LockClass, Mutex};

use crate::prealloc::ranges::{Found, PaRange};
use crate::prealloc::tree::PaTree;

/// Items at most (kernel `mb_max_inode_prealloc`), and how many more before the oldest go.
const ITEMS_MAX: usize = 512;
const EXCESS_MAX: usize = ITEMS_MAX / 4 + 1;

/// The preallocations of an inode, in either form.
#[derive(Debug)]
pub(crate) enum PaRanges {
    Tree(PaTree),
    List(PaList),
}

impl Default for PaRanges {
    fn default() -> Self {
        Self::Tree(PaTree::default())
    }
}

impl PaRanges {
    pub fn new(is_list: bool) -> Self {
        if is_list { Self::List(PaList::default()) } else { Self::default() }
    }

    /// Adds a range that overlaps none.
    pub fn insert(&mut self, range: PaRange) {
        match self {
            Self::Tree(tree) => tree.insert(range),
            Self::List(list) => list.items.push_front(Item::new(range)),
        }
    }

    /// Whether a range overlaps none. A check of debug builds, so it takes no lock: in virtual time that would cost.
    pub fn is_apart(&self, range: PaRange) -> bool {
        match self {
            Self::Tree(tree) => tree.is_apart(range),
            Self::List(list) => list.items.iter().all(|item| item.left.is_apart(range)),
        }
    }

    /// Takes up to `len` blocks for `logical`, with how many ranges were looked at.
    pub fn use_at(&mut self, logical: LogicalCluster, len: u32) -> (Found, u64) {
        match self {
            Self::Tree(tree) => tree.use_at(logical, len),
            Self::List(list) => list.use_at(logical, len),
        }
    }

    pub fn into_ranges(self) -> Vec<PaRange> {
        match self {
            Self::Tree(tree) => tree.into_ranges(),
            Self::List(list) => list.into_ranges(),
        }
    }
}

/// Takes out what is left of the oldest items, if there are too many.
pub(crate) fn trimmed(ranges: &mut PaRanges) -> Vec<PaRange> {
    match ranges {
        PaRanges::List(list) if list.items.len() > ITEMS_MAX + EXCESS_MAX => {
            PaList { items: list.items.split_off(ITEMS_MAX) }.into_ranges()
        }
        _ => Vec::new(),
    }
}

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
    fn use_at(&mut self, logical: LogicalCluster, len: u32) -> (Found, u64) {
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
        let has_any = |item: &Item| item.left.around(LogicalCluster(u32::MAX)).before.is_some();
        if used.front().is_some_and(has_any) {
            used.append(&mut self.items);
            self.items = used;
        }
    }

    fn into_ranges(self) -> Vec<PaRange> {
        self.items.into_iter().flat_map(|item| item.left.into_ranges()).collect()
    }
}

#[cfg(test)]
mod tests {
    use extant_ondisk::Cluster;

    use super::*;
    use crate::group::ClusterRun;
    use crate::prealloc::tests::{random_ranges_give_each_block_once, range, scattered};

    fn list() -> PaRanges {
        PaRanges::new(true)
    }

    #[test]
    fn a_look_up_visits_half_of_a_list() {
        for count in [100, 10_000, 1_000_000_u32] {
            // Beyond its cap.
            let mut list = PaList { items: scattered(count).map(Item::new).collect() };
            let lookups = 200.min(count);
            let all: u64 = (0..lookups)
                .map(|index| {
                    let at = (u64::from(index) * u64::from(count) / u64::from(lookups)) as u32;
                    list.use_at(LogicalCluster(at * 16), 1).1
                })
                .sum();
            let mean = all as f64 / f64::from(lookups);
            println!("list of {count}: {mean:.1} visits on average");
            assert!(mean > f64::from(count) / 4.0, "{mean} visits in a list of {count}");
        }
    }

    #[test]
    fn the_list_keeps_512_ranges() {
        let mut ranges = list();
        let gone: usize = scattered(5_000)
            .map(|range| {
                ranges.insert(range);
                trimmed(&mut ranges).len()
            })
            .sum();
        let left = ranges.into_ranges().len();
        assert_eq!(left + gone, 5_000);
        assert!((512..=641).contains(&left), "{left} ranges");
    }

    #[test]
    fn the_list_has_what_was_taken_ahead_at_a_time_once_until_its_last_block_is_given() {
        let mut list = list();
        list.insert(range(0, 7, 2_000));
        let mut take = |at: u32| list.use_at(LogicalCluster(at), 1);
        let given = |at: u32| Found::Run(ClusterRun { start: Cluster(7 + u64::from(at)), len: 1 });
        for at in (0..2_000).step_by(2) {
            assert_eq!(take(at), (given(at), 1));
        }
        assert_eq!(take(4), (Found::Room(1), 3), "three passes over one item");
        for at in (1..2_000).step_by(2) {
            assert_eq!(take(at), (given(at), 1));
        }
        assert_eq!(take(4), (Found::Room(u32::MAX), 0));
    }

    #[test]
    fn the_list_lets_those_go_that_gave_nothing_for_longest() {
        let mut list = list();
        for at in 0..641 {
            list.insert(range(at * 16, u64::from(at) * 8, 8));
            assert_eq!(trimmed(&mut list), []);
        }
        assert_eq!(list.use_at(LogicalCluster(0), 1).1, 641, "the oldest is last");
        list.insert(range(641 * 16, 641 * 8, 8));
        let oldest: Vec<_> = (1..=130).rev().map(|at| range(at * 16, u64::from(at) * 8, 8)).collect();
        assert_eq!(trimmed(&mut list), oldest);
    }

    #[test]
    fn random_ranges_of_a_list_give_each_block_once_and_never_overlap() {
        (4..=40).step_by(4).for_each(|seed| random_ranges_give_each_block_once(seed, list()));
    }
}
