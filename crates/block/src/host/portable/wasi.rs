//! WASI: there are no locks, and no threads that could share the position of a file.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::wasi::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use crate::Error;

pub use super::file_ext::FileExt;

/// Others are not excluded.
pub fn exclude(options: &mut OpenOptions, _read_only: bool) -> &mut OpenOptions {
    options
}

/// Opening is not refused for a lock.
pub fn is_excluded(_error: &io::Error) -> bool {
    false
}

/// Others are not excluded.
pub fn lock(_path: &Path, _file: &File, _shared: bool) -> Result<(), Error> {
    Ok(())
}

/// Nothing was locked.
pub fn unlock(_file: &File) {}

/// A name of a disk as the host's programs have names: the same bytes.
#[must_use]
pub fn os_string(name: Vec<u8>) -> OsString {
    OsString::from_vec(name)
}

/// WASI names no host.
pub fn host_name() -> Vec<u8> {
    b"wasi".to_vec()
}

/// What tells a file of the host from every other: its path without symbolic links.
pub type Identity = PathBuf;

/// The identity of the file at `path`.
///
/// # Errors
/// The host's.
pub fn identity(path: &Path) -> io::Result<Identity> {
    canonicalize(path)
}

/// Symbolic links on the way to a file at most, as in Linux.
const LINKS_MAX: usize = 40;

/// The path without symbolic links, `.` and `..`. One relative to the current directory begins with `.`: WASI does not tell the directory's own
/// path, and the standard library takes it for `/`, below which is every file.
///
/// # Errors
/// The host's; `PermissionDenied` if it leads above the current directory, where nothing can be opened.
pub fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let words = |path: &Path| -> Vec<OsString> {
        path.components().rev().map(|component| component.as_os_str().to_owned()).collect()
    };
    let mut found = PathBuf::from(".");
    // The next one last.
    let mut left = words(path.as_ref());
    let mut links = 0;
    while let Some(word) = left.pop() {
        match Path::new(&word).components().next() {
            Some(Component::RootDir) => found = PathBuf::from("/"),
            Some(Component::ParentDir) if found == Path::new(".") => {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "the path leads above the current directory",
                ));
            }
            // Above the root is the root.
            Some(Component::ParentDir) => _ = found.pop(),
            Some(Component::Normal(name)) => {
                let next = found.join(name);
                let metadata = next.symlink_metadata()?;
                if metadata.is_symlink() {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(io::Error::other("too many symbolic links"));
                    }
                    left.extend(words(&next.read_link()?));
                } else if !left.is_empty() && !metadata.is_dir() {
                    return Err(io::ErrorKind::NotADirectory.into());
                } else {
                    found = next;
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut file = self;
        file.seek(SeekFrom::Start(offset))?;
        file.read(buf)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let mut file = self;
        file.seek(SeekFrom::Start(offset))?;
        file.write(buf)
    }
}
