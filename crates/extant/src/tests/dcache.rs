//! Names in memory: never wrong, whichever thread changes them, and never more than there is room for.

use extant_block::MemoryDevice;
use extant_ondisk::{InodeNumber, RawInode};
use extant_rt::{Arc, AtomicBool, AtomicU32, LockClass, Mutex, Ordering};

use super::disk::{Random, assert_clean, format, has_e2fsprogs, has_threads};
use super::names::new;
use crate::error::Error;
use crate::incore::inode::Inode;
use crate::incore::inode_cache::{InodeCache, InodeRef};
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::{Dcache, New, NewKind, RenameFlags};

/// Room for hardly any name, for some, and for all.
const CACHE_BYTES: [u64; 3] = [1 << 10, 1 << 19, 1 << 26];

fn mounted(cache_bytes: u64) -> (Arc<MemoryDevice>, Arc<Volume>) {
    let device = Arc::new(format(&["-b", "1024", "-N", "8192"], 32 << 10, &[]).0);
    let options = Options { cache_bytes, ..Options::default() };
    let volume = Volume::mount(device.clone(), &options).unwrap().0;
    (device, volume)
}

fn directories(volume: &Volume) -> Vec<InodeRef> {
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let dir = |name: &[u8]| volume.create(&root, name, &new(NewKind::Directory)).unwrap();
    vec![dir(b"one"), dir(b"two"), root.clone()]
}

/// A file that says its number in its sequence by its owner.
fn numbered(number: u32) -> New<'static> {
    New { uid: number, ..new(NewKind::File) }
}

/// What is known to be under each of these names, by directory; read and changed under the lock.
type Known = Vec<Vec<Mutex<Option<InodeNumber>>>>;

const NAMES: usize = 300;

fn name(index: usize) -> Vec<u8> {
    let mut name = format!("name-{index}").into_bytes();
    // Too long to be kept in memory, some.
    name.resize(name.len() + index % 3 * 40, b'x');
    name
}

/// One operation on a name that no other thread touches meanwhile, and whether it went as it must.
fn step(volume: &Volume, dirs: &[InodeRef], known: &Known, random: &mut Random) {
    let mut pick = || (random.below(dirs.len() as u64) as usize, random.below(NAMES as u64) as usize);
    let ((dir, index), (to_dir, to_index)) = (pick(), pick());
    let mut here = known[dir][index].lock();
    let (inode, name, to_name) = (&dirs[dir], name(index), name(to_index));
    let found = |dir: &InodeRef, name: &[u8]| match volume.lookup(dir, name) {
        Ok(inode) => Some(inode.number),
        Err(Error::NotFound) => None,
        Err(error) => panic!("{error}"),
    };
    match random.below(8) {
        0 => match volume.create(inode, &name, &new(NewKind::File)) {
            Ok(made) if here.is_none() => *here = Some(made.number),
            Err(Error::Exists) if here.is_some() => {}
            other => panic!("{other:?}"),
        },
        1 => match volume.unlink(inode, &name) {
            Ok(()) if here.is_some() => *here = None,
            Err(Error::NotFound) if here.is_none() => {}
            other => panic!("{other:?}"),
        },
        kind @ (2 | 3) if (dir, index) < (to_dir, to_index) => {
            let mut there = known[to_dir][to_index].lock();
            let (to, exchange) = (&dirs[to_dir], kind == 2);
            let flags = RenameFlags { exchange, ..RenameFlags::default() };
            match volume.rename(inode, &name, to, &to_name, flags) {
                Ok(()) if exchange => std::mem::swap(&mut *here, &mut *there),
                // Two names of one file stay.
                Ok(()) if *here == *there => assert!(here.is_some()),
                Ok(()) => *there = here.take(),
                Err(Error::NotFound) if here.is_none() || exchange && there.is_none() => {}
                Err(error) => panic!("{error}"),
            }
            assert_eq!(found(to, &to_name), *there);
        }
        4 if (dir, index) < (to_dir, to_index) => {
            let mut there = known[to_dir][to_index].lock();
            if let Some(number) = *here {
                match volume.link(&volume.inode(number).unwrap(), &dirs[to_dir], &to_name) {
                    Ok(()) if there.is_none() => *there = Some(number),
                    Err(Error::Exists) if there.is_some() => {}
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(found(&dirs[to_dir], &to_name), *there);
        }
        _ => {}
    }
    assert_eq!(found(inode, &name), *here);
    match volume.attributes_of(inode, &name) {
        Ok(attributes) => assert_eq!(Some(attributes.inode), *here),
        Err(error) => assert!(matches!(error, Error::NotFound) && here.is_none(), "{error}"),
    }
}

#[test]
fn whatever_threads_do_a_name_gives_what_has_it() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    for (seed, cache_bytes) in CACHE_BYTES.into_iter().enumerate() {
        let (device, volume) = mounted(cache_bytes);
        let dirs = directories(&volume);
        let known: Known = (0..dirs.len() as u64)
            .map(|dir| {
                let lock = |name| Mutex::with_key(LockClass::SERVED, dir * NAMES as u64 + name as u64, None);
                (0..NAMES).map(lock).collect()
            })
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (volume, dirs, known) = (&volume, &dirs, &known);
                scope.spawn(move || {
                    let mut random = Random::new((seed as u64) << 8 | thread);
                    for _ in 0..4000 {
                        step(volume, dirs, known, &mut random);
                        volume.evict_unlinked();
                    }
                });
            }
        });
        drop(dirs);
        volume.unmount().unwrap();
        assert_clean(&*device, &format!("{cache_bytes} bytes"));
    }
}

