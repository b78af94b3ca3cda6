//! Sequences on faithful devices: no crash may leave anything bad.

use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use extant_testing::{Random, crash_scale, has_e2fsprogs};

use crate::disk::{CLUSTERS, Checker, KINDS, QUOTAS};
use crate::explore::{Base, Finding, Outcome, Plan, Scenario, explore, shrink};
use crate::fault::Fault;
use crate::generate::{
    alphabet, held_sequences, random_content_sequence, random_sequence, random_unsynced_sequence,
    sequences_of_three, sequences_of_two, short_sequences, value_alphabet,
};
use crate::op::{FILES, Op};
use crate::random::hash;
use crate::session::Pages;

const THREADS: usize = 2;
/// Findings after which a test stops.
const FINDINGS_MAX: usize = 5;

/// Page caches of several kinds: large, so small that writers flush, and without what is written already.
pub fn pages(seed: u64) -> Pages {
    match seed % 3 {
        0 => Pages { bytes: 16 << 20, keep_clean: true },
        1 => Pages { bytes: 32 << 10, keep_clean: true },
        _ => Pages { bytes: 16 << 20, keep_clean: false },
    }
}

/// The disk and seed of the one sequence that is wanted: `EXTANT_CRASH_ONLY=DISK:SEED`.
fn only() -> Option<(String, u64)> {
    let wanted = env::var("EXTANT_CRASH_ONLY").ok()?;
    let (disk, seed) = wanted.split_once(':').expect("EXTANT_CRASH_ONLY is DISK:SEED");
    Some((disk.to_owned(), seed.parse().expect("a seed")))
}

/// Explores all scenarios, or every crash of the one that is wanted, and fails if anything is bad, shortened.
fn explore_all(name: &str, scenarios: &[Scenario<'_>], mut plan: Plan) -> Outcome {
    let wanted: Vec<Scenario<'_>>;
    let mut scenarios = scenarios;
    if let Some((disk, seed)) = only() {
        let is_wanted = |scenario: &&Scenario<'_>| scenario.base.kind.name == disk && scenario.seed == seed;
        wanted = scenarios.iter().filter(is_wanted).cloned().collect();
        scenarios = &wanted;
        plan = Plan { trees: 10_000, checked: 300, compared: 50 };
    }
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Outcome::default());
    let failed: Mutex<Vec<(Scenario<'_>, Finding)>> = Mutex::new(Vec::new());
    extant_rt::parallel(THREADS, |_| {
        let mut checker = Checker::new();
        while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = explore(scenario, plan, &mut checker);
            if let Some(finding) = outcome.bad.first() {
                let mut failed = failed.lock().expect("findings");
                failed.push((scenario.clone(), finding.clone()));
                if failed.len() >= FINDINGS_MAX {
                    next.store(scenarios.len(), Ordering::Relaxed);
                }
            }
            total.lock().expect("totals").add(outcome);
        }
    });
    let total = total.into_inner().expect("totals");
    println!("{name}: {total}");
    let failed = failed.into_inner().expect("findings");
    for (scenario, finding) in &failed {
        report(scenario, finding);
    }
    assert!(failed.is_empty(), "{name}: {} sequences went wrong", failed.len());
    total
}

fn report(scenario: &Scenario<'_>, finding: &Finding) {
    let (disk, seed, scale) = (scenario.base.kind.name, scenario.seed, crash_scale());
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    println!(
        "EXTANT_CRASH_SCALE={scale} EXTANT_CRASH_ONLY={disk}:{seed} cargo test -p extant --test crash {test}"
    );
    println!("\n{:?}: {}\n{scenario}", finding.crash, finding.what);
    let plan = Plan { trees: 200, checked: 30, compared: 10 };
    let (shorter, found) = shrink(scenario, plan, &mut Checker::new());
    if let Some(found) = found {
        println!("shortened: {:?}: {}\n{shorter}", found.crash, found.what);
    }
}

/// From 5 to 40 operations, so that few seeds have lengths of all kinds.
fn random_length(seed: u64) -> usize {
    5 + seed as usize * 7 % 36
}

/// The random sequence of a disk, seed and length.
pub fn random_scenario(base: &Base, seed: u64, len: usize, commits: u32) -> Scenario<'_> {
    let ops = random_sequence(&base.model, len, hash(&[seed, len as u64]));
    Scenario { base, ops, fault: Fault::None, commits, seed, pages: Pages::default() }
}

/// A sequence with a commit after every operation, within which the log turns round.
pub fn log_end_scenario(base: &Base, seed: u64) -> Scenario<'_> {
    let mut scenario = random_scenario(base, seed, 60, 150 + (seed as u32 * 37) % 200);
    scenario.ops = scenario.ops.iter().flat_map(|op| [*op, Op::Sync]).collect();
    scenario
}

