//! An operation that is stopped between its first change and its end leaves nothing on the disk.

use std::panic::{AssertUnwindSafe, catch_unwind};

use extant_block::MemoryDevice;
use extant_ondisk::{InodeNumber, LogicalBlock, State};
use extant_rt::Arc;
use extant_testing::{run, text};

use super::disk::{format, has_e2fsprogs, load, mount, scratch, store};
use crate::error::Error;
use crate::mapping::Mapping;
use crate::metadata::update::{Credits, InodeDirty};
use crate::mount::Volume;

/// A disk with the file `a`, of one block, and the file's inode.
fn disk_with_a_file() -> (Arc<MemoryDevice>, InodeNumber) {
    let (device, inodes) = format(&["-b", "1024", "-J", "size=1", "-N", "64"], 8 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let inode = volume.inode(inodes[0]).unwrap();
    volume.write_at(&inode, Some(0), &[7; 1000], true).unwrap();
    drop(inode);
    volume.unmount().unwrap();
    (device, inodes[0])
}

/// Frees a file's first block in the bitmap alone, and has another in use instead, so that the counts agree: only the
/// operation that frees the block finds it.
fn with_its_block_free(device: &Arc<MemoryDevice>, number: InodeNumber) -> Arc<MemoryDevice> {
    let volume = mount(device);
    let inode = volume.inode(number).unwrap();
    let Mapping::Data { start, .. } = volume.map(&inode, &inode.raw(), LogicalBlock(0), 1).unwrap() else {
        panic!("a hole");
    };
    drop(inode);
    volume.unmount().unwrap();
    let scratch = scratch();
    let path = store(&**device, &scratch);
    for request in [format!("freeb {start}"), "setb 8000".to_owned()] {
        run("debugfs", &["-w", "-R", &request, text(&path)]).unwrap();
    }
    Arc::new(load(&path))
}

/// Asserts that nothing is written any more, that the disk says so and is not marked clean, and checks what the next
/// mount finds.
fn assert_aborted(volume: Arc<Volume>, device: &Arc<MemoryDevice>) -> Arc<Volume> {
    assert!(matches!(volume.begin(Credits::new(1, 0)), Err(Error::ReadOnly)));
    assert!(matches!(volume.sync(), Err(Error::Journal(extant_journal::Error::Aborted(_)))));
    assert!(volume.unmount().is_err());
    drop(volume);
    let next = mount(device);
    assert!(next.is_crashed, "marked clean");
    assert!(next.superblock.lock().state().contains(State::ERROR), "the error is not noted");
    next
}

#[test]
fn damage_found_in_the_midst_of_an_update_leaves_the_disk_as_it_was() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, number) = disk_with_a_file();
    let device = with_its_block_free(&device, number);
    let volume = mount(&device);
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let removed = volume.unlink(&root, b"a");
    assert!(matches!(removed, Err(Error::Corrupt { .. })), "{removed:?}");
    drop(root);
    let next = assert_aborted(volume, &device);
    let root = next.inode(InodeNumber::ROOT).unwrap();
    let inode = next.lookup(&root, b"a").expect("half of the removal was committed");
    let mut read = [0; 1000];
    assert_eq!(next.read_at(&inode, 0, &mut read).unwrap(), 1000);
    assert_eq!(read, [7; 1000]);
}

#[test]
fn an_update_that_is_dropped_aborts_once_it_changed_something() {
    if !has_e2fsprogs() {
        return;
    }
    for panics in [false, true] {
        if panics && cfg!(panic = "abort") {
            continue;
        }
        let (device, number) = disk_with_a_file();
        let volume = mount(&device);
        let inode = volume.inode(number).unwrap();
        drop(volume.begin(Credits::new(1, 1)).unwrap());
        let full = volume.begin(Credits::new(1, u32::MAX)).map(drop);
        assert!(matches!(full, Err(Error::NoSpace)), "{full:?}");
        volume.sync().expect("nothing was changed");
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            let mut update = volume.begin(Credits::new(1, 0)).unwrap();
            update.modify_inode(&inode, InodeDirty::Attributes, |raw| raw.set_uid(77));
            assert!(!panics, "in the midst");
        }));
        assert_eq!(dropped.is_err(), panics);
        drop(inode);
        let next = assert_aborted(volume, &device);
        assert_eq!(next.inode(number).unwrap().raw().uid(), 0, "half an update was committed");
    }
}
