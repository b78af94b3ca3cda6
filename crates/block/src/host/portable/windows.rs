//! Windows: the lock is the mode in which an open file is shared, so that opening it again is what fails.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::Error;

pub use super::file_ext::FileExt;
pub use std::fs::canonicalize;

/// Others may read (`FILE_SHARE_READ`).
const SHARE_READ: u32 = 1;
/// `ERROR_SHARING_VIOLATION`.
const SHARING_VIOLATION: i32 = 32;

/// Lets others open the file for reading if it is only read, and not at all if it is written.
pub fn exclude(options: &mut OpenOptions, read_only: bool) -> &mut OpenOptions {
    options.share_mode(if read_only { SHARE_READ } else { 0 })
}

/// Whether another has the file open.
pub fn is_excluded(error: &io::Error) -> bool {
    error.raw_os_error() == Some(SHARING_VIOLATION)
}

/// The open file excludes others as it is.
pub fn lock(_path: &Path, _file: &File, _shared: bool) -> Result<(), Error> {
    Ok(())
}

/// Closing the file is what lets others open it.
pub fn unlock(_file: &File) {}

/// A name of a disk as the host's programs have names: in UTF-16, so that bytes that are not UTF-8 become replacement characters.
pub fn os_string(name: Vec<u8>) -> OsString {
    String::from_utf8(name)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
        .into()
}

/// The standard library has no name of the host.
pub fn host_name() -> Vec<u8> {
    b"windows".to_vec()
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

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.seek_read(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.seek_write(buf, offset)
    }
}
