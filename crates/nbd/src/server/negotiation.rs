//! The server's side of the negotiation.

use std::io::{self, IoSlice};
use std::time::Duration;

use super::Server;
use crate::stream::{Receiver, Sender};
use crate::wire::{
    Fields, INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, PAYLOAD_BYTES_DEFAULT, STRING_BYTES_MAX, export,
    handshake, info, option, option_reply,
};

/// Most bytes of an option; a longer one ends the connection.
const OPTION_BYTES_MAX: usize = 4 * STRING_BYTES_MAX;
/// Most options of one client.
const OPTIONS_MAX: usize = 256;
/// How long the whole negotiation may take.
const NEGOTIATION_TIME_MAX: Duration = Duration::from_secs(30);
/// The size of blocks that is efficient.
const PREFERRED_BYTES: u32 = 4096;

/// A connection whose client has chosen the export.
pub struct Agreed {
    pub receiver: Receiver,
    pub sender: Sender,
    /// Whether reads are answered in chunks.
    pub structured: bool,
}

/// Negotiates; none if the client goes, or is sent away.
pub fn run(receiver: Receiver, sender: Sender, server: &Server) -> io::Result<Option<Agreed>> {
    let mut negotiation = Negotiation { receiver, sender, server, structured: false, is_encrypted: false };
    negotiation.receiver.socket().set_timeout(Some(NEGOTIATION_TIME_MAX))?;
    negotiation.receiver.set_deadline(Some(NEGOTIATION_TIME_MAX));
    if !negotiation.run()? {
        return Ok(None);
    }
    let Negotiation { mut receiver, sender, structured, .. } = negotiation;
    receiver.set_deadline(None);
    // A client may be idle for as long as it likes.
    receiver.socket().set_timeout(None)?;
    Ok(Some(Agreed { receiver, sender, structured }))
}

struct Negotiation<'s> {
    receiver: Receiver,
    sender: Sender,
    server: &'s Server,
    structured: bool,
    is_encrypted: bool,
}

/// The transmission flags of the export.
fn flags(server: &Server) -> u16 {
    let always = export::HAS_FLAGS | export::SEND_FLUSH | export::SEND_FUA | export::CAN_MULTI_CONN;
    always
        | match server.options.read_only {
            true => export::READ_ONLY,
            false => export::SEND_TRIM | export::SEND_WRITE_ZEROES,
        }
}

