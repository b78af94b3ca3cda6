//! One connection: requests of many threads at once, and their replies in any order.
//!
//! There is no thread that receives. Of the threads that wait for a reply one has the receiver and reads replies, its own and those
//! of others; when its own is whole, it goes through what has come with it, and another thread goes on. So a single thread waits for nothing
//! but the server, and replies that came at once are handed out by one thread. The bytes of a large reply to another thread are not read:
//! that thread gets the receiver and reads them to where it wants them.
//!
//! Invariants: a request is in the table from before it is sent until it has an outcome. The receiver is in the table, with a thread, or on
//! its way to one (`Slot::turn`). A thread that has no more use for it gives it to one that waits, or puts it into the table. A thread
//! that was woken takes no lock of the connection, so that it does not meet the one that woke it.
//!
//! Locks: `DEVICE`, key [`SENDER_KEY`] over sends, key [`TABLE_KEY`], then key [`SLOT_KEY`] of a request; the latter two held over no I/O.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::Shutdown;

use extant_rt::{Arc, Condvar, LockClass, Mutex, MutexGuard, before_wait};

use crate::reply::{Content, End, Expected, Head, Progress, Range};
use crate::stream::{Receiver, Sender, Socket};
use crate::wire::{REPLY_BYTES_LEAST, Request, command};

/// Keys among the locks of a device, in their order.
const SENDER_KEY: u64 = 2;
const TABLE_KEY: u64 = 3;
const SLOT_KEY: u64 = 4;

/// From this many bytes of a reply on, its thread receives them itself.
const HAND_OVER_BYTES_LEAST: usize = 32 << 10;

/// Replies to others that a thread receives after the one that it waits for, at most, so that it gets away.
const REPLIES_AFTER_AWAITED_MAX: usize = 64;

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

/// A request that is to be sent and, if it is a write, the bytes.
#[derive(Debug)]
pub struct Outgoing<'b> {
    pub flags: u16,
    pub expected: Expected,
    pub bufs: &'b [IoSlice<'b>],
}

/// A request that was sent.
#[derive(Debug)]
#[must_use]
pub struct Ticket {
    slot: Arc<Slot>,
}

impl Ticket {
    /// Whether its outcome is there.
    pub fn is_answered(&self) -> bool {
        self.slot.reply.lock().outcome.is_some()
    }
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
    requests: HashMap<u64, Pending>,
    next_cookie: u64,
    ended: Option<End>,
}

/// A request without an outcome.
#[derive(Debug)]
struct Pending {
    slot: Arc<Slot>,
    /// Whether its thread waits for the receiver.
    wants_receiver: bool,
}

/// A request, for its thread and for those that receive for it.
#[derive(Debug)]
struct Slot {
    cookie: u64,
    expected: Expected,
    reply: Mutex<Reply>,
    /// The outcome or the receiver is there.
    wake: Condvar,
}

/// What there is of a reply.
#[derive(Debug, Default)]
struct Reply {
    progress: Progress,
    /// What other threads received: where it belongs, and the bytes.
    pieces: Vec<(Range, Vec<u8>)>,
    /// Zeroes likewise.
    holes: Vec<Range>,
    /// Whether the reply is whole, or how the connection ended before.
    outcome: Option<Result<(), End>>,
    /// The receiver for this thread.
    turn: Option<Turn>,
    /// Whether the thread waits for either.
    waits: bool,
}

#[derive(Debug)]
struct Turn {
    receiver: Receiver,
    /// Bytes of this thread's reply that are next; and whether they are its last.
    next: Option<(Range, bool)>,
}

/// What a thread that receives waits for.
#[derive(Clone, Copy)]
enum Until {
    OwnReply,
    AnyReply,
}

