//! Live ranges against a plain map, and how many ranges a look-up visits.

use std::collections::BTreeMap;

use extant_ondisk::{FsBlock, LogicalBlock};

use super::predicted_end;
use super::ranges::{Found, PaRange, PaRanges};
use super::tree::PaTree;
use crate::group::Run;
use crate::linux_model::pa_list::PaList;
use crate::tuning::Preallocation;

fn range(logical: u32, start: u64, len: u32) -> PaRange {
    PaRange { logical: LogicalBlock(logical), run: Run { start: FsBlock(start), len } }
}

/// Ranges of 8 blocks, 16 apart, in an order without pattern.
fn scattered(count: u32) -> impl Iterator<Item = PaRange> {
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
            let visits = |at: u32| tree.around(LogicalBlock(at)).visits;
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
        let mut list = PaList::uncapped(scattered(count));
        let lookups = 200.min(count);
        let all: u64 = (0..lookups)
            .map(|index| {
                let at = (u64::from(index) * u64::from(count) / u64::from(lookups)) as u32;
                list.use_at(LogicalBlock(at * 16), 1).1
            })
            .sum();
        let mean = all as f64 / f64::from(lookups);
        println!("list of {count}: {mean:.1} visits on average");
        assert!(mean > f64::from(count) / 4.0, "{mean} visits in a list of {count}");
    }
}

#[test]
fn the_list_keeps_512_ranges_and_the_tree_all() {
    for (form, kept) in [(Preallocation::List, 512..=641), (Preallocation::Tree, 5_000..=5_000)] {
        let mut ranges = PaRanges::new(form);
        let gone: usize = scattered(5_000).map(|range| ranges.insert(range).len()).sum();
        let left = ranges.into_ranges().len();
        assert_eq!(left + gone, 5_000);
        assert!(kept.contains(&left), "{form:?}: {left} ranges");
    }
}

#[test]
fn the_list_has_what_was_taken_ahead_at_a_time_once_until_its_last_block_is_given() {
    let mut list = PaList::default();
    list.insert(range(0, 7, 2_000));
    let mut take = |at: u32| list.use_at(LogicalBlock(at), 1);
    let given = |at: u32| Found::Run(Run { start: FsBlock(7 + u64::from(at)), len: 1 });
    for at in (0..2_000).step_by(2) {
        assert_eq!(take(at), (given(at), 1));
    }
    assert_eq!(take(4), (Found::Room(1), 3), "three passes over one item");
    for at in (1..2_000).step_by(2) {
        assert_eq!(take(at), (given(at), 1));
    }
    assert_eq!(take(4), (Found::Room(u32::MAX), 0));
}

#[test]
fn the_list_lets_those_go_that_gave_nothing_for_longest() {
    let mut list = PaList::default();
    for at in 0..641 {
        assert_eq!(list.insert(range(at * 16, u64::from(at) * 8, 8)), []);
    }
    assert_eq!(list.use_at(LogicalBlock(0), 1).1, 641, "the oldest is last");
    let gone = list.insert(range(641 * 16, 641 * 8, 8));
    let oldest: Vec<_> = (1..=130).rev().map(|at| range(at * 16, u64::from(at) * 8, 8)).collect();
    assert_eq!(gone, oldest);
}

/// Random ranges and look-ups against a map from each logical block to its block.
#[test]
fn random_ranges_give_each_block_once_and_never_overlap() {
    for seed in 1..=40_u64 {
        let form = if seed % 4 == 0 { Preallocation::List } else { Preallocation::Tree };
        let (mut ranges, mut model) = (PaRanges::new(form), BTreeMap::new());
        let mut state = seed;
        let mut below = |end: u64| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            state.wrapping_mul(0x2545_F491_4F6C_DD1D) % end
        };
        let mut next = 0;
        for _ in 0..3_000 {
            let (at, len) = (below(4_000) as u32, 1 + below(30) as u32);
            if below(2) == 0 {
                let room = model.range(at..).next().map_or(u32::MAX, |(found, _)| found - at);
                let len = len.min(room);
                if len > 0 {
                    model.extend((0..len).map(|index| (at + index, next + u64::from(index))));
                    let gone = ranges.insert(range(at, next, len));
                    forget(&mut model, &gone);
                    next += 100;
                }
                continue;
            }
            let (found, _) = ranges.use_at(LogicalBlock(at), len);
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
