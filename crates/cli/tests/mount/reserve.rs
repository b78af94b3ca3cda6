//! Blocks that are kept on a full disk: those of root, and those that a file was promised.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use crate::common::{Disk, can_mount, is_root};

/// Runs a shell's words as an ordinary user.
fn as_user(words: &str) -> Output {
    let mut shell = Command::new("setpriv");
    shell.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-ec", words]);
    shell.output().expect("a shell")
}

/// Allocates files of so many KiB until there is no room.
fn fill(dir: &Path, kilobytes: u32) {
    let file = format!("{}/{kilobytes}", dir.display());
    as_user(&format!("n=0; while fallocate -l {kilobytes}K {file}-$n; do n=$((n + 1)); done"));
}

#[test]
fn others_do_not_allocate_it_and_may_punch_holes_with_its_help() {
    if !can_mount() || !is_root() {
        println!("skipped: not root");
        return;
    }
    let disk = Disk::new("64M");
    let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).expect("mode");
    open(disk.image.parent().expect("directory"), 0o755);
    disk.mount("rw");
    let file = disk.point.join("file");
    fs::write(&file, vec![7; 2 << 20]).expect("write");
    open(&disk.point, 0o777);
    open(&file, 0o666);
    [4096, 256, 4].into_iter().for_each(|kilobytes| fill(&disk.point, kilobytes));
    let found = statvfs(&disk.point).expect("statvfs");
    assert_eq!(found.f_bavail, 0);
    assert!(
        found.f_bfree > found.f_blocks / 25,
        "only {} blocks of {} are left",
        found.f_bfree,
        found.f_blocks
    );
    // Each cuts an extent in two; the tree needs blocks, and the holes are filled again.
    for number in 0..100 {
        let punch = format!("fallocate -p -o {} -l 8192 {}", number * 12_288, file.display());
        let output = as_user(&punch);
        assert!(output.status.success(), "{number}: {}", String::from_utf8_lossy(&output.stderr));
        as_user(&format!("fallocate -l 8192 {}-{number}", file.display()));
    }
    disk.finish();
}

/// Writes pieces of `bytes` bytes to the end of a file until there is no room.
fn append_until_full(path: &Path, bytes: usize) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("open");
    while file.write_all(&vec![3; bytes]).is_ok() {}
}

/// As xfstests' generic/274.
#[test]
fn what_was_allocated_behind_the_end_can_be_written_on_a_full_disk() {
    const BLOCK: u64 = 4096;
    const BYTES: u64 = 16 << 20;
    if !can_mount() {
        return;
    }
    for options in ["rw", "rw,page_cache=16M"] {
        let disk = Disk::new("64M");
        disk.mount(options);
        let path = disk.point.join("file");
        fs::write(&path, vec![1; BLOCK as usize]).expect("write");
        let file = OpenOptions::new().write(true).open(&path).expect("open");
        // In pieces that are no neighbours: as many extents as fit into the inode.
        for at in [0, BYTES / 4, BYTES / 2].map(|at| at + 2 * BLOCK) {
            fallocate(&file, FallocateFlags::KEEP_SIZE, at, BYTES / 4 - BLOCK).expect("fallocate");
        }
        for (name, bytes) in [("large", 1 << 20), ("blocks", BLOCK as usize), ("bytes", 1)] {
            append_until_full(&disk.point.join(name), bytes);
            rustix::fs::syncfs(File::open(&disk.point).expect("open")).expect("sync");
        }
        for piece in [0, BYTES / 4, BYTES / 2].map(|at| at + 2 * BLOCK) {
            for at in (piece..piece + BYTES / 4 - BLOCK).step_by(BLOCK as usize) {
                let written = file.write_all_at(&vec![2; BLOCK as usize], at);
                assert!(written.is_ok(), "{options}: {written:?} at {at}");
            }
        }
        file.sync_all().expect("fsync");
        drop(file);
        let content = fs::read(&path).expect("read");
        let is_written = |at: usize| content[at..at + BLOCK as usize].iter().all(|byte| *byte == 2);
        assert!(is_written(2 * BLOCK as usize) && is_written(content.len() - BLOCK as usize), "{options}");
        disk.finish();
    }
}
