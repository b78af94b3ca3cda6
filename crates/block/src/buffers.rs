//! Buffers for bytes to be written to a device.
//!
//! Buffers of [`BUFFER_BYTES`] come from regions that the host can back with one huge page each, and are reused before new ones
//! are allocated: touching a fresh page costs the host more than copying into it. At most [`WARM_MAX`] free ones keep their memory.
//! Buffers of smaller powers of two, down to [`SLOT_BYTES_MIN`], are slots of such a buffer, which is a slab of slots of one size: they
//! share its huge page, so that few translations of addresses reach them all. Slabs are kept by thread, so that threads do not meet. All
//! these are aligned for `O_DIRECT`. Others come from the heap.
//!
//! Locks: `MEMORY`: of the slabs (key 0), inside it of the regions (key 1). Tests: below.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use extant_rt::{Arc, LockClass, Mutex, SHARDS, thread_slot};

use crate::host::{give_memory_back, map_region, trim_heap, unmap_region};

/// Bytes of a buffer out of a region.
pub const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of a region, and its alignment: a huge page of the host.
const REGION_BYTES: usize = 2 << 20;
/// A bit for each buffer of a region.
const ALL_FREE: u8 = u8::MAX;
/// Free buffers whose memory is kept.
const WARM_MAX: usize = 64;
/// Bytes of the smallest slot: of a slab of those a word has a bit for each.
const SLOT_BYTES_MIN: usize = 4 << 10;
/// Sizes of slots: up to half a buffer.
const SIZES: usize = (BUFFER_BYTES / SLOT_BYTES_MIN).ilog2() as usize;
/// Buffers without memory that are taken before the heap is asked to return its free memory, or both would be at their maximum.
const COLD_TO_TRIM: usize = 256;

const _: () = assert!(REGION_BYTES / BUFFER_BYTES == u8::BITS as usize);
const _: () = assert!(BUFFER_BYTES / SLOT_BYTES_MIN == u64::BITS as usize);

/// Memory for buffers.
#[derive(Debug)]
pub struct Buffers {
    regions: Arc<Regions>,
    slabs: Box<[Arc<Slabs>]>,
}

/// Slabs, and which of their slots are free.
#[derive(Debug)]
struct Slabs {
    regions: Arc<Regions>,
    /// For each size the slabs with free slots, by their address, of which the lowest is used first.
    free: Mutex<[BTreeMap<usize, u64>; SIZES]>,
}

/// Regions of memory, and which of their buffers are free.
#[derive(Debug)]
struct Regions(Mutex<Free>);

/// Free buffers: of regions by their address, of which the lowest is used first.
#[derive(Debug, Default)]
struct Free {
    /// With memory.
    warm: BTreeMap<usize, u8>,
    warm_count: usize,
    /// Whose memory the host has.
    cold: BTreeMap<usize, u8>,
    cold_taken: usize,
    /// All regions.
    regions: Vec<usize>,
}

/// Bytes of its own. A clone is a copy.
pub struct Buffer(Memory);

enum Memory {
    Heap(Vec<u8>),
    Region { start: NonNull<u8>, owner: Arc<Regions> },
    Slot { start: NonNull<u8>, size: usize, owner: Arc<Slabs> },
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
        let regions = Arc::new(Regions(Mutex::with_key(LockClass::MEMORY, 1, Free::default())));
        let slabs = |_| {
            let free = Mutex::with_key(LockClass::MEMORY, 0, std::array::from_fn(|_| BTreeMap::new()));
            Arc::new(Slabs { regions: regions.clone(), free })
        };
        Arc::new(Self { slabs: (0..SHARDS).map(slabs).collect(), regions })
    }

    /// A buffer with these bytes.
    #[must_use]
    pub fn copy(&self, bytes: &[u8]) -> Buffer {
        Buffer::filled(self.pooled(bytes.len()), bytes)
    }

    /// A buffer to be filled: it has any bytes.
    #[must_use]
    pub fn to_fill(&self, bytes: usize) -> Buffer {
        self.pooled(bytes).unwrap_or_else(|| Buffer(Memory::Heap(vec![0; bytes])))
    }

    fn pooled(&self, bytes: usize) -> Option<Buffer> {
        match bytes {
            BUFFER_BYTES => self.regions.buffer(),
            _ => self.slabs[thread_slot() % SHARDS].buffer(bytes),
        }
    }
}

