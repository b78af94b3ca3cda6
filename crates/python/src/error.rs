//! Failures as `OSError`: Python takes the subclass from the `errno`.

use std::io;
use std::path::Path;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// A failure, before it has the names of its files.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: i32,
    message: String,
}

impl Failure {
    /// A failure that the engine does not know.
    pub(crate) fn new(errno: i32, message: impl ToString) -> Self {
        Self { errno, message: message.to_string() }
    }

    /// As an exception that names a file.
    pub(crate) fn at(self, path: &Path) -> PyErr {
        PyOSError::new_err((self.errno, self.message, path.as_os_str().to_owned()))
    }

    /// As an exception that names the device, if it is a file.
    pub(crate) fn of(self, device: Option<&Path>) -> PyErr {
        match device {
            Some(path) => self.at(path),
            None => self.into(),
        }
    }

    /// As an exception that names two files.
    pub(crate) fn between(self, from: &Path, to: &Path) -> PyErr {
        let (from, to) = (from.as_os_str().to_owned(), to.as_os_str().to_owned());
        PyOSError::new_err((self.errno, self.message, from, None::<i32>, to))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        PyOSError::new_err((failure.errno, failure.message))
    }
}

impl From<extant::Error> for Failure {
    fn from(error: extant::Error) -> Self {
        // The caller adds the path.
        let error = error.into_cause();
        Self::new(error.raw_os_error(), error)
    }
}

impl From<extant_block::Error> for Failure {
    fn from(error: extant_block::Error) -> Self {
        Self::new(error.raw_os_error(), error)
    }
}

impl From<extant::mkfs::Error> for Failure {
    fn from(error: extant::mkfs::Error) -> Self {
        io::Error::from(error).into()
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(match error.kind() {
            io::ErrorKind::InvalidInput => libc::EINVAL,
            io::ErrorKind::StorageFull => libc::ENOSPC,
            io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
            _ => libc::EIO,
        });
        Self::new(errno, error)
    }
}

impl From<extant_archive::Error> for Failure {
    fn from(error: extant_archive::Error) -> Self {
        use extant_archive::Error as Archive;
        let errno = match &error {
            Archive::Host { source, .. } | Archive::Stream(source) => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
            Archive::Disk { source, .. } | Archive::Base { source, .. } => source.raw_os_error(),
            Archive::Damaged { .. } => libc::EUCLEAN,
            _ => libc::EINVAL,
        };
        Self::new(errno, error)
    }
}