impl Negotiation<'_> {
    /// Whether transmission begins.
    fn run(&mut self) -> io::Result<bool> {
        let offered = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
        let mut greeting = INIT_MAGIC.to_be_bytes().to_vec();
        greeting.extend(OPTION_MAGIC.to_be_bytes());
        greeting.extend(offered.to_be_bytes());
        self.send(&greeting)?;
        let chosen = u32::from_be_bytes(self.receiver.array()?);
        if chosen & !u32::from(offered) != 0 {
            return Ok(false);
        }
        for _ in 0..OPTIONS_MAX {
            if u64::from_be_bytes(self.receiver.array()?) != OPTION_MAGIC {
                return Ok(false);
            }
            let option = u32::from_be_bytes(self.receiver.array()?);
            let bytes = u32::from_be_bytes(self.receiver.array()?) as usize;
            if bytes > OPTION_BYTES_MAX {
                return Ok(false);
            }
            let payload = self.receiver.vec(bytes)?;
            match option {
                option::STARTTLS => self.start_tls(&payload)?,
                option::EXPORT_NAME if self.wants_tls() => return Ok(false),
                option if self.wants_tls() && option != option::ABORT => {
                    self.reply(option, option_reply::TLS_REQUIRED, b"every connection must be encrypted")?;
                }
                option::EXPORT_NAME => {
                    return self.name_export(&payload, chosen & u32::from(handshake::NO_ZEROES) != 0);
                }
                option::ABORT => {
                    // The client need not wait for it.
                    let _ = self.reply(option, option_reply::ACK, &[]);
                    return Ok(false);
                }
                option::GO | option::INFO => {
                    if self.inform(option, &payload)? && option == option::GO {
                        return Ok(true);
                    }
                }
                option => self.answer(option, &payload)?,
            }
        }
        Ok(false)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sender.send(&mut [IoSlice::new(bytes)])
    }

    fn reply(&mut self, option: u32, kind: u32, payload: &[u8]) -> io::Result<()> {
        let mut message = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        message.extend(option.to_be_bytes());
        message.extend(kind.to_be_bytes());
        message.extend((payload.len() as u32).to_be_bytes());
        message.extend(payload);
        self.send(&message)
    }

    /// Whether the connection must be encrypted and is not yet.
    fn wants_tls(&self) -> bool {
        self.server.options.tls.is_some() && !self.is_encrypted
    }

    fn start_tls(&mut self, payload: &[u8]) -> io::Result<()> {
        let option = option::STARTTLS;
        let tls = match &self.server.options.tls {
            None => return self.reply(option, option_reply::UNSUPPORTED, &[]),
            Some(_) if self.is_encrypted || !payload.is_empty() => {
                return self.reply(option, option_reply::INVALID, &[]);
            }
            Some(tls) => tls.connection()?,
        };
        self.reply(option, option_reply::ACK, &[])?;
        self.receiver.start_tls(&mut self.sender, tls)?;
        self.is_encrypted = true;
        Ok(())
    }

    fn is_ours(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.server.options.export.as_bytes()
    }

    /// Begins transmission in the old way.
    fn name_export(&mut self, name: &[u8], no_zeroes: bool) -> io::Result<bool> {
        if !self.is_ours(name) {
            return Ok(false);
        }
        let mut message = self.server.device.size().to_be_bytes().to_vec();
        message.extend(flags(self.server).to_be_bytes());
        message.resize(message.len() + if no_zeroes { 0 } else { 124 }, 0);
        self.send(&message)?;
        Ok(true)
    }

    /// Informs about the export; whether it is the one that was asked for.
    fn inform(&mut self, option: u32, payload: &[u8]) -> io::Result<bool> {
        let mut fields = Fields::new(payload);
        let name = fields.u32().and_then(|bytes| fields.bytes(bytes as usize));
        let wants = fields.u16().and_then(|count| fields.bytes(usize::from(count) * 2));
        let (Some(name), Some(wants)) = (name, wants) else {
            self.reply(option, option_reply::INVALID, b"the option ends too early")?;
            return Ok(false);
        };
        if !self.is_ours(name) {
            self.reply(option, option_reply::UNKNOWN, b"no export of this name")?;
            return Ok(false);
        }
        let of_export = [
            &info::EXPORT.to_be_bytes()[..],
            &self.server.device.size().to_be_bytes(),
            &flags(self.server).to_be_bytes(),
        ];
        self.reply(option, option_reply::INFO, &of_export.concat())?;
        let sizes = [1, PREFERRED_BYTES, PAYLOAD_BYTES_DEFAULT].map(u32::to_be_bytes).concat();
        self.reply(option, option_reply::INFO, &[&info::BLOCK_SIZE.to_be_bytes()[..], &sizes].concat())?;
        if wants.chunks(2).any(|kind| kind == info::NAME.to_be_bytes()) {
            let name = [&info::NAME.to_be_bytes()[..], self.server.options.export.as_bytes()].concat();
            self.reply(option, option_reply::INFO, &name)?;
        }
        self.reply(option, option_reply::ACK, &[])?;
        Ok(true)
    }

    /// Answers an option after which the negotiation goes on.
    fn answer(&mut self, option: u32, payload: &[u8]) -> io::Result<()> {
        match option {
            option::STRUCTURED_REPLY | option::LIST if !payload.is_empty() => {
                self.reply(option, option_reply::INVALID, b"the option has no content")
            }
            option::STRUCTURED_REPLY => {
                self.structured = true;
                self.reply(option, option_reply::ACK, &[])
            }
            option::LIST => {
                let name = self.server.options.export.as_bytes();
                let server = [&(name.len() as u32).to_be_bytes()[..], name].concat();
                self.reply(option, option_reply::SERVER, &server)?;
                self.reply(option, option_reply::ACK, &[])
            }
            option => self.reply(option, option_reply::UNSUPPORTED, &[]),
        }
    }
}
