//! Linux as a peer: it recovers a crashed disk to the same tree.

use crate::disk::{Checker, KINDS, has_tools};
use crate::explore::{Base, Crash, Scenario, tree_as_is};
use crate::random::{Random, hash};
use crate::sequences::{deep_scenario, log_end_scenario, random_scenario};

/// Crashes of each sequence that Linux recovers.
const CRASHES: usize = 3;

/// How many crashes were recovered.
fn compare(scenario: &Scenario<'_>, checker: &mut Checker) -> usize {
    let recording = scenario.record().unwrap_or_else(|what| panic!("{what}\n{scenario}"));
    let mut crashes = Crash::all_of(&recording, scenario.seed);
    Random::new(scenario.seed).shuffle(&mut crashes);
    crashes.truncate(CRASHES);
    for crash in &crashes {
        let image = crash.image(&mut recording.log.cursor());
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
    if !has_tools() {
        return;
    }
    let mut checker = Checker::new();
    let mut count = 0;
    for (kind, index) in KINDS.into_iter().zip(0..) {
        let base = Base::new(kind);
        if let Err(what) = checker.recover_by_linux(&base.image) {
            println!("skipped: a clean disk, {}, is not mounted by Linux here: {what}", kind.name);
            continue;
        }
        for seed in 0..2 {
            let seed = hash(&[seed, index]);
            for scenario in [
                random_scenario(&base, seed, 40, 0),
                log_end_scenario(&base, seed % 1000),
                deep_scenario(&base, seed),
            ] {
                count += compare(&scenario, &mut checker);
            }
        }
    }
    println!("recovered by Linux: {count} crash images");
}
