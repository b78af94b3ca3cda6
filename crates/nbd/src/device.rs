//! An export as a block device.
//!
//! Requests are split to the server's largest size, and made of whole blocks where the server has a least one. A request whose
//! connection is lost is sent again by the next session. What was written and not flushed is kept for that, up to
//! [`MEMORY_BYTES_MAX`]; a write beyond flushes (N1 to N6 in docs/design/nbd.md).
//!
//! Leaves out: locks against other clients, which the protocol does not have.
//!
//! Locks: `DEVICE_LAYER`, key 1, over I/O: alone where parts of a least block are written, shared by other writes on such a server.

use std::cell::{Cell, OnceCell};
use std::io::{self, IoSlice};

use extant_block::{BlockDevice, DurableRequests, Write, check_range};
use extant_rt::{Arc, LockClass, RwLock};

use crate::connection::{Connection, Failed};
use crate::reply::{End, Expected};
use crate::session::{Export, Session, UnflushedGuard, ZEROED_BYTES_MAX};
use crate::unflushed::{Filling, MEMORY_BYTES_MAX, Unflushed};
use crate::wire::{command, command_flag, export};
use crate::{Error, Options, Uri};

/// How often a request is sent at most: one that ends the connection each time would be sent for ever.
const SENDS_MAX: u32 = 10;
/// Most bytes that are discarded by one request.
const DISCARDED_BYTES_MAX: u64 = 1 << 30;
/// Zeroes written at a time where the server cannot make them.
const ZEROES_BYTES: u64 = 256 << 10;

/// An export of a server.
#[derive(Debug)]
pub struct NbdDevice {
    pub(crate) export: Export,
    is_read_only: bool,
    pub(crate) durable: DurableRequests,
    /// Alone where a part of a block is read, changed and written.
    parts: RwLock<()>,
}

impl NbdDevice {
    /// Connects to an export.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Refused`] and [`Error::Protocol`].
    pub fn open(uri: &Uri, options: Options) -> Result<Self, Error> {
        let export = Export::open(uri, options)?;
        let is_read_only = options.read_only || export.agreed().has(export::READ_ONLY);
        let parts = RwLock::with_key(LockClass::DEVICE_LAYER, 1, ());
        Ok(Self { export, is_read_only, durable: DurableRequests::new(), parts })
    }

