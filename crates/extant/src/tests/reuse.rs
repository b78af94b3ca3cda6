//! Blocks that were metadata and become a file's: no copy of them in the journal may come back. Inode numbers that one transaction gives
//! again and again.

use extant_ondisk::{InodeNumber, Run};
use extant_rt::Arc;

use super::disk::{Random, assert_clean, format, has_e2fsprogs, mount};
use super::names::new;
use crate::namespace::NewKind;

/// A directory and long links are filled and removed; then a file takes their blocks, and the disk crashes with all of
/// that in its journal.
fn crash_after_reuse(arguments: &[&str]) {
    let (device, _) = format(arguments, 5 << 10, &[]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let dir = volume.create(&root, b"dir", &new(NewKind::Directory)).unwrap();
    let file = volume.create(&root, b"file", &new(NewKind::File)).unwrap();
    let target = [b'x'; 200];
    let name = |index: u32| format!("{index:0>250}").into_bytes();
    volume.create(&dir, b"link", &new(NewKind::Symlink(&target))).unwrap();
    for index in 0..300 {
        volume.link(&file, &dir, &name(index)).unwrap();
    }
    volume.sync().unwrap();
    volume.unlink(&dir, b"link").unwrap();
    for index in 0..300 {
        volume.unlink(&dir, &name(index)).unwrap();
    }
    let blocks: Vec<_> = volume
        .all_extents(dir.number, &dir.raw())
        .unwrap()
        .iter()
        .map(|extent| (extent.start, extent.len))
        .collect();
    assert!(blocks.iter().map(|(_, len)| u32::from(*len)).sum::<u32>() > 64, "{blocks:?}");
    drop(dir);
    volume.rmdir(&root, b"dir").unwrap();
    volume.evict_unlinked();
    volume.sync().unwrap();
    assert!(!volume.allocator.is_used(volume.to_clusters(Run { start: blocks[0].0, len: 1 })).unwrap());
    // So much that nothing stays free.
    let content = Random::new(1).bytes(volume.allocator.free_blocks() as usize * 1024);
    let written = volume.write_at(&file, Some(0), &content, true).unwrap();
    assert!(written > content.len() / 2);
    volume.sync().unwrap();
    let number = file.number;
    let check = |device: &Arc<extant_block::MemoryDevice>| {
        let volume = mount(device);
        let mut read = vec![0; written];
        volume.read_at(&volume.inode(number).unwrap(), 0, &mut read).unwrap();
        assert!(read == content[..written], "{arguments:?}: something was written over the file");
        volume.unmount().unwrap();
        assert_clean(&**device, "after the crash");
    };
    check(&Arc::new(device.snapshot()));
    volume.unmount().unwrap();
    drop((root, file, volume));
    check(&device);
}

#[test]
fn freed_directory_blocks_do_not_come_back_over_a_file() {
    if !has_e2fsprogs() {
        return;
    }
    crash_after_reuse(&["-b", "1024", "-J", "size=1", "-N", "64", "-m", "0"]);
    crash_after_reuse(&["-b", "1024", "-J", "size=1", "-N", "64", "-m", "0", "-O", "^extents,^64bit"]);
}

#[test]
fn files_that_come_and_go_in_one_transaction_leave_one_inode_of_each_number_in_memory() {
    if !has_e2fsprogs() {
        return;
    }
    const NUMBERS: usize = 64;
    let (device, _) = format(&["-b", "1024", "-N", &NUMBERS.to_string()], 5 << 10, &[]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let mut inodes = Vec::new();
    for index in 0..10 * NUMBERS {
        let name = format!("{index}").into_bytes();
        let file = volume.create(&root, &name, &new(NewKind::File)).unwrap();
        volume.write_at(&file, Some(0), b"content", true).unwrap();
        inodes.push(Arc::downgrade(&file));
        drop(file);
        if index % NUMBERS != 0 {
            volume.unlink(&root, &name).unwrap();
            volume.evict_unlinked();
        }
    }
    let left = inodes.iter().filter(|inode| inode.strong_count() > 0).count();
    assert!(left <= NUMBERS, "{left} inodes are in memory");
    assert_eq!(volume.journal.as_ref().unwrap().stats().commits, 0, "one transaction");
    drop((root, inodes));
    volume.unmount().unwrap();
    assert_clean(&*device, "after the files came and went");
}
