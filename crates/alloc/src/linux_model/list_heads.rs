//! The older form of the walk by order: from the head of the lowest sufficient order, on the index or on the lists
//! ([`super::order_lists`]).

use extant_ondisk::GroupNumber;

use super::ListHead;
use super::order_lists::OrderLists;
use crate::group::ClusterRun;
use crate::group::summary::Key;
use crate::mballoc::scan::Walk;
use crate::mballoc::{Criterion, Search};
use crate::tuning::{Scan, Tuning};

impl Search<'_> {
    /// Visits groups from the head of the lowest sufficient order on until one gives a run.
    pub(crate) fn at_heads(
        &mut self,
        criterion: Criterion,
        listed: (Key, u8),
        goal: GroupNumber,
        want: u32,
    ) -> Option<Option<(ClusterRun, GroupNumber)>> {
        let alloc = self.alloc;
        let Tuning { scan, max_linear_groups, linux_model, .. } = alloc.tuning;
        match (linux_model.list_head, &alloc.older.lists) {
            _ if scan != Scan::Ordered => None,
            (ListHead::Index, _) => {
                let (from, groups) = (GroupNumber(0), 0..alloc.geometry.group_count);
                let walk = Walk::new(&alloc.index, (scan, max_linear_groups), listed, from, groups);
                Some(self.visit_each(criterion, walk, want))
            }
            (_, lists) => lists.as_ref().map(|lists| self.at_heads_of(lists, criterion, listed, goal, want)),
        }
    }

    /// The goal, and then the first group of the lowest sufficient list that seems to suit, as often as there are groups: a
    /// group that another took meanwhile is met again (kernel `ext4_mb_choose_next_group`).
    fn at_heads_of(
        &mut self,
        lists: &OrderLists,
        criterion: Criterion,
        (key, least): (Key, u8),
        goal: GroupNumber,
        want: u32,
    ) -> Option<(ClusterRun, GroupNumber)> {
        let alloc = self.alloc;
        let mut group = goal;
        for _ in 0..alloc.geometry.group_count {
            self.counts.considered(criterion);
            if let Some(run) = self.visit(criterion, group, want) {
                self.counts.hit(criterion);
                return Some((run, group));
            }
            group = lists.first(key, least, |number| {
                let is_busy = || alloc.locks.is_locked(number, alloc.touched(number));
                !(alloc.tuning.linux_model.skip_busy && is_busy())
                    && self.is_good(criterion, number, alloc.index.get(number), want)
            })?;
        }
        None
    }
}
