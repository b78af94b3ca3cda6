//! Positioned reads and writes of hosts that are no Unix.

use std::io;

/// What is read and written at offsets, as `std::os::unix::fs::FileExt` has it.
pub trait FileExt {
    /// Reads some bytes at `offset` into `buf`: how many, none at the end.
    ///
    /// # Errors
    /// The host's.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some bytes of `buf` at `offset`: how many.
    ///
    /// # Errors
    /// The host's.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end; else the host's.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buf = &mut buf[read..];
                    offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `buf` at `offset`.
    ///
    /// # Errors
    /// The host's. What part was written is then unknown.
    fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.write_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    buf = &buf[written..];
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
