//! Writeback under many schedules: threads of shuttle's in the checked runtime, threads of the host in the native one.
//! The virtual runtime has none to explore.
//!
//! `make test-schedules` runs 100,000 of each kind; `make test-schedules EXTANT_REPLAY=FILE TEST=NAME` the one
//! that a failure of the test NAME left in FILE.
#![cfg(not(extant_rt = "virtual"))]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../rt/tests/common/plan.rs"]
mod plan;

use common::{Bands, World};
use extant_rt::{AtomicU64, Ordering, explore, parallel, yield_now};
use extant_testing::Random;
use extant_writeback::{Reason, Tuning};

/// Schedules of each kind in a run of all tests: a few seconds.
const SCHEDULES: usize = 500;

const FILES: u64 = 4;
const PAGES: u64 = 6;

fn world(random: &mut Random, threads: usize) -> extant_rt::Arc<World> {
    let bands = Bands { bands: 3, wanted: 1 + random.below(3) as usize };
    // Little may be dirty, so that contexts write at once and writers are slowed.
    let tuning = Tuning {
        dispatch_threads: threads,
        ..Tuning::new([1 << 40, 4 * common::PAGE][random.below(2) as usize])
    };
    World::new(FILES, bands, tuning, Box::new(|_, _, _| true))
}

/// Writes, hastens, drops, touches, changes the count, makes busy and free.
fn disturb(world: &World, task: u64, steps: u64, random: &mut Random) {
    for step in 0..steps {
        let file = random.below(FILES) as usize;
        match random.below(10) {
            0..4 => {
                let page = random.below(PAGES) as usize;
                world.dirty(file, page..page + 1, 1 + task * 1000 + step);
                world.writeback().throttle(&world.files[file]);
            }
            4 => world.writeback().write_early(&world.files[file]),
            5 => world.drop_pages(file),
            6 => world.touch(file),
            7 => world.files[file].is_busy.store(random.below(2) == 0, Ordering::SeqCst),
            8 => world.writeback().write_all(Reason::Pressure),
            _ => world.writeback().set_contexts(1 + random.below(3) as usize).expect("threads"),
        }
        yield_now();
    }
}

/// All is written in the end, and every list is empty; no inode is written by two at once (the model panics).
#[test]
fn nothing_is_lost_while_the_count_changes() {
    if !extant_testing::has_threads() {
        return;
    }
    explore(&plan::exploration(SCHEDULES), |seed| {
        let mut random = Random::new(seed);
        let threads = 1 + random.below(2) as usize;
        let world = world(&mut random, threads);
        parallel(3, |task| disturb(&world, task as u64, 5, &mut Random::new(seed ^ (task as u64 + 1))));
        world.files.iter().for_each(|file| file.is_busy.store(false, Ordering::SeqCst));
        world.writeback().write_all(Reason::Sync);
        for file in 0..FILES as usize {
            assert!(world.is_clean(file), "file {file} is dirty after all was written");
        }
        let statistics = world.writeback().statistics();
        for context in &statistics.contexts {
            assert_eq!(
                (context.dirty_bytes, context.dirty, context.requeued, context.only_times),
                (0, 0, 0, 0)
            );
        }
        world.writeback().stop();
    });
}

/// Pages that were dirty when `write_all` was called are on the disk when it returns, while others write on and the count
/// changes.
#[test]
fn sync_finds_all_that_was_dirty_before_it() {
    if !extant_testing::has_threads() {
        return;
    }
    explore(&plan::exploration(SCHEDULES), |seed| {
        let mut random = Random::new(seed);
        let world = world(&mut random, 1);
        let newest: Vec<AtomicU64> = (0..FILES * PAGES).map(|_| AtomicU64::new(0)).collect();
        parallel(3, |task| {
            let mut random = Random::new(seed ^ (task as u64 + 1));
            for step in 0..4 {
                if task == 0 {
                    // Values rise, so what is on the disk must be at least what was there before the call.
                    let before: Vec<_> = newest.iter().map(|value| value.load(Ordering::SeqCst)).collect();
                    world.writeback().write_all(Reason::Sync);
                    for (at, value) in before.iter().enumerate() {
                        let found = world.on_disk(at / PAGES as usize, at % PAGES as usize);
                        assert!(found >= *value, "page {at}: {found} on the disk, {value} was dirty before");
                    }
                } else if random.below(4) == 0 {
                    world.writeback().set_contexts(1 + random.below(3) as usize).expect("threads");
                } else {
                    // Each task has files of its own.
                    let file = random.below(FILES / 2) * 2 + task as u64 - 1;
                    let page = random.below(PAGES);
                    let value = 1 + step;
                    world.dirty(file as usize, page as usize..page as usize + 1, value);
                    newest[(file * PAGES + page) as usize].store(value, Ordering::SeqCst);
                }
            }
        });
        world.writeback().stop();
    });
}

/// Stopping releases all threads: those that wait for all inodes, and those that are throttled.
#[test]
fn stop_lets_everybody_go() {
    if !extant_testing::has_threads() {
        return;
    }
    explore(&plan::exploration(SCHEDULES), |seed| {
        let mut random = Random::new(seed);
        let threads = 1 + random.below(2) as usize;
        let world = world(&mut random, threads);
        parallel(3, |task| match task {
            0 => disturb(&world, 0, 4, &mut Random::new(seed ^ 9)),
            1 => world.writeback().write_all(Reason::Sync),
            _ => world.writeback().stop(),
        });
        world.writeback().stop();
    });
}
