//! What a C caller learns of a failure: an `errno`, a kind, a place on the disk and a text.

use std::error::Error as _;
use std::ffi::{c_char, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant::mkfs::Error as MkfsError;
use extant::{Error, Location};

/// Bytes of a message, its NUL among them. The field says it in digits, for the header.
const MESSAGE_BYTES: usize = 1000;

/// Bytes of a path that a message quotes; of a longer one the end.
const PATH_BYTES_MAX: usize = 256;

/// The cause of a failure, where the `errno` alone does not say it. Values stay; later versions may add some.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum extant_error_kind {
    /// The operation was refused in the way of POSIX; the `errno` says why.
    EXTANT_ERROR_REFUSED = 1,
    /// An argument is wrong: NULL, an unknown flag, a value out of range.
    EXTANT_ERROR_ARGUMENT = 2,
    /// The device failed, or cannot be opened. The `errno` is the host's, or that of the callback.
    EXTANT_ERROR_DEVICE = 3,
    /// The disk is damaged, or holds no ext4; `inode` and `block` say where, if that is known.
    EXTANT_ERROR_CORRUPT = 4,
    /// The disk has features that are not supported.
    EXTANT_ERROR_INCOMPATIBLE = 5,
    /// Another program, another host or another handle uses the device.
    EXTANT_ERROR_IN_USE = 6,
    /// A defect of the library. What was under way is undone by the next mount; close all handles.
    EXTANT_ERROR_PANIC = 7,
}

use extant_error_kind::*;

/// A failure. The library writes it only if the function fails.
#[repr(C)]
pub struct extant_error {
    /// The `errno`, as a positive number. The function returned it as a negative one.
    pub code: i32,
    /// An `extant_error_kind`.
    pub kind: u32,
    /// The inode that is damaged or could not be read; 0 if the failure has none.
    pub inode: u64,
    /// The block of the file system that is damaged or could not be read; 0 if the failure has none.
    pub block: u64,
    /// What is wrong and where, in English, ended by NUL. Begins with the path that was given. Bytes of names are as they are, so
    /// it need not be UTF-8.
    pub message: [c_char; 1000],
}

/// A failure, as the library has it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) errno: c_int,
    kind: extant_error_kind,
    location: Option<Location>,
    message: Vec<u8>,
}

impl Failure {
    fn new(errno: c_int, kind: extant_error_kind, message: impl ToString) -> Self {
        Self { errno, kind, location: None, message: message.to_string().into_bytes() }
    }

    /// A wrong argument.
    pub(crate) fn argument(message: &str) -> Self {
        Self::new(libc::EINVAL, EXTANT_ERROR_ARGUMENT, message)
    }

    /// A refusal that the engine does not know.
    pub(crate) fn refused(errno: c_int, message: &str) -> Self {
        Self::new(errno, EXTANT_ERROR_REFUSED, message)
    }

    /// The device is in use by a handle of this program.
    pub(crate) fn in_use(message: &str) -> Self {
        Self::new(libc::EBUSY, EXTANT_ERROR_IN_USE, message)
    }

    /// A panic with this message.
    pub(crate) fn panicked(message: &str) -> Self {
        Self::new(libc::ENOTRECOVERABLE, EXTANT_ERROR_PANIC, format!("a defect of libextant: {message}"))
    }

    /// The same failure, of an operation on this path.
    pub(crate) fn at(mut self, path: &Path) -> Self {
        self.name(path.as_os_str().as_bytes());
        self
    }

    /// The same failure, of an operation from one path to another.
    pub(crate) fn between(mut self, from: &Path, to: &Path) -> Self {
        self.name(to.as_os_str().as_bytes());
        self.message.splice(0..0, *b" -> ");
        let quoted = end_of(from.as_os_str().as_bytes());
        self.message.splice(0..0, quoted.iter().copied());
        self
    }

    fn name(&mut self, path: &[u8]) {
        self.message.splice(0..0, end_of(path).iter().chain(b": ").copied());
    }

    /// In the form of C.
    pub(crate) fn to_c(&self) -> extant_error {
        let mut message = [0; MESSAGE_BYTES];
        let text = self.message.iter().filter(|byte| **byte != 0);
        for (to, from) in message[..MESSAGE_BYTES - 1].iter_mut().zip(text) {
            *to = *from as c_char;
        }
        let location = self.location.as_ref();
        extant_error {
            code: self.errno,
            kind: self.kind as u32,
            inode: location.and_then(|location| location.inode).map_or(0, |inode| inode.0.into()),
            block: location.and_then(|location| location.block).map_or(0, |block| block.0),
            message,
        }
    }
}

/// As much of the end of a path as a message quotes.
fn end_of(path: &[u8]) -> &[u8] {
    &path[path.len().saturating_sub(PATH_BYTES_MAX)..]
}

/// The host's own number in an error or in what caused it.
fn host_errno(error: &(dyn std::error::Error + 'static)) -> Option<c_int> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(errno) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(errno);
        }
        next = error.source();
    }
    None
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        // The caller adds the path.
        let error = match error.into_cause() {
            Error::Device(device) => return device.into(),
            other => other,
        };
        let errno = || error.raw_os_error();
        let host = || error.source().and_then(host_errno);
        let (errno, kind, location) = match &error {
            Error::Io { location, .. } => {
                (host().unwrap_or_else(errno), EXTANT_ERROR_DEVICE, Some(*location))
            }
            Error::Journal(_) => (host().unwrap_or_else(errno), EXTANT_ERROR_DEVICE, None),
            Error::Corrupt { location, .. } | Error::Log { location, .. } => {
                (host().unwrap_or_else(errno), EXTANT_ERROR_CORRUPT, Some(*location))
            }
            Error::Truncated { .. } => (errno(), EXTANT_ERROR_CORRUPT, None),
            Error::Incompatible(_) | Error::ReadOnlyFeatures(_) => (errno(), EXTANT_ERROR_INCOMPATIBLE, None),
            Error::InUse(_) => (errno(), EXTANT_ERROR_IN_USE, None),
            Error::InvalidArgument(_) | Error::OutOfRange { .. } => (errno(), EXTANT_ERROR_ARGUMENT, None),
            _ => (errno(), EXTANT_ERROR_REFUSED, None),
        };
        Self { location, ..Self::new(errno, kind, error) }
    }
}

impl From<extant_block::Error> for Failure {
    fn from(error: extant_block::Error) -> Self {
        use extant_block::Error as Device;
        let kind = match &error {
            Device::Locked { .. }
            | Device::Mounted { .. }
            | Device::Busy { .. }
            | Device::LoopAttached { .. } => EXTANT_ERROR_IN_USE,
            Device::OutOfRange { .. } => EXTANT_ERROR_ARGUMENT,
            _ => EXTANT_ERROR_DEVICE,
        };
        Self::new(error.raw_os_error(), kind, error)
    }
}

impl From<MkfsError> for Failure {
    fn from(error: MkfsError) -> Self {
        let (errno, kind) = match &error {
            MkfsError::Io { .. } => (host_errno(&error).unwrap_or(libc::EIO), EXTANT_ERROR_DEVICE),
            MkfsError::TooSmall(_) => (libc::ENOSPC, EXTANT_ERROR_ARGUMENT),
            MkfsError::TooLarge(_) => (libc::EFBIG, EXTANT_ERROR_ARGUMENT),
            MkfsError::UnsupportedFeature(_) => (libc::EOPNOTSUPP, EXTANT_ERROR_INCOMPATIBLE),
            _ => (libc::EINVAL, EXTANT_ERROR_ARGUMENT),
        };
        Self::new(errno, kind, error)
    }
}