impl Slot {
    /// Waits for the outcome or the receiver.
    fn wait(&self) -> MutexGuard<'_, Reply> {
        let mut reply = self.reply.lock();
        while reply.outcome.is_none() && reply.turn.is_none() {
            reply.waits = true;
            reply = self.wake.wait(reply);
        }
        reply
    }

    /// Changes the reply, and wakes the thread if it waits for it.
    fn wake_with(&self, change: impl FnOnce(&mut Reply)) {
        let mut reply = self.reply.lock();
        change(&mut reply);
        let waits = std::mem::take(&mut reply.waits);
        drop(reply);
        if waits {
            self.wake.notify_one();
        }
    }
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
            self.socket.shutdown(Shutdown::Both);
        }
        let end = table.ended.get_or_insert(end);
        for (_, pending) in table.requests.drain() {
            pending.slot.wake_with(|reply| {
                reply.outcome.get_or_insert_with(|| Err(end.clone()));
            });
        }
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
        let sent = self.send_many(&[Outgoing { flags, expected, bufs }])?.pop();
        sent.ok_or_else(|| self.table.lock().ended().into())
    }

    /// Sends requests, one after the other.
    ///
    /// # Locks
    /// As [`Connection::send`].
    pub fn send_many(&self, requests: &[Outgoing<'_>]) -> Result<Vec<Ticket>, Failed> {
        let tickets = self.enter(requests)?;
        let headers = requests.iter().zip(&tickets).map(|(request, ticket)| {
            let Expected { command, offset, bytes } = request.expected;
            Request { flags: request.flags, command, cookie: ticket.slot.cookie, offset, bytes }.encode()
        });
        let headers: Vec<_> = headers.collect();
        let mut all = Vec::with_capacity(2 * requests.len());
        for (request, header) in requests.iter().zip(&headers) {
            all.push(IoSlice::new(header));
            all.extend(request.bufs.iter().map(|buf| IoSlice::new(buf)));
        }
        let sent = self.sender.lock().send(&mut all);
        if let Err(error) = sent {
            let mut table = self.table.lock();
            self.end_locked(&mut table, error.into());
            return Err(table.ended().into());
        }
        Ok(tickets)
    }

    fn enter(&self, requests: &[Outgoing<'_>]) -> Result<Vec<Ticket>, Failed> {
        let mut table = self.table.lock();
        if let Some(end) = &table.ended {
            return Err(end.clone().into());
        }
        let enter = |request: &Outgoing<'_>| {
            let cookie = table.next_cookie;
            table.next_cookie += 1;
            let reply = Mutex::with_key(LockClass::DEVICE, SLOT_KEY, Reply::default());
            let slot = Arc::new(Slot { cookie, expected: request.expected, reply, wake: Condvar::new() });
            table.requests.insert(cookie, Pending { slot: slot.clone(), wants_receiver: false });
            Ticket { slot }
        };
        Ok(requests.iter().map(enter).collect())
    }

    /// Waits for the outcome of a request. `buf` receives what was read, and is empty for all but reads.
    pub fn wait(&self, ticket: Ticket, buf: &mut [u8]) -> Result<(), Failed> {
        let slot = &*ticket.slot;
        loop {
            let turn = match self.take_receiver(slot) {
                Some(turn) => turn,
                None => {
                    let mut reply = slot.wait();
                    match (reply.outcome.take(), reply.turn.take()) {
                        (Some(Ok(())), _) => {
                            let whole = std::mem::take(&mut *reply);
                            drop(reply);
                            return self.finish(slot, whole, buf);
                        }
                        (Some(Err(end)), _) => return Err(end.into()),
                        (None, Some(turn)) => turn,
                        (None, None) => continue,
                    }
                }
            };
            self.lead_or_end(turn, slot, buf, Until::OwnReply);
        }
    }

    /// Waits until this request has an outcome, or another one got one from this thread.
    pub fn wait_for_any(&self, ticket: &Ticket) {
        let slot = &*ticket.slot;
        let turn = self.take_receiver(slot).or_else(|| slot.wait().turn.take());
        if let Some(turn) = turn {
            self.lead_or_end(turn, slot, &mut [], Until::AnyReply);
        }
    }

    /// The receiver, if no thread has it; else it comes when it is free, unless the outcome does.
    fn take_receiver(&self, slot: &Slot) -> Option<Turn> {
        let mut table = self.table.lock();
        let Table { receiver, requests, .. } = &mut *table;
        // Without an entry there is an outcome.
        let pending = requests.get_mut(&slot.cookie)?;
        let receiver = receiver.take();
        pending.wants_receiver = receiver.is_none();
        receiver.map(|receiver| Turn { receiver, next: None })
    }

    /// Leads, and ends the connection if that fails.
    fn lead_or_end(&self, turn: Turn, own: &Slot, buf: &mut [u8], until: Until) {
        if let Err(end) = self.lead(turn, own, buf, until) {
            self.end(end);
        }
    }

    /// Receives the rest of the thread's own reply, if part of it was, then replies until the one that it waits for is whole, and those that
    /// came with it; or until the receiver has gone to another thread.
    fn lead(
        &self,
        Turn { mut receiver, next }: Turn,
        own: &Slot,
        buf: &mut [u8],
        until: Until,
    ) -> Result<(), End> {
        let mut after_awaited = None;
        if let Some((range, is_last)) = next
            && self.receive_own(&mut receiver, own, (Content::Bytes(range), is_last), buf)?
        {
            after_awaited = Some(0);
        }
        while after_awaited
            .is_none_or(|count| count < REPLIES_AFTER_AWAITED_MAX && receiver.has(REPLY_BYTES_LEAST))
        {
            if !receiver.has(1) {
                before_wait();
            }
            let mut found = None;
            let expected = |cookie| {
                found = self.table.lock().requests.get(&cookie).map(|pending| pending.slot.clone());
                found.as_ref().map(|slot| slot.expected)
            };
            let Head { content, is_last } = Head::receive(&mut receiver, self.structured, expected)?;
            match found {
                Some(slot) if slot.cookie != own.cookie => {
                    match self.receive_others(receiver, &slot, (content, is_last))? {
                        Some(same) => receiver = same,
                        None => return Ok(()),
                    }
                    after_awaited = match until {
                        Until::OwnReply => after_awaited.map(|count| count + 1),
                        Until::AnyReply => Some(after_awaited.map_or(0, |count| count + 1)),
                    };
                }
                _ if self.receive_own(&mut receiver, own, (content, is_last), buf)? => {
                    after_awaited = Some(0)
                }
                _ => {}
            }
        }
        self.give(receiver);
        Ok(())
    }

    /// Receives the rest of a reply, or of a chunk, to this thread's request; whether the reply is whole.
    fn receive_own(
        &self,
        receiver: &mut Receiver,
        own: &Slot,
        (content, is_last): (Content, bool),
        buf: &mut [u8],
    ) -> Result<bool, End> {
        match &content {
            Content::Bytes(range) => {
                let place = buf.get_mut(range.clone()).ok_or_else(too_short)?;
                receiver.receive(place)?;
            }
            Content::Zeroes(range) => buf.get_mut(range.clone()).ok_or_else(too_short)?.fill(0),
            Content::Nothing | Content::Error(..) => {}
        }
        own.reply.lock().progress.note(content)?;
        if is_last {
            self.complete(own);
        }
        Ok(is_last)
    }

    /// Receives the rest of a reply, or of a chunk, to another thread's request. Gives the receiver to that thread if that is much.
    fn receive_others(
        &self,
        mut receiver: Receiver,
        slot: &Slot,
        (content, is_last): (Content, bool),
    ) -> Result<Option<Receiver>, End> {
        let mut piece = None;
        if let Content::Bytes(range) = &content {
            if range.len() >= HAND_OVER_BYTES_LEAST && !receiver.has(range.len()) {
                let next = Some((range.clone(), is_last));
                slot.wake_with(|reply| reply.turn = Some(Turn { receiver, next }));
                return Ok(None);
            }
            piece = Some((range.clone(), receiver.vec(range.len())?));
        }
        let mut reply = slot.reply.lock();
        reply.pieces.extend(piece);
        if let Content::Zeroes(range) = &content {
            reply.holes.push(range.clone());
        }
        reply.progress.note(content)?;
        drop(reply);
        if is_last {
            self.complete(slot);
        }
        Ok(Some(receiver))
    }

    /// Tells the thread of a request that its reply is whole.
    fn complete(&self, slot: &Slot) {
        self.table.lock().requests.remove(&slot.cookie);
        slot.wake_with(|reply| {
            reply.outcome.get_or_insert(Ok(()));
        });
    }

    /// Gives the receiver to a thread that waits for it, or puts it into the table.
    fn give(&self, receiver: Receiver) {
        let mut table = self.table.lock();
        let waiting = table.requests.values_mut().find(|pending| pending.wants_receiver);
        match waiting {
            Some(pending) => {
                pending.wants_receiver = false;
                let slot = pending.slot.clone();
                drop(table);
                slot.wake_with(|reply| reply.turn = Some(Turn { receiver, next: None }));
            }
            None => table.receiver = Some(receiver),
        }
    }

    /// The outcome of a request whose reply is whole.
    fn finish(&self, slot: &Slot, reply: Reply, buf: &mut [u8]) -> Result<(), Failed> {
        for (range, bytes) in reply.pieces {
            buf.get_mut(range).ok_or_else(too_short)?.copy_from_slice(&bytes);
        }
        for range in reply.holes {
            buf.get_mut(range).ok_or_else(too_short)?.fill(0);
        }
        match reply.progress.finish(slot.expected) {
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
    fn ended(&self) -> End {
        self.ended.clone().unwrap_or_else(|| End::Lost("closed".into()))
    }
}