/// A sequence after which a file has many extents, and then changes of content.
pub fn deep_scenario(base: &Base, seed: u64) -> Scenario<'_> {
    let count = 300 + (seed % 4) as u32 * 60;
    let mut ops = vec![Op::Sparse { file: "a", block: 5, count }, Op::Sync];
    let mut model = base.model.clone();
    ops.iter().for_each(|op| model.apply(*op).expect("the model takes it"));
    ops.extend(random_content_sequence(&model, 12, hash(&[seed])));
    Scenario { base, ops, fault: Fault::None, commits: 0, seed, pages: Pages::default() }
}

/// A sequence in which nothing asks for a commit before the end.
pub fn unsynced_scenario(base: &Base, seed: u64) -> Scenario<'_> {
    let mut ops = random_unsynced_sequence(&base.model, 50, hash(&[seed]));
    ops.push(Op::Sync);
    Scenario { base, ops, fault: Fault::None, commits: 0, seed, pages: Pages::default() }
}

/// Runs `explore` on each kind of disk.
fn on_each_disk(explore: impl Fn(&Base, u64) -> Outcome) -> Outcome {
    let mut total = Outcome::default();
    for (index, kind) in KINDS.into_iter().enumerate() {
        total.add(explore(&Base::new(kind), index as u64));
    }
    total
}

/// One of `parts` parts of the sequences for each [`crash_scale`], so that a scale of `parts` has them all.
fn sampled(sequences: Vec<Vec<Op>>, parts: u64) -> Vec<Vec<Op>> {
    let is_in = |index: u64| hash(&[index, 11]) % parts < crash_scale();
    sequences.into_iter().zip(0..).filter(|(_, index)| is_in(*index)).map(|(ops, _)| ops).collect()
}

/// Explores short sequences for blocks of a size through `pages`, each on one of the disks; on which follows from its seed and
/// `salt`.
fn explore_short(
    name: &str,
    salt: &[u64],
    sequences: impl Fn(u64) -> Vec<Vec<Op>>,
    pages: impl Fn(u64) -> Pages,
) {
    if !has_e2fsprogs() {
        return;
    }
    let total = on_each_disk(|base, index| {
        let is_here = |seed: u64| hash(&[&[seed], salt].concat()) % KINDS.len() as u64 == index;
        let scenarios: Vec<Scenario<'_>> = sequences(base.kind.block_size)
            .into_iter()
            .zip(0..)
            .filter(|(_, seed)| is_here(*seed))
            .map(|(ops, seed)| Scenario {
                base,
                ops,
                fault: Fault::None,
                commits: 0,
                seed,
                pages: pages(seed),
            })
            .collect();
        let plan = Plan { trees: 2 + crash_scale() as usize, checked: 1, compared: 0 };
        explore_all(&format!("{name}, {}", base.kind.name), &scenarios, plan)
    });
    println!("{name}: {total}");
}

#[test]
fn sequences_of_two_operations_survive_every_crash() {
    let sample = |block| sampled(short_sequences(block), 9);
    explore_short("short sequences", &[], sample, |_| Pages::default());
}

/// The same through a page cache: writes get their places later, and several at once.
#[test]
fn delayed_sequences_of_two_operations_survive_every_crash() {
    let sample = |block| sampled(short_sequences(block), 9);
    explore_short("delayed short sequences", &[1], sample, pages);
}

/// Pairs of operations on an open file without a name.
#[test]
fn operations_on_held_files_without_names_survive_every_crash() {
    let sample = |block| sampled(held_sequences(block), 9);
    explore_short("held files", &[4], sample, |_| Pages::default());
    explore_short("delayed held files", &[5], sample, pages);
}

#[test]
fn a_sample_of_sequences_of_three_operations_survives_every_crash() {
    let sample = |block| sequences_of_three(block, 100 * crash_scale());
    explore_short("sequences of three", &[2], sample, |_| Pages::default());
    explore_short("delayed sequences of three", &[3], sample, pages);
}

/// Sequences of all kinds, also on full disks and with deep trees, through page caches of several kinds.
#[test]
fn delayed_sequences_survive_every_crash() {
    if !has_e2fsprogs() {
        return;
    }
    let total = on_each_disk(|base, index| {
        let full = Base::with_free_blocks(base.kind, Some(20 + index * 5));
        let scenarios: Vec<Scenario<'_>> = (0..5 * crash_scale())
            .map(|seed| {
                let number = seed * KINDS.len() as u64 + index;
                let scenario = match seed % 8 {
                    0 => deep_scenario(base, number),
                    1 => unsynced_scenario(base, number),
                    2 => log_end_scenario(base, number),
                    3 => random_scenario(&full, number, 20, 0),
                    _ => random_scenario(base, number, random_length(seed), 0),
                };
                Scenario { pages: pages(seed), ..scenario }
            })
            .collect();
        let plan = Plan { trees: 25, checked: 8, compared: 1 };
        explore_all(&format!("delayed sequences, {}", base.kind.name), &scenarios, plan)
    });
    println!("delayed sequences: {total}");
}

