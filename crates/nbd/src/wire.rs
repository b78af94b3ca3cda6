//! The numbers of the protocol and the forms of its messages.

/// Begins what a server sends: `NBDMAGIC`.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Follows it in newstyle negotiation, and begins each option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Follows it in oldstyle negotiation.
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// Begins the reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Bytes of a request without its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of the shortest reply, a simple one without a payload.
pub const REPLY_BYTES_LEAST: usize = 16;
/// Most bytes of a string of the protocol.
pub const STRING_BYTES_MAX: usize = 4096;
/// Most bytes of a payload where a server names no limit.
pub const PAYLOAD_BYTES_DEFAULT: u32 = 32 << 20;

/// Flags of the handshake, both of the server and of the client.
pub mod handshake {
    pub const FIXED_NEWSTYLE: u16 = 1;
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options of the negotiation.
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
}

/// Replies to options.
pub mod option_reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const ERROR: u32 = 1 << 31;
    pub const UNSUPPORTED: u32 = ERROR + 1;
    pub const POLICY: u32 = ERROR + 2;
    pub const INVALID: u32 = ERROR + 3;
    pub const PLATFORM: u32 = ERROR + 4;
    pub const TLS_REQUIRED: u32 = ERROR + 5;
    pub const UNKNOWN: u32 = ERROR + 6;
    pub const SHUTDOWN: u32 = ERROR + 7;
    pub const BLOCK_SIZE_REQUIRED: u32 = ERROR + 8;
    pub const TOO_BIG: u32 = ERROR + 9;
}

/// Kinds of information about an export.
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export is and can do.
pub mod export {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Requests.
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISCONNECT: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
}

/// Flags of requests.
pub mod command_flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
}

/// Chunks of structured replies.
pub mod chunk {
    pub const DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const ERROR_BIT: u16 = 1 << 15;
    pub const ERROR: u16 = ERROR_BIT + 1;
}

/// Error numbers of replies.
pub mod errno {
    pub const EPERM: u32 = 1;
    pub const EIO: u32 = 5;
    pub const ENOMEM: u32 = 12;
    pub const EINVAL: u32 = 22;
    pub const ENOSPC: u32 = 28;
    pub const EOVERFLOW: u32 = 75;
    pub const ENOTSUP: u32 = 95;
}

/// A request without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub flags: u16,
    pub command: u16,
    pub cookie: u64,
    pub offset: u64,
    pub bytes: u32,
}

impl Request {
    /// As it is sent.
    pub fn encode(self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    /// As it was sent; none without the magic number.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        let magic = fields.u32()?;
        let request = Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            bytes: fields.u32()?,
        };
        (magic == REQUEST_MAGIC).then_some(request)
    }
}

/// Takes numbers and strings from the front of a message; none where it ends too early.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'m>(&'m [u8]);

impl<'m> Fields<'m> {
    /// All of a message.
    pub fn new(message: &'m [u8]) -> Self {
        Self(message)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'m [u8]> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_read_as_it_was_written() {
        let request = Request { flags: 1, command: 6, cookie: 7 << 40, offset: 1 << 50, bytes: 4096 };
        let mut bytes = request.encode();
        assert_eq!(Request::decode(&bytes), Some(request));
        bytes[0] ^= 1;
        assert_eq!(Request::decode(&bytes), None);
    }

    #[test]
    fn fields_end_where_the_message_ends() {
        let mut fields = Fields::new(&[0, 1, 0, 0, 0, 2, b'x']);
        assert_eq!((fields.u16(), fields.u32(), fields.u16()), (Some(1), Some(2), None));
        assert_eq!((fields.bytes(2), fields.bytes(1)), (None, Some(&b"x"[..])));
    }
}
