//! Handles of devices.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use extant_block::{BlockDevice, Create, DeviceAccess, FileDevice, Partition};
use extant_rt::{Arc, AtomicBool, Ordering};

use crate::boundary::{check_flags, given, path, release, status};
use crate::callbacks::{CallbackDevice, extant_callbacks};
use crate::error::{Failure, extant_error};

/// The device or the file system is opened for reading only. A dirty journal is replayed in memory.
pub const EXTANT_READ_ONLY: u32 = 0x1;

/// A device: an image file, a block device, a part of one, or one of your own.
pub struct extant_device {
    device: Arc<dyn BlockDevice>,
    claimed: Arc<AtomicBool>,
}

/// The right to use a device, which one file system has, or a `mkfs` while it runs.
pub(crate) struct Claim {
    claimed: Arc<AtomicBool>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Pairs with the claim: the next user sees what this one did.
        self.claimed.store(false, Ordering::Release);
    }
}

impl extant_device {
    fn boxed(device: impl BlockDevice + 'static) -> Box<Self> {
        Box::new(Self { device: Arc::new(device), claimed: Arc::new(AtomicBool::new(false)) })
    }

    /// The device, for as long as the claim lives.
    pub(crate) fn claim(&self) -> Result<(Arc<dyn BlockDevice>, Claim), Failure> {
        // Pairs with the end of the last claim.
        if self.claimed.swap(true, Ordering::Acquire) {
            return Err(Failure::in_use("the device is mounted or being formatted"));
        }
        Ok((self.device.clone(), Claim { claimed: self.claimed.clone() }))
    }
}

/// Hands a new device over.
fn hand_over(
    device: Option<&mut *mut extant_device>,
    open: impl FnOnce() -> Result<Box<extant_device>, Failure>,
) -> Result<(), Failure> {
    let device = given(device, "device")?;
    *device = Box::into_raw(open()?);
    Ok(())
}

/// Opens an image file or a block device, and locks it against other programs.
///
/// `flags` is 0 or `EXTANT_READ_ONLY`. The file system lies at `offset` and takes `bytes`, or all up to the end if `bytes` is 0; of a whole
/// image both are 0. Only the parts of a partition table that the caller names are used.
///
/// Errors: those of open(2); EBUSY if it is in use; EINVAL if it is neither a file nor a block device, or ends before the part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_open(
    path: *const c_char,
    flags: u32,
    offset: u64,
    bytes: u64,
    device: Option<&mut *mut extant_device>,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        check_flags(flags, EXTANT_READ_ONLY)?;
        // SAFETY: the contract of strings.
        let path = unsafe { self::path(path, "path") }?;
        hand_over(device, || {
            let access = DeviceAccess { read_only: flags != 0, ..DeviceAccess::default() };
            let file = FileDevice::open(path, access)?;
            let part = match (offset, bytes) {
                (0, 0) => return Ok(extant_device::boxed(file)),
                (_, 0) => Partition::from_offset(file, offset),
                _ => Partition::new(file, offset, bytes),
            };
            Ok(extant_device::boxed(part.map_err(|error| Failure::from(error).at(path))?))
        })
    })
}

/// Makes an image file of `bytes`, sparse and empty, and opens it for reading and writing. `extant_mkfs` makes the file system.
///
/// Errors: those of open(2), EEXIST among them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_create(
    path: *const c_char,
    bytes: u64,
    device: Option<&mut *mut extant_device>,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        // SAFETY: the contract of strings.
        let path = unsafe { self::path(path, "path") }?;
        hand_over(device, || {
            let access = DeviceAccess { create: Create::New, ..DeviceAccess::default() };
            let mut file = FileDevice::open(path, access)?;
            file.set_len(bytes)?;
            Ok(extant_device::boxed(file))
        })
    })
}

/// Makes a device of functions of your own. The structure is copied. If this fails, `close` is not called.
///
/// Errors: EINVAL if `read` is NULL, if there is `write` but no `flush`, or if a reserved field is not 0.
#[unsafe(no_mangle)]
pub extern "C" fn extant_device_custom(
    callbacks: Option<&extant_callbacks>,
    device: Option<&mut *mut extant_device>,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        let callbacks = *given(callbacks, "callbacks")?;
        hand_over(device, || Ok(extant_device::boxed(CallbackDevice::new(callbacks)?)))
    })
}

/// Closes a device; NULL is ignored. A file system that is mounted on it goes on, and the device ends with it and its open files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_close(device: *mut extant_device) {
    if !device.is_null() {
        // SAFETY: a handle that the library gave, closed once.
        release(unsafe { Box::from_raw(device) });
    }
}
