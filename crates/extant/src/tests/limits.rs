//! The sizes that files may have, and what a write leaves of the mode.

use std::fs::File;

use extant_block::{DeviceAccess, FileDevice};
use extant_ondisk::{FsBlock, InodeFlags, InodeNumber, LogicalBlock, RawInode, RoCompatFeatures};
use extant_rt::Arc;
use extant_testing::{run, text};

use super::disk::{assert_clean, format, has_e2fsprogs, mount, mount_with_pages, scratch};
use super::names::new;
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::mapping::cluster::NewBlocks;
use crate::metadata::update::{Credits, InodeDirty};
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::NewKind;

#[test]
fn a_file_beyond_2_gib_sets_the_feature_that_says_so() {
    if !has_e2fsprogs() {
        return;
    }
    for (features, extends) in [
        ("^large_file,^resize_inode", true),
        ("^large_file,^resize_inode", false),
        ("^large_file,^resize_inode,^extents,^64bit", true),
    ] {
        let arguments = ["-b", "4096", "-J", "size=4", "-N", "64", "-O", features];
        let (device, inodes) = format(&arguments, 16 << 10, &["a"]);
        let device = Arc::new(device);
        let volume = mount(&device);
        let has_feature = || volume.superblock.lock().ro_compat().contains(RoCompatFeatures::LARGE_FILE);
        let inode = volume.inode(inodes[0]).unwrap();
        volume.write_at(&inode, Some((1 << 31) - 10), b"123456789", true).unwrap();
        assert!(!has_feature());
        if extends {
            volume.set_size(&inode, 1 << 31).unwrap();
        } else {
            volume.write_at(&inode, None, b"0!", true).unwrap();
        }
        assert!(has_feature());
        volume.unmount().unwrap();
        drop((inode, volume));
        assert_clean(&*device, features);
    }
}

#[test]
fn no_file_grows_beyond_what_its_map_and_the_disk_can_hold() {
    if !has_e2fsprogs() {
        return;
    }
    for features in ["extents", "^huge_file", "^extents,^64bit", "^extents,^64bit,^huge_file"] {
        let arguments = ["-b", "1024", "-J", "size=1", "-N", "64", "-O", features];
        let (device, inodes) = format(&arguments, 8 << 10, &["a"]);
        let device = Arc::new(device);
        let volume = mount(&device);
        let inode = volume.inode(inodes[0]).unwrap();
        let most = volume.size_max(&inode.raw());
        assert!(matches!(volume.set_size(&inode, most + 1), Err(Error::FileTooLarge)));
        assert!(matches!(volume.write_at(&inode, Some(most), b"1", true), Err(Error::FileTooLarge)));
        assert_eq!(volume.write_at(&inode, Some(most - 3), b"12345", true).unwrap(), 3);
        assert_eq!(inode.raw().size(), most);
        let mut end = [0; 10];
        assert_eq!(volume.read_at(&inode, most - 3, &mut end).unwrap(), 3);
        assert_eq!(&end[..3], b"123");
        for what in [Fallocate::InsertRange, Fallocate::Allocate { keep_size: true }] {
            let offset = if what == Fallocate::InsertRange { 0 } else { most };
            let result = volume.fallocate(&inode, what, offset, 1024, true);
            assert!(matches!(result, Err(Error::FileTooLarge | Error::Unsupported(_))), "{result:?}");
        }
        volume.unmount().unwrap();
        drop((inode, volume));
        assert_clean(&*device, features);
    }
}

#[test]
fn a_write_takes_set_user_id_away_unless_privileged() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, inodes) = format(&["-b", "1024", "-J", "size=1", "-N", "64"], 8 << 10, &["a"]);
    let volume = mount(&Arc::new(device));
    let inode = volume.inode(inodes[0]).unwrap();
    let set_mode = |mode| {
        let mut update = volume.begin(Credits::new(1, 0)).unwrap();
        update.modify_inode(&inode, InodeDirty::Attributes, |raw| raw.set_mode(0o100_000 | mode));
        update.finish();
    };
    let mode = || inode.raw().mode() & 0o7777;
    // The mode of a file, and what a write by an ordinary user leaves of it.
    for (before, after) in
        [(0o6755, 0o755), (0o4644, 0o644), (0o2644, 0o2644), (0o2674, 0o674), (0o1777, 0o1777)]
    {
        for offset in [Some(0), None, Some(5_000)] {
            set_mode(before);
            volume.write_at(&inode, offset, b"1", true).unwrap();
            assert_eq!(mode(), before);
            volume.write_at(&inode, offset, b"1", false).unwrap();
            assert_eq!(mode(), after, "{before:o}");
        }
    }
}

