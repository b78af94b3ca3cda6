//! The kernel's file systems on loop devices.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scratch::run;

/// A kernel mount of an image; unmounted on drop.
#[derive(Debug)]
pub struct KernelMount {
    point: PathBuf,
    is_mounted: bool,
}

impl KernelMount {
    /// Mounts `image` at `point`, which is made.
    pub fn new(image: &Path, point: &Path) -> io::Result<Self> {
        Self::with_options(image, point, "rw")
    }

    /// [`KernelMount::new`] with further mount options.
    pub fn with_options(image: &Path, point: &Path, options: &str) -> io::Result<Self> {
        std::fs::create_dir_all(point)?;
        run(Command::new("mount").arg("-o").arg(format!("loop,{options}")).arg(image).arg(point))?;
        Ok(Self { point: point.to_owned(), is_mounted: true })
    }

    /// Unmounts it; the loop device goes with it.
    pub fn unmount(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.is_mounted) {
            true => run(Command::new("umount").arg(&self.point)),
            false => Ok(()),
        }
    }

    /// Makes everything durable.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(std::fs::File::open(&self.point)?)?)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("extant-bench: {} stays mounted: {error}", self.point.display());
        }
    }
}
