//! The connections to an export that are in use together, and their replacement when one is lost.
//!
//! A session has all connections. When one of them is lost, the server may have lost its memory, and other connections may not know
//! yet. So the loss of one ends the session and all its connections. The next session begins with one connection, on which the
//! unflushed writes are written again before any other request is made. Then threads send again what had no reply.
//!
//! Invariants: the numbers of sessions ascend. A write is noted as unflushed only while its session is the current one; one that was
//! answered by a session before is sent again, since the writes that were repeated may not have had it. (N1 to N4 in
//! docs/design/nbd.md.)
//!
//! Locks: `DEVICE`, key 1, held over no I/O; waits for a session hold none.

use std::time::Duration;

use extant_rt::{Arc, Condvar, LockClass, Monotonic, Mutex, MutexGuard, before_wait, sleep};

use crate::connection::{Connection, Failed, Ticket};
use crate::negotiation::{Agreed, connect};
use crate::reply::{End, Expected};
use crate::unflushed::{Filling, Unflushed};
use crate::wire::{command, export};
use crate::{Error, Uri};

/// Most repeated writes that have no reply yet.
const REPEATED_IN_FLIGHT_MAX: usize = 32;
/// The first wait between two attempts to connect. Each is twice as long as the one before.
const BACKOFF_FIRST: Duration = Duration::from_millis(10);
/// The longest one.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Most bytes that are zeroed by one request, so that a server that writes them answers in time.
pub const ZEROED_BYTES_MAX: u64 = 64 << 20;

/// How an export is used.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Nothing is written.
    pub read_only: bool,
    /// A server that sends nothing for so long while requests wait for replies counts as lost.
    pub timeout: Duration,
    /// How long to try for a new connection after one was lost.
    pub reconnect: Duration,
    /// Most connections, where the server allows several.
    pub connections: usize,
    /// Another connection is made when each has so many requests in flight.
    pub requests_per_connection: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            timeout: Duration::from_secs(60),
            reconnect: Duration::from_secs(60),
            connections: extant_rt::available_parallelism().min(4),
            requests_per_connection: 16,
        }
    }
}

/// Connections that are in use together.
#[derive(Debug)]
pub struct Session {
    /// Its place in the order of sessions.
    pub number: u64,
    agreed: Agreed,
    options: Options,
    connections: Mutex<Connections>,
}

#[derive(Debug)]
struct Connections {
    all: Vec<Arc<Connection>>,
    /// Whether a thread may make another one: none does so, and the server has not refused one.
    may_connect: bool,
    /// How the session ended.
    end: Option<End>,
}

/// The export: the current session and what the next one must repeat.
#[derive(Debug)]
pub struct Export {
    uri: Uri,
    options: Options,
    agreed: Agreed,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Of the current session, or the one that is being made.
    number: u64,
    unflushed: Unflushed,
}

#[derive(Debug)]
enum Phase {
    Connected(Arc<Session>),
    /// The last session ended so; no thread makes another one yet.
    Lost(String),
    /// A thread makes a session.
    Connecting,
    /// There will be none.
    Dead(Dead),
}

#[derive(Clone, Debug)]
enum Dead {
    Lost(String),
    Breach(String),
}

impl Session {
    fn new(number: u64, agreed: Agreed, options: Options, first: Connection) -> Self {
        let connections = Connections {
            all: vec![Arc::new(first)],
            may_connect: agreed.has(export::CAN_MULTI_CONN),
            end: None,
        };
        let connections = Mutex::with_key(LockClass::DEVICE, 1, connections);
        Self { number, agreed, options, connections }
    }

    /// A connection for a request: the first one that is not busy; a new one where all are and the server allows more; else the one
    /// with the fewest requests in flight. Few connections with many requests each need fewer system calls than the other way round.
    pub fn connection(&self, uri: &Uri) -> Result<Arc<Connection>, End> {
        let idlest = {
            let mut connections = self.connections.lock();
            let all = &connections.all;
            let mut idlest: Option<(usize, &Arc<Connection>)> = None;
            for connection in all {
                let count = connection.in_flight();
                if count < self.options.requests_per_connection {
                    return Ok(connection.clone());
                }
                if idlest.is_none_or(|(least, _)| count < least) {
                    idlest = Some((count, connection));
                }
            }
            let (_, chosen) = idlest.ok_or_else(|| End::Lost("closed".into()))?;
            let chosen = chosen.clone();
            if !connections.may_connect || all.len() >= self.options.connections {
                return Ok(chosen);
            }
            connections.may_connect = false;
            chosen
        };
        before_wait();
        // A server may have fewer connections than the client would like.
        let Ok((receiver, sender, agreed)) = connect(uri, self.options.timeout) else { return Ok(idlest) };
        if !self.agreed.goes_on_as(&agreed) {
            return Err(End::Lost("the export has changed".into()));
        }
        self.see_alive(&idlest)?;
        let connection = Arc::new(Connection::new(receiver, sender, agreed.structured));
        let mut connections = self.connections.lock();
        if let Some(end) = &connections.end {
            connection.end(end.clone());
        }
        connections.all.push(connection.clone());
        connections.may_connect = true;
        Ok(connection)
    }

