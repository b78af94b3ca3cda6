//! Extent trees of several levels, and full disks.

use std::collections::BTreeSet;

use extant_block::MemoryDevice;
use extant_ondisk::extent;
use extant_rt::Arc;

use super::disk::{Random, assert_clean, dumped, format, has_e2fsprogs, mount};
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Volume;

const BLOCK: u64 = 1024;

fn depth(inode: &InodeRef) -> u16 {
    extent::depth(inode.raw().i_block()).unwrap()
}

/// The content of block `number` when it was written for the `round`th time.
fn pattern(number: u64, round: u8) -> Vec<u8> {
    let mut bytes = vec![round; BLOCK as usize];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Every second block, in random order: no two can be one extent.
fn scattered(count: u64, random: &mut Random) -> Vec<u64> {
    let mut blocks: Vec<u64> = (0..count).map(|block| block * 2).collect();
    for index in (1..blocks.len()).rev() {
        blocks.swap(index, random.below(index as u64 + 1) as usize);
    }
    blocks
}

fn write_scattered(volume: &Volume, inode: &InodeRef, blocks: &[u64]) {
    for block in blocks {
        volume.write_at(inode, Some(block * BLOCK), &pattern(*block, 1), true).unwrap();
    }
}

fn assert_holds(volume: &Volume, inode: &InodeRef, blocks: &BTreeSet<u64>, round: u8) {
    let size = inode.raw().size();
    let mut read = vec![0; size as usize];
    assert_eq!(volume.read_at(inode, 0, &mut read).unwrap() as u64, size);
    for (block, bytes) in read.chunks(BLOCK as usize).enumerate() {
        let block = block as u64;
        let expected = if blocks.contains(&block) { pattern(block, round) } else { vec![0; BLOCK as usize] };
        assert!(bytes == &expected[..bytes.len()], "block {block}");
    }
}

#[test]
fn a_tree_grows_to_three_levels_and_shrinks_to_none() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, inodes) = format(&["-b", "1024", "-J", "size=4", "-N", "64"], 64 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let inode = volume.inode(inodes[0]).unwrap();
    let mut random = Random::new(3);
    let order = scattered(24_000, &mut random);
    write_scattered(&volume, &inode, &order);
    assert_eq!(depth(&inode), 3);
    let mut blocks: BTreeSet<u64> = order.into_iter().collect();
    assert_holds(&volume, &inode, &blocks, 1);
    volume.sync().unwrap();
    assert_clean_copy(&device, "grown");

    for _ in 0..200 {
        let (from, len) = (random.below(48_000), random.below(120) + 1);
        volume.fallocate(&inode, Fallocate::PunchHole, from * BLOCK, len * BLOCK, true).unwrap();
        blocks.retain(|block| *block < from || *block >= from + len);
    }
    assert_holds(&volume, &inode, &blocks, 1);
    volume.set_size(&inode, 20_001 * BLOCK).unwrap();
    blocks.retain(|block| *block <= 20_000);
    assert_holds(&volume, &inode, &blocks, 1);
    volume.unmount().unwrap();
    drop((inode, volume));
    assert_clean(&*device, "punched and cut");
    let dump = dumped(&*device, inodes[0]);
    assert!(blocks.iter().all(|block| dump[(block * BLOCK) as usize..].starts_with(&pattern(*block, 1))));

    let volume = mount(&device);
    let inode = volume.inode(inodes[0]).unwrap();
    volume.set_size(&inode, 3 * BLOCK).unwrap();
    assert_eq!(depth(&inode), 0);
    volume.set_size(&inode, 0).unwrap();
    assert_eq!(inode.raw().blocks_512(BLOCK as u32), 0);
    volume.unmount().unwrap();
    assert_clean(&*device, "empty");
}

/// The disk as a crash now would leave it, after the kernel's or `e2fsck`'s replay of the journal.
fn assert_clean_copy(device: &Arc<MemoryDevice>, what: &str) {
    let copy = Arc::new(device.snapshot());
    mount(&copy).unmount().unwrap();
    assert_clean(&*copy, what);
}

