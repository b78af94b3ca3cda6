//! A device in memory.
//!
//! Chunks are shared between a device and its snapshots and copied when either writes.
//!
//! Locks: `DEVICE`, one per chunk, one at a time.

use std::io;

use extant_rt::{Arc, LockClass, OnceLock, RwLock};

use crate::{BlockDevice, check_range, total_bytes};

/// Bytes per lock, and what a snapshot's first write copies.
const CHUNK_BYTES: u64 = 64 << 10;

/// Chunks whose slots are allocated together, so that a large sparse device costs little.
const TABLE_CHUNKS: u64 = 1024;

type Slot = RwLock<Option<Arc<[u8]>>>;

/// A device in memory. Chunks that were never written take none.
#[derive(Debug)]
pub struct MemoryDevice {
    bytes: u64,
    tables: Vec<OnceLock<Box<[Slot]>>>,
}

/// A piece of a range that lies in one chunk.
struct Piece {
    chunk: u64,
    start: usize,
    len: usize,
}

/// The pieces of a range, chunk by chunk.
fn pieces(offset: u64, bytes: u64) -> impl Iterator<Item = Piece> {
    let (mut at, mut left) = (offset, bytes);
    std::iter::from_fn(move || {
        let start = at % CHUNK_BYTES;
        let len = left.min(CHUNK_BYTES - start);
        let piece = Piece { chunk: at / CHUNK_BYTES, start: start as usize, len: len as usize };
        at += len;
        left -= len;
        (len > 0).then_some(piece)
    })
}

impl MemoryDevice {
    /// A device of `bytes` bytes that reads as zero.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let count = bytes.div_ceil(CHUNK_BYTES * TABLE_CHUNKS);
        Self { bytes, tables: (0..count).map(|_| OnceLock::new()).collect() }
    }

    /// A device with the content of another, of which only what is not zero takes memory.
    ///
    /// # Errors
    /// As the other's `read_at`.
    pub fn copy_of(device: &(impl BlockDevice + ?Sized)) -> io::Result<Self> {
        let copy = Self::new(device.size());
        let (mut buf, zeroes) = (vec![0; CHUNK_BYTES as usize], vec![0; CHUNK_BYTES as usize]);
        for piece in pieces(0, copy.bytes) {
            let (offset, buf) = (piece.chunk * CHUNK_BYTES, &mut buf[..piece.len]);
            device.read_at(offset, buf)?;
            if *buf != zeroes[..piece.len] {
                copy.write_at(offset, buf)?;
            }
        }
        Ok(copy)
    }

    /// A device of the same content that shares memory with this one until either writes. Costs a pointer per
    /// chunk. Of a write under way, some pieces may be in it and others not.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let share = |slots: &[Slot]| slots.iter().map(|slot| new_slot(slot.read().clone())).collect();
        let tables = self.tables.iter().map(|table| {
            let copy = OnceLock::new();
            if let Some(slots) = table.get() {
                copy.get_or_init(|| share(slots));
            }
            copy
        });
        Self { bytes: self.bytes, tables: tables.collect() }
    }

    /// The chunk's slot, if any chunk near it was ever written.
    fn slot(&self, chunk: u64) -> Option<&Slot> {
        let slots = self.tables[(chunk / TABLE_CHUNKS) as usize].get()?;
        Some(&slots[(chunk % TABLE_CHUNKS) as usize])
    }

    fn slot_to_write(&self, chunk: u64) -> &Slot {
        let table = &self.tables[(chunk / TABLE_CHUNKS) as usize];
        let slots = table.get_or_init(|| (0..TABLE_CHUNKS).map(|_| new_slot(None)).collect());
        &slots[(chunk % TABLE_CHUNKS) as usize]
    }
}

fn new_slot(chunk: Option<Arc<[u8]>>) -> Slot {
    RwLock::new(LockClass::DEVICE, chunk)
}

impl BlockDevice for MemoryDevice {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.bytes, offset, buf.len() as u64)?;
        let mut rest = buf;
        for Piece { chunk, start, len } in pieces(offset, rest.len() as u64) {
            let (into, after) = rest.split_at_mut(len);
            rest = after;
            let held = self.slot(chunk).map(RwLock::read);
            match held.as_ref().and_then(|chunk| chunk.as_ref()) {
                Some(bytes) => into.copy_from_slice(&bytes[start..start + len]),
                None => into.fill(0),
            }
        }
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        check_range(self.bytes, offset, total_bytes(bufs))?;
        let mut at = offset;
        for buf in bufs {
            let mut rest: &[u8] = buf;
            for Piece { chunk, start, len } in pieces(at, buf.len() as u64) {
                let (from, after) = rest.split_at(len);
                rest = after;
                let mut slot = self.slot_to_write(chunk).write();
                let bytes = slot.get_or_insert_with(|| vec![0; CHUNK_BYTES as usize].into());
                Arc::make_mut(bytes)[start..start + len].copy_from_slice(from);
            }
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
        check_range(self.bytes, offset, bytes)?;
        for Piece { chunk, start, len } in pieces(offset, bytes) {
            let Some(slot) = self.slot(chunk) else { continue };
            let mut slot = slot.write();
            if len as u64 == CHUNK_BYTES {
                *slot = None;
            } else if let Some(held) = slot.as_mut() {
                Arc::make_mut(held)[start..start + len].fill(0);
            }
        }
        Ok(())
    }
}
