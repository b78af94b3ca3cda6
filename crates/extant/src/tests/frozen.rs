//! A commit copies what its transaction changed while the next one changes it again.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use extant_ondisk::{InodeNumber, LogicalBlock};
use extant_rt::Arc;

use super::disk::{assert_clean, format, has_e2fsprogs, has_threads, mount};
use super::names::{list, new};
use crate::inode::attributes::SetAttributes;
use crate::inode::xattr::XattrMode;
use crate::mapping::Mapping;
use crate::mount::Volume;
use crate::namespace::NewKind;

/// The names of a directory of the root, but for those that begin with a zero.
fn names(volume: &Arc<Volume>, dir: &str) -> Vec<String> {
    let root = volume.inode(InodeNumber::ROOT).expect("the root");
    let dir = volume.lookup(&root, dir.as_bytes()).expect("a directory");
    let names = list(volume, &dir).into_keys().map(|name| String::from_utf8(name).expect("ASCII"));
    names.filter(|name| !name.starts_with(['.', '0'])).collect()
}

#[test]
fn a_commit_has_what_the_next_transaction_changed_before_it_was_copied() {
    if !has_e2fsprogs() || !has_threads() {
        return;
    }
    let value = |of: u8| vec![of; 700];
    let device = Arc::new(format(&["-b", "1024", "-N", "1024", "-J", "size=4"], 32 << 10, &[]).0);
    let volume = mount(&device);
    let root = volume.inode(InodeNumber::ROOT).expect("the root");
    let [held, dir, shared, counted] = ["held", "dir", "shared", "counted"]
        .map(|name| volume.create(&root, name.as_bytes(), &new(NewKind::Directory)).expect("a directory"));
    let file = volume.create(&root, b"file", &new(NewKind::File)).expect("a file");
    volume.create(&dir, b"old", &new(NewKind::File)).expect("a file");
    volume.set_xattr(&file, b"user.value", &value(0), XattrMode::default()).expect("room");
    for dir in [&shared, &counted] {
        for index in 0..100 {
            volume.create(dir, format!("{index:020}").as_bytes(), &new(NewKind::File)).expect("a file");
        }
        volume.share_directory(dir);
        assert!(dir.leaf_map().is_some(), "no index");
    }
    volume.sync().expect("a commit");

    let chmod = |mode| SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    // The first block that the transaction lists: the commit waits for it, and has copied nothing.
    volume.create(&held, b"first", &new(NewKind::File)).expect("a file");
    volume.set_attributes(&file, &chmod(0o611)).expect("a mode");
    volume.set_xattr(&file, b"user.value", &value(1), XattrMode::default()).expect("room");
    volume.create(&dir, b"first", &new(NewKind::File)).expect("a file");
    volume.unlink(&dir, b"old").expect("a name");
    volume.create(&root, b"gone", &new(NewKind::Directory)).expect("a directory");
    volume.create(&shared, b"first", &new(NewKind::Directory)).expect("a directory");
    // The fields do not count the last ones yet.
    for name in [&b"1"[..], b"2", b"3"] {
        volume.create(&counted, name, &new(NewKind::Directory)).expect("a directory");
    }

    let Mapping::Data { start, .. } = volume.map(&held, &held.raw(), LogicalBlock(0), 1).expect("a map")
    else {
        panic!("a directory without a block")
    };
    let buffer = volume.buffers.get(start.0, Arc::clone).expect("it was changed");
    let journal = volume.journal.as_ref().expect("a journal");
    let first = journal.running_tid();
    std::thread::scope(|scope| {
        let (locked, is_locked) = mpsc::channel();
        let (unlock, may_unlock) = mpsc::channel();
        let (volume, buffer) = (&volume, &buffer);
        scope.spawn(move || {
            let state = buffer.lock();
            locked.send(()).expect("it is waited for");
            may_unlock.recv().expect("it is told");
            drop(state);
        });
        is_locked.recv().expect("it says so");
        let commit = scope.spawn(move || volume.sync().expect("a commit"));
        let begun = Instant::now();
        while journal.running_tid() == first {
            assert!(begun.elapsed() < Duration::from_secs(30), "the freeze waits for the block, too");
            std::thread::yield_now();
        }
        volume.set_attributes(&file, &chmod(0o622)).expect("a mode");
        volume.set_xattr(&file, b"user.value", &value(2), XattrMode::default()).expect("room");
        volume.create(&dir, b"second", &new(NewKind::File)).expect("a file");
        volume.unlink(&dir, b"first").expect("a name");
        volume.rmdir(&root, b"gone").expect("an empty directory");
        volume.create(&shared, b"second", &new(NewKind::Directory)).expect("a directory");
        assert_eq!(volume.attributes(&shared).links, 4);
        unlock.send(()).expect("it is waited for");
        commit.join().expect("a commit");
    });
    let committed = Arc::new(device.snapshot());
    volume.sync().expect("a commit");
    let after = Arc::new(device.snapshot());
    drop((root, held, dir, shared, counted, file, buffer));
    drop(volume);

    for (disk, mode, of, in_dir, in_shared) in [
        (committed, 0o611, 1, ["first"], &["first"][..]),
        (after, 0o622, 2, ["second"], &["first", "second"]),
    ] {
        let volume = mount(&disk);
        let root = volume.inode(InodeNumber::ROOT).expect("the root");
        let [file, shared, counted] =
            ["file", "shared", "counted"].map(|name| volume.lookup(&root, name.as_bytes()).expect("a name"));
        assert_eq!(volume.attributes(&file).mode & 0o777, mode);
        assert!(volume.get_xattr(&file, b"user.value").expect("a value") == value(of), "value {of}");
        assert_eq!(names(&volume, "dir"), in_dir);
        assert_eq!(volume.lookup(&root, b"gone").is_ok(), of == 1);
        assert_eq!(names(&volume, "shared"), in_shared);
        assert_eq!(volume.attributes(&shared).links as usize, 2 + in_shared.len());
        assert_eq!(volume.attributes(&counted).links, 5);
        drop((root, file, shared, counted));
        volume.unmount().expect("unmounted");
        assert_clean(&*disk, "after the replay");
    }
}
