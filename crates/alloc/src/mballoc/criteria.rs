//! The search by the kernel's criteria, one after the other, over groups in the order of a [`Scan`] other than the default
//! (kernel `ext4_mb_regular_allocator`, `ext4_mb_scan_groups`); and that for small extensions of large files, by one of them.

use extant_ondisk::GroupNumber;

use super::scan::Walk;
use super::{Criterion, Search};
use crate::bitmap64::FreeExtent;
use crate::group::ClusterRun;
use crate::group::buddy::Buddy;
use crate::group::summary::{Key, OrderMask, Summary};
use crate::group_table::order_index::GroupsFromGoal;
use crate::request::Purpose;
use crate::tuning::{Scan, Tuning};

impl Search<'_> {
    pub(super) fn scan_by_criteria(&mut self, goal: GroupNumber) -> Option<(ClusterRun, GroupNumber)> {
        let tuning = self.alloc.tuning;
        let order = self.len.ilog2() as u8;
        if self.len.is_power_of_two() && order + 1 >= tuning.order2_req {
            let found = self.walk(Criterion::Power2Aligned, Some((Key::Largest, order)), goal, self.len);
            if found.is_some() {
                return found;
            }
        }
        let average = |len| Some((Key::Average, Summary::average_order(len)));
        let found = self.walk(Criterion::GoalLenFast, average(self.len), goal, self.len);
        if found.is_some() {
            return found;
        }
        if self.request.purpose != Purpose::Metadata {
            let (len, least) = (self.len, self.request.least);
            let trimmed = (0..=tuning.best_avail_max_trim_order.min(order)).map(|trim| 1 << (order - trim));
            for want in trimmed.filter(|want| (least..len).contains(want)) {
                let found = self.walk(Criterion::BestAvailLen, average(want), goal, want);
                if found.is_some() {
                    return found;
                }
            }
        }
        self.walk(Criterion::GoalLenSlow, None, goal, self.len)
            .or_else(|| self.longest_seen())
            .or_else(|| self.any_free(goal))
    }

    /// The whole length, of the group around `goal` with the shortest sufficient runs on average, from the goal on and then before
    /// it. Streams elsewhere have their own such groups: in one for the whole disk they would all meet.
    pub(super) fn most_fragmented(&mut self, goal: GroupNumber) -> Option<(ClusterRun, GroupNumber)> {
        let alloc = self.alloc;
        for number in alloc.goals.prefetch_groups(goal).map(GroupNumber) {
            alloc.load_descriptor(number);
            if alloc.index.get(number).is_unread() {
                self.lock(number, false);
            }
        }
        let listed = (Key::Average, Summary::average_order(self.len));
        let walk = Walk::new(&alloc.index, (Scan::Ordered, 0), listed, goal, alloc.goals.groups_around(goal));
        self.visit_each(Criterion::GoalLenFast, walk, self.len)
    }

    /// Any free blocks, of the nearest group that has some; waits for locks.
    pub(super) fn any_free(&mut self, goal: GroupNumber) -> Option<(ClusterRun, GroupNumber)> {
        self.walk(Criterion::AnyFree, None, goal, 1)
    }

    /// The longest run that was too short, if it is still there.
    fn longest_seen(&mut self) -> Option<(ClusterRun, GroupNumber)> {
        let (group, len) = self.longest.take().filter(|(_, len)| *len >= self.request.least)?;
        Some((self.visit(Criterion::GoalLenSlow, group, len)?, group))
    }

    /// Visits groups until one gives a run: those listed under a key from an order on, or all that have blocks.
    fn walk(
        &mut self,
        criterion: Criterion,
        listed: Option<(Key, u8)>,
        goal: GroupNumber,
        want: u32,
    ) -> Option<(ClusterRun, GroupNumber)> {
        let alloc = self.alloc;
        if let Some(listed) = listed {
            if let Some(found) = self.at_heads(criterion, listed, goal, want) {
                return found;
            }
            let (groups, Tuning { scan, max_linear_groups, .. }) = (alloc.geometry.group_count, alloc.tuning);
            let walk = Walk::new(&alloc.index, (scan, max_linear_groups), listed, goal, 0..groups);
            return self.visit_each(criterion, walk, want);
        }
        let mut all = GroupsFromGoal::new(&alloc.index, goal);
        loop {
            let group = all.next(&alloc.index, OrderMask::ANY)?;
            let found = self.visit_each(criterion, std::iter::once(group), want);
            if found.is_some() {
                return found;
            }
            let is_long = self.counts.runs_scanned > alloc.tuning.max_to_scan;
            if criterion == Criterion::GoalLenSlow && is_long && self.longest.is_some() {
                return None;
            }
        }
    }

    /// Visits groups until one gives a run.
    pub(crate) fn visit_each(
        &mut self,
        criterion: Criterion,
        mut groups: impl Iterator<Item = GroupNumber>,
        want: u32,
    ) -> Option<(ClusterRun, GroupNumber)> {
        groups.find_map(|group| {
            self.counts.considered(criterion);
            let run = self.visit(criterion, group, want)?;
            self.counts.hit(criterion);
            Some((run, group))
        })
    }

    pub(crate) fn visit(
        &mut self,
        criterion: Criterion,
        number: GroupNumber,
        want: u32,
    ) -> Option<ClusterRun> {
        let index = &self.alloc.index;
        if !self.is_good(criterion, number, index.get(number), want) {
            return None;
        }
        self.alloc.load_descriptor(number);
        if !self.is_good(criterion, number, index.get(number), want) {
            return None;
        }
        let locked = self.lock(number, criterion == Criterion::AnyFree)?;
        if !self.is_good(criterion, number, index.get(number), want) {
            self.counts.lost += 1;
            return None;
        }
        self.alloc.older.touch_group_lookup();
        let buddy = locked.buddy()?;
        let gap = match criterion {
            Criterion::Power2Aligned => {
                buddy.find_chunk(want.ilog2() as u8).map(|start| FreeExtent { start, len: want })?
            }
            Criterion::AnyFree => self.best_fit(buddy, self.len)?,
            _ => self.best_fit(buddy, want)?,
        };
        if gap.len >= want {
            self.set_stream_goal(number);
            self.alloc.older.touch_group_lookup();
            return locked.use_found(gap);
        }
        if self.longest.is_none_or(|(_, len)| gap.len > len) {
            self.longest = Some((number, gap.len));
        }
        None
    }

    /// Whether a group may be looked into for `want` blocks (kernel `ext4_mb_good_group`).
    pub(crate) fn is_good(
        &self,
        criterion: Criterion,
        number: GroupNumber,
        summary: Summary,
        want: u32,
    ) -> bool {
        self.alloc.older.touch_group_info(number);
        if summary.free == 0 {
            return false;
        }
        match criterion {
            Criterion::Power2Aligned => {
                !self.is_for_metadata(number)
                    && summary.largest.is_some_and(|largest| u32::from(largest) >= want.ilog2())
            }
            Criterion::GoalLenFast | Criterion::BestAvailLen => {
                summary.free / summary.fragments.max(1) >= want
            }
            Criterion::GoalLenSlow => summary.free >= want,
            Criterion::AnyFree => true,
        }
    }

    /// The run that fits `want` most closely, cut to it, of those that a search of reasonable length sees; else the
    /// longest (kernel `ext4_mb_complex_scan_group`, `ext4_mb_measure_extent`).
    fn best_fit(&mut self, buddy: &Buddy, want: u32) -> Option<FreeExtent> {
        let (mut best, mut sufficient) = (None::<FreeExtent>, 0);
        for run in buddy.runs() {
            self.counts.runs_scanned += 1;
            let is_better = |best: FreeExtent| match (run.len >= want, best.len >= want) {
                (true, true) => run.len < best.len,
                (false, false) => run.len > best.len,
                (is_sufficient, _) => is_sufficient,
            };
            if best.is_none_or(is_better) {
                best = Some(run);
            }
            sufficient += u32::from(run.len >= want);
            let enough = run.len == want || sufficient > self.alloc.tuning.min_to_scan;
            if enough || self.counts.runs_scanned > self.alloc.tuning.max_to_scan {
                break;
            }
        }
        best.map(|best| FreeExtent { len: best.len.min(want), ..best })
    }
}
