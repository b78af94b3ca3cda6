//! Requests of one client and their replies, by several threads.
//!
//! The threads take turns to receive: one of them waits for the next request, and leaves the receiver to another one before it answers.
//! A large read or write is answered in pieces of [`PIECE_BYTES`].
//!
//! Locks: `REQUESTS`, key 1 over the receipt of a request and, of a large write, over its I/O; key 2 over a send and, of a large read
//! that must be answered at once, over its I/O. Never both.

use std::io::{self, IoSlice};

use extant_block::BlockDevice;
use extant_rt::{Arc, AtomicUsize, LockClass, Mutex, Ordering, spawn};

use super::negotiation::Agreed;
use super::{Registration, THREADS_MAX};
use crate::stream::{Receiver, Sender};
use crate::wire::{
    PAYLOAD_BYTES_DEFAULT, Request, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, command, command_flag,
    errno,
};

/// Most bytes that a thread has in memory of one request.
pub const PIECE_BYTES: usize = 1 << 20;
/// Most bytes of an error's text.
const MESSAGE_BYTES_MAX: usize = 512;

/// A connection that takes requests.
pub struct Transmission {
    registration: Registration,
    structured: bool,
    /// None after the last request.
    receiver: Mutex<Option<Receiver>>,
    sender: Mutex<Sender>,
    /// Threads, and those of them that wait for the receiver or for a request.
    threads: AtomicUsize,
    idle: AtomicUsize,
}

/// A request that was received, and the outcome where the receipt was all of it.
struct Received {
    request: Request,
    /// Of a write that was refused, or that was large and is done.
    outcome: Option<Result<(), Refusal>>,
}

/// An error reply.
struct Refusal {
    errno: u32,
    message: String,
}

impl Refusal {
    fn new(errno: u32, message: &str) -> Self {
        Self { errno, message: message.to_owned() }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        let errno = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => errno::EPERM,
            io::ErrorKind::OutOfMemory => errno::ENOMEM,
            io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => errno::EINVAL,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                errno::ENOSPC
            }
            io::ErrorKind::Unsupported => errno::ENOTSUP,
            _ => errno::EIO,
        };
        let mut message = error.to_string();
        let end = (0..=MESSAGE_BYTES_MAX).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        Self { errno, message }
    }
}

impl Transmission {
    /// Answers requests until the client goes. Further threads may still be at it afterwards.
    pub fn run(agreed: Agreed, registration: Registration) {
        let transmission = Arc::new(Self {
            registration,
            structured: agreed.structured,
            receiver: Mutex::with_key(LockClass::REQUESTS, 1, Some(agreed.receiver)),
            sender: Mutex::with_key(LockClass::REQUESTS, 2, agreed.sender),
            threads: AtomicUsize::new(1),
            idle: AtomicUsize::new(0),
        });
        transmission.answer_all();
    }

    fn device(&self) -> &dyn BlockDevice {
        &*self.registration.server.device
    }

