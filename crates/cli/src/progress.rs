//! Shows progress on standard error, if that is a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use extant_archive::{Entry, Sink};
use extant_rt::Monotonic;

use crate::size;

const INTERVAL: Duration = Duration::from_millis(100);

/// A sink that counts what passes through it.
pub struct Progress<'a> {
    sink: &'a mut dyn Sink,
    total_bytes: Option<u64>,
    entries: u64,
    bytes: u64,
    shown: Option<Monotonic>,
    is_terminal: bool,
}

impl<'a> Progress<'a> {
    /// Counts what goes to `sink`; of `total_bytes`, if that is known.
    pub fn new(sink: &'a mut dyn Sink, total_bytes: Option<u64>, quiet: bool) -> Self {
        let is_terminal = !quiet && io::stderr().is_terminal();
        Self { sink, total_bytes, entries: 0, bytes: 0, shown: None, is_terminal }
    }

    /// Entries and bytes of content that passed.
    pub fn counted(&self) -> (u64, u64) {
        (self.entries, self.bytes)
    }

    fn show(&mut self) {
        if !self.is_terminal || self.shown.is_some_and(|shown| shown.elapsed() < INTERVAL) {
            return;
        }
        self.shown = Some(Monotonic::now());
        let of = self.total_bytes.map(|total| format!(" of {}", size::show(total))).unwrap_or_default();
        let _ = write!(io::stderr(), "\r\x1b[K{} files, {}{of}", self.entries, size::show(self.bytes));
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Sink for Progress<'_> {
    fn entry(&mut self, entry: Entry) -> extant_archive::Result<()> {
        self.entries += 1;
        self.show();
        self.sink.entry(entry)
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> extant_archive::Result<Vec<u8>> {
        self.bytes += bytes.len() as u64;
        self.show();
        self.sink.content(offset, bytes)
    }

    fn is_skipping(&self) -> bool {
        self.sink.is_skipping()
    }

    fn finish(&mut self) -> extant_archive::Result<()> {
        self.sink.finish()
    }
}
