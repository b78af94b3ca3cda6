//! Replies of a server: their form, and whether they fit the request that they answer.

use std::io;

use crate::negotiation::printable;
use crate::stream::Receiver;
use crate::wire::{Fields, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX, STRUCTURED_REPLY_MAGIC, chunk, command};

/// Most separate ranges of one read that a server may have answered at a time.
const RANGES_MAX: usize = 8192;
/// Most errors in one reply.
const ERRORS_MAX: usize = 64;
/// Most bytes of an error chunk: its numbers, an offset and a string.
const ERROR_BYTES_MAX: u32 = 14 + STRING_BYTES_MAX as u32;

/// The end of a connection.
#[derive(Clone, Debug)]
pub enum End {
    /// It was lost; another one may serve.
    Lost(String),
    /// The server breaks the protocol.
    Breach(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

/// The end of a connection by a breach of the protocol.
fn breach<T>(reason: impl Into<String>) -> Result<T, End> {
    Err(End::Breach(reason.into()))
}

/// A request that was sent and has no whole reply yet.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub command: u16,
    pub offset: u64,
    pub bytes: u32,
}

/// A range of a request, from its start.
pub type Range = std::ops::Range<usize>;

/// What a reply, or a chunk of one, says.
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing is wrong so far.
    Nothing,
    /// An error's number and its text.
    Error(u32, String),
    /// The bytes of a range follow.
    Bytes(Range),
    /// A range reads as zero.
    Zeroes(Range),
}

/// A reply, or a chunk of one, up to the bytes that were read.
#[derive(Debug)]
pub struct Head {
    pub content: Content,
    /// Whether it is the last of its reply.
    pub is_last: bool,
}

impl Head {
    /// Receives the next one. `expected` finds the request of a cookie.
    pub fn receive(
        receiver: &mut Receiver,
        structured: bool,
        expected: impl FnOnce(u64) -> Option<Expected>,
    ) -> Result<Self, End> {
        let find = |cookie| expected(cookie).ok_or_else(|| End::Breach("a reply to no request".into()));
        match u32::from_be_bytes(receiver.array()?) {
            SIMPLE_REPLY_MAGIC => {
                let errno = u32::from_be_bytes(receiver.array()?);
                let cookie = u64::from_be_bytes(receiver.array()?);
                let expected = find(cookie)?;
                let is_read = expected.command == command::READ;
                if is_read && structured {
                    return breach("a simple reply to a read");
                }
                let content = match errno {
                    0 if is_read => Content::Bytes(0..expected.bytes as usize),
                    0 => Content::Nothing,
                    errno => Content::Error(errno, String::new()),
                };
                Ok(Self { content, is_last: true })
            }
            STRUCTURED_REPLY_MAGIC if structured => {
                let flags = u16::from_be_bytes(receiver.array()?);
                let kind = u16::from_be_bytes(receiver.array()?);
                let cookie = u64::from_be_bytes(receiver.array()?);
                let bytes = u32::from_be_bytes(receiver.array()?);
                let is_last = flags & chunk::DONE != 0;
                let content = content(receiver, kind, bytes, is_last, find(cookie)?)?;
                Ok(Self { content, is_last })
            }
            magic => breach(format!("a reply that begins with {magic:#010x}")),
        }
    }
}

/// Receives what a chunk has before the bytes that were read.
fn content(
    receiver: &mut Receiver,
    kind: u16,
    bytes: u32,
    is_last: bool,
    expected: Expected,
) -> Result<Content, End> {
    let is_read = expected.command == command::READ;
    match (kind, bytes) {
        (chunk::NONE, 0) if is_last => Ok(Content::Nothing),
        (chunk::OFFSET_DATA, 9..) if is_read => {
            let offset = u64::from_be_bytes(receiver.array()?);
            Ok(Content::Bytes(range_within(expected, offset, bytes - 8)?))
        }
        (chunk::OFFSET_HOLE, 12) if is_read => {
            let offset = u64::from_be_bytes(receiver.array()?);
            let bytes = u32::from_be_bytes(receiver.array()?);
            Ok(Content::Zeroes(range_within(expected, offset, bytes)?))
        }
        (kind, 6..=ERROR_BYTES_MAX) if kind & chunk::ERROR_BIT != 0 => {
            let payload = receiver.vec(bytes as usize)?;
            let mut fields = Fields::new(&payload);
            let errno = fields.u32().filter(|errno| *errno != 0);
            let message = fields.u16().and_then(|bytes| fields.bytes(bytes.into()));
            match (errno, message) {
                (Some(errno), Some(message)) => Ok(Content::Error(errno, printable(message))),
                _ => breach("an error chunk without an error"),
            }
        }
        _ => breach(format!(
            "a chunk of type {kind:#x} and {bytes} bytes as reply to request {}",
            expected.command
        )),
    }
}

