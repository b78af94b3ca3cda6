//! Disks in images of other formats, mounted.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::common::{Disk, assert_clean, can_mount, extant, is_qcow2, run, umount};

/// Runs qemu-img, which must do well; false if there is none.
fn qemu_img(arguments: &[&str], paths: &[&Path]) -> bool {
    match Command::new("qemu-img").args(arguments).args(paths).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(error) => {
            println!("skipped: qemu-img: {error}");
            false
        }
    }
}

#[test]
fn what_is_done_in_a_mount_of_an_overlay_leaves_its_base_alone() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::with_format("qcow2", "64M");
    let base = disk.image.clone();
    run(&["mkdir", &format!("{}:/base", base.display())]);
    let before = fs::read(&base).expect("the base");
    let top = base.with_file_name("top.qcow2");
    if !qemu_img(&["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "disk.img"], &[&top]) {
        return;
    }
    disk.image.clone_from(&top);
    disk.mount("rw");
    let file = disk.point.join("base/file");
    fs::write(&file, vec![7; 3 << 20]).expect("a write");
    fs::File::options()
        .write(true)
        .open(&file)
        .expect("the file")
        .write_all_at(b"middle", 1 << 20)
        .expect("a write");
    assert!(Command::new("sync").arg("-f").arg(&file).status().expect("sync").success());
    // The image is in use, and so is its base.
    let refused = extant(&["mkdir".into(), "--wait".into(), "0".into(), format!("{}:/x", base.display())]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use by"), "{refused:?}");
    disk.umount();
    assert!(is_qcow2(&top) && fs::read(&base).expect("the base") == before, "the base was written");
    let content = run(&["cat", &format!("{}:/base/file", top.display())]);
    assert!(content.len() == 3 << 20 && content[1 << 20..].starts_with("middle"));
    assert_clean(&top);
}

#[test]
fn image_that_is_only_read_is_mounted_for_reading() {
    if !can_mount() {
        return;
    }
    let disk = Disk::with_format("raw", "64M");
    run(&["mkdir", &format!("{}:/there", disk.image.display())]);
    let other = disk.image.with_file_name("other.vhdx");
    if !qemu_img(&["convert", "-O", "vhdx"], &[&disk.image, &other]) {
        return;
    }
    let mounted = extant(&["mount".as_ref(), other.as_os_str(), disk.point.as_os_str()]);
    let said = String::from_utf8_lossy(&mounted.stderr);
    assert!(mounted.status.success() && said.contains("write-protected, mounting read-only"), "{said}");
    assert!(disk.point.join("there").is_dir());
    let refused = fs::create_dir(disk.point.join("new")).expect_err("written");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    umount(&disk.point);
}
