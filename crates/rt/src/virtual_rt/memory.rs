//! Memory of the simulation, whose addresses do not affect the result.
//!
//! Every allocation has cache lines to itself, and the lines of reused memory are in no CPU's cache, as from an allocator that
//! keeps memory by CPU. Without it, which objects share a line and whose lines they were would follow from the host's
//! allocator, which does not give the same addresses each time.
//!
//! Leaves out: false sharing between objects; that within an object is seen.

use std::alloc::{GlobalAlloc, Layout, System};

use super::lines::LINE_BYTES;
use super::world;

/// The host's allocator, by whole lines.
struct Lines;

#[global_allocator]
static LINES: Lines = Lines;

/// Whole lines for what `layout` asks.
fn by_lines(layout: Layout) -> Layout {
    layout.align_to(LINE_BYTES).map_or(layout, |layout| layout.pad_to_align())
}

#[expect(unsafe_code, reason = "an allocator is an unsafe trait")]
// SAFETY: every call goes to the host's allocator with a layout that follows from the caller's alone, at least as large and as
// aligned; forgetting lines touches no memory of the caller's.
unsafe impl GlobalAlloc for Lines {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises; the size is no smaller.
        unsafe { System.alloc(by_lines(layout)) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises; the size is no smaller.
        unsafe { System.alloc_zeroed(by_lines(layout)) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let layout = by_lines(layout);
        world::forget(memory.addr(), layout.size());
        // SAFETY: it was allocated with this very layout.
        unsafe { System.dealloc(memory, layout) }
    }
}
