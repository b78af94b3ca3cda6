//! A run's own place for images and mount points.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

const IMAGE_BYTES: u64 = 4 << 30;

/// Images and mount points of one run; removed on drop.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory in `dir`.
    pub fn new(dir: &Path) -> Result<Self> {
        let path = dir.join(format!("extant-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// The path of `name` in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// An image as mke2fs makes it, the same for every side.
    pub fn image(&self, name: &str) -> Result<PathBuf> {
        self.image_with(name, &[])
    }

    /// [`Scratch::image`] with further arguments of mke2fs.
    pub fn image_with(&self, name: &str, arguments: &[&str]) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::File::create(&path)?.set_len(IMAGE_BYTES)?;
        let usual = ["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0"];
        run(Command::new("mke2fs").args(usual).args(arguments).arg(&path))?;
        Ok(path)
    }

    /// An image as [`Scratch::image`]'s with a journal of 1 GiB, so long that loads of many names wait for no checkpoint.
    pub fn journalled_image(&self, name: &str) -> Result<PathBuf> {
        self.image_with(name, &["-J", "size=1024"])
    }

    /// An image of `bytes` bytes with few inodes and a short journal, so that hardly any of it is written.
    pub fn sparse_image(&self, name: &str, bytes: u64) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::File::create(&path)?.set_len(bytes)?;
        let arguments = ["-q", "-F", "-t", "ext4", "-N", "65536", "-J", "size=64"];
        run(Command::new("mke2fs").args(arguments).arg(&path))?;
        Ok(path)
    }

    /// An image as mkfs.xfs makes it.
    pub fn xfs_image(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::File::create(&path)?.set_len(IMAGE_BYTES)?;
        run(Command::new("mkfs.xfs").args(["-q", "-f"]).arg(&path))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command that must succeed.
///
/// # Errors
/// What it wrote to standard error.
pub fn run(command: &mut Command) -> io::Result<()> {
    output(command).map(drop)
}

/// Runs a command that must succeed: what it wrote to standard output.
///
/// # Errors
/// What it wrote to standard error.
pub fn output(command: &mut Command) -> io::Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.output().map_err(|error| io::Error::other(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program}: {}", words.trim())))
}
