//! The groups by what they have: per order the groups whose largest chunk, or average run, is of that order.
//!
//! Membership is a hint that is read without a lock and checked again under the group's. It changes under the group's
//! lock only; a group that moves is put into its new set before it leaves the old one, so no walk misses it in between. A group
//! without free blocks is in no set.

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
    largest: Box<[GroupSet]>,
    average: Box<[GroupSet]>,
}

impl OrderIndex {
    /// Of `groups` groups, none listed.
    pub fn new(groups: u32) -> Self {
        let sets = || (0..ORDERS_MAX).map(|_| GroupSet::new(groups)).collect();
        Self { largest: sets(), average: sets() }
    }

    /// A group's summary changes. To be called with the group's lock held.
    pub fn change(&self, group: GroupNumber, from: Summary, to: Summary) {
        let changes =
            [(&self.largest, from.largest, to.largest), (&self.average, from.average(), to.average())];
        for (sets, from, to) in changes {
            if from == to {
                continue;
            }
            if let Some(to) = to {
                sets[usize::from(to)].insert(group);
            }
            if let Some(from) = from {
                sets[usize::from(from)].remove(group);
            }
        }
    }

    /// The groups of an order and a key.
    pub fn groups(&self, key: Key, order: u8) -> Option<&GroupSet> {
        let sets = match key {
            Key::Largest => &self.largest,
            Key::Average => &self.average,
        };
        sets.get(usize::from(order))
    }

    /// The group nearest to the right of `from` whose order is at least `order`.
    pub fn nearest(&self, key: Key, order: u8, from: GroupNumber) -> Option<GroupNumber> {
        (order..ORDERS_MAX as u8).filter_map(|order| self.groups(key, order)?.next(from)).min()
    }
}
