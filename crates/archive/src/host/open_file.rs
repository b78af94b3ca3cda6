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
        let file = open_regular(path, false, *id, || path.clone())?;
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
}
