//! A part of a device as a device: a partition, or an image inside a larger file.

use std::io;

use crate::{BlockDevice, Error, Write, check_range, total_bytes};

/// The bytes from `offset` to `offset + bytes` of another device.
#[derive(Debug)]
pub struct Partition<D> {
    device: D,
    offset: u64,
    bytes: u64,
}

impl<D: BlockDevice> Partition<D> {
    /// The part of `device` that begins at `offset` and is `bytes` long.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the device is smaller.
    pub fn new(device: D, offset: u64, bytes: u64) -> Result<Self, Error> {
        let device_bytes = device.size();
        match offset.checked_add(bytes) {
            Some(end) if end <= device_bytes => Ok(Self { device, offset, bytes }),
            _ => Err(Error::OutOfRange { offset, bytes, device_bytes }),
        }
    }

    /// The part of `device` from `offset` to its end.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the device ends before.
    pub fn from_offset(device: D, offset: u64) -> Result<Self, Error> {
        let bytes = device.size().saturating_sub(offset);
        Self::new(device, offset, bytes)
    }

    /// Where `offset` of the partition lies on the device.
    fn place(&self, offset: u64, bytes: u64) -> io::Result<u64> {
        check_range(self.bytes, offset, bytes)?;
        Ok(self.offset + offset)
    }
}

impl<D: BlockDevice> BlockDevice for Partition<D> {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(self.place(offset, buf.len() as u64)?, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.device.write_vectored_at(self.place(offset, total_bytes(bufs))?, bufs)
    }

    fn write_many(&self, writes: &[Write<'_>]) -> io::Result<()> {
        let mut placed = writes.to_vec();
        for write in &mut placed {
            write.offset = self.place(write.offset, write.bytes())?;
        }
        self.device.write_many(&placed)
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.device.write_fua(self.place(offset, buf.len() as u64)?, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.device.discard(self.place(offset, bytes)?, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.device.write_zeroes(self.place(offset, bytes)?, bytes)
    }

    fn refresh(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.device.refresh(self.place(offset, bytes)?, bytes)
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn has_latency(&self) -> bool {
        self.device.has_latency()
    }
}