/// Calls `look` in threads until `change` has gone through all numbers.
fn beside(look: impl Fn(&mut u32) + Sync, change: impl Fn(u32)) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Acquire) {
                    look(&mut last);
                }
            });
        }
        (1..=2000).for_each(&change);
        done.store(true, Ordering::Release);
    });
}

#[test]
fn what_is_replaced_is_there_throughout_and_never_comes_back() {
    if !has_threads() {
        return;
    }
    for cache_bytes in CACHE_BYTES {
        let (_, volume) = mounted(cache_bytes);
        let dirs = directories(&volume);
        let (from, to) = (&dirs[0], &dirs[1]);
        volume.create(to, b"it", &numbered(0)).unwrap();
        let look = |last: &mut u32| {
            let number = volume.attributes_of(to, b"it").unwrap().uid;
            let inode = volume.lookup(to, b"it").unwrap();
            let then = inode.raw().uid();
            assert!(*last <= number && number <= then, "{number}, {then} after {last}");
            *last = then;
        };
        beside(look, |number| {
            volume.create(from, b"next", &numbered(number)).unwrap();
            volume.rename(from, b"next", to, b"it", RenameFlags::default()).unwrap();
            volume.evict_unlinked();
        });
    }
}

/// Renames of a round: what is looked for lasts some nanoseconds of each.
const RENAMES: u32 = 50;

/// Renames between two directories, back and forth, while threads look at both names: first at that which the rename under
/// way changes first. What they saw goes to `check` if no other rename has begun meanwhile. Before each exchange the first
/// name is that of file 0.
fn renamed(exchange: bool, check: impl Fn(Option<u32>, Option<u32>) + Sync) {
    if !has_threads() {
        return;
    }
    let (_, volume) = mounted(1 << 26);
    let dirs = directories(&volume);
    let begun = AtomicU32::new(0);
    let of = |number: u32| if number % 2 == 1 { (&dirs[0], &dirs[1]) } else { (&dirs[1], &dirs[0]) };
    let owner = |dir: &InodeRef| match volume.attributes_of(dir, b"it") {
        Ok(attributes) => Some(attributes.uid),
        Err(error) => {
            assert!(matches!(error, Error::NotFound), "{error}");
            None
        }
    };
    volume.create(&dirs[0], b"it", &numbered(0)).unwrap();
    if exchange {
        volume.create(&dirs[1], b"it", &numbered(1)).unwrap();
    }
    let look = |_: &mut u32| {
        let number = begun.load(Ordering::SeqCst);
        let (from, to) = of(number.max(1));
        let seen = (owner(from), owner(to));
        if begun.load(Ordering::SeqCst) == number {
            check(seen.0, seen.1);
        }
    };
    beside(look, |round| {
        for number in RENAMES * (round - 1) + 1..=RENAMES * round {
            begun.store(number, Ordering::SeqCst);
            let (from, to) = of(number);
            let flags = RenameFlags { exchange, ..RenameFlags::default() };
            volume.rename(from, b"it", to, b"it", flags).unwrap();
        }
    });
}

#[test]
fn what_moves_is_never_nowhere() {
    renamed(false, |from, to| assert!(from.is_some() || to.is_some(), "{from:?}, then {to:?}"));
}

#[test]
fn what_is_exchanged_is_never_in_both_places() {
    renamed(true, |from, to| assert!(from == Some(0) || to == Some(0), "{from:?}, then {to:?}"));
}