/// The range as part of the request.
fn range_within(expected: Expected, offset: u64, bytes: u32) -> Result<Range, End> {
    let from = offset.checked_sub(expected.offset);
    let range = from.and_then(|from| Some((from, from.checked_add(bytes.into())?)));
    match range {
        Some((from, to)) if bytes > 0 && to <= expected.bytes.into() => Ok(from as usize..to as usize),
        _ => breach(format!("{bytes} bytes at {offset}, which were not asked for")),
    }
}

/// How much of a request was answered.
#[derive(Debug, Default)]
pub struct Progress {
    /// Separate ranges in ascending order.
    covered: Vec<Range>,
    /// The first error, and how many there were.
    error: Option<(u32, String)>,
    errors: usize,
}

impl Progress {
    /// Notes a reply or a chunk of one.
    pub fn note(&mut self, content: Content) -> Result<(), End> {
        match content {
            Content::Nothing => Ok(()),
            Content::Error(..) if self.errors == ERRORS_MAX => breach("a reply of too many errors"),
            Content::Error(errno, message) => {
                self.errors += 1;
                self.error.get_or_insert((errno, message));
                Ok(())
            }
            Content::Bytes(range) | Content::Zeroes(range) => self.cover(range),
        }
    }

    fn cover(&mut self, range: Range) -> Result<(), End> {
        let at = self.covered.partition_point(|other| other.end <= range.start);
        if self.covered.get(at).is_some_and(|next| next.start < range.end) {
            return breach("bytes that were answered before");
        }
        let joins_last = at > 0 && self.covered[at - 1].end == range.start;
        let joins_next = self.covered.get(at).is_some_and(|next| next.start == range.end);
        match (joins_last, joins_next) {
            (true, true) => {
                self.covered[at - 1].end = self.covered[at].end;
                self.covered.remove(at);
            }
            (true, false) => self.covered[at - 1].end = range.end,
            (false, true) => self.covered[at].start = range.start,
            (false, false) if self.covered.len() == RANGES_MAX => {
                return breach("a reply in too many pieces");
            }
            (false, false) => self.covered.insert(at, range),
        }
        Ok(())
    }

    /// The outcome, once the reply is at its end: an error's number and text, or nothing.
    pub fn finish(self, expected: Expected) -> Result<Option<(u32, String)>, End> {
        let whole = 0..expected.bytes as usize;
        if self.error.is_none() && expected.command == command::READ && self.covered != [whole] {
            return breach("a read that was answered in part");
        }
        Ok(self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Expected = Expected { command: command::READ, offset: 1000, bytes: 100 };

    #[test]
    fn chunks_in_any_order_cover_a_read_once() {
        let mut progress = Progress::default();
        for range in [50..60, 0..50, 90..100, 60..90] {
            progress.note(Content::Bytes(range)).expect("disjoint");
        }
        assert!(matches!(progress.finish(READ), Ok(None)));
        let mut progress = Progress::default();
        progress.note(Content::Zeroes(10..20)).expect("first");
        for range in [0..11, 19..30, 12..13, 10..20, 0..100] {
            assert!(progress.note(Content::Bytes(range)).is_err());
        }
        assert!(progress.finish(READ).is_err(), "answered in part");
    }

    #[test]
    fn first_error_is_the_outcome() {
        let mut progress = Progress::default();
        progress.note(Content::Error(5, "disk".into())).expect("an error");
        progress.note(Content::Error(22, "later".into())).expect("an error");
        assert_eq!(progress.finish(READ).expect("well formed"), Some((5, "disk".into())));
    }

    #[test]
    fn ranges_outside_of_the_request_are_breaches() {
        assert_eq!(range_within(READ, 1000, 100).expect("whole"), 0..100);
        for (offset, bytes) in [(999, 10), (1000, 101), (1100, 1), (u64::MAX, 10), (1010, 0), (0, u32::MAX)] {
            assert!(range_within(READ, offset, bytes).is_err(), "{offset} {bytes}");
        }
    }
}
