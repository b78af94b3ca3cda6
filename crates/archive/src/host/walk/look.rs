//! What a look at the files of a Linux host finds.
//!
//! Owners and modes come through the C library, so that `fakeroot` works. What is in a directory is looked at from the open directory, so that
//! no link leads elsewhere, whatever happens to the tree meanwhile.
//!
//! Test: `tests/host.rs`, `tests/tar.rs`.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::entry::Xattr;
use crate::host_file::FileId;

/// How a file is opened that is regular, or was: no pipe is waited for.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A place on the host: a name in an open directory, or a path.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub directory: BorrowedFd<'a>,
    pub name: &'a [u8],
    /// A symbolic link there is followed.
    pub follow: bool,
}

/// What a look at a file found.
pub(super) struct Seen {
    pub found: Metadata,
    pub xattrs: Vec<Xattr>,
    /// The file itself, if it was opened for the look.
    pub file: Option<File>,
}

/// A name in a directory, and whether it is a regular file's, as far as the host says that with the name.
pub(super) struct Name {
    pub bytes: Vec<u8>,
    pub is_regular: bool,
}

/// The names in a directory, the first one last.
///
/// # Errors
/// Those of the host.
pub(super) fn names(directory: &OwnedFd) -> io::Result<Vec<Name>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(Name { bytes: name.to_vec(), is_regular: entry.file_type().is_file() });
        }
    }
    names.sort_unstable_by(|a, b| b.bytes.cmp(&a.bytes));
    Ok(names)
}

impl Place<'_> {
    /// Opens what should be a regular file.
    pub fn open(self) -> Result<File, Errno> {
        let link = if self.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        rustix::fs::openat(self.directory, self.name, READING | link, Mode::empty()).map(File::from)
    }

    /// What is there. A file that `is_regular`, as far as is known, is opened; another one is found by its path below `base`, which leads to the
    /// same directory.
    ///
    /// # Errors
    /// Those of the host.
    pub fn look(self, is_regular: bool, base: impl FnOnce() -> PathBuf) -> io::Result<Seen> {
        let opened = is_regular.then(|| Seen::by_opening(self)).flatten();
        opened.map_or_else(|| Seen::at(&base().join(OsStr::from_bytes(self.name)), self.follow), Ok)
    }

    /// What a symbolic link says.
    pub fn read_link(self) -> Result<Vec<u8>, Errno> {
        Ok(rustix::fs::readlinkat(self.directory, self.name, Vec::new())?.into_bytes())
    }
}

impl Seen {
    /// Which file it is.
    pub fn id(&self) -> FileId {
        (self.found.dev(), self.found.ino())
    }

    /// What is at a path of the host.
    ///
    /// # Errors
    /// Those of the host.
    pub fn at(path: &Path, follow: bool) -> io::Result<Self> {
        let (found, xattrs) = match follow {
            true => (
                fs::metadata(path)?,
                xattrs(
                    |names| rustix::fs::listxattr(path, names),
                    |name, value| rustix::fs::getxattr(path, name, value),
                ),
            ),
            false => (
                fs::symlink_metadata(path)?,
                xattrs(
                    |names| rustix::fs::llistxattr(path, names),
                    |name, value| rustix::fs::lgetxattr(path, name, value),
                ),
            ),
        };
        Ok(Self { found, xattrs: xattrs?, file: None })
    }

    /// A regular file, which takes half as long as [`Seen::at`]. None if there is none, or it cannot be read.
    fn by_opening(place: Place<'_>) -> Option<Self> {
        let file = place.open().ok()?;
        let found = file.metadata().ok().filter(Metadata::is_file)?;
        let xattrs = xattrs(
            |names| rustix::fs::flistxattr(&file, names),
            |name, value| rustix::fs::fgetxattr(&file, name, value),
        );
        Some(Self { found, xattrs: xattrs.ok()?, file: Some(file) })
    }
}

/// The name that an open directory has in this process, which leads to it wherever it is moved to.
pub(super) fn own_name(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// The extended attributes of a file, by calls that list their names and get a value.
fn xattrs(
    list: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<Xattr>, Errno> {
    let names = match grow(list) {
        Ok(names) => names,
        // The host's file system has none.
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(errno) => return Err(errno),
    };
    let mut xattrs = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        match grow(|buffer| get(name, buffer)) {
            Ok(value) => xattrs.push((name.to_vec(), value)),
            // Gone since it was listed, or not for this user's eyes, as `trusted.*`.
            Err(Errno::NODATA | Errno::PERM | Errno::NOTSUP) => {}
            Err(errno) => return Err(errno),
        }
    }
    xattrs.sort_unstable();
    Ok(xattrs)
}

/// Calls with larger buffers until the answer fits. The host gives no answer beyond 64 KiB.
fn grow(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 256];
    loop {
        match call(&mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 16, 0),
            Err(errno) => return Err(errno),
        }
    }
}
