//! Files between us and the kernel, and between threads.

use std::fs;

use extant_block::MemoryDevice;
use extant_ondisk::InodeNumber;
use extant_rt::Arc;

use super::disk::{Random, assert_clean, format, has_e2fsprogs, has_threads, mount, mount_with_pages};
use super::kernel::KernelMount;
use crate::file::fallocate::Fallocate;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Volume;

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
