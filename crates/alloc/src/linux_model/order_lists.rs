//! The older form of the index: for each order of their largest chunk, and of their average run, the groups in a list under a
//! reader-writer lock, in the order in which they came there (kernel before 6.17: `s_mb_largest_free_orders`,
//! `s_mb_avg_fragment_size`).
//!
//! Invariant: a group with free blocks stands in one list of each kind, but for the moment of a change, which happens under
//! its lock.
//!
//! Locks: `ORDER_LIST`, inside a group's; one at a time.

use std::collections::BTreeMap;

use extant_ondisk::GroupNumber;
use extant_rt::{AtomicBool, AtomicU64, LockClass, Ordering, Padded, RwLock};

use crate::group::buddy::ORDERS_MAX;
use crate::group::summary::{Key, Summary};

/// The groups of a list, by when they came. The lists' heads lie apart from their locks.
#[derive(Debug)]
#[repr(align(64))]
struct Groups(BTreeMap<u64, GroupNumber>);

/// A list, which is passed over without its lock if it is empty.
#[derive(Debug)]
struct List {
    groups: Padded<RwLock<Groups>>,
    is_empty: Padded<AtomicBool>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct OrderLists {
    /// By [`Key`] and order.
    lists: [Box<[List]>; 2],
    /// When a group came to its list of each kind. Changes under its lock.
    came: Box<[[AtomicU64; 2]]>,
}

impl List {
    fn change(&self, change: impl FnOnce(&mut BTreeMap<u64, GroupNumber>)) {
        let mut groups = self.groups.write();
        change(&mut groups.0);
        if self.is_empty.load(Ordering::Relaxed) != groups.0.is_empty() {
            self.is_empty.store(groups.0.is_empty(), Ordering::Relaxed);
        }
    }
}

fn order(key: Key, summary: Summary) -> Option<usize> {
    match key {
        Key::Largest => summary.largest,
        Key::Average => summary.average(),
    }
    .map(usize::from)
}

impl OrderLists {
    /// Of `groups` groups that all have the same.
    pub fn full(groups: u32, summary: Summary) -> Self {
        let list = |key| {
            move |index| {
                let is_full = order(key, summary) == Some(index);
                let groups = (0..if is_full { groups } else { 0 }).map(GroupNumber);
                List {
                    groups: Padded(RwLock::new(LockClass::ORDER_LIST, Groups((0..).zip(groups).collect()))),
                    is_empty: Padded(AtomicBool::new(!is_full)),
                }
            }
        };
        let lists = [Key::Largest, Key::Average].map(|key| (0..ORDERS_MAX).map(list(key)).collect());
        let came = (0..u64::from(groups)).map(|group| [AtomicU64::new(group), AtomicU64::new(group)]);
        Self { lists, came: came.collect() }
    }

    /// A group's free space changes. To be called with its lock held.
    pub fn set(&self, group: GroupNumber, from: Summary, to: Summary) {
        let Some(came) = self.came.get(group.0 as usize) else { return };
        for key in [Key::Largest, Key::Average] {
            let (old, new) = (order(key, from), order(key, to));
            if old == new {
                continue;
            }
            let (lists, came) = (&self.lists[key as usize], &came[key as usize]);
            if let Some(list) = old.and_then(|order| lists.get(order)) {
                list.change(|groups| _ = groups.remove(&came.load(Ordering::Relaxed)));
            }
            if let Some(list) = new.and_then(|order| lists.get(order)) {
                list.change(|groups| {
                    let last = groups.last_key_value().map_or(0, |(last, _)| last + 1);
                    came.store(last, Ordering::Relaxed);
                    groups.insert(last, group);
                });
            }
        }
    }

    /// The first group that suits, of the lowest order from `least` on.
    pub fn first(&self, key: Key, least: u8, suits: impl Fn(GroupNumber) -> bool) -> Option<GroupNumber> {
        let lists = self.lists[key as usize].iter().skip(usize::from(least));
        lists.filter(|list| !list.is_empty.load(Ordering::Relaxed)).find_map(|list| {
            let groups = &list.groups.read().0;
            groups.values().copied().find(|group| suits(*group))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_whose_order_changes_goes_behind_the_others_of_its_new_order() {
        let of = |largest| Summary { free: 1 << u32::from(largest), fragments: 1, largest: Some(largest) };
        let lists = OrderLists::full(4, of(5));
        let first = |least, but: u32| lists.first(Key::Largest, least, |group| group.0 != but).map(|g| g.0);
        assert_eq!([first(0, 9), first(0, 0), first(6, 9)], [Some(0), Some(1), None]);
        lists.set(GroupNumber(2), of(5), of(3));
        lists.set(GroupNumber(0), of(5), of(3));
        assert_eq!([first(0, 9), first(3, 2), first(4, 9)], [Some(2), Some(0), Some(1)]);
        lists.set(GroupNumber(2), of(3), Summary::NONE);
        lists.set(GroupNumber(0), of(3), of(5));
        assert_eq!([first(0, 9), first(0, 1), first(0, 3)], [Some(1), Some(3), Some(1)]);
    }
}