    /// Starts another thread if none is left to receive.
    fn spawn_if_none_is_idle(self: &Arc<Self>) {
        // The counts are hints: a thread too few costs time, and the receiver's lock orders everything else.
        if self.idle.load(Ordering::Relaxed) > 0 || self.threads.load(Ordering::Relaxed) >= THREADS_MAX {
            return;
        }
        if self.threads.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let own = self.clone();
        if spawn("extant-nbd", move || own.answer_all()).is_err() {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Receives and answers requests until there are no more.
    fn answer_all(self: &Arc<Self>) {
        let mut buffer = Vec::new();
        loop {
            self.idle.fetch_add(1, Ordering::Relaxed);
            let mut receiver = self.receiver.lock();
            let received = match receiver.as_mut() {
                Some(from) => self.receive(from, &mut buffer),
                None => Ok(None),
            };
            self.idle.fetch_sub(1, Ordering::Relaxed);
            let Ok(Some(received)) = received else {
                *receiver = None;
                return;
            };
            let more = receiver.as_ref().is_some_and(|receiver| receiver.has(1));
            drop(receiver);
            if more {
                self.spawn_if_none_is_idle();
            }
            if self.answer(received, &mut buffer).is_err() {
                // The client no longer takes replies: the thread that receives ends too.
                self.sender.lock().end();
                return;
            }
        }
    }

    /// The next request; none at the end.
    fn receive(&self, receiver: &mut Receiver, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        let Some(request) = Request::decode(&receiver.array()?) else { return Ok(None) };
        match request.command {
            command::DISCONNECT => Ok(None),
            command::WRITE if request.bytes > PAYLOAD_BYTES_DEFAULT => Ok(None),
            command::WRITE => {
                let mut outcome = self.check(&request).err().map(Err);
                let bytes = request.bytes as usize;
                if outcome.is_none() && bytes <= PIECE_BYTES {
                    resize(buffer, bytes);
                    receiver.receive(buffer)?;
                    return Ok(Some(Received { request, outcome: None }));
                }
                let mut done = 0;
                let mut written = outcome.take().unwrap_or(Ok(()));
                while done < bytes {
                    resize(buffer, PIECE_BYTES.min(bytes - done));
                    receiver.receive(buffer)?;
                    if written.is_ok() {
                        let at = request.offset + done as u64;
                        written = self.device().write_at(at, buffer).map_err(Refusal::from);
                    }
                    done += buffer.len();
                }
                Ok(Some(Received { request, outcome: Some(written) }))
            }
            _ => {
                let outcome = self.check(&request).err().map(Err);
                Ok(Some(Received { request, outcome }))
            }
        }
    }

    /// That a request may be made.
    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let (flags, writes) = match request.command {
            command::READ | command::FLUSH => (command_flag::FUA, false),
            command::WRITE | command::TRIM => (command_flag::FUA, true),
            command::WRITE_ZEROES => (command_flag::FUA | command_flag::NO_HOLE, true),
            command => return Err(Refusal::new(errno::EINVAL, &format!("unknown request {command}"))),
        };
        if request.flags & !flags != 0 {
            return Err(Refusal::new(errno::EINVAL, "a flag that the request does not have"));
        }
        if writes && self.registration.server.options.read_only {
            return Err(Refusal::new(errno::EPERM, "the export is read-only"));
        }
        if request.command == command::READ && request.bytes > PAYLOAD_BYTES_DEFAULT {
            return Err(Refusal::new(errno::EOVERFLOW, "more than the largest request"));
        }
        let end = request.offset.checked_add(request.bytes.into());
        if end.is_none_or(|end| end > self.device().size()) {
            let errno =
                if writes && request.command != command::TRIM { errno::ENOSPC } else { errno::EINVAL };
            return Err(Refusal::new(errno, "past the end of the export"));
        }
        Ok(())
    }

    /// Does what was asked for and replies.
    fn answer(&self, received: Received, buffer: &mut Vec<u8>) -> io::Result<()> {
        let Received { request, outcome } = received;
        if request.command == command::READ && outcome.is_none() {
            return self.answer_read(&request, buffer);
        }
        let (offset, bytes) = (request.offset, u64::from(request.bytes));
        let is_fua = request.flags & command_flag::FUA != 0;
        let is_done = outcome.is_some();
        let done = outcome.unwrap_or_else(|| {
            match request.command {
                command::WRITE if is_fua => return Ok(self.device().write_fua(offset, buffer)?),
                command::WRITE => self.device().write_at(offset, buffer)?,
                command::TRIM => match self.device().discard(offset, bytes) {
                    // It is a hint.
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                    discarded => discarded?,
                },
                command::WRITE_ZEROES => self.device().write_zeroes(offset, bytes)?,
                _ => self.device().flush()?,
            }
            Ok(())
        });
        // A piecewise write, and what has no form that is durable by itself.
        let flushes = is_fua && (is_done || matches!(request.command, command::TRIM | command::WRITE_ZEROES));
        let done = match done {
            Ok(()) if flushes => self.device().flush().map_err(Refusal::from),
            done => done,
        };
        match done {
            Ok(()) => self.send(&simple_reply(request.cookie, 0), &[]),
            Err(refusal) => self.refuse(request.cookie, &refusal),
        }
    }

    fn answer_read(&self, request: &Request, buffer: &mut Vec<u8>) -> io::Result<()> {
        let bytes = request.bytes as usize;
        if !self.structured {
            return self.answer_simple_read(request, buffer);
        }
        let mut done = 0;
        loop {
            resize(buffer, PIECE_BYTES.min(bytes - done));
            let offset = request.offset + done as u64;
            if let Err(error) = self.device().read_at(offset, buffer) {
                return self.refuse(request.cookie, &error.into());
            }
            done += buffer.len();
            let (kind, flags) = match (bytes, done == bytes) {
                (0, _) => (chunk::NONE, chunk::DONE),
                (_, true) => (chunk::OFFSET_DATA, chunk::DONE),
                (_, false) => (chunk::OFFSET_DATA, 0),
            };
            if kind == chunk::NONE {
                return self.send(&chunk_header(request.cookie, flags, kind, 0), &[]);
            }
            let mut header = chunk_header(request.cookie, flags, kind, 8 + buffer.len());
            header.extend(offset.to_be_bytes());
            self.send(&header, buffer)?;
            if done == bytes {
                return Ok(());
            }
        }
    }

    /// Answers a read at once: after the first piece an error can only end the connection.
    fn answer_simple_read(&self, request: &Request, buffer: &mut Vec<u8>) -> io::Result<()> {
        let bytes = request.bytes as usize;
        resize(buffer, PIECE_BYTES.min(bytes));
        if let Err(error) = self.device().read_at(request.offset, buffer) {
            return self.refuse(request.cookie, &error.into());
        }
        let header = simple_reply(request.cookie, 0);
        let mut sender = self.sender.lock();
        sender.send(&mut [IoSlice::new(&header), IoSlice::new(buffer)])?;
        let mut done = buffer.len();
        while done < bytes {
            resize(buffer, PIECE_BYTES.min(bytes - done));
            self.device().read_at(request.offset + done as u64, buffer)?;
            sender.send(&mut [IoSlice::new(buffer)])?;
            done += buffer.len();
        }
        Ok(())
    }

    fn refuse(&self, cookie: u64, refusal: &Refusal) -> io::Result<()> {
        if !self.structured {
            return self.send(&simple_reply(cookie, refusal.errno), &[]);
        }
        let message = refusal.message.as_bytes();
        let mut reply = chunk_header(cookie, chunk::DONE, chunk::ERROR, 6 + message.len());
        reply.extend(refusal.errno.to_be_bytes());
        reply.extend((message.len() as u16).to_be_bytes());
        self.send(&reply, message)
    }

    fn send(&self, header: &[u8], payload: &[u8]) -> io::Result<()> {
        self.sender.lock().send(&mut [IoSlice::new(header), IoSlice::new(payload)])
    }
}

/// Makes a buffer so long; what it has is anything.
fn resize(buffer: &mut Vec<u8>, bytes: usize) {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
    buffer.truncate(bytes);
}

fn simple_reply(cookie: u64, errno: u32) -> Vec<u8> {
    let mut reply = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
    reply.extend(errno.to_be_bytes());
    reply.extend(cookie.to_be_bytes());
    reply
}

fn chunk_header(cookie: u64, flags: u16, kind: u16, bytes: usize) -> Vec<u8> {
    let mut header = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
    header.extend(flags.to_be_bytes());
    header.extend(kind.to_be_bytes());
    header.extend(cookie.to_be_bytes());
    header.extend((bytes as u32).to_be_bytes());
    header
}
