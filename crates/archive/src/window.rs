//! A range of an open file, read at a position of its own, so that any number of readers share the file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use extant_block::FileExt;
use extant_rt::Arc;

/// A range of a file as a reader of its own.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    file: Arc<File>,
    start: u64,
    end: u64,
    at: u64,
}

impl Window {
    /// The whole of a regular file, as long as it is now.
    pub fn whole(file: File) -> io::Result<Self> {
        let end = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), start: 0, end, at: 0 })
    }

    /// The `bytes` bytes at `offset` of this one, read from their start; none if they reach past its end.
    pub fn part(&self, offset: u64, bytes: u64) -> Option<Self> {
        let start = self.start.checked_add(offset)?;
        let end = start.checked_add(bytes).filter(|end| *end <= self.end)?;
        Some(Self { file: self.file.clone(), start, end, at: start })
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }

    /// The same range, read from its start.
    pub fn rewound(&self) -> Self {
        Self { at: self.start, ..self.clone() }
    }
}

impl Read for Window {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = (self.end - self.at).min(buf.len() as u64) as usize;
        let read = self.file.read_at(&mut buf[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Window {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(offset) => (self.start.checked_add(offset), 0),
            SeekFrom::End(by) => (Some(self.end), by),
            SeekFrom::Current(by) => (Some(self.at), by),
        };
        let at = base.and_then(|base| base.checked_add_signed(by));
        let at = at.filter(|at| (self.start..=self.end).contains(at));
        self.at = at.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a seek out of the range"))?;
        Ok(self.at - self.start)
    }
}
