//! Returns freed memory to the host.
//!
//! The C library returns freed memory only from the end of the heap, which is seldom free: after the kernel has
//! forgotten a million inodes, most of what they took would stay.

/// Gives whole pages that are free back. Walks all free memory: for when much was freed at once.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "malloc_trim has no safe wrapper")]
pub(crate) fn give_back() {
    // SAFETY: it takes the allocator's own locks and touches free memory only.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries give back by themselves, or cannot be asked.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn give_back() {}
