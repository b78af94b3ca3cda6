//! In which order groups are visited.
//!
//! All orders of the index are walked over the groups from the goal to the last before those from 0 to the goal, so
//! that allocations which begin at different goals do not meet in the lowest groups (post B).

use std::ops::Range;

use extant_ondisk::GroupNumber;

use super::index::{Key, OrderIndex};
use crate::tuning::Scan;

/// The groups of at least an order, from a goal on and round: each once, as long as it keeps its order.
pub(crate) struct Walk<'a> {
    index: &'a OrderIndex,
    scan: Scan,
    key: Key,
    /// The least order that suffices.
    least: u8,
    /// The order that is walked now, of a walk by order.
    order: u8,
    /// What is left of this part of the walk, and the part after it.
    now: Range<u32>,
    then: Range<u32>,
    /// Where the present part began.
    start: u32,
    /// Groups to be visited whatever they are listed as, before all others.
    linear: u32,
}

impl<'a> Walk<'a> {
    /// Over `groups` groups; the first `linear` of them one by one.
    pub fn new(
        index: &'a OrderIndex,
        scan: Scan,
        (key, least): (Key, u8),
        goal: GroupNumber,
        groups: u32,
        linear: u32,
    ) -> Self {
        let goal = if scan == Scan::ListHead { 0 } else { goal.0.min(groups) };
        Self { index, scan, key, least, order: least, now: goal..groups, then: 0..goal, start: goal, linear }
    }

    fn next_in_part(&mut self) -> Option<GroupNumber> {
        loop {
            let from = GroupNumber(self.now.start);
            let found = match self.scan {
                Scan::Linear => Some(from),
                Scan::Nearest => self.index.nearest(self.key, self.least, from),
                Scan::Ordered | Scan::ListHead => self.index.groups(self.key, self.order)?.next(from),
            };
            match found.filter(|found| found.0 < self.now.end) {
                Some(found) => {
                    self.now.start = found.0 + 1;
                    return Some(found);
                }
                None if matches!(self.scan, Scan::Linear | Scan::Nearest) => return None,
                None => {
                    self.order += 1;
                    self.now.start = self.start;
                }
            }
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
    use crate::mballoc::Summary;

    fn walk(scan: Scan, goal: u32, linear: u32) -> Vec<u32> {
        let index = OrderIndex::new(200);
        // Group, largest order.
        for (group, largest) in [(1, 3), (5, 2), (70, 5), (80, 2), (150, 3), (199, 1)] {
            let now = Summary { free: 1 << largest, fragments: 1, largest: Some(largest) };
            index.change(GroupNumber(group), Summary::NONE, now);
        }
        let walk = Walk::new(&index, scan, (Key::Largest, 2), GroupNumber(goal), 200, linear);
        walk.map(|group| group.0).collect()
    }

    #[test]
    fn each_way_meets_the_sufficient_groups_in_its_order() {
        assert_eq!(walk(Scan::Nearest, 71, 0), [80, 150, 1, 5, 70]);
        assert_eq!(walk(Scan::Ordered, 71, 0), [80, 150, 5, 1, 70]);
        assert_eq!(walk(Scan::ListHead, 71, 0), [5, 80, 1, 150, 70]);
        assert_eq!(walk(Scan::Linear, 71, 0), (71..200).chain(0..71).collect::<Vec<_>>());
        assert_eq!(walk(Scan::Nearest, 71, 2), [71, 72, 80, 150, 1, 5, 70]);
        assert_eq!(walk(Scan::Nearest, 199, 4), [199, 1, 5, 70, 80, 150]);
        assert_eq!(walk(Scan::Ordered, 0, 0), [5, 80, 1, 150, 70]);
    }
}
