//! Reads and writes that bypass the host's page cache.
//!
//! `O_DIRECT` requires an aligned offset, length and buffer. A request that is not aligned goes through an
//! aligned buffer; a write that covers a unit only in part reads the unit first, and takes the lock alone
//! meanwhile, or it would put older bytes back over a neighbour's.

use std::fs::File;
use std::io;

use extant_rt::{LockClass, RwLock};

use crate::host::{FileExt, direct_alignment, write_all_at};
use crate::total_bytes;

/// The unit where the host does not report it: no device asks for more.
const DEFAULT_UNIT: u64 = 4096;

/// Bytes copied at a time.
const BOUNCE_BYTES: u64 = 1 << 20;

/// Why a file may not be opened this way.
pub const SIZE_REASON: &str = "direct I/O needs a size that is a multiple of the device's block size";

/// The alignment of a file, and the lock that makes partial writes safe.
#[derive(Debug)]
pub struct Direct {
    /// Offsets and lengths are multiples of it. A power of two.
    unit: u64,
    /// Addresses are multiples of it. A power of two.
    memory_unit: usize,
    /// Held alone by a write that reads first.
    partial: RwLock<()>,
}

impl Direct {
    /// Asks the host for the alignment of the file.
    pub fn new(file: &File) -> io::Result<Self> {
        let (unit, memory_unit) = direct_alignment(file)?.unwrap_or((DEFAULT_UNIT, DEFAULT_UNIT as usize));
        Ok(Self { unit, memory_unit, partial: RwLock::new(LockClass::DEVICE, ()) })
    }

    pub fn is_aligned(&self, bytes: u64) -> bool {
        bytes.is_multiple_of(self.unit)
    }

    /// Whether the kernel can use the request as it is.
    fn suits(&self, offset: u64, buf: &[u8]) -> bool {
        self.is_aligned(offset)
            && self.is_aligned(buf.len() as u64)
            && buf.as_ptr().addr().is_multiple_of(self.memory_unit)
    }

    pub fn read(&self, file: &File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.suits(offset, buf) {
            return file.read_exact_at(buf, offset);
        }
        let mut rest = buf;
        let mut bounce = Bounce::new(self.memory_unit);
        for window in Window::split(offset, rest.len() as u64, self.unit) {
            let bytes = bounce.bytes(window.bytes());
            file.read_exact_at(bytes, window.start)?;
            let (into, after) = rest.split_at_mut(window.wanted);
            rest = after;
            into.copy_from_slice(&bytes[window.skip..window.skip + window.wanted]);
        }
        Ok(())
    }

    pub fn write(
        &self,
        file: &File,
        offset: u64,
        bufs: &[io::IoSlice<'_>],
        is_durable: bool,
    ) -> io::Result<()> {
        let bytes = total_bytes(bufs);
        let whole = self.is_aligned(offset) && self.is_aligned(bytes);
        let _shared = whole.then(|| self.partial.read());
        let _alone = (!whole).then(|| self.partial.write());
        if let [buf] = bufs
            && self.suits(offset, buf)
        {
            return write_all_at(file, offset, bufs, is_durable);
        }
        let mut source = bufs.iter().flat_map(|buf| buf.chunks(self.unit as usize));
        let mut left: &[u8] = &[];
        let mut bounce = Bounce::new(self.memory_unit);
        for window in Window::split(offset, bytes, self.unit) {
            let buf = bounce.bytes(window.bytes());
            self.fill_edges(file, &window, buf)?;
            let mut into = &mut buf[window.skip..window.skip + window.wanted];
            while !into.is_empty() {
                if left.is_empty() {
                    left = source.next().unwrap_or_default();
                }
                let len = left.len().min(into.len());
                let (from, after) = left.split_at(len);
                into[..len].copy_from_slice(from);
                left = after;
                into = &mut into[len..];
            }
            write_all_at(file, window.start, &[io::IoSlice::new(buf)], is_durable)?;
        }
        Ok(())
    }

    /// Reads the units of a window that a write covers only in part.
    fn fill_edges(&self, file: &File, window: &Window, buf: &mut [u8]) -> io::Result<()> {
        let unit = self.unit as usize;
        if window.skip > 0 {
            file.read_exact_at(&mut buf[..unit], window.start)?;
        }
        let last = buf.len() - unit;
        let ends_whole = (window.skip + window.wanted).is_multiple_of(unit);
        // If the window is one unit, the first read was enough.
        if !ends_whole && (last > 0 || window.skip == 0) {
            file.read_exact_at(&mut buf[last..], window.start + last as u64)?;
        }
        Ok(())
    }
}

/// An aligned range that holds `wanted` bytes of a request after `skip` others.
struct Window {
    start: u64,
    end: u64,
    skip: usize,
    wanted: usize,
}

impl Window {
    fn bytes(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Cuts a request into windows of at most `BOUNCE_BYTES`.
    fn split(offset: u64, bytes: u64, unit: u64) -> impl Iterator<Item = Self> {
        let (mut at, end) = (offset, offset + bytes);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let start = at / unit * unit;
            let limit = start + BOUNCE_BYTES.max(unit);
            let stop = end.min(limit);
            let window = Self {
                start,
                end: stop.div_ceil(unit) * unit,
                skip: (at - start) as usize,
                wanted: (stop - at) as usize,
            };
            at = stop;
            Some(window)
        })
    }
}

/// A buffer of which an aligned part is used.
struct Bounce {
    memory: Vec<u8>,
    alignment: usize,
}

impl Bounce {
    fn new(alignment: usize) -> Self {
        Self { memory: Vec::new(), alignment }
    }

    fn bytes(&mut self, len: usize) -> &mut [u8] {
        if self.memory.len() < len + self.alignment {
            self.memory = vec![0; len + self.alignment];
        }
        let address = self.memory.as_ptr().addr();
        let start = address.next_multiple_of(self.alignment) - address;
        &mut self.memory[start..start + len]
    }
}
