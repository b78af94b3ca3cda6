//! Where streams go on, and the inodes of directories whose group is full: a group for each in every slot, chosen by the
//! band and number of the file or directory.
//!
//! A goal is a hint. Large files of one slot begin one behind the other; those of different slots stay apart. As long
//! as no two streams of a band meet in a group they share one slot, so that free space stays in one piece too. A slot begins
//! where the first of its files is. Of inodes all slots are in use from the beginning, so that creators in one tree keep
//! apart; the kernel has the hint in each directory.

use std::ops::Range;

use extant_ondisk::{GroupNumber, InodeNumber};
use extant_rt::{AtomicBool, AtomicU32, Ordering, Padded};

use crate::bands::Bands;

/// Groups for each goal at least (kernel: a quarter of the groups).
const GROUPS_PER_GOAL: u32 = 4;
/// Goals at most, but for the least of each band.
const GOALS_MAX: u32 = 64;
const PER_BAND_MIN: u32 = 4;

/// Groups whose bitmaps are read together: four flex groups of usual size, whose bitmaps lie side by side. All are of one band.
const PREFETCH_GROUPS: u32 = 64;
/// Nobody used the slot yet.
const UNSET: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Goals {
    bands: Bands,
    /// Slots of a band, and those that its streams use: a power of two, or all.
    per_band: u32,
    in_use: Box<[Padded<AtomicU32>]>,
    slots: Box<[Padded<Slot>]>,
    groups: u32,
    /// By [`PREFETCH_GROUPS`] groups, whether their bitmaps were read.
    prefetched: Box<[AtomicBool]>,
}

/// The groups where streams and inodes go on.
#[derive(Debug)]
struct Slot {
    stream: AtomicU32,
    inodes: AtomicU32,
}

