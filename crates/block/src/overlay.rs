//! A device whose writes stay in memory: what is written lies over another device, which is only read.
//!
//! Locks: `DEVICE`, not across reads of the device below.

use std::collections::BTreeMap;
use std::io;

use extant_rt::{Arc, LockClass, Mutex};

use crate::{BlockDevice, check_range, total_bytes};

/// A device in memory over another one. Takes memory for the blocks that were written.
#[derive(Debug)]
pub struct Overlay<D> {
    below: D,
    block_bytes: u64,
    written: Mutex<BTreeMap<u64, Arc<[u8]>>>,
}

impl<D: BlockDevice> Overlay<D> {
    /// Over `below`, with nothing written, in blocks of `block_bytes` bytes, which the device has a whole number of. 0 counts as 1.
    #[must_use]
    pub fn new(below: D, block_bytes: u32) -> Self {
        let written = Mutex::new(LockClass::DEVICE, BTreeMap::new());
        Self { below, block_bytes: u64::from(block_bytes.max(1)), written }
    }

    /// The blocks that were written, by number.
    #[must_use]
    pub fn written(&self) -> BTreeMap<u64, Arc<[u8]>> {
        self.written.lock().clone()
    }

    /// Has a block in memory, of which a part may be written.
    fn copy_up(&self, block: u64) -> io::Result<()> {
        if !self.written.lock().contains_key(&block) {
            let start = block * self.block_bytes;
            let mut bytes = vec![0; self.block_bytes.min(self.size() - start) as usize];
            self.below.read_at(start, &mut bytes)?;
            self.written.lock().entry(block).or_insert(bytes.into());
        }
        Ok(())
    }

    /// Calls `act` for each block of a range: its number, the part of it, and the part of the range.
    fn each_block(
        &self,
        offset: u64,
        bytes: u64,
        mut act: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        check_range(self.size(), offset, bytes)?;
        let mut done = 0;
        while done < bytes {
            let at = offset + done;
            let within = at % self.block_bytes;
            let len = (self.block_bytes - within).min(bytes - done);
            let (from, to) = (within as usize, done as usize);
            act(at / self.block_bytes, from..from + len as usize, to..to + len as usize)?;
            done += len;
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Overlay<D> {
    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.below.read_at(offset, buf)?;
        let written = self.written.lock();
        self.each_block(offset, buf.len() as u64, |block, from, to| {
            if let Some(bytes) = written.get(&block) {
                buf[to].copy_from_slice(&bytes[from]);
            }
            Ok(())
        })
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        check_range(self.size(), offset, total_bytes(bufs))?;
        let mut at = offset;
        for buf in bufs {
            self.each_block(at, buf.len() as u64, |block, to, from| {
                self.copy_up(block)?;
                if let Some(bytes) = self.written.lock().get_mut(&block) {
                    Arc::make_mut(bytes)[to].copy_from_slice(&buf[from]);
                }
                Ok(())
            })?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let zeroes = vec![0; self.block_bytes as usize];
        self.each_block(offset, bytes, |block, within, _| {
            let len = within.len();
            self.write_at(block * self.block_bytes + within.start as u64, &zeroes[..len])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn writes_are_read_back_and_leave_the_device_below_alone() {
        let below = MemoryDevice::new(4096);
        below.write_at(0, &[1; 4096]).expect("write");
        let overlay = Overlay::new(&below, 1024);
        overlay.write_at(1000, &[2; 1100]).expect("write");
        overlay.write_zeroes(1500, 10).expect("zeroes");
        let mut bytes = [0; 4096];
        overlay.read_at(0, &mut bytes).expect("read");
        let expected = |at: usize| match at {
            1500..1510 => 0,
            1000..2100 => 2,
            _ => 1,
        };
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
        assert_eq!(overlay.written().keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        below.read_at(0, &mut bytes).expect("read");
        assert_eq!(bytes, [1; 4096]);
        assert!(overlay.write_at(4000, &[0; 97]).is_err(), "past the end");
    }
}
