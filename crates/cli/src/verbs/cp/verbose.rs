//! `cp -v`: a line for each file that is copied.

use std::ffi::OsStr;
use std::io::Write;

use extant_archive::{Entry, Sink, TreePath};

use crate::output::escape;

/// A sink that reports each entry that it takes.
pub struct Verbose<'a> {
    sink: &'a mut dyn Sink,
    source: &'a OsStr,
    at: &'a TreePath,
    to: &'a str,
}

impl<'a> Verbose<'a> {
    /// Reports what is copied from `source`, which is poured as `at`, to the directory `to`.
    pub fn new(sink: &'a mut dyn Sink, source: &'a OsStr, at: &'a TreePath, to: &'a str) -> Self {
        Self { sink, source, at, to }
    }

    fn tell(&self, path: &TreePath) -> std::io::Result<()> {
        let join = |base: &[u8], below: &[&[u8]]| {
            let mut path = base.to_vec();
            for component in below {
                if !path.ends_with(b"/") {
                    path.push(b'/');
                }
                path.extend(*component);
            }
            escape(&path)
        };
        let below = &path.components()[self.at.components().len()..];
        let from = join(self.source.as_encoded_bytes(), below);
        let to = join(self.to.as_bytes(), &path.components());
        writeln!(std::io::stdout(), "'{from}' -> '{to}'")
    }
}

impl Sink for Verbose<'_> {
    fn entry(&mut self, entry: Entry) -> extant_archive::Result<()> {
        let path = entry.path.clone();
        self.sink.entry(entry)?;
        if self.sink.is_skipping() {
            return Ok(());
        }
        self.tell(&path).map_err(extant_archive::Error::Stream)
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> extant_archive::Result<Vec<u8>> {
        self.sink.content(offset, bytes)
    }

    fn is_skipping(&self) -> bool {
        self.sink.is_skipping()
    }

    fn finish(&mut self) -> extant_archive::Result<()> {
        self.sink.finish()
    }
}
