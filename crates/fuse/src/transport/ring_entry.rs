//! The memory of a ring's entry, which the server and the kernel own in turns.

use std::ptr::NonNull;

use io_uring::opcode::UringCmd80;
use io_uring::squeue::Entry128;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::codec::{Message, Outcome};
use super::wire::{InHeader, OutHeader, RingHeader};

/// The kernel's `struct iovec`.
#[repr(C)]
#[derive(Debug)]
struct IoVec {
    start: NonNull<u8>,
    bytes: usize,
}

/// Memory for a request and its reply.
///
/// The holder of the value must not look into the memory while the kernel has it.
#[derive(Debug)]
pub(super) struct RingEntry {
    index: usize,
    header: NonNull<RingHeader>,
    payload: NonNull<[u8]>,
    /// Both, as they are described to the kernel.
    parts: NonNull<[IoVec; 2]>,
}

// SAFETY: it owns what it points to.
#[expect(unsafe_code, reason = "a raw pointer is not Send")]
unsafe impl Send for RingEntry {}

fn leak<T: ?Sized>(of: Box<T>) -> NonNull<T> {
    NonNull::from(Box::leak(of))
}

impl RingEntry {
    /// Zeroed memory, of which pages are taken as they are filled.
    pub(super) fn new(index: usize, payload_bytes: usize) -> Self {
        let header: NonNull<RingHeader> = leak(Box::new(RingHeader::new_zeroed()));
        let payload = leak(vec![0; payload_bytes].into_boxed_slice());
        let parts = leak(Box::new([
            IoVec { start: header.cast(), bytes: size_of::<RingHeader>() },
            IoVec { start: payload.cast(), bytes: payload_bytes },
        ]));
        Self { index, header, payload, parts }
    }

    pub(super) const fn index(&self) -> usize {
        self.index
    }

    #[expect(unsafe_code, reason = "memory that the kernel writes to as well")]
    fn parts(&mut self) -> (&mut RingHeader, &mut [u8]) {
        // SAFETY: the pointers are of boxes that `drop` frees, and this is the only place that looks behind them; the
        // kernel does only between a command's submission and its completion, while the value lies in the ring's table.
        unsafe { (self.header.as_mut(), self.payload.as_mut()) }
    }

    /// The request that the kernel wrote.
    pub(super) fn message(&mut self) -> Message<'_> {
        let (head, body) = self.parts();
        let (header, _) = InHeader::read_from_prefix(&head.in_out).unwrap_or_default();
        let body_bytes = body.len().min(head.entry.payload_sz as usize);
        let fixed_bytes = (header.len as usize).saturating_sub(size_of::<InHeader>() + body_bytes);
        let fixed = &head.op_in[..fixed_bytes.min(head.op_in.len())];
        Message { header, fixed: Some(fixed), body, body_bytes }
    }

    /// The number that names the request in its reply.
    pub(super) fn commit_id(&mut self) -> u64 {
        self.parts().0.entry.commit_id
    }

    /// Writes the reply's header; its body is already in place.
    pub(super) fn reply(&mut self, outcome: Outcome) {
        let head = self.parts().0;
        let (error, bytes) = match outcome {
            Outcome::Done(bytes) => (0, bytes as u32),
            Outcome::Failed(error) => (-error.raw_os_error(), 0),
            // Such requests do not come over rings.
            Outcome::Silent => (0, 0),
        };
        let len = size_of::<OutHeader>() as u32 + bytes;
        let header = OutHeader { len, error, unique: head.entry.commit_id };
        head.in_out[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        head.entry.payload_sz = bytes;
    }

    /// A command with the memory.
    #[expect(unsafe_code, reason = "io-uring has no name for the field")]
    pub(super) fn describe(&self, command: UringCmd80) -> Entry128 {
        /// Where `len` is in an entry of the submission queue (`struct io_uring_sqe`).
        const LEN_AT: usize = 24;
        let mut entry = command.addr(Some(self.parts.as_ptr() as u64)).build();
        // SAFETY: an entry is 128 bytes in the kernel's layout.
        unsafe { (&raw mut entry).cast::<u8>().add(LEN_AT).cast::<u32>().write(2) };
        entry
    }
}

impl Drop for RingEntry {
    #[expect(unsafe_code, reason = "gives the memory back")]
    fn drop(&mut self) {
        // SAFETY: they came from boxes, and the kernel has released them: the ring is gone, or has completed the command.
        unsafe {
            drop(Box::from_raw(self.header.as_ptr()));
            drop(Box::from_raw(self.payload.as_ptr()));
            drop(Box::from_raw(self.parts.as_ptr()));
        }
    }
}
