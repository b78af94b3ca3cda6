//! Directories with an index of several levels: tens of thousands of names in and out.

use extant_block::BlockDevice;
use extant_ondisk::InodeNumber;
use extant_ondisk::dir_hash::{DirHasher, HashVersion};
use extant_rt::Arc;

use super::disk::{Random, assert_clean, format, has_e2fsprogs, mount};
use super::names::{list, new};
use crate::error::Error;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Volume;
use crate::namespace::NewKind;

fn root(volume: &Arc<Volume>) -> InodeRef {
    volume.inode(InodeNumber::ROOT).unwrap()
}

fn name(index: u32, len: usize) -> Vec<u8> {
    let mut name = format!("{index:08}").into_bytes();
    name.resize(len, b'-');
    name
}

/// A directory with as many names of one file as fit, at most `count`.
fn fill(volume: &Arc<Volume>, count: u32, len: usize) -> (InodeRef, u32) {
    let dir = volume.create(&root(volume), b"dir", &new(NewKind::Directory)).unwrap();
    let mut file = volume.create(&dir, &name(0, len), &new(NewKind::File)).unwrap();
    for index in 1..count {
        let made = match volume.link(&file, &dir, &name(index, len)) {
            Err(Error::TooManyLinks) => {
                volume.create(&dir, &name(index, len), &new(NewKind::File)).map(|inode| file = inode)
            }
            other => other,
        };
        match made {
            Ok(()) => {}
            Err(Error::NoSpace) => return (dir, index),
            Err(error) => panic!("{index}: {error}"),
        }
    }
    (dir, count)
}

fn check(volume: &Arc<Volume>, dir: &InodeRef, count: u32, len: usize) {
    assert_eq!(list(volume, dir).len() as u32, count + 2);
    for index in 0..count {
        assert!(volume.lookup(dir, &name(index, len)).is_ok(), "{index}");
    }
    assert!(matches!(volume.lookup(dir, b"none"), Err(Error::NotFound)));
}

fn empty(volume: &Arc<Volume>, dir: &InodeRef, count: u32, len: usize) {
    let mut left: Vec<u32> = (0..count).collect();
    let mut random = Random::new(7);
    while !left.is_empty() {
        let index = left.swap_remove(random.below(left.len() as u64) as usize);
        volume.unlink(dir, &name(index, len)).unwrap();
    }
    assert_eq!(list(volume, dir).len(), 2);
}

