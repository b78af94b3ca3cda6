//! The count of writeback contexts changes from 1 to 12 and back every 100 ms while eight threads write: no byte is lost, no
//! page is dropped.
//!
//! With EXTANT_CONTEXTS_SECONDS, for which `make test-contexts` has a minute, also: writers wait no longer than without changes.
//! Only an idle machine can show that.
//!
//! And a small disk has several contexts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use extant::mkfs::Mkfs;
use extant::{File, Filesystem, Mount};
use extant_block::{MemoryDevice, Model, ModelledDevice};

const WRITERS: usize = 8;
const CONTEXTS: usize = 12;
/// A band for each context: 64 groups of 128 MiB.
const DISK_BYTES: u64 = CONTEXTS as u64 * 64 * (128 << 20);
/// So little that writers meet the limit of dirty bytes all the time.
const CACHE_BYTES: u64 = 64 << 20;
const FILE_BYTES: u64 = 16 << 20;
/// With changes, and as long without, in turns.
const WINDOW: Duration = Duration::from_millis(500);
const CHANGE: Duration = Duration::from_millis(100);

/// A writer's record of its file, and how long its writes took without changes and with them.
struct Written {
    content: Vec<u8>,
    took: [Vec<Duration>; 2],
}

fn write_on(file: &File, writer: u64, is_changing: &AtomicBool, is_over: &AtomicBool) -> Written {
    let mut state = writer + 1;
    let mut below = move |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let mut written = Written { content: Vec::new(), took: [Vec::new(), Vec::new()] };
    while !is_over.load(Ordering::Relaxed) {
        let at = below(FILE_BYTES) as usize;
        let bytes = 1 + below(64 << 10) as usize;
        let first = below(256);
        let buf: Vec<u8> = (0..bytes as u64).map(|index| (first + index / 7) as u8).collect();
        let phase = usize::from(is_changing.load(Ordering::Relaxed));
        let begun = Instant::now();
        file.write_all_at(&buf, at as u64).expect("a write");
        written.took[phase].push(begun.elapsed());
        let end = written.content.len().max(at + bytes);
        written.content.resize(end, 0);
        written.content[at..at + bytes].copy_from_slice(&buf);
    }
    written
}

/// Changes the count in every second window: how often.
fn change_on(fs: &Filesystem, is_changing: &AtomicBool, until: Instant) -> u64 {
    let mut changes = 0;
    while Instant::now() < until {
        is_changing.store(false, Ordering::Relaxed);
        std::thread::sleep(WINDOW);
        is_changing.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while begun.elapsed() < WINDOW {
            changes += 1;
            fs.set_writeback_contexts(if changes % 2 == 0 { 1 } else { CONTEXTS }).expect("threads");
            std::thread::sleep(CHANGE);
        }
    }
    changes
}

/// The time that 999 of 1000 did not exceed.
fn most(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() * 999 / 1000]
}

#[test]
fn the_count_of_contexts_changes_under_writers_who_lose_nothing() {
    let asked = std::env::var("EXTANT_CONTEXTS_SECONDS").ok();
    let seconds = asked.as_ref().map_or(4, |text| text.parse().expect("seconds"));
    let device = Arc::new(MemoryDevice::new(DISK_BYTES));
    Mkfs::new().format(&*device).expect("a file system");
    let fs = Mount::new().page_cache_bytes(CACHE_BYTES).open_device(device.clone()).expect("a mount");
    assert_eq!(fs.writeback_contexts().expect("a page cache").1, 4 * CONTEXTS, "four ranges for each band");
    let files: Vec<File> = (0..WRITERS)
        .map(|writer| {
            fs.create_dir(format!("/{writer}")).expect("a directory");
            let path = format!("/{writer}/file");
            fs.options().read(true).write(true).create(true).open(path).expect("a file")
        })
        .collect();
    let (is_changing, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (changes, written) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..)
            .zip(&files)
            .map(|(writer, file)| {
                let (is_changing, is_over) = (&is_changing, &is_over);
                scope.spawn(move || write_on(file, writer, is_changing, is_over))
            })
            .collect();
        let changes = change_on(&fs, &is_changing, Instant::now() + Duration::from_secs(seconds));
        is_over.store(true, Ordering::Relaxed);
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
        (changes, written)
    });
    // Once writeback has stopped, a change leaves every page where it is.
    fs.sync().expect("nothing lost");
    let used = fs.page_cache_used();
    for count in [1, CONTEXTS, 1, CONTEXTS] {
        fs.set_writeback_contexts(count).expect("threads");
        assert_eq!(fs.page_cache_used(), used);
    }
    files.iter().for_each(|file| file.sync_all().expect("nothing lost"));
    drop(files);
    fs.unmount().expect("an unmount");
    let again = Mount::new().read_only(true).open_device(device).expect("a mount");
    for (writer, Written { content, .. }) in written.iter().enumerate() {
        assert!(again.read(format!("/{writer}/file")).expect("a file") == *content, "writer {writer}");
    }
    assert_eq!(again.check(&mut |_| ()).expect("a check"), []);
    let [without, with] = [0, 1]
        .map(|phase| most(written.iter().flat_map(|written| written.took[phase].iter().copied()).collect()));
    println!("{changes} changes; p99.9 of writes {without:?} without, {with:?} with");
    assert!(changes >= 4 * seconds / 2, "{changes}");
    let slowest = without + Duration::from_millis(50);
    assert!(asked.is_none() || with <= slowest, "{with:?} with, {without:?} without");
}

#[test]
fn disk_of_four_gib_has_contexts_for_directories_side_by_side() {
    const DIRECTORIES: u64 = 8;
    let device = Arc::new(MemoryDevice::new(4 << 30));
    Mkfs::new().format(&*device).expect("a file system");
    let model = Model { write_latency_ns: 1000, ..Model::kept("pmem").expect("a model") };
    let slow = Arc::new(ModelledDevice::new(device.clone(), model));
    let fs = Mount::new().page_cache_bytes(CACHE_BYTES).open_device(slow).expect("a mount");
    assert_eq!(fs.writeback_contexts(), Some((8, 8)), "where requests take time");
    fs.unmount().expect("an unmount");
    let fs = Mount::new().page_cache_bytes(CACHE_BYTES).open_device(device).expect("a mount");
    let (count, max) = fs.writeback_contexts().expect("a page cache");
    let half = std::thread::available_parallelism().map_or(1, |cpus| usize::from(cpus).div_ceil(2));
    assert_eq!((count, max), (half.min(8), 8), "in memory");
    for count in 1..=max {
        fs.set_writeback_contexts(count).expect("threads");
        assert_eq!(fs.writeback_contexts(), Some((count, max)));
    }
    for directory in 0..DIRECTORIES {
        fs.create_dir(format!("/{directory}")).expect("a directory");
        fs.write(format!("/{directory}/file"), [7; 4096]).expect("a file");
    }
    let dirty = || -> Vec<u64> {
        let statistics = fs.writeback_statistics().expect("a page cache");
        statistics.contexts.iter().map(|context| context.dirty_bytes).collect()
    };
    assert_eq!(dirty(), [4096; 8]);
    fs.set_writeback_contexts(4).expect("threads");
    assert_eq!(dirty(), [8192; 4]);
    fs.unmount().expect("an unmount");
}
