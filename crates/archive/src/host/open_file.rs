//! The content of an open file of the host.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use extant_block::FileExt;

use super::open_regular;
use crate::error::{Error, Result};
use crate::host_file::HostFile;

/// An open regular file of the host.
pub(crate) struct OpenFile {
    pub(super) file: File,
    /// Its path in messages.
    pub(super) path: PathBuf,
}

impl OpenFile {
    /// Opens a file that was found.
    ///
    /// # Errors
    /// [`Error::Host`]; [`Error::Changed`] if another file is in its place.
    pub fn open(found: &HostFile) -> Result<Self> {
        let HostFile { path, id, .. } = found;
        let file = open_regular(path, *id)?;
        Ok(Self { file, path: path.clone() })
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// [`Error::Host`]; [`Error::Changed`] if the file ends before.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::Changed { path: self.path.clone() },
            _ => Error::host(&self.path)(error),
        })
    }

    /// Has `buf` contain the `bytes` bytes from `offset`, in the memory that it has.
    ///
    /// # Errors
    /// As [`OpenFile::read_exact_at`].
    #[cfg(unix)]
    pub fn read_at_into(&self, buf: &mut Vec<u8>, bytes: usize, offset: u64) -> Result<()> {
        buf.clear();
        buf.reserve(bytes);
        while buf.len() < bytes {
            // It reads as much as there is room for, and what is too much is dropped: so no memory has to be zeroed before.
            let at = offset + buf.len() as u64;
            match rustix::io::pread(&self.file, rustix::buffer::spare_capacity(buf), at) {
                Ok(0) => return Err(Error::Changed { path: self.path.clone() }),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Error::host(&self.path)(errno.into())),
            }
        }
        buf.truncate(bytes);
        Ok(())
    }

    /// Has `buf` contain the `bytes` bytes from `offset`, in the memory that it has.
    ///
    /// # Errors
    /// As [`OpenFile::read_exact_at`].
    #[cfg(not(unix))]
    pub fn read_at_into(&self, buf: &mut Vec<u8>, bytes: usize, offset: u64) -> Result<()> {
        buf.resize(bytes, 0);
        self.read_exact_at(buf, offset)
    }
}