impl Slabs {
    /// A slot; none for bytes of which there are no slots, or if the host gives no memory.
    fn buffer(self: &Arc<Self>, bytes: usize) -> Option<Buffer> {
        if !bytes.is_power_of_two() || !(SLOT_BYTES_MIN..BUFFER_BYTES).contains(&bytes) {
            return None;
        }
        let size = (bytes / SLOT_BYTES_MIN).ilog2() as usize;
        let mut free = self.free.lock();
        if free[size].is_empty() {
            let slab = self.regions.take()?.as_ptr().expose_provenance();
            free[size].insert(slab, u64::MAX >> (u64::BITS as usize - BUFFER_BYTES / bytes));
        }
        let mut first = free[size].first_entry()?;
        let (slab, bits) = (*first.key(), *first.get());
        *first.get_mut() = bits & (bits - 1);
        if *first.get() == 0 {
            first.remove();
        }
        drop(free);
        let start = slab + bits.trailing_zeros() as usize * bytes;
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut(start))?;
        Some(Buffer(Memory::Slot { start, size, owner: self.clone() }))
    }

    /// Takes a slot back. A slab whose slots are all free goes back to the regions.
    fn give_back(&self, start: NonNull<u8>, size: usize) {
        let address = start.as_ptr().addr();
        let (slab, bytes) = (address & !(BUFFER_BYTES - 1), SLOT_BYTES_MIN << size);
        let mut free = self.free.lock();
        let bits = free[size].entry(slab).or_default();
        *bits |= 1 << ((address - slab) / bytes);
        if bits.count_ones() as usize == BUFFER_BYTES / bytes {
            free[size].remove(&slab);
            drop(free);
            if let Some(slab) = NonNull::new(std::ptr::with_exposed_provenance_mut(slab)) {
                self.regions.give_back(slab);
            }
        }
    }
}

impl Regions {
    /// A whole buffer; none if the host gives no memory.
    fn buffer(self: &Arc<Self>) -> Option<Buffer> {
        Some(Buffer(Memory::Region { start: self.take()?, owner: self.clone() }))
    }

    /// The memory of a buffer; none if the host gives none.
    fn take(&self) -> Option<NonNull<u8>> {
        let mut free = self.0.lock();
        if let Some(start) = pop(&mut free.warm) {
            free.warm_count -= 1;
            return NonNull::new(std::ptr::with_exposed_provenance_mut(start));
        }
        if free.cold.is_empty() {
            let region = map_region(REGION_BYTES)?.as_ptr().expose_provenance();
            free.regions.push(region);
            free.cold.insert(region, ALL_FREE);
        }
        let start = pop(&mut free.cold)?;
        free.cold_taken += 1;
        let trims = free.cold_taken.is_multiple_of(COLD_TO_TRIM);
        drop(free);
        if trims {
            trim_heap();
        }
        NonNull::new(std::ptr::with_exposed_provenance_mut(start))
    }

    /// Takes a buffer back, and gives the host its memory if enough is kept.
    fn give_back(&self, start: NonNull<u8>) {
        let mut free = self.0.lock();
        if free.warm_count < WARM_MAX {
            free.warm_count += 1;
            push(&mut free.warm, start.as_ptr().addr());
            return;
        }
        drop(free);
        give_memory_back(start, BUFFER_BYTES);
        push(&mut self.0.lock().cold, start.as_ptr().addr());
    }
}

impl Drop for Regions {
    fn drop(&mut self) {
        // Every buffer and every slab has an owner: nothing refers to them any more.
        for region in &self.0.lock().regions {
            unmap_region(*region, REGION_BYTES);
        }
    }
}

/// Takes the first buffer.
fn pop(free: &mut BTreeMap<usize, u8>) -> Option<usize> {
    let mut first = free.first_entry()?;
    let (region, bits) = (*first.key(), *first.get());
    *first.get_mut() = bits & (bits - 1);
    if *first.get() == 0 {
        first.remove();
    }
    Some(region + bits.trailing_zeros() as usize * BUFFER_BYTES)
}

fn push(free: &mut BTreeMap<usize, u8>, start: usize) {
    let region = start & !(REGION_BYTES - 1);
    *free.entry(region).or_default() |= 1 << ((start - region) / BUFFER_BYTES);
}

impl Buffer {
    /// The bytes in a buffer as long, or on the heap.
    fn filled(buffer: Option<Self>, bytes: &[u8]) -> Self {
        match buffer {
            Some(mut buffer) => {
                buffer.copy_from_slice(bytes);
                buffer
            }
            None => Self(Memory::Heap(bytes.to_vec())),
        }
    }
}

