//! Memory for buffers.

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// `bytes` of zeroes at a multiple of them, a power of two, with huge pages where there are such.
#[expect(unsafe_code, reason = "mmap, madvise")]
pub fn map_region(bytes: usize) -> Option<NonNull<u8>> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the address is chosen by the kernel, so no memory in use is replaced.
    let mapped =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 2 * bytes, protection, flags) }.ok()?;
    let start = mapped.expose_provenance();
    let region = start.next_multiple_of(bytes);
    unmap(start, region - start);
    unmap(region + bytes, start + bytes - region);
    let address = std::ptr::with_exposed_provenance_mut(region);
    // SAFETY: the range was mapped just now; the advice changes no byte. Without huge pages it is memory all the same.
    let _ = unsafe { rustix::mm::madvise(address, bytes, Advice::LinuxHugepage) };
    NonNull::new(address.cast())
}

/// Gives the host the memory of a part of a region that nothing refers to; it reads as zeroes from now on, or as before.
#[expect(unsafe_code, reason = "madvise")]
pub fn give_memory_back(start: NonNull<u8>, bytes: usize) {
    // SAFETY: as the function says. Should it fail the memory stays, and the bytes as they were.
    let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
}

/// Has the heap give the host what it has free.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "malloc_trim has no safe wrapper")]
    // SAFETY: it may be called at any time, and changes nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives memory back that was mapped by [`map_region`] and that nothing refers to.
pub fn unmap_region(region: usize, bytes: usize) {
    unmap(region, bytes);
}

#[expect(unsafe_code, reason = "munmap")]
fn unmap(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: callers have mapped the range, and nothing refers to it. It fails only for arguments that are not a map's.
        let _ = unsafe { rustix::mm::munmap(std::ptr::with_exposed_provenance_mut(start), bytes) };
    }
}