impl Goals {
    /// Goals for `groups` groups; none for streams unless they have any.
    pub fn new(groups: u32, has_streams: bool) -> Self {
        let bands = Bands::new(groups);
        let (_, groups_per_band) = bands.groups(0);
        let per_band =
            (GOALS_MAX / bands.count()).max(PER_BAND_MIN).min(groups_per_band.div_ceil(GROUPS_PER_GOAL));
        let streams = u32::from(has_streams);
        let slots = bands.count() * per_band;
        let unset = || AtomicU32::new(UNSET);
        Self {
            bands,
            per_band,
            groups,
            in_use: (0..bands.count()).map(|_| Padded(AtomicU32::new(streams))).collect(),
            slots: (0..slots).map(|_| Padded(Slot { stream: unset(), inodes: unset() })).collect(),
            prefetched: (0..groups.div_ceil(PREFETCH_GROUPS)).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// The group where a stream of the inode goes on, if any did so far.
    pub fn stream(&self, near: GroupNumber, inode: InodeNumber) -> Option<GroupNumber> {
        get(&self.stream_slot(near, inode)?.stream)
    }

    /// The stream goes on in `group`. Writes nothing if that is known.
    pub fn set_stream(&self, near: GroupNumber, inode: InodeNumber, group: GroupNumber) {
        if let Some(slot) = self.stream_slot(near, inode) {
            set(&slot.stream, group);
        }
    }

    /// The group where inodes of the directory go on that its own has no room for, if any did so far.
    pub fn inodes(&self, near: GroupNumber, directory: InodeNumber) -> Option<GroupNumber> {
        get(&self.slot(near, self.turn(near, directory))?.inodes)
    }

    /// The directory's inodes go on in `group`. Writes nothing if that is known.
    pub fn set_inodes(&self, near: GroupNumber, directory: InodeNumber, group: GroupNumber) {
        if let Some(slot) = self.slot(near, self.turn(near, directory)) {
            set(&slot.inodes, group);
        }
    }

    /// The number of the directory's slot in its band: another one for the next directory, in its group or in the next.
    pub fn turn(&self, near: GroupNumber, directory: InodeNumber) -> u32 {
        near.0.wrapping_add(directory.0) % self.per_band
    }

    /// A stream met another one: those of its band use twice as many slots from now on, as far as there are.
    pub fn split_streams(&self, near: GroupNumber) {
        let Some(in_use) = self.in_use.get(self.bands.of(near) as usize) else { return };
        let now = in_use.load(Ordering::Relaxed);
        if (1..self.per_band).contains(&now) {
            in_use.store((now * 2).min(self.per_band), Ordering::Relaxed);
        }
    }

    /// Whether the streams of a band have a goal and did not meet so far, and so share it.
    pub fn have_not_met(&self, near: GroupNumber) -> bool {
        self.in_use
            .get(self.bands.of(near) as usize)
            .is_some_and(|in_use| in_use.load(Ordering::Relaxed) == 1)
    }

    /// The groups around `goal` whose bitmaps are read together.
    pub fn groups_around(&self, goal: GroupNumber) -> Range<u32> {
        let first = goal.0 / PREFETCH_GROUPS * PREFETCH_GROUPS;
        first.min(self.groups)..(first + PREFETCH_GROUPS).min(self.groups)
    }

    /// The groups around `goal`, the first time that they are asked for: how their free space is broken up is known only
    /// when their bitmaps are read (kernel `ext4_mb_prefetch`).
    pub fn prefetch_groups(&self, goal: GroupNumber) -> Range<u32> {
        let place = goal.0 / PREFETCH_GROUPS;
        match self.prefetched.get(place as usize) {
            Some(known) if !known.load(Ordering::Relaxed) => {
                known.store(true, Ordering::Relaxed);
                self.groups_around(goal)
            }
            _ => 0..0,
        }
    }

    fn stream_slot(&self, near: GroupNumber, inode: InodeNumber) -> Option<&Slot> {
        let in_use = self.in_use.get(self.bands.of(near) as usize)?.load(Ordering::Relaxed);
        self.slot(near, inode.0.checked_rem(in_use)?)
    }

    fn slot(&self, near: GroupNumber, number: u32) -> Option<&Slot> {
        let slot = self.slots.get((self.bands.of(near) * self.per_band + number) as usize)?;
        Some(&slot.0)
    }
}

fn get(goal: &AtomicU32) -> Option<GroupNumber> {
    let group = goal.load(Ordering::Relaxed);
    (group != UNSET).then_some(GroupNumber(group))
}

fn set(goal: &AtomicU32, group: GroupNumber) {
    if goal.load(Ordering::Relaxed) != group.0 {
        goal.store(group.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(goals: &Goals, near: u32, inode: u32) -> Option<u32> {
        goals.stream(GroupNumber(near), InodeNumber(inode)).map(|group| group.0)
    }

    #[test]
    fn streams_share_a_slot_of_their_band_until_they_meet() {
        let goals = Goals::new(8, true);
        assert_eq!(goal(&goals, 7, 15), None);
        goals.set_stream(GroupNumber(7), InodeNumber(15), GroupNumber(6));
        assert_eq!([12, 13].map(|inode| goal(&goals, 0, inode)), [Some(6); 2]);
        assert!(goals.have_not_met(GroupNumber(0)));
        goals.split_streams(GroupNumber(3));
        assert!(!goals.have_not_met(GroupNumber(0)));
        assert_eq!([12, 13, 14].map(|inode| goal(&goals, 0, inode)), [Some(6), None, Some(6)]);
        goals.set_stream(GroupNumber(0), InodeNumber(13), GroupNumber(1));
        goals.split_streams(GroupNumber(3));
        assert_eq!(
            [12, 13].map(|inode| goal(&goals, 0, inode)),
            [Some(6), Some(1)],
            "there are but two slots"
        );
    }

    #[test]
    fn each_neighbourhood_is_prefetched_once() {
        let goals = Goals::new(100, true);
        assert_eq!(
            [70, 64, 99, 0].map(|goal| goals.prefetch_groups(GroupNumber(goal))),
            [64..100, 0..0, 0..0, 0..64]
        );
        assert_eq!(goals.prefetch_groups(GroupNumber(128)), 0..0);
    }

    #[test]
    fn bands_have_their_own_slots() {
        let goals = Goals::new(1000, true);
        for (near, group) in [(0, 5), (999, 990)] {
            goals.set_stream(GroupNumber(near), InodeNumber(99), GroupNumber(group));
        }
        assert_eq!([0, 999, 500].map(|near| goal(&goals, near, 99)), [Some(5), Some(990), None]);
        let none = Goals::new(8, false);
        none.set_stream(GroupNumber(0), InodeNumber(12), GroupNumber(3));
        none.split_streams(GroupNumber(0));
        assert_eq!(goal(&none, 0, 12), None);
        assert!(!none.have_not_met(GroupNumber(0)), "none has a goal");
    }

    #[test]
    fn inodes_go_on_in_slots_of_their_own_band_by_directory() {
        for has_streams in [true, false] {
            let goals = Goals::new(8192, has_streams);
            assert_eq!(goals.inodes(GroupNumber(130), InodeNumber(7)), None);
            goals.set_inodes(GroupNumber(130), InodeNumber(7), GroupNumber(140));
            let goal = |near, directory| goals.inodes(GroupNumber(near), InodeNumber(directory));
            assert_eq!([goal(130, 7), goal(130, 11), goal(131, 6)], [Some(GroupNumber(140)); 3]);
            assert_eq!([goal(130, 8), goal(131, 7), goal(2, 7)], [None; 3]);
        }
    }
}
