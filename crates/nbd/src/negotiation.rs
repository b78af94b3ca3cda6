//! The client's side of the negotiation: from a connected socket to an export that takes requests.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::time::Duration;

use crate::stream::{Receiver, Sender, Socket, split};
use crate::tls::Tls;
use crate::wire::{
    Fields, INIT_MAGIC, OLDSTYLE_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, PAYLOAD_BYTES_DEFAULT, export,
    handshake, info, option, option_reply,
};
use crate::{Error, Uri};

/// Most bytes of a reply to an option: two strings and numbers.
const REPLY_BYTES_MAX: usize = 3 * crate::wire::STRING_BYTES_MAX;
/// Most replies to one option.
const REPLIES_MAX: usize = 64;
/// Largest unit of addresses that a server may ask for.
const BLOCK_BYTES_MAX: u32 = 64 << 10;
/// Most bytes of one request with a payload, also where the server takes more.
const REQUEST_BYTES_MAX: u32 = PAYLOAD_BYTES_DEFAULT;
/// How long the whole negotiation may take.
const NEGOTIATION_TIME_MAX: Duration = Duration::from_secs(30);

/// What was agreed on about an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Its size in bytes.
    pub bytes: u64,
    /// The transmission flags.
    pub flags: u16,
    /// Whether reads are answered in chunks.
    pub structured: bool,
    /// Offsets and lengths are multiples of it.
    pub block_bytes: u32,
    /// Most bytes of a read or write.
    pub payload_bytes_max: u32,
}

impl Agreed {
    /// Whether a transmission flag is set.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether requests that were made for `self` can be sent after a new negotiation with this outcome.
    pub fn goes_on_as(&self, new: &Self) -> bool {
        let can = export::SEND_FLUSH
            | export::SEND_FUA
            | export::SEND_TRIM
            | export::SEND_WRITE_ZEROES
            | export::CAN_MULTI_CONN;
        new.bytes == self.bytes
            && self.flags & can & !new.flags == 0
            && new.flags & export::READ_ONLY & !self.flags == 0
            && new.block_bytes <= self.block_bytes
            && new.payload_bytes_max >= self.payload_bytes_max
    }
}

/// Connects to the export and negotiates. No answer for `timeout` is an error.
pub fn connect(uri: &Uri, timeout: Duration) -> Result<(Receiver, Sender, Agreed), Error> {
    let unreachable = |source| Error::Unreachable { export: uri.to_string(), source };
    let socket = Socket::connect(&uri.transport, timeout).map_err(unreachable)?;
    socket.set_timeout(Some(timeout)).map_err(unreachable)?;
    let (receiver, sender) = split(socket);
    let mut negotiation = Negotiation { uri, receiver, sender };
    negotiation.receiver.set_deadline(Some(NEGOTIATION_TIME_MAX));
    match negotiation.run() {
        Ok(agreed) => {
            negotiation.receiver.set_deadline(None);
            Ok((negotiation.receiver, negotiation.sender, agreed))
        }
        Err(error) => {
            negotiation.receiver.socket().shutdown(Shutdown::Both);
            Err(error)
        }
    }
}

struct Negotiation<'u> {
    uri: &'u Uri,
    receiver: Receiver,
    sender: Sender,
}

/// The end of the replies to an option.
enum Answer {
    Acknowledged,
    /// The server does not know the option.
    Unsupported,
    /// The server refuses it, for this reason.
    Refused(String),
}

