//! Reading directories that change meanwhile: what is there throughout is seen exactly once.

use std::collections::BTreeMap;

use extant_block::BlockDevice;
use extant_ondisk::InodeNumber;
use extant_rt::{Arc, AtomicBool, Ordering};

use super::disk::{Random, assert_clean, format, has_e2fsprogs, has_threads, mount};
use super::names::new;
use crate::error::Error;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Volume;
use crate::namespace::NewKind;

/// A disk to get the oldest hash, which has no minor one.
const LEGACY_HASH: &[&str] = &["-b", "1024", "-O", "^metadata_csum,^64bit"];
const S_DEF_HASH_VERSION: u64 = 0xFC;

fn made_dir(volume: &Arc<Volume>) -> InodeRef {
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    volume.create(&root, b"dir", &new(NewKind::Directory)).unwrap()
}

/// Reads a directory in pieces of random length and calls `between` after each; how often each name was seen.
fn read_in_pieces(
    volume: &Arc<Volume>,
    dir: &InodeRef,
    random: &mut Random,
    mut between: impl FnMut(&mut Random),
) -> BTreeMap<Vec<u8>, u32> {
    let mut seen = BTreeMap::new();
    let mut cookie = 0;
    loop {
        let mut left = 1 + random.below(20);
        let mut ended = true;
        volume
            .read_dir(dir, cookie, &mut |item| {
                if left == 0 {
                    ended = false;
                    return false;
                }
                left -= 1;
                assert!(item.next_cookie > cookie && i64::try_from(item.next_cookie).is_ok());
                cookie = item.next_cookie;
                *seen.entry(item.name.to_vec()).or_insert(0) += 1;
                true
            })
            .unwrap();
        if ended {
            return seen;
        }
        between(random);
    }
}

fn long(prefix: &str, index: u64) -> Vec<u8> {
    format!("{prefix}{index:06}-with-a-tail-that-fills-blocks-soon").into_bytes()
}

fn check_seen(seen: &BTreeMap<Vec<u8>, u32>, kept: u64, what: &str) {
    for (name, count) in seen {
        assert_eq!(*count, 1, "{what}: {} was seen {count} times", String::from_utf8_lossy(name));
    }
    for index in 0..kept {
        assert!(seen.contains_key(&long("kept", index)), "{what}: {index} was not seen");
    }
    assert!(seen.contains_key(b".".as_slice()) && seen.contains_key(b"..".as_slice()), "{what}");
}

/// From one block over the conversion to many splits, while reading.
#[test]
fn names_that_stay_are_seen_once_over_conversion_and_splits() {
    if !has_e2fsprogs() {
        return;
    }
    let disks: [&[&str]; 5] = [
        &["-b", "1024"],
        &["-b", "4096"],
        &["-b", "1024", "-O", "^dir_index"],
        &["-b", "1024", "-O", "large_dir"],
        LEGACY_HASH,
    ];
    for seed in 0..40 {
        let arguments = disks[seed as usize % disks.len()];
        let (device, _) = format(arguments, 16 << 10, &[]);
        if arguments == LEGACY_HASH {
            device.write_at(1024 + S_DEF_HASH_VERSION, &[0]).unwrap();
        }
        let device = Arc::new(device);
        let volume = mount(&device);
        let dir = made_dir(&volume);
        let mut random = Random::new(seed);
        let kept = [3, 10, 300][seed as usize % 3];
        let file = volume.create(&dir, &long("kept", 0), &new(NewKind::File)).unwrap();
        for index in 1..kept {
            volume.link(&file, &dir, &long("kept", index)).unwrap();
        }
        let mut present = Vec::new();
        let mut next = 0;
        for _ in 0..3 {
            let seen = read_in_pieces(&volume, &dir, &mut random, |random| {
                for _ in 0..random.below(30) {
                    if random.below(3) > 0 {
                        volume.link(&file, &dir, &long("other", next)).unwrap();
                        present.push(next);
                        next += 1;
                    } else if !present.is_empty() {
                        let gone = present.swap_remove(random.below(present.len() as u64) as usize);
                        volume.unlink(&dir, &long("other", gone)).unwrap();
                    }
                }
                // A directory that grows as fast as it is read would never end.
                if present.len() > 900 {
                    for gone in present.drain(..) {
                        volume.unlink(&dir, &long("other", gone)).unwrap();
                    }
                }
            });
            check_seen(&seen, kept, &format!("seed {seed}, {arguments:?}"));
        }
        drop((dir, file));
        volume.unmount().unwrap();
        assert_clean(&*device, &format!("seed {seed}, {arguments:?}"));
    }
}

#[test]
fn names_that_stay_are_seen_once_beside_threads_that_change_others() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let (device, _) = format(&["-b", "1024"], 32 << 10, &[]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let dir = made_dir(&volume);
    let file = volume.create(&dir, &long("kept", 0), &new(NewKind::File)).unwrap();
    for index in 1..200 {
        volume.link(&file, &dir, &long("kept", index)).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (volume, dir, file, stop) = (&volume, &dir, &file, &stop);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                while !stop.load(Ordering::Relaxed) {
                    let name = long("other", thread << 32 | random.below(700));
                    let linked = volume.link(file, dir, &name);
                    match linked {
                        Ok(()) => {}
                        Err(Error::Exists) => volume.unlink(dir, &name).unwrap(),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let mut random = Random::new(9);
        for round in 0..60 {
            let seen = read_in_pieces(&volume, &dir, &mut random, |_| ());
            check_seen(&seen, 200, &format!("round {round}"));
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop((dir, file));
    volume.unmount().unwrap();
    assert_clean(&*device, "after threads");
}