#[test]
fn what_was_unlinked_is_not_found_and_its_inode_serves_others() {
    if !has_threads() {
        return;
    }
    for cache_bytes in CACHE_BYTES {
        let (_, volume) = mounted(cache_bytes);
        let dirs = directories(&volume);
        // The last that was made, and the last that was unlinked.
        let (made, gone) = (AtomicU32::new(0), AtomicU32::new(0));
        let look = |_: &mut u32| {
            let before = gone.load(Ordering::SeqCst);
            let found = volume.lookup(&dirs[0], b"it").map(|inode| inode.raw().uid());
            match found {
                Ok(uid) => assert!(before < uid && uid <= made.load(Ordering::SeqCst) + 1, "{uid}"),
                Err(error) => assert!(matches!(error, Error::NotFound), "{error}"),
            }
        };
        beside(look, |number| {
            volume.create(&dirs[0], b"it", &numbered(number)).unwrap();
            made.store(number, Ordering::SeqCst);
            volume.unlink(&dirs[0], b"it").unwrap();
            gone.store(number, Ordering::SeqCst);
            // Takes the number over, under another name.
            volume.create(&dirs[1], b"other", &numbered(1 << 20)).unwrap();
            volume.unlink(&dirs[1], b"other").unwrap();
            volume.evict_unlinked();
        });
    }
}

#[test]
fn nothing_is_found_below_what_has_the_number_of_a_removed_directory() {
    let (_, volume) = mounted(1 << 26);
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    // In every group.
    let others: Vec<_> = (0..8)
        .map(|other| {
            let name = format!("other-{other}").into_bytes();
            volume.create(&root, &name, &new(NewKind::Directory)).unwrap()
        })
        .collect();
    let mut again = 0;
    for _ in 0..40 {
        let dir = volume.create(&root, b"dir", &new(NewKind::Directory)).unwrap();
        assert!(matches!(volume.lookup(&dir, b"file"), Err(Error::NotFound)));
        volume.create(&dir, b"kept", &new(NewKind::File)).unwrap();
        volume.rename(&dir, b"kept", &root, b"file", RenameFlags::default()).unwrap();
        assert_eq!(volume.lookup(&root, b"dir").unwrap().number, dir.number);
        volume.rmdir(&root, b"dir").unwrap();
        assert!(matches!(volume.lookup(&root, b"dir"), Err(Error::NotFound)));
        for name in [&b"kept"[..], b"file", b"..", b"."] {
            assert!(matches!(volume.lookup(&dir, name), Err(Error::NotFound)), "{name:?}");
        }
        let number = dir.number;
        drop(dir);
        volume.evict_unlinked();
        volume.sync().unwrap();
        for other in &others {
            let file = volume.create(other, b"file", &new(NewKind::File)).unwrap();
            if file.number == number {
                assert!(matches!(volume.lookup(&file, b"file"), Err(Error::NotADirectory)));
                again += 1;
            }
            volume.unlink(other, b"file").unwrap();
        }
    }
    assert!(again > 0, "no number came again");
}

fn inode(number: u32) -> Inode {
    let mut raw = RawInode::new(256, 32).unwrap();
    raw.set_mode(0o100_644);
    raw.set_links_count(1);
    Inode::new(InodeNumber(number), (extant_ondisk::FsBlock(0), 0), raw)
}

/// More names than have room near each other: those of a directory have 4,096 words there.
const LARGE: usize = 8000;

fn numbered_name(index: usize) -> Vec<u8> {
    format!("name-{index}").into_bytes()
}

#[test]
fn names_of_large_directories_are_found_replaced_and_forgotten() {
    // All have room; of the larger directory too many for its near and its wide part, which have 36,864 words.
    for (slots, count, dirs) in [(1 << 14, LARGE, 8), (1 << 17, 100_000, 1)] {
        let (names, inodes) = (Dcache::new(slots), InodeCache::new(16));
        let file = Arc::new(inode(11));
        for number in 0..dirs {
            let dir = inode(number + 100);
            let found = |what: Option<InodeNumber>| {
                let is_it = |index: &usize| {
                    names.get(&dir, &numbered_name(*index), |inode| Some(inode.number)) == Some(what)
                };
                (0..count).filter(is_it).count()
            };
            let put =
                |inode| (0..count).for_each(|index| names.put(&inodes, &dir, &numbered_name(index), inode));
            put(Some(&file));
            let held = found(Some(file.number));
            assert!(held >= count * 99 / 100, "directory {number}: {held} names");
            put(None);
            assert_eq!(found(Some(file.number)), 0, "directory {number}");
            let held = found(None);
            assert!(held >= count * 99 / 100, "directory {number}: {held} that are not there");
            (0..count).for_each(|index| names.forget(&inodes, &dir, &numbered_name(index)));
            assert_eq!(found(None), 0, "directory {number}");
        }
    }
}

