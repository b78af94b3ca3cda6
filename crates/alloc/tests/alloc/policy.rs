//! A policy decides where blocks lie, and nothing else.

use std::sync::Mutex;

use extant_alloc::policy::{FreeExtent, FreeExtents, Groups, Policy, Wanted};
use extant_alloc::{MayUse, Purpose, Scan, Tuning};
use extant_ondisk::{GroupNumber, bitmap};
use extant_testing::Random;

use crate::disk::{Disk, request};

/// Takes the last extent of the last groups.
#[derive(Debug)]
struct FromTheEnd;

impl Policy for FromTheEnd {
    fn name(&self) -> &'static str {
        "from-the-end"
    }

    fn next_group(
        &self,
        groups: &Groups<'_>,
        wanted: &Wanted,
        last: Option<GroupNumber>,
    ) -> Option<GroupNumber> {
        let before = last.map_or(groups.count(), |last| last.0);
        (0..before).rev().map(GroupNumber).find(|group| groups.free(*group) >= wanted.len)
    }

    fn extent(&self, wanted: &Wanted, extents: FreeExtents<'_>) -> Option<FreeExtent> {
        extents.filter(|extent| extent.len >= wanted.len).last()
    }
}

#[test]
fn a_policy_names_the_group_and_the_extent() {
    let alloc = Disk::new(1 + 256 * 8, 256, false)
        .open_with(0, Tuning { scan: Scan::Own(&FromTheEnd), ..Tuning::default() });
    let mut reservation = alloc.reserve(300, MayUse::RootBlocks).expect("free blocks");
    let mut take = |goal, len| {
        let request = extant_alloc::Request { purpose: Purpose::Data, ..request(goal, len) };
        let run = alloc.allocate(&mut reservation, &request).expect("reserved");
        alloc.geometry().cluster_location(run.start).expect("on the disk").0
    };
    let goal = alloc.geometry().group_first_block(GroupNumber(2)).0 + 100;
    assert_eq!(take(goal, 4), GroupNumber(2), "the goal itself is tried first");
    assert_eq!(take(goal, 4), GroupNumber(7));
    assert_eq!(take(goal, 200), GroupNumber(7));
    assert_eq!(take(goal, 60), GroupNumber(6), "there is no such extent left in the last group");
    let statistics = alloc.statistics();
    assert_eq!((statistics.requests, statistics.at_goal), (4, 1));
}

/// Answers at random: groups that do not exist, the same one again, extents that are in use or lie outside.
#[derive(Debug)]
struct AtRandom(Mutex<Random>);

impl Policy for AtRandom {
    fn name(&self) -> &'static str {
        "at-random"
    }

    fn next_group(&self, groups: &Groups<'_>, _: &Wanted, last: Option<GroupNumber>) -> Option<GroupNumber> {
        let mut random = self.0.lock().expect("no panic");
        match random.below(8) {
            0 => None,
            1 => Some(GroupNumber(u32::MAX)),
            2 => last,
            _ => Some(GroupNumber(random.below(u64::from(groups.count()) + 1) as u32)),
        }
    }

    fn extent(&self, _: &Wanted, extents: FreeExtents<'_>) -> Option<FreeExtent> {
        let mut random = self.0.lock().expect("no panic");
        match random.below(4) {
            0 => extents.last(),
            1 => Some(FreeExtent { start: random.below(300) as u32, len: u32::MAX }),
            2 => Some(FreeExtent { start: u32::MAX, len: 1 }),
            _ => None,
        }
    }
}

#[test]
fn a_policy_that_answers_at_random_gives_each_block_once_until_the_disk_is_full() {
    for seed in 1..=20 {
        let policy: &'static AtRandom = Box::leak(Box::new(AtRandom(Mutex::new(Random::new(seed)))));
        let disk = Disk::new(1 + 256 * 9, 256, seed % 2 == 0);
        let alloc = disk.open_with(0, Tuning { scan: Scan::Own(policy), ..Tuning::default() });
        let mut random = Random::new(seed);
        let mut taken = vec![0_u8; disk.geometry.blocks_count as usize / 8 + 1];
        let (mut left, mut reservation) =
            (alloc.free_blocks(), alloc.reserve(alloc.free_blocks(), MayUse::RootBlocks).expect("all"));
        while left > 0 {
            let goal = random.below(disk.geometry.blocks_count);
            let run = alloc.allocate(&mut reservation, &request(goal, 1 + random.below(40) as u32));
            let run = run.unwrap_or_else(|error| panic!("seed {seed}, {left} left: {error}"));
            for block in run.start.0..run.start.0 + u64::from(run.len) {
                let is_used = disk.is_used(block) || bitmap::is_set(&taken, block as u32);
                assert!(!is_used, "seed {seed}: block {block} twice");
                bitmap::set(&mut taken, block as u32);
            }
            left -= u64::from(run.len);
        }
    }
}
