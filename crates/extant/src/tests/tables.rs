//! Inode tables that hold what their device held before: zeroed beside creators, and at every crash in the middle.

use extant_block::{BlockDevice, MemoryDevice, Recorder, Tearing};
use extant_ondisk::{GroupFlags, GroupNumber, InodeNumber};
use extant_rt::Arc;
use extant_testing::{run, text};

use super::disk::{Random, assert_clean, format, has_e2fsprogs, scratch, store};
use super::names::new;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::NewKind;

const GROUPS: u32 = 4;
const GARBAGE: u8 = 0xDB;

fn mount(device: Arc<dyn BlockDevice>) -> Arc<Volume> {
    let options = Options { background: false, ..Options::default() };
    Volume::mount(device, &options).expect("a clean disk").0
}

/// A disk whose inode tables mkfs did not write, full of garbage there.
fn lazy_disk() -> MemoryDevice {
    let lazy = ["-b", "1024", "-g", "8192", "-N", "2048", "-J", "size=1", "-E", "lazy_itable_init=1"];
    let (device, _) = format(&lazy, GROUPS * 8192, &[]);
    let device = Arc::new(device);
    let volume = mount(device.clone());
    for group in (0..GROUPS).map(GroupNumber) {
        let descriptor = volume.allocator.descriptor(group).expect("a group");
        assert!(!descriptor.flags().contains(GroupFlags::INODE_ZEROED), "{group}");
        let size = u64::from(volume.geometry.inode_size);
        let used = volume.geometry.inodes_per_group - descriptor.itable_unused();
        // Whole blocks only: mkfs wrote those in use.
        let from = (u64::from(used) * size).next_multiple_of(1024);
        let bytes = u64::from(volume.geometry.inodes_per_group) * size - from;
        let garbage = vec![GARBAGE; bytes as usize];
        device.write_at(descriptor.inode_table().0 * 1024 + from, &garbage).expect("written");
    }
    volume.unmount().expect("unmounted");
    drop(volume);
    Arc::try_unwrap(device).unwrap_or_else(|device| device.snapshot())
}

/// Asserts that the groups say that their tables are zeroed, and that they are behind the inodes in use.
fn assert_zeroed(device: &Arc<MemoryDevice>) {
    let volume = mount(device.clone());
    for group in (0..GROUPS).map(GroupNumber) {
        let descriptor = volume.allocator.descriptor(group).expect("a group");
        assert!(descriptor.flags().contains(GroupFlags::INODE_ZEROED), "{group}");
        let inode_size = usize::from(volume.geometry.inode_size);
        let mut table = vec![1; volume.geometry.inodes_per_group as usize * inode_size];
        device.read_at(descriptor.inode_table().0 * 1024, &mut table).expect("read");
        let used = (volume.geometry.inodes_per_group - descriptor.itable_unused()) as usize * inode_size;
        assert!(table[used..].iter().all(|byte| *byte == 0), "garbage in group {group}");
    }
    volume.unmount().expect("unmounted");
    let scratch = scratch();
    let said = run("dumpe2fs", &[text(&store(&**device, &scratch))]).expect("dumpe2fs");
    assert_eq!(said.matches("ITABLE_ZEROED").count(), GROUPS as usize);
}

fn create(volume: &Arc<Volume>, dir: u32, files: u32) {
    let root = volume.inode(InodeNumber::ROOT).expect("the root");
    let dir =
        volume.create(&root, format!("d{dir}").as_bytes(), &new(NewKind::Directory)).expect("a directory");
    for file in 0..files {
        volume.create(&dir, format!("f{file}").as_bytes(), &new(NewKind::File)).expect("a file");
        if file % 20 == 0 {
            volume.sync().expect("synced");
        }
    }
}

