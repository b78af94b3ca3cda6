//! Hosts other than Linux, by the standard library.
//!
//! Leaves out: block specials, direct I/O, memory maps of files, holes (no range is given back, none is known to be free), blocks shared by
//! copies, and what is asked of a mounted file system. These are refused, or done the long way where the caller does not see it.
//!
//! Each kind of system has its positioned reads and writes and its lock in a module.

#[cfg(not(unix))]
mod file_ext;
#[cfg(unix)]
mod unix;
#[cfg(target_os = "wasi")]
mod wasi;
#[cfg(windows)]
mod windows;

use std::alloc::Layout;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;
use std::ptr::NonNull;

use crate::{Create, Defragmented, DeviceAccess, Error, Transfer};

#[cfg(unix)]
use unix as system;
#[cfg(target_os = "wasi")]
use wasi as system;
#[cfg(windows)]
use windows as system;

pub use system::{FileExt, Identity, canonicalize, host_name, identity, lock, os_string, unlock};

/// None is known as one.
pub fn is_block_special(_found: &Metadata) -> bool {
    false
}

/// Nothing is refused: no file is a block special.
pub fn refuse_mounted(_path: &Path) -> Result<(), Error> {
    Ok(())
}

/// Nothing is refused: no file is a block special.
pub fn refuse_write_protected(_path: &Path) -> Result<(), Error> {
    Ok(())
}

/// Nothing is refused: there are no loop devices.
pub fn refuse_loop_attached(_path: &Path, _file: &Metadata) -> Result<(), Error> {
    Ok(())
}

/// Why a file is not opened as asked. A file that is only read is not mapped anywhere.
fn refused_transfer(access: DeviceAccess) -> Option<&'static str> {
    match access.transfer {
        Transfer::Direct => Some("direct I/O is offered on Linux only"),
        Transfer::Mapped if !access.read_only => Some("memory maps of files are offered on Linux only"),
        Transfer::Mapped | Transfer::Buffered => None,
    }
}

/// Opens a file, which is not truncated.
pub fn open(path: &Path, access: DeviceAccess, _is_block_special: bool) -> io::Result<File> {
    if refused_transfer(access).is_some() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut options = OpenOptions::new();
    options.read(true).write(!access.read_only);
    if !access.read_only {
        options.create(access.create == Create::IfMissing).create_new(access.create == Create::New);
    }
    system::exclude(&mut options, access.read_only).open(path)
}

/// No file is a block special.
pub fn claim(_path: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The error that corresponds to the host's refusal to open.
pub fn refusal(path: &Path, access: DeviceAccess, _is_block_special: bool, source: io::Error) -> Error {
    let path = path.to_owned();
    if let Some(reason) = refused_transfer(access)
        && source.kind() == io::ErrorKind::Unsupported
    {
        return Error::Unsuitable { path, reason };
    }
    if system::is_excluded(&source) {
        return Error::Locked { path, holder: None };
    }
    Error::Io { path, source }
}

/// Writes every byte from `offset`; they are durable on return if asked for.
///
/// # Errors
/// The host's. What part was written is then unknown.
pub fn write_all_at(file: &File, offset: u64, bufs: &[io::IoSlice<'_>], is_durable: bool) -> io::Result<()> {
    let mut at = offset;
    for buf in bufs {
        file.write_all_at(buf, at)?;
        at += buf.len() as u64;
    }
    if is_durable { file.sync_data() } else { Ok(()) }
}

/// The host is not asked: the files of one host are read from its own cache by all of it.
pub fn forget_cached(_file: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
    Ok(())
}

/// The host cannot.
pub fn allocate(_file: &File, _offset: u64, _bytes: u64) -> io::Result<bool> {
    Ok(false)
}

/// The host cannot.
pub fn punch(_file: &File, _offset: u64, _bytes: u64) -> io::Result<bool> {
    Ok(false)
}

/// The host cannot.
pub fn zero(_file: &File, _offset: u64, _bytes: u64) -> io::Result<bool> {
    Ok(false)
}

/// The host cannot.
pub fn discard(_file: &File, _offset: u64, _bytes: u64) -> io::Result<bool> {
    Ok(false)
}

/// The host cannot.
pub fn share_blocks(_source: &File, _into: &File) -> io::Result<bool> {
    Ok(false)
}

/// The host copies nothing itself.
pub fn copy_range(_source: &File, _into: &File, _offset: u64, _bytes: u64) -> io::Result<u64> {
    Ok(0)
}

/// All of a file is data.
pub fn next_data(_file: &File, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    Ok((at < size).then_some((at, size)))
}

/// Nothing is opened for direct I/O.
pub fn direct_alignment(_file: &File) -> io::Result<Option<(u64, usize)>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// No file is mapped.
pub fn map_file(_file: &File, _bytes: usize) -> io::Result<NonNull<u8>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Takes the map of a file away, of which there is none.
///
/// # Safety
/// None is needed.
#[expect(unsafe_code, reason = "as on hosts that map files")]
pub unsafe fn unmap_file(_address: NonNull<u8>, _bytes: usize) {}

/// `bytes` of zeroes at a multiple of them, a power of two.
#[expect(unsafe_code, reason = "memory of an alignment")]
pub fn map_region(bytes: usize) -> Option<NonNull<u8>> {
    let layout = Layout::from_size_align(bytes, bytes).ok()?;
    // SAFETY: the layout has bytes.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
}

/// The memory stays, and the bytes as they were.
pub fn give_memory_back(_start: NonNull<u8>, _bytes: usize) {}

/// The heap is not asked.
pub fn trim_heap() {}

/// Gives memory back that [`map_region`] gave and that nothing refers to.
#[expect(unsafe_code, reason = "memory of an alignment")]
pub fn unmap_region(region: usize, bytes: usize) {
    if let Ok(layout) = Layout::from_size_align(bytes, bytes) {
        // SAFETY: it was allocated with this layout, and its address exposed; nothing refers to it.
        unsafe { std::alloc::dealloc(std::ptr::with_exposed_provenance_mut(region), layout) };
    }
}

/// Mounts are Linux's.
///
/// # Errors
/// `Unsupported`.
pub fn fitrim(_dir: &Path, _least: u64) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Mounts are Linux's.
///
/// # Errors
/// `Unsupported`.
pub fn resize_mounted(_dir: &Path, _blocks: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Mounts are Linux's.
///
/// # Errors
/// `Unsupported`.
pub fn defrag_mounted(_path: &Path, _is_dry_run: bool) -> io::Result<Defragmented> {
    Err(io::ErrorKind::Unsupported.into())
}