#[test]
fn blocks_that_an_inode_cannot_count_are_refused_before_anything_changes() {
    if !has_e2fsprogs() {
        return;
    }
    for (features, page_cache_bytes) in
        [("^huge_file", 0), ("^huge_file", 1 << 20), ("^huge_file,^extents,^64bit", 0)]
    {
        let arguments = ["-b", "1024", "-I", "128", "-J", "size=1", "-N", "64", "-O", features];
        let (device, inodes) = format(&arguments, 8 << 10, &["a", "b"]);
        let device = Arc::new(device);
        let volume = mount_with_pages(&device, page_cache_bytes, true);
        let root = volume.inode(InodeNumber::ROOT).unwrap();
        let dir = volume.create(&root, b"dir", &new(NewKind::Directory)).unwrap();
        let set_sectors = |inode, sectors| {
            let mut update = volume.begin(Credits::new(1, 0)).unwrap();
            let set = |inode: &mut RawInode| inode.set_blocks_512(sectors, 1024, false).unwrap();
            update.modify_inode(inode, InodeDirty::Attributes, set);
            update.finish();
        };
        let inode = volume.inode(inodes[0]).unwrap();
        // Two blocks more can be counted.
        set_sectors(&inode, u64::from(u32::MAX) - 4);
        assert_eq!(volume.write_at(&inode, Some(0), &[1; 4096], true).unwrap(), 2048, "{features}");
        let refused = [
            volume.write_at(&inode, Some(2048), b"1", true).map(drop),
            volume.set_xattr(&inode, b"user.name", &[1; 500], Default::default()),
        ];
        for result in refused {
            assert!(matches!(result, Err(Error::FileTooLarge)), "{features}: {result:?}");
        }
        let allocate = Fallocate::Allocate { keep_size: true };
        let result = volume.fallocate(&inode, allocate, 4096, 1024, true);
        assert!(matches!(result, Err(Error::FileTooLarge | Error::Unsupported(_))), "{features}: {result:?}");
        let sectors = dir.raw().blocks_512(1024);
        set_sectors(&dir, u64::from(u32::MAX));
        let create = |number: u32| {
            let name = format!("{number:0200}");
            volume.create(&dir, name.as_bytes(), &new(NewKind::File))
        };
        let result = (0..10).try_for_each(|number| create(number).map(drop));
        assert!(matches!(result, Err(Error::FileTooLarge)), "{features}: {result:?}");
        // The journal goes on.
        set_sectors(&dir, sectors);
        set_sectors(&inode, 4);
        create(10).unwrap();
        volume.write_at(&inode, Some(2048), b"1", true).unwrap();
        volume.unmount().unwrap();
        drop((root, dir, inode, volume));
        assert_clean(&*device, features);
    }
}

#[test]
fn blocks_beyond_32_bits_are_refused_to_block_maps_before_anything_changes() {
    if !has_e2fsprogs() {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    File::create(&image).unwrap().set_len(4400 << 30).unwrap();
    let features = "64bit,sparse_super2,^resize_inode,^metadata_csum,uninit_bg";
    let made = ["-q", "-F", "-t", "ext4", "-b", "1024", "-N", "64", "-J", "size=4", "-O", features];
    let made = [&made[..], &["-E", "lazy_itable_init=1,num_backup_sb=0", text(&image)]].concat();
    run("mke2fs", &made).unwrap();
    let device = FileDevice::open(&image, DeviceAccess::read_write()).unwrap();
    let options = Options { background: false, ..Options::default() };
    let volume = Volume::mount(Arc::new(device), &options).unwrap().0;
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let without_extents = |name: &[u8], kind| {
        let inode = volume.create(&root, name, &new(kind)).unwrap();
        let block = volume.directory_block(&inode, LogicalBlock(0)).map_or(0, |block| block.0 as u32);
        let mut update = volume.begin(Credits::new(1, 0)).unwrap();
        update.modify_inode(&inode, InodeDirty::Mapping, |raw| {
            raw.set_flags(raw.flags() - InodeFlags::EXTENTS);
            raw.i_block_mut().fill(0);
            raw.i_block_mut()[..4].copy_from_slice(&block.to_le_bytes());
        });
        update.finish();
        inode
    };
    let file = without_extents(b"file", NewKind::File);
    // The inode maps twelve blocks; those behind need a table.
    let table_from = LogicalBlock(12);
    assert_eq!(volume.write_at(&file, Some(0), &[1; 12 * 1024], true).unwrap(), 12 * 1024);
    let before = volume.allocator.disk_free_blocks();
    let mut update = volume.begin(Credits::new(20, 2)).unwrap();
    let far = update.take_metadata(FsBlock((1 << 32) + 10_000)).unwrap();
    assert!(far.start.0 > 1 << 32);
    let hole = volume.hole(&file, &file.raw(), table_from).unwrap();
    let blocks = NewBlocks { run: volume.to_blocks(far), taken: Some(far) };
    let result = update.map_run(&file, hole, table_from, blocks, false);
    assert!(matches!(result, Err(Error::NoSpace)), "{result:?}");
    drop(update);
    let dir = without_extents(b"dir", NewKind::Directory);
    let create = |number: u32| volume.create(&dir, format!("{number:0200}").as_bytes(), &new(NewKind::File));
    let result = (0..10).try_for_each(|number| create(number).map(drop));
    assert!(matches!(result, Err(Error::NoSpace)), "{result:?}");
    // The journal goes on, and what is near can be named.
    assert_eq!(volume.write_at(&file, Some(12 * 1024), b"1", true).unwrap(), 1);
    volume.sync().unwrap();
    // The data and its table, and the directory's block.
    assert_eq!(before - volume.allocator.disk_free_blocks(), 3);
    volume.unmount().unwrap();
}
