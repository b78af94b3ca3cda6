//! Single files without positions: standard input and output, pipes, devices.
//!
//! The length of a stream is not known beforehand: its entry has a size of 0, and the content follows.
//!
//! Test: `tests/stream.rs`.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use crate::entry::{Attributes, Entry, EntryKind, Shape};
use crate::error::{Error, Result};
use crate::flow::{Extent, PIECE_BYTES, Sink, Source};
use crate::path::TreePath;

/// Reads a stream to its end, as one regular file.
#[derive(Debug)]
pub struct StreamReader<R> {
    input: R,
    name: PathBuf,
    at: TreePath,
    attributes: Attributes,
}

impl<R: Read> StreamReader<R> {
    /// The stream `input`, which errors call `name`, as the file `at` with these attributes.
    pub fn new(input: R, name: impl Into<PathBuf>, at: TreePath, attributes: Attributes) -> Self {
        Self { input, name: name.into(), at, attributes }
    }
}

impl<R: Read> Source for StreamReader<R> {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        let (path, attributes) = (self.at.clone(), self.attributes.clone());
        sink.entry(Entry { path, kind: EntryKind::File(Shape::default()), attributes })?;
        if extent == Extent::Entries {
            return sink.finish();
        }
        let mut offset = 0;
        loop {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let read = self.input.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece);
            let read = read.map_err(Error::host(&self.name))?;
            if read == 0 {
                break;
            }
            sink.content(offset, piece)?;
            offset += read as u64;
        }
        sink.finish()
    }
}

/// Writes one regular file to a stream, holes as zeroes.
#[derive(Debug)]
pub struct StreamWriter<W> {
    out: W,
    name: PathBuf,
    position: u64,
    /// The size of the file, once its entry has come.
    size: Option<u64>,
}

impl<W: Write> StreamWriter<W> {
    /// Writes to `out`, which errors call `name`.
    pub fn new(out: W, name: impl Into<PathBuf>) -> Self {
        Self { out, name: name.into(), position: 0, size: None }
    }

    /// Writes zeroes up to `end`.
    fn fill(&mut self, end: u64) -> Result<()> {
        let wanted = end.saturating_sub(self.position);
        self.position += wanted;
        io::copy(&mut io::repeat(0).take(wanted), &mut self.out).map(drop).map_err(Error::host(&self.name))
    }
}

impl<W: Write> Sink for StreamWriter<W> {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        let reason = "one regular file goes to a stream, and no tree";
        match entry.kind {
            EntryKind::File(shape) if self.size.is_none() => self.size = Some(shape.size),
            _ => return Err(Error::Refused { path: entry.path, reason }),
        }
        Ok(())
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.fill(offset)?;
        self.out.write_all(&bytes).map_err(Error::host(&self.name))?;
        self.position += bytes.len() as u64;
        Ok(bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.fill(self.size.unwrap_or(0))?;
        self.out.flush().map_err(Error::host(&self.name))
    }
}
