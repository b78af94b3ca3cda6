//! A folio: blocks of a file in memory, their bytes and their states.

use std::ops::Range;

use extant_block::{BUFFER_BYTES, Buffer, copy_past_caches};
use extant_rt::{Arc, AtomicBool, BiasedRwLock, LockClass, Ordering};

use crate::incore::folio_map::CHUNK_BLOCKS;

/// The state of blocks when they are read into memory or created there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Clean,
    Dirty,
    Delayed,
}

pub(crate) struct Folio {
    pub(super) content: Content,
    /// Its blocks.
    pub(super) len: u32,
    /// A bit for each block; those delayed are dirty too.
    pub(super) dirty: u64,
    pub(super) delayed: u64,
    /// Used since the search for memory last passed it.
    pub(super) is_used: AtomicBool,
}

/// The bytes of a folio.
pub(super) enum Content {
    /// Written to by the thread that holds `PAGES` alone.
    Alone(Bytes),
    /// Written to beside others, while all blocks that are written stay dirty ([`super::Folios::share`]).
    Shared(Box<BiasedRwLock<Bytes>>),
}

pub(super) struct Bytes {
    /// Shared while a thread reads it or writes it to the disk: a thread that changes it then copies it.
    pub(super) buffer: Arc<Buffer>,
    /// A bit for each block written to since its last write to the disk began.
    pub(super) changed: u64,
}

impl Content {
    #[inline]
    pub(super) fn get_mut(&mut self) -> &mut Bytes {
        match self {
            Self::Alone(bytes) => bytes,
            Self::Shared(bytes) => bytes.get_mut(),
        }
    }

    #[inline]
    pub(super) fn read<R>(&self, read: impl FnOnce(&Bytes) -> R) -> R {
        match self {
            Self::Alone(bytes) => read(bytes),
            Self::Shared(bytes) => read(&bytes.read()),
        }
    }

    pub(super) fn buffer(&self) -> Arc<Buffer> {
        self.read(|bytes| bytes.buffer.clone())
    }

    /// Of the folio that begins with a block.
    pub(super) fn share(&mut self, first: u32) {
        if let Self::Alone(Bytes { buffer, changed }) = self {
            let bytes = Bytes { buffer: buffer.clone(), changed: *changed };
            *self = Self::Shared(Box::new(BiasedRwLock::with_key(LockClass::FOLIO, u64::from(first), bytes)));
        }
    }

    pub(super) fn unshare(&mut self) {
        if let Self::Shared(bytes) = self {
            let Bytes { buffer, changed } = bytes.get_mut();
            *self = Self::Alone(Bytes { buffer: buffer.clone(), changed: *changed });
        }
    }
}

impl Bytes {
    /// Writes from a byte on, where blocks lie whose bits are `written`; past the CPU's caches if its memory is cold.
    pub(super) fn write(&mut self, from: usize, buf: &[u8], written: u64, is_cold: bool) {
        let to = &mut Arc::make_mut(&mut self.buffer)[from..from + buf.len()];
        if is_cold {
            copy_past_caches(to, buf);
        } else {
            to.copy_from_slice(buf);
        }
        self.changed |= written;
    }
}

impl Folio {
    pub(super) fn new(buffer: Buffer, len: u32, what: Block) -> Self {
        let all = bits(0, len);
        Self {
            content: Content::Alone(Bytes { buffer: Arc::new(buffer), changed: 0 }),
            len,
            dirty: if what == Block::Clean { 0 } else { all },
            delayed: if what == Block::Delayed { all } else { 0 },
            is_used: AtomicBool::new(true),
        }
    }

    #[inline]
    pub(super) fn note_use(&self) {
        // Not written again and again: threads that read the same bytes at once are to share it.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }
}

/// Bytes of a part of a folio.
#[derive(Debug)]
pub(crate) struct FolioSlice {
    pub(super) bytes: Arc<Buffer>,
    pub(super) from: usize,
    pub(super) end: usize,
}

impl FolioSlice {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.end]
    }
}

/// How many blocks a folio has that begins with a block and of which `left` are there: as its place is aligned.
pub(crate) fn folio_len(first: u32, left: u32, block_bits: u32) -> u32 {
    let len_max = ((BUFFER_BYTES >> block_bits) as u32).min(CHUNK_BLOCKS);
    let aligned = if first == 0 { len_max } else { 1 << first.trailing_zeros().min(CHUNK_BLOCKS.ilog2()) };
    aligned.min(len_max).min(1 << left.max(1).ilog2())
}

/// A bit for each block of a folio that has bytes of a range, which is not empty.
#[inline]
pub(super) fn touched(bytes: Range<usize>, block_bits: u32) -> u64 {
    let first = (bytes.start >> block_bits) as u32;
    bits(first, ((bytes.end - 1) >> block_bits) as u32 + 1 - first)
}

/// `len` bits from bit `from` on.
#[inline]
pub(super) fn bits(from: u32, len: u32) -> u64 {
    (u64::MAX >> (u64::BITS - len.clamp(1, u64::BITS))) << from
}
