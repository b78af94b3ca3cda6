//! Threads that work at once, with commits and checkpoints in the background.
//!
//! Each thread works in a directory of its own, whose tree after a crash is one of its own history: what the threads
//! share are the log, the bitmaps, the inode tables and each other's freed blocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use extant_block::{Event, Recorder};
use extant_testing::{crash_scale, has_e2fsprogs};

use crate::disk::{BANDS, Checker, KINDS};
use crate::explore::{
    Base, Crash, Outcome, Plan, Survival, explore_recording, record_threads, recover, tree_as_is,
};
use crate::generate::{large_values, random_held_sequence, random_sequence};
use crate::model::Model;
use crate::op::{Op, xattr_name};
use crate::random::hash;
use crate::sequences::pages;
use crate::session::{Pages, mount, mount_in_background};

/// A random sequence for each of three threads.
fn sequences_within(base: &Base, seed: u64) -> [(&'static str, Vec<Op>); 3] {
    [("one", 0), ("two", 1), ("three", 2)]
        .map(|(dir, thread)| (dir, sequence_within(base, hash(&[seed, thread]))))
}

/// Unmounting is left to the thread that mounted.
pub fn sequence_within(base: &Base, seed: u64) -> Vec<Op> {
    let mut model = Model::new(base.kind.block_size, base.kind.has_extents());
    let mut ops =
        vec![Op::Mkdir("d"), Op::Mkdir("e"), Op::Create("a"), Op::Write { file: "a", at: 0, bytes: 9000 }];
    ops.iter().for_each(|op| model.apply(*op).expect("the model takes it"));
    ops.extend(random_sequence(&model, 40, seed).into_iter().map(|op| match op {
        Op::Remount => Op::Sync,
        other => other,
    }));
    ops
}

/// Operations on files that are open and have no names, and commits in between by another thread.
fn held_sequences_within(base: &Base, seed: u64) -> [(&'static str, Vec<Op>); 3] {
    let held = |thread| {
        let mut ops = vec![Op::Mkdir("d"), Op::Create("d/a")];
        ops.extend(random_held_sequence(base.kind.block_size, 60, hash(&[seed, thread])));
        ops
    };
    let commits = [Op::Mkdir("d"), Op::Sync, Op::Rmdir("d"), Op::Sync].repeat(15);
    [("one", held(0)), ("two", held(1)), ("three", commits)]
}

/// Rounds of three threads on a disk, through the page cache that `pages` says of each; how much was looked at.
fn explore_threads(
    base: &Base,
    index: u64,
    rounds: u64,
    pages: impl Fn(u64) -> Pages,
    sequences: impl Fn(&Base, u64) -> [(&'static str, Vec<Op>); 3],
) -> Outcome {
    let mut total = Outcome::default();
    let mut checker = Checker::new();
    let plan = Plan { trees: 40, checked: 10, compared: 2 };
    for round in 0..rounds {
        let seed = hash(&[index, round]);
        let sequences = sequences(base, seed);
        let outcome =
            explore_recording(record_threads(base, pages(round), &sequences), seed, plan, &mut checker);
        if let Some(finding) = outcome.bad.first() {
            println!("disk {}, round {round}: {:?}: {}", base.kind.name, finding.crash, finding.what);
            sequences.iter().for_each(|(dir, ops)| println!("{dir}: {ops:#?}"));
            panic!("threads went wrong");
        }
        total.add(outcome);
    }
    total
}

#[test]
fn threads_at_work_survive_every_crash() {
    if !extant_testing::has_threads() {
        return;
    }
    if !has_e2fsprogs() {
        return;
    }
    let mut total = Outcome::default();
    for (kind, index) in KINDS.into_iter().zip(0..) {
        let of_round = |round| if round % 2 == 0 { Pages::default() } else { pages(round / 2) };
        total.add(explore_threads(&Base::new(kind), index, 4 * crash_scale(), of_round, sequences_within));
    }
    println!("threads: {total}");
}

#[test]
fn threads_with_held_files_survive_every_crash() {
    if !extant_testing::has_threads() {
        return;
    }
    if !has_e2fsprogs() {
        return;
    }
    let mut total = Outcome::default();
    for (kind, index) in KINDS.into_iter().zip(100..) {
        let of_round = |round| if round % 2 == 0 { Pages::default() } else { pages(round / 2) };
        total.add(explore_threads(&Base::new(kind), index, crash_scale(), of_round, held_sequences_within));
    }
    println!("threads with held files: {total}");
}

/// Each thread's directory lies in a band of its own, whose files a writeback context of its own writes.
#[test]
fn threads_with_a_writeback_context_each_survive_every_crash() {
    if !extant_testing::has_threads() {
        return;
    }
    if !has_e2fsprogs() {
        return;
    }
    let base = Base::new(BANDS);
    let fs = mount_in_background(Arc::new(base.image.snapshot()), pages(0)).expect("a mount");
    let (count, max) = fs.writeback_contexts().expect("a page cache");
    assert!(count == 4 && max == 64, "{count} of {max}");
    fs.unmount().expect("an unmount");
    let rounds = 2.max(crash_scale() * crash_scale());
    let total = explore_threads(&base, KINDS.len() as u64, rounds, pages, sequences_within);
    println!("threads with a context each: {total}");
}

/// Attributes, files and then values go in updates of their own; another thread commits all the time, also in between.
#[test]
fn values_in_inodes_survive_commits_between_their_entries_and_them() {
    if !extant_testing::has_threads() {
        return;
    }
    if !has_e2fsprogs() {
        return;
    }
    let Some(base) = Base::with_values() else { return };
    let mut checker = Checker::new();
    let (mut images, mut with_orphans) = (0, 0);
    for _ in 0..80 * crash_scale() {
        let device = Arc::new(Recorder::over(base.image.snapshot()));
        let fs = mount(device.clone(), false).expect("a mount");
        let start = device.event_count();
        let (both, is_done) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (both, fs, is_done) = (&both, &fs, &is_done);
            scope.spawn(move || {
                both.wait();
                while !is_done.load(Ordering::Relaxed) {
                    fs.sync().expect("a sync");
                }
            });
            both.wait();
            for (path, key, _) in large_values() {
                let file = fs.lookup(format!("/{path}")).expect("a file");
                file.remove_xattr(&xattr_name(key)).expect("an attribute");
                if path == "d/b" && key == 12 {
                    break;
                }
            }
            for path in ["a", "d/b", "e/a"] {
                fs.remove_file(format!("/{path}")).expect("a file");
            }
            is_done.store(true, Ordering::Relaxed);
        });
        let log = device.log();
        // Most syncs find nothing to write.
        let is_written = |events: &[Event]| matches!(events, [Event::Write { .. }, Event::Flush]);
        let events = log.events().windows(2).enumerate().skip(start);
        for (index, _) in events.filter(|(_, events)| is_written(events)) {
            let crash = Crash { events: index + 2, survival: Survival::None };
            let image = crash.image(&mut log.cursor(), false);
            let recovered = tree_as_is(&image).and_then(|tree| recover(&image, &tree));
            let recovered = recovered.unwrap_or_else(|what| panic!("{crash:?}: {what}"));
            checker.check(recovered.device.inner()).unwrap_or_else(|what| panic!("{crash:?}: {what}"));
            images += 1;
            with_orphans += usize::from(recovered.orphans > 0);
        }
    }
    println!("values and commits: {images} crash images, {with_orphans} with orphans");
    assert!(with_orphans > 0, "no commit came in between");
}
