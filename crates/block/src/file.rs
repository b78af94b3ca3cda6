//! Image files and block specials as devices.
//!
//! A device that is only read is opened with `O_RDONLY`, so that no byte can be written through it. Transfers use one of three
//! methods ([`Transfer`]); flushing is `fdatasync` on all of them, which also covers a memory map.
//!
//! Invariant: a device is locked (`lock`) and known not to be used by the kernel (`in_use`) before its first
//! byte is changed; so it is truncated after that, never by `O_TRUNC`.
//!
//! Locks: `DEVICE`. Tests: `tests/file.rs`, `tests/in_use.rs`.

mod copy;
mod direct;
mod mapped;

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use extant_rt::{AtomicU64, LockClass, Mutex, Ordering};

use crate::access::{Create, DeviceAccess, Transfer};
use crate::{BlockDevice, DurableRequests, Error, FileExt, check_range, host, total_bytes, write_zero_bytes};
pub use copy::{Copied, FileCopy};
use direct::Direct;
use mapped::Mapping;

/// Bytes of the largest page of any host.
const PAGE_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug)]
enum IoPath {
    Buffered,
    Direct(Direct),
    Mapped(Mapping),
}

/// An image file or block special. Dropping it gives the lock up; it does not flush.
#[derive(Debug)]
pub struct FileDevice {
    path: PathBuf,
    file: File,
    /// For a block special that is written, the kernel's exclusive claim, which excludes mounts and other claims.
    claim: Mutex<Option<File>>,
    bytes: AtomicU64,
    read_only: bool,
    is_block_special: bool,
    io_path: IoPath,
    /// Flushes and durable writes: the host reports lost writes once per open file.
    durable: DurableRequests,
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        host::unlock(&self.file);
    }
}

