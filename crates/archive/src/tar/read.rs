//! Reads an archive, member by member.

use std::collections::BTreeMap;

use super::header::Header;
use super::input::Input;
use super::member::{Extensions, Member};
use super::pax::{self, Record};
use super::sparse::gnu_shape;
use super::{BLOCK, padding};
use crate::entry::{DataRange, Entry, EntryKind, Shape};
use crate::error::{Error, Result};
use crate::flow::{Extent, PIECE_BYTES, Sink, Source};
use crate::path::parse::PathReader;
use crate::user_database::UserDatabase;

/// Bytes of long names and extended headers before one member: far above what a path and the attributes of an inode take.
const EXTENSION_BYTES_MAX: u64 = 16 << 20;

/// Bytes of all records of global headers. Each member after them carries them; what writes them, as `git archive` does,
/// writes a comment of some 50 bytes.
const GLOBAL_BYTES_MAX: usize = 64 << 10;

/// An archive as a source. It can be poured once.
#[derive(Debug)]
pub struct TarReader {
    input: Input,
    /// Records of global headers, for every member after them, by keyword.
    global: BTreeMap<Vec<u8>, Vec<u8>>,
    names: UserDatabase,
    paths: PathReader,
    /// The ranges of the last member whose content was not read, and the bytes of the archive up to the next header.
    ranges: Vec<DataRange>,
    unread: u64,
}

impl Source for TarReader {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        while let Some(entry) = self.next_member()? {
            sink.entry(entry)?;
            if extent == Extent::Everything {
                self.content(sink)?;
            }
        }
        sink.finish()
    }
}

impl TarReader {
    /// Reads the archive in `input`.
    #[must_use]
    pub fn new(input: Input) -> Self {
        Self {
            input,
            global: BTreeMap::new(),
            names: UserDatabase::default(),
            paths: PathReader::default(),
            ranges: Vec::new(),
            unread: 0,
        }
    }

    /// The database that maps names in access control lists to ids. Owners of members are always taken by number.
    #[must_use]
    pub fn names(mut self, names: UserDatabase) -> Self {
        self.names = names;
        self
    }

    /// The next member; none at the end. What was not read of the last one's content is stepped over.
    pub(crate) fn next_member(&mut self) -> Result<Option<Entry>> {
        self.input.skip(std::mem::take(&mut self.unread))?;
        let mut extensions = Extensions::default();
        loop {
            let offset = self.input.offset();
            let block = match self.input.block()? {
                Some(block) if block != [0; BLOCK] => block,
                None if offset == 0 => return Err(Error::Format { offset, reason: "the archive is empty" }),
                _ => break,
            };
            let reason = if offset == 0 { "not a tar archive" } else { "damaged header" };
            let header = Header::parse(block).ok_or(Error::Format { offset, reason })?;
            if !matches!(header.type_flag(), b'x' | b'X' | b'g' | b'L' | b'K' | b'V') {
                return self.member(&header, offset, extensions).map(Some);
            }
            let too_large =
                Error::Format { offset, reason: "extended headers of more than 16 MiB before one member" };
            extensions.bytes = header
                .size()
                .and_then(|size| extensions.bytes.checked_add(size + BLOCK as u64))
                .filter(|bytes| *bytes <= EXTENSION_BYTES_MAX)
                .ok_or(too_large)?;
            match header.type_flag() {
                b'x' | b'X' => extensions.records = self.records(&header)?,
                b'g' => self.global(&header, offset)?,
                b'L' => extensions.long_name = Some(self.long_name(&header)?),
                b'K' => extensions.long_link = Some(self.long_name(&header)?),
                // The name of the volume.
                _ => self.extension(&header).map(drop)?,
            }
        }
        self.input.drain()?;
        Ok(None)
    }

    /// Pours the content of the last member, which [`TarReader::next_member`] gave.
    pub(crate) fn content(&mut self, sink: &mut dyn Sink) -> Result<()> {
        for range in std::mem::take(&mut self.ranges) {
            self.range(range, sink)?;
        }
        Ok(())
    }

    /// Where the content of the last member begins in the archive, before any of it is read.
    pub(crate) fn content_offset(&self) -> u64 {
        self.input.offset()
    }

    fn damaged(&self, reason: &'static str) -> Error {
        Error::Format { offset: self.input.offset(), reason }
    }

    fn extension(&mut self, header: &Header) -> Result<Vec<u8>> {
        let size = header.size().ok_or_else(|| self.damaged("a malformed size"))?;
        let content = self.input.take(size)?;
        self.input.skip(padding(size))?;
        Ok(content)
    }

    fn records(&mut self, header: &Header) -> Result<Vec<Record>> {
        let content = self.extension(header)?;
        pax::parse(&content).map_err(|reason| self.damaged(reason))
    }

    /// Records for every member from here on. The last one of a keyword counts; an empty value takes one back.
    fn global(&mut self, header: &Header, offset: u64) -> Result<()> {
        for (keyword, value) in self.records(header)? {
            if value.is_empty() {
                self.global.remove(&keyword);
            } else {
                self.global.insert(keyword, value);
            }
        }
        let bytes: usize = self.global.iter().map(|(keyword, value)| keyword.len() + value.len()).sum();
        if bytes > GLOBAL_BYTES_MAX {
            return Err(Error::Format { offset, reason: "global headers with more than 64 KiB of records" });
        }
        Ok(())
    }

    fn long_name(&mut self, header: &Header) -> Result<Vec<u8>> {
        let mut name = self.extension(header)?;
        while name.pop_if(|byte| *byte == 0).is_some() {}
        Ok(name)
    }

    fn member(&mut self, header: &Header, offset: u64, extensions: Extensions) -> Result<Entry> {
        self.ranges = Vec::new();
        // Put back before any error is returned.
        let global = std::mem::take(&mut self.global);
        let member = Member::new(header, offset, &global, extensions, (&self.names, &mut self.paths));
        self.global = global;
        let Member { name, path, kind, attributes, mut stored, sparse } = member?;
        let refused = |reason| Error::Member { offset, path: name.clone(), reason };
        if let Some(kind) = kind {
            // Only an incremental dump's directory has content, a list of names. Others may have a size field that no
            // content follows.
            let follows = if header.type_flag() == b'D' { stored } else { 0 };
            self.unread = follows.saturating_add(padding(follows));
            return Ok(Entry { path, kind, attributes });
        }
        let pad = padding(stored);
        let shape = match header.type_flag() {
            b'S' => Some(gnu_shape(&mut self.input, header)),
            _ => sparse.shape(&mut self.input, &mut stored).transpose(),
        };
        let shape = shape.transpose().map_err(|why| why.at(refused))?.unwrap_or_else(|| Shape::dense(stored));
        if shape.data_bytes() != stored {
            return Err(refused("the sparse map does not fit the content"));
        }
        self.ranges = shape.ranges.clone();
        self.unread = stored.saturating_add(pad);
        Ok(Entry { path, kind: EntryKind::File(shape), attributes })
    }

    fn range(&mut self, range: DataRange, sink: &mut dyn Sink) -> Result<()> {
        let mut done = 0;
        while done < range.bytes {
            let piece = self.input.take((range.bytes - done).min(PIECE_BYTES as u64))?;
            let offset = range.offset + done;
            done += piece.len() as u64;
            self.unread -= piece.len() as u64;
            sink.content(offset, piece)?;
        }
        Ok(())
    }
}
