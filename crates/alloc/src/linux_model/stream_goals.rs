//! The older forms of the stream goal without a lock: a group for all streams, or for those of a number, side by side (kernel
//! since 6.17: `s_mb_last_groups`).

use extant_ondisk::{GroupNumber, InodeNumber};
use extant_rt::{AtomicU32, Ordering};

use super::{LinuxModel, StreamGoals};

/// Groups for each goal at least (kernel: a quarter of the groups).
const GROUPS_PER_GOAL: u32 = 4;
/// No stream of the number went on anywhere yet.
const UNSET: u32 = u32::MAX;

/// See the module; empty for the other forms.
#[derive(Debug)]
pub(super) struct NumberedGoals(Box<[AtomicU32]>);

impl NumberedGoals {
    /// For `groups` groups.
    pub fn new(groups: u32, settings: LinuxModel) -> Self {
        let goals = match settings.stream_goals {
            StreamGoals::One => 1,
            StreamGoals::ByNumber => groups.div_ceil(GROUPS_PER_GOAL).min(settings.stream_goals_max).max(1),
            StreamGoals::Locked | StreamGoals::Several => 0,
        };
        Self((0..goals).map(|_| AtomicU32::new(UNSET)).collect())
    }

    /// The group where a stream goes on, if any of its number did so far.
    pub fn get(&self, inode: InodeNumber) -> Option<GroupNumber> {
        let group = self.of(inode)?.load(Ordering::Relaxed);
        (group != UNSET).then_some(GroupNumber(group))
    }

    /// The stream goes on in `group`.
    pub fn set(&self, inode: InodeNumber, group: GroupNumber) {
        if let Some(goal) = self.of(inode) {
            goal.store(group.0, Ordering::Relaxed);
        }
    }

    fn of(&self, inode: InodeNumber) -> Option<&AtomicU32> {
        self.0.get((inode.0 as usize).checked_rem(self.0.len())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goals(groups: u32, stream_goals: StreamGoals, stream_goals_max: u32) -> NumberedGoals {
        NumberedGoals::new(groups, LinuxModel { stream_goals, stream_goals_max, ..LinuxModel::default() })
    }

    #[test]
    fn streams_of_a_number_share_a_goal_or_all_one() {
        let (file, other) = (InodeNumber(12), InodeNumber(13));
        for (form, of_other) in [(StreamGoals::One, Some(GroupNumber(6))), (StreamGoals::ByNumber, None)] {
            let goals = goals(1000, form, 128);
            goals.set(file, GroupNumber(6));
            assert_eq!((goals.get(file), goals.get(other)), (Some(GroupNumber(6)), of_other), "{form:?}");
        }
        assert_eq!(goals(1000, StreamGoals::Several, 128).get(file), None);
    }

    #[test]
    fn there_is_a_goal_for_four_groups_and_no_more_than_asked_for() {
        let count = |groups, max| goals(groups, StreamGoals::ByNumber, max).0.len();
        assert_eq!([count(1000, 128), count(1000, 16), count(9, 128), count(9, 0)], [128, 16, 3, 1]);
    }
}
