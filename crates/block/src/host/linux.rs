//! Linux.

mod in_use;
mod lock;
mod memory;
mod mounted;

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::{Advice, AtFlags, FallocateFlags, SeekFrom, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags};

use crate::{Create, DeviceAccess, Error, Transfer};

use super::unix::of_metadata;
pub use super::unix::{FileExt, Identity, canonicalize, host_name, identity, os_string};
pub use in_use::{refuse_loop_attached, refuse_mounted, refuse_write_protected};
pub use lock::{acquire as lock, release as unlock};
pub use memory::{give_memory_back, map_region, trim_heap, unmap_region};
pub use mounted::{defrag_mounted, fitrim, resize_mounted};

/// Buffers in one system call (`IOV_MAX`).
const BUFS_PER_CALL: usize = 1024;

/// Whether it is a block special.
pub fn is_block_special(found: &Metadata) -> bool {
    found.file_type().is_block_device()
}

/// Opens a file or a block special, which is not truncated.
pub fn open(path: &Path, access: DeviceAccess, is_block_special: bool) -> io::Result<File> {
    let mut flags = 0;
    if access.transfer == Transfer::Direct {
        flags |= libc::O_DIRECT;
    }
    if !is_block_special && !access.read_only {
        return OpenOptions::new()
            .read(true)
            .write(true)
            .create(access.create == Create::IfMissing)
            .create_new(access.create == Create::New)
            .truncate(false)
            .custom_flags(flags)
            .open(path);
    }
    OpenOptions::new().read(true).write(!access.read_only).custom_flags(flags).open(path)
}

/// The kernel's own exclusion: neither mounts nor other exclusive openers of a block special while this is open.
pub fn claim(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path)
}

/// The error that corresponds to the host's refusal to open.
pub fn refusal(path: &Path, access: DeviceAccess, is_block_special: bool, source: io::Error) -> Error {
    let path = path.to_owned();
    match source.raw_os_error() {
        Some(libc::EBUSY) if is_block_special => match lock::holder_of(&path) {
            Some(holder) => Error::Locked { path, holder: Some(holder) },
            None => Error::Busy { path },
        },
        Some(libc::EINVAL) if access.transfer == Transfer::Direct => {
            Error::Unsuitable { path, reason: "the host's file system does not offer direct I/O" }
        }
        _ => Error::Io { path, source },
    }
}

/// Writes every byte from `offset`, in as many calls as it takes, with `RWF_DSYNC` if it is to be durable on return.
///
/// # Errors
/// The host's. What part was written is then unknown.
pub fn write_all_at(file: &File, offset: u64, bufs: &[io::IoSlice<'_>], is_durable: bool) -> io::Result<()> {
    let flags = if is_durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    let (mut at, mut is_emulated) = (offset, false);
    for batch in bufs.chunks(BUFS_PER_CALL) {
        let mut rest = batch.to_vec();
        let mut rest = rest.as_mut_slice();
        // Steps over empty buffers, which would look like a write of nothing.
        io::IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let written = match retry_on_intr(|| rustix::io::pwritev2(file, rest, at, flags)) {
                // The emulator of another CPU, qemu-user, has no pwritev2.
                Err(Errno::NOSYS) => {
                    is_emulated = true;
                    retry_on_intr(|| rustix::io::pwritev(file, rest, at))?
                }
                written => written?,
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            at += written as u64;
            io::IoSlice::advance_slices(&mut rest, written);
        }
    }
    if is_emulated && is_durable { file.sync_data() } else { Ok(()) }
}

/// Has whole pages of the range dropped from the host's cache.
pub fn forget_cached(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, offset, NonZeroU64::new(bytes), Advice::DontNeed)?)
}

/// Gives the range space, as it reads; false if the host cannot.
pub fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<bool> {
    fallocate(file, FallocateFlags::KEEP_SIZE, offset, bytes)
}

/// Frees the range, so that it reads as zero; false if the host cannot.
pub fn punch(file: &File, offset: u64, bytes: u64) -> io::Result<bool> {
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes)
}