    /// Has a reply from a connection of the session after another one was made. Had the server been started anew, the session's
    /// connections would be dead, and the new one would lead to a server without the unflushed writes.
    fn see_alive(&self, connection: &Connection) -> Result<(), End> {
        let bytes = u64::from(self.agreed.block_bytes).min(self.agreed.bytes) as u32;
        let expected = Expected { command: command::READ, offset: 0, bytes };
        let ticket = connection.send(0, expected, &[]);
        let seen = ticket.and_then(|ticket| connection.wait(ticket, &mut vec![0; bytes as usize]));
        match seen {
            Err(Failed::Ended(end)) => Err(end),
            Ok(()) | Err(Failed::Refused(..)) => Ok(()),
        }
    }

    fn end(&self, end: &End) {
        let mut connections = self.connections.lock();
        connections.end.get_or_insert_with(|| end.clone());
        connections.all.iter().for_each(|connection| connection.end(end.clone()));
    }
}

impl Export {
    /// Connects to an export for the first time.
    pub fn open(uri: &Uri, options: Options) -> Result<Self, Error> {
        let (receiver, sender, agreed) = connect(uri, options.timeout)?;
        let connection = Connection::new(receiver, sender, agreed.structured);
        let session = Arc::new(Session::new(1, agreed, options, connection));
        let state = State { phase: Phase::Connected(session), number: 1, unflushed: Unflushed::default() };
        let state = Mutex::with_key(LockClass::DEVICE, 0, state);
        Ok(Self { uri: uri.clone(), options, agreed, state, changed: Condvar::new() })
    }

    /// Its URI.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// What was agreed on at first; later sessions can do as much.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// The current session; makes one, or waits for another thread that does.
    pub fn session(&self) -> Result<Arc<Session>, Error> {
        let mut state = self.state.lock();
        loop {
            match &state.phase {
                Phase::Connected(session) => return Ok(session.clone()),
                Phase::Dead(dead) => return Err(self.died(dead.clone())),
                Phase::Connecting => state = self.changed.wait(state),
                Phase::Lost(why) => {
                    let why = why.clone();
                    state.phase = Phase::Connecting;
                    let (number, repeated) = (state.number, state.unflushed.ranges());
                    drop(state);
                    before_wait();
                    let made = self.reconnect(number, &repeated, &why);
                    state = self.state.lock();
                    state.phase = match made {
                        Ok(session) => Phase::Connected(session),
                        Err(dead) => Phase::Dead(dead),
                    };
                    self.changed.notify_all();
                }
            }
        }
    }

    /// Ends a session of which a connection has ended. Its number is past from now on.
    pub fn lose(&self, session: &Session, end: &End) {
        let mut state = self.state.lock();
        if state.number == session.number {
            state.number += 1;
            state.phase = match end {
                End::Lost(why) => Phase::Lost(why.clone()),
                End::Breach(why) => Phase::Dead(Dead::Breach(why.clone())),
            };
        }
        drop(state);
        session.end(end);
    }

    /// Gives the export up.
    pub fn give_up(&self, why: &str) -> Error {
        let mut state = self.state.lock();
        let ended = match &state.phase {
            Phase::Connected(session) => Some(session.clone()),
            _ => None,
        };
        let dead = Dead::Lost(why.to_owned());
        if !matches!(state.phase, Phase::Connecting | Phase::Dead(_)) {
            state.phase = Phase::Dead(dead.clone());
            state.number += 1;
        }
        drop(state);
        if let Some(session) = ended {
            session.end(&End::Lost(why.to_owned()));
        }
        self.died(dead)
    }