#[test]
fn random_sequences_survive_every_crash() {
    if !has_e2fsprogs() {
        return;
    }
    let total = on_each_disk(|base, index| {
        let scenarios: Vec<Scenario<'_>> = (0..6 * crash_scale())
            .map(|seed| random_scenario(base, seed * KINDS.len() as u64 + index, random_length(seed), 0))
            .collect();
        let plan = Plan { trees: 20, checked: 8, compared: 1 };
        explore_all(&format!("random sequences, {}", base.kind.name), &scenarios, plan)
    });
    println!("random sequences: {total}");
}

/// Inline content moves to blocks before it changes.
#[test]
fn content_in_inodes_survives_every_crash() {
    if !has_e2fsprogs() {
        return;
    }
    let base = Base::with_inline_content();
    let changes = alphabet(base.kind.block_size).into_iter().zip(0..).map(|(op, seed)| {
        let ops = vec![op, Op::Append { file: "d/b", bytes: 3 }, Op::Create("e/d/a"), Op::Sync];
        Scenario { base: &base, ops, fault: Fault::None, commits: 0, seed, pages: Pages::default() }
    });
    let random =
        (1000..1000 + 12 * crash_scale()).map(|seed| random_scenario(&base, seed, random_length(seed), 0));
    let scenarios: Vec<Scenario<'_>> = changes
        .chain(random)
        .flat_map(|scenario| [scenario.clone(), Scenario { pages: pages(scenario.seed), ..scenario }])
        .collect();
    let plan = Plan { trees: 20, checked: 8, compared: 1 };
    println!("content in inodes: {}", explore_all("content in inodes", &scenarios, plan));
}

/// Usage is in the transaction of what it counts.
#[test]
fn usage_survives_every_crash() {
    if !has_e2fsprogs() {
        return;
    }
    let base = Base::new(QUOTAS);
    let random = (0..8 * crash_scale()).map(|seed| random_scenario(&base, seed, random_length(seed), 0));
    let scenarios: Vec<Scenario<'_>> = random
        .flat_map(|scenario| [scenario.clone(), Scenario { pages: pages(scenario.seed), ..scenario }])
        .collect();
    let plan = Plan { trees: 20, checked: 12, compared: 1 };
    println!("quotas: {}", explore_all("quotas", &scenarios, plan));
}

/// A cluster is free when no extent is in it, and a block of metadata is revoked when it is none.
#[test]
fn extents_that_share_clusters_survive_every_crash() {
    if !has_e2fsprogs() {
        return;
    }
    for kind in CLUSTERS {
        let base = Base::new(kind);
        let block = kind.block_size;
        // Blocks that are unmapped and mapped again in one transaction, in a cluster that the file keeps.
        let unmap = [
            Op::Truncate { file: "a", bytes: 7 * block + 894 },
            Op::Punch { file: "a", at: 8 * block, bytes: 3 * block },
        ];
        let map = [
            Op::Write { file: "a", at: 8 * block + 331, bytes: 317 },
            Op::Allocate { file: "a", at: 8 * block, bytes: 2 * block, keep_size: false },
        ];
        let again = unmap.into_iter().flat_map(|unmap| map.map(|map| [unmap, map])).zip(0..);
        let again = again.map(|([unmap, map], seed)| Scenario {
            base: &base,
            ops: vec![
                Op::Write { file: "a", at: 6 * block, bytes: 5 * block },
                Op::Fsync("a"),
                unmap,
                map,
                Op::Write { file: "a", at: 8 * block + 17, bytes: 100 },
                Op::Chmod { path: "b", mode: 0o600 },
            ],
            fault: Fault::None,
            commits: 0,
            seed,
            pages: if seed % 2 == 0 { Pages::default() } else { pages(seed) },
        });
        let random = (0..4 * crash_scale()).map(|seed| {
            let mut scenario = random_scenario(&base, seed, random_length(seed), 0);
            scenario.ops.iter_mut().for_each(|op| *op = op.in_clusters(16));
            let pages = if seed % 2 == 0 { pages(seed) } else { Pages::default() };
            Scenario { pages, ..scenario }
        });
        let scenarios: Vec<Scenario<'_>> = again.chain(random).collect();
        let plan = Plan { trees: 20, checked: 10, compared: 1 };
        println!("{}: {}", kind.name, explore_all(kind.name, &scenarios, plan));
    }
}

