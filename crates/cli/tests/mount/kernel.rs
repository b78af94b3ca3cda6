//! The same disk, or another like it, mounted by the running kernel.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{is_qcow2, is_root};

/// A mount of the kernel's, on a loop device.
pub struct Kernel(PathBuf);

impl Kernel {
    /// Mounts; none, and says so, without root or loop devices, or of a qcow2 image.
    pub fn mount(image: &Path, point: &Path, options: &str) -> Option<Self> {
        if !is_root() || !Path::new("/dev/loop-control").exists() {
            println!("skipped: the kernel's mount needs root and loop devices");
            return None;
        }
        if is_qcow2(image) {
            println!("skipped: the kernel mounts no qcow2 images");
            return None;
        }
        let mut command = Command::new("mount");
        command.args(["-t", "ext4", "-o", &format!("loop,{options}")]).arg(image).arg(point);
        let output = command.output().expect("mount");
        assert!(output.status.success(), "the kernel refuses: {}", String::from_utf8_lossy(&output.stderr));
        Some(Self(point.to_owned()))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        extant_testing::unmount(&self.0);
    }
}
