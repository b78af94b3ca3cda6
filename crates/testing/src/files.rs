//! Files of the host, on every host: those of Unix have more functions.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

/// A directory for images, in memory where there is such a place. It is removed with what is in it.
///
/// # Panics
/// If there cannot be one.
#[must_use]
pub fn scratch() -> TempDir {
    // With the separators of the host, by which the runner of the tests knows paths of Windows.
    let memory: PathBuf = Path::new("/dev/shm").components().collect();
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a directory for images")
}

/// Positions belong to files, and threads share files.
static POSITION: Mutex<()> = Mutex::new(());

/// Fills `buf` with what a file has from `offset` on. Moves the file's position.
///
/// # Errors
/// If it ends before that.
pub fn read_at(mut file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    let _position = POSITION.lock().unwrap_or_else(PoisonError::into_inner);
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(buf)
}

/// Writes all bytes from `offset` on. Moves the file's position.
///
/// # Errors
/// Those of the host; what was written then is unknown.
pub fn write_at(mut file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let _position = POSITION.lock().unwrap_or_else(PoisonError::into_inner);
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

/// Makes a symbolic link, on hosts without such links by a program of Linux.
///
/// # Panics
/// If that fails.
pub fn symlink(target: &str, link: &Path) {
    #[cfg(unix)]
    std::os::unix::fs::symlink(target, link).expect("a symbolic link");
    #[cfg(not(unix))]
    crate::run("ln", &["-s", target, crate::text(link)]).expect("a symbolic link");
}

/// Copies an image as it is now, even if it is mounted: Windows lets no file be opened a second time that is locked by its first user.
///
/// # Panics
/// If that fails.
pub fn copy(from: &Path, to: &Path) {
    #[cfg(unix)]
    std::fs::copy(from, to).expect("a copy");
    #[cfg(not(unix))]
    crate::run("cp", &[crate::text(from), crate::text(to)]).expect("a copy");
}
