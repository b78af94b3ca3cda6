//! Linux as a peer: it recovers a crashed disk to the same tree.

use extant_rt::Arc;
use extant_testing::{Random, crash_scale, has_e2fsprogs};

use crate::disk::{Checker, DiskKind, KINDS};
use crate::explore::{Base, Crash, Scenario, Survival, tree_as_is};
use crate::fault::Fault;
use crate::op::Op;
use crate::random::hash;
use crate::sequences::{
    deep_scenario, log_end_scenario, random_scenario, random_value_scenario, unsynced_scenario,
};
use crate::session::Pages;
use crate::session::mount;

/// Crashes of each sequence that Linux recovers.
const CRASHES: usize = 3;

/// How many crashes were recovered.
fn compare(scenario: &Scenario<'_>, checker: &mut Checker) -> usize {
    let recording = scenario.record().unwrap_or_else(|what| panic!("{what}\n{scenario}"));
    let mut crashes = Crash::all_of(&recording, scenario.seed);
    Random::new(scenario.seed).shuffle(&mut crashes);
    crashes.truncate(CRASHES);
    for crash in &crashes {
        let image = crash.image(&mut recording.log.cursor(), false);
        let tree = tree_as_is(&image).unwrap_or_else(|what| panic!("{crash:?}: {what}\n{scenario}"));
        let recovered =
            checker.recover_by_linux(&image).unwrap_or_else(|what| panic!("{crash:?}: {what}\n{scenario}"));
        assert!(
            tree_as_is(&recovered).as_ref() == Ok(&tree),
            "{crash:?}: Linux sees another tree\n{scenario}"
        );
    }
    crashes.len()
}

#[test]
fn linux_recovers_the_same_tree() {
    if !has_e2fsprogs() {
        return;
    }
    let mut checker = Checker::new();
    let mut count = 0;
    if let Some(base) = Base::with_values() {
        for seed in 0..4 * crash_scale() {
            count += compare(&random_value_scenario(&base, seed), &mut checker);
        }
    }
    for (kind, index) in KINDS.into_iter().zip(0..) {
        let base = Base::new(kind);
        if let Err(what) = checker.recover_by_linux(&base.image) {
            println!("skipped: a clean disk, {}, is not mounted by Linux here: {what}", kind.name);
            continue;
        }
        for seed in 0..crash_scale() {
            let seed = hash(&[seed, index]);
            for scenario in [
                random_scenario(&base, seed, 40, 0),
                log_end_scenario(&base, seed % 1000),
                deep_scenario(&base, seed),
                unsynced_scenario(&base, seed),
            ] {
                count += compare(&scenario, &mut checker);
            }
        }
    }
    println!("recovered by Linux: {count} crash images");
}

/// A sequence found by the explorer: with the right `count` the transaction is full within the last truncation.
fn truncation_when_full(base: &Base, count: u32) -> Scenario<'_> {
    let ops = vec![
        Op::Sparse { file: "a", block: 27, count: 62 },
        Op::Fill { dir: "e/d", count: 54 },
        Op::Fill { dir: "e", count: 96 },
        Op::Sparse { file: "a", block: 14, count: 88 },
        Op::Fill { dir: "d", count: 56 },
        Op::Fill { dir: "e", count: 87 },
        Op::Fill { dir: "d", count: 97 },
        Op::Sparse { file: "b", block: 11, count: 72 },
        Op::Fill { dir: "d", count: 97 },
        Op::Drain { dir: "e", count: 60 },
        Op::Fill { dir: "e", count: 98 },
        Op::Fill { dir: "d", count: 52 },
        Op::Fill { dir: "d", count: 95 },
        Op::Truncate { file: "a", bytes: 70 },
        Op::Sparse { file: "e/a", block: 27, count: 98 },
        Op::Fill { dir: "e/d", count: 44 },
        Op::Drain { dir: "e/d", count: 16 },
        Op::Fill { dir: "e/d", count },
        Op::Sparse { file: "a", block: 6, count: 91 },
        Op::Drain { dir: "e", count: 46 },
        Op::SetXattr { path: "e/a", key: 1, bytes: 200 },
        Op::Release,
        Op::Truncate { file: "e/a", bytes: 70 },
        Op::Create("c"),
        Op::Sparse { file: "c", block: 4, count: 47 },
    ];
    Scenario { base, ops, fault: Fault::None, commits: 0, seed: u64::from(count), pages: Pages::default() }
}

/// How many crashes within a truncation Linux finished.
fn finish_truncations(scenario: &Scenario<'_>, checker: &mut Checker) -> usize {
    let recording = scenario.record().unwrap_or_else(|what| panic!("{what}\n{scenario}"));
    let mut finished = 0;
    for crash in Crash::all_of(&recording, 0).into_iter().filter(|crash| crash.survival == Survival::All) {
        let image = crash.image(&mut recording.log.cursor(), false);
        let fs = mount(Arc::new(image.snapshot()), false).expect("mount");
        if fs.mounted().orphans == 0 || finished == 8 {
            continue;
        }
        finished += 1;
        let tree = tree_as_is(&image).expect("a tree");
        let recovered = checker.recover_by_linux(&image).unwrap_or_else(|what| panic!("{what}"));
        let theirs = tree_as_is(&recovered).expect("a tree");
        assert_eq!(tree.difference(&theirs), None, "{crash:?}\n{scenario}");
    }
    finished
}

/// The step that a crash leaves of a long truncation is finished by Linux as by us, and the attributes stay.
#[test]
fn linux_finishes_our_truncations() {
    if !has_e2fsprogs() {
        return;
    }
    let base = Base::new(DiskKind::named("1k-plain").expect("a disk"));
    let mut checker = Checker::new();
    if let Err(what) = checker.recover_by_linux(&base.image) {
        println!("skipped: a clean disk is not mounted by Linux here: {what}");
        return;
    }
    let scenarios = (0..60).map(|more| truncation_when_full(&base, 1 + more));
    let finished =
        scenarios.map(|scenario| finish_truncations(&scenario, &mut checker)).find(|count| *count > 0);
    println!("truncations that Linux finished: {finished:?}");
    assert!(finished.is_some(), "no crash came within a truncation");
}
