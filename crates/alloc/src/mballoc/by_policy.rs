//! The search by a [`Policy`]: the groups that it names, each looked into under its lock.

use extant_ondisk::GroupNumber;

use super::{Criterion, Search};
use crate::group::ClusterRun;
use crate::policy::{Groups, Policy, Wanted};

impl Search<'_> {
    pub(super) fn by_policy(
        &mut self,
        policy: &dyn Policy,
        goal: GroupNumber,
    ) -> Option<(ClusterRun, GroupNumber)> {
        let alloc = self.alloc;
        let groups = Groups::new(&alloc.index);
        let wanted = Wanted { goal, len: self.len, purpose: self.request.purpose };
        let (count, mut last) = (groups.count(), None);
        for _ in 0..count {
            last = policy.next_group(&groups, &wanted, last);
            let Some(group) = last.filter(|group| group.0 < count) else { break };
            self.counts.considered(Criterion::GoalLenFast);
            alloc.load_descriptor(group);
            if alloc.index.get(group).free == 0 {
                continue;
            }
            let Some(locked) = self.lock(group, false) else { continue };
            let Some(buddy) = locked.buddy() else { continue };
            let chosen = policy.extent(&wanted, buddy.runs());
            // What is not free of it is not taken.
            let taken = chosen.map(|extent| buddy.run_at(extent.start, extent.len.min(self.len)));
            match taken.filter(|extent| extent.len > 0) {
                Some(extent) => {
                    self.counts.hit(Criterion::GoalLenFast);
                    return Some((locked.use_found(extent)?, group));
                }
                None => self.counts.lost += 1,
            }
        }
        self.any_free(goal)
    }
}
