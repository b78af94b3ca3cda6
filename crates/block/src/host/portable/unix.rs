//! Unix: the lock is `flock`'s, which belongs to the open file.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::Error;

pub use std::os::unix::fs::FileExt;

/// Files are locked once they are open.
pub fn exclude(options: &mut OpenOptions, _read_only: bool) -> &mut OpenOptions {
    options
}

/// Opening is not refused for a lock.
pub fn is_excluded(_error: &io::Error) -> bool {
    false
}

/// Locks the file, shared with other readers or alone.
pub fn lock(path: &Path, file: &File, shared: bool) -> Result<(), Error> {
    let operation = match shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::Locked { path: path.to_owned(), holder: None }),
        Err(error) => Err(Error::Io { path: path.to_owned(), source: error.into() }),
    }
}

/// Unlocks the file, which a child may have open until it executes.
pub fn unlock(file: &File) {
    // An unlock fails for no reason but a descriptor that is not a file's.
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

/// A name of a disk as the host's programs have names: the same bytes.
#[must_use]
pub fn os_string(name: Vec<u8>) -> OsString {
    OsString::from_vec(name)
}

/// The name of this host in its network.
#[must_use]
pub fn host_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

/// What tells a file of the host from every other: its device and inode.
pub type Identity = (u64, u64);

/// The identity of the file at `path`.
///
/// # Errors
/// The host's.
pub fn identity(path: &Path) -> io::Result<Identity> {
    let found = path.metadata()?;
    Ok((found.dev(), found.ino()))
}
