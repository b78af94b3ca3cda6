//! Images that are only read, piece by piece.

use std::io;

use extant_block::{BlockDevice, check_range};

use crate::Format;

/// The content of an image, as a reader of its format finds it.
pub(crate) trait Pieces: Send + Sync {
    const FORMAT: Format;

    /// Bytes of the disk.
    fn size(&self) -> u64;

    /// Reads at `offset`, which is on the disk, as many bytes into `buf`, which is not empty and ends on the disk, as lie together: how
    /// many, which is one at least.
    fn read_piece(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Whether the files below have latency.
    fn has_latency(&self) -> bool;
}

/// A device of [`Pieces`].
pub(crate) struct ReadOnly<P>(pub(crate) P);

impl<P: Pieces> ReadOnly<P> {
    fn refused(&self) -> io::Error {
        let message = crate::Error::ReadOnly { format: P::FORMAT }.to_string();
        io::Error::new(io::ErrorKind::PermissionDenied, message)
    }
}

impl<P: Pieces> BlockDevice for ReadOnly<P> {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.size(), offset, buf.len() as u64)?;
        let mut done = 0;
        while done < buf.len() {
            done += self.0.read_piece(offset + done as u64, &mut buf[done..])?.max(1);
        }
        Ok(())
    }

    fn write_vectored_at(&self, _offset: u64, _bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        Err(self.refused())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(self.refused())
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn has_latency(&self) -> bool {
        self.0.has_latency()
    }
}
