//! The blocks that are kept for root, when ordinary users fill the disk.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::statvfs;

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
