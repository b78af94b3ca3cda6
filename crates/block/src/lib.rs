//! Block devices: the interface that a file system is stored on.
//!
//! Leaves out: ext4.

mod access;
mod buffers;
mod container;
mod durable;
mod error;
mod fault;
mod file;
mod file_ext;
mod host;
mod lvm;
mod memory;
mod modelled;
mod overlay;
mod partition;
mod partition_table;
mod recorder;
mod segments;
mod vec;

use std::io;

use extant_rt::{Arc, AtomicBool, Ordering, share_work};

pub use access::{Create, DeviceAccess, Transfer};
pub use buffers::{BUFFER_BYTES, Buffer, Buffers, copy_past_caches};
pub use container::{Container, ImageFormat, PartitionEntry, PartitionKind};
pub use durable::{DurableRequests, FlushEpoch};
pub use error::{Error, Holder};
pub use fault::{Fault, FaultDevice, Operation, Request};
pub use file::{Copied, FileCopy, FileDevice};
pub use file_ext::FileExtDevice;
pub use host::{
    Defragmented, FileExt, Identity, canonicalize, defrag_mounted, fitrim, host_name, identity, os_string,
    resize_mounted,
};
pub use lvm::{LogicalVolume, VolumeMapping};
pub use memory::MemoryDevice;
pub use modelled::{Model, ModelledDevice, Rotating};
pub use overlay::Overlay;
pub use partition::Partition;
pub use partition_table::{NewPartition, PartitionTable};
pub use recorder::{Cursor, Event, Log, Mutation, Recorder, Tearing, Unflushed};
pub use segments::{Segment, Segments};

/// Requests in flight at once, where requests take time and many are to be made.
pub const REQUESTS_IN_FLIGHT: usize = 16;

/// A write among several.
#[derive(Clone, Debug)]
pub struct Write<'b> {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// What is written from there on, one after the other.
    pub bufs: Vec<io::IoSlice<'b>>,
}

impl Write<'_> {
    /// How long it is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        total_bytes(&self.bufs)
    }
}

/// A device of bytes that can be read, written, flushed and discarded from many threads at once.
///
/// Offsets and lengths are in bytes. A write that returned is visible to every later read; it is durable only
/// after a later `flush` returned, and until then any subset of the sectors of unflushed writes may survive a
/// crash, in any order.
pub trait BlockDevice: Send + Sync {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end; else the device's own.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes the buffers one after the other from `offset`.
    ///
    /// # Errors
    /// `PermissionDenied` if opened for reading; past the end `UnexpectedEof`; else the device's own. What part
    /// was written is then unknown.
    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()>;

    /// Writes `buf` at `offset`.
    ///
    /// # Errors
    /// As [`BlockDevice::write_vectored_at`].
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write_vectored_at(offset, &[io::IoSlice::new(buf)])
    }

    /// Writes ranges that do not overlap, in any order; where requests take time, [`REQUESTS_IN_FLIGHT`] at once.
    ///
    /// # Errors
    /// As [`BlockDevice::write_vectored_at`], those of the first write that failed. No other was begun then, and none is under way any more;
    /// which ones were written is unknown.
    fn write_many(&self, writes: &[Write<'_>]) -> io::Result<()> {
        write_in_flight(self, writes)
    }

    /// Writes `buf` and returns when it is durable. Earlier writes need not be durable then.
    ///
    /// # Errors
    /// As [`BlockDevice::write_vectored_at`] and [`BlockDevice::flush`].
    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write_at(offset, buf)?;
        self.flush()
    }

    /// Returns when every write that returned before is durable.
    ///
    /// # Errors
    /// The device's own; then nothing is known of the writes since the last flush.
    fn flush(&self) -> io::Result<()>;

    /// Says that the bytes are not needed; afterwards they read as anything.
    ///
    /// # Errors
    /// `Unsupported` if the device cannot discard: nothing was done. Else the device's own.
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Makes the bytes read as zero, without writing them where the device can.
    ///
    /// # Errors
    /// As [`BlockDevice::write_vectored_at`].
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        write_zero_bytes(self, offset, bytes)
    }

    /// Has later reads of the bytes come from the device itself, and not from what the host kept of it, since another host may
    /// have written them.
    ///
    /// # Errors
    /// The host's.
    fn refresh(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// Makes it at least so many bytes long, while others use it: a file is made longer, and the host asked about what it may have made
    /// longer itself. What is added reads as zero, if it is of a file.
    ///
    /// # Errors
    /// `Unsupported` if it is not and cannot be made so long; else the host's.
    fn grow(&self, bytes: u64) -> io::Result<()> {
        if bytes <= self.size() { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Whether requests wait for something slower than the host's memory, so that it pays to keep files in memory above the device. A
    /// device over a network or a disk says so.
    fn has_latency(&self) -> bool {
        false
    }
}

macro_rules! forward {
    ($pointer:ty) => {
        impl<D: BlockDevice + ?Sized> BlockDevice for $pointer {
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
                (**self).read_at(offset, buf)
            }
            fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
                (**self).write_vectored_at(offset, bufs)
            }
            fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
                (**self).write_at(offset, buf)
            }
            fn write_many(&self, writes: &[Write<'_>]) -> io::Result<()> {
                (**self).write_many(writes)
            }
            fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
                (**self).write_fua(offset, buf)
            }
            fn flush(&self) -> io::Result<()> {
                (**self).flush()
            }
            fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
                (**self).discard(offset, bytes)
            }
            fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
                (**self).write_zeroes(offset, bytes)
            }
            fn refresh(&self, offset: u64, bytes: u64) -> io::Result<()> {
                (**self).refresh(offset, bytes)
            }
            fn grow(&self, bytes: u64) -> io::Result<()> {
                (**self).grow(bytes)
            }
            fn is_read_only(&self) -> bool {
                (**self).is_read_only()
            }
            fn has_latency(&self) -> bool {
                (**self).has_latency()
            }
        }
    };
}

forward!(Arc<D>);
forward!(Box<D>);
forward!(&D);

/// Makes many writes, where requests take time several at once, each on a thread that waits for it.
fn write_in_flight(device: &(impl BlockDevice + ?Sized), writes: &[Write<'_>]) -> io::Result<()> {
    let write = |write: &Write<'_>| device.write_vectored_at(write.offset, &write.bufs);
    if !device.has_latency() {
        return writes.iter().try_for_each(write);
    }
    let has_failed = AtomicBool::new(false);
    let write_unless_failed = |next| {
        // Relaxed: a write more or less is made.
        if has_failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let written = write(next);
        has_failed.fetch_or(written.is_err(), Ordering::Relaxed);
        written
    };
    share_work(REQUESTS_IN_FLIGHT, writes.iter(), write_unless_failed).into_iter().collect()
}

/// Bytes in all buffers together.
fn total_bytes(bufs: &[io::IoSlice<'_>]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}

/// Refuses a range that reaches past the end of a device of `size` bytes.
///
/// # Errors
/// `UnexpectedEof`.
pub fn check_range(size: u64, offset: u64, bytes: u64) -> io::Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Zeroes written at a time.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Writes zeroes, for devices that cannot make them otherwise.
fn write_zero_bytes(device: &(impl BlockDevice + ?Sized), offset: u64, bytes: u64) -> io::Result<()> {
    check_range(device.size(), offset, bytes)?;
    let (mut at, mut left) = (offset, bytes);
    while left > 0 {
        let len = left.min(ZEROES.len() as u64);
        device.write_at(at, &ZEROES[..len as usize])?;
        at += len;
        left -= len;
    }
    Ok(())
}
