//! Streams packed with gzip, Zstandard, xz or bzip2, recognised by their first bytes.
//!
//! What a stream declares about the memory that unpacking takes is checked before it is taken.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes read from the host at once.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// Bytes that identify the kind of compression.
const MAGIC_BYTES: usize = 6;

/// Memory for unpacking xz, as much as the largest of its presets takes.
const XZ_MEMORY_KIB_MAX: u32 = 66 << 10;

/// A stream whose packing is known.
pub(crate) enum Unpacked<R> {
    /// It is not packed.
    Plain(BufReader<Whole<R>>),
    /// It is unpacked on the way.
    Packed(Box<dyn Read + Send>),
}

/// A reader and the bytes that were read from it to recognise its packing.
pub(crate) type Whole<R> = io::Chain<Cursor<Vec<u8>>, R>;

/// The program whose packing begins with `magic`, of which six bytes suffice.
#[must_use]
pub fn packing_of(magic: &[u8]) -> Option<&'static str> {
    Some(match magic {
        [0x1f, 0x8b, ..] => "gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => "xz",
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => "bzip2",
        _ => return None,
    })
}

/// What `reader` packs with gzip, Zstandard, xz or bzip2, or else all that it reads; with the program that packed it.
///
/// # Errors
/// The reader's own, also while the result is read, and `InvalidData` for what is damaged or wants too much memory.
pub fn unpacked(
    mut reader: impl Read + Send + 'static,
) -> io::Result<(Option<&'static str>, Box<dyn Read + Send>)> {
    let mut magic = Vec::new();
    (&mut reader).take(MAGIC_BYTES as u64).read_to_end(&mut magic)?;
    let program = packing_of(&magic);
    Ok(match unpack(Cursor::new(magic).chain(reader))? {
        Unpacked::Plain(reader) => (None, Box::new(reader)),
        Unpacked::Packed(reader) => (program, reader),
    })
}

/// Recognises how `reader` is packed, from its start.
pub(crate) fn unpack<R: Read + Send + 'static>(mut reader: R) -> io::Result<Unpacked<R>> {
    let mut magic = Vec::new();
    (&mut reader).take(MAGIC_BYTES as u64).read_to_end(&mut magic)?;
    let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(magic.clone()).chain(reader));
    let unpacked: Box<dyn Read + Send> = match packing_of(&magic) {
        Some("gzip") => Box::new(flate2::bufread::MultiGzDecoder::new(whole)),
        Some("zstd") => Box::new(Frames { reader: whole, decoder: FrameDecoder::new(), is_in_frame: false }),
        Some("xz") => Box::new(lzma_rust2::XzReader::new_mem_limit(whole, true, XZ_MEMORY_KIB_MAX)),
        Some("bzip2") => Box::new(bzip2::bufread::MultiBzDecoder::new(whole)),
        _ => return Ok(Unpacked::Plain(whole)),
    };
    Ok(Unpacked::Packed(Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))))
}

/// Whether something unpacks `reader`, which is left anywhere.
pub(crate) fn is_packed(reader: impl Read + Send + 'static) -> io::Result<bool> {
    Ok(matches!(unpack(reader)?, Unpacked::Packed(_)))
}

/// Zstandard frames one after the other, as parallel compressors write them; frames to be skipped are.
struct Frames<R> {
    reader: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Frames<R> {
    /// Begins the next frame; whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.reader.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.reader) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut (&mut self.reader).take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(invalid(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_in_frame {
                self.is_in_frame = self.begin()?;
                if !self.is_in_frame {
                    return Ok(0);
                }
            }
            while self.decoder.can_collect() < buf.len() && !self.decoder.is_finished() {
                let wanted = buf.len() - self.decoder.can_collect();
                let strategy = BlockDecodingStrategy::UptoBytes(wanted);
                self.decoder.decode_blocks(&mut self.reader, strategy).map_err(invalid)?;
            }
            let read = self.decoder.read(buf)?;
            if read > 0 || buf.is_empty() {
                return Ok(read);
            }
            self.is_in_frame = false;
        }
    }
}

fn invalid(error: FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
