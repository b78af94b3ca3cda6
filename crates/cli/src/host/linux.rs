//! Linux.

use std::fs::{File, FileType, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a block of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

/// The bytes that the host has allocated for a file.
pub fn allocated_bytes(found: &Metadata) -> Option<u64> {
    Some(found.blocks() * STAT_BLOCK_BYTES)
}

/// The bytes that an ordinary user may still write into a directory.
pub fn available_bytes(directory: &Path) -> io::Result<u64> {
    let room = rustix::fs::statvfs(directory)?;
    Ok(room.f_bavail.saturating_mul(room.f_frsize))
}

/// Bytes of a block of the file system that is mounted on a directory.
pub fn mounted_block_size(directory: &Path) -> io::Result<u64> {
    Ok(rustix::fs::statvfs(directory)?.f_frsize)
}

/// Whether it is a block special.
pub fn is_block_device(kind: FileType) -> bool {
    kind.is_block_device()
}

/// Whether it is read to an end that is not known before: a pipe, a socket, a device.
pub fn is_stream(kind: FileType) -> bool {
    kind.is_fifo() || kind.is_char_device() || kind.is_block_device() || kind.is_socket()
}

/// The mode, the owner and the group of a file.
pub fn mode_and_owner(found: &Metadata) -> (u16, u32, u32) {
    (found.mode() as u16, found.uid(), found.gid())
}

/// Where temporary files are.
pub fn temporary_directory() -> PathBuf {
    std::env::temp_dir()
}

/// A second handle of a file that was opened at `path` for reading.
pub fn second_handle(file: &File, _path: &Path) -> io::Result<File> {
    file.try_clone()
}

/// Whether standard input is a pipe.
pub fn stdin_is_pipe() -> io::Result<bool> {
    let found = rustix::fs::fstat(io::stdin())?;
    Ok(rustix::fs::FileType::from_raw_mode(found.st_mode).is_fifo())
}

/// Has a temporary file that gets its name when it is complete be made with a new file's mode, less what the umask takes.
pub fn new_file<'b, 'f>(builder: &'b mut tempfile::Builder<'f, 'f>) -> &'b mut tempfile::Builder<'f, 'f> {
    builder.permissions(PermissionsExt::from_mode(0o666))
}
