//! One connection: requests of many threads at once, and their replies in any order.
//!
//! There is no thread that receives. Of the threads that wait for a reply one has the receiver and reads replies, its own and those
//! of others; when its own is whole, another one goes on. So a single thread waits for nothing but the server. The bytes of a large
//! reply to another thread are not read: that thread gets the receiver and reads them to where it wants them.
//!
//! Invariants: a request is in the table from before it is sent until its thread has taken the outcome. The receiver is in the
//! table, with a thread, or on its way to one (`Slot::turn`). A thread that puts it into the table wakes one that waits.
//!
//! Locks: `DEVICE`, key [`SENDER_KEY`] over sends, then key [`TABLE_KEY`], held over no I/O.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::Shutdown;

use extant_rt::{Arc, Condvar, LockClass, Mutex, MutexGuard, before_wait};

use crate::reply::{Content, End, Expected, Head, Progress, Range};
use crate::stream::{Receiver, Sender, Socket};
use crate::wire::{Request, command};

/// Keys among the locks of a device, in their order.
const SENDER_KEY: u64 = 2;
const TABLE_KEY: u64 = 3;

/// From this many bytes of a reply on, its thread receives them itself.
const HAND_OVER_BYTES_LEAST: usize = 32 << 10;

/// Why a request has no reply that is of use.
#[derive(Debug)]
pub enum Failed {
    /// The connection has come to its end.
    Ended(End),
    /// The server failed it: an error's number and text.
    Refused(u32, String),
}

impl From<End> for Failed {
    fn from(end: End) -> Self {
        Self::Ended(end)
    }
}

/// A request that was sent.
#[derive(Debug)]
#[must_use]
pub struct Ticket {
    cookie: u64,
}

/// A connection that takes requests.
#[derive(Debug)]
pub struct Connection {
    structured: bool,
    socket: Arc<Socket>,
    sender: Mutex<Sender>,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    /// None while a thread has it.
    receiver: Option<Receiver>,
    requests: HashMap<u64, Slot>,
    next_cookie: u64,
    ended: Option<End>,
}

#[derive(Debug)]
struct Slot {
    expected: Expected,
    progress: Progress,
    /// What other threads received for it: where it belongs, and the bytes.
    pieces: Vec<(Range, Vec<u8>)>,
    /// Zeroes likewise.
    holes: Vec<Range>,
    /// Whether the reply is whole.
    is_done: bool,
    /// The receiver, before bytes of this reply; and whether they are its last.
    turn: Option<(Receiver, Range, bool)>,
    /// Whether its thread waits, and how to wake it.
    waits: bool,
    wake: Arc<Condvar>,
}

impl Connection {
    /// Over a socket whose negotiation has ended.
    pub fn new(receiver: Receiver, sender: Sender, structured: bool) -> Self {
        let socket = receiver.socket().clone();
        let table = Table { receiver: Some(receiver), requests: HashMap::new(), next_cookie: 1, ended: None };
        Self {
            structured,
            socket,
            sender: Mutex::with_key(LockClass::DEVICE, SENDER_KEY, sender),
            table: Mutex::with_key(LockClass::DEVICE, TABLE_KEY, table),
        }
    }

    /// How many requests have no outcome yet.
    pub fn in_flight(&self) -> usize {
        self.table.lock().requests.len()
    }

    /// Ends the connection; every request fails from now on.
    pub fn end(&self, end: End) {
        self.end_locked(&mut self.table.lock(), end);
    }

    fn end_locked(&self, table: &mut Table, end: End) {
        if table.ended.is_none() {
            table.ended = Some(end);
            self.socket.shutdown(Shutdown::Both);
        }
        table.requests.values().for_each(|slot| slot.wake.notify_all());
    }

    /// Says goodbye, if nothing is in the way.
    pub fn disconnect(&self) {
        if self.in_flight() == 0 {
            let request = Request { flags: 0, command: command::DISCONNECT, cookie: 0, offset: 0, bytes: 0 };
            // The server sees the end of the connection in any case.
            let _ = self.sender.lock().send(&mut [IoSlice::new(&request.encode())]);
        }
        self.end(End::Lost("closed".into()));
    }

