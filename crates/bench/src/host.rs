//! A directory of the host, in which loads are done by system calls.

use std::os::fd::OwnedFd;
use std::path::Path;

use extant_loads::Directory;
use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, Mode, OFlags, fallocate, fdatasync, fstat, fsync, ftruncate, linkat,
    mkdirat, openat, renameat, statat, unlinkat,
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

    fn stat_path(&self, path: &str) -> Result<(), Errno> {
        Directory::stat(self, path)
    }

    fn subdirectory(&self, name: &str) -> Result<Self, Errno> {
        match mkdirat(&self.0, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        openat(&self.0, name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map(Self)
    }

    fn remove_dir(&self, name: &str) -> Result<(), Errno> {
        unlinkat(&self.0, name, AtFlags::REMOVEDIR)
    }

    fn rename(&self, name: &str, to: &Self, new: &str) -> Result<(), Errno> {
        renameat(&self.0, name, &to.0, new)
    }

    fn link(&self, name: &str, to: &Self, new: &str) -> Result<(), Errno> {
        linkat(&self.0, name, &to.0, new, AtFlags::empty())
    }

    fn list(&self, visit: &mut dyn FnMut(&str)) -> Result<(), Errno> {
        for entry in Dir::read_from(&self.0)? {
            visit(entry?.file_name().to_str().unwrap_or_default());
        }
        Ok(())
    }

    fn bytes(file: &OwnedFd) -> Result<u64, Errno> {
        Ok(fstat(file)?.st_size as u64)
    }

    fn truncate(file: &OwnedFd, bytes: u64) -> Result<(), Errno> {
        ftruncate(file, bytes)
    }

    fn fsync(file: &OwnedFd) -> Result<(), Errno> {
        fsync(file)
    }

    fn fdatasync(file: &OwnedFd) -> Result<(), Errno> {
        fdatasync(file)
    }
}
