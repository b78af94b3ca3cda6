//! Files between us and the kernel, and between threads.

use std::fs;

use extant_block::{MemoryDevice, Recorder};
use extant_ondisk::InodeNumber;
use extant_rt::Arc;
use extant_testing::crash_scale;

use super::disk::{
    Random, assert_clean, crash_images, format, has_e2fsprogs, has_threads, mount, mount_with_pages,
};
use super::fills::share_in_turns;
use super::kernel::KernelMount;
use crate::file::fallocate::Fallocate;
use crate::incore::inode_cache::InodeRef;
use crate::mount::{Options, Volume};

fn content(volume: &Volume, inode: &InodeRef) -> Vec<u8> {
    let mut bytes = vec![0; inode.state().size() as usize];
    let read = volume.read_at(inode, 0, &mut bytes).unwrap();
    assert_eq!(read, bytes.len());
    bytes
}

/// Scattered blocks, holes and unwritten ranges.
fn write_scattered(volume: &Volume, inode: &InodeRef, block_size: u64, random: &mut Random) {
    for _ in 0..1_500 {
        let bytes = random.below(2 * block_size) as usize + 1;
        let buf = random.bytes(bytes);
        volume.write_at(inode, Some(random.below(6_000) * block_size / 2), &buf, true).unwrap();
    }
    for what in [
        Fallocate::ZeroRange { keep_size: true },
        Fallocate::PunchHole,
        Fallocate::Allocate { keep_size: true },
    ] {
        for _ in 0..100 {
            let (offset, bytes) = (random.below(3_000 * block_size), random.below(9 * block_size) + 1);
            volume.fallocate(inode, what, offset, bytes, true).unwrap();
        }
    }
}

#[test]
fn the_kernel_reads_and_changes_what_we_wrote_and_we_read_that() {
    if !has_e2fsprogs() {
        return;
    }
    for (block_size, seed) in [(1024, 1), (4096, 2)] {
        let arguments = ["-b", &block_size.to_string(), "-J", "size=4", "-N", "64"];
        let (device, inodes) = format(&arguments, 40 << 10, &["a"]);
        let device = Arc::new(device);
        let volume = mount(&device);
        let inode = volume.inode(inodes[0]).unwrap();
        let mut random = Random::new(seed);
        write_scattered(&volume, &inode, block_size, &mut random);
        let ours = content(&volume, &inode);
        volume.unmount().unwrap();
        drop((inode, volume));
        let Some(kernel) = KernelMount::new(&*device) else { return };
        let file = kernel.path().join("a");
        assert!(fs::read(&file).unwrap() == ours, "the kernel reads something else");
        let bytes = |blocks: u64| (blocks * block_size).to_string();
        for _ in 0..40 {
            let (at, len) = (bytes(random.below(1_500)), bytes(random.below(30) + 1));
            for mode in ["-p", "-z", "-i", "-c"] {
                kernel.run("fallocate", &[mode, "-o", &at, "-l", &len, "a"]);
            }
        }
        kernel.run("truncate", &["-s", &(ours.len() as u64 * 3 / 4 + 77).to_string(), "a"]);
        let theirs = fs::read(&file).unwrap();
        let device = Arc::new(kernel.unmount());
        let volume = mount(&device);
        let inode = volume.inode(inodes[0]).unwrap();
        assert!(content(&volume, &inode) == theirs, "we read something else than the kernel");
        write_scattered(&volume, &inode, block_size, &mut random);
        volume.set_size(&inode, 12_345).unwrap();
        volume.unmount().unwrap();
        drop((inode, volume));
        assert_clean(&*device, "after the kernel's changes and ours");
    }
}

const THREADS: u64 = 4;
const SHARE: u64 = 64 << 10;

#[test]
fn threads_write_grow_and_cut_files_of_their_own_and_one_together() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let names = ["0", "1", "2", "3", "shared"];
    let (device, inodes) = format(&["-b", "1024", "-J", "size=4", "-N", "64"], 32 << 10, &names);
    for pages in [0, 96 << 10, 32 << 20] {
        share(&Arc::new(device.snapshot()), &inodes, pages);
    }
}

