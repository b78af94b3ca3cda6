//! Writes through a shared memory map.
//!
//! A write by system call takes the file's lock in the host, so two writers to one tmpfs image are no faster than
//! one; a store into a map takes no lock. Reads are system calls: on tmpfs they take no lock, and a page never
//! written stays unallocated, where a load from the map would allocate it.
//!
//! Invariant: a store touches only granules that `fallocate` has given space, since a store into a hole of a full
//! file system kills the process (SIGBUS) where a write returns an error. Another program that shortens the file
//! would kill it as well; the lock on the file keeps cooperating programs away.
//!
//! Locks: `DEVICE`, one per span, one at a time; also what makes stores from two threads ordered.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use extant_rt::{LockClass, Mutex};

use crate::host::{allocate, map_file, punch, unmap_file, write_all_at};

/// Bytes that are allocated together.
const GRANULE_BYTES: u64 = 64 << 10;

/// Bytes under one lock: as many granules as its word has bits.
const SPAN_BYTES: u64 = GRANULE_BYTES * u64::BITS as u64;

/// The map of a whole file.
#[derive(Debug)]
pub struct Mapping {
    /// `None` for an empty file, which cannot be mapped.
    address: Option<NonNull<u8>>,
    bytes: u64,
    /// Per span, which granules have space.
    spans: Vec<Mutex<u64>>,
}

// SAFETY: the memory belongs to the process, not to a thread, and every store holds the lock of its span.
#[expect(unsafe_code, reason = "a raw pointer is neither Send nor Sync")]
unsafe impl Send for Mapping {}
// SAFETY: as above; nothing reads through the address.
#[expect(unsafe_code, reason = "a raw pointer is neither Send nor Sync")]
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the `bytes` of a file that is open for writing.
    pub fn new(file: &File, bytes: u64) -> io::Result<Self> {
        let len = usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let address = if len == 0 { None } else { Some(map_file(file, len)?) };
        let spans = (0..bytes.div_ceil(SPAN_BYTES)).map(|_| Mutex::new(LockClass::DEVICE, 0)).collect();
        Ok(Self { address, bytes, spans })
    }

    /// Writes the buffers one after the other from `offset`; the range lies in the file, which may have become longer than the map.
    pub fn write(&self, file: &File, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        let mut at = offset;
        for buf in bufs {
            let mut rest: &[u8] = buf;
            while !rest.is_empty() {
                let room = SPAN_BYTES - at % SPAN_BYTES;
                let (piece, after) =
                    rest.split_at(rest.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
                self.write_in_span(file, at, piece)?;
                at += piece.len() as u64;
                rest = after;
            }
        }
        Ok(())
    }

    #[expect(unsafe_code, reason = "a store into the map")]
    fn write_in_span(&self, file: &File, offset: u64, piece: &[u8]) -> io::Result<()> {
        let end = offset + piece.len() as u64;
        let (Some(address), true) = (self.address, end <= self.bytes) else {
            // What the file became longer by since.
            return write_all_at(file, offset, &[io::IoSlice::new(piece)], false);
        };
        let span = (offset / SPAN_BYTES) as usize;
        let mut allocated = self.spans[span].lock();
        for granule in offset / GRANULE_BYTES..end.div_ceil(GRANULE_BYTES) {
            let bit = 1 << (granule % u64::from(u64::BITS));
            if *allocated & bit == 0 {
                let start = granule * GRANULE_BYTES;
                let len = GRANULE_BYTES.min(self.bytes - start);
                if !allocate(file, start, len)? {
                    return write_all_at(file, offset, &[io::IoSlice::new(piece)], false);
                }
                *allocated |= bit;
            }
        }
        // SAFETY: `end <= self.bytes`, the length of the map; the span's lock is held, so no other thread stores
        // here; nothing in the process refers to the map's memory, so `piece` cannot overlap it.
        unsafe {
            address.add(offset as usize).copy_from_nonoverlapping(NonNull::from(piece).cast(), piece.len());
        }
        Ok(())
    }

    /// Frees the range on the host, so that it reads as zero; false if the host cannot.
    pub fn punch(&self, file: &File, offset: u64, bytes: u64) -> io::Result<bool> {
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let stop = end.min((at / SPAN_BYTES + 1) * SPAN_BYTES);
            let mut allocated = self.spans.get((at / SPAN_BYTES) as usize).map(Mutex::lock);
            for granule in at / GRANULE_BYTES..stop.div_ceil(GRANULE_BYTES) {
                if let Some(allocated) = &mut allocated {
                    **allocated &= !(1 << (granule % u64::from(u64::BITS)));
                }
            }
            if !punch(file, at, stop - at)? {
                return Ok(false);
            }
            at = stop;
        }
        Ok(true)
    }
}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "munmap")]
    fn drop(&mut self) {
        if let Some(address) = self.address {
            // SAFETY: the range was mapped by `new` with this length, and no reference into it exists.
            unsafe { unmap_file(address, self.bytes as usize) };
        }
    }
}
