//! The `ioctl`s by which a mounted file system trims itself and becomes larger, of whichever server, and by which one of Extant
//! defragments itself.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::Defragmented;

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

/// Has the server of Extant that `path` is on defragment it and what is below, or say what that would do.
///
/// # Errors
/// `Unsupported` if another file system is mounted there; else the host's.
#[expect(unsafe_code, reason = "the request has no safe wrapper")]
pub fn defrag_mounted(path: &Path, is_dry_run: bool) -> io::Result<Defragmented> {
    type Sums = [u64; 8];
    const DEFRAG: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<Sums>(0xE4, 1);
    const PLAN: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<Sums>(0xE4, 2);
    let file = File::open(path)?;
    let sums: rustix::io::Result<Sums> = if is_dry_run {
        // SAFETY: the request writes eight numbers.
        let request = unsafe { rustix::ioctl::Getter::<PLAN, Sums>::new() };
        // SAFETY: the request has room for them.
        unsafe { rustix::ioctl::ioctl(&file, request) }
    } else {
        // SAFETY: the request writes eight numbers.
        let request = unsafe { rustix::ioctl::Getter::<DEFRAG, Sums>::new() };
        // SAFETY: the request has room for them.
        unsafe { rustix::ioctl::ioctl(&file, request) }
    };
    let [files, directories, runs_before, runs_after, joined_runs, moved_bytes, left, failed] =
        sums.map_err(self::failed)?;
    Ok(Defragmented { files, directories, runs_before, runs_after, joined_runs, moved_bytes, left, failed })
}

fn failed(error: rustix::io::Errno) -> io::Error {
    match error {
        rustix::io::Errno::NOTTY | rustix::io::Errno::OPNOTSUPP => io::ErrorKind::Unsupported.into(),
        error => error.into(),
    }
}
