//! `errno` values of the kernel for errors of the engine, which has the one table ([`extant::Error::raw_os_error`]).

use extant::Error;
use rustix::io::Errno;

/// The number for an error of the engine.
#[must_use]
pub fn errno(error: &Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error())
}
