//! Hosts other than Linux, by the standard library.

use std::fs::{File, FileType, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// The standard library does not know.
pub fn allocated_bytes(_found: &Metadata) -> Option<u64> {
    None
}

/// The standard library does not know: what does not fit fails when it is written.
pub fn available_bytes(_directory: &Path) -> io::Result<u64> {
    Ok(u64::MAX)
}

/// No disk is mounted here.
pub fn mounted_block_size(_directory: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// None is known as one.
pub fn is_block_device(_kind: FileType) -> bool {
    false
}

/// Whether it is read to an end that is not known before.
pub fn is_stream(kind: FileType) -> bool {
    !kind.is_file() && !kind.is_dir() && !kind.is_symlink()
}

/// The mode, the owner and the group that the copy of a file has.
pub fn mode_and_owner(_found: &Metadata) -> (u16, u32, u32) {
    (0o644, 0, 0)
}

/// Where temporary files are: WASI has no such place.
pub fn temporary_directory() -> PathBuf {
    if cfg!(target_os = "wasi") { PathBuf::from(".") } else { std::env::temp_dir() }
}

/// A second handle of a file that was opened at `path` for reading. WASI gives none, and has no files without a name: it is opened again.
pub fn second_handle(file: &File, path: &Path) -> io::Result<File> {
    if cfg!(target_os = "wasi") { File::open(path) } else { file.try_clone() }
}

/// The standard library does not know: it may be one, where there are pipes.
pub fn stdin_is_pipe() -> io::Result<bool> {
    Ok(!cfg!(target_os = "wasi"))
}

/// A new file has the host's permissions.
pub fn new_file<'b, 'f>(builder: &'b mut tempfile::Builder<'f, 'f>) -> &'b mut tempfile::Builder<'f, 'f> {
    builder
}
