//! Reads and overwrites of cached blocks while other threads cut, punch and write back the same file: none is lost, none reads what was
//! never written.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use extant::mkfs::Mkfs;
use extant::{Fallocate, Filesystem, Mount, SetAttributes};
use extant_block::{MemoryDevice, Model, ModelledDevice};
use extant_testing::{assert_clean, run, scratch, text};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const WRITERS: u64 = 3;
/// Blocks of a writer's own part of the file.
const OWN_BLOCKS: u64 = 16;
const TIME: Duration = Duration::from_secs(3);

fn mount(image: &Path) -> Filesystem {
    // Small, so that folios are evicted and writers throttled.
    Mount::new().page_cache_bytes(MIB).open(image).expect("mount")
}

#[test]
fn files_are_kept_in_memory_over_a_device_with_latency() {
    let image = || {
        let device = MemoryDevice::new(16 * MIB);
        Mkfs::new().format(&device).expect("a file system");
        device
    };
    let memory = Mount::new().open_device(Arc::new(image())).expect("mount");
    assert_eq!(memory.page_cache_used(), None);
    let slow = || Arc::new(ModelledDevice::new(image(), Model::kept("bm1743").expect("kept")));
    let has_latency = Mount::new().open_device(slow()).expect("mount");
    assert_eq!(has_latency.page_cache_used(), Some((0, 0)));
    let without = Mount::new().page_cache_bytes(0).open_device(slow()).expect("mount");
    assert_eq!(without.page_cache_used(), None);
}

#[test]
fn writes_of_several_threads_over_dirty_blocks_show_in_the_fields() {
    if !extant_testing::has_threads() {
        return;
    }
    let device = MemoryDevice::new(16 * MIB);
    Mkfs::new().format(&device).expect("a file system");
    let fs = Mount::new().page_cache_bytes(MIB).open_device(Arc::new(device)).expect("mount");
    let file = fs.options().read(true).write(true).create(true).open("/file").expect("a file");
    let block = vec![1; BLOCK as usize];
    let in_turns = || {
        for _ in 0..20 {
            file.write_all_at(&block, 0).expect("write");
            std::thread::scope(|scope| scope.spawn(|| file.write_all_at(&block, 0).expect("write")).join())
                .expect("no panic");
        }
    };
    in_turns();
    for _ in 0..50 {
        let before = file.metadata().mtime;
        file.write_all_at(&block, 0).expect("write");
        let after = file.metadata().mtime;
        assert!(after > before, "{before:?}, and after a write {after:?}");
    }
    // Of root and of another user in the same moment.
    file.set_attributes(&SetAttributes { mode: Some(0o4755), ..SetAttributes::default() }).expect("set");
    file.write_all_at(&block, 0).expect("write");
    assert_eq!(file.metadata().mode, 0o4755);
    file.write_unprivileged_at(&block, 0).expect("write");
    assert_eq!(file.metadata().mode, 0o755);
    // A sync takes the time that it writes; the next write has its own.
    in_turns();
    file.sync_all().expect("sync");
    let synced = file.metadata().mtime;
    in_turns();
    assert!(file.metadata().mtime > synced);
}

fn filled(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(BLOCK as usize / 8)
}

#[test]
fn cached_blocks_are_read_and_written_over_beside_all_that_drops_them() {
    if !extant_testing::has_threads() {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("disk.img");
    run("mke2fs", &["-q", "-F", "-t", "ext4", text(&image), "64M"]).expect("mke2fs");
    let fs = mount(&image);
    let file = fs.options().read(true).write(true).create(true).open("/file").expect("a file");
    let own_end = WRITERS * OWN_BLOCKS * BLOCK;
    file.write_all_at(&filled(1).repeat((WRITERS * OWN_BLOCKS) as usize), 0).expect("write");
    let stop = AtomicBool::new(false);
    let last: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let (file, fs, stop) = (&file, &fs, &stop);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut stamps = vec![1; OWN_BLOCKS as usize];
                    let (mut turn, mut buf) = (1_u64, vec![0; BLOCK as usize]);
                    while !stop.load(Ordering::Relaxed) {
                        turn += 1;
                        let block = turn * 7 % OWN_BLOCKS;
                        let at = (writer * OWN_BLOCKS + block) * BLOCK;
                        file.write_all_at(&filled(turn), at).expect("overwrite");
                        stamps[block as usize] = turn;
                        let other = turn * 5 % OWN_BLOCKS;
                        let at = (writer * OWN_BLOCKS + other) * BLOCK;
                        assert_eq!(file.read_at(&mut buf, at).expect("read"), buf.len());
                        assert_eq!(buf, filled(stamps[other as usize]), "block {other} of writer {writer}");
                    }
                    stamps
                })
            })
            .collect();
        // Behind the writers' parts: written, cut, punched.
        scope.spawn(move || {
            let mut turn = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                turn += 1;
                file.write_all_at(&filled(turn), own_end + turn % 9 * BLOCK).expect("append");
                let punched = Fallocate::PunchHole;
                file.allocate(punched, own_end + turn % 4 * BLOCK, BLOCK).expect("punch");
                if turn.is_multiple_of(3) {
                    file.set_len(own_end + turn % 7 * 1000).expect("cut");
                }
            }
        });
        // A reader of the tail: blocks of one stamp, or zeroes.
        scope.spawn(move || {
            let mut buf = vec![0; BLOCK as usize];
            let mut turn = 0;
            while !stop.load(Ordering::Relaxed) {
                turn += 1;
                let read = file.read_at(&mut buf, own_end + turn % 9 * BLOCK).expect("read");
                let words: Vec<_> = buf[..read - read % 8].chunks(8).collect();
                let zero = [0; 8];
                let stamp = words.first().copied().unwrap_or(&zero);
                // A cut leaves zeroes behind it.
                assert!(words.iter().all(|word| *word == stamp || *word == zero), "two stamps in a block");
            }
        });
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                file.sync_data().expect("sync");
                fs.sync().expect("sync");
            }
        });
        let start = Instant::now();
        while start.elapsed() < TIME && !writers.iter().any(|writer| writer.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    });
    let turns: u64 = last.iter().flatten().max().copied().unwrap_or(0);
    assert!(turns > 100, "hardly anything was done: {turns} turns");
    drop(file);
    fs.unmount().expect("unmount");

    let fs = mount(&image);
    let content = fs.read("/file").expect("read");
    for (block, stamp) in last.iter().flatten().enumerate() {
        let at = block * BLOCK as usize;
        assert_eq!(content[at..at + BLOCK as usize], filled(*stamp), "block {block} lost its last write");
    }
    fs.unmount().expect("unmount");
    assert_clean(&image, "written over");
}