impl FileDevice {
    /// Opens and locks a file or block special.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Mounted`], [`Error::Busy`] and [`Error::LoopAttached`] if it is in use;
    /// [`Error::WriteProtected`] for a block special that is to be written and takes no writes; [`Error::NotADevice`] for
    /// anything but a file or block special; [`Error::Unsuitable`] if it cannot be accessed as asked; else [`Error::Io`]. A
    /// file that was made remains.
    pub fn open(path: impl AsRef<Path>, access: DeviceAccess) -> Result<Self, Error> {
        let path = path.as_ref();
        let failed = |source| Error::Io { path: path.to_owned(), source };
        // A FIFO would block at open, and a block special needs other flags than a file.
        let is_block_special = match std::fs::metadata(path) {
            Ok(found) => check_kind(path, &found)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound && access.create != Create::Never => false,
            Err(error) => return Err(failed(error)),
        };
        if is_block_special {
            host::refuse_mounted(path)?;
            if !access.read_only {
                host::refuse_write_protected(path)?;
            }
        }
        let refused = |source| host::refusal(path, access, is_block_special, source);
        let is_claimed = is_block_special && !access.read_only;
        let claim = if is_claimed { Some(host::claim(path).map_err(refused)?) } else { None };
        let file = host::open(path, access, is_block_special).map_err(refused)?;
        let found = file.metadata().map_err(failed)?;
        if check_kind(path, &found)? != is_block_special {
            return Err(Error::NotADevice { path: path.to_owned() });
        }
        host::lock(path, &file, access.read_only)?;
        if !access.read_only && !is_block_special {
            host::refuse_loop_attached(path, &found)?;
            if access.truncate {
                file.set_len(0).map_err(failed)?;
            }
        }
        let bytes = (&file).seek(SeekFrom::End(0)).map_err(failed)?;
        let mut device = Self {
            path: path.to_owned(),
            file,
            claim: Mutex::new(LockClass::DEVICE, claim),
            bytes: AtomicU64::new(bytes),
            read_only: access.read_only,
            is_block_special,
            io_path: IoPath::Buffered,
            durable: DurableRequests::new(),
        };
        device.io_path = device.choose_io_path(access.transfer)?;
        Ok(device)
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a block special.
    #[must_use]
    pub fn is_block_special(&self) -> bool {
        self.is_block_special
    }

    /// Lets the kernel mount a block special on our behalf, which then excludes others as this device did. The lock stays.
    pub fn yield_claim(&self) {
        *self.claim.lock() = None;
    }

    /// Flushes the file.
    fn sync(&self) -> io::Result<()> {
        self.durable.run(|| self.file.sync_data())
    }

    /// Does what takes pages out of the host's cache. Of a block special that is claimed, by us or by a mount, the kernel takes
    /// clean ones only, so that it may have to be flushed (`truncate_bdev_range`).
    fn retry_after_sync(&self, request: impl Fn() -> io::Result<bool>) -> io::Result<bool> {
        match request() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                self.sync()?;
                request()
            }
            other => other,
        }
    }

    /// Excludes others from a block special again.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process claimed it first: then nothing may be written any more; [`Error::Io`].
    pub fn claim_again(&self) -> Result<(), Error> {
        let claimed = host::claim(&self.path).map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => Error::Busy { path: self.path.clone() },
            _ => self.failed(source),
        })?;
        *self.claim.lock() = Some(claimed);
        Ok(())
    }

    /// Makes an image file `bytes` long; what is added reads as zero and takes no space.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] for a block special or if the length does not suit the transfer; else
    /// [`Error::Io`]. The size is then as before.
    pub fn set_len(&mut self, bytes: u64) -> Result<(), Error> {
        if self.is_block_special {
            return Err(self.unsuitable("a block device cannot change its size"));
        }
        if let IoPath::Direct(direct) = &self.io_path
            && !direct.is_aligned(bytes)
        {
            return Err(self.unsuitable(direct::SIZE_REASON));
        }
        self.file.set_len(bytes).map_err(|source| self.failed(source))?;
        let before = std::mem::replace(self.bytes.get_mut(), bytes);
        if matches!(self.io_path, IoPath::Mapped(_)) {
            match Mapping::new(&self.file, bytes) {
                Ok(mapping) => self.io_path = IoPath::Mapped(mapping),
                Err(source) => {
                    *self.bytes.get_mut() = before;
                    // Back to the length that the old map has; if this fails too, the first error says why.
                    let _ = self.file.set_len(before);
                    return Err(self.failed(source));
                }
            }
        }
        Ok(())
    }

    fn choose_io_path(&self, transfer: Transfer) -> Result<IoPath, Error> {
        match transfer {
            Transfer::Buffered => Ok(IoPath::Buffered),
            Transfer::Direct => {
                let direct = Direct::new(&self.file).map_err(|source| self.failed(source))?;
                if direct.is_aligned(self.size()) {
                    Ok(IoPath::Direct(direct))
                } else {
                    Err(self.unsuitable(direct::SIZE_REASON))
                }
            }
            Transfer::Mapped if self.is_block_special => {
                Err(self.unsuitable("a memory map is for image files, not for block devices"))
            }
            // Only writes go through the map.
            Transfer::Mapped if self.read_only => Ok(IoPath::Buffered),
            Transfer::Mapped => Mapping::new(&self.file, self.size())
                .map(IoPath::Mapped)
                .map_err(|source| self.failed(source)),
        }
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }

    fn unsuitable(&self, reason: &'static str) -> Error {
        Error::Unsuitable { path: self.path.clone(), reason }
    }

    fn check_write(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        check_range(self.size(), offset, bytes)
    }

    /// Writes; the bytes are durable on return if asked for.
    fn write(&self, offset: u64, bufs: &[io::IoSlice<'_>], is_durable: bool) -> io::Result<()> {
        self.check_write(offset, total_bytes(bufs))?;
        let write = || match &self.io_path {
            IoPath::Buffered => host::write_all_at(&self.file, offset, bufs, is_durable),
            IoPath::Direct(direct) => direct.write(&self.file, offset, bufs, is_durable),
            IoPath::Mapped(mapping) => {
                mapping.write(&self.file, offset, bufs)?;
                if is_durable { self.file.sync_data() } else { Ok(()) }
            }
        };
        if is_durable { self.durable.run(write) } else { write() }
    }

    /// Frees the range on the host, so that it reads as zero; false if the host cannot.
    fn punch(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        if let IoPath::Mapped(mapping) = &self.io_path {
            return mapping.punch(&self.file, offset, bytes);
        }
        self.retry_after_sync(|| host::punch(&self.file, offset, bytes))
    }
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        // Orders nothing: who needs more bytes had them added before.
        self.bytes.load(Ordering::Relaxed)
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        if bytes <= self.size() {
            return Ok(());
        }
        if self.read_only {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let found = (&self.file).seek(SeekFrom::End(0))?;
        let is_suitable = match &self.io_path {
            IoPath::Direct(direct) => direct.is_aligned(bytes.max(found)),
            _ => true,
        };
        if !is_suitable || self.is_block_special && found < bytes {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if found < bytes {
            self.file.set_len(bytes)?;
        }
        self.bytes.store(bytes.max(found), Ordering::Relaxed);
        Ok(())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.size(), offset, buf.len() as u64)?;
        match &self.io_path {
            IoPath::Direct(direct) => direct.read(&self.file, offset, buf),
            IoPath::Buffered | IoPath::Mapped(_) => self.file.read_exact_at(buf, offset),
        }
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.write(offset, bufs, false)
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write(offset, &[io::IoSlice::new(buf)], true)
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only { Ok(()) } else { self.sync() }
    }

    fn refresh(&self, offset: u64, bytes: u64) -> io::Result<()> {
        // Only whole pages are dropped.
        let start = offset - offset % PAGE_BYTES_MAX;
        let bytes = (offset - start).saturating_add(bytes).saturating_add(PAGE_BYTES_MAX);
        host::forget_cached(&self.file, start, bytes)
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check_write(offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let is_discarded = if self.is_block_special {
            self.retry_after_sync(|| host::discard(&self.file, offset, bytes))?
        } else {
            self.punch(offset, bytes)?
        };
        if is_discarded { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check_write(offset, bytes)?;
        // Zeroes can always be written.
        let is_made = |made: io::Result<bool>| match made {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(false),
            other => other,
        };
        if bytes == 0 || is_made(self.punch(offset, bytes))? {
            return Ok(());
        }
        if is_made(self.retry_after_sync(|| host::zero(&self.file, offset, bytes)))? {
            return Ok(());
        }
        write_zero_bytes(self, offset, bytes)
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn has_latency(&self) -> bool {
        self.is_block_special || matches!(self.io_path, IoPath::Direct(_))
    }
}

/// Whether it is a block special; refuses what is not a device at all.
fn check_kind(path: &Path, found: &std::fs::Metadata) -> Result<bool, Error> {
    if host::is_block_special(found) {
        Ok(true)
    } else if found.is_file() {
        Ok(false)
    } else {
        Err(Error::NotADevice { path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_failed_fails_for_ever() {
        let dir = extant_testing::scratch();
        let path = dir.path().join("image");
        std::fs::write(&path, [0; 8192]).expect("an image");
        let device = FileDevice::open(&path, DeviceAccess::read_write()).expect("a device");
        device.flush().expect("a healthy file");
        // As where a discard has to flush a busy block special first, and the failure of the flush is not reported to the
        // discard's caller.
        assert!(device.durable.run(|| io::Result::Err(io::Error::other("lost"))).is_err());
        let told = device.flush().expect_err("the loss was told once").to_string();
        assert_eq!(told, "writes were lost by an earlier flush: lost");
        assert!(device.write_fua(0, &[1; 512]).is_err());
    }
}
