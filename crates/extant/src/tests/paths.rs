//! Paths whose names are all in memory lead where the directories lead.

use extant_block::MemoryDevice;
use extant_rt::{Arc, AtomicBool, Ordering, parallel};

use super::disk::{Random, has_threads};
use crate::error::Error;
use crate::mkfs::Mkfs;
use crate::{Credentials, Filesystem, Mount, SetAttributes};

fn new_disk() -> Filesystem {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    Mkfs::new().format(&*device).expect("format");
    Mount::new().background(false).open_device(device).expect("mount")
}

/// A path that begins with `.` is looked up directory by directory.
fn asked(fs: &Filesystem, path: &str) -> Result<u32, String> {
    fs.symlink_metadata(format!("./{path}"))
        .map(|found| found.inode.0)
        .map_err(|error| error.cause().to_string())
}

fn known(fs: &Filesystem, path: &str) -> Result<u32, String> {
    let found = fs.symlink_metadata(path).map(|found| found.inode.0);
    let opened = fs.symlink_lookup(path).map(|file| file.number().0);
    let says = |found: Result<u32, Error>| found.map_err(|error| error.cause().to_string());
    let (found, opened) = (says(found), says(opened));
    assert_eq!(found, opened, "{path}");
    found
}

#[test]
fn every_path_leads_to_the_same_inode_from_memory_and_from_the_directories() {
    const NAMES: [&str; 4] = ["a", "b", "c", "link"];
    let fs = new_disk();
    let mut random = Random::new(7);
    for step in 0..4000 {
        let mut path = || {
            let names = (0..=random.below(4)).map(|_| NAMES[random.below(4) as usize]);
            names.collect::<Vec<_>>().join("/")
        };
        let (path, other) = (path(), path());
        // Most fail, each as it may.
        let _ = match random.below(8) {
            0..3 => fs.create_dir(&path),
            3 => fs.write(&path, b"content"),
            4 => fs.rename(&path, &other),
            5 => fs.symlink(&other, &path),
            6 => fs.remove_file(&path),
            _ => fs.remove_dir(&path),
        };
        for path in [&path, &other] {
            let asked = asked(&fs, path);
            assert_eq!(known(&fs, path), asked, "step {step}: {path}");
            assert_eq!(known(&fs, path), asked, "step {step}: {path} again");
            for path in [path, &format!("{path}/")] {
                let follows = |path: &str| fs.metadata(path).map(|found| found.inode.0).ok();
                assert_eq!(follows(path), follows(&format!("./{path}")), "step {step}: {path}, followed");
            }
        }
    }
}

#[test]
fn what_is_below_a_directory_that_moves_is_there_or_nowhere() {
    if !has_threads() {
        return;
    }
    let fs = new_disk();
    for dir in ["a", "b", "a/moves"] {
        fs.create_dir(dir).expect("mkdir");
    }
    fs.write("a/moves/file", b"content").expect("write");
    let number = fs.metadata("a/moves/file").expect("stat").inode;
    let has_ended = AtomicBool::new(false);
    parallel(3, |thread| {
        if thread == 0 {
            for _ in 0..2000 {
                fs.rename("a/moves", "b/moves").expect("rename");
                fs.rename("b/moves", "a/moves").expect("rename");
            }
            return has_ended.store(true, Ordering::Relaxed);
        }
        let mut found = 0;
        while !has_ended.load(Ordering::Relaxed) || found == 0 {
            for path in ["a/moves/file", "b/moves/file"] {
                match fs.metadata(path) {
                    Ok(metadata) => {
                        assert_eq!(metadata.inode, number);
                        found += 1;
                    }
                    Err(error) => assert!(matches!(error.cause(), Error::NotFound), "{error}"),
                }
            }
        }
    });
}

#[test]
fn permissions_count_on_a_path_whose_names_are_in_memory() {
    let fs = new_disk();
    fs.create_dir("closed").expect("mkdir");
    fs.write("closed/file", b"content").expect("write");
    let mode = SetAttributes { mode: Some(0o700), ..Default::default() };
    fs.lookup("closed").expect("the directory").set_attributes(&mode).expect("chmod");
    assert!(fs.metadata("closed/file").is_ok());
    let user = fs.as_user(Credentials { uid: 1000, gid: 1000, ..Default::default() });
    let refused = user.metadata("closed/file").expect_err("no permission");
    assert!(matches!(refused.cause(), Error::PermissionDenied), "{refused}");
}