    /// The URI of the export.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        self.export.uri()
    }

    fn has(&self, flag: u16) -> bool {
        self.export.agreed().has(flag)
    }

    fn block_bytes(&self) -> u64 {
        self.export.agreed().block_bytes.into()
    }

    /// Whether a range is of whole blocks.
    fn is_whole(&self, offset: u64, bytes: u64) -> bool {
        (offset | bytes).is_multiple_of(self.block_bytes())
    }

    /// The smallest range of whole blocks that has all of a range: its start and end.
    fn around(&self, offset: u64, bytes: u64) -> (u64, u64) {
        let mask = self.block_bytes() - 1;
        (offset & !mask, (offset + bytes + mask) & !mask)
    }

    /// The largest range of whole blocks within a range: its start and end, which may be before the start.
    fn within(&self, offset: u64, bytes: u64) -> (u64, u64) {
        let mask = self.block_bytes() - 1;
        ((offset + mask) & !mask, (offset + bytes) & !mask)
    }

    /// Makes a request in the current session, again in the next one if it is lost; `accept` notes the outcome if its session is
    /// still the current one. A request that the server fails is not made again, whatever the error (N10).
    pub(crate) fn request(
        &self,
        (what, offset, bytes): (&str, u64, u64),
        mut attempt: impl FnMut(&Session, &Connection) -> Result<(), Failed>,
        mut accept: impl FnMut(&Session) -> bool,
    ) -> io::Result<()> {
        let uri = self.uri();
        for _ in 0..SENDS_MAX {
            let session = self.export.session()?;
            let connection = session.connection(uri).map_err(Failed::from);
            match connection.and_then(|connection| attempt(&session, &connection)) {
                Ok(()) if accept(&session) => return Ok(()),
                Ok(()) => {}
                Err(Failed::Ended(end)) => self.export.lose(&session, &end),
                Err(Failed::Refused(errno, message)) => {
                    return Err(self.refused((what, offset, bytes), errno, message));
                }
            }
        }
        Err(self.export.give_up(&format!("{SENDS_MAX} times at one request ({what} at {offset})")).into())
    }

    /// The unflushed writes, if `session` is still the current one.
    pub(crate) fn unflushed_of(&self, session: &Session) -> Result<UnflushedGuard<'_>, Failed> {
        let lost = || Failed::Ended(End::Lost("another connection was lost".into()));
        self.export.unflushed_of(session).ok_or_else(lost)
    }

    /// Has the server flush; the number of the last write that the flush covers.
    pub(crate) fn flush_session(&self, session: &Session, connection: &Connection) -> Result<u64, Failed> {
        let covered = self.unflushed_of(session)?.last_number();
        let expected = Expected { command: command::FLUSH, offset: 0, bytes: 0 };
        connection.wait(connection.send(0, expected, &[])?, &mut [])?;
        Ok(covered)
    }

    /// The error of a request that the server has failed.
    pub(crate) fn refused(
        &self,
        (what, offset, bytes): (&str, u64, u64),
        errno: u32,
        message: String,
    ) -> io::Error {
        let request = match bytes {
            0 => what.to_owned(),
            bytes => format!("{what} of {bytes} bytes at {offset}"),
        };
        Error::Request { export: self.uri().to_string(), request, errno, message }.into()
    }

    /// Makes a request that changes a range, and notes what `note` says.
    fn change(
        &self,
        (what, flags, expected): (&str, u16, Expected),
        bufs: &[IoSlice<'_>],
        mut note: impl FnMut(&mut Unflushed),
        mut meanwhile: impl FnMut(),
    ) -> io::Result<()> {
        self.request(
            (what, expected.offset, expected.bytes.into()),
            |_, connection| {
                let ticket = connection.send(flags, expected, bufs)?;
                meanwhile();
                connection.wait(ticket, &mut [])
            },
            |session| self.export.unflushed_of(session).map(|mut unflushed| note(&mut unflushed)).is_some(),
        )
    }

    fn read_blocks(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let most = self.export.agreed().payload_bytes_max as usize;
        let mut at = offset;
        for piece in buf.chunks_mut(most) {
            let bytes = piece.len() as u32;
            let expected = Expected { command: command::READ, offset: at, bytes };
            self.request(
                ("read", at, bytes.into()),
                |_, connection| connection.wait(connection.send(0, expected, &[])?, piece),
                |_| true,
            )?;
            at += u64::from(bytes);
        }
        Ok(())
    }

    /// Writes whole blocks; durably if the server is to do that.
    fn write_blocks(&self, offset: u64, bufs: &[IoSlice<'_>], fua: bool) -> io::Result<()> {
        let most = self.export.agreed().payload_bytes_max as usize;
        let total = total_bytes(bufs);
        if total <= most {
            return self.write_piece(offset, bufs, fua);
        }
        let mut done = 0;
        while done < total {
            let bytes = most.min(total - done);
            self.write_piece(offset + done as u64, &part(bufs, done, bytes), fua)?;
            done += bytes;
        }
        Ok(())
    }

    fn write_piece(&self, offset: u64, bufs: &[IoSlice<'_>], fua: bool) -> io::Result<()> {
        let bytes = total_bytes(bufs);
        if bytes == 0 {
            return Ok(());
        }
        let (flags, keeps) = self.manner(fua);
        let copy = OnceCell::new();
        let make_copy = || Arc::clone(copy.get_or_init(|| self.copy(bufs, bytes)));
        let expected = Expected { command: command::WRITE, offset, bytes: bytes as u32 };
        self.change(
            ("write", flags, expected),
            bufs,
            |unflushed| match keeps {
                true => unflushed.note(offset, Filling::Bytes(make_copy())),
                false => unflushed.forget(offset, bytes as u64),
            },
            // While the server works.
            || {
                if keeps {
                    make_copy();
                }
            },
        )
    }

    /// The flags of a write, and whether it is to be kept until a flush. A server that cannot flush has to make each write durable, if it
    /// can.
    pub(crate) fn manner(&self, fua: bool) -> (u16, bool) {
        let (flushes, can_fua) = (self.has(export::SEND_FLUSH), self.has(export::SEND_FUA));
        let flags = if can_fua && (fua || !flushes) { command_flag::FUA } else { 0 };
        (flags, flushes && flags == 0)
    }

    /// A copy of the bytes of all buffers.
    pub(crate) fn copy(&self, bufs: &[IoSlice<'_>], bytes: usize) -> Arc<Vec<u8>> {
        let mut spare = self.export.unflushed().take_spare(bytes).unwrap_or_default();
        let Some(place) = Arc::get_mut(&mut spare) else { return Arc::new(concat(bufs, bytes)) };
        place.clear();
        bufs.iter().for_each(|buf| place.extend_from_slice(buf));
        spare
    }

    /// Writes any range; durably if the server is to do that.
    fn write(&self, offset: u64, bufs: &[IoSlice<'_>], fua: bool) -> io::Result<()> {
        let bytes = total_bytes(bufs);
        if self.block_bytes() == 1 {
            self.write_blocks(offset, bufs, fua)
        } else if self.is_whole(offset, bytes as u64) {
            let _shared = self.parts.read();
            self.write_blocks(offset, bufs, fua)
        } else {
            let _alone = self.parts.write();
            let (start, end) = self.around(offset, bytes as u64);
            let mut whole = vec![0; (end - start) as usize];
            let (block, from) = (self.block_bytes() as usize, (offset - start) as usize);
            let last = whole.len() - block;
            self.read_blocks(start, &mut whole[..block])?;
            if last > 0 {
                self.read_blocks(end - block as u64, &mut whole[last..])?;
            }
            whole[from..from + bytes].copy_from_slice(&concat(bufs, bytes));
            self.write_blocks(start, &[IoSlice::new(&whole)], fua)
        }
    }

    /// Flushes if what is kept takes too much memory.
    fn bound_memory(&self) -> io::Result<()> {
        if self.export.unflushed().memory_bytes() > MEMORY_BYTES_MAX { self.flush() } else { Ok(()) }
    }

    fn check_write(&self, offset: u64, bytes: u64) -> io::Result<()> {
        check_range(self.size(), offset, bytes)?;
        if self.is_read_only {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{}: opened for reading, or read-only at the server", self.uri()),
            ));
        }
        Ok(())
    }
}

impl BlockDevice for NbdDevice {
    fn size(&self) -> u64 {
        self.export.agreed().bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.size(), offset, buf.len() as u64)?;
        if self.is_whole(offset, buf.len() as u64) {
            return self.read_blocks(offset, buf);
        }
        let (start, end) = self.around(offset, buf.len() as u64);
        let mut whole = vec![0; (end - start) as usize];
        self.read_blocks(start, &mut whole)?;
        let from = (offset - start) as usize;
        buf.copy_from_slice(&whole[from..from + buf.len()]);
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.check_write(offset, total_bytes(bufs) as u64)?;
        self.write(offset, bufs, false)?;
        self.bound_memory()
    }

    fn write_many(&self, writes: &[Write<'_>]) -> io::Result<()> {
        writes.iter().try_for_each(|write| self.check_write(write.offset, write.bytes()))?;
        let is_whole = |write: &&Write<'_>| self.is_whole(write.offset, write.bytes());
        let (whole, others): (Vec<_>, Vec<_>) = writes.iter().partition(is_whole);
        others.into_iter().try_for_each(|write| self.write_vectored_at(write.offset, &write.bufs))?;
        let shared = self.parts.read();
        self.pipeline(&whole)?;
        drop(shared);
        self.bound_memory()
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check_write(offset, buf.len() as u64)?;
        let bufs = [IoSlice::new(buf)];
        if self.has(export::SEND_FUA) {
            return self.durable.run(|| self.write(offset, &bufs, true));
        }
        self.write(offset, &bufs, false)?;
        self.flush()
    }

    fn flush(&self) -> io::Result<()> {
        if self.is_read_only || !self.has(export::SEND_FLUSH) {
            return Ok(());
        }
        let covered = Cell::new(0);
        self.durable.run(|| {
            self.request(
                ("flush", 0, 0),
                |session, connection| {
                    covered.set(self.flush_session(session, connection)?);
                    Ok(())
                },
                // Answered by a session before, it holds all the same for what was written before.
                |session| {
                    if let Some(mut unflushed) = self.export.unflushed_of(session) {
                        unflushed.flushed(covered.get());
                    }
                    true
                },
            )
        })
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check_write(offset, bytes)?;
        if !self.has(export::SEND_TRIM) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (mut at, end) = self.within(offset, bytes);
        while at < end {
            let count = (end - at).min(DISCARDED_BYTES_MAX);
            let expected = Expected { command: command::TRIM, offset: at, bytes: count as u32 };
            self.change(("trim", 0, expected), &[], |unflushed| unflushed.forget(at, count), || ())?;
            at += count;
        }
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check_write(offset, bytes)?;
        let (start, end) = self.within(offset, bytes);
        if !self.has(export::SEND_WRITE_ZEROES) || start >= end {
            return self.write_zero_bytes(offset, offset + bytes);
        }
        self.write_zero_bytes(offset, start)?;
        // What the server has made durable or cannot make durable is not repeated.
        let keeps = self.has(export::SEND_FLUSH);
        let flags = if !keeps && self.has(export::SEND_FUA) { command_flag::FUA } else { 0 };
        let mut at = start;
        while at < end {
            let count = (end - at).min(ZEROED_BYTES_MAX);
            let expected = Expected { command: command::WRITE_ZEROES, offset: at, bytes: count as u32 };
            let note = |unflushed: &mut Unflushed| match keeps {
                true => unflushed.note(at, Filling::Zeroes(count)),
                false => unflushed.forget(at, count),
            };
            let _shared = self.parts.read();
            self.change(("write of zeroes", flags, expected), &[], note, || ())?;
            at += count;
        }
        self.write_zero_bytes(end, offset + bytes)?;
        self.bound_memory()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn has_latency(&self) -> bool {
        true
    }
}

impl NbdDevice {
    /// Writes zeroes from one offset to another.
    fn write_zero_bytes(&self, from: u64, to: u64) -> io::Result<()> {
        let zeroes = vec![0; to.saturating_sub(from).min(ZEROES_BYTES) as usize];
        let mut at = from;
        while at < to {
            let count = (to - at).min(ZEROES_BYTES);
            self.write(at, &[IoSlice::new(&zeroes[..count as usize])], false)?;
            self.bound_memory()?;
            at += count;
        }
        Ok(())
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        self.export.close();
    }
}

/// How many bytes all buffers have.
pub(crate) fn total_bytes(bufs: &[IoSlice<'_>]) -> usize {
    bufs.iter().map(|buf| buf.len()).sum()
}

/// The bytes of all buffers.
fn concat(bufs: &[IoSlice<'_>], bytes: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes);
    bufs.iter().for_each(|buf| all.extend_from_slice(buf));
    all
}

/// So many bytes of the buffers, after the first `from`.
pub(crate) fn part<'b>(bufs: &'b [IoSlice<'_>], from: usize, bytes: usize) -> Vec<IoSlice<'b>> {
    let (mut skip, mut left) = (from, bytes);
    let mut parts = Vec::new();
    for buf in bufs {
        let start = skip.min(buf.len());
        let count = left.min(buf.len() - start);
        if count > 0 {
            parts.push(IoSlice::new(&buf[start..start + count]));
        }
        skip -= start;
        left -= count;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_buffers_has_the_bytes_between() {
        let bufs = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defgh")];
        for from in 0..8 {
            for bytes in 0..=8 - from {
                let parts = part(&bufs, from, bytes);
                assert_eq!(concat(&parts, bytes), &b"abcdefgh"[from..from + bytes]);
            }
        }
    }
}
