//! Disks that nothing is wrong with give no finding.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use extant::{Mount, Pass, Progress};

use crate::tools::{debugfs, has_tools, make_disk, run, scratch};
use crate::{Agreement, compare, extant};

/// Options of `mke2fs`, each a disk.
const LAYOUTS: &[&[&str]] = &[
    &["-b", "1024"],
    &["-b", "2048", "-O", "^64bit"],
    &["-b", "4096"],
    &["-b", "1024", "-O", "^metadata_csum,uninit_bg"],
    &["-b", "4096", "-O", "^metadata_csum,^64bit"],
    &["-b", "4096", "-I", "128"],
    &["-b", "1024", "-I", "1024", "-N", "2048"],
    &["-b", "4096", "-O", "^has_journal"],
    &["-b", "1024", "-O", "^dir_index"],
    &["-b", "1024", "-O", "^extent,^64bit,^flex_bg,^metadata_csum,^huge_file,^dir_nlink,^extra_isize"],
    &["-b", "4096", "-O", "^extent,^64bit"],
    &["-b", "1024", "-O", "^filetype"],
    &["-b", "1024", "-O", "^flex_bg"],
    &["-b", "1024", "-O", "meta_bg,^resize_inode"],
    &["-b", "1024", "-O", "bigalloc"],
    &["-b", "4096", "-O", "bigalloc", "-C", "65536"],
    &["-b", "1024", "-O", "sparse_super2"],
    &["-b", "1024", "-O", "orphan_file"],
    &["-b", "4096", "-O", "metadata_csum_seed"],
    &["-b", "1024", "-O", "mmp"],
    &["-b", "1024", "-O", "large_dir"],
    &["-b", "1024", "-O", "^sparse_super,^resize_inode"],
    &["-b", "1024", "-g", "1024"],
    &["-b", "1024", "-E", "packed_meta_blocks=1"],
    &["-b", "1024", "-O", "inline_data"],
    &["-b", "4096", "-I", "1024", "-N", "2048", "-O", "inline_data"],
    &["-b", "1024", "-O", "ea_inode"],
];

#[test]
fn disks_of_mke2fs_are_clean() {
    if !has_tools() {
        return;
    }
    let dir = scratch();
    for options in LAYOUTS {
        let Some(image) = make_disk(dir.path(), options, 32 << 10) else { continue };
        let (agreement, said) = compare(&image);
        assert_eq!(agreement, Agreement::BothClean, "{options:?}\n{said}");
    }
}

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
fn under_kernel<T>(image: &Path, at: &Path, work: impl FnOnce() -> T) -> Option<T> {
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
    if !has_tools() {
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
    if !has_tools() {
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

/// A disk whose journal holds the file `late`, though its superblock says that it was unmounted.
fn make_unmounted_with_a_journal(image: &Path, taken: &Path) {
    let fs = Mount::new().background(false).open(image).expect("a disk");
    fs.write("/late", "in the journal").and_then(|()| fs.sync()).expect("a commit");
    fs::copy(image, taken).expect("a copy");
    debugfs(taken, "feature -needs_recovery");
}

#[test]
fn a_journal_is_ignored_as_linux_does_when_its_disk_was_unmounted() {
    if !has_tools() {
        return;
    }
    let dir = scratch();
    let (at, taken) = (dir.path().join("mnt"), dir.path().join("taken"));
    let other = dir.path().join("other");
    fs::create_dir(&at).expect("a directory");
    for options in [LAYOUTS[0], LAYOUTS[2], LAYOUTS[3], LAYOUTS[10]] {
        let Some(image) = make_disk(dir.path(), options, 64 << 10) else { continue };
        make_unmounted_with_a_journal(&image, &taken);
        fs::copy(&taken, &other).expect("a copy");
        debugfs(&other, "feature needs_recovery");
        let crashed = Mount::new().read_only(true).open(&other).expect("a disk");
        assert!(crashed.metadata("/late").is_ok(), "{options:?}: the journal does not hold it");
        drop(crashed);

        let before = fs::read(&taken).expect("its bytes");

        let reading = Mount::new().read_only(true).open(&taken).expect("a disk");
        assert!(reading.metadata("/late").is_err(), "{options:?}: replayed when reading");
        assert_eq!(reading.mounted().skipped_transactions, 1, "{options:?}");
        drop(reading);
        assert!(fs::read(&taken).expect("its bytes") == before, "{options:?}: reading has written");

        fs::copy(&taken, &other).expect("a copy");
        let writing = Mount::new().open(&other).expect("a disk");
        assert!(writing.metadata("/late").is_err(), "{options:?}: replayed when writing");
        writing.unmount().expect("unmounted");
        let (agreement, said) = compare(&other);
        assert_eq!(agreement, Agreement::BothClean, "{options:?}\n{said}");

        if let Some(is_replayed) = under_kernel(&taken, &at, || at.join("late").exists()) {
            assert!(!is_replayed, "{options:?}: Linux replays it");
        }
    }
}

#[test]
fn orphans_are_no_damage() {
    if !has_tools() {
        return;
    }
    let dir = scratch();
    let image = make_disk(dir.path(), &["-b", "1024"], 16 << 10).expect("a disk");
    let stat = debugfs(&image, "stat /attributes");
    let number =
        stat.split("Inode: ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a number");
    // The state that a crash leaves of an open file that lost its last name: in no directory, but on the list.
    for command in [format!("sif <{number}> links_count 0"), "unlink /attributes".to_owned()] {
        debugfs(&image, &command);
    }
    assert!(!extant(&image).0, "an inode without links and list is damage");
    debugfs(&image, &format!("ssv last_orphan {number}"));
    let (clean, said) = extant(&image);
    assert!(clean, "{said}");
}

#[test]
fn a_disk_that_is_being_written_is_clean_once_it_is_synced() {
    if !has_tools() {
        return;
    }
    let dir = scratch();
    let image = make_disk(dir.path(), &["-b", "1024"], 16 << 10).expect("a disk");
    let fs = Mount::new().open(&image).expect("a disk");
    for number in 0..200 {
        fs.write(format!("/many/written-{number}"), vec![1; number * 10]).expect("room");
    }
    fs.remove_file("/big").expect("a file");
    fs.remove_file("/sub/hard").expect("a file");
    fs.sync().expect("a commit");
    let findings = fs.check(&mut |_| {}).expect("a check");
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn progress_tells_each_pass_to_its_end() {
    if !has_tools() {
        return;
    }
    let dir = scratch();
    let image = make_disk(dir.path(), &["-b", "1024"], 16 << 10).expect("a disk");
    let fs = Mount::new().read_only(true).open(&image).expect("a disk");
    let mut told: Vec<Progress> = Vec::new();
    fs.check(&mut |progress| told.push(progress)).expect("a check");
    let passes = [Pass::Groups, Pass::Inodes, Pass::Directories, Pass::Links, Pass::Counts];
    let ends: Vec<Pass> = told
        .iter()
        .filter(|progress| progress.done == progress.total)
        .map(|progress| progress.pass)
        .collect();
    assert_eq!(ends, passes);
    assert!(told.windows(2).all(|pair| (pair[0].pass, pair[0].done) < (pair[1].pass, pair[1].done)));
}
