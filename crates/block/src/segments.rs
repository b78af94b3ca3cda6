//! A device made of pieces of another one, one after the other.

use std::io;

use crate::{BlockDevice, Error, check_range, total_bytes};

/// A piece of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins on the device, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Pieces of a device, one after the other.
#[derive(Debug)]
pub struct Segments<D> {
    device: D,
    /// Where each piece begins here, in ascending order, and the piece.
    segments: Vec<(u64, Segment)>,
    bytes: u64,
    is_read_only: bool,
}

impl<D: BlockDevice> Segments<D> {
    /// These pieces of `device`. `is_read_only`: writes are refused, whatever the device takes.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the device ends before a piece does, or all are longer than any device.
    pub fn new(device: D, pieces: &[Segment], is_read_only: bool) -> Result<Self, Error> {
        let device_bytes = device.size();
        let (mut segments, mut end) = (Vec::with_capacity(pieces.len()), 0_u64);
        for segment in pieces.iter().copied().filter(|segment| segment.bytes > 0) {
            let Segment { offset, bytes } = segment;
            let out_of_range = || Error::OutOfRange { offset, bytes, device_bytes };
            check_range(device_bytes, offset, bytes).map_err(|_| out_of_range())?;
            segments.push((end, segment));
            end = end.checked_add(bytes).ok_or_else(out_of_range)?;
        }
        Ok(Self { device, segments, bytes: end, is_read_only })
    }

    /// Calls `each` for the places on the device of `bytes` from `offset`, in order: with the place, where it is in the range, and its
    /// length.
    fn for_each(
        &self,
        offset: u64,
        bytes: u64,
        mut each: impl FnMut(u64, usize, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        check_range(self.bytes, offset, bytes)?;
        let mut index = self.segments.partition_point(|(start, _)| *start <= offset).saturating_sub(1);
        let mut done = 0;
        while done < bytes {
            let Some((start, segment)) = self.segments.get(index) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let within = offset + done - start;
            let len = (segment.bytes - within).min(bytes - done);
            each(segment.offset + within, done as usize, len)?;
            done += len;
            index += 1;
        }
        Ok(())
    }

    /// As [`Segments::for_each`], of what changes bytes.
    fn change(
        &self,
        offset: u64,
        bytes: u64,
        each: impl FnMut(u64, usize, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.is_read_only {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.for_each(offset, bytes, each)
    }
}

impl<D: BlockDevice> BlockDevice for Segments<D> {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.for_each(offset, buf.len() as u64, |place, at, len| {
            self.device.read_at(place, &mut buf[at..at + len as usize])
        })
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        let bytes = total_bytes(bufs);
        self.change(offset, bytes, |place, at, len| {
            if len == bytes {
                return self.device.write_vectored_at(place, bufs);
            }
            self.device.write_vectored_at(place, &pieces_of(bufs, at, len as usize))
        })
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.change(offset, buf.len() as u64, |place, at, len| {
            self.device.write_fua(place, &buf[at..at + len as usize])
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.change(offset, bytes, |place, _, len| self.device.discard(place, len))
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.change(offset, bytes, |place, _, len| self.device.write_zeroes(place, len))
    }

    fn refresh(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.for_each(offset, bytes, |place, _, len| self.device.refresh(place, len))
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only || self.device.is_read_only()
    }

    fn has_latency(&self) -> bool {
        self.device.has_latency()
    }
}

/// The `len` bytes from `at` of all buffers together.
fn pieces_of<'a>(bufs: &'a [io::IoSlice<'_>], at: usize, len: usize) -> Vec<io::IoSlice<'a>> {
    let (mut skip, mut left) = (at, len);
    let mut pieces = Vec::new();
    for buf in bufs {
        let from = skip.min(buf.len());
        let to = (from + left).min(buf.len());
        skip -= from;
        left -= to - from;
        if to > from {
            pieces.push(io::IoSlice::new(&buf[from..to]));
        }
    }
    pieces
}
