//! A device in memory.

use std::io;

use extant_rt::{LockClass, RwLock};

use crate::BlockDevice;

/// Bytes per lock: threads in different places do not wait for each other.
const CHUNK_BYTES: usize = 1 << 20;

/// A device in memory. Chunks that were never written take none.
#[derive(Debug)]
pub struct MemoryDevice {
    bytes: u64,
    chunks: Vec<RwLock<Option<Box<[u8]>>>>,
}

impl MemoryDevice {
    /// A device of `bytes` bytes that reads as zero.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let count = bytes.div_ceil(CHUNK_BYTES as u64);
        let chunks = (0..count).map(|_| RwLock::new(LockClass::DEVICE, None)).collect();
        Self { bytes, chunks }
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Calls `each(chunk, offset in the chunk, bytes)` for the pieces of a range.
    fn pieces(offset: u64, len: usize, mut each: impl FnMut(usize, usize, usize)) {
        let (mut at, mut left) = (offset, len);
        while left > 0 {
            let start = (at % CHUNK_BYTES as u64) as usize;
            let piece = left.min(CHUNK_BYTES - start);
            each((at / CHUNK_BYTES as u64) as usize, start, piece);
            at += piece as u64;
            left -= piece;
        }
    }
}

impl BlockDevice for MemoryDevice {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        let mut done = 0;
        Self::pieces(offset, buf.len(), |chunk, start, len| {
            let into = &mut buf[done..done + len];
            match &*self.chunks[chunk].read() {
                Some(bytes) => into.copy_from_slice(&bytes[start..start + len]),
                None => into.fill(0),
            }
            done += len;
        });
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.check(offset, bufs.iter().map(|b| b.len() as u64).sum())?;
        let mut at = offset;
        for buf in bufs {
            let mut done = 0;
            Self::pieces(at, buf.len(), |chunk, start, len| {
                let mut chunk = self.chunks[chunk].write();
                let bytes = chunk.get_or_insert_with(|| vec![0; CHUNK_BYTES].into_boxed_slice());
                bytes[start..start + len].copy_from_slice(&buf[done..done + len]);
                done += len;
            });
            at += buf.len() as u64;
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
        self.check(offset, bytes)?;
        let (mut at, mut left) = (offset, bytes);
        while left > 0 {
            let start = (at % CHUNK_BYTES as u64) as usize;
            let piece = left.min((CHUNK_BYTES - start) as u64);
            let mut chunk = self.chunks[(at / CHUNK_BYTES as u64) as usize].write();
            if piece == CHUNK_BYTES as u64 {
                *chunk = None;
            } else if let Some(held) = chunk.as_mut() {
                held[start..start + piece as usize].fill(0);
            }
            drop(chunk);
            at += piece;
            left -= piece;
        }
        Ok(())
    }
}
