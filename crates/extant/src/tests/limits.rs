//! The sizes that files may have, and what a write leaves of the mode.

use extant_ondisk::{Inode, InodeNumber, RoCompatFeatures};
use extant_rt::Arc;

use super::disk::{assert_clean, format, has_tools, mount, mount_with_pages};
use super::names::new;
use crate::error::Error;
use crate::fallocate::Fallocate;
use crate::namei::NewKind;
use crate::update::{Change, Need};

#[test]
fn a_file_beyond_2_gib_sets_the_feature_that_says_so() {
    if !has_tools() {
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
        let node = volume.node(inodes[0]).unwrap();
        volume.write_at(&node, Some((1 << 31) - 10), b"123456789", true).unwrap();
        assert!(!has_feature());
        if extends {
            volume.set_size(&node, 1 << 31).unwrap();
        } else {
            volume.write_at(&node, None, b"0!", true).unwrap();
        }
        assert!(has_feature());
        volume.unmount().unwrap();
        drop((node, volume));
        assert_clean(&*device, features);
    }
}

#[test]
fn no_file_grows_beyond_what_its_map_and_the_disk_can_hold() {
    if !has_tools() {
        return;
    }
    for features in ["extents", "^huge_file", "^extents,^64bit", "^extents,^64bit,^huge_file"] {
        let arguments = ["-b", "1024", "-J", "size=1", "-N", "64", "-O", features];
        let (device, inodes) = format(&arguments, 8 << 10, &["a"]);
        let device = Arc::new(device);
        let volume = mount(&device);
        let node = volume.node(inodes[0]).unwrap();
        let most = volume.size_max(&node.inode());
        assert!(matches!(volume.set_size(&node, most + 1), Err(Error::FileTooLarge)));
        assert!(matches!(volume.write_at(&node, Some(most), b"1", true), Err(Error::FileTooLarge)));
        assert_eq!(volume.write_at(&node, Some(most - 3), b"12345", true).unwrap(), 3);
        assert_eq!(node.inode().size(), most);
        let mut end = [0; 10];
        assert_eq!(volume.read_at(&node, most - 3, &mut end).unwrap(), 3);
        assert_eq!(&end[..3], b"123");
        for what in [Fallocate::InsertRange, Fallocate::Allocate { keep_size: true }] {
            let offset = if what == Fallocate::InsertRange { 0 } else { most };
            let result = volume.fallocate(&node, what, offset, 1024, true);
            assert!(matches!(result, Err(Error::FileTooLarge | Error::Unsupported(_))), "{result:?}");
        }
        volume.unmount().unwrap();
        drop((node, volume));
        assert_clean(&*device, features);
    }
}

#[test]
fn a_write_takes_set_user_id_away_unless_privileged() {
    if !has_tools() {
        return;
    }
    let (device, inodes) = format(&["-b", "1024", "-J", "size=1", "-N", "64"], 8 << 10, &["a"]);
    let volume = mount(&Arc::new(device));
    let node = volume.node(inodes[0]).unwrap();
    let set_mode = |mode| {
        let mut update = volume.begin(Need::new(1, 0)).unwrap();
        update.modify_inode(&node, Change::Attributes, |inode| inode.set_mode(0o100_000 | mode));
        update.finish();
    };
    let mode = || node.inode().mode() & 0o7777;
    // What a file has, and what a write of somebody leaves of it.
    for (before, after) in
        [(0o6755, 0o755), (0o4644, 0o644), (0o2644, 0o2644), (0o2674, 0o674), (0o1777, 0o1777)]
    {
        for offset in [Some(0), None, Some(5_000)] {
            set_mode(before);
            volume.write_at(&node, offset, b"1", true).unwrap();
            assert_eq!(mode(), before);
            volume.write_at(&node, offset, b"1", false).unwrap();
            assert_eq!(mode(), after, "{before:o}");
        }
    }
}

#[test]
fn blocks_that_an_inode_cannot_count_are_refused_before_anything_changes() {
    if !has_tools() {
        return;
    }
    for (features, page_cache_bytes) in
        [("^huge_file", 0), ("^huge_file", 1 << 20), ("^huge_file,^extents,^64bit", 0)]
    {
        let arguments = ["-b", "1024", "-I", "128", "-J", "size=1", "-N", "64", "-O", features];
        let (device, inodes) = format(&arguments, 8 << 10, &["a", "b"]);
        let device = Arc::new(device);
        let volume = mount_with_pages(&device, page_cache_bytes, true);
        let root = volume.node(InodeNumber::ROOT).unwrap();
        let dir = volume.create(&root, b"dir", &new(NewKind::Directory)).unwrap();
        let set_sectors = |node, sectors| {
            let mut update = volume.begin(Need::new(1, 0)).unwrap();
            let set = |inode: &mut Inode| inode.set_blocks_512(sectors, 1024, false).unwrap();
            update.modify_inode(node, Change::Attributes, set);
            update.finish();
        };
        let node = volume.node(inodes[0]).unwrap();
        // Two blocks more can be counted.
        set_sectors(&node, u64::from(u32::MAX) - 4);
        assert_eq!(volume.write_at(&node, Some(0), &[1; 4096], true).unwrap(), 2048, "{features}");
        let refused = [
            volume.write_at(&node, Some(2048), b"1", true).map(drop),
            volume.set_xattr(&node, b"user.name", &[1; 500], Default::default()),
        ];
        for result in refused {
            assert!(matches!(result, Err(Error::FileTooLarge)), "{features}: {result:?}");
        }
        let allocate = Fallocate::Allocate { keep_size: true };
        let result = volume.fallocate(&node, allocate, 4096, 1024, true);
        assert!(matches!(result, Err(Error::FileTooLarge | Error::Unsupported(_))), "{features}: {result:?}");
        let sectors = dir.inode().blocks_512(1024);
        set_sectors(&dir, u64::from(u32::MAX));
        let create = |number: u32| {
            let name = format!("{number:0200}");
            volume.create(&dir, name.as_bytes(), &new(NewKind::File))
        };
        let result = (0..10).try_for_each(|number| create(number).map(drop));
        assert!(matches!(result, Err(Error::FileTooLarge)), "{features}: {result:?}");
        // The journal goes on.
        set_sectors(&dir, sectors);
        set_sectors(&node, 4);
        create(10).unwrap();
        volume.write_at(&node, Some(2048), b"1", true).unwrap();
        volume.unmount().unwrap();
        drop((root, dir, node, volume));
        assert_clean(&*device, features);
    }
}