#[test]
fn tables_are_zeroed_beside_creators() {
    if !has_e2fsprogs() {
        return;
    }
    let base = lazy_disk();
    for round in 0..6 {
        let device = Arc::new(base.snapshot());
        let volume = mount(device.clone());
        extant_rt::parallel(3, |thread| {
            if thread > 0 {
                return create(&volume, thread as u32, 300);
            }
            for group in 0..GROUPS {
                assert!(volume.zero_table(GroupNumber((group + round) % GROUPS)).expect("zeroed"));
            }
        });
        assert!(!volume.zero_table(GroupNumber(1)).expect("nothing to do"));
        create(&volume, 9, 200);
        volume.unmount().expect("unmounted");
        assert_zeroed(&device);
        assert_clean(&*device, "zeroed beside creators");
    }
}

#[test]
fn a_crash_amid_the_zeroing_leaves_a_clean_disk() {
    if !has_e2fsprogs() {
        return;
    }
    let recorder = Arc::new(Recorder::new(lazy_disk()).expect("a recorder"));
    let volume = mount(recorder.clone());
    for group in 0..GROUPS {
        create(&volume, group, 40);
        volume.zero_table(GroupNumber(group)).expect("zeroed");
        if group % 2 == 0 {
            volume.sync().expect("synced");
        }
    }
    volume.unmount().expect("unmounted");
    let log = recorder.log();
    let (mut cursor, mut random, mut zeroed) = (log.cursor(), Random::new(7), 0);
    for at in 0..=log.events().len() {
        cursor.advance_to(at).expect("a place in the log");
        if at % 3 > 0 && at < log.events().len() {
            continue;
        }
        let image = cursor.crash_image(Tearing::Requests, |_| random.below(2) == 0).expect("an image");
        let image = Arc::new(image);
        let volume = mount(image.clone());
        let flags = (0..GROUPS).map(|group| volume.allocator.descriptor(GroupNumber(group)).unwrap().flags());
        zeroed += flags.filter(|flags| flags.contains(GroupFlags::INODE_ZEROED)).count();
        for group in 0..GROUPS {
            volume.zero_table(GroupNumber(group)).expect("zeroed");
        }
        create(&volume, 99, 30);
        volume.unmount().expect("unmounted");
        assert_zeroed(&image);
        assert_clean(&*image, &format!("a crash after {at} events"));
    }
    println!("{} events, {zeroed} groups were marked in the images", log.events().len());
    assert!(zeroed > 0);
}

#[test]
fn a_group_with_an_inode_in_use_behind_its_unused_ones_is_left_alone() {
    if !has_e2fsprogs() {
        return;
    }
    let device = Arc::new(lazy_disk());
    let volume = mount(device.clone());
    create(&volume, 0, 400);
    volume.unmount().expect("unmounted");
    let group = (0..GROUPS)
        .map(GroupNumber)
        .find(|group| {
            !volume.allocator.descriptor(*group).unwrap().flags().contains(GroupFlags::INODE_UNINIT)
        })
        .expect("a group in use");
    drop(volume);
    let (block, offset) = {
        let volume = mount(device.clone());
        let location = volume.geometry.descriptor_location(group);
        volume.unmount().expect("unmounted");
        location
    };
    // As if nothing was ever used there.
    let at = block.0 * 1024 + u64::from(offset);
    let geometry = mount(device.clone());
    let (desc_size, checksums, all) =
        (geometry.geometry.desc_size, geometry.checksums, geometry.geometry.inodes_per_group);
    geometry.unmount().expect("unmounted");
    let mut bytes = vec![0; usize::from(desc_size)];
    device.read_at(at, &mut bytes).expect("read");
    let mut descriptor = extant_ondisk::GroupDescriptor::parse(&bytes, desc_size).expect("a descriptor");
    descriptor.set_itable_unused(all);
    descriptor.update_checksum(&checksums, group);
    descriptor.write(&mut bytes).expect("written");
    device.write_at(at, &bytes).expect("written");
    let volume = mount(device.clone());
    let refused = volume.zero_table(group);
    assert!(matches!(refused, Err(crate::Error::Corrupt { .. })), "{refused:?}");
    assert!(!volume.allocator.descriptor(group).unwrap().flags().contains(GroupFlags::INODE_ZEROED));
}
