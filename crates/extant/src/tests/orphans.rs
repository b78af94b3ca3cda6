//! When an inode enters and leaves the orphan list: held without a name, truncated, linked again, by one thread and two.

use std::io::ErrorKind;
use std::time::Duration;

use extant_block::{BlockDevice, Fault, FaultDevice, MemoryDevice, Operation};
use extant_ondisk::{InodeFlags, InodeNumber, State, Superblock};
use extant_rt::Arc;

use super::disk::{assert_clean, format, has_e2fsprogs, has_threads, mount};
use super::names::new;
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::incore::inode_cache::InodeRef;
use crate::inode::attributes::SetAttributes;
use crate::inode::xattr::XattrMode;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::NewKind;
use crate::{File, Mount};

const BLOCK: u64 = 1024;

fn root(volume: &Volume) -> InodeRef {
    volume.inode(InodeNumber::ROOT).unwrap()
}

/// The state that a crash now leaves, mounted again and unmounted: how many orphans mounting found, and the free inodes
/// then.
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
    if !has_e2fsprogs() {
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
fn half_truncated() -> (Arc<FaultDevice<MemoryDevice>>, Arc<Volume>, InodeRef) {
    const EXTENTS: u64 = 400;
    let device = format(&["-b", "1024"], 8 << 10, &[]).0;
    let device = Arc::new(FaultDevice::new(device, |_| Fault::None));
    let options = Options { background: false, ..Options::default() };
    let volume = Volume::mount(device.clone(), &options).unwrap().0;
    let file = volume.tmpfile(&root(&volume), &new(NewKind::File)).unwrap();
    for block in 0..EXTENTS {
        volume.write_at(&file, Some(2 * block * BLOCK), &[7; BLOCK as usize], true).unwrap();
    }
    let tail = volume.all_extents(file.number, &file.raw()).unwrap()[0].start.0 * BLOCK;
    device.set_plan(move |request| match request.operation {
        Operation::Write if (tail..tail + BLOCK).contains(&request.offset) => Fault::Error(ErrorKind::Other),
        _ => Fault::None,
    });
    let failed = volume.set_size(&file, 100);
    assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
    assert!(volume.all_extents(file.number, &file.raw()).unwrap().len() > 1, "all was freed at once");
    device.set_plan(|_| Fault::None);
    volume.link(&file, &root(&volume), b"file").unwrap();
    (device, volume, file)
}

#[test]
fn a_link_does_not_take_the_record_of_an_unfinished_truncation_away() {
    if !has_e2fsprogs() {
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
    if !has_e2fsprogs() {
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

/// So the link happens neither in the midst of a truncation, nor at the same time as another thread's first link.
#[test]
fn a_first_link_waits_for_who_changes_the_inode() {
    if !has_threads() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(8 << 20));
    crate::mkfs::Mkfs::new().format(&*device).expect("an empty disk");
    let volume = mount(&device);
    let file = volume.tmpfile(&root(&volume), &new(NewKind::File)).unwrap();
    std::thread::scope(|scope| {
        let content = file.content.write();
        let linker = scope.spawn(|| volume.link(&file, &root(&volume), b"file"));
        // A link that does not wait is done long before.
        for _ in 0..100 {
            assert_eq!(file.raw().links_count(), 0);
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(content);
        linker.join().expect("a thread").expect("a link");
    });
    volume.link(&file, &root(&volume), b"second").unwrap();
    assert_eq!(file.raw().links_count(), 2);
    drop(file);
    volume.unmount().unwrap();
}

/// A disk whose list of orphans begins with the first of the files, of which each names the next, or `last`.
fn listed(names: &[&str], last: u32) -> (Arc<MemoryDevice>, Vec<u64>) {
    let (device, inodes) = format(&["-b", "1024", "-O", "^metadata_csum"], 8 << 10, names);
    let device = Arc::new(device);
    let volume = mount(&device);
    let homes: Vec<u64> = (inodes.iter())
        .map(|inode| volume.inode_table_location(*inode).unwrap())
        .map(|(block, offset)| block.0 * BLOCK + offset as u64)
        .collect();
    volume.unmount().unwrap();
    drop(volume);
    let mut numbers = inodes.iter().map(|inode| inode.0).chain([last]);
    let mut superblock = superblock_of(&device);
    superblock.set_s_last_orphan(numbers.next().unwrap());
    superblock.update_checksum();
    device.write_at(1024, superblock.as_bytes()).unwrap();
    for (home, next) in homes.iter().zip(numbers) {
        device.write_at(home + I_DTIME, &next.to_le_bytes()).unwrap();
        device.write_at(home + I_LINKS_COUNT, &[0; 2]).unwrap();
    }
    (device, homes)
}

const I_DTIME: u64 = 20;
const I_LINKS_COUNT: u64 = 26;
const I_BLOCK: u64 = 40;

fn superblock_of(device: &MemoryDevice) -> Superblock {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    Superblock::parse(&bytes).unwrap()
}

/// Mounting finishes so many orphans; the disk says afterwards that it met damage, and the list is empty.
fn assert_mounted_with_damage(device: &Arc<MemoryDevice>, finished: usize) {
    let options = Options { background: false, ..Options::default() };
    let (volume, mounted) = Volume::mount(device.clone(), &options).unwrap();
    assert_eq!(mounted.orphans, finished);
    volume.unmount().unwrap();
    let superblock = superblock_of(device);
    assert!(superblock.state().contains(State::ERROR) && superblock.s_error_count() > 0);
    assert_eq!(superblock.s_last_orphan(), 0);
    let (volume, mounted) = Volume::mount(device.clone(), &options).unwrap();
    assert_eq!(mounted.orphans, 0, "the next mount meets none");
    volume.unmount().unwrap();
}

#[test]
fn a_list_that_leads_to_damage_ends_there_and_the_disk_is_mounted_and_marked() {
    if !has_e2fsprogs() {
        return;
    }
    // A number beyond the table, a reserved one, and a free one.
    for last in [0x7FFF_FFFF, 8, 40] {
        let (device, _) = listed(&["a", "b"], last);
        assert_mounted_with_damage(&device, 2);
    }
    let (device, _) = listed(&[], 40);
    assert_mounted_with_damage(&device, 0);
    // A list that goes round.
    let (device, homes) = listed(&["a", "b"], 0);
    device.write_at(homes[1] + I_DTIME, &superblock_of(&device).s_last_orphan().to_le_bytes()).unwrap();
    assert_mounted_with_damage(&device, 2);
}

#[test]
fn an_orphan_that_cannot_be_deleted_is_left_to_e2fsck_and_the_others_are_deleted() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, homes) = listed(&["a", "b", "c"], 0);
    device.write_at(homes[1] + I_BLOCK, &[0xFF; 12]).unwrap();
    assert_mounted_with_damage(&device, 2);
}

#[test]
fn damage_that_keeps_a_file_from_being_deleted_is_told_and_noted() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, inodes) = format(&["-b", "1024", "-O", "^metadata_csum"], 8 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let (block, offset) = volume.inode_table_location(inodes[0]).unwrap();
    volume.unmount().unwrap();
    drop(volume);
    device.write_at(block.0 * BLOCK + offset as u64 + I_BLOCK, &[0xFF; 12]).unwrap();
    let volume = mount(&device);
    volume.unlink(&root(&volume), b"a").unwrap();
    volume.evict_unlinked();
    let told = volume.sync().expect_err("damage").to_string();
    assert!(told.contains(&format!("inode {}", inodes[0])) && told.contains("extent"), "{told}");
    volume.unmount().expect("it was told");
    assert!(superblock_of(&device).state().contains(State::ERROR));
}

/// `chattr +S`: without a sync, what an operation returned from is there after a crash.
#[test]
fn changes_of_a_synchronous_file_are_durable_when_they_return() {
    for page_cache_bytes in [0, 16 << 20] {
        let device = Arc::new(MemoryDevice::new(8 << 20));
        crate::mkfs::Mkfs::new().format(&*device).expect("an empty disk");
        let mount = |device: &Arc<MemoryDevice>| {
            let mount = Mount::new().background(false).page_cache_bytes(page_cache_bytes);
            mount.open_device(device.clone()).unwrap()
        };
        let fs = mount(&device);
        fs.write("/file", b"").unwrap();
        let file = fs.options().read(true).write(true).open("/file").unwrap();
        file.set_flags(file.flags() | InodeFlags::SYNC).unwrap();
        // The state that a crash leaves of it now.
        let left = || mount(&Arc::new(device.snapshot())).lookup("/file").unwrap();
        let content = |file: &File| file.read_to_end_at(0).unwrap();
        file.write_at(b"first", 0).unwrap();
        assert_eq!(content(&left()), b"first");
        file.set_len(3).unwrap();
        assert_eq!(content(&left()), b"fir");
        file.allocate(Fallocate::Allocate { keep_size: false }, 0, 5).unwrap();
        assert_eq!(content(&left()), b"fir\0\0");
        file.set_xattr(b"user.key", b"value", XattrMode::default()).unwrap();
        assert_eq!(left().xattr(b"user.key").unwrap(), b"value");
        let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        file.set_attributes(&set).unwrap();
        assert_eq!(left().metadata().mode & 0o777, 0o600);
        fs.options().write(true).truncate(true).open("/file").unwrap();
        assert_eq!(content(&left()), b"");
        drop(file);
        fs.unmount().unwrap();
    }
}
