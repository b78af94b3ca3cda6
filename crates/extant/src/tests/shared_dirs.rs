//! Threads that change the names of one directory: side by side, each name once, and whole after any crash.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use extant_block::{BlockDevice, MemoryDevice, Recorder};
use extant_ondisk::{InodeNumber, LogicalBlock};
use extant_rt::{Arc, AtomicBool, AtomicU32, Ordering};
use extant_testing::crash_scale;

use super::disk::{Random, assert_clean, crash_images, format, has_e2fsprogs, has_threads};
use super::names::{list, new};
use crate::directory::LeafHold;
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::incore::inode_cache::InodeRef;
use crate::incore::leaf_map::LeafMap;
use crate::mapping::Mapping;
use crate::mount::{Options, Volume};
use crate::namespace::{NewKind, RenameFlags};

const THREADS: u32 = 6;

fn name(thread: u32, index: u32) -> Vec<u8> {
    format!("{thread:03}-{index:05}-{}", "x".repeat(index as usize % 40)).into_bytes()
}

fn plain() -> RenameFlags {
    RenameFlags::default()
}

fn directory(volume: &Arc<Volume>, files: u32) -> InodeRef {
    let root = volume.inode(InodeNumber::ROOT).expect("the root");
    let dir = volume.create(&root, b"dir", &new(NewKind::Directory)).expect("a directory");
    for index in 0..files {
        volume.create(&dir, &name(999, index), &new(NewKind::File)).expect("a file");
    }
    dir
}

