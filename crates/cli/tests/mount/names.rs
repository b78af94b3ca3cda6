//! Reading a directory that changes, and names that come and go behind the kernel's cache.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Disk, can_mount};

#[test]
fn reading_a_directory_that_changes_loses_and_repeats_nothing() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("128M");
    disk.mount("rw");
    let dir = disk.point.join("dir");
    fs::create_dir(&dir).expect("directory");
    for number in 0..3000 {
        fs::write(dir.join(format!("stays{number}")), b"").expect("write");
    }
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (dir, ends) = (&dir, &ends);
            scope.spawn(move || {
                for number in 0_u64.. {
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    let path = dir.join(format!("goes{thread}-{number}"));
                    fs::write(&path, b"").expect("write");
                    fs::remove_file(&path).expect("remove");
                }
            });
        }
        for _ in 0..20 {
            let mut seen: HashMap<String, u32> = HashMap::new();
            for entry in fs::read_dir(&dir).expect("directory") {
                *seen.entry(entry.expect("entry").file_name().into_string().expect("name")).or_default() += 1;
            }
            let once = (0..3000).filter(|number| seen.get(&format!("stays{number}")) == Some(&1)).count();
            ends.store(once != 3000, Ordering::Relaxed);
            assert_eq!(once, 3000, "names that stay were not seen once each");
        }
        ends.store(true, Ordering::Relaxed);
    });
    disk.finish();
}

#[test]
fn names_that_were_missing_are_found_once_made() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let path = |name: &str| disk.point.join(name);
    for name in ["a", "b", "c"] {
        assert!(!path(name).exists());
    }
    fs::write(path("a"), b"a").expect("write");
    fs::hard_link(path("a"), path("b")).expect("link");
    fs::rename(path("a"), path("c")).expect("rename");
    assert!(!path("a").exists() && path("b").exists() && path("c").exists());
    fs::write(path("b"), b"changed").expect("write");
    assert_eq!(fs::read(path("c")).expect("read"), b"changed");
    disk.finish();
}
