//! Image files that begin as copies of others.
//!
//! Test: `tests/file.rs`; sharing: `tests/command/copies.rs` of the command.

use super::{FileDevice, IoPath};
use crate::{BlockDevice, Error, FileExt, host};

/// Bytes that are copied at a time where the host cannot do it itself.
const PIECE_BYTES: u64 = 1 << 20;

/// How a copy was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// Both files have the same blocks on the host, until one of them is written.
    Shared,
    /// The data was copied: how many bytes. Holes stayed holes.
    Bytes(u64),
}

impl FileDevice {
    /// Gives this image file the content and the length of `source`, whose blocks it shares where the host can. It is to be
    /// empty, and opened for [`crate::Transfer::Buffered`].
    ///
    /// # Errors
    /// [`Error::Unsuitable`] for a block special or another transfer, else [`Error::Io`]. The content is then of no use.
    pub fn copy_from(&mut self, source: &Self) -> Result<Copied, Error> {
        if self.is_block_special || !matches!(self.io_path, IoPath::Buffered) {
            return Err(self.unsuitable("copies of images are made in files"));
        }
        if !source.is_block_special {
            let is_shared = host::share_blocks(&source.file, &self.file);
            if is_shared.map_err(|error| self.failed(error))? {
                *self.bytes.get_mut() = source.size();
                return Ok(Copied::Shared);
            }
        }
        self.set_len(source.size())?;
        let mut at = 0;
        let mut copied = 0;
        while let Some((start, end)) =
            host::next_data(&source.file, at, source.size()).map_err(|error| source.failed(error))?
        {
            self.copy_range(source, start, end)?;
            copied += end - start;
            at = end;
        }
        Ok(Copied::Bytes(copied))
    }

    /// Copies a range, by the host itself where it can.
    fn copy_range(&self, source: &Self, start: u64, end: u64) -> Result<(), Error> {
        let copied = host::copy_range(&source.file, &self.file, start, end - start);
        let mut at = start + copied.map_err(|error| self.failed(error))?;
        let mut piece = Vec::new();
        while at < end {
            piece.resize((end - at).min(PIECE_BYTES) as usize, 0);
            source.file.read_exact_at(&mut piece, at).map_err(|error| source.failed(error))?;
            self.file.write_all_at(&piece, at).map_err(|error| self.failed(error))?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}