/// Attribute values in inodes of their own are deleted with the last entry that names them, at once or after the crash.
#[test]
fn values_in_inodes_survive_every_crash() {
    if !has_e2fsprogs() {
        return;
    }
    let Some(base) = Base::with_values() else { return };
    let short = sequences_of_two(&value_alphabet()).into_iter().zip(0..).map(|(ops, seed)| Scenario {
        base: &base,
        ops,
        fault: Fault::None,
        commits: 0,
        seed,
        pages: Pages::default(),
    });
    let short: Vec<_> = short.collect();
    let plan = Plan { trees: 3 + crash_scale() as usize, checked: 1, compared: 0 };
    let mut total = explore_all("values in inodes, short sequences", &short, plan);
    let random: Vec<_> =
        (10_000..10_000 + 25 * crash_scale()).map(|seed| random_value_scenario(&base, seed)).collect();
    let plan = Plan { trees: 20, checked: 8, compared: 1 };
    total.add(explore_all("values in inodes, random sequences", &random, plan));
    println!("values in inodes: {total}");
}

/// A random sequence, of operations on values for the most part.
pub fn random_value_scenario(base: &Base, seed: u64) -> Scenario<'_> {
    let on_values = value_alphabet();
    let mut scenario = random_scenario(base, seed, 5 + seed as usize % 16, 0);
    let mut random = Random::new(hash(&[seed, 7]));
    let mut ops = Vec::new();
    for op in scenario.ops {
        ops.extend([random.pick(&on_values), random.pick(&on_values), op]);
    }
    scenario.ops = ops;
    Scenario { pages: pages(seed), ..scenario }
}

/// J13, J14 of `docs/design/journal.md`.
#[test]
fn sequences_around_the_end_of_the_log_survive_every_crash() {
    if !has_e2fsprogs() {
        return;
    }
    let total = on_each_disk(|base, index| {
        let scenarios: Vec<Scenario<'_>> = (0..2 * crash_scale())
            .map(|seed| log_end_scenario(base, seed * KINDS.len() as u64 + index))
            .collect();
        let plan = Plan { trees: 40, checked: 10, compared: 1 };
        explore_all(&format!("around the end of the log, {}", base.kind.name), &scenarios, plan)
    });
    println!("around the end of the log: {total}");
}

/// Nothing asks for a commit: a transaction ends where it is full.
#[test]
fn sequences_without_syncs_survive_every_crash() {
    if !has_e2fsprogs() {
        return;
    }
    let mut total = Outcome::default();
    // Blocks must be small for so many of them to change.
    for (kind, index) in KINDS.into_iter().filter(|kind| kind.block_size == 1024).zip(0..) {
        let base = Base::new(kind);
        let scenarios: Vec<Scenario<'_>> =
            (0..crash_scale()).map(|seed| unsynced_scenario(&base, seed * 3 + index)).collect();
        let plan = Plan { trees: 30, checked: 15, compared: 2 };
        total.add(explore_all(&format!("without syncs, {}", kind.name), &scenarios, plan));
    }
    println!("without syncs: {total}, {} flushes", total.flushes);
    // Two are for the sync at the end.
    assert!(only().is_some() || total.flushes > 3 * total.sequences, "no transaction became full");
}

/// Many extents in one file: trees of three levels where blocks are small. Ranges are cut out of them and moved.
#[test]
fn deep_extent_trees_survive_every_crash() {
    if !has_e2fsprogs() {
        return;
    }
    let total = on_each_disk(|base, index| {
        let scenarios: Vec<Scenario<'_>> =
            (0..crash_scale()).map(|seed| deep_scenario(base, seed * KINDS.len() as u64 + index)).collect();
        let plan = Plan { trees: 30, checked: 10, compared: 1 };
        explore_all(&format!("deep trees, {}", base.kind.name), &scenarios, plan)
    });
    println!("deep trees: {total}");
}

/// Operations fail or do a part because blocks run out, and freed blocks are wanted at once.
#[test]
fn sequences_on_full_disks_survive_every_crash() {
    if !has_e2fsprogs() {
        return;
    }
    let mut total = Outcome::default();
    for (kind, index) in KINDS.into_iter().zip(0..) {
        let base = Base::with_free_blocks(kind, Some(8 + index * 5));
        let scenarios: Vec<Scenario<'_>> = (0..5 * crash_scale())
            .map(|seed| {
                let mut scenario = random_scenario(&base, seed * KINDS.len() as u64 + index, 20, 0);
                let wish = |at: usize| Op::Append { file: FILES[at % 3], bytes: 6 * kind.block_size + 1 };
                scenario.ops = scenario.ops.iter().enumerate().flat_map(|(at, op)| [*op, wish(at)]).collect();
                scenario
            })
            .collect();
        let plan = Plan { trees: 20, checked: 8, compared: 1 };
        total.add(explore_all(&format!("full disks, {}", base.kind.name), &scenarios, plan));
    }
    println!("full disks: {total}, {} operations failed for space", total.failed_for_space);
    assert!(only().is_some() || total.failed_for_space > total.sequences, "the disks were not full");
}
