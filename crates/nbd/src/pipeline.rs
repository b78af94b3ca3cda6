//! Many writes of one thread, of which several are in flight.
//!
//! What is kept of them, and when it is noted, is as with single ones (N1 to N4 in docs/design/nbd.md). Of more than [`COPIED_BYTES_MAX`] no
//! copy is kept: the caller's bytes serve until a flush of the same session has covered all, and else are all written again (N11).
//!
//! Test: `tests/reconnect.rs`.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use extant_block::{REQUESTS_IN_FLIGHT, Write};
use extant_rt::Arc;

use crate::connection::{Connection, Failed, Outgoing, Ticket};
use crate::device::{NbdDevice, part, total_bytes};
use crate::reply::Expected;
use crate::session::Session;
use crate::unflushed::{Filling, MEMORY_BYTES_MAX};
use crate::wire::command;

/// Bytes of which copies are kept.
const COPIED_BYTES_MAX: usize = MEMORY_BYTES_MAX / 2;
/// Requests are sent together up to so many bytes.
const SENT_BYTES: usize = 256 << 10;

/// Writes on their way to the server.
struct Pipeline<'p> {
    device: &'p NbdDevice,
    pieces: Vec<Piece<'p>>,
    flags: u16,
    keeping: Keeping,
    /// The first that the server has failed. No other is sent then.
    failure: Option<io::Error>,
}

/// A request's share of a write.
struct Piece<'p> {
    expected: Expected,
    bufs: Vec<IoSlice<'p>>,
    is_done: bool,
}

/// What is kept of a write for another session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeping {
    /// Nothing: it is as durable as the server makes it.
    Nothing,
    /// A copy, until a flush.
    Copies,
    /// The caller's bytes, and a flush at the end.
    Originals,
}

/// A piece in flight, and the copy that is to be kept of it.
struct Sent {
    piece: usize,
    ticket: Ticket,
    copy: Option<Arc<Vec<u8>>>,
}

impl NbdDevice {
    /// Makes writes of whole blocks.
    pub(crate) fn pipeline(&self, writes: &[&Write<'_>]) -> io::Result<()> {
        let most = self.export.agreed().payload_bytes_max as usize;
        let mut pieces = Vec::new();
        for write in writes {
            let total = total_bytes(&write.bufs);
            for from in (0..total).step_by(most) {
                let bytes = most.min(total - from);
                let offset = write.offset + from as u64;
                let expected = Expected { command: command::WRITE, offset, bytes: bytes as u32 };
                pieces.push(Piece { expected, bufs: part(&write.bufs, from, bytes), is_done: false });
            }
        }
        let total: u64 = pieces.iter().map(|piece| u64::from(piece.expected.bytes)).sum();
        let (flags, keeps) = self.manner(false);
        let keeping = match keeps {
            false => Keeping::Nothing,
            true if total <= COPIED_BYTES_MAX as u64 => Keeping::Copies,
            true => Keeping::Originals,
        };
        let mut pipeline = Pipeline { device: self, pieces, flags, keeping, failure: None };
        self.request(("writes", 0, 0), |session, connection| pipeline.run(session, connection), |_| true)?;
        pipeline.failure.map_or(Ok(()), Err)
    }
}

impl Pipeline<'_> {
    /// Makes the writes that are not done.
    fn run(&mut self, session: &Session, connection: &Connection) -> Result<(), Failed> {
        if self.keeping == Keeping::Originals {
            // What a session before had, the server may have lost.
            self.pieces.iter_mut().for_each(|piece| piece.is_done = false);
        }
        self.write(session, connection)?;
        match self.keeping {
            Keeping::Originals if self.failure.is_none() => self.flush(session, connection),
            _ => Ok(()),
        }
    }

