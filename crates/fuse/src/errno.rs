//! The one table from errors of the engine to `errno` values of the kernel.
//!
//! Source: the values that ext4 gives in the same cases; `EUCLEAN` is its `EFSCORRUPTED`.

use extant::Error;
use rustix::io::Errno;

/// The number for an error of the engine.
#[must_use]
pub fn errno(error: &Error) -> Errno {
    match error {
        Error::Io { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
        Error::Corrupt { .. } => Errno::UCLEAN,
        Error::ReadOnly | Error::ReadOnlyFeatures(_) => Errno::ROFS,
        Error::NoSpace | Error::NoInodes => Errno::NOSPC,
        Error::QuotaExceeded => Errno::DQUOT,
        Error::CrossProject => Errno::XDEV,
        Error::NotFound => Errno::NOENT,
        Error::Exists => Errno::EXIST,
        Error::NotADirectory => Errno::NOTDIR,
        Error::IsADirectory => Errno::ISDIR,
        Error::NotEmpty => Errno::NOTEMPTY,
        Error::PermissionDenied => Errno::ACCESS,
        Error::NotPermitted => Errno::PERM,
        Error::NoKey => Errno::NOKEY,
        Error::TooManyLinks => Errno::MLINK,
        Error::NameTooLong => Errno::NAMETOOLONG,
        Error::Loop => Errno::LOOP,
        Error::FileTooLarge => Errno::FBIG,
        Error::InvalidArgument(_) | Error::OutOfRange { .. } => Errno::INVAL,
        Error::NoAttribute => Errno::NODATA,
        Error::ValueTooLarge => Errno::TOOBIG,
        Error::NoSuchOffset => Errno::NXIO,
        Error::Interrupted => Errno::INTR,
        Error::Stale => Errno::STALE,
        Error::Busy(_) | Error::InUse(_) => Errno::BUSY,
        Error::Unsupported(_) | Error::Incompatible(_) => Errno::OPNOTSUPP,
        // The journal's, the device's, and what is added to the enumeration later.
        _ => Errno::IO,
    }
}
