//! Memory for bytes on their way to a device.
//!
//! Buffers of [`BUFFER_BYTES`] come out of regions that the host can back with one huge page each, and are used again before new
//! ones are: touching a fresh page costs the host more than copying into it. They are aligned for `O_DIRECT`. Smaller ones are
//! the heap's.
//!
//! Locks: `MEMORY`. Tests: below.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use extant_rt::{Arc, LockClass, Mutex};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes of a buffer out of a region.
pub const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of a region, and its alignment: a huge page of the host.
const REGION_BYTES: usize = 2 << 20;
/// A bit for each buffer of a region.
const ALL_FREE: u8 = u8::MAX;
/// Regions without a buffer in use that are kept.
const KEPT_MAX: usize = 8;

const _: () = assert!(REGION_BYTES / BUFFER_BYTES == u8::BITS as usize);

/// Regions of memory, and which of their buffers are free.
#[derive(Debug)]
pub struct Buffers(Mutex<Free>);

#[derive(Debug, Default)]
struct Free {
    /// Regions with free buffers by their address, of which the lowest is used first, so that others become empty.
    regions: BTreeMap<usize, u8>,
    /// How many of them have no buffer in use.
    empty: usize,
}

/// Bytes of its own. A clone is a copy.
pub struct Buffer(Memory);

enum Memory {
    Heap(Vec<u8>),
    Region { start: NonNull<u8>, owner: Arc<Buffers> },
}

// SAFETY: the memory is the buffer's alone, as a vector's is.
#[expect(unsafe_code, reason = "a raw pointer is neither Send nor Sync")]
unsafe impl Send for Buffer {}
// SAFETY: as above; it changes through `&mut` only.
#[expect(unsafe_code, reason = "a raw pointer is neither Send nor Sync")]
unsafe impl Sync for Buffer {}

impl Buffers {
    /// Without any memory yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(LockClass::MEMORY, Free::default())))
    }

    /// A buffer with these bytes.
    #[must_use]
    pub fn copy(self: &Arc<Self>, bytes: &[u8]) -> Buffer {
        if bytes.len() == BUFFER_BYTES
            && let Some(start) = self.take()
        {
            let mut buffer = Buffer(Memory::Region { start, owner: self.clone() });
            buffer.copy_from_slice(bytes);
            return buffer;
        }
        Buffer(Memory::Heap(bytes.to_vec()))
    }

    /// A buffer of a region; none if the host gives no memory.
    fn take(&self) -> Option<NonNull<u8>> {
        let mut free = self.0.lock();
        let Free { regions, empty } = &mut *free;
        let Some(mut first) = regions.first_entry() else {
            let region = map_region()?;
            regions.insert(region.as_ptr().expose_provenance(), ALL_FREE & !1);
            return Some(region);
        };
        let (address, bits) = (*first.key(), *first.get());
        *empty -= usize::from(bits == ALL_FREE);
        let index = bits.trailing_zeros() as usize;
        *first.get_mut() = bits & (bits - 1);
        if *first.get() == 0 {
            first.remove();
        }
        NonNull::new(std::ptr::with_exposed_provenance_mut(address + index * BUFFER_BYTES))
    }

    /// Takes a buffer back, and gives the host its region if too many have none in use.
    fn give_back(&self, start: NonNull<u8>) {
        let region = start.as_ptr().addr() & !(REGION_BYTES - 1);
        let bit = 1 << ((start.as_ptr().addr() - region) / BUFFER_BYTES);
        let mut free = self.0.lock();
        let Free { regions, empty } = &mut *free;
        let is_empty = match regions.entry(region) {
            Entry::Vacant(entry) => *entry.insert(bit) == ALL_FREE,
            Entry::Occupied(mut entry) => {
                *entry.get_mut() |= bit;
                *entry.get() == ALL_FREE
            }
        };
        if is_empty && *empty == KEPT_MAX {
            regions.remove(&region);
            drop(free);
            unmap(region, REGION_BYTES);
        } else {
            *empty += usize::from(is_empty);
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // Every buffer has an owner: all are back.
        for region in self.0.lock().regions.keys() {
            unmap(*region, REGION_BYTES);
        }
    }
}

/// A region of zeroes at a multiple of its size.
#[expect(unsafe_code, reason = "mmap, madvise")]
fn map_region() -> Option<NonNull<u8>> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the address is chosen by the kernel, so no memory in use is replaced.
    let mapped =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 2 * REGION_BYTES, protection, flags) }
            .ok()?;
    let start = mapped.expose_provenance();
    let region = start.next_multiple_of(REGION_BYTES);
    unmap(start, region - start);
    unmap(region + REGION_BYTES, start + REGION_BYTES - region);
    let address = std::ptr::with_exposed_provenance_mut(region);
    // SAFETY: the range was mapped just now; the advice changes no byte. Without huge pages it is memory all the same.
    let _ = unsafe { rustix::mm::madvise(address, REGION_BYTES, Advice::LinuxHugepage) };
    NonNull::new(address.cast())
}

/// Gives memory back that was mapped by [`map_region`] and that nothing refers to.
#[expect(unsafe_code, reason = "munmap")]
fn unmap(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: as the function says. It fails only for arguments that are not a map's.
        let _ = unsafe { rustix::mm::munmap(std::ptr::with_exposed_provenance_mut(start), bytes) };
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[expect(unsafe_code, reason = "memory of a region")]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Heap(bytes) => bytes,
            // SAFETY: `start` has so many bytes, mapped as zeroes or written since; they are this buffer's until it is dropped.
            Memory::Region { start, .. } => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), BUFFER_BYTES)
            },
        }
    }
}

impl DerefMut for Buffer {
    #[expect(unsafe_code, reason = "memory of a region")]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Heap(bytes) => bytes,
            // SAFETY: as in `deref`; `&mut self` excludes all others.
            Memory::Region { start, .. } => unsafe {
                std::slice::from_raw_parts_mut(start.as_ptr(), BUFFER_BYTES)
            },
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        match &self.0 {
            Memory::Heap(bytes) => Self(Memory::Heap(bytes.clone())),
            Memory::Region { owner, .. } => owner.copy(self),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Memory::Region { start, owner } = &self.0 {
            owner.give_back(*start);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap_and_regions_go_back() {
        let buffers = Buffers::new();
        let of = |byte: u8| buffers.copy(&vec![byte; BUFFER_BYTES]);
        let mut held: Vec<_> = (0..100).map(of).collect();
        assert!(held.iter().all(|buffer| buffer.as_ptr().addr().is_multiple_of(BUFFER_BYTES)));
        // Every third goes, and comes again with others' bytes.
        let mut index = 0;
        held.retain(|_| {
            index += 1;
            index % 3 != 0
        });
        let copies = held.clone();
        held[0].fill(0);
        held.extend((100..133).map(of));
        for (copy, byte) in copies.iter().zip((0..100).filter(|byte| byte % 3 != 2)) {
            assert!(copy.iter().all(|found| *found == byte), "{byte}");
        }
        for (buffer, byte) in held[copies.len()..].iter().zip(100..) {
            assert!(buffer.iter().all(|found| *found == byte), "{byte}");
        }
        let small = buffers.copy(b"small");
        assert_eq!(&*small.clone(), b"small");
        drop((held, copies));
        let free = buffers.0.lock();
        assert_eq!((free.regions.len(), free.empty), (KEPT_MAX, KEPT_MAX));
        assert!(free.regions.values().all(|bits| *bits == ALL_FREE));
    }
}
