//! The groups by what they have: per order the groups whose largest chunk, or average run, is of that order.
//!
//! Membership is a hint that is read without a lock and checked again under the group's. It changes under the group's
//! lock only; a group that moves is put into its new set before it leaves the old one, so no walk misses it in between. A group
//! without free blocks is in no set. Groups whose bitmaps were never read are listed apart, by upper bounds.

use std::ops::Range;

use extant_ondisk::GroupNumber;

use super::buddy::ORDERS_MAX;
use super::summary::Summary;
use crate::group_set::GroupSet;

/// By what groups are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The largest order of a free chunk.
    Largest,
    /// The order of the average run.
    Average,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct OrderIndex {
    known: Orders,
    /// Groups by upper bounds.
    unread: Orders,
}

/// Per key and order the groups.
#[derive(Debug)]
struct Orders([Box<[GroupSet]>; 2]);

impl Orders {
    fn new(groups: u32) -> Self {
        Self(std::array::from_fn(|_| (0..ORDERS_MAX).map(|_| GroupSet::new(groups)).collect()))
    }

    fn of(&self, key: Key, order: u8) -> Option<&GroupSet> {
        self.0[key as usize].get(usize::from(order))
    }
}

impl OrderIndex {
    /// Of `groups` groups, none listed.
    pub fn new(groups: u32) -> Self {
        Self { known: Orders::new(groups), unread: Orders::new(groups) }
    }

    fn list(&self, summary: Summary) -> &Orders {
        if summary.is_unread() { &self.unread } else { &self.known }
    }

    /// A group's summary changes. To be called with the group's lock held.
    pub fn change(&self, group: GroupNumber, from: Summary, to: Summary) {
        let is_moved = from.is_unread() != to.is_unread();
        let changes =
            [(Key::Largest, from.largest, to.largest), (Key::Average, from.average(), to.average())];
        for (key, old, new) in changes {
            if old == new && !is_moved {
                continue;
            }
            if let Some(set) = new.and_then(|order| self.list(to).of(key, order)) {
                set.insert(group);
            }
            if let Some(set) = old.and_then(|order| self.list(from).of(key, order)) {
                set.remove(group);
            }
        }
    }

    /// The first group of an order in a range.
    pub fn first(&self, key: Key, order: u8, range: Range<u32>) -> Option<GroupNumber> {
        self.first_of(key, order..order + 1, range, true)
    }

    /// The first group of at least an order in a range, among those read or all.
    pub fn nearest(&self, key: Key, order: u8, range: Range<u32>, with_unread: bool) -> Option<GroupNumber> {
        self.first_of(key, order..ORDERS_MAX as u8, range, with_unread)
    }

    fn first_of(
        &self,
        key: Key,
        orders: Range<u8>,
        range: Range<u32>,
        with_unread: bool,
    ) -> Option<GroupNumber> {
        let (from, mut end) = (GroupNumber(range.start), GroupNumber(range.end));
        let mut found = None;
        for list in [Some(&self.known), with_unread.then_some(&self.unread)].into_iter().flatten() {
            for order in orders.clone() {
                // What is found ends the search of the next.
                if let Some(nearer) = list.of(key, order).and_then(|set| set.next_before(from, end)) {
                    (found, end) = (Some(nearer), nearer);
                }
            }
        }
        found
    }
}