#[test]
fn ranges_move_through_a_deep_tree_and_back() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, inodes) = format(&["-b", "1024", "-J", "size=4", "-N", "64"], 32 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let inode = volume.inode(inodes[0]).unwrap();
    let order = scattered(3_000, &mut Random::new(5));
    write_scattered(&volume, &inode, &order);
    let mut before = vec![0; inode.raw().size() as usize];
    volume.read_at(&inode, 0, &mut before).unwrap();
    let mut model = before.clone();
    for (at, len) in [(10, 7), (0, 1), (1_001, 900), (4_444, 2), (2, 3)] {
        let (offset, bytes) = (at * BLOCK, len * BLOCK);
        volume.fallocate(&inode, Fallocate::InsertRange, offset, bytes, true).unwrap();
        model.splice(offset as usize..offset as usize, vec![0; bytes as usize]);
    }
    let mut read = vec![0; model.len()];
    assert_eq!(volume.read_at(&inode, 0, &mut read).unwrap(), model.len());
    assert!(read == model, "after the insertions");
    volume.sync().unwrap();
    assert_clean_copy(&device, "inserted");
    for (at, len) in [(2, 3), (4_444, 2), (1_001, 900), (0, 1), (10, 7)] {
        volume.fallocate(&inode, Fallocate::CollapseRange, at * BLOCK, len * BLOCK, true).unwrap();
    }
    let mut read = vec![0; before.len() + 1];
    assert_eq!(volume.read_at(&inode, 0, &mut read).unwrap(), before.len());
    assert!(read[..before.len()] == before, "after the ranges were taken out again");
    volume.unmount().unwrap();
    assert_clean(&*device, "collapsed");
}

#[test]
fn a_full_disk_stays_clean_and_gives_its_space_back() {
    if !has_e2fsprogs() {
        return;
    }
    let (base, inodes) =
        format(&["-b", "1024", "-J", "size=1", "-N", "64", "-m", "0"], 6 << 10, &["a", "b", "c"]);
    for seed in 0..12 {
        let device = Arc::new(base.snapshot());
        let volume = mount(&device);
        let inodes: Vec<_> = inodes.iter().map(|inode| volume.inode(*inode).unwrap()).collect();
        let free = volume.allocator.free_blocks();
        let mut random = Random::new(seed);
        let mut refused = 0;
        while refused < 40 {
            let inode = &inodes[random.below(3) as usize];
            let offset = random.below(8_000) * BLOCK;
            let result = match random.below(8) {
                0 => {
                    volume.fallocate(inode, Fallocate::Allocate { keep_size: true }, offset, 90 * BLOCK, true)
                }
                1 => volume.fallocate(
                    inode,
                    Fallocate::ZeroRange { keep_size: false },
                    offset,
                    9 * BLOCK,
                    true,
                ),
                2 => volume.fallocate(inode, Fallocate::PunchHole, offset, BLOCK, true),
                3 => volume.fallocate(inode, Fallocate::InsertRange, offset % (64 * BLOCK), BLOCK, true),
                _ => {
                    let bytes = random.below(30_000) as usize + 1;
                    let buf = random.bytes(bytes);
                    volume.write_at(inode, Some(offset), &buf, true).map(drop)
                }
            };
            match result {
                Ok(()) | Err(Error::InvalidArgument(_)) => {}
                Err(Error::NoSpace) => refused += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        volume.sync().unwrap();
        assert_clean_copy(&device, "full");
        for inode in &inodes {
            volume.set_size(inode, 0).unwrap();
        }
        volume.sync().unwrap();
        assert_eq!(volume.statistics().free_blocks, free, "seed {seed}");
        volume.unmount().unwrap();
        drop((inodes, volume));
        assert_clean(&*device, "emptied");
    }
}