    /// Ends the connections in order.
    pub fn close(&self) {
        let session = match &self.state.lock().phase {
            Phase::Connected(session) => session.clone(),
            _ => return,
        };
        let connections = session.connections.lock().all.clone();
        connections.iter().for_each(|connection| connection.disconnect());
    }

    /// The unflushed writes.
    pub fn unflushed(&self) -> UnflushedGuard<'_> {
        UnflushedGuard(self.state.lock())
    }

    /// The unflushed writes, if `session` is still the current one: what it has answered holds.
    pub fn unflushed_of(&self, session: &Session) -> Option<UnflushedGuard<'_>> {
        let state = self.state.lock();
        (state.number == session.number).then_some(UnflushedGuard(state))
    }

    fn died(&self, dead: Dead) -> Error {
        let export = self.uri.to_string();
        match dead {
            Dead::Lost(reason) => Error::Lost { export, reason },
            Dead::Breach(reason) => Error::Protocol { export, reason },
        }
    }

    /// Connects again and repeats the unflushed writes.
    fn reconnect(&self, number: u64, repeated: &[(u64, Filling)], why: &str) -> Result<Arc<Session>, Dead> {
        let begun = Monotonic::now();
        let limit = self.uri.reconnect.unwrap_or(self.options.reconnect);
        let mut backoff = BACKOFF_FIRST;
        loop {
            let last = match self.connect_again(number, repeated) {
                Ok(session) => return Ok(session),
                Err(Failed::Ended(End::Breach(why))) => return Err(Dead::Breach(why)),
                Err(Failed::Ended(End::Lost(why))) => why,
                Err(Failed::Refused(errno, message)) => {
                    let refused = format!("a repeated write fails with error {errno} {message}");
                    return Err(Dead::Lost(refused));
                }
            };
            if begun.elapsed() >= limit {
                let limit = limit.as_secs();
                return Err(Dead::Lost(format!("{why}; no other one in {limit} s: {last}; gave up")));
            }
            sleep(backoff);
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    fn connect_again(&self, number: u64, repeated: &[(u64, Filling)]) -> Result<Arc<Session>, Failed> {
        let lost = |error: Error| End::Lost(error.to_string());
        let (receiver, sender, agreed) = connect(&self.uri, self.options.timeout).map_err(lost)?;
        if !self.agreed.goes_on_as(&agreed) {
            return Err(End::Breach("the export has changed while the connection was lost".into()).into());
        }
        let connection = Connection::new(receiver, sender, agreed.structured);
        repeat(&connection, repeated, &self.agreed)?;
        Ok(Arc::new(Session::new(number, agreed, self.options, connection)))
    }
}

/// Writes again what was written before, with several requests in flight.
fn repeat(connection: &Connection, repeated: &[(u64, Filling)], agreed: &Agreed) -> Result<(), Failed> {
    let mut in_flight: std::collections::VecDeque<Ticket> = std::collections::VecDeque::new();
    for (offset, filling) in repeated {
        let mut done = 0;
        while done < filling.bytes() {
            if in_flight.len() == REPEATED_IN_FLIGHT_MAX
                && let Some(first) = in_flight.pop_front()
            {
                connection.wait(first, &mut [])?;
            }
            let (command, most) = match filling {
                Filling::Bytes(_) => (command::WRITE, u64::from(agreed.payload_bytes_max)),
                Filling::Zeroes(_) => (command::WRITE_ZEROES, ZEROED_BYTES_MAX),
            };
            let bytes = (filling.bytes() - done).min(most);
            let payload = match filling {
                Filling::Bytes(all) => &all[done as usize..(done + bytes) as usize],
                Filling::Zeroes(_) => &[],
            };
            let expected = Expected { command, offset: offset + done, bytes: bytes as u32 };
            in_flight.push_back(connection.send(0, expected, &[std::io::IoSlice::new(payload)])?);
            done += bytes;
        }
    }
    in_flight.into_iter().try_for_each(|ticket| connection.wait(ticket, &mut []))
}

/// The unflushed writes, locked.
#[derive(Debug)]
pub struct UnflushedGuard<'e>(MutexGuard<'e, State>);

impl std::ops::Deref for UnflushedGuard<'_> {
    type Target = Unflushed;
    fn deref(&self) -> &Unflushed {
        &self.0.unflushed
    }
}

impl std::ops::DerefMut for UnflushedGuard<'_> {
    fn deref_mut(&mut self) -> &mut Unflushed {
        &mut self.0.unflushed
    }
}