#[test]
fn names_of_other_leaves_change_while_a_leaf_is_held() {
    if !has_threads() {
        return;
    }
    let device = Arc::new(format(&["-b", "1024", "-N", "4096"], 32 << 10, &[]).0);
    let volume = super::disk::mount(&device);
    let dir = directory(&volume, 500);
    volume.share_directory(&dir);
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let held =
            volume.hold_leaf(&dir, &name(999, 7), LeafHold::Alone).expect("no damage").expect("a leaf");
        assert!(held.looked.found().is_some());
        for index in 0..50 {
            let (volume, dir, done) = (&volume, &dir, &done);
            // One that belongs to the leaf that is held waits.
            scope.spawn(move || {
                let file = volume.create(dir, &name(1, index), &new(NewKind::File)).expect("a file");
                volume.rename(dir, &name(1, index), dir, &name(2, index), plain()).expect("a name");
                volume.rename(dir, &name(2, index), dir, &name(999, index + 200), plain()).expect("a name");
                volume.link(&file, dir, &name(3, index)).expect("a name");
                volume.create(dir, &name(4, index), &new(NewKind::Directory)).expect("a directory");
                volume.rmdir(dir, &name(4, index)).expect("an empty directory");
                volume.unlink(dir, &name(999, index + 100)).expect("a name");
                assert!(matches!(volume.lookup(dir, &name(999, index + 100)), Err(Error::NotFound)));
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        let begun = Instant::now();
        while done.load(Ordering::Relaxed) < 25 && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let beside = done.load(Ordering::Relaxed);
        drop(held);
        assert!(beside >= 25, "{beside} of 50 threads were done beside a leaf that was held");
    });
    assert_eq!(list(&volume, &dir).len(), 2 + 500);
    drop(dir);
    volume.unmount().expect("unmounted");
    assert_clean(&*device, "names changed beside a leaf that was held");
}

/// Changes names that no other thread changes, and says which there are.
fn change_own_names(volume: &Arc<Volume>, dir: &InodeRef, thread: u32, steps: u32) -> BTreeSet<Vec<u8>> {
    let mut random = Random::new(u64::from(thread));
    let mut there: BTreeSet<Vec<u8>> = BTreeSet::new();
    for _ in 0..steps {
        let name = name(thread, random.below(300) as u32);
        let is_there = there.contains(&name);
        match random.below(16) {
            0..8 => match volume.create(dir, &name, &new(NewKind::File)) {
                Ok(made) => {
                    assert!(!is_there);
                    assert_eq!(volume.lookup(dir, &name).expect("just made").number, made.number);
                    there.insert(name);
                }
                Err(Error::Exists) => assert!(is_there),
                Err(error) => panic!("{error}"),
            },
            8..13 => match volume.unlink(dir, &name) {
                Ok(()) => {
                    assert!(there.remove(&name));
                    assert!(matches!(volume.lookup(dir, &name), Err(Error::NotFound)));
                }
                Err(Error::NotFound) => assert!(!is_there),
                Err(error) => panic!("{error}"),
            },
            13 => assert_eq!(volume.lookup(dir, &name).is_ok(), is_there),
            14 => {
                let sub = [b"dir-".as_slice(), &name].concat();
                volume.create(dir, &sub, &new(NewKind::Directory)).expect("a directory");
                volume.rmdir(dir, &sub).expect("an empty directory");
            }
            _ => {
                let to = [&name[..], b"-moved"].concat();
                let moved = volume.rename(dir, &name, dir, &to, plain());
                assert_eq!(moved.is_ok(), is_there);
                if moved.is_ok() {
                    there.remove(&name);
                    there.insert(to);
                }
            }
        }
    }
    there
}

#[test]
fn threads_change_one_directory_as_if_one_came_after_the_other() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    for (seed, arguments) in
        [&["-b", "1024"][..], &["-b", "2048"], &["-b", "1024", "-O", "^extent,^metadata_csum,^64bit"]]
            .into_iter()
            .enumerate()
    {
        let device = Arc::new(format(&[arguments, &["-N", "8192"]].concat(), 48 << 10, &[]).0);
        let volume = super::disk::mount(&device);
        let dir = directory(&volume, [0, 100, 600][seed]);
        // The first one is shared once its threads have waited for each other.
        volume.share_directory(&dir);
        let before: BTreeSet<Vec<u8>> = list(&volume, &dir).into_keys().collect();
        let (claims, is_done) = (AtomicU32::new(0), AtomicBool::new(false));
        let (own, readers) = std::thread::scope(|scope| {
            let (volume, dir, claims, is_done, before) = (&volume, &dir, &claims, &is_done, &before);
            // Each name that all want to make, and to remove, goes to one of them.
            let racers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(move || {
                        for index in 0..400 {
                            match volume.create(dir, &name(500, index), &new(NewKind::File)) {
                                Ok(_) => drop(claims.fetch_add(1, Ordering::Relaxed)),
                                Err(Error::Exists) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(move || {
                let mut count = 0;
                while !is_done.load(Ordering::Relaxed) {
                    // That none is there twice, too.
                    let seen = list(volume, dir);
                    assert!(
                        before.iter().all(|name| seen.contains_key(name)),
                        "a name that stays was not listed"
                    );
                    count += 1;
                }
                count
            });
            let own: Vec<_> =
                (0..THREADS).map(|it| scope.spawn(move || change_own_names(volume, dir, it, 1500))).collect();
            let own: BTreeSet<_> = own.into_iter().flat_map(|it| it.join().expect("no panic")).collect();
            racers.into_iter().for_each(|it| it.join().expect("no panic"));
            is_done.store(true, Ordering::Relaxed);
            (own, reader.join().expect("no panic"))
        });
        assert_eq!(claims.load(Ordering::Relaxed), 400);
        let raced = (0..400).map(|index| name(500, index));
        let wanted: BTreeSet<Vec<u8>> = before.iter().cloned().chain(own).chain(raced).collect();
        // On a busy machine threads may not have met often enough.
        let begun = Instant::now();
        let is_alone = || dir.leaf_map().is_none() && begun.elapsed() < Duration::from_secs(30);
        std::thread::scope(|scope| {
            for thread in 600..604 {
                let (volume, dir) = (&volume, &dir);
                scope.spawn(move || {
                    while is_alone() {
                        volume.create(dir, &name(thread, 0), &new(NewKind::File)).expect("a file");
                        volume.unlink(dir, &name(thread, 0)).expect("a name");
                    }
                });
            }
        });
        assert!(dir.leaf_map().is_some(), "{arguments:?} is not shared");
        let names: BTreeSet<Vec<u8>> = list(&volume, &dir).into_keys().collect();
        assert!(names == wanted, "{arguments:?}");
        println!("{arguments:?}: {} names, listed {readers} times meanwhile", names.len());
        drop(dir);
        volume.unmount().expect("unmounted");
        assert_clean(&*device, &format!("{arguments:?}"));
    }
}

/// A name of a thread in one of three directories.
type Place = (usize, u32);

/// Moves, links and removes names that no other thread changes, and says which inode each has in the end.
fn move_own_names(
    volume: &Arc<Volume>,
    dirs: &[InodeRef; 3],
    thread: u32,
    steps: u32,
) -> BTreeMap<Place, InodeNumber> {
    let mut random = Random::new(u64::from(thread));
    let mut there: BTreeMap<Place, InodeNumber> = BTreeMap::new();
    let mut any =
        || -> (Place, u64) { ((random.below(3) as usize, random.below(150) as u32), random.below(10)) };
    for _ in 0..steps {
        let ((from, kind), (to, _)) = (any(), any());
        let [(dir, own), (to_dir, to_name)] =
            [from, to].map(|(dir, index)| (&dirs[dir], name(thread, index)));
        match kind {
            0..3 => match volume.create(dir, &own, &new(NewKind::File)) {
                Ok(made) => assert_eq!(there.insert(from, made.number), None),
                Err(error) => assert!(matches!(error, Error::Exists) && there.contains_key(&from), "{error}"),
            },
            3 => match volume.unlink(dir, &own) {
                Ok(()) => assert!(there.remove(&from).is_some()),
                Err(error) => {
                    assert!(matches!(error, Error::NotFound) && !there.contains_key(&from), "{error}")
                }
            },
            4 => {
                let Some(number) = there.get(&from) else { continue };
                let file = volume.lookup(dir, &own).expect("a name that is there");
                match volume.link(&file, to_dir, &to_name) {
                    Ok(()) => assert_eq!(there.insert(to, *number), None),
                    Err(error) => {
                        assert!(matches!(error, Error::Exists) && there.contains_key(&to), "{error}")
                    }
                }
            }
            _ => {
                let no_replace = kind == 5;
                match volume.rename(dir, &own, to_dir, &to_name, RenameFlags { no_replace, ..plain() }) {
                    Ok(()) if there.get(&from) == there.get(&to) => assert!(there.contains_key(&from)),
                    Ok(()) => {
                        assert!(!no_replace || !there.contains_key(&to));
                        let number = there.remove(&from).expect("a name that is there");
                        there.insert(to, number);
                        assert_eq!(volume.lookup(to_dir, &to_name).expect("its new name").number, number);
                        assert!(matches!(volume.lookup(dir, &own), Err(Error::NotFound)));
                    }
                    Err(Error::NotFound) => assert!(!there.contains_key(&from)),
                    Err(Error::Exists) => assert!(no_replace && there.contains_key(&to)),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    there
}

#[test]
fn threads_move_names_between_directories_as_if_one_came_after_the_other() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    const PASSED: u32 = 40;
    for files in [[300, 300, 0], [40, 500, 200]] {
        let device = Arc::new(format(&["-b", "1024", "-N", "8192"], 48 << 10, &[]).0);
        let volume = super::disk::mount(&device);
        let root = volume.inode(InodeNumber::ROOT).expect("the root");
        let dirs = [0, 1, 2].map(|number| {
            let made = directory(&volume, files[number]);
            let own = [b'0' + number as u8];
            volume.rename(&root, b"dir", &root, &own, plain()).expect("a name");
            made
        });
        // The third one is a thread's own at first, and has no index.
        dirs[..2].iter().for_each(|dir| volume.share_directory(dir));
        (0..PASSED).for_each(|index| {
            drop(volume.create(&dirs[0], &name(700, index), &new(NewKind::File)).expect("a file"));
        });
        let own: Vec<_> = std::thread::scope(|scope| {
            let (volume, dirs) = (&volume, &dirs);
            // The same names go to and fro between two directories.
            let pass = move |thread: usize| {
                for round in 0..40 {
                    for index in 0..PASSED {
                        let [from, to] = [thread + round, thread + round + 1].map(|it| &dirs[it % 2]);
                        let moved = volume.rename(from, &name(700, index), to, &name(700, index), plain());
                        assert!(matches!(moved, Ok(()) | Err(Error::NotFound)), "{moved:?}");
                    }
                }
            };
            let passers: Vec<_> = (0..2).map(|thread| scope.spawn(move || pass(thread))).collect();
            // And become names of other files.
            scope.spawn(move || {
                for index in (0..20).flat_map(|_| 0..PASSED) {
                    match volume.unlink(&dirs[0], &name(700, index)) {
                        Ok(()) => drop(
                            volume.create(&dirs[0], &name(700, index), &new(NewKind::File)).expect("a file"),
                        ),
                        Err(error) => assert!(matches!(error, Error::NotFound), "{error}"),
                    }
                }
            });
            let own: Vec<_> = (0..THREADS)
                .map(|thread| scope.spawn(move || move_own_names(volume, dirs, thread, 1500)))
                .collect();
            passers.into_iter().for_each(|it| it.join().expect("no panic"));
            own.into_iter().map(|it| it.join().expect("no panic")).collect()
        });
        for (thread, own) in (0..).zip(&own) {
            for ((dir, index), number) in own {
                let found = volume.lookup(&dirs[*dir], &name(thread, *index)).expect("a name that is there");
                assert_eq!(found.number, *number);
            }
        }
        let listed: usize = dirs.iter().map(|dir| list(&volume, dir).len()).sum();
        let before: u32 = files.iter().sum();
        assert_eq!(
            listed,
            3 * 2 + before as usize + PASSED as usize + own.iter().map(BTreeMap::len).sum::<usize>()
        );
        drop((root, dirs));
        volume.unmount().expect("unmounted");
        // Also that each inode has as many names as it counts.
        assert_clean(&*device, "names moved by threads");
    }
}

#[test]
fn a_name_that_moves_is_never_seen_twice() {
    if !has_threads() {
        return;
    }
    const MOVES: u32 = 20_000;
    let device = Arc::new(format(&["-b", "1024", "-N", "4096"], 32 << 10, &[]).0);
    let volume = super::disk::mount(&device);
    let dir = directory(&volume, 100);
    volume.share_directory(&dir);
    volume.create(&dir, &name(1, 0), &new(NewKind::File)).expect("a file");
    let moving = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (volume, dir, moving) = (&volume, &dir, &moving);
        for _ in 0..3 {
            scope.spawn(move || {
                loop {
                    let index = moving.load(Ordering::Acquire);
                    if index == MOVES {
                        break;
                    }
                    let _ = volume.lookup(dir, &name(1, index));
                    if volume.lookup(dir, &name(1, index + 1)).is_ok() {
                        assert!(volume.lookup(dir, &name(1, index)).is_err(), "move {index}");
                    }
                }
            });
        }
        for index in 0..MOVES {
            moving.store(index, Ordering::Release);
            volume.rename(dir, &name(1, index), dir, &name(1, index + 1), plain()).expect("a name");
        }
        moving.store(MOVES, Ordering::Release);
    });
}

#[test]
fn an_index_grows_by_levels_under_threads_that_make_and_find_names() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    const EACH: u32 = 1500;
    // With a map of the leaves, and with an index that is walked over, as one that is too large for the map is.
    for is_walked in [false, true] {
        let device = Arc::new(format(&["-b", "1024", "-N", "16384"], 48 << 10, &[]).0);
        let volume = super::disk::mount(&device);
        let dir = directory(&volume, 60);
        let share = |volume: &Arc<Volume>, dir: &InodeRef| {
            volume.share_directory(dir);
            let map = dir.leaf_map().expect("a map");
            if is_walked {
                map.void();
            }
        };
        share(&volume, &dir);
        let threads = |volume: &Arc<Volume>, dir: &InodeRef, first: u32| {
            std::thread::scope(|scope| {
                for thread in first..first + 4 {
                    scope.spawn(move || {
                        for index in 0..EACH {
                            volume.create(dir, &name(thread, index), &new(NewKind::File)).expect("a file");
                            // In the second turn, of those that no one has looked for since the mount.
                            let there = if first == 0 { index / 2 } else { index };
                            volume.lookup(dir, &name(thread % 4, there)).expect("a name that is there");
                        }
                    });
                }
            });
        };
        threads(&volume, &dir, 0);
        drop(dir);
        volume.unmount().expect("unmounted");
        let volume = super::disk::mount(&device);
        let root = volume.inode(InodeNumber::ROOT).expect("the root");
        let dir = volume.lookup(&root, b"dir").expect("the directory");
        share(&volume, &dir);
        threads(&volume, &dir, 4);
        assert_eq!(dir.leaf_map().map(LeafMap::is_void), Some(is_walked));
        // A root has room for 123 leaves, and a node for 126.
        assert!(dir.size() / 1024 > 400, "{} bytes", dir.size());
        let names = list(&volume, &dir);
        assert_eq!(names.len() as u32, 2 + 60 + 8 * EACH);
        drop((root, dir));
        volume.unmount().expect("unmounted");
        assert_clean(&*device, "an index that grew under threads");
    }
}

#[test]
fn a_leaf_is_divided_with_the_last_free_block() {
    if !has_e2fsprogs() {
        return;
    }
    let device = Arc::new(format(&["-b", "1024", "-N", "4096", "-m", "0"], 16 << 10, &[]).0);
    let volume = super::disk::mount(&device);
    let dir = directory(&volume, 300);
    let root = volume.inode(InodeNumber::ROOT).expect("the root");
    volume.share_directory(&dir);
    volume.sync().expect("synced");
    // A file of one block, and one that takes all others: then there is less than a deep index might take.
    let fill = |name: &[u8], bytes| {
        let file = volume.create(&root, name, &new(NewKind::File)).expect("a file");
        volume.fallocate(&file, Fallocate::Allocate { keep_size: false }, 0, bytes, true)
    };
    fill(b"small", 1024).expect("room");
    assert!(matches!(fill(b"large", 16 << 20), Err(Error::NoSpace)));
    volume.unlink(&root, b"small").expect("a name");
    volume.sync().expect("synced");
    let free = volume.allocator.free_blocks();
    let size = dir.size();
    let made =
        (0..4096).take_while(|index| match volume.create(&dir, &name(1, *index), &new(NewKind::File)) {
            Ok(_) => true,
            Err(Error::NoSpace) => false,
            Err(error) => panic!("{error}"),
        });
    assert!(made.count() > 0);
    assert_eq!((dir.size() - size, free - volume.allocator.free_blocks()), (1024, 1));
    drop((root, dir));
    volume.unmount().expect("unmounted");
    assert_clean(&*device, "a directory that took the last block");
}

#[test]
fn a_leaf_that_is_not_divided_gives_its_block_back() {
    let arguments = ["-b", "1024", "-N", "4096", "-O", "^metadata_csum"];
    let device = Arc::new(format(&arguments, 16 << 10, &[]).0);
    let volume = super::disk::mount(&device);
    let dir = directory(&volume, 300);
    let mapped = volume.map(&dir, &dir.raw(), LogicalBlock(0), 1).expect("a map");
    let Mapping::Data { start, .. } = mapped else { panic!("no root of an index") };
    drop(dir);
    volume.unmount().expect("unmounted");
    // The second and the third entry of the root, behind `.`, `..`, the root's fields and the first entry, name each other's leaf.
    let (mut second, mut third) = ([0; 4], [0; 4]);
    let place = |entry: u64| start.0 * 1024 + 24 + 8 + 8 * entry + 4;
    device.read_at(place(1), &mut second).expect("a block");
    device.read_at(place(2), &mut third).expect("a block");
    device.write_at(place(1), &third).expect("a block");
    device.write_at(place(2), &second).expect("a block");
    let volume = super::disk::mount(&device);
    let root = volume.inode(InodeNumber::ROOT).expect("the root");
    let dir = volume.lookup(&root, b"dir").expect("the directory");
    volume.share_directory(&dir);
    let mut refused = 0;
    for index in 0..1500 {
        let (size, free) = (dir.size(), volume.allocator.free_blocks());
        if let Err(error) = volume.create(&dir, &name(1, index), &new(NewKind::File)) {
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
            refused += 1;
            volume.sync().expect("synced");
            assert_eq!((dir.size(), volume.allocator.free_blocks()), (size, free));
        }
    }
    assert!(refused > 0, "no leaf held hashes outside its range");
    drop((root, dir));
    volume.unmount().expect("unmounted");
}

#[test]
fn subdirectories_that_threads_make_and_remove_are_counted() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    const EACH: u32 = 60;
    let device = Arc::new(format(&["-b", "1024", "-N", "4096"], 48 << 10, &[]).0);
    let volume = super::disk::mount(&device);
    let dir = directory(&volume, 60);
    volume.share_directory(&dir);
    let links = || u32::from(volume.attributes(&dir).links);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (volume, dir, links) = (&volume, &dir, &links);
            scope.spawn(move || {
                for index in 0..EACH {
                    volume.create(dir, &name(thread, index), &new(NewKind::Directory)).expect("a directory");
                    // One's own are counted at once: a third of them is removed again.
                    assert!(links() > 2 + index - index / 3, "{}", links());
                    if index % 3 == 2 {
                        volume.rmdir(dir, &name(thread, index - 1)).expect("an empty directory");
                    }
                    if index % 16 == 7 {
                        volume.sync().expect("synced");
                    }
                }
            });
        }
    });
    assert_eq!(links(), 2 + THREADS * (EACH - EACH / 3));
    // What was not asked for is counted, too.
    volume.create(&dir, &name(900, 0), &new(NewKind::Directory)).expect("a directory");
    volume.rmdir(&dir, &name(0, 0)).expect("an empty directory");
    volume.create(&dir, &name(900, 1), &new(NewKind::Directory)).expect("a directory");
    let counted = dir.raw().links_count();
    volume.sync().expect("synced");
    assert_ne!(dir.raw().links_count(), counted, "the fields counted it before the freeze");
    assert_eq!(links(), 2 + THREADS * (EACH - EACH / 3) + 1);
    drop(dir);
    volume.unmount().expect("unmounted");
    assert_clean(&*device, "subdirectories that threads made");
}