#[test]
fn many_directories_have_room_in_a_small_index() {
    let (names, inodes) = (Dcache::new(1024), InodeCache::new(16));
    let mut held = 0;
    // In all more than there are words in the index.
    for round in 0..20 {
        let dirs: Vec<_> =
            (0..50).map(|number| (inode(number + 100), Arc::new(inode(number + 1000)))).collect();
        for index in 0..10 {
            dirs.iter().for_each(|(dir, file)| names.put(&inodes, dir, &numbered_name(index), Some(file)));
        }
        // A look-up keeps a name cached longer than others.
        for (dir, file) in dirs.iter().filter(|_| round == 19) {
            for index in 0..10 {
                let found = names.get(dir, &numbered_name(index), |inode| Some(inode.number));
                assert!(found.is_none() || found == Some(Some(file.number)), "{found:?} in {}", dir.number);
                held += usize::from(found.is_some());
            }
        }
        for (dir, _) in &dirs {
            (0..10).for_each(|index| names.forget(&inodes, dir, &numbered_name(index)));
        }
    }
    assert!(held >= 495, "{held} of 500 names");
}

/// There are more slots than names were asked for, and each has a number.
#[test]
fn an_index_for_one_name_finds_a_name_in_each_slot() {
    let (names, inodes) = (Dcache::new(1), InodeCache::new(16));
    let (dir, file) = (inode(100), Arc::new(inode(1000)));
    for index in 0..64 {
        names.put(&inodes, &dir, &numbered_name(index), Some(&file));
        let found = names.get(&dir, &numbered_name(index), |inode| Some(inode.number));
        assert_eq!(found, Some(Some(file.number)), "{index}");
    }
}

#[test]
fn nothing_stays_of_what_threads_looked_up_while_a_directory_grew() {
    if !has_threads() {
        return;
    }
    let (names, inodes) = (Dcache::new(1 << 14), InodeCache::new(16));
    let file = Arc::new(inode(11));
    for round in 0..30 {
        let dir = inode(round + 100);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (names, inodes, dir, file) = (&names, &inodes, &dir, &file);
                scope.spawn(move || {
                    for index in 0..LARGE {
                        let name = numbered_name((index + thread * 7) % LARGE);
                        let _shared = dir.content.read();
                        names.put(inodes, dir, &name, Some(file));
                    }
                });
            }
        });
        let _alone = dir.content.write();
        for index in 0..LARGE {
            names.forget(&inodes, &dir, &numbered_name(index));
            assert!(names.get(&dir, &numbered_name(index), |_| Some(())).is_none(), "{index}");
        }
    }
}

#[test]
fn names_hold_no_more_inodes_than_there_is_room_for() {
    const COUNT: usize = 1024;
    let (names, inodes) = (Dcache::new(COUNT), InodeCache::new(16));
    let dirs = [inode(1), inode(2)];
    let name = |number: u32| format!("name-{number}").into_bytes();
    let mut weak = Vec::new();
    for number in 11..20_000 {
        let made = inodes.replace(inode(number));
        for dir in &dirs {
            names.put(&inodes, dir, &name(number), Some(&made));
            // The same again is no second one.
            names.put(&inodes, dir, &name(number), Some(&made));
        }
        weak.push(Arc::downgrade(made.inode()));
        drop(made);
        let found = names.get(&dirs[0], &name(number), |inode| Some(inode.number)).unwrap();
        assert_eq!(found, Some(InodeNumber(number)));
    }
    let found = |dir: &Inode| {
        let held = |number: &u32| names.get(dir, &name(*number), |_| Some(())).is_some();
        (11..20_000).filter(held).count()
    };
    let (held, alive) =
        (found(&dirs[0]) + found(&dirs[1]), weak.iter().filter(|inode| inode.strong_count() > 0).count());
    // Two names for each; and the cache of inodes keeps at least 16 for each of its shards.
    let others = 16 * 64;
    assert!((COUNT / 2..=COUNT).contains(&held), "{held} names");
    assert!(alive <= COUNT + others, "{alive} inodes");

    for number in 11..20_000 {
        names.forget(&inodes, &dirs[0], &name(number));
        names.put(&inodes, &dirs[1], &name(number), None);
    }
    assert_eq!(found(&dirs[0]), 0);
    let alive = weak.iter().filter(|inode| inode.strong_count() > 0).count();
    assert!(alive <= others, "{alive} inodes");
}