/// Copies bytes past the CPU's caches, where the host's CPU can: for memory that the caches do not have, which it does not read then, and
/// that is not read soon.
///
/// # Panics
/// If the lengths differ.
pub fn copy_past_caches(to: &mut [u8], from: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        const BYTES: usize = size_of::<__m128i>();
        assert_eq!(to.len(), from.len());
        // SAFETY: any bytes are a vector of bytes.
        #[expect(unsafe_code, reason = "aligned vectors of bytes")]
        let (head, body, tail) = unsafe { to.align_to_mut::<__m128i>() };
        let (from_head, rest) = from.split_at(head.len());
        let (from_body, from_tail) = rest.split_at(body.len() * BYTES);
        head.copy_from_slice(from_head);
        tail.copy_from_slice(from_tail);
        for (to, from) in body.iter_mut().zip(from_body.chunks_exact(BYTES)) {
            // SAFETY: `from` has so many bytes, `to` is aligned; all CPUs of this architecture have SSE2.
            #[expect(unsafe_code, reason = "instructions that the language has no words for")]
            unsafe {
                _mm_stream_si128(to, _mm_loadu_si128(from.as_ptr().cast()));
            }
        }
        // SAFETY: likewise. What was stored so comes before what the thread stores later, the release of a lock among it.
        #[expect(unsafe_code, reason = "as above")]
        unsafe {
            _mm_sfence();
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
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
            // SAFETY: likewise; the slab has so many bytes from `start` on, and no other slot lies in them.
            Memory::Slot { start, size, .. } => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), SLOT_BYTES_MIN << *size)
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
            // SAFETY: likewise.
            Memory::Slot { start, size, .. } => unsafe {
                std::slice::from_raw_parts_mut(start.as_ptr(), SLOT_BYTES_MIN << *size)
            },
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let buffer = match &self.0 {
            Memory::Heap(_) => None,
            Memory::Region { owner, .. } => owner.buffer(),
            Memory::Slot { owner, .. } => owner.buffer(self.len()),
        };
        Self::filled(buffer, self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match &self.0 {
            Memory::Heap(_) => {}
            Memory::Region { start, owner } => owner.give_back(*start),
            Memory::Slot { start, size, owner } => owner.give_back(*start, *size),
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
    fn a_copy_past_the_caches_is_a_copy() {
        let from: Vec<u8> = (0..300).map(|byte| byte as u8).collect();
        for start in 0..40 {
            for len in 0..200 {
                let (mut to, mut expected) = (vec![0xEE; 300], vec![0xEE; 300]);
                copy_past_caches(&mut to[start..start + len], &from[1..=len]);
                expected[start..start + len].copy_from_slice(&from[1..=len]);
                assert_eq!(to, expected, "{len} bytes from {start} on");
            }
        }
    }

    #[test]
    fn slots_do_not_overlap_and_their_slabs_come_back() {
        let buffers = Buffers::new();
        let mut held: Vec<(Buffer, u8)> = Vec::new();
        for step in 0..4000_usize {
            let bytes = SLOT_BYTES_MIN << (step * 7 % SIZES);
            let fill = step as u8;
            let buffer = buffers.copy(&vec![fill; bytes]);
            assert!(matches!(buffer.0, Memory::Slot { .. }) && buffer.len() == bytes);
            assert!(buffer.as_ptr().addr().is_multiple_of(bytes), "aligned to its size");
            held.push((buffer, fill));
            if step % 3 == 0 {
                held.swap_remove(step * 13 % held.len());
            }
        }
        let copies = held.clone();
        for (buffer, fill) in held.iter().chain(&copies) {
            assert!(buffer.iter().all(|byte| byte == fill));
        }
        drop((held, copies));
        let is_empty = |slabs: &Arc<Slabs>| slabs.free.lock().iter().all(BTreeMap::is_empty);
        assert!(buffers.slabs.iter().all(is_empty), "all slabs are back");
        // Of other lengths.
        for bytes in [1, 1024, SLOT_BYTES_MIN + 1, 3 * SLOT_BYTES_MIN] {
            assert!(matches!(buffers.copy(&vec![1; bytes]).0, Memory::Heap(_)));
        }
    }

    #[test]
    fn buffers_do_not_overlap_and_all_come_back() {
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
        let free = buffers.regions.0.lock();
        assert_eq!(free.warm_count, WARM_MAX);
        assert!(free.regions.len() * 8 > 2 * WARM_MAX);
        for region in &free.regions {
            let bits = |free: &BTreeMap<usize, u8>| free.get(region).copied().unwrap_or(0);
            assert_eq!(
                (bits(&free.warm) & bits(&free.cold), bits(&free.warm) | bits(&free.cold)),
                (0, ALL_FREE)
            );
        }
    }
}