    fn write(&mut self, session: &Session, connection: &Connection) -> Result<(), Failed> {
        let mut unsent: VecDeque<usize> =
            (0..self.pieces.len()).filter(|piece| !self.pieces[*piece].is_done).collect();
        let mut in_flight: Vec<Sent> = Vec::new();
        let mut outcome = Ok(());
        loop {
            while outcome.is_ok()
                && self.failure.is_none()
                && in_flight.len() < REQUESTS_IN_FLIGHT
                && !unsent.is_empty()
            {
                let room = REQUESTS_IN_FLIGHT - in_flight.len();
                match self.send(connection, &mut unsent, room) {
                    Ok(sent) => in_flight.extend(sent),
                    Err(failed) => outcome = Err(failed),
                }
            }
            // All are waited for, whatever became of the others.
            let Some(oldest) = in_flight.first() else { return outcome };
            connection.wait_for_any(&oldest.ticket);
            let answered: Vec<Sent>;
            (answered, in_flight) = in_flight.into_iter().partition(|sent: &Sent| sent.ticket.is_answered());
            outcome = outcome.and(self.note(session, connection, answered));
        }
    }

    /// Sends as many as go together.
    fn send(
        &self,
        connection: &Connection,
        unsent: &mut VecDeque<usize>,
        room: usize,
    ) -> Result<Vec<Sent>, Failed> {
        let mut bytes = 0;
        let mut next = Vec::new();
        while next.len() < room
            && bytes < SENT_BYTES
            && let Some(piece) = unsent.pop_front()
        {
            bytes += self.pieces[piece].expected.bytes as usize;
            next.push(piece);
        }
        let outgoing = |piece: &usize| {
            let Piece { expected, bufs, .. } = &self.pieces[*piece];
            Outgoing { flags: self.flags, expected: *expected, bufs }
        };
        let tickets = connection.send_many(&next.iter().map(outgoing).collect::<Vec<_>>())?;
        let sent = next.into_iter().zip(tickets).map(|(piece, ticket)| {
            let Piece { expected, bufs, .. } = &self.pieces[piece];
            // While the server works.
            let copy =
                (self.keeping == Keeping::Copies).then(|| self.device.copy(bufs, expected.bytes as usize));
            Sent { piece, ticket, copy }
        });
        Ok(sent.collect())
    }

    /// Notes what was answered, if the session is still the current one.
    fn note(
        &mut self,
        session: &Session,
        connection: &Connection,
        answered: Vec<Sent>,
    ) -> Result<(), Failed> {
        let mut done = Vec::with_capacity(answered.len());
        let mut outcome = Ok(());
        for Sent { piece, ticket, copy } in answered {
            match connection.wait(ticket, &mut []) {
                Ok(()) => done.push((piece, copy)),
                Err(Failed::Refused(errno, message)) => {
                    let Expected { offset, bytes, .. } = self.pieces[piece].expected;
                    let failed = self.device.refused(("write", offset, bytes.into()), errno, message);
                    self.failure.get_or_insert(failed);
                }
                Err(ended) => outcome = outcome.and(Err(ended)),
            }
        }
        let mut unflushed = self.device.unflushed_of(session)?;
        for (piece, copy) in done {
            let Piece { expected, is_done, .. } = &mut self.pieces[piece];
            *is_done = true;
            match (self.keeping, copy) {
                (Keeping::Copies, Some(copy)) => unflushed.note(expected.offset, Filling::Bytes(copy)),
                (Keeping::Nothing, _) => unflushed.forget(expected.offset, expected.bytes.into()),
                // With the flush.
                _ => {}
            }
        }
        outcome
    }

    /// Makes all durable that was written, in this session.
    fn flush(&mut self, session: &Session, connection: &Connection) -> Result<(), Failed> {
        let (mut covered, mut ended) = (0, Ok(()));
        let flushed = self.device.durable.run(|| {
            match self.device.flush_session(session, connection) {
                Ok(number) => covered = number,
                Err(Failed::Refused(errno, message)) => {
                    return Err(self.device.refused(("flush", 0, 0), errno, message));
                }
                // All is written again.
                Err(lost) => ended = Err(lost),
            }
            Ok(())
        });
        ended?;
        if let Err(error) = flushed {
            self.failure = Some(error);
            return Ok(());
        }
        // What was kept of the same ranges before is among it.
        self.device.unflushed_of(session)?.flushed(covered);
        Ok(())
    }
}
