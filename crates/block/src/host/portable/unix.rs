//! Unix: the lock is `flock`'s, which belongs to the open file.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::Error;

pub use crate::host::unix::{FileExt, Identity, canonicalize, host_name, identity, os_string};

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