impl Negotiation<'_> {
    fn run(&mut self) -> Result<Agreed, Error> {
        let flags = self.greet()?;
        if self.uri.tls {
            self.start_tls()?;
        }
        let structured = matches!(self.ask(option::STRUCTURED_REPLY, &[])?, Answer::Acknowledged);
        let mut agreed = match self.go()? {
            Some(agreed) => agreed,
            None => self.name_export(flags & handshake::NO_ZEROES != 0)?,
        };
        agreed.structured = structured;
        self.check(agreed)
    }

    fn breach(&self, reason: impl Into<String>) -> Error {
        Error::Protocol { export: self.uri.to_string(), reason: reason.into() }
    }

    fn refused(&self, reason: impl Into<String>) -> Error {
        Error::Refused { export: self.uri.to_string(), reason: reason.into() }
    }

    fn received<T>(&self, received: io::Result<T>) -> Result<T, Error> {
        received.map_err(|source| Error::Unreachable { export: self.uri.to_string(), source })
    }

    fn u64(&mut self) -> Result<u64, Error> {
        let bytes = self.receiver.array();
        self.received(bytes).map(u64::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        let bytes = self.receiver.array();
        self.received(bytes).map(u32::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, Error> {
        let bytes = self.receiver.array();
        self.received(bytes).map(u16::from_be_bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let sent = self.sender.send(&mut [IoSlice::new(bytes)]);
        self.received(sent)
    }

    /// Reads the server's greeting and answers it; its flags.
    fn greet(&mut self) -> Result<u16, Error> {
        if self.u64()? != INIT_MAGIC {
            return Err(self.breach("not a server of network block devices"));
        }
        match self.u64()? {
            OPTION_MAGIC => {}
            OLDSTYLE_MAGIC => return Err(self.breach("oldstyle negotiation, which knows no exports by name")),
            _ => return Err(self.breach("unknown negotiation")),
        }
        let flags = self.u16()?;
        if flags & handshake::FIXED_NEWSTYLE == 0 {
            return Err(self.breach("the server lacks fixed newstyle negotiation"));
        }
        let known = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
        self.send(&u32::from(flags & known).to_be_bytes())?;
        Ok(flags)
    }

    /// Has the connection encrypted, or fails.
    fn start_tls(&mut self) -> Result<(), Error> {
        let failed = |reason| Error::Tls { export: self.uri.to_string(), reason };
        // Before the server is bothered.
        let tls = Tls::client(self.uri).map_err(failed)?;
        match self.ask(option::STARTTLS, &[])? {
            Answer::Acknowledged => {}
            Answer::Unsupported => return Err(failed("the server has none".into())),
            Answer::Refused(reason) => return Err(failed(format!("the server has none: {reason}"))),
        }
        let started = self.receiver.start_tls(&mut self.sender, tls);
        started.map_err(|error| failed(error.to_string()))
    }

    fn send_option(&mut self, option: u32, payload: &[u8]) -> Result<(), Error> {
        let mut message = OPTION_MAGIC.to_be_bytes().to_vec();
        message.extend(option.to_be_bytes());
        message.extend((payload.len() as u32).to_be_bytes());
        message.extend(payload);
        self.send(&message)
    }

    /// The next reply to an option: its type and payload.
    fn reply(&mut self, option: u32) -> Result<(u32, Vec<u8>), Error> {
        if self.u64()? != OPTION_REPLY_MAGIC || self.u32()? != option {
            return Err(self.breach(format!("no reply to option {option}")));
        }
        let (kind, bytes) = (self.u32()?, self.u32()? as usize);
        if bytes > REPLY_BYTES_MAX {
            return Err(self.breach(format!("a reply of {bytes} bytes to option {option}")));
        }
        let payload = self.receiver.vec(bytes);
        Ok((kind, self.received(payload)?))
    }

    /// Sends an option and reads its replies; what is not its end is passed to `each`.
    fn ask_each(
        &mut self,
        option: u32,
        payload: &[u8],
        mut each: impl FnMut(&Self, u32, &[u8]) -> Result<(), Error>,
    ) -> Result<Answer, Error> {
        self.send_option(option, payload)?;
        for _ in 0..REPLIES_MAX {
            let (kind, payload) = self.reply(option)?;
            match kind {
                option_reply::ACK => return Ok(Answer::Acknowledged),
                option_reply::UNSUPPORTED => return Ok(Answer::Unsupported),
                kind if kind & option_reply::ERROR != 0 => {
                    return Ok(Answer::Refused(refusal(kind, &payload)));
                }
                kind => each(self, kind, &payload)?,
            }
        }
        Err(self.breach(format!("more than {REPLIES_MAX} replies to option {option}")))
    }

    fn ask(&mut self, option: u32, payload: &[u8]) -> Result<Answer, Error> {
        self.ask_each(option, payload, |_, _, _| Ok(()))
    }

    /// Chooses the export and begins transmission; none if the server does not know the option.
    fn go(&mut self) -> Result<Option<Agreed>, Error> {
        let name = self.uri.export.as_bytes();
        let mut payload = (name.len() as u32).to_be_bytes().to_vec();
        payload.extend(name);
        payload.extend(1_u16.to_be_bytes());
        payload.extend(info::BLOCK_SIZE.to_be_bytes());
        let (mut of_export, mut sizes) = (None, None);
        let answer = self.ask_each(option::GO, &payload, |this, kind, payload| {
            let mut fields = Fields::new(payload);
            let short = || this.breach("information that ends too early");
            if kind != option_reply::INFO {
                return Err(this.breach(format!("reply {kind} to the choice of an export")));
            }
            match fields.u16().ok_or_else(short)? {
                info::EXPORT => {
                    of_export = Some((fields.u64().ok_or_else(short)?, fields.u16().ok_or_else(short)?));
                }
                info::BLOCK_SIZE => {
                    let least = fields.u32().ok_or_else(short)?;
                    fields.u32().ok_or_else(short)?;
                    sizes = Some((least, fields.u32().ok_or_else(short)?));
                }
                _ => {}
            }
            Ok(())
        })?;
        match answer {
            Answer::Acknowledged => {}
            Answer::Unsupported => return Ok(None),
            Answer::Refused(reason) => return Err(self.refused(reason)),
        }
        let (bytes, flags) = of_export.ok_or_else(|| self.breach("the size of the export is missing"))?;
        let (block_bytes, payload_bytes_max) = sizes.unwrap_or((1, PAYLOAD_BYTES_DEFAULT));
        Ok(Some(Agreed { bytes, flags, structured: false, block_bytes, payload_bytes_max }))
    }

    /// Chooses the export in the old way: the server ends the connection if it refuses.
    fn name_export(&mut self, no_zeroes: bool) -> Result<Agreed, Error> {
        let name = self.uri.export.clone();
        self.send_option(option::EXPORT_NAME, name.as_bytes())?;
        let (bytes, flags) = (self.u64()?, self.u16()?);
        if !no_zeroes {
            let zeroes = self.receiver.vec(124);
            self.received(zeroes)?;
        }
        let (block_bytes, payload_bytes_max) = (1, PAYLOAD_BYTES_DEFAULT);
        Ok(Agreed { bytes, flags, structured: false, block_bytes, payload_bytes_max })
    }

    /// That requests can be made as the server wants them.
    fn check(&self, mut agreed: Agreed) -> Result<Agreed, Error> {
        if i64::try_from(agreed.bytes).is_err() {
            return Err(self.breach(format!("an export of {} bytes", agreed.bytes)));
        }
        if !agreed.block_bytes.is_power_of_two() || agreed.block_bytes > BLOCK_BYTES_MAX {
            return Err(self.breach(format!("a least block of {} bytes", agreed.block_bytes)));
        }
        if agreed.payload_bytes_max < agreed.block_bytes {
            return Err(self.breach(format!("a largest request of {} bytes", agreed.payload_bytes_max)));
        }
        agreed.payload_bytes_max = agreed.payload_bytes_max.min(REQUEST_BYTES_MAX);
        agreed.payload_bytes_max -= agreed.payload_bytes_max % agreed.block_bytes;
        agreed.bytes -= agreed.bytes % u64::from(agreed.block_bytes);
        if !agreed.has(export::HAS_FLAGS) {
            agreed.flags = 0;
        }
        Ok(agreed)
    }
}

/// An error reply to an option in words.
fn refusal(kind: u32, message: &[u8]) -> String {
    let what = match kind {
        option_reply::POLICY => "forbidden by its policy",
        option_reply::INVALID => "invalid request",
        option_reply::PLATFORM => "not possible on its platform",
        option_reply::TLS_REQUIRED => "it wants TLS; use nbds://",
        option_reply::UNKNOWN => "no such export",
        option_reply::SHUTDOWN => "it is shutting down",
        option_reply::BLOCK_SIZE_REQUIRED => "it wants sizes of blocks to be agreed on",
        option_reply::TOO_BIG => "the request is too large",
        _ => "an error without a name",
    };
    let message = printable(message);
    if message.is_empty() { what.to_owned() } else { format!("{what}: {message}") }
}

/// What a server says to people, on one line and without control characters.
pub fn printable(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    text.trim().chars().take(400).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
