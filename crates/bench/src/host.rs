//! A directory of the host, in which loads are done by system calls.

use std::os::fd::OwnedFd;
use std::path::Path;

use extant_loads::Directory;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, fallocate, fdatasync, fsync, ftruncate, openat, statat,
    unlinkat,
};
use rustix::io::{Errno, pread, pwrite};

/// An open directory: names are relative to it, which spares the kernel the walk.
#[derive(Debug)]
pub struct HostDir(OwnedFd);

impl HostDir {
    /// Opens a directory, which is made if there is none.
    pub fn new(path: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self(openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }
}

impl Directory for HostDir {
    type File = OwnedFd;
    type Error = Errno;

    fn create(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        openat(&self.0, name, flags, Mode::from_raw_mode(0o644))
    }

    fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        openat(&self.0, name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
    }

    fn stat(&self, name: &str) -> Result<(), Errno> {
        std::hint::black_box(statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?);
        Ok(())
    }

    fn unlink(&self, name: &str) -> Result<(), Errno> {
        unlinkat(&self.0, name, AtFlags::empty())
    }

    fn allocate(file: &OwnedFd, at: u64, bytes: u64) -> Result<(), Errno> {
        fallocate(file, FallocateFlags::empty(), at, bytes)
    }

    fn write(file: &OwnedFd, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        // Shorter than asked for only on a full disk, whose next write says so.
        match pwrite(file, bytes, at)? {
            written if written == bytes.len() => Ok(()),
            _ => Err(Errno::NOSPC),
        }
    }

    fn read(file: &OwnedFd, at: u64, buf: &mut [u8]) -> Result<(), Errno> {
        pread(file, buf, at).map(drop)
    }

    fn truncate(file: &OwnedFd) -> Result<(), Errno> {
        ftruncate(file, 0)
    }

    fn fsync(file: &OwnedFd) -> Result<(), Errno> {
        fsync(file)
    }

    fn fdatasync(file: &OwnedFd) -> Result<(), Errno> {
        fdatasync(file)
    }
}
