//! Where streams go on: a group for each of several slots, chosen by the inode's band and number.
//!
//! A goal is a hint. Large files of one slot are packed one behind the other; those of different slots stay apart. As long
//! as no two streams of a band meet in a group they share one slot, so that free space stays in one piece too. A slot begins
//! where the first of its files is.

use std::ops::Range;

use extant_ondisk::{GroupNumber, InodeNumber};
use extant_rt::{AtomicBool, AtomicU32, Ordering, Padded};

use crate::bands::Bands;
use crate::tuning::StreamGoals;

/// Groups for each goal at least (kernel: a quarter of the groups).
const GROUPS_PER_GOAL: u32 = 4;
/// Goals at most.
const GOALS_MAX: u32 = 64;

/// Groups that are surveyed together: four flex groups of usual size, whose bitmaps lie side by side.
const SURVEYED_TOGETHER: u32 = 64;
/// Nobody used the slot yet.
const UNSET: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Goals {
    bands: Bands,
    /// Slots that a band may have, and those in use by band: a power of two, or all.
    per_band: u32,
    in_use: Box<[Padded<AtomicU32>]>,
    groups: Box<[Padded<AtomicU32>]>,
    /// By [`SURVEYED_TOGETHER`] groups, whether their bitmaps were read.
    surveyed: Box<[AtomicBool]>,
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
        let slots = bands.count() * per_band;
        Self {
            bands,
            per_band,
            in_use: (0..bands.count()).map(|_| Padded(AtomicU32::new(per_band.min(1)))).collect(),
            groups: (0..slots).map(|_| Padded(AtomicU32::new(UNSET))).collect(),
            surveyed: (0..groups.div_ceil(SURVEYED_TOGETHER)).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// The group where a stream of the inode goes on, if any did so far.
    pub fn get(&self, home: GroupNumber, inode: InodeNumber) -> Option<GroupNumber> {
        let group = self.slot(home, inode)?.load(Ordering::Relaxed);
        (group != UNSET).then_some(GroupNumber(group))
    }

    /// The stream goes on in `group`. Writes nothing if that is known.
    pub fn set(&self, home: GroupNumber, inode: InodeNumber, group: GroupNumber) {
        if let Some(slot) = self.slot(home, inode)
            && slot.load(Ordering::Relaxed) != group.0
        {
            slot.store(group.0, Ordering::Relaxed);
        }
    }

    /// A stream met another one: those of its band use twice as many slots from now on, as far as there are.
    pub fn part(&self, home: GroupNumber) {
        let Some(in_use) = self.in_use.get(self.bands.of(home) as usize) else { return };
        let now = in_use.load(Ordering::Relaxed);
        if now < self.per_band {
            in_use.store((now * 2).min(self.per_band), Ordering::Relaxed);
        }
    }

    /// The groups around `goal`, the first time that they are asked for: how their free space is broken up is known only
    /// when their bitmaps are read (kernel `ext4_mb_prefetch`).
    pub fn survey(&self, goal: GroupNumber) -> Range<u32> {
        let place = goal.0 / SURVEYED_TOGETHER;
        match self.surveyed.get(place as usize) {
            Some(known) if !known.load(Ordering::Relaxed) => {
                known.store(true, Ordering::Relaxed);
                let first = place * SURVEYED_TOGETHER;
                first..first + SURVEYED_TOGETHER
            }
            _ => 0..0,
        }
    }

    fn slot(&self, home: GroupNumber, inode: InodeNumber) -> Option<&AtomicU32> {
        let band = self.bands.of(home);
        let in_use = self.in_use.get(band as usize)?.load(Ordering::Relaxed);
        let slot = inode.0.checked_rem(in_use)?;
        self.groups.get((band * self.per_band + slot) as usize).map(|padded| &padded.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(goals: &Goals, home: u32, inode: u32) -> Option<u32> {
        goals.get(GroupNumber(home), InodeNumber(inode)).map(|group| group.0)
    }

    #[test]
    fn streams_share_a_slot_of_their_band_until_they_meet() {
        let goals = Goals::new(8, StreamGoals::Several);
        assert_eq!(goal(&goals, 7, 15), None);
        goals.set(GroupNumber(7), InodeNumber(15), GroupNumber(6));
        assert_eq!([12, 13].map(|inode| goal(&goals, 0, inode)), [Some(6); 2]);
        goals.part(GroupNumber(3));
        assert_eq!([12, 13, 14].map(|inode| goal(&goals, 0, inode)), [Some(6), None, Some(6)]);
        goals.set(GroupNumber(0), InodeNumber(13), GroupNumber(1));
        goals.part(GroupNumber(3));
        assert_eq!(
            [12, 13].map(|inode| goal(&goals, 0, inode)),
            [Some(6), Some(1)],
            "there are but two slots"
        );
    }

    #[test]
    fn each_neighbourhood_is_surveyed_once() {
        let goals = Goals::new(100, StreamGoals::Several);
        assert_eq!([70, 64, 99, 0].map(|goal| goals.survey(GroupNumber(goal))), [64..128, 0..0, 0..0, 0..64]);
        assert_eq!(goals.survey(GroupNumber(128)), 0..0);
    }

    #[test]
    fn bands_have_their_own_slots() {
        let goals = Goals::new(1000, StreamGoals::Several);
        for (home, group) in [(0, 5), (999, 990)] {
            goals.set(GroupNumber(home), InodeNumber(99), GroupNumber(group));
        }
        assert_eq!([0, 999, 500].map(|home| goal(&goals, home, 99)), [Some(5), Some(990), None]);
        let one = Goals::new(1000, StreamGoals::One);
        one.set(GroupNumber(7), InodeNumber(15), GroupNumber(6));
        one.part(GroupNumber(7));
        assert_eq!(goal(&one, 999, 12), Some(6));
        let none = Goals::new(8, StreamGoals::Off);
        none.set(GroupNumber(0), InodeNumber(12), GroupNumber(3));
        none.part(GroupNumber(0));
        assert_eq!(goal(&none, 0, 12), None);
    }
}
