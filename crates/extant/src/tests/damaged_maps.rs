//! Maps of files with wrong bytes, on disks whose checksums do not reveal them: errors, never a panic or an endless loop.

use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::extent::index_at;
use extant_ondisk::{FsBlock, InodeNumber, LogicalBlock, indirect};
use extant_rt::Arc;

use super::disk::{Random, format, has_e2fsprogs, mount};
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::file::seek::SeekTo;
use crate::mount::Volume;

const BLOCK: u64 = 1024;

/// Where to damage a disk: the inode's map, and the blocks right below it.
fn targets(volume: &Volume, number: InodeNumber, extents: bool) -> Vec<(u64, u64)> {
    let (block, offset) = volume.inode_table_location(number).unwrap();
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
    let Ok(inode) = volume.inode(number) else { return };
    let mut buf = vec![0; 300_000];
    for _ in 0..12 {
        let offset = random.below(3_000_000);
        let range = (offset - offset % BLOCK, (random.below(50) + 1) * BLOCK);
        let allocate = |what| volume.fallocate(&inode, what, range.0, range.1, true);
        let _ = match random.below(11) {
            0 => volume.read_at(&inode, offset, &mut buf).map(drop),
            1 => volume.seek(&inode, offset, SeekTo::Data).map(drop),
            2 => volume.seek(&inode, offset, SeekTo::Hole).map(drop),
            3 => volume.fiemap(&inode, 0, u64::MAX, &mut |_| {}),
            4 => volume.all_extents(number, &inode.raw()).map(drop),
            5 => allocate(Fallocate::PunchHole),
            6 => allocate(Fallocate::InsertRange),
            7 => allocate(Fallocate::CollapseRange),
            8 => allocate(Fallocate::ZeroRange { keep_size: true }),
            9 => volume.set_size(&inode, offset),
            _ => volume.write_at(&inode, Some(offset), &buf[..20_000], true).map(drop),
        };
    }
    let _ = volume.set_size(&inode, 0);
    let _ = volume.unmount();
}

