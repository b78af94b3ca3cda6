//! Disks that the kernel worked on are clean.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use extant::Mount;
use extant_testing::{has_e2fsprogs, scratch};

use crate::clean::LAYOUTS;
use crate::tools::{make_disk, run};
use crate::{Agreement, compare, extant};

/// The kernel's own work on a disk; `None` where it may not mount. `meanwhile` runs before it unmounts.
fn change_by_kernel(image: &Path, at: &Path, meanwhile: impl FnOnce()) -> Option<()> {
    let done = under_kernel(image, at, || {
        let done = work(at);
        meanwhile();
        done
    })?;
    match done {
        // A full disk has to be consistent too.
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {}
        done => done.expect("the kernel's file system takes files"),
    }
    Some(())
}

/// The result of `work` while the kernel has the disk mounted at `at`; `None` where it may not mount.
pub fn under_kernel<T>(image: &Path, at: &Path, work: impl FnOnce() -> T) -> Option<T> {
    let (mounted, said) =
        run("mount", &["-o", "loop,user_xattr,acl", &image.to_string_lossy(), &at.to_string_lossy()]);
    if !mounted {
        println!("skipped: {said}");
        return None;
    }
    let done = work();
    extant_testing::unmount(at);
    Some(done)
}

fn work(root: &Path) -> std::io::Result<()> {
    let indexed = root.join("indexed");
    fs::create_dir(&indexed)?;
    for number in 0..3000 {
        fs::write(indexed.join(format!("name-{number}-{}", "y".repeat(number % 60))), b"")?;
    }
    for number in (0..3000).step_by(3) {
        fs::remove_file(indexed.join(format!("name-{number}-{}", "y".repeat(number % 60))))?;
    }
    for number in 0..40 {
        fs::create_dir_all(root.join(format!("tree/{}/{number}", number % 7)))?;
    }
    // Every second block, so that the extent tree gets levels.
    let sparse = fs::File::create(root.join("holes"))?;
    for at in 0..1200 {
        sparse.write_all_at(b"data", at * 8192)?;
    }
    fs::hard_link(root.join("holes"), root.join("tree/holes"))?;
    for (number, file) in ["holes", "big", "tree"].into_iter().enumerate() {
        let path = root.join(file);
        run("setfattr", &["-n", "user.long", "-v", &"v".repeat(200 + number * 300), &path.to_string_lossy()]);
        run("setfacl", &["-m", "u:1000:rw,g:2000:r", &path.to_string_lossy()]);
    }
    for number in 0..20 {
        let path = root.join(format!("shared-{number}"));
        fs::write(&path, b"")?;
        run("setfattr", &["-n", "user.same", "-v", &"s".repeat(300), &path.to_string_lossy()]);
    }
    // With `ea_inode` in inodes of their own, some of them shared.
    for number in 0..6 {
        let path = root.join(format!("shared-{number}"));
        let value = "l".repeat(6000 + number / 3 * 1000);
        run("setfattr", &["-n", &format!("user.{number}"), "-v", &value, &path.to_string_lossy()]);
    }
    let ahead = fs::File::create(root.join("ahead"))?;
    // Not with block maps.
    let _ = rustix::fs::fallocate(&ahead, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 1 << 20);
    ahead.write_all_at(b"start", 0)?;
    Ok(())
}

#[test]
fn disks_of_the_kernel_are_clean() {
    if !has_e2fsprogs() {
        return;
    }
    let dir = scratch();
    let at = dir.path().join("mnt");
    fs::create_dir(&at).expect("a directory");
    for options in LAYOUTS.iter().filter(|options| !options.contains(&"mmp")) {
        let Some(image) = make_disk(dir.path(), options, 64 << 10) else { continue };
        if change_by_kernel(&image, &at, || ()).is_none() {
            continue;
        }
        let (agreement, said) = compare(&image);
        assert_eq!(agreement, Agreement::BothClean, "{options:?}\n{said}");
    }
}

#[test]
fn disks_that_the_kernel_still_has_in_use_are_clean_once_replayed() {
    if !has_e2fsprogs() {
        return;
    }
    let dir = scratch();
    let (at, taken) = (dir.path().join("mnt"), dir.path().join("taken"));
    fs::create_dir(&at).expect("a directory");
    for options in [LAYOUTS[0], LAYOUTS[2], LAYOUTS[3]] {
        let Some(image) = make_disk(dir.path(), options, 64 << 10) else { continue };
        let take = || {
            run("sync", &["-f", &at.to_string_lossy()]);
            fs::copy(&image, &taken).expect("a copy");
        };
        if change_by_kernel(&image, &at, take).is_none() {
            continue;
        }
        let mounted = Mount::new().read_only(true).open(&taken).expect("a disk").mounted();
        assert!(mounted.replayed_blocks > 0, "{options:?}: there is nothing to replay");
        let (clean, said) = extant(&taken);
        assert!(clean, "{options:?}\n{said}");
    }
}
