//! Periods, limits and throughput in virtual time.
//!
//! `RUSTFLAGS='--cfg extant_rt="virtual"' cargo test -p extant-writeback --test timing --target-dir target/virtual`; with
//! `-- --nocapture` it prints throughput by the number of contexts.
#![cfg(extant_rt = "virtual")]

mod common;

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use common::{Bands, Device, PAGE, World};
use extant_block::{BlockDevice, Model, ModelledDevice};
use extant_rt::{Arc, AtomicBool, AtomicU64, Machine, Monotonic, Mutex, Ordering, parallel, sleep, work};
use extant_testing::Random;
use extant_writeback::{Inode, Reason, Tuning};

const MIB: u64 = 1 << 20;

/// Runs it in a simulation of the usual costs.
fn simulated<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let result = Rc::new(Cell::new(None));
    let place = Rc::clone(&result);
    Machine::default().run(vec![Box::new(move || place.set(Some(body())))]);
    result.take().expect("an end")
}

/// Holds no bytes.
struct Void;

impl BlockDevice for Void {
    fn size(&self) -> u64 {
        1 << 44
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Ok(())
    }
    fn write_vectored_at(&self, _: u64, _: &[io::IoSlice<'_>]) -> io::Result<()> {
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn write_zeroes(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Each file has 16 GiB of the device to itself.
fn on_model(model: Model) -> Device {
    let device = ModelledDevice::new(Void, model);
    Box::new(move |file, page, count| {
        let offset = (file.number() << 34) + page as u64 * PAGE;
        device.write_zeroes(offset, count as u64 * PAGE).is_ok()
    })
}

/// A device that writes so many bytes in a second, one request at a time.
fn slow(bytes_per_s: u64) -> Device {
    let model = Model {
        queue_depth: 1,
        write_latency_ns: 1000,
        write_bytes_per_s: bytes_per_s,
        stream_write_bytes_per_s: bytes_per_s,
        ..Model::kept("pmem").expect("kept")
    };
    on_model(model)
}

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}

#[test]
fn dirty_inodes_are_written_between_expire_and_a_period_later() {
    let written = simulated(|| {
        let begun = Monotonic::now();
        let written = Arc::new(Mutex::new(&extant_rt::LockClass { name: "LOG", rank: 125 }, Vec::new()));
        let log = written.clone();
        let device: Device = Box::new(move |file, _, _| {
            log.lock().push((file.number(), begun.elapsed()));
            true
        });
        let world = World::new(60, Bands { bands: 3, wanted: 3 }, Tuning::new(1 << 30), device);
        let mut random = Random::new(7);
        let mut dirtied = Vec::new();
        for file in 0..60 {
            sleep(Duration::from_millis(random.below(3000)));
            world.dirty(file, 0..1, 1);
            dirtied.push(begun.elapsed());
        }
        sleep(seconds(36.0));
        let written = written.lock().clone();
        written.into_iter().map(|(file, at)| at - dirtied[file as usize]).collect::<Vec<_>>()
    });
    assert_eq!(written.len(), 60, "each once");
    assert!(written.iter().all(|age| (seconds(30.0)..seconds(35.1)).contains(age)), "{written:?}");
}

#[test]
fn times_alone_are_written_within_a_period() {
    simulated(|| {
        let world = World::new(4, Bands { bands: 2, wanted: 2 }, Tuning::new(1 << 30), slow(1 << 30));
        world.touch(1);
        world.dirty(2, 0..1, 5);
        let only_times = || {
            world.writeback().statistics().contexts.iter().map(|context| context.only_times).sum::<usize>()
        };
        assert_eq!(only_times(), 1);
        sleep(seconds(5.2));
        assert!(world.is_clean(1) && !world.is_clean(2));
        // Times of an inode that has dirty bytes wait for these.
        world.touch(1);
        world.dirty(1, 0..1, 5);
        sleep(seconds(20.0));
        assert!(!world.is_clean(1));
        world.drop_pages(1);
        assert_eq!(only_times(), 1);
        sleep(seconds(5.2));
        assert!(world.is_clean(1));
    });
}

#[test]
fn contexts_write_in_the_background_until_little_is_dirty() {
    simulated(|| {
        let tuning = Tuning { background_bytes: 64 * MIB, ..Tuning::new(256 * MIB) };
        let world = World::new(8, Bands { bands: 4, wanted: 4 }, tuning, slow(1 << 30));
        for file in 0..8 {
            world.dirty(file, 0..4096, 1);
        }
        sleep(seconds(1.0));
        let dirty: u64 = world.files.iter().map(|file| file.inode_writeback().dirty_bytes()).sum();
        assert!((0..=64 * MIB).contains(&dirty), "{dirty}");
        let statistics = world.writeback().statistics();
        assert!(statistics.contexts.iter().any(|context| context.for_background > 0));
        assert_eq!(statistics.contexts.iter().map(|context| context.for_age).sum::<u64>(), 0);
    });
}

#[test]
fn what_need_not_wait_for_more_is_written_at_once() {
    simulated(|| {
        let world = World::new(3, Bands { bands: 1, wanted: 1 }, Tuning::new(1 << 40), slow(100 * MIB));
        for file in 0..3 {
            world.dirty(file, 0..4096, 1);
        }
        world.writeback().write_early(&world.files[1]);
        sleep(seconds(0.1));
        // While it is in flight: what is dirtied meanwhile is written after it.
        world.dirty(1, 4096..4097, 1);
        world.writeback().write_early(&world.files[1]);
        sleep(seconds(0.2));
        assert!(world.is_clean(1) && !world.is_clean(0) && !world.is_clean(2));
    });
}

#[test]
fn many_inodes_are_written_though_their_bytes_are_few() {
    const MAX: usize = 1024;
    let dirty_of = |count: usize| {
        simulated(move || {
            let tuning = Tuning::new(1 << 30);
            let world = World::new(count as u64, Bands { bands: 1, wanted: 1 }, tuning, slow(1 << 30));
            for file in 0..count {
                world.touch(file);
                world.dirty(file, 0..1, 1);
            }
            sleep(seconds(1.0));
            let is_dirty: Vec<_> = (0..count).map(|file| !world.is_clean(file)).collect();
            assert!(is_dirty.is_sorted(), "the oldest first");
            is_dirty.iter().filter(|is_dirty| **is_dirty).count()
        })
    };
    assert_eq!(dirty_of(MAX), MAX);
    let left = dirty_of(2 * MAX);
    assert!((MAX - 32..=MAX + 32).contains(&left), "{left} of {}", 2 * MAX);
}

#[test]
fn sync_does_not_wait_for_writers_that_never_rest() {
    let took = simulated(|| {
        let world = World::new(4, Bands { bands: 2, wanted: 2 }, Tuning::new(1 << 40), slow(256 * MIB));
        let is_over = AtomicBool::new(false);
        let took = parallel(3, |task| {
            let mut took = Duration::ZERO;
            if task == 0 {
                world.dirty(0, 0..16384, 1);
                sleep(seconds(0.1));
                let begun = Monotonic::now();
                world.writeback().write_all(Reason::Sync);
                took = begun.elapsed();
                is_over.store(true, Ordering::SeqCst);
            }
            // Each twice as fast as the device, into files of both contexts, and into the one that is written.
            let mut page = 0;
            while !is_over.load(Ordering::SeqCst) {
                world.dirty(task, page..page + 128, 2);
                page += 128;
                sleep(seconds(1.0 / 1024.0));
            }
            took
        });
        took[0]
    });
    // 166 MiB are dirty then: 0.65 s at 256 MiB/s. Each file is written up to its size when its turn comes; the last one
    // has grown by 250 MiB.
    assert!((seconds(0.65)..seconds(1.7)).contains(&took), "{took:?}");
}

#[test]
fn others_of_its_context_do_not_wait_for_a_busy_inode() {
    simulated(|| {
        let world = World::new(3, Bands { bands: 1, wanted: 1 }, Tuning::new(1 << 30), slow(1 << 30));
        world.files[0].is_busy.store(true, Ordering::SeqCst);
        for file in 0..3 {
            world.dirty(file, 0..16, 1);
        }
        world.writeback().write_all(Reason::Pressure);
        sleep(Duration::from_millis(2));
        assert!(!world.is_clean(0) && world.is_clean(1) && world.is_clean(2));
        sleep(Duration::from_millis(500));
        let context = world.writeback().statistics().contexts[0];
        assert_eq!((context.requeued, context.busy / 90), (1, 1), "about every 5 ms: {context:?}");
        world.files[0].is_busy.store(false, Ordering::SeqCst);
        sleep(Duration::from_millis(6));
        assert!(world.is_clean(0));
    });
}

#[test]
fn a_file_without_end_leaves_others_of_its_context_their_turn() {
    simulated(|| {
        let tuning = Tuning { background_bytes: MIB, ..Tuning::new(1 << 40) };
        let world = World::new(2, Bands { bands: 1, wanted: 1 }, tuning, slow(100 * MIB));
        world.dirty(0, 0..262_144, 1);
        world.dirty(1, 0..16, 1);
        // A gigabyte takes 10 s, the turn of the other comes after half a second.
        sleep(seconds(0.7));
        assert!(world.is_clean(1) && !world.is_clean(0));
    });
}

/// Measurements of writers: bytes that all wrote, their longest wait, the most that was dirty.
struct Seen {
    bytes: u64,
    longest: Duration,
    dirty_max: u64,
}

/// Writers that do nothing else, each into a file of its own, for so long.
fn write_on(world: &World, writers: usize, time: Duration) -> Seen {
    let dirty_max = AtomicU64::new(0);
    let begun = Monotonic::now();
    let seen = parallel(writers, |task| {
        let (mut page, mut longest) = (0, Duration::ZERO);
        while begun.elapsed() < time {
            let at = Monotonic::now();
            world.dirty(task, page..page + 16, 1);
            world.writeback().throttle(&world.files[task]);
            sleep(Duration::from_micros(10));
            longest = longest.max(at.elapsed());
            page += 16;
            let dirty: u64 =
                world.writeback().statistics().contexts.iter().map(|context| context.dirty_bytes).sum();
            dirty_max.fetch_max(dirty, Ordering::SeqCst);
        }
        (page as u64 * PAGE, longest)
    });
    Seen {
        bytes: seen.iter().map(|(bytes, _)| bytes).sum(),
        longest: seen.iter().map(|(_, longest)| *longest).max().unwrap_or_default(),
        dirty_max: dirty_max.into_inner(),
    }
}

#[test]
fn writers_come_to_the_devices_pace_without_passing_the_limit() {
    for (contexts, writers) in [(1, 1), (1, 12), (4, 12)] {
        let (early, late, limit) = simulated(move || {
            let limit = 64 * MIB;
            let bands = Bands { bands: 4, wanted: contexts };
            let world = World::new(12, bands, Tuning::new(limit), slow(200 * MIB));
            let early = write_on(&world, writers, seconds(3.0));
            (early, write_on(&world, writers, seconds(4.0)), limit)
        });
        let most = early.dirty_max.max(late.dirty_max);
        assert!(most <= limit + 12 * 320 * 1024, "{contexts} contexts, {writers} writers: {most} dirty");
        let rate = late.bytes as f64 / 4.0 / (200.0 * MIB as f64);
        assert!((0.93..1.07).contains(&rate), "{contexts} contexts, {writers} writers: {rate} of the device");
        assert!(late.longest <= Duration::from_millis(201), "{contexts}, {writers}: {:?}", late.longest);
    }
}

#[test]
fn limit_is_divided_among_the_contexts_that_have_something_dirty() {
    simulated(|| {
        let world = World::new(8, Bands { bands: 8, wanted: 8 }, Tuning::new(64 * MIB), slow(200 * MIB));
        let half_mib = (MIB / 2 / PAGE) as usize;
        for (file, share) in [(0, 64), (1, 32), (2, 64 / 3), (3, 16)] {
            world.dirty(file, 0..half_mib, 1);
            assert_eq!(world.writeback().context_bytes_max() / MIB, share);
        }
        world.writeback().write_all(Reason::Sync);
        world.dirty(7, 0..half_mib, 1);
        assert_eq!(world.writeback().context_bytes_max(), 64 * MIB);
    });
}

#[test]
fn writers_below_the_limit_are_not_stopped() {
    simulated(|| {
        let world = World::new(1, Bands { bands: 1, wanted: 1 }, Tuning::new(64 * MIB), slow(200 * MIB));
        for page in 0..1000 {
            world.dirty(0, page * 8..page * 8 + 8, 1);
            world.writeback().throttle(&world.files[0]);
        }
        assert_eq!(world.writeback().statistics().contexts[0].throttled, 0);
    });
}

#[test]
fn count_changes_at_once_and_every_inode_comes_where_it_belongs() {
    simulated(|| {
        let world = World::new(24, Bands { bands: 12, wanted: 1 }, Tuning::new(1 << 40), slow(1 << 30));
        (0..24).for_each(|file| world.dirty(file, 0..8, 1));
        for count in [12, 5, 1, 12, 100, 0, 3] {
            let begun = Monotonic::now();
            world.writeback().set_contexts(count).expect("threads");
            assert!(begun.elapsed() < Duration::from_millis(1));
            let count = count.clamp(1, 12);
            assert_eq!(world.writeback().contexts(), count);
            let statistics = world.writeback().statistics();
            assert_eq!(statistics.contexts.len(), count);
            let listed: Vec<_> =
                statistics.contexts.iter().map(|context| (context.dirty, context.dirty_bytes)).collect();
            let mut wanted = vec![(0, 0); count];
            for file in 0..24 {
                let place = &mut wanted[file % 12 * count / 12];
                *place = (place.0 + 1, place.1 + 8 * PAGE);
            }
            assert_eq!(listed, wanted);
        }
        assert!((0..24).all(|file| !world.is_clean(file)), "nothing is written for it");
        world.writeback().write_all(Reason::Sync);
        assert!((0..24).all(|file| world.is_clean(file)));
    });
}

/// Twelve writers of files in twelve bands, a sync and a flush of the device: bytes per second from the first byte on. A
/// context's thread works `page_ns` for each page besides the device.
fn throughput(name: &'static str, contexts: usize, page_ns: u64, bytes: u64) -> f64 {
    simulated(move || {
        let bands = Bands { bands: 12, wanted: contexts };
        let device = Arc::new(ModelledDevice::new(Void, Model::kept(name).expect("kept")));
        let below = device.clone();
        let write: Device = Box::new(move |file, page, count| {
            work(Duration::from_nanos(page_ns * count as u64));
            let offset = (file.number() << 34) + page as u64 * PAGE;
            below.write_zeroes(offset, count as u64 * PAGE).is_ok()
        });
        let world = World::new(12, bands, Tuning::new(256 * MIB), write);
        let begun = Monotonic::now();
        parallel(12, |task| {
            for page in (0..(bytes / PAGE) as usize).step_by(256) {
                world.dirty(task, page..page + 256, 1);
                world.writeback().throttle(&world.files[task]);
                // A copy at 5 GB/s.
                sleep(Duration::from_micros(210));
            }
        });
        world.writeback().write_all(Reason::Sync);
        device.flush().expect("a flush");
        (12 * bytes) as f64 / begun.elapsed().as_secs_f64()
    })
}

#[test]
fn contexts_together_write_what_the_device_takes() {
    contexts_write_what_is_offered(0);
}

/// With as much work as the kernel's flusher has: 536 MiB/s on memory, in the first version of the patches for several.
#[test]
fn contexts_that_work_for_each_page_write_what_the_device_takes() {
    contexts_write_what_is_offered(7290);
}

/// From one context to twelve, each with `page_ns` of work for a page besides the device's.
fn contexts_write_what_is_offered(page_ns: u64) {
    const BYTES: u64 = 192 * MIB;
    for name in ["bm1743", "pm9a3", "pmem", "disk-7200"] {
        let model = Model::kept(name).expect("kept");
        let one = throughput(name, 1, page_ns, BYTES);
        for contexts in [1, 2, 4, 8, 12] {
            let got = if contexts == 1 { one } else { throughput(name, contexts, page_ns, BYTES) };
            let stream = model.stream_write_bytes_per_s.min(model.write_bytes_per_s);
            // The time for 8 MiB, which a thread prepares and then writes.
            let run_ns = page_ns as f64 * 2048.0 + 8.0 * MIB as f64 / stream as f64 * 1e9;
            let run_ns = if model.rotating.is_some() { 1.0 } else { run_ns + model.write_latency_ns as f64 };
            let most_files = 12_usize.div_ceil(contexts) as f64;
            let offered =
                (8.0 * MIB as f64 / run_ns * 1e9 * 12.0 / most_files).min(model.write_bytes_per_s as f64);
            println!(
                "{name:9} {page_ns:4} ns/page {contexts:2} contexts: {:6.0} MiB/s simulated, {:4.2} of what is offered, {:4.2} of one",
                got / MIB as f64,
                got / offered,
                got / one
            );
            // Where neither the threads nor the device are it alone, the one waits for the other now and then.
            let part = if page_ns == 0 || contexts == 12 { 0.95 } else { 0.85 };
            assert!(
                got >= part * offered,
                "{name}, {page_ns} ns a page, {contexts} contexts: {got} of {offered}"
            );
            assert!(
                got >= 0.98 * one,
                "{name}, {page_ns} ns a page, {contexts} contexts: {got} and one {one}"
            );
        }
    }
}
