//! Image files that begin as copies of others.
//!
//! Test: `tests/file.rs`; sharing: `tests/command/copies.rs` of the command.

use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::{Errno, retry_on_intr};

use super::{FileDevice, IoPath};
use crate::BlockDevice;
use crate::Error;

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
    /// empty, and opened for [`super::Transfer::Buffered`].
    ///
    /// # Errors
    /// [`Error::Unsuitable`] for a block special or another transfer, else [`Error::Io`]. The content is then of no use.
    pub fn copy_from(&mut self, source: &Self) -> Result<Copied, Error> {
        if self.is_block_special || !matches!(self.io_path, IoPath::Buffered) {
            return Err(self.unsuitable("copies of images are made in files"));
        }
        if !source.is_block_special {
            match retry_on_intr(|| rustix::fs::ioctl_ficlone(&self.file, &source.file)) {
                Ok(()) => {
                    *self.bytes.get_mut() = source.size();
                    return Ok(Copied::Shared);
                }
                // Another file system, or one that does not share blocks, or not of such files.
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::NOSYS) => {}
                Err(error) => return Err(self.failed(error.into())),
            }
        }
        self.set_len(source.size())?;
        let mut at = 0;
        let mut copied = 0;
        while let Some((start, end)) = source.next_data(at).map_err(|error| source.failed(error))? {
            self.copy_range(source, start, end)?;
            copied += end - start;
            at = end;
        }
        Ok(Copied::Bytes(copied))
    }

    /// The next run of data from `at` on: its start and its end.
    fn next_data(&self, at: u64) -> io::Result<Option<(u64, u64)>> {
        if at >= self.size() {
            return Ok(None);
        }
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // A block special, or a host that knows no holes.
            Err(Errno::INVAL) => return Ok(Some((at, self.size()))),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start))?.min(self.size());
        Ok((start < end).then_some((start, end)))
    }

    /// Copies a range, by the host itself where it can.
    fn copy_range(&self, source: &Self, mut at: u64, end: u64) -> Result<(), Error> {
        while at < end {
            let (mut from, mut to) = (at, at);
            let wanted = (end - at).min(1 << 30) as usize;
            let copied = retry_on_intr(|| {
                rustix::fs::copy_file_range(&source.file, Some(&mut from), &self.file, Some(&mut to), wanted)
            });
            match copied {
                Ok(copied) if copied > 0 => at += copied as u64,
                Ok(_) | Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                    break;
                }
                Err(error) => return Err(self.failed(error.into())),
            }
        }
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
