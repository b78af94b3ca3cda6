//! What Linux and the other kinds of Unix have alike.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub use std::fs::canonicalize;
pub use std::os::unix::fs::FileExt;

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
    Ok(of_metadata(&path.metadata()?))
}

/// The identity of the file that this was found of.
pub fn of_metadata(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}
