//! Where streams go on: a group for each of several slots, chosen by the inode's band and number.
//!
//! A goal is a hint. Large files of one slot are packed one behind the other; those of different slots stay apart.

use extant_ondisk::{GroupNumber, InodeNumber};
use extant_rt::{AtomicU32, Ordering, Padded};

use crate::bands::Bands;
use crate::tuning::StreamGoals;

/// Groups for each goal at least (kernel: a quarter of the groups).
const GROUPS_PER_GOAL: u32 = 4;
/// Goals at most.
const GOALS_MAX: u32 = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Goals {
    bands: Bands,
    per_band: u32,
    groups: Box<[Padded<AtomicU32>]>,
}

impl Goals {
    /// Goals for `groups` groups. [`StreamGoals::Locked`] is kept elsewhere.
    pub fn new(groups: u32, form: StreamGoals) -> Self {
        let bands = if form == StreamGoals::One { Bands::one(groups) } else { Bands::new(groups) };
        let (_, groups_per_band) = bands.groups(0);
        let per_band = match form {
            StreamGoals::Off | StreamGoals::Locked => 0,
            StreamGoals::One => 1,
            StreamGoals::Several => {
                (GOALS_MAX / bands.count()).min(groups_per_band.div_ceil(GROUPS_PER_GOAL)).max(1)
            }
        };
        let starts = (0..bands.count()).flat_map(|band| {
            let (first, count) = bands.groups(band);
            // Spread over the band.
            (0..per_band)
                .map(move |slot| first.0 + (u64::from(slot) * u64::from(count) / u64::from(per_band)) as u32)
        });
        Self { bands, per_band, groups: starts.map(|start| Padded(AtomicU32::new(start))).collect() }
    }

    /// The group where a stream of the inode goes on.
    pub fn get(&self, home: GroupNumber, inode: InodeNumber) -> Option<GroupNumber> {
        Some(GroupNumber(self.slot(home, inode)?.load(Ordering::Relaxed)))
    }

    /// The stream goes on in `group`. Writes nothing if that is known.
    pub fn set(&self, home: GroupNumber, inode: InodeNumber, group: GroupNumber) {
        if let Some(slot) = self.slot(home, inode)
            && slot.load(Ordering::Relaxed) != group.0
        {
            slot.store(group.0, Ordering::Relaxed);
        }
    }

    fn slot(&self, home: GroupNumber, inode: InodeNumber) -> Option<&AtomicU32> {
        let slot = inode.0.checked_rem(self.per_band)?;
        self.groups.get((self.bands.of(home) * self.per_band + slot) as usize).map(|padded| &padded.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_start_apart_inside_their_band() {
        let goals = Goals::new(8, StreamGoals::Several);
        let start = |inode| goals.get(GroupNumber(0), InodeNumber(inode));
        assert_eq!([12, 13, 14].map(start), [0, 4, 0].map(|group| Some(GroupNumber(group))));
        goals.set(GroupNumber(7), InodeNumber(15), GroupNumber(6));
        assert_eq!([12, 13].map(start), [0, 6].map(|group| Some(GroupNumber(group))));

        let goals = Goals::new(1000, StreamGoals::Several);
        for group in [0, 100, 700, 999] {
            let group = GroupNumber(group);
            let goal = goals.get(group, InodeNumber(99)).expect("a goal");
            assert_eq!(goals.bands.of(goal), goals.bands.of(group));
        }
        let goals = Goals::new(1000, StreamGoals::One);
        goals.set(GroupNumber(7), InodeNumber(15), GroupNumber(6));
        assert_eq!(goals.get(GroupNumber(999), InodeNumber(12)), Some(GroupNumber(6)));
        assert_eq!(Goals::new(8, StreamGoals::Off).get(GroupNumber(0), InodeNumber(12)), None);
    }
}
