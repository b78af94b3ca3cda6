//! Threads that change, look for and list the names of one directory, whose leaves are divided meanwhile.

use std::collections::BTreeSet;

use extant::{Dir, Error, Filesystem, New, NewKind, RenameFlags};
use extant_rt::{AtomicUsize, Ordering, explore, parallel};

use super::{Random, SCHEDULES, device, disk, mount, plan, remounted};

const TASKS: usize = 3;
/// Names that stay: in leaves of four.
const STAYING: u64 = 14;
const STEPS: u64 = 6;
/// Names of which each task makes and removes its own, and names that all make and remove.
const OWN: u64 = 6;
const CONTESTED: u64 = 2;

const DIRECTORY: New<'_> = New { kind: NewKind::Directory, mode: 0o755, ..FILE };
const FILE: New<'_> = New { kind: NewKind::File, mode: 0o644, uid: 0, gid: 0, times: None, xattrs: &[] };

fn name(of: &str, number: u64) -> Vec<u8> {
    format!("{of}-{number}-{}", "x".repeat(200)).into_bytes()
}

/// The names of the directory, each once.
fn listed(dir: &Dir) -> BTreeSet<Vec<u8>> {
    let entries = dir.entries().expect("a list");
    let names: BTreeSet<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(names.len(), entries.len(), "a name twice");
    names
}

/// The names of the directory itself.
fn links_of(fs: &Filesystem) -> usize {
    usize::from(fs.metadata("/d").expect("a directory").links)
}

/// Makes what is wanted of a name happen, which it does if the name is there, or is not.
fn expect(result: Result<(), Error>, may: bool) -> bool {
    match result {
        Ok(()) => assert!(may),
        Err(Error::Exists | Error::NotFound) => assert!(!may),
        Err(error) => panic!("{error}"),
    }
    may
}

/// What one task does; the names of its own that are there at the end.
fn change(dir: &Dir, task: usize, seed: u64, contested: &[AtomicUsize]) -> BTreeSet<Vec<u8>> {
    let mut random = Random::new(seed, task);
    let mut there = BTreeSet::new();
    for _ in 0..STEPS {
        let own = name(&format!("task-{task}"), random.below(OWN));
        let number = random.below(CONTESTED);
        let common = name("common", number);
        let common_count = &contested[number as usize];
        match random.below(15) {
            13..15 => {
                let sub = name(&format!("dir-{task}"), random.below(OWN));
                if there.contains(&sub) {
                    dir.rmdir(&sub).expect("an empty directory");
                    there.remove(&sub);
                } else {
                    drop(dir.create_dir(&sub, &DIRECTORY).expect("a directory"));
                    there.insert(sub);
                }
            }
            0..4 => {
                if expect(dir.create(&own, &FILE).map(drop), !there.contains(&own)) {
                    assert!(dir.lookup(&own).is_ok());
                    there.insert(own);
                }
            }
            4..6 => {
                if expect(dir.unlink(&own), there.contains(&own)) {
                    assert!(matches!(dir.lookup(&own), Err(Error::NotFound)));
                    there.remove(&own);
                }
            }
            6..8 => {
                let to = name(&format!("task-{task}"), random.below(OWN));
                let moved = dir.rename(&own, dir, &to, RenameFlags::default());
                if expect(moved, there.contains(&own)) {
                    there.remove(&own);
                    there.insert(to);
                }
            }
            8 => assert!(dir.lookup(&name("stays", random.below(STAYING))).is_ok()),
            9 => assert!(matches!(dir.lookup(&name("never", random.below(9))), Err(Error::NotFound))),
            10 => {
                let names = listed(dir);
                assert!((0..STAYING).all(|number| names.contains(&name("stays", number))));
                assert!(there.iter().all(|name| names.contains(name)), "its own");
            }
            11 => match dir.create(&common, &FILE) {
                Ok(_) => assert_eq!(common_count.fetch_add(1, Ordering::SeqCst), 0, "made twice"),
                Err(error) => assert!(matches!(error, Error::Exists), "{error}"),
            },
            _ => {
                // Only the thread that takes it from the count removes it.
                if common_count.swap(0, Ordering::SeqCst) == 1 {
                    dir.unlink(&common).expect("it is there");
                }
            }
        }
    }
    there
}

#[test]
fn names_of_a_shared_directory() {
    if !extant_testing::has_threads() {
        return;
    }
    let content = disk(|fs| {
        let dir = fs.dir("/").expect("the root").create_dir(b"d", &DIRECTORY);
        let dir = dir.expect("a directory");
        (0..STAYING).for_each(|number| drop(dir.create(&name("stays", number), &FILE).expect("a file")));
    });
    explore(&plan::exploration(SCHEDULES), move |seed| {
        let device = device(&content);
        let fs = mount(device.clone());
        let dir = fs.dir("/d").expect("a directory");
        let contested: Vec<_> = (0..CONTESTED).map(|_| AtomicUsize::new(0)).collect();
        let own = parallel(TASKS, |task| change(&dir, task, seed, &contested));
        let mut expected: BTreeSet<_> = own.into_iter().flatten().collect();
        expected.extend((0..STAYING).map(|number| name("stays", number)));
        let made = (0..CONTESTED).filter(|number| contested[*number as usize].load(Ordering::SeqCst) == 1);
        expected.extend(made.map(|number| name("common", number)));
        assert!(listed(&dir) == expected, "seed {seed}");
        let links = 2 + expected.iter().filter(|name| name.starts_with(b"dir-")).count();
        assert_eq!(links_of(&fs), links, "seed {seed}");
        drop(dir);
        let fs = remounted(fs, device, seed);
        let dir = fs.dir("/d").expect("a directory");
        assert!(listed(&dir) == expected, "seed {seed}: on the disk");
        assert_eq!(links_of(&fs), links, "seed {seed}: on the disk");
        assert!(expected.iter().all(|name| dir.lookup(name).is_ok()), "seed {seed}: on the disk");
    });
}
