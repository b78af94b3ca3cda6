//! Errors of opening a file or a block special as a device.

use std::fmt;
use std::io;
use std::path::PathBuf;

#[cfg(target_os = "linux")]
use rustix::io::Errno;

/// The process that holds a lock on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its command's name.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// Errors of opening a file or a block special as a device.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The host refused.
    Io {
        /// The file or block special.
        path: PathBuf,
        /// The host's error.
        source: io::Error,
    },
    /// Another program has it open.
    Locked {
        /// The file or block special.
        path: PathBuf,
        /// The holder of the lock, if the host reports it.
        holder: Option<Holder>,
    },
    /// The block special, or a partition of it, is mounted.
    Mounted {
        /// The block special.
        path: PathBuf,
        /// The mount point.
        mount_point: PathBuf,
    },
    /// The kernel uses the block special, as swap or below another device.
    Busy {
        /// The block special.
        path: PathBuf,
    },
    /// The block special takes no writes.
    WriteProtected {
        /// The block special.
        path: PathBuf,
    },
    /// A loop device shows the file; writing below it would corrupt what is mounted there.
    LoopAttached {
        /// The image file.
        path: PathBuf,
        /// The loop device.
        device: PathBuf,
    },
    /// Neither a file nor a block special.
    NotADevice {
        /// The path that was given.
        path: PathBuf,
    },
    /// The requested way of access does not work there.
    Unsuitable {
        /// The file or block special.
        path: PathBuf,
        /// The obstacle.
        reason: &'static str,
    },
    /// A range reaches past the end of the device.
    OutOfRange {
        /// Where the range begins, in bytes.
        offset: u64,
        /// Its length in bytes.
        bytes: u64,
        /// The device's size in bytes.
        device_bytes: u64,
    },
    /// The figures of a modelled device are not as they should be.
    Model(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Locked { path, holder } => {
                write!(f, "{}: in use by {}", path.display(), named(holder.as_ref()))
            }
            Self::Mounted { path, mount_point } => {
                write!(f, "{}: mounted on {}; unmount it first", path.display(), mount_point.display())
            }
            Self::Busy { path } => write!(
                f,
                "{}: in use by the kernel (mounted elsewhere, swap, device mapper or RAID)",
                path.display()
            ),
            Self::WriteProtected { path } => {
                write!(f, "{}: write-protected; it can only be read", path.display())
            }
            Self::LoopAttached { path, device } => write!(
                f,
                "{}: attached to {}; detach it first (losetup -d)",
                path.display(),
                device.display()
            ),
            Self::NotADevice { path } => write!(f, "{}: neither a file nor a block device", path.display()),
            Self::Unsuitable { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::OutOfRange { offset, bytes, device_bytes } => write!(
                f,
                "the range of {bytes} bytes at {offset} reaches past the end of a device of {device_bytes} bytes"
            ),
            Self::Model(what) => write!(f, "device model: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

fn named(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "another process".to_owned(), Holder::to_string)
}

impl Error {
    /// The kind of `std::io::Error` that it becomes: the host's, or that of [`Error::raw_os_error`].
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Io { source, .. } => source.kind(),
            Self::Locked { .. } | Self::Mounted { .. } | Self::Busy { .. } | Self::LoopAttached { .. } => {
                io::ErrorKind::ResourceBusy
            }
            Self::WriteProtected { .. } => io::ErrorKind::ReadOnlyFilesystem,
            Self::NotADevice { .. } | Self::Unsuitable { .. } | Self::OutOfRange { .. } | Self::Model(_) => {
                io::ErrorKind::InvalidInput
            }
        }
    }

    /// The `errno` that a system call gives in the same case.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn raw_os_error(&self) -> i32 {
        let errno = match self {
            Self::Io { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
            Self::Locked { .. } | Self::Mounted { .. } | Self::Busy { .. } | Self::LoopAttached { .. } => {
                Errno::BUSY
            }
            Self::WriteProtected { .. } => Errno::ROFS,
            Self::NotADevice { .. } | Self::Unsuitable { .. } | Self::OutOfRange { .. } | Self::Model(_) => {
                Errno::INVAL
            }
        };
        errno.raw_os_error()
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
