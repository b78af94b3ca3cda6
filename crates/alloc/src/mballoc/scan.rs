//! In which order groups are visited by the searches that go by the kernel's criteria.
//!
//! All orders of the index are walked over the groups from the goal to the last before those from 0 to the goal, so
//! that allocations which begin at different goals do not meet in the lowest groups (post B).

use std::ops::Range;

use extant_ondisk::GroupNumber;

use crate::group::buddy::ORDERS_MAX;
use crate::group::summary::{Key, OrderMask};
use crate::group_table::order_index::OrderIndex;
use crate::tuning::Scan;

/// The groups of at least an order, from a goal on and round: each once, as long as it keeps its order.
pub(crate) struct Walk<'a> {
    index: &'a OrderIndex,
    scan: Scan,
    key: Key,
    /// The least order that suffices, and the one that is walked now, of a walk by order.
    least: u8,
    order: u8,
    /// What is left of this part of the walk, and the part after it.
    now: Range<u32>,
    then: Range<u32>,
    /// Where the present part began.
    start: u32,
    /// Groups to be visited whatever they have, before all others.
    linear: u32,
}

impl<'a> Walk<'a> {
    /// Over `groups`; the first `linear` ones one by one.
    pub fn new(
        index: &'a OrderIndex,
        (scan, linear): (Scan, u32),
        (key, least): (Key, u8),
        goal: GroupNumber,
        groups: Range<u32>,
    ) -> Self {
        let goal = goal.0.min(groups.end);
        let (now, then) = (goal..groups.end, groups.start..goal);
        Self { index, scan, key, least, order: least, now, then, start: goal, linear }
    }

    fn next_in_part(&mut self) -> Option<GroupNumber> {
        loop {
            let range = self.now.clone();
            let of_orders = |orders| self.index.first(OrderMask::of_orders(self.key, orders), range.clone());
            let found = match self.scan {
                Scan::Linear => (!range.is_empty()).then_some(GroupNumber(range.start)),
                Scan::Ordered => of_orders(self.order..self.order + 1),
                Scan::Nearest | Scan::NearestFit | Scan::Own(_) => of_orders(self.least..ORDERS_MAX as u8),
            };
            if let Some(found) = found {
                self.now.start = found.0 + 1;
                return Some(found);
            }
            let is_by_order = self.scan == Scan::Ordered;
            if !is_by_order || usize::from(self.order) + 1 >= ORDERS_MAX {
                return None;
            }
            self.order += 1;
            self.now.start = self.start;
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = GroupNumber;

    fn next(&mut self) -> Option<GroupNumber> {
        if self.linear > 0 && self.now.start < self.now.end {
            self.linear -= 1;
            self.now.start += 1;
            return Some(GroupNumber(self.now.start - 1));
        }
        if let found @ Some(_) = self.next_in_part() {
            return found;
        }
        self.now = std::mem::take(&mut self.then);
        self.start = self.now.start;
        self.order = self.least;
        self.linear = 0;
        self.next_in_part()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::summary::Summary;

    fn walk(scan: Scan, goal: u32, linear: u32) -> Vec<u32> {
        let index = OrderIndex::new(200);
        // Group, largest order.
        for (group, largest) in [(1, 3), (5, 2), (70, 5), (80, 2), (150, 3), (199, 1)] {
            let now = Summary { free: 1 << largest, fragments: 1, largest: Some(largest) };
            index.set(GroupNumber(group), now);
        }
        let walk = Walk::new(&index, (scan, linear), (Key::Largest, 2), GroupNumber(goal), 0..200);
        walk.map(|group| group.0).collect()
    }

    #[test]
    fn each_way_meets_the_sufficient_groups_in_its_order() {
        assert_eq!(walk(Scan::Nearest, 71, 0), [80, 150, 1, 5, 70]);
        assert_eq!(walk(Scan::Ordered, 71, 0), [80, 150, 5, 1, 70]);
        assert_eq!(walk(Scan::Linear, 71, 0), (71..200).chain(0..71).collect::<Vec<_>>());
        assert_eq!(walk(Scan::Nearest, 71, 2), [71, 72, 80, 150, 1, 5, 70]);
        assert_eq!(walk(Scan::Nearest, 199, 4), [199, 1, 5, 70, 80, 150]);
        assert_eq!(walk(Scan::Ordered, 0, 0), [5, 80, 1, 150, 70]);
    }
}
