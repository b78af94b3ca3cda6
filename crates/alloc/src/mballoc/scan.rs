//! In which order groups are visited.
//!
//! All orders of the index are walked over the groups from the goal to the last before those from 0 to the goal, so
//! that allocations which begin at different goals do not meet in the lowest groups (post B).

use std::ops::Range;

use extant_ondisk::GroupNumber;

use super::buddy::ORDERS_MAX;
use super::expectation::Expectation;
use super::index::{Key, OrderIndex};
use crate::tuning::Scan;

/// What a group is to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub key: Key,
    /// The least order that suffices.
    pub order: u8,
    /// Blocks in a run.
    pub len: u32,
}

/// The groups of at least an order, from a goal on and round: each once, as long as it keeps its order.
pub(crate) struct Walk<'a> {
    index: &'a OrderIndex,
    expectation: &'a Expectation,
    scan: Scan,
    wanted: Wanted,
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
    /// Over all groups; the first `linear` ones one by one.
    pub fn new(
        index: &'a OrderIndex,
        expectation: &'a Expectation,
        (scan, linear): (Scan, u32),
        wanted: Wanted,
        goal: GroupNumber,
        groups: u32,
    ) -> Self {
        let goal = if scan == Scan::ListHead { 0 } else { goal.0.min(groups) };
        let (order, now, then) = (wanted.order, goal..groups, 0..goal);
        Self { index, expectation, scan, wanted, order, now, then, start: goal, linear }
    }

    fn next_in_part(&mut self) -> Option<GroupNumber> {
        let Wanted { key, order: least, len } = self.wanted;
        loop {
            let range = self.now.clone();
            let found = match self.scan {
                Scan::Linear => (!range.is_empty()).then_some(GroupNumber(range.start)),
                Scan::Nearest => self.index.nearest(key, least, range, true),
                Scan::Auto => self.index.nearest(key, least, range, self.expectation.meets(key, len)),
                Scan::Ordered | Scan::ListHead => self.index.first(key, self.order, range),
            };
            if let Some(found) = found {
                self.now.start = found.0 + 1;
                return Some(found);
            }
            let is_by_order = matches!(self.scan, Scan::Ordered | Scan::ListHead);
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
        self.order = self.wanted.order;
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
        walk_of(&index, &Expectation::new(), scan, goal, linear)
    }

    fn walk_of(
        index: &OrderIndex,
        expectation: &Expectation,
        scan: Scan,
        goal: u32,
        linear: u32,
    ) -> Vec<u32> {
        let wanted = Wanted { key: Key::Largest, order: 2, len: 4 };
        let walk = Walk::new(index, expectation, (scan, linear), wanted, GroupNumber(goal), 200);
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
        assert_eq!(walk(Scan::Auto, 71, 0), [80, 150, 1, 5, 70]);
        assert_eq!(walk(Scan::Ordered, 0, 0), [5, 80, 1, 150, 70]);
    }

    #[test]
    fn unread_groups_are_passed_over_while_those_read_have_shorter_runs() {
        let (index, expectation) = (OrderIndex::new(200), Expectation::new());
        let read = Summary { free: 64, fragments: 2, largest: Some(5) };
        for (group, summary) in [(3, read), (90, Summary::unread(64, 13)), (100, read)] {
            index.change(GroupNumber(group), Summary::NONE, summary);
        }
        let walk = |scan| walk_of(&index, &expectation, scan, 80, 0);
        assert_eq!(walk(Scan::Auto), [90, 100, 3]);
        expectation.learn(Summary { free: 64, fragments: 64, largest: Some(0) });
        assert_eq!(walk(Scan::Auto), [100, 3]);
        assert_eq!(walk(Scan::Nearest), [90, 100, 3]);
        index.change(GroupNumber(90), Summary::unread(64, 13), read);
        assert_eq!(walk(Scan::Auto), [90, 100, 3]);
    }
}
