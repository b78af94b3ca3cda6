//! The bytes of an archive: a file or a stream, unpacked on the way if need be.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use super::BLOCK;
use crate::error::{Error, Result};
use crate::flow::PIECE_BYTES;

/// Bytes read from the host at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Bytes that identify the kind of compression.
const MAGIC_BYTES: usize = 6;

/// Where an archive comes from.
pub struct Input {
    source: InputSource,
    offset: u64,
}

enum InputSource {
    /// Bytes that are not wanted are stepped over.
    File {
        reader: BufReader<File>,
        bytes: u64,
    },
    Stream(Box<dyn Read + Send>),
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl Input {
    /// An archive in an open file, from its start; gzip and Zstandard are unpacked.
    ///
    /// # Errors
    /// [`Error::Stream`] if it cannot be read or is packed in another way.
    pub fn file(mut file: File) -> Result<Self> {
        io::Seek::rewind(&mut file).map_err(Error::Stream)?;
        let found = file.metadata().map_err(Error::Stream)?;
        let magic = magic(&mut file).map_err(Error::Stream)?;
        io::Seek::rewind(&mut file).map_err(Error::Stream)?;
        let reader = BufReader::with_capacity(BUFFER_BYTES, file);
        let source = match unpack(&magic, reader)? {
            Unpacked::Plain(reader) if found.is_file() => InputSource::File { reader, bytes: found.len() },
            Unpacked::Plain(reader) => InputSource::Stream(Box::new(reader)),
            Unpacked::Packed(reader) => InputSource::Stream(reader),
        };
        Ok(Self { source, offset: 0 })
    }

    /// An archive from a pipe or anything else that is read once; gzip and Zstandard are unpacked.
    ///
    /// # Errors
    /// As [`Input::file`].
    pub fn stream(mut reader: impl Read + Send + 'static) -> Result<Self> {
        let magic = magic(&mut reader).map_err(Error::Stream)?;
        let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(magic.clone()).chain(reader));
        let source = match unpack(&magic, whole)? {
            Unpacked::Plain(reader) => InputSource::Stream(Box::new(reader)),
            Unpacked::Packed(reader) => InputSource::Stream(reader),
        };
        Ok(Self { source, offset: 0 })
    }

    /// Whether it can be read a second time by opening it again, at no great cost.
    #[must_use]
    pub fn is_plain_file(&self) -> bool {
        matches!(self.source, InputSource::File { .. })
    }

    /// Copies all of it, unpacked, into a file without a name in the directory of `beside`.
    ///
    /// # Errors
    /// [`Error::Stream`], [`Error::Host`].
    pub fn spool(mut self, beside: &Path) -> Result<File> {
        let directory =
            beside.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = unnamed_file(directory).map_err(Error::host(directory))?;
        let mut piece = vec![0; BUFFER_BYTES];
        loop {
            let read = match self.reader().read(&mut piece) {
                Ok(0) => return Ok(file),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::Stream(error)),
            };
            io::Write::write_all(&mut file, &piece[..read]).map_err(Error::host(directory))?;
        }
    }

    /// Bytes read so far, unpacked.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    fn reader(&mut self) -> &mut dyn Read {
        match &mut self.source {
            InputSource::File { reader, .. } => reader,
            InputSource::Stream(reader) => reader,
        }
    }

    /// The next block; none at the end.
    pub(super) fn block(&mut self) -> Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.reader().read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(self.cut_off()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Stream(error)),
            }
        }
        self.offset += BLOCK as u64;
        Ok(Some(block))
    }

    /// Exactly `bytes` bytes. Memory grows with the bytes that exist, not with the length
    /// requested.
    pub(super) fn take(&mut self, bytes: u64) -> Result<Vec<u8>> {
        let mut taken = Vec::with_capacity(bytes.min(PIECE_BYTES as u64) as usize);
        self.reader().take(bytes).read_to_end(&mut taken).map_err(Error::Stream)?;
        self.offset += taken.len() as u64;
        if taken.len() as u64 == bytes { Ok(taken) } else { Err(self.cut_off()) }
    }

    /// Steps over `bytes` bytes.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<()> {
        match &mut self.source {
            InputSource::File { reader, bytes: file_bytes } => {
                let end = self.offset.checked_add(bytes).filter(|end| *end <= *file_bytes);
                let (Some(end), Ok(step)) = (end, i64::try_from(bytes)) else { return Err(self.cut_off()) };
                reader.seek_relative(step).map_err(Error::Stream)?;
                self.offset = end;
            }
            InputSource::Stream(reader) => {
                let skipped = io::copy(&mut reader.take(bytes), &mut io::sink()).map_err(Error::Stream)?;
                self.offset += skipped;
                if skipped < bytes {
                    return Err(self.cut_off());
                }
            }
        }
        Ok(())
    }

    /// Reads a stream to its end, so that the program that writes it is not interrupted.
    pub(super) fn drain(&mut self) -> Result<()> {
        match &mut self.source {
            InputSource::File { .. } => Ok(()),
            InputSource::Stream(reader) => io::copy(reader, &mut io::sink()).map(drop).map_err(Error::Stream),
        }
    }

    /// The error that the archive breaks off here.
    fn cut_off(&self) -> Error {
        Error::Format { offset: self.offset, reason: "the archive is cut off" }
    }
}

fn magic(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut magic = Vec::new();
    reader.take(MAGIC_BYTES as u64).read_to_end(&mut magic)?;
    Ok(magic)
}

enum Unpacked<R> {
    Plain(R),
    Packed(Box<dyn Read + Send>),
}

fn unpack<R: Read + Send + 'static>(magic: &[u8], reader: BufReader<R>) -> Result<Unpacked<BufReader<R>>> {
    let refused = |what: &str| {
        let text = format!("packed with {what}, which is not unpacked here: pipe it through {what} -dc");
        Err(Error::Stream(io::Error::new(io::ErrorKind::Unsupported, text)))
    };
    match magic {
        [0x1f, 0x8b, ..] => {
            let unpacked = flate2::bufread::MultiGzDecoder::new(reader);
            Ok(Unpacked::Packed(Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let unpacked = Frames { reader: Some(reader), decoder: None };
            Ok(Unpacked::Packed(Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))))
        }
        b"\xfd7zXZ\0" => refused("xz"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => refused("bzip2"),
        _ => Ok(Unpacked::Plain(reader)),
    }
}

/// Zstandard frames one after the other, as parallel compressors write them.
struct Frames<R: Read> {
    /// The input between two frames; none while a frame is unpacked.
    reader: Option<BufReader<R>>,
    decoder: Option<ruzstd::decoding::StreamingDecoder<BufReader<R>, ruzstd::decoding::FrameDecoder>>,
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(decoder) = &mut self.decoder {
                let read = decoder.read(buf)?;
                if read > 0 || buf.is_empty() {
                    return Ok(read);
                }
                self.reader = self.decoder.take().map(ruzstd::decoding::StreamingDecoder::into_inner);
            }
            let Some(mut reader) = self.reader.take() else { return Ok(0) };
            if io::BufRead::fill_buf(&mut reader)?.is_empty() {
                return Ok(0);
            }
            let decoder = ruzstd::decoding::StreamingDecoder::new(reader)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            self.decoder = Some(decoder);
        }
    }
}

/// A file that goes when it is closed.
fn unnamed_file(directory: &Path) -> io::Result<File> {
    let mut number = 0_u32;
    loop {
        let path = directory.join(format!(".extant-spool-{number}"));
        match File::options().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number = number.wrapping_add(1),
            Err(error) => return Err(error),
        }
    }
}
