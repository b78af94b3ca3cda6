//! The `ioctl`s by which a mounted file system trims itself and becomes larger, of whichever server.

use std::fs::File;
use std::io;
use std::path::Path;

/// `struct fstrim_range`: where to begin, how many bytes, and the least of a run. The kernel puts the bytes that were trimmed in place of
/// the second.
#[repr(C)]
struct Range {
    start: u64,
    bytes: u64,
    least: u64,
}

/// Has the file system that `dir` is on discard its free runs of at least `least` bytes: how many bytes those were.
///
/// # Errors
/// `Unsupported` if it cannot; else the host's.
#[expect(unsafe_code, reason = "FITRIM has no safe wrapper")]
pub fn fitrim(dir: &Path, least: u64) -> io::Result<u64> {
    const FITRIM: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Range>(b'X', 121);
    let file = File::open(dir)?;
    let mut range = Range { start: 0, bytes: u64::MAX, least };
    // SAFETY: FITRIM reads and writes one `struct fstrim_range` at the address it is given.
    let request = unsafe { rustix::ioctl::Updater::<FITRIM, Range>::new(&mut range) };
    // SAFETY: the range outlives the call, and nothing else refers to it.
    unsafe { rustix::ioctl::ioctl(&file, request) }.map_err(failed)?;
    Ok(range.bytes)
}

/// Has the ext4 that `dir` is on become so many blocks large, of its own block size (`EXT4_IOC_RESIZE_FS`).
///
/// # Errors
/// `Unsupported` if what is mounted there cannot; else the host's.
#[expect(unsafe_code, reason = "EXT4_IOC_RESIZE_FS has no safe wrapper")]
pub fn resize_mounted(dir: &Path, blocks: u64) -> io::Result<()> {
    const RESIZE_FS: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<u64>(b'f', 16);
    let file = File::open(dir)?;
    // SAFETY: EXT4_IOC_RESIZE_FS reads a 64-bit number at the address it is given.
    let request = unsafe { rustix::ioctl::Setter::<RESIZE_FS, u64>::new(blocks) };
    // SAFETY: the request holds the number until the call has ended.
    unsafe { rustix::ioctl::ioctl(&file, request) }.map_err(failed)
}

fn failed(error: rustix::io::Errno) -> io::Error {
    match error {
        rustix::io::Errno::NOTTY | rustix::io::Errno::OPNOTSUPP => io::ErrorKind::Unsupported.into(),
        error => error.into(),
    }
}
