//! Anything that is read and written at offsets as a device.

use std::io;

use crate::{BlockDevice, FileExt, check_range, total_bytes};

/// Anything that implements [`FileExt`] as a device of a fixed size: a file that is open already, a client of remote storage.
///
/// `FileExt` has no way to make bytes durable, so the caller says what does: [`File::sync_data`](std::fs::File::sync_data) for a file of
/// the host. Nothing locks the file, as [`FileDevice`](crate::FileDevice) does.
///
/// ```no_run
/// use extant_block::FileExtDevice;
///
/// let file = std::fs::File::options().read(true).write(true).open("disk.img")?;
/// let bytes = file.metadata()?.len();
/// let device = FileExtDevice::new(file, bytes, |file| file.sync_data());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FileExtDevice<F, S> {
    file: F,
    bytes: u64,
    sync: S,
}

impl<F: FileExt, S: Fn(&F) -> io::Result<()>> FileExtDevice<F, S> {
    /// A device of the first `bytes` bytes of `file`. `sync` returns when every write that returned before is durable.
    pub fn new(file: F, bytes: u64, sync: S) -> Self {
        Self { file, bytes, sync }
    }
}

impl<F, S> BlockDevice for FileExtDevice<F, S>
where
    F: FileExt + Send + Sync,
    S: Fn(&F) -> io::Result<()> + Send + Sync,
{
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.bytes, offset, buf.len() as u64)?;
        self.file.read_exact_at(buf, offset)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        check_range(self.bytes, offset, total_bytes(bufs))?;
        let mut at = offset;
        for buf in bufs {
            self.file.write_all_at(buf, at)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        (self.sync)(&self.file)
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
