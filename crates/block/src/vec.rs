//! Bytes behind a lock as a device: an image that a program has in memory, and reads again after unmounting.
//!
//! The lock is the caller's own, so it is the standard library's. It is held for one copy at a time. A panic while it was held leaves whole
//! bytes, so poison is passed over.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{BlockDevice, check_range, total_bytes};

fn lock(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BlockDevice for Mutex<Vec<u8>> {
    fn size(&self) -> u64 {
        lock(self).len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = lock(self);
        check_range(bytes.len() as u64, offset, buf.len() as u64)?;
        buf.copy_from_slice(&bytes[offset as usize..][..buf.len()]);
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        let mut bytes = lock(self);
        check_range(bytes.len() as u64, offset, total_bytes(bufs))?;
        let mut rest = &mut bytes[offset as usize..];
        for buf in bufs {
            let (into, after) = rest.split_at_mut(buf.len());
            into.copy_from_slice(buf);
            rest = after;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.write_zeroes(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mut held = lock(self);
        check_range(held.len() as u64, offset, bytes)?;
        held[offset as usize..][..bytes as usize].fill(0);
        Ok(())
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        let mut held = lock(self);
        let len = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let missing = len.saturating_sub(held.len());
        held.try_reserve_exact(missing).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if missing > 0 {
            held.resize(len, 0);
        }
        Ok(())
    }
}
