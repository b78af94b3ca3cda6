//! Directories that several processes change.

use std::fs::File;
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// Excludes others who lock the directory, until what is returned is dropped.
#[cfg(unix)]
pub fn lock(directory: &Path) -> io::Result<Option<File>> {
    let open = File::open(directory)?;
    rustix::fs::flock(&open, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(Some(open))
}

/// Directories are not locked on this host.
#[cfg(not(unix))]
pub fn lock(_directory: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Makes the names in the directory durable.
#[cfg(unix)]
pub fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Directories are not opened on this host.
#[cfg(not(unix))]
pub fn sync(_directory: &Path) -> io::Result<()> {
    Ok(())
}

/// A file that is removed again if it is not kept, and that everyone may read.
pub fn temporary_file(directory: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".extant-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    builder.tempfile_in(directory)
}
