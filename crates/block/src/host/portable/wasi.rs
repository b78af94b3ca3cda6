//! WASI: there are no locks, and no threads that could share the position of a file.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::wasi::ffi::OsStringExt;
use std::path::Path;

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

/// Nothing tells a file of the host from every other.
pub type Identity = std::convert::Infallible;

/// The identity of the file at `path`, which is not known.
///
/// # Errors
/// `Unsupported`.
pub fn identity(_path: &Path) -> io::Result<Identity> {
    Err(io::ErrorKind::Unsupported.into())
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
