//! Disks that nothing is wrong with give no finding.

use std::fs;
use std::path::Path;

use extant::{Mount, Pass, Progress};
use extant_testing::{copy, has_e2fsprogs, scratch};

use crate::tools::{debugfs, make_disk};
use crate::{Agreement, compare, extant};

/// Options of `mke2fs`, each a disk.
pub const LAYOUTS: &[&[&str]] = &[
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
    if !has_e2fsprogs() {
        return;
    }
    let dir = scratch();
    for options in LAYOUTS {
        let Some(image) = make_disk(dir.path(), options, 32 << 10) else { continue };
        let (agreement, said) = compare(&image);
        assert_eq!(agreement, Agreement::BothClean, "{options:?}\n{said}");
    }
}

/// A disk whose journal holds the file `late`, though its superblock says that it was unmounted.
fn make_unmounted_with_a_journal(image: &Path, taken: &Path) {
    let fs = Mount::new().background(false).open(image).expect("a disk");
    fs.write("/late", "in the journal").and_then(|()| fs.sync()).expect("a commit");
    copy(image, taken);
    debugfs(taken, "feature -needs_recovery");
}

#[test]
fn a_journal_is_ignored_as_linux_does_when_its_disk_was_unmounted() {
    if !has_e2fsprogs() {
        return;
    }
    let dir = scratch();
    let (taken, other) = (dir.path().join("taken"), dir.path().join("other"));
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

        #[cfg(target_os = "linux")]
        {
            let at = dir.path().join("mnt");
            fs::create_dir_all(&at).expect("a directory");
            let is_replayed = crate::kernel::under_kernel(&taken, &at, || at.join("late").exists());
            assert_ne!(is_replayed, Some(true), "{options:?}: Linux replays it");
        }
    }
}

#[test]
fn orphans_are_no_damage() {
    if !has_e2fsprogs() {
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
    if !has_e2fsprogs() {
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
    if !has_e2fsprogs() {
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