fn go_round(arguments: &[&str], kilobytes: u32, count: u32, len: usize) -> u32 {
    let (device, _) = format(arguments, kilobytes, &[]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let (dir, made) = fill(&volume, count, len);
    check(&volume, &dir, made, len);
    drop(dir);
    volume.unmount().unwrap();
    assert_clean(&*device as &dyn BlockDevice, "filled");

    let volume = mount(&device);
    let dir = volume.lookup(&root(&volume), b"dir").unwrap();
    check(&volume, &dir, made, len);
    empty(&volume, &dir, made, len);
    drop(dir);
    volume.unmount().unwrap();
    assert_clean(&*device, "emptied");

    let volume = mount(&device);
    volume.rmdir(&root(&volume), b"dir").unwrap();
    volume.evict_unlinked();
    volume.unmount().unwrap();
    assert_clean(&*device, "removed");
    made
}

#[test]
fn twenty_five_thousand_names_take_an_index_of_two_levels() {
    if has_e2fsprogs() {
        assert_eq!(go_round(&["-b", "1024"], 32 << 10, 25_000, 40), 25_000);
    }
}

#[test]
fn three_thousand_names_without_an_index() {
    if has_e2fsprogs() {
        // Each insertion goes through all blocks: fewer names.
        assert_eq!(go_round(&["-b", "4096", "-O", "^dir_index"], 32 << 10, 3_000, 40), 3_000);
    }
}

#[test]
fn an_index_of_two_levels_that_is_full_refuses_names_and_stays_whole() {
    if has_e2fsprogs() {
        let made = go_round(&["-b", "1024", "-N", "1000"], 96 << 10, 64_000, 255);
        assert!((20_000..64_000).contains(&made), "{made}");
    }
}

#[test]
fn large_dir_adds_a_third_level() {
    if has_e2fsprogs() {
        assert_eq!(
            go_round(&["-b", "1024", "-N", "1000", "-O", "large_dir"], 128 << 10, 64_000, 255),
            64_000
        );
    }
}

/// 65,000 links: its name, its `.` and 64,998 subdirectories.
#[test]
fn subdirectories_past_the_link_limit_are_refused_or_no_longer_counted() {
    if !has_e2fsprogs() {
        return;
    }
    for feature in ["^dir_nlink", "dir_nlink"] {
        let (device, _) = format(&["-b", "1024", "-N", "66000", "-I", "128", "-O", feature], 120 << 10, &[]);
        let device = Arc::new(device);
        let volume = mount(&device);
        let dir = volume.create(&root(&volume), b"dir", &new(NewKind::Directory)).unwrap();
        let make = |index| volume.create(&dir, &name(index, 8), &new(NewKind::Directory)).map(drop);
        for index in 0..64_998 {
            make(index).unwrap();
        }
        assert_eq!(dir.raw().links_count(), 65_000);
        let one_more = make(64_998);
        if feature == "dir_nlink" {
            one_more.unwrap();
            assert_eq!(dir.raw().links_count(), 1);
            volume.rmdir(&dir, &name(0, 8)).unwrap();
            make(0).unwrap();
            assert_eq!(dir.raw().links_count(), 1);
        } else {
            assert!(matches!(one_more, Err(Error::TooManyLinks)), "{one_more:?}");
            volume.rmdir(&dir, &name(0, 8)).unwrap();
            assert_eq!(dir.raw().links_count(), 64_999);
        }
        drop(dir);
        volume.unmount().unwrap();
        assert_clean(&*device, feature);
    }
}

#[test]
fn names_of_one_hash_in_two_leaves_are_found_and_not_made_twice() {
    if !has_e2fsprogs() {
        return;
    }
    // Found by trying out 48 million names with the seed of `format`.
    let names = [17_985_554, 21_101_200, 23_415_418, 40_760_659, 42_334_432];
    let names = names.map(|number: u32| format!("{number:->255}").into_bytes());
    let (device, _) = format(&["-b", "1024"], 4 << 10, &[]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let hasher = DirHasher::new(HashVersion::HalfMd4, volume.superblock.lock().s_hash_seed());
    let hash = hasher.hash(&names[0]).hash;
    assert!(names.iter().all(|name| hasher.hash(name).hash == hash), "not of one hash");

    let dir = volume.create(&root(&volume), b"dir", &new(NewKind::Directory)).unwrap();
    for name in &names {
        volume.create(&dir, name, &new(NewKind::File)).unwrap();
    }
    assert_eq!(dir.raw().size(), 3 << 10, "not an index and two leaves");
    let file = volume.lookup(&dir, &names[0]).unwrap();
    for name in &names {
        assert!(volume.lookup(&dir, name).is_ok());
        let made = volume.create(&dir, name, &new(NewKind::File)).map(drop);
        assert!(matches!(made, Err(Error::Exists)), "{made:?}");
        let linked = volume.link(&file, &dir, name);
        assert!(matches!(linked, Err(Error::Exists)), "{linked:?}");
    }
    assert_eq!(list(&volume, &dir).len(), 2 + names.len());
    for name in &names[1..] {
        volume.unlink(&dir, name).unwrap();
    }
    assert_eq!(list(&volume, &dir).len(), 3);
    drop((dir, file));
    volume.unmount().unwrap();
    assert_clean(&*device, "names of one hash");
}

/// As many as threads share the work of one commit.
#[test]
fn thousands_of_directories_of_one_transaction_are_whole_after_a_replay() {
    if !has_e2fsprogs() {
        return;
    }
    const COUNT: u32 = 3000;
    let (device, _) = format(&["-b", "1024", "-N", "8000", "-J", "size=16"], 64 << 10, &[]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let commits = || volume.journal.as_ref().unwrap().stats().commits;
    let before = commits();
    for index in 0..COUNT {
        volume.create(&root(&volume), &name(index, 8), &new(NewKind::Directory)).unwrap();
    }
    volume.sync().unwrap();
    assert_eq!(commits(), before + 1);
    // As a crash leaves it: in the log alone.
    let crashed = Arc::new(device.snapshot());
    drop(volume);
    let volume = mount(&crashed);
    for index in 0..COUNT {
        let dir = volume.lookup(&root(&volume), &name(index, 8)).unwrap();
        assert_eq!(list(&volume, &dir).len(), 2, "{index}");
    }
    volume.unmount().unwrap();
    assert_clean(&*crashed, "after the replay");
}