fn share(device: &Arc<MemoryDevice>, inodes: &[InodeNumber], pages: u64) {
    let volume = mount_with_pages(device, pages, true);
    let shared = volume.inode(inodes[4]).unwrap();
    volume.write_at(&shared, Some(0), &vec![9; (THREADS * SHARE) as usize], true).unwrap();
    let own = |thread: u64| -> Vec<u8> {
        let inode = volume.inode(inodes[thread as usize]).unwrap();
        let mut random = Random::new(100 + thread);
        let mut model: Vec<u8> = Vec::new();
        for round in 0..300 {
            let at = random.below(200_000);
            let bytes = random.below(9_000) as usize + 1;
            let buf = random.bytes(bytes);
            volume.write_at(&inode, Some(at), &buf, true).unwrap();
            model.resize(model.len().max(at as usize + bytes), 0);
            model[at as usize..at as usize + bytes].copy_from_slice(&buf);
            let location = thread * SHARE + random.below(SHARE - 9_001);
            volume.write_at(&shared, Some(location), &vec![thread as u8; bytes], true).unwrap();
            match round % 40 {
                7 => volume.sync_inode(&inode, round % 80 == 7).unwrap(),
                19 => {
                    let size = random.below(200_000);
                    volume.set_size(&inode, size).unwrap();
                    model.resize(size as usize, 0);
                }
                _ => {}
            }
            if round % 10 == 3 {
                let mut read = vec![0; model.len() + 1];
                assert_eq!(volume.read_at(&inode, 0, &mut read).unwrap(), model.len());
                assert!(read[..model.len()] == model, "thread {thread}, round {round}");
            }
        }
        model
    };
    std::thread::scope(|scope| {
        let own = &own;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || own(thread))).collect();
        for (thread, handle) in threads.into_iter().enumerate() {
            let model = handle.join().unwrap();
            assert!(content(&volume, &volume.inode(inodes[thread]).unwrap()) == model, "thread {thread}");
        }
    });
    for (thread, share) in content(&volume, &shared).chunks(SHARE as usize).enumerate() {
        assert!(share.iter().all(|byte| *byte == 9 || usize::from(*byte) == thread), "share {thread}");
    }
    volume.unmount().unwrap();
    assert_clean(&**device, "after all threads");
}

/// What a thread writes to: its first and its last block are others', too, unless it writes whole blocks, which fill holes beside those of
/// others.
#[derive(Clone, Copy)]
struct Own {
    bytes: usize,
    unit: usize,
}

const OF_BYTES: Own = Own { bytes: 24_000, unit: 1 };
const OF_BLOCKS: Own = Own { bytes: 24 << 10, unit: 1 << 10 };

/// What a thread does to bytes of its own.
enum Step {
    /// The bytes get this value.
    Filled(usize, usize, u8),
    /// All before is durable once the device had so many requests.
    Synced(usize),
}

/// Changes a thread's own bytes of a file, and says how.
fn change_own_bytes(
    volume: &Volume,
    inode: &InodeRef,
    Own { bytes, unit }: Own,
    thread: usize,
    seed: u64,
    requests: impl Fn() -> usize,
) -> Vec<Step> {
    let mut random = Random::new(seed << 8 | thread as u64);
    let mut steps = Vec::new();
    for step in 0..80 {
        let from = random.below((bytes / unit) as u64 - 1) as usize * unit;
        let len = (1 + random.below(5_000) as usize).next_multiple_of(unit).min(bytes - from);
        let at = (thread * bytes + from) as u64;
        let zero = |what| volume.fallocate(inode, what, at, len as u64, true).expect("room");
        let value = match random.below(10) {
            0 => {
                volume.sync_inode(inode, random.below(2) == 0).expect("a sync");
                steps.push(Step::Synced(requests()));
                continue;
            }
            1 => {
                zero(Fallocate::PunchHole);
                0
            }
            2 => {
                zero(Fallocate::ZeroRange { keep_size: true });
                0
            }
            3 => {
                zero(Fallocate::Allocate { keep_size: true });
                continue;
            }
            _ => {
                volume.write_at(inode, Some(at), &vec![step + 1; len], true).expect("room");
                step + 1
            }
        };
        steps.push(Step::Filled(from, from + len, value));
    }
    steps
}

