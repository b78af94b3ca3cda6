//! The kernel mounts what was made.

use std::process::Command;

use extant::mkfs::Mkfs;

use crate::tools::{Image, assert_clean, has};

/// Mounts an image and unmounts it when dropped.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(image: &Image) -> Option<Self> {
        let point = image.path.with_extension("mnt");
        std::fs::create_dir(&point).expect("a directory");
        let status = Command::new("mount").args(["-o", "loop"]).arg(&image.path).arg(&point).output();
        match status {
            Ok(output) if output.status.success() => Some(Self(point)),
            Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => None,
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        extant_testing::unmount(&self.0);
    }
}

/// Another mount namespace may have copied the mount, and keeps it alive for as long as it lives.
fn wait_for_detach(image: &Image) {
    for _ in 0..200 {
        let attached = Command::new("losetup").arg("-j").arg(&image.path).output();
        if attached.is_ok_and(|output| output.stdout.is_empty()) {
            return;
        }
        extant_rt::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{} stays attached", image.path.display());
}

fn can_mount() -> bool {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let can = is_root && std::path::Path::new("/dev/loop-control").exists();
    if !can {
        println!("skipped: no loop devices");
    }
    can
}

#[test]
fn the_kernel_mounts_and_fills_new_disks() {
    if !can_mount() || !has("e2fsck") {
        return;
    }
    for (block_size, features) in [
        (4096, ""),
        (1024, ""),
        (2048, "^flex_bg"),
        (4096, "meta_bg,^resize_inode"),
        (4096, "^has_journal"),
        (4096, "^extent,^64bit,^metadata_csum"),
        (4096, "orphan_file,metadata_csum_seed"),
        (1024, "sparse_super2,^resize_inode"),
    ] {
        let image = Image::new(300 << 20);
        let mkfs = Mkfs::new()
            .block_size(block_size)
            .features(features)
            .expect("features")
            .label(b"kernel")
            .expect("a label");
        mkfs.format(&image.device()).expect("a file system");
        let Some(mounted) = Mounted::new(&image) else { return };
        for number in 0..40_u32 {
            let directory = mounted.0.join(format!("directory {number}"));
            std::fs::create_dir(&directory).expect("a directory");
            std::fs::write(directory.join("file"), vec![number as u8; 1 << 20]).expect("a file");
        }
        for number in (0..40).step_by(2) {
            std::fs::remove_dir_all(mounted.0.join(format!("directory {number}"))).expect("a directory");
        }
        drop(mounted);
        wait_for_detach(&image);
        assert_clean(&image.path, features);
    }
}
