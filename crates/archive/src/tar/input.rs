//! The bytes of an archive: a file or a stream, unpacked on the way if need be.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::BLOCK;
use crate::error::{Error, Result};
use crate::flow::PIECE_BYTES;
use crate::packing::{BUFFER_BYTES, Unpacked, is_packed, unpack};
use crate::window::Window;

/// Where an archive comes from.
pub struct Input {
    source: InputSource,
    offset: u64,
}

enum InputSource {
    /// Bytes that are not wanted are stepped over.
    File {
        reader: BufReader<Window>,
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
    /// An archive in an open file, from its start; what gzip, Zstandard, xz or bzip2 packed is unpacked.
    ///
    /// # Errors
    /// [`Error::Stream`] if it cannot be read.
    pub fn file(file: File) -> Result<Self> {
        if !file.metadata().map_err(Error::Stream)?.is_file() {
            return Self::stream(file);
        }
        let window = Window::whole(file).map_err(Error::Stream)?;
        if is_packed(window.clone()).map_err(Error::Stream)? {
            return Self::stream(window);
        }
        Ok(Self::window(window))
    }

    /// An archive from a pipe or anything else that is read once; unpacked as by [`Input::file`].
    ///
    /// # Errors
    /// As [`Input::file`].
    pub fn stream(reader: impl Read + Send + 'static) -> Result<Self> {
        let reader: Box<dyn Read + Send> = match unpack(reader).map_err(Error::Stream)? {
            Unpacked::Plain(reader) => Box::new(reader),
            Unpacked::Packed(reader) => reader,
        };
        Ok(Self { source: InputSource::Stream(reader), offset: 0 })
    }

    /// An archive that is not packed.
    pub(crate) fn window(window: Window) -> Self {
        let (window, bytes) = (window.rewound(), window.size());
        let reader = BufReader::with_capacity(BUFFER_BYTES, window);
        Self { source: InputSource::File { reader, bytes }, offset: 0 }
    }

    /// Whether it can be read a second time by opening it again, at no great cost.
    #[must_use]
    pub fn is_plain_file(&self) -> bool {
        matches!(self.source, InputSource::File { .. })
    }

    /// The first `bytes` bytes, or all if it has less; they are read again.
    pub(crate) fn peek(&mut self, bytes: u64) -> Result<Vec<u8>> {
        let mut start = Vec::new();
        self.reader().take(bytes).read_to_end(&mut start).map_err(Error::Stream)?;
        match &mut self.source {
            InputSource::File { reader, .. } => io::Seek::rewind(reader).map_err(Error::Stream)?,
            InputSource::Stream(reader) => {
                let rest = std::mem::replace(reader, Box::new(io::empty()));
                *reader = Box::new(io::Cursor::new(start.clone()).chain(rest));
            }
        }
        Ok(start)
    }

    /// Copies all of it, unpacked, into a file without a name in `directory`.
    ///
    /// # Errors
    /// [`Error::Stream`], [`Error::Host`].
    pub fn spool(mut self, directory: &Path) -> Result<File> {
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

/// A file that goes when it is closed.
pub(crate) fn unnamed_file(directory: &Path) -> io::Result<File> {
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
