//! Maps of files with wrong bytes, on disks whose checksums do not tell: errors, never a panic or an endless loop.

use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::extent::index_at;
use extant_ondisk::{FsBlock, InodeNumber, indirect};
use extant_rt::Arc;

use super::disk::{Random, format, has_tools, mount};
use crate::fallocate::Fallocate;
use crate::seek::SeekTo;
use crate::volume::Volume;

const BLOCK: u64 = 1024;

/// Where to damage a disk: the inode's map, and the blocks right below it.
fn targets(volume: &Volume, number: InodeNumber, extents: bool) -> Vec<(u64, u64)> {
    let (block, offset) = volume.inode_home(number).unwrap();
    let inode = volume.read_inode(number).unwrap();
    let mut targets =
        vec![(block.0 * BLOCK + offset as u64, 128), (block.0 * BLOCK + offset as u64 + 40, 60)];
    let children: Vec<FsBlock> = if extents {
        (0..4).map_while(|position| index_at(inode.i_block(), position)).map(|index| index.child).collect()
    } else {
        (12..15)
            .filter_map(|index| indirect::pointer(inode.i_block(), index))
            .map(|p| FsBlock(p.into()))
            .collect()
    };
    targets.extend(children.iter().filter(|block| block.0 > 0).map(|block| (block.0 * BLOCK, 120)));
    targets.extend(children.iter().filter(|block| block.0 > 0).map(|block| (block.0 * BLOCK, BLOCK)));
    targets
}

fn damage(device: &MemoryDevice, targets: &[(u64, u64)], random: &mut Random) {
    for _ in 0..random.below(6) + 1 {
        let (start, len) = targets[random.below(targets.len() as u64) as usize];
        let at = start + random.below(len);
        let mut byte = [0];
        device.read_at(at, &mut byte).unwrap();
        byte[0] = match random.below(4) {
            0 => 0xFF,
            1 => 0,
            2 => byte[0] ^ (1 << random.below(8)),
            _ => random.below(256) as u8,
        };
        device.write_at(at, &byte).unwrap();
    }
}

/// Whatever a file can be asked for. Errors are right, but not panics.
fn exercise(device: &Arc<MemoryDevice>, number: InodeNumber, random: &mut Random) {
    let volume = mount(device);
    let Ok(node) = volume.node(number) else { return };
    let mut buf = vec![0; 300_000];
    for _ in 0..12 {
        let offset = random.below(3_000_000);
        let range = (offset - offset % BLOCK, (random.below(50) + 1) * BLOCK);
        let allocate = |what| volume.fallocate(&node, what, range.0, range.1, true);
        let _ = match random.below(11) {
            0 => volume.read_at(&node, offset, &mut buf).map(drop),
            1 => volume.seek(&node, offset, SeekTo::Data).map(drop),
            2 => volume.seek(&node, offset, SeekTo::Hole).map(drop),
            3 => volume.fiemap(&node, 0, u64::MAX, &mut |_| {}),
            4 => volume.all_extents(number, &node.inode()).map(drop),
            5 => allocate(Fallocate::PunchHole),
            6 => allocate(Fallocate::InsertRange),
            7 => allocate(Fallocate::CollapseRange),
            8 => allocate(Fallocate::ZeroRange { keep_size: true }),
            9 => volume.set_size(&node, offset),
            _ => volume.write_at(&node, Some(offset), &buf[..20_000], true).map(drop),
        };
    }
    let _ = volume.set_size(&node, 0);
    let _ = volume.unmount();
}

fn damaged(features: &str, extents: bool, seeds: std::ops::Range<u64>) {
    let arguments = ["-b", "1024", "-J", "size=1", "-N", "64", "-O", features];
    let (device, inodes) = format(&arguments, 12 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let node = volume.node(inodes[0]).unwrap();
    for block in 0..1_500 {
        volume.write_at(&node, Some(block * 2 * BLOCK), &[7; BLOCK as usize], true).unwrap();
    }
    volume.sync().unwrap();
    volume.unmount().unwrap();
    drop((node, volume));
    let volume = mount(&device);
    let targets = targets(&volume, inodes[0], extents);
    volume.unmount().unwrap();
    drop(volume);
    for seed in seeds {
        let mut random = Random::new(seed);
        let copy = Arc::new(device.snapshot());
        damage(&copy, &targets, &mut random);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            exercise(&copy, inodes[0], &mut random);
        }));
        assert!(outcome.is_ok(), "seed {seed} of {features}");
    }
}

/// A table of the third level that names itself in each of its numbers: some 2²⁴ blocks of few.
#[test]
fn tables_that_name_one_another_name_more_blocks_than_the_disk_has() {
    if !has_tools() {
        return;
    }
    let arguments = ["-b", "1024", "-J", "size=1", "-N", "64", "-O", "^metadata_csum,^extents,^64bit"];
    let (device, inodes) = format(&arguments, 12 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let node = volume.node(inodes[0]).unwrap();
    volume.write_at(&node, Some((12 + 256 + 65_536 + 5) * BLOCK), &[7; BLOCK as usize], true).unwrap();
    let table = indirect::pointer(node.inode().i_block(), indirect::TRIPLE).unwrap();
    volume.unmount().unwrap();
    drop((node, volume));
    // Each second number is a hole, so that no two blocks are one run.
    let numbers = |index: u64| if index.is_multiple_of(2) { table } else { 0 };
    let bytes: Vec<u8> = (0..256).flat_map(|index| numbers(index).to_le_bytes()).collect();
    device.write_at(u64::from(table) * BLOCK, &bytes).unwrap();
    let volume = mount(&device);
    let node = volume.node(inodes[0]).unwrap();
    let mut extents = 0_u64;
    let result = volume.fiemap(&node, 0, u64::MAX, &mut |_| extents += 1);
    let said = result.unwrap_err().to_string();
    assert!(said.contains("more blocks than the disk has") && said.contains("inode"), "{said}");
    assert!(extents <= 12 << 10, "{extents} extents");
}

#[test]
fn damaged_extent_trees_give_errors() {
    if has_tools() {
        damaged("^metadata_csum", true, 0..400);
    }
}

#[test]
fn damaged_block_maps_give_errors() {
    if has_tools() {
        damaged("^metadata_csum,^extents,^64bit", false, 0..400);
    }
}
