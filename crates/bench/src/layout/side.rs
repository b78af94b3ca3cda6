//! Who lays files out: the library, or the kernel by system calls.

use std::fs::OpenOptions;
use std::path::Path;

use extant::{Fallocate, Filesystem, Mount};
use rustix::fs::{FallocateFlags, fallocate};

use crate::Result;
use crate::kernel::KernelMount;

/// A mounted disk. Paths are relative to its root.
pub trait Side {
    /// An open file.
    type File;

    /// Makes a directory.
    fn create_dir(&self, path: &str) -> Result<()>;
    /// Makes an empty file.
    fn create(&self, path: &str) -> Result<Self::File>;
    /// Allocates a range by fallocate; the file grows to its end.
    fn allocate(&self, file: &Self::File, at: u64, bytes: u64) -> Result<()>;
    /// Removes a file.
    fn remove(&self, path: &str) -> Result<()>;
    /// Commits, so that what was freed can be had again.
    fn sync(&self) -> Result<()>;
    /// Unmounts.
    fn finish(self) -> Result<()>;
}

/// The library's disk.
pub struct Engine(Filesystem);

impl Engine {
    /// Mounts `image`.
    pub fn new(image: &Path) -> Result<Self> {
        Ok(Self(Mount::new().open(image)?))
    }
}

impl Side for Engine {
    type File = extant::File;

    fn create_dir(&self, path: &str) -> Result<()> {
        Ok(self.0.create_dir(path)?)
    }

    fn create(&self, path: &str) -> Result<Self::File> {
        Ok(self.0.options().write(true).create_new(true).open(path)?)
    }

    fn allocate(&self, file: &Self::File, at: u64, bytes: u64) -> Result<()> {
        Ok(file.allocate(Fallocate::Allocate { keep_size: false }, at, bytes)?)
    }

    fn remove(&self, path: &str) -> Result<()> {
        Ok(self.0.remove_file(path)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.0.sync()?)
    }

    fn finish(self) -> Result<()> {
        Ok(self.0.unmount()?)
    }
}

impl Side for KernelMount {
    type File = std::fs::File;

    fn create_dir(&self, path: &str) -> Result<()> {
        Ok(std::fs::create_dir(self.path().join(path))?)
    }

    fn create(&self, path: &str) -> Result<Self::File> {
        Ok(OpenOptions::new().write(true).create_new(true).open(self.path().join(path))?)
    }

    fn allocate(&self, file: &Self::File, at: u64, bytes: u64) -> Result<()> {
        Ok(fallocate(file, FallocateFlags::empty(), at, bytes)?)
    }

    fn remove(&self, path: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.path().join(path))?)
    }

    fn sync(&self) -> Result<()> {
        Ok(Self::sync(self)?)
    }

    fn finish(self) -> Result<()> {
        Ok(self.unmount()?)
    }
}
