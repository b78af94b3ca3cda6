//! A device whose bytes are behind functions of the caller's.
//!
//! Takes no lock: the functions are called from many threads at once, as the header demands.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::ManuallyDrop;

use extant_block::{BlockDevice, check_range};

use crate::boundary::{check_reserved, given};
use crate::error::Failure;

/// A device of your own. Functions return 0, or a negative `errno`, which the operation that needed the device returns. They are called
/// from several threads at once, threads of the library among them, with ranges inside the device. They must not unwind (C++ exceptions,
/// `longjmp`), nor call the library for the file system on this device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct extant_callbacks {
    /// Passed to each function.
    pub context: *mut c_void,
    /// The size of the device in bytes. It stays.
    pub bytes: u64,
    /// Fills `buf` with the `size` bytes at `offset`.
    pub read:
        Option<unsafe extern "C" fn(context: *mut c_void, offset: u64, buf: *mut c_void, size: u64) -> c_int>,
    /// Writes the `size` bytes of `buf` at `offset`. NULL: the device can only be read.
    pub write: Option<
        unsafe extern "C" fn(context: *mut c_void, offset: u64, buf: *const c_void, size: u64) -> c_int,
    >,
    /// Returns when all writes that returned before are durable. Needed if there is `write`.
    pub flush: Option<unsafe extern "C" fn(context: *mut c_void) -> c_int>,
    /// Learns that the `size` bytes at `offset` are not needed any more. NULL: the device cannot discard.
    pub discard: Option<unsafe extern "C" fn(context: *mut c_void, offset: u64, size: u64) -> c_int>,
    /// Called once, when no other function will be called any more. May be NULL.
    pub close: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// Other than 0 if requests wait for a disk or a network, so that it pays to keep files in memory above the device.
    pub has_latency: u32,
    /// 0.
    pub reserved0: u32,
    /// 0.
    pub reserved: [u64; 4],
}

pub(crate) struct CallbackDevice {
    callbacks: extant_callbacks,
}

// SAFETY: the header demands that the functions may be called, with the context, from any thread and from several at once.
unsafe impl Send for CallbackDevice {}
// SAFETY: as above.
unsafe impl Sync for CallbackDevice {}

impl CallbackDevice {
    pub(crate) fn new(callbacks: extant_callbacks) -> Result<Self, Failure> {
        check_reserved(&callbacks.reserved)?;
        check_reserved(&[callbacks.reserved0.into()])?;
        // A failure leaves the context to the caller.
        let device = ManuallyDrop::new(Self { callbacks });
        given(callbacks.read, "read")?;
        if callbacks.write.is_some() {
            given(callbacks.flush, "flush")?;
        }
        Ok(ManuallyDrop::into_inner(device))
    }
}

impl Drop for CallbackDevice {
    fn drop(&mut self) {
        if let Some(close) = self.callbacks.close {
            // SAFETY: the caller gave the function for this context; no other call follows.
            unsafe { close(self.callbacks.context) };
        }
    }
}

/// The result of a call of a caller's function.
fn outcome(returned: c_int) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        errno @ ..0 => Err(io::Error::from_raw_os_error(errno.saturating_neg())),
        count => Err(io::Error::other(format!(
            "a callback returned {count}, which is neither 0 nor a negative errno"
        ))),
    }
}

impl BlockDevice for CallbackDevice {
    fn size(&self) -> u64 {
        self.callbacks.bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.size(), offset, buf.len() as u64)?;
        let Some(read) = self.callbacks.read else { return Err(io::ErrorKind::Unsupported.into()) };
        // SAFETY: the caller gave the function for this context; it writes `buf.len()` bytes at most, and they are ours.
        outcome(unsafe { read(self.callbacks.context, offset, buf.as_mut_ptr().cast(), buf.len() as u64) })
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        let mut offset = offset;
        for buf in bufs {
            self.write_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        check_range(self.size(), offset, buf.len() as u64)?;
        let Some(write) = self.callbacks.write else { return Err(io::ErrorKind::PermissionDenied.into()) };
        // SAFETY: the caller gave the function for this context; it reads `buf.len()` bytes at most, which do not change meanwhile.
        outcome(unsafe { write(self.callbacks.context, offset, buf.as_ptr().cast(), buf.len() as u64) })
    }

    fn flush(&self) -> io::Result<()> {
        let Some(flush) = self.callbacks.flush else { return Ok(()) };
        // SAFETY: the caller gave the function for this context.
        outcome(unsafe { flush(self.callbacks.context) })
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        check_range(self.size(), offset, bytes)?;
        let Some(discard) = self.callbacks.discard else { return Err(io::ErrorKind::Unsupported.into()) };
        // SAFETY: the caller gave the function for this context.
        outcome(unsafe { discard(self.callbacks.context, offset, bytes) })
    }

    fn is_read_only(&self) -> bool {
        self.callbacks.write.is_none()
    }

    fn has_latency(&self) -> bool {
        self.callbacks.has_latency != 0
    }
}