    /// Sends a request and, if it is a write, the bytes.
    ///
    /// # Locks
    /// `DEVICE`; blocks while the socket takes no more.
    pub fn send(&self, flags: u16, expected: Expected, bufs: &[IoSlice<'_>]) -> Result<Ticket, Failed> {
        let cookie = self.enter(expected)?;
        let Expected { command, offset, bytes } = expected;
        let header = Request { flags, command, cookie, offset, bytes }.encode();
        let mut all = Vec::with_capacity(1 + bufs.len());
        all.push(IoSlice::new(&header));
        all.extend(bufs.iter().map(|buf| IoSlice::new(buf)));
        let sent = self.sender.lock().send(&mut all);
        if let Err(error) = sent {
            let mut table = self.table.lock();
            self.end_locked(&mut table, error.into());
            table.requests.remove(&cookie);
            return Err(table.ended().into());
        }
        Ok(Ticket { cookie })
    }

    fn enter(&self, expected: Expected) -> Result<u64, Failed> {
        let mut table = self.table.lock();
        if let Some(end) = &table.ended {
            return Err(end.clone().into());
        }
        let cookie = table.next_cookie;
        table.next_cookie += 1;
        let slot = Slot {
            expected,
            progress: Progress::default(),
            pieces: Vec::new(),
            holes: Vec::new(),
            is_done: false,
            turn: None,
            waits: false,
            wake: Arc::new(Condvar::new()),
        };
        table.requests.insert(cookie, slot);
        Ok(cookie)
    }

    /// Waits for the outcome of a request. `buf` receives what was read, and is empty for all but reads.
    pub fn wait(&self, ticket: Ticket, buf: &mut [u8]) -> Result<(), Failed> {
        let cookie = ticket.cookie;
        let mut table = self.table.lock();
        loop {
            let Some(slot) = table.requests.get_mut(&cookie) else {
                return Err(End::Lost("the request is gone".into()).into());
            };
            slot.waits = false;
            if slot.is_done {
                return self.take(table, cookie, buf);
            }
            let wake = slot.wake.clone();
            let turn = slot.turn.take();
            if table.ended.is_some() {
                table.requests.remove(&cookie);
                return Err(table.ended().into());
            }
            let receiver = match turn {
                Some((receiver, range, is_last)) => {
                    drop(table);
                    self.receive_own(receiver, cookie, (Content::Bytes(range), is_last), buf)
                }
                None => match table.receiver.take() {
                    Some(receiver) => {
                        drop(table);
                        Ok(Some(receiver))
                    }
                    None => {
                        if let Some(slot) = table.requests.get_mut(&cookie) {
                            slot.waits = true;
                        }
                        table = wake.wait(table);
                        continue;
                    }
                },
            };
            let led = receiver.and_then(|receiver| match receiver {
                Some(receiver) => self.lead(receiver, cookie, buf),
                None => Ok(()),
            });
            table = self.table.lock();
            if let Err(end) = led {
                self.end_locked(&mut table, end);
            }
        }
    }

    /// Receives replies until that to `cookie` is whole or the receiver has gone to another thread.
    fn lead(&self, mut receiver: Receiver, cookie: u64, buf: &mut [u8]) -> Result<(), End> {
        loop {
            if !receiver.has(1) {
                before_wait();
            }
            let expected = |cookie| {
                let table = self.table.lock();
                table.requests.get(&cookie).filter(|slot| !slot.is_done).map(|slot| slot.expected)
            };
            let head = Head::receive(&mut receiver, self.structured, expected)?;
            let next = if head.cookie == cookie {
                self.receive_own(receiver, cookie, (head.content, head.is_last), buf)?
            } else {
                self.receive_others(receiver, head)?
            };
            match next {
                Some(same) => receiver = same,
                None => return Ok(()),
            }
        }
    }

    /// Receives the rest of a reply, or of a chunk, to this thread's request. Gives the receiver up if the reply is whole.
    fn receive_own(
        &self,
        mut receiver: Receiver,
        cookie: u64,
        (content, is_last): (Content, bool),
        buf: &mut [u8],
    ) -> Result<Option<Receiver>, End> {
        match &content {
            Content::Bytes(range) => {
                let place = buf.get_mut(range.clone()).ok_or_else(too_short)?;
                receiver.receive(place)?;
            }
            Content::Zeroes(range) => buf.get_mut(range.clone()).ok_or_else(too_short)?.fill(0),
            Content::Nothing | Content::Error(..) => {}
        }
        let mut table = self.table.lock();
        if let Some(slot) = table.requests.get_mut(&cookie) {
            slot.progress.note(content)?;
            slot.is_done = is_last;
        }
        if is_last {
            table.give(receiver);
            return Ok(None);
        }
        Ok(Some(receiver))
    }

    /// Receives the rest of a reply, or of a chunk, to another thread's request. Gives the receiver to that thread if that is much.
    fn receive_others(&self, mut receiver: Receiver, head: Head) -> Result<Option<Receiver>, End> {
        let Head { cookie, content, is_last } = head;
        let mut piece = None;
        if let Content::Bytes(range) = &content {
            if range.len() >= HAND_OVER_BYTES_LEAST && !receiver.has(range.len()) {
                let mut table = self.table.lock();
                if let Some(slot) = table.requests.get_mut(&cookie) {
                    slot.turn = Some((receiver, range.clone(), is_last));
                    slot.wake.notify_all();
                }
                return Ok(None);
            }
            piece = Some((range.clone(), receiver.vec(range.len())?));
        }
        let mut table = self.table.lock();
        if let Some(slot) = table.requests.get_mut(&cookie) {
            slot.pieces.extend(piece);
            if let Content::Zeroes(range) = &content {
                slot.holes.push(range.clone());
            }
            slot.progress.note(content)?;
            if is_last {
                slot.is_done = true;
                slot.wake.notify_all();
            }
        }
        Ok(Some(receiver))
    }

    /// Takes the outcome of a request whose reply is whole.
    fn take(&self, mut table: MutexGuard<'_, Table>, cookie: u64, buf: &mut [u8]) -> Result<(), Failed> {
        let slot = table.requests.remove(&cookie);
        drop(table);
        let Some(slot) = slot else { return Ok(()) };
        for (range, bytes) in slot.pieces {
            buf.get_mut(range).ok_or_else(too_short)?.copy_from_slice(&bytes);
        }
        for range in slot.holes {
            buf.get_mut(range).ok_or_else(too_short)?.fill(0);
        }
        match slot.progress.finish(slot.expected) {
            Ok(None) => Ok(()),
            Ok(Some((errno, message))) => Err(Failed::Refused(errno, message)),
            Err(end) => {
                self.end(end.clone());
                Err(end.into())
            }
        }
    }
}

/// A reply that is longer than the buffer, which its range within the request excludes.
fn too_short() -> End {
    End::Breach("more bytes than were asked for".into())
}

impl Table {
    /// Puts the receiver back, for a thread that waits.
    fn give(&mut self, receiver: Receiver) {
        self.receiver = Some(receiver);
        if let Some(slot) = self.requests.values().find(|slot| slot.waits && !slot.is_done) {
            slot.wake.notify_all();
        }
    }

    fn ended(&self) -> End {
        self.ended.clone().unwrap_or_else(|| End::Lost("closed".into()))
    }
}
