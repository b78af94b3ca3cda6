//! When an inode enters and leaves the orphan list: held without a name, truncated, linked again, by one thread and two.

use std::io::ErrorKind;
use std::time::Duration;

use extant_block::{Fault, FaultDevice, MemoryDevice, Operation};
use extant_ondisk::InodeNumber;
use extant_rt::Arc;

use super::disk::{assert_clean, format, has_tools, mount};
use super::names::new;
use crate::error::Error;
use crate::mount::Options;
use crate::namei::NewKind;
use crate::node::NodeRef;
use crate::volume::Volume;

const BLOCK: u64 = 1024;

fn root(volume: &Volume) -> NodeRef {
    volume.node(InodeNumber::ROOT).unwrap()
}

/// What a crash now leaves, mounted again and unmounted: how many orphans mounting found, and the free inodes then.
fn recovered(device: &MemoryDevice) -> (usize, u32) {
    let image = Arc::new(device.snapshot());
    let options = Options { background: false, ..Options::default() };
    let (volume, mounted) = Volume::mount(image.clone(), &options).unwrap();
    let free = volume.statistics().free_inodes;
    volume.unmount().unwrap();
    assert_clean(&*image, "after the crash");
    (mounted.orphans, free)
}

#[test]
fn an_inode_without_a_name_stays_an_orphan_when_it_is_truncated() {
    if !has_tools() {
        return;
    }
    for is_unnamed in [false, true] {
        let device = Arc::new(format(&["-b", "1024"], 8 << 10, &[]).0);
        let volume = mount(&device);
        let free = volume.statistics().free_inodes;
        let file = if is_unnamed {
            volume.tmpfile(&root(&volume), &new(NewKind::File)).unwrap()
        } else {
            volume.create(&root(&volume), b"held", &new(NewKind::File)).unwrap()
        };
        volume.write_at(&file, Some(0), &[7; 9000], true).unwrap();
        if !is_unnamed {
            volume.unlink(&root(&volume), b"held").unwrap();
        }
        // Within a block, whose tail is zeroed in an update of its own.
        for size in [4500, 10_000, 100] {
            volume.set_size(&file, size).unwrap();
            volume.sync().unwrap();
            assert_eq!(recovered(&device), (1, free), "unnamed: {is_unnamed}, cut to {size}");
        }
        drop(file);
        volume.unmount().unwrap();
        assert_eq!(recovered(&device), (0, free));
    }
}

/// An unnamed file with more extents than one update frees, which got a name after a truncation of it failed behind the
/// first update.
fn half_truncated() -> (Arc<FaultDevice<MemoryDevice>>, Arc<Volume>, NodeRef) {
    const EXTENTS: u64 = 400;
    let device = format(&["-b", "1024"], 8 << 10, &[]).0;
    let device = Arc::new(FaultDevice::new(device, |_| Fault::None));
    let options = Options { background: false, ..Options::default() };
    let volume = Volume::mount(device.clone(), &options).unwrap().0;
    let file = volume.tmpfile(&root(&volume), &new(NewKind::File)).unwrap();
    for block in 0..EXTENTS {
        volume.write_at(&file, Some(2 * block * BLOCK), &[7; BLOCK as usize], true).unwrap();
    }
    let tail = volume.all_extents(file.number, &file.inode()).unwrap()[0].start.0 * BLOCK;
    device.set_plan(move |request| match request.operation {
        Operation::Write if (tail..tail + BLOCK).contains(&request.offset) => Fault::Error(ErrorKind::Other),
        _ => Fault::None,
    });
    let failed = volume.set_size(&file, 100);
    assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
    assert!(volume.all_extents(file.number, &file.inode()).unwrap().len() > 1, "all was freed at once");
    device.set_plan(|_| Fault::None);
    volume.link(&file, &root(&volume), b"file").unwrap();
    (device, volume, file)
}

#[test]
fn a_link_does_not_take_the_record_of_an_unfinished_truncation_away() {
    if !has_tools() {
        return;
    }
    let (device, volume, file) = half_truncated();
    volume.sync().unwrap();
    // The crash cuts the file; unmounting and mounting again does so too.
    assert_eq!(recovered(device.inner()).0, 1);
    drop(file);
    volume.unmount().unwrap();
    assert_eq!(recovered(device.inner()).0, 1);
}

#[test]
fn a_truncation_that_ends_lets_a_linked_inode_leave_the_list() {
    if !has_tools() {
        return;
    }
    let (device, volume, file) = half_truncated();
    volume.set_size(&file, 10).unwrap();
    volume.sync().unwrap();
    assert_eq!(recovered(device.inner()).0, 0);
    drop(file);
    volume.unmount().unwrap();
    assert_clean(device.inner(), "unmounted");
}

/// So it neither comes into the midst of a truncation, nor beside another thread's first link.
#[test]
fn a_first_link_waits_for_who_changes_the_inode() {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    crate::mkfs::Mkfs::new().format(&*device).expect("an empty disk");
    let volume = mount(&device);
    let file = volume.tmpfile(&root(&volume), &new(NewKind::File)).unwrap();
    std::thread::scope(|scope| {
        let content = file.content.write();
        let linker = scope.spawn(|| volume.link(&file, &root(&volume), b"file"));
        // A link that does not wait is done long before.
        for _ in 0..100 {
            assert_eq!(file.inode().links_count(), 0);
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(content);
        linker.join().expect("a thread").expect("a link");
    });
    volume.link(&file, &root(&volume), b"second").unwrap();
    assert_eq!(file.inode().links_count(), 2);
    drop(file);
    volume.unmount().unwrap();
}