#[test]
fn any_crash_of_threads_in_one_directory_leaves_it_whole_with_what_was_synced() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let mut images = 0;
    for round in 0..2 * crash_scale() {
        let fresh = Arc::new(format(&["-b", "1024", "-N", "4096", "-J", "size=1"], 24 << 10, &[]).0);
        let volume = super::disk::mount(&fresh);
        drop(directory(&volume, 200));
        volume.unmount().expect("unmounted");
        let device = Arc::new(Recorder::over(fresh.snapshot()));
        let options = Options { background: false, ..Options::default() };
        let volume = Volume::mount(device.clone(), &options).expect("a clean disk").0;
        let root = volume.inode(InodeNumber::ROOT).expect("the root");
        let dir = volume.lookup(&root, b"dir").expect("the directory");
        volume.share_directory(&dir);
        // How many of its files each thread has synced, after how many requests.
        let synced: Vec<Vec<(usize, u32)>> = std::thread::scope(|scope| {
            let (volume, dir, device) = (&volume, &dir, &device);
            let work = move |thread: u32| {
                let mut random = Random::new(round << 8 | u64::from(thread));
                let mut synced = vec![(0, 0)];
                for index in 0..120 {
                    volume.create(dir, &name(thread, index), &new(NewKind::File)).expect("a file");
                    let passing = name(100 + thread, index);
                    volume.create(dir, &passing, &new(NewKind::File)).expect("a file");
                    match random.below(8) {
                        0 => {}
                        6 => {
                            volume.unlink(dir, &passing).expect("a name");
                            volume.create(dir, &passing, &new(NewKind::Directory)).expect("a directory");
                        }
                        7 => {
                            let sub = name(400 + thread, index);
                            volume.create(dir, &sub, &new(NewKind::Directory)).expect("a directory");
                            volume.rmdir(dir, &sub).expect("an empty directory");
                        }
                        1..3 => {
                            let moved = name(200 + thread, index);
                            volume.rename(dir, &passing, dir, &moved, plain()).expect("a name");
                        }
                        3 if index > 0 => {
                            // In place of another file.
                            let file = volume.lookup(dir, &passing).expect("a file");
                            volume.link(&file, dir, &name(300 + thread, index)).expect("a name");
                            volume
                                .rename(dir, &passing, dir, &name(thread, index - 1), plain())
                                .expect("a name");
                        }
                        _ => volume.unlink(dir, &passing).expect("a name"),
                    }
                    if random.below(24) == 0 {
                        volume.sync_inode(dir, true).expect("a sync");
                        synced.push((device.event_count(), index + 1));
                    }
                }
                synced
            };
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().map(|it| it.join().expect("no panic")).collect()
        });
        drop((root, dir));
        volume.unmount().expect("unmounted");
        images += crash_images(&device, round, |image, events, when| judge(image, &synced, when, events));
    }
    println!("{images} images");
}

fn judge(image: MemoryDevice, synced: &[Vec<(usize, u32)>], when: &str, events: usize) {
    let image = Arc::new(image);
    let volume = super::disk::mount(&image);
    let root = volume.inode(InodeNumber::ROOT).expect("the root");
    let dir = volume.lookup(&root, b"dir").expect("the directory");
    for (thread, synced) in synced.iter().enumerate() {
        let (_, count) = synced.iter().rev().find(|(after, _)| *after <= events).copied().unwrap_or_default();
        for index in 0..count {
            let found = volume.lookup(&dir, &name(thread as u32, index));
            assert!(found.is_ok(), "{when}: file {index} of {count} of thread {thread}");
        }
    }
    for name in list(&volume, &dir).keys() {
        volume.lookup(&dir, name).unwrap_or_else(|e| panic!("{when}: {name:?} is listed: {e}"));
    }
    drop((root, dir));
    volume.unmount().expect("unmounted");
    assert_clean(&*image, when);
}
