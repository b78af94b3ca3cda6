//! The default search: the nearest group with a chunk as long as wanted; if there is none, with the longest there is.
//!
//! One search of the index finds a group for certain, or that none has such a chunk; so nothing is tried that cannot
//! succeed, and no group is looked into in vain but those never read. The index is asked for each order only as long as some
//! group may have it. Groups never read are passed over while those read lately had smaller chunks ([`crate::bitmap_cache::expectation`]).

use extant_ondisk::GroupNumber;

use super::{Criterion, LockedGroup, Search};
use crate::bitmap64::FreeExtent;
use crate::group::ClusterRun;
use crate::group::buddy::{order_max, order_of};
use crate::group::summary::OrderMask;
use crate::group_table::order_index::GroupsFromGoal;

impl<'a> Search<'a> {
    pub(super) fn nearest_fit(&mut self, goal: GroupNumber) -> Option<(ClusterRun, GroupNumber)> {
        let (whole, best) = (self.order(), self.best_order());
        if best == Some(whole) {
            let found = self.nearest(Criterion::Power2Aligned, whole, goal);
            if found.is_some() {
                return found;
            }
        }
        for order in best.into_iter().flat_map(|best| (0..=best).rev()) {
            let found = self.nearest(Criterion::BestAvailLen, order, goal);
            if found.is_some() {
                return found;
            }
        }
        self.nearest(Criterion::AnyFree, 0, goal)
    }

    /// The highest order, up to that of the whole length, of which any group may have a chunk.
    fn best_order(&self) -> Option<u8> {
        let (all, expectation) = (self.alloc.index.all(), &self.alloc.expectation);
        let may_be_had =
            |order: &u8| !OrderMask::of_chunk(*order, expectation.meets(*order)).and(all).is_empty();
        (0..=self.order()).rev().find(may_be_had)
    }

    /// The nearest group with a chunk of an order: as much of the length as it has.
    fn nearest(
        &mut self,
        criterion: Criterion,
        order: u8,
        goal: GroupNumber,
    ) -> Option<(ClusterRun, GroupNumber)> {
        let mut has_met = false;
        let apart = self.nearest_but(criterion, order, goal, |search, group| {
            let belongs_to_other_locality = search.belongs_to_other_locality(group);
            has_met |= belongs_to_other_locality;
            belongs_to_other_locality
        });
        // Rather in a group that another fills than in no such group.
        apart.or_else(|| has_met.then(|| self.nearest_but(criterion, order, goal, |_, _| false))?)
    }

    fn nearest_but(
        &mut self,
        criterion: Criterion,
        order: u8,
        goal: GroupNumber,
        mut is_passed: impl FnMut(&Self, GroupNumber) -> bool,
    ) -> Option<(ClusterRun, GroupNumber)> {
        let alloc = self.alloc;
        // A miss lowers what is expected, so it is asked anew for each group.
        let wanted = || OrderMask::of_chunk(order, alloc.expectation.meets(order));
        if !alloc.index.may_have(wanted()) {
            return None;
        }
        let (mut round, mut has_passed) = (GroupsFromGoal::new(&alloc.index, goal), false);
        loop {
            let wanted = wanted();
            let group = round.next(&alloc.index, wanted)?;
            self.counts.considered(criterion);
            if is_passed(self, group) {
                continue;
            }
            alloc.load_descriptor(group);
            if alloc.index.get(group).marks().and(wanted).is_empty() {
                continue;
            }
            // The second one in a row says that there is nothing between them.
            if criterion == Criterion::Power2Aligned && !has_passed && self.is_aligned_and_for_metadata(group)
            {
                has_passed = true;
                continue;
            }
            let Some(locked) = self.lock(group, criterion == Criterion::AnyFree) else { continue };
            // A run may be as long without such a chunk.
            match self.fit(&locked).filter(|gap| gap.len >= self.len.min(1 << order)) {
                Some(gap) => {
                    self.counts.hit(criterion);
                    return Some((locked.use_found(gap)?, group));
                }
                None => self.counts.lost += 1,
            }
        }
    }

    /// What there is in the goal's group, if it has the whole length, or none has a longer chunk.
    pub(super) fn best_chunk(&mut self, locked: LockedGroup<'a>) -> Option<ClusterRun> {
        let largest = self.alloc.index.get(locked.number).largest?;
        let is_best = || largest >= self.order() || !self.is_there(largest + 1, locked.number);
        // A run may have the whole length without a chunk of it, but not without one of half of it.
        let may_have_whole = largest + 1 >= self.order();
        if !(may_have_whole || is_best()) || self.is_aligned_and_for_metadata(locked.number) {
            return None;
        }
        let gap = self.fit(&locked)?;
        if gap.len < self.len && !is_best() {
            return None;
        }
        let criterion = if gap.len == self.len { Criterion::Power2Aligned } else { Criterion::BestAvailLen };
        self.counts.considered(criterion);
        self.counts.hit(criterion);
        locked.use_found(gap)
    }

    /// Whether a group is likely to have a chunk of an order: found, for the marks alone may be stale.
    fn is_there(&self, order: u8, goal: GroupNumber) -> bool {
        let index = &self.alloc.index;
        let wanted = OrderMask::of_chunk(order, self.alloc.expectation.meets(order));
        GroupsFromGoal::new(index, goal).next(index, wanted).is_some()
    }

    /// What a group has for the whole length.
    fn fit(&self, locked: &LockedGroup<'a>) -> Option<FreeExtent> {
        // Another length leaves a gap behind its chunk, and one before it if its run begins earlier.
        let is_aligned = self.is_aligned() && self.len.is_power_of_two();
        let (goal_group, bit) = self.alloc.group_of_goal(self.request.goal);
        let near = if locked.number == goal_group { bit } else { 0 };
        locked.buddy()?.fit(self.len, is_aligned, near)
    }

    /// The order of a chunk that the whole length fits into.
    fn order(&self) -> u8 {
        order_of(self.len).min(order_max(&self.alloc.geometry))
    }

    /// Whether the run begins where a chunk does, as the kernel's for large powers of two.
    fn is_aligned(&self) -> bool {
        self.order() + 1 >= self.alloc.tuning.order2_req
    }

    fn is_aligned_and_for_metadata(&self, group: GroupNumber) -> bool {
        self.is_aligned() && self.is_for_metadata(group)
    }
}
