//! Live ranges against a plain map, and how many ranges a look-up visits.

use std::collections::BTreeMap;

use extant_ondisk::{Cluster, LogicalCluster};
use extant_testing::Random;

use super::normalize::predicted_end;
use super::ranges::{Found, PaRange};
use super::tree::PaTree;
use crate::group::ClusterRun;
use crate::linux_model::{PaRanges, trimmed};

pub fn range(logical: u32, start: u64, len: u32) -> PaRange {
    PaRange { logical: LogicalCluster(logical), run: ClusterRun { start: Cluster(start), len } }
}

/// Ranges of 8 blocks, 16 apart, in an order without pattern.
pub fn scattered(count: u32) -> impl Iterator<Item = PaRange> {
    // A step that has no factor in common with any power of ten passes through all.
    (0..u64::from(count)).map(move |index| {
        let at = (index * 7_368_787 % u64::from(count)) as u32;
        range(at * 16, u64::from(at) * 8, 8)
    })
}

#[test]
fn a_look_up_visits_at_most_twice_the_logarithm_of_the_ranges() {
    for count in [100, 10_000, 1_000_000_u32] {
        let most = (2.0 * f64::from(count).log2()).floor() as u64;
        let orders: [Vec<PaRange>; 2] =
            [scattered(count).collect(), (0..count).map(|at| range(at * 16, u64::from(at) * 8, 8)).collect()];
        for order in orders {
            let mut tree = PaTree::default();
            order.iter().for_each(|range| tree.insert(*range));
            let visits = |at: u32| tree.around(LogicalCluster(at)).visits;
            let (mut worst, mut all) = (0, 0);
            for at in 0..count {
                let seen = visits(at * 16 + at % 16);
                worst = worst.max(seen);
                all += seen;
            }
            let mean = all as f64 / f64::from(count);
            println!("tree of {count}: at most {worst} visits, {mean:.1} on average");
            assert!(worst <= most, "{worst} of {most} with {count} ranges");
        }
    }
}

/// Random ranges and look-ups against a map from each logical block to its block.
pub fn random_ranges_give_each_block_once(seed: u64, mut ranges: PaRanges) {
    let mut model = BTreeMap::new();
    let mut random = Random::new(seed);
    let mut next = 0;
    for _ in 0..3_000 {
        let (at, len) = (random.below(4_000) as u32, 1 + random.below(30) as u32);
        if random.below(2) == 0 {
            let room = model.range(at..).next().map_or(u32::MAX, |(found, _)| found - at);
            let len = len.min(room);
            if len > 0 {
                model.extend((0..len).map(|index| (at + index, next + u64::from(index))));
                assert!(ranges.is_apart(range(at, next, len)), "seed {seed}");
                ranges.insert(range(at, next, len));
                forget(&mut model, &trimmed(&mut ranges));
                next += 100;
            }
            continue;
        }
        let (found, _) = ranges.use_at(LogicalCluster(at), len);
        match found {
            Found::Run(run) => {
                assert!(run.len >= 1 && run.len <= len);
                for index in 0..run.len {
                    let block = model.remove(&(at + index));
                    assert_eq!(block, Some(run.start.0 + u64::from(index)), "seed {seed}");
                }
            }
            Found::Room(room) => {
                let expected = model.range(at..).next().map_or(u32::MAX, |(found, _)| found - at);
                assert!(!model.contains_key(&at), "seed {seed}: {at} is covered");
                assert_eq!(room, expected, "seed {seed}");
            }
        }
    }
    forget(&mut model, &ranges.into_ranges());
    assert!(model.is_empty(), "seed {seed}: {} blocks lost", model.len());
}

#[test]
fn random_ranges_give_each_block_once_and_never_overlap() {
    (1..=40).for_each(|seed| random_ranges_give_each_block_once(seed, PaRanges::default()));
}

#[test]
fn the_tree_keeps_all_ranges() {
    let mut ranges = PaRanges::default();
    let gone: usize = scattered(5_000)
        .map(|range| {
            ranges.insert(range);
            trimmed(&mut ranges).len()
        })
        .sum();
    assert_eq!((gone, ranges.into_ranges().len()), (0, 5_000));
}

fn forget(model: &mut BTreeMap<u32, u64>, gone: &[PaRange]) {
    for PaRange { logical, run } in gone {
        for index in 0..run.len {
            assert_eq!(model.remove(&(logical.0 + index)), Some(run.start.0 + u64::from(index)));
        }
    }
}

#[test]
fn files_grow_in_the_kernels_steps_and_large_ones_by_8_mib() {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    let steps = [
        ((0, 1), 16 * KIB),
        ((12 * KIB, 16 * KIB), 16 * KIB),
        ((16 * KIB, 16 * KIB + 1), 32 * KIB),
        ((0, MIB), MIB),
        ((MIB, MIB + 1), 2 * MIB),
        ((MIB, 3 * MIB), 4 * MIB),
        ((4 * MIB, 4 * MIB + 1), 8 * MIB),
        ((8 * MIB, 8 * MIB + 1), 16 * MIB),
        ((99 * MIB, 100 * MIB), 107 * MIB),
        ((0, 100 * MIB), 8 * MIB),
        ((u64::MAX - 1, u64::MAX), u64::MAX),
    ];
    for ((start, end), predicted) in steps {
        assert_eq!(predicted_end(start, end), predicted, "{start}..{end}");
    }
}
