//! Objects that must not be evicted, or not yet, while the caches have hardly any room.

use std::io::{self, IoSlice};
use std::sync::Mutex;

use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::{FsBlock, GroupNumber, InodeNumber, Run, Structure};
use extant_rt::Arc;

use super::disk::{assert_clean, format, has_e2fsprogs};
use super::names::new;
use crate::error::Location;
use crate::incore::buffer::BufferKind;
use crate::inode::attributes::SetAttributes;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::NewKind;

/// A device that does something at its next flush.
struct Interrupted {
    inner: MemoryDevice,
    at_flush: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl BlockDevice for Interrupted {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.inner.write_vectored_at(offset, bufs)
    }
    fn flush(&self) -> io::Result<()> {
        let interruption = self.at_flush.lock().expect("no panic").take();
        if let Some(interruption) = interruption {
            // On a thread that holds no locks.
            extant_rt::apart(interruption);
        }
        self.inner.flush()
    }
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.discard(offset, bytes)
    }
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.write_zeroes(offset, bytes)
    }
}

fn mount(device: &Arc<Interrupted>) -> Arc<Volume> {
    let options = Options { background: false, cache_bytes: 0, ..Options::default() };
    Volume::mount(device.clone(), &options).expect("a clean disk").0
}

fn set_mode(volume: &Volume, inode: InodeNumber, mode: u16) {
    let inode = volume.inode(inode).expect("an inode");
    let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    volume.set_attributes(&inode, &set).expect("room");
}

/// A block of the inode table is made by a commit and is not in use; before the commit is durable it is found nowhere
/// else.
#[test]
fn inodes_stay_in_memory_until_their_commit_is_durable() {
    if !has_e2fsprogs() {
        return;
    }
    let (inner, inodes) = format(&["-b", "1024", "-N", "16384"], 32 << 10, &["a", "b", "c"]);
    // The first inode is in the block before.
    let inodes = &inodes[1..];
    let device = Arc::new(Interrupted { inner, at_flush: Mutex::new(None) });
    let volume = mount(&device);
    let home = volume.inode_table_location(inodes[0]).unwrap().0;
    assert_eq!(home, volume.inode_table_location(inodes[1]).unwrap().0);
    let read = |volume: &Volume, block| {
        volume
            .buffer(block, BufferKind::InodeTable, Location::of(Structure::Inode))
            .expect("a block of a table")
    };
    let (thief, groups) = (volume.clone(), volume.geometry.group_count);
    let blocks = volume.geometry.inode_table_blocks_per_group;
    *device.at_flush.lock().expect("no panic") = Some(Box::new(move || {
        let made = Arc::downgrade(&read(&thief, home));
        for _ in 0..4 {
            for group in 0..groups {
                let table = thief.allocator.inode_table(GroupNumber(group)).unwrap();
                (0..u64::from(blocks)).for_each(|block| drop(read(&thief, FsBlock(table.0 + block))));
            }
        }
        assert!(made.upgrade().is_some(), "it left");
    }));
    set_mode(&volume, inodes[0], 0o600);
    volume.sync().unwrap();
    assert!(device.at_flush.lock().expect("no panic").is_none(), "nothing was done meanwhile");
    set_mode(&volume, inodes[1], 0o640);
    volume.unmount().unwrap();
    drop(volume);
    assert_clean(&device.inner, "after evictions");
    let volume = mount(&device);
    let modes = inodes.iter().map(|inode| volume.inode(*inode).unwrap().raw().mode() & 0o7777);
    assert_eq!(modes.collect::<Vec<_>>(), [0o600, 0o640]);
    volume.unmount().unwrap();
}

/// Between the search for inodes without users and the deletion of one, it may have been found by its name, and the name
/// taken away.
#[test]
fn an_inode_that_is_in_use_again_is_not_deleted() {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    crate::mkfs::Mkfs::new().format(&*device).expect("an empty disk");
    let volume = super::disk::mount(&device);
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let file = volume.create(&root, b"file", &new(NewKind::File)).unwrap();
    volume.write_at(&file, Some(0), b"content", true).unwrap();
    let start = volume.all_extents(file.number, &file.raw()).unwrap()[0].start;
    volume.unlink(&root, b"file").unwrap();
    volume.delete(&file).unwrap();
    let mut content = [0; 7];
    assert_eq!(volume.read_at(&file, 0, &mut content).unwrap(), 7);
    assert_eq!(&content, b"content");
    drop(file);
    volume.evict_unlinked();
    assert!(!volume.allocator.is_used(volume.to_clusters(Run { start, len: 1 })).unwrap());
    drop(root);
    volume.unmount().unwrap();
}

/// Threads delete what they let go; a sync also what one that did nothing afterwards let go.
#[test]
fn an_inode_let_go_by_a_thread_that_ended_is_deleted_by_the_next_sync() {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    crate::mkfs::Mkfs::new().format(&*device).expect("an empty disk");
    let volume = super::disk::mount(&device);
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let file = volume.create(&root, b"file", &new(NewKind::File)).unwrap();
    let number = file.number;
    volume.unlink(&root, b"file").unwrap();
    let file = std::sync::Mutex::new(Some(file));
    extant_rt::parallel(1, |_| drop(file.lock().expect("no panic").take()));
    assert!(volume.allocator.is_inode_allocated(number).unwrap());
    volume.sync().unwrap();
    assert!(!volume.allocator.is_inode_allocated(number).unwrap());
    drop(root);
    volume.unmount().unwrap();
}
