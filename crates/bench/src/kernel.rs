//! The kernel's ext4 on a loop device.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scratch::run;

/// A kernel mount of an image; unmounted on drop.
#[derive(Debug)]
pub struct KernelMount {
    point: PathBuf,
}

impl KernelMount {
    /// Mounts `image` at `point`, which is made.
    pub fn new(image: &Path, point: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(point)?;
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(point))?;
        Ok(Self { point: point.to_owned() })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg(&self.point)) {
            eprintln!("extant-bench: {} stays mounted: {error}", self.point.display());
        }
    }
}