/// Checks that each byte of a thread is what was synced before so many requests, or what it became later.
fn judge_own_bytes(found: &[u8], steps: &[Step], events: usize, when: &str) {
    let is_synced = |step: &Step| matches!(step, Step::Synced(requests) if *requests <= events);
    let durable = steps.iter().rposition(is_synced).unwrap_or(0);
    let (before, after) = steps.split_at(durable);
    let mut synced = vec![0; found.len()];
    for step in before {
        if let Step::Filled(from, end, value) = step {
            synced[*from..*end].fill(*value);
        }
    }
    let mut may_be: Vec<bool> = found.iter().zip(&synced).map(|(found, synced)| found == synced).collect();
    for step in after {
        if let Step::Filled(from, end, value) = step {
            (*from..*end).for_each(|at| may_be[at] |= found[at] == *value);
        }
    }
    let wrong = may_be.iter().position(|may_be| !may_be);
    assert!(wrong.is_none(), "{when}: byte {wrong:?} of a thread's own");
}

#[test]
fn any_crash_of_threads_in_one_file_leaves_what_was_synced() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let mut images = 0;
    let (fresh, inodes) = format(&["-b", "1024", "-N", "64", "-J", "size=1"], 8 << 10, &["shared"]);
    for round in 0..6 * crash_scale() {
        let device = Arc::new(Recorder::over(fresh.snapshot()));
        let fills = round % 2 == 1;
        let own = if fills { OF_BLOCKS } else { OF_BYTES };
        let page_cache_bytes =
            Some(if fills { 16 << 20 } else { [0, 32 << 10, 16 << 20][round as usize / 2 % 3] });
        let options = Options { page_cache_bytes, background: false, ..Options::default() };
        let volume = Volume::mount(device.clone(), &options).expect("a clean disk").0;
        let inode = volume.inode(inodes[0]).expect("the file");
        if fills {
            // Several write into it, and the disk has nothing of that.
            share_in_turns(&volume, &inode, 0);
            volume.set_size(&inode, 0).expect("empty");
        }
        let threads: Vec<Vec<Step>> = std::thread::scope(|scope| {
            let (volume, inode, device) = (&volume, &inode, &device);
            let change =
                move |thread| change_own_bytes(volume, inode, own, thread, round, || device.event_count());
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || change(thread))).collect();
            threads.into_iter().map(|it| it.join().expect("no panic")).collect()
        });
        drop(inode);
        volume.unmount().expect("unmounted");
        images += crash_images(&device, round, |image, events, when| {
            let image = Arc::new(image);
            let volume = mount(&image);
            let mut found = content(&volume, &volume.inode(inodes[0]).expect("the file"));
            assert!(found.len() <= 4 * own.bytes, "{when}: {} bytes", found.len());
            found.resize(4 * own.bytes, 0);
            for (found, steps) in found.chunks(own.bytes).zip(&threads) {
                judge_own_bytes(found, steps, events, when);
            }
            volume.unmount().expect("unmounted");
            assert_clean(&*image, when);
        });
    }
    println!("{images} images");
}

#[test]
fn fdatasync_makes_a_conversion_in_a_deep_tree_durable() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, inodes): (_, Vec<InodeNumber>) =
        format(&["-b", "1024", "-J", "size=4", "-N", "64"], 16 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let inode = volume.inode(inodes[0]).unwrap();
    for block in 0..600 {
        volume.fallocate(&inode, Fallocate::Allocate { keep_size: false }, block * 2048, 1024, true).unwrap();
    }
    volume.sync().unwrap();
    volume.write_at(&inode, Some(0), &[5; 1024], true).unwrap();
    volume.sync_inode(&inode, false).unwrap();
    let crashed = Arc::new(device.snapshot());
    let after = mount(&crashed);
    let mut read = vec![0; 1024];
    after.read_at(&after.inode(inodes[0]).unwrap(), 0, &mut read).unwrap();
    assert_eq!(read, [5; 1024]);
}