/// Makes the range read as zero without writing it; false if the host cannot.
pub fn zero(file: &File, offset: u64, bytes: u64) -> io::Result<bool> {
    fallocate(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset, bytes)
}

fn fallocate(file: &File, flags: FallocateFlags, offset: u64, bytes: u64) -> io::Result<bool> {
    supported(retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, bytes)))
}

/// Discards the whole sectors of a range of a block special; false if it cannot discard.
#[expect(unsafe_code, reason = "BLKDISCARD has no safe wrapper")]
pub fn discard(file: &File, offset: u64, bytes: u64) -> io::Result<bool> {
    const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
    let sector = u64::from(rustix::fs::ioctl_blksszget(file)?);
    // Only whole sectors can be discarded; the partial sectors at the ends keep their content.
    let (Some(start), end) = (offset.checked_next_multiple_of(sector), (offset + bytes) / sector * sector)
    else {
        return Ok(true);
    };
    if start >= end {
        return Ok(true);
    }
    let discarded = retry_on_intr(|| {
        // SAFETY: BLKDISCARD reads two u64, the offset and the length, from the address it is given.
        let request = unsafe { rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([start, end - start]) };
        // SAFETY: the request carries its argument, and the kernel writes nothing into it.
        unsafe { rustix::ioctl::ioctl(file, request) }
    });
    supported(discarded)
}

/// False for a request that the host does not know or that does not suit its alignment.
fn supported(result: Result<(), Errno>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gives `into` the content and the length of `source`, by the same blocks; false if the host cannot.
pub fn share_blocks(source: &File, into: &File) -> io::Result<bool> {
    match retry_on_intr(|| rustix::fs::ioctl_ficlone(into, source)) {
        Ok(()) => Ok(true),
        // Another file system, or one that does not share blocks, or not of such files.
        Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::NOSYS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Copies as much of the range as the host copies itself, which may be nothing: how many bytes.
pub fn copy_range(source: &File, into: &File, offset: u64, bytes: u64) -> io::Result<u64> {
    let mut copied = 0;
    while copied < bytes {
        let (mut from, mut to) = (offset + copied, offset + copied);
        let wanted = (bytes - copied).min(1 << 30) as usize;
        match retry_on_intr(|| {
            rustix::fs::copy_file_range(source, Some(&mut from), into, Some(&mut to), wanted)
        }) {
            Ok(0) | Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => break,
            Ok(more) => copied += more as u64,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(copied)
}

/// The next run of data of a file of `size` bytes from `at` on: its start and its end.
pub fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A block special, or a host that knows no holes.
        Err(Errno::INVAL) => return Ok(Some((at, size))),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
    Ok((start < end).then_some((start, end)))
}

/// What direct I/O wants offsets and lengths, and addresses, to be multiples of; `None` where the host does not report it.
pub fn direct_alignment(file: &File) -> io::Result<Option<(u64, usize)>> {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    let is_known = told.stx_mask & StatxFlags::DIOALIGN.bits() != 0
        && told.stx_dio_offset_align.is_power_of_two()
        && told.stx_dio_mem_align.is_power_of_two();
    Ok(is_known.then(|| (u64::from(told.stx_dio_offset_align), told.stx_dio_mem_align as usize)))
}

/// Maps the first `bytes` bytes, of which there is one at least, of a file that is open for writing. Others see what is stored there.
#[expect(unsafe_code, reason = "mmap")]
pub fn map_file(file: &File, bytes: usize) -> io::Result<NonNull<u8>> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the address is chosen by the kernel, so no memory in use is replaced.
    let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) }?;
    NonNull::new(address.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Takes the map of a file away, to which nothing refers.
///
/// # Safety
/// [`map_file`] made it with this length, and nothing refers to its memory.
#[expect(unsafe_code, reason = "munmap")]
pub unsafe fn unmap_file(address: NonNull<u8>, bytes: usize) {
    // SAFETY: as the function says. It fails only for arguments that are not a map's.
    let _ = unsafe { rustix::mm::munmap(address.as_ptr().cast(), bytes) };
}