fn damaged(features: &str, extents: bool, seeds: std::ops::Range<u64>) {
    let arguments = ["-b", "1024", "-J", "size=1", "-N", "64", "-O", features];
    let (device, inodes) = format(&arguments, 12 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let inode = volume.inode(inodes[0]).unwrap();
    for block in 0..1_500 {
        volume.write_at(&inode, Some(block * 2 * BLOCK), &[7; BLOCK as usize], true).unwrap();
    }
    volume.sync().unwrap();
    volume.unmount().unwrap();
    drop((inode, volume));
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

/// A child that begins elsewhere than its parent says would be read as zeroes, and written and freed at the wrong place.
#[test]
fn extent_node_that_begins_elsewhere_than_its_parent_says_is_an_error_by_name() {
    if !has_e2fsprogs() {
        return;
    }
    let arguments = ["-b", "1024", "-N", "64", "-O", "^metadata_csum"];
    let (device, inodes) = format(&arguments, 12 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let inode = volume.inode(inodes[0]).unwrap();
    for block in 0..300 {
        volume.write_at(&inode, Some(block * 2 * BLOCK), &[7; BLOCK as usize], true).unwrap();
    }
    let second = index_at(inode.raw().i_block(), 1).expect("a tree with leaves");
    drop(inode);
    volume.unmount().unwrap();
    drop(volume);
    // The first extent of the leaf begins a block later, in what is a hole.
    let at = second.child.0 * BLOCK + 12;
    device.write_at(at, &(second.logical.0 + 1).to_le_bytes()).unwrap();

    let root = |volume: &Volume| volume.inode(InodeNumber::ROOT).unwrap();
    let at = u64::from(second.logical.0) * BLOCK;
    let say = |what: &str, act: &dyn Fn(&Volume) -> crate::Result<()>| {
        let volume = mount(&Arc::new(device.snapshot()));
        let error = act(&volume).expect_err(what).to_string();
        for words in ["does not begin where its parent says", &second.child.to_string()] {
            assert!(error.contains(words), "{what}: {error}");
        }
    };
    let inode = |volume: &Volume| volume.inode(inodes[0]).unwrap();
    say("read", &|volume| volume.read_at(&inode(volume), at, &mut [0; 100]).map(drop));
    say("overwrite", &|volume| volume.write_at(&inode(volume), Some(at), b"new", true).map(drop));
    say("fill a hole", &|volume| volume.write_at(&inode(volume), Some(at + BLOCK), b"new", true).map(drop));
    say("truncate", &|volume| volume.set_size(&inode(volume), at));
    say("truncate to nothing", &|volume| volume.set_size(&inode(volume), 0));
    say("punch", &|volume| volume.fallocate(&inode(volume), Fallocate::PunchHole, at, BLOCK, true));
    say("list", &|volume| volume.fiemap(&inode(volume), 0, u64::MAX, &mut |_| {}));
    say("delete", &|volume| {
        let file = inode(volume);
        volume.unlink(&root(volume), b"a").unwrap();
        volume.free_all_blocks(&file)
    });
    let fs = crate::Mount::new().read_only(true).open_device(Arc::new(device.snapshot())).unwrap();
    let said: Vec<String> = fs.check(&mut |_| ()).unwrap().iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|said| said.contains("does not begin where its parent says")), "{said:?}");
}

#[test]
fn damaged_extent_trees_give_errors() {
    if has_e2fsprogs() {
        damaged("^metadata_csum", true, 0..400);
    }
}

#[test]
fn damaged_block_maps_give_errors() {
    if has_e2fsprogs() {
        damaged("^metadata_csum,^extents,^64bit", false, 0..400);
    }
}

/// A file of the largest size whose single, double and triple indirect blocks are given by `tables`, from the numbers of three
/// blocks of its own that it may use.
fn with_shared_tables(
    tables: impl Fn([u32; 3]) -> ([u32; 3], Vec<(u32, u32)>),
) -> (Arc<MemoryDevice>, InodeNumber) {
    let arguments = ["-b", "1024", "-J", "size=1", "-N", "64", "-O", "^metadata_csum,^extents,^64bit"];
    let (device, inodes) = format(&arguments, 12 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let inode = volume.inode(inodes[0]).unwrap();
    volume.write_at(&inode, Some(0), &[7; 3 * BLOCK as usize], true).unwrap();
    let size = volume.size_max(&inode.raw());
    volume.set_size(&inode, size).unwrap();
    volume.sync().unwrap();
    let own = [0, 1, 2].map(|index| indirect::pointer(inode.raw().i_block(), index).unwrap());
    let (home, offset) = volume.inode_table_location(inodes[0]).unwrap();
    volume.unmount().unwrap();
    let (root, filled) = tables(own);
    let at = home.0 * BLOCK + offset as u64 + 40 + 12 * 4;
    device.write_at(at, &root.map(u32::to_le_bytes).concat()).unwrap();
    for (block, pointer) in filled {
        let bytes = pointer.to_le_bytes().repeat(BLOCK as usize / 4);
        device.write_at(u64::from(block) * BLOCK, &bytes).unwrap();
    }
    (device, inodes[0])
}

#[test]
fn walks_over_shared_tables_end_where_the_disk_has_no_more_blocks() {
    if !has_e2fsprogs() {
        return;
    }
    // A table that names itself 256 times: 16 million blocks, each a run of its own.
    let (device, number) = with_shared_tables(|[own, ..]| ([own; 3], vec![(own, own)]));
    let volume = mount(&device);
    let inode = volume.inode(number).unwrap();
    let hole = volume.seek(&inode, 12 * BLOCK, SeekTo::Hole);
    assert!(matches!(hole, Err(Error::Corrupt { .. })), "{hole:?}");
    let extents = volume.fiemap(&inode, 0, u64::MAX, &mut |_| {});
    assert!(matches!(extents, Err(Error::Corrupt { .. })));
    // 65,792 tables that are one, without an entry.
    let (device, number) = with_shared_tables(|[leaf, middle, top]| {
        ([leaf, middle, top], vec![(leaf, 0), (middle, leaf), (top, middle)])
    });
    let volume = mount(&device);
    let inode = volume.inode(number).unwrap();
    let data = volume.seek(&inode, 12 * BLOCK, SeekTo::Data);
    assert!(matches!(data, Err(Error::Corrupt { .. })), "{data:?}");
    assert_eq!(volume.seek(&inode, 12 * BLOCK, SeekTo::Hole).unwrap(), 12 * BLOCK);
}

#[test]
fn missing_tables_are_passed_in_one_step() {
    if !has_e2fsprogs() {
        return;
    }
    // The topmost of the triple indirect blocks exists and is empty.
    let (device, number) = with_shared_tables(|[.., top]| ([0, 0, top], vec![(top, 0)]));
    let volume = mount(&device);
    let inode = volume.inode(number).unwrap();
    let root = inode.raw().i_block().to_vec();
    let double = LogicalBlock(12 + 256);
    assert_eq!(volume.allocated_indirect(number, &root, double).unwrap(), (false, 256 * 256));
    let within = LogicalBlock(12 + 256 + 256 * 256 + 7 * 256 * 256 + 5);
    assert_eq!(volume.allocated_indirect(number, &root, within).unwrap(), (false, 249 * 256 * 256 - 5));
}
