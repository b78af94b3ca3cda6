//! Shows progress on standard error, if that is a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use extant_archive::oci::Reading;
use extant_archive::{Entry, Sink};
use extant_rt::{AtomicU64, Monotonic, Ordering};

use crate::size;

const INTERVAL: Duration = Duration::from_millis(100);

/// Bytes in a time, as a rate.
fn rate(bytes: u64, time: Duration) -> String {
    let per_second = bytes as f64 / time.as_secs_f64().max(INTERVAL.as_secs_f64());
    format!("{}/s", size::show(per_second as u64))
}

/// Shows how far the reading of an image's layers is.
pub struct LayersProgress {
    begun: Monotonic,
    /// When it was last shown, in milliseconds since it began; 0 before. Orders nothing.
    shown_ms: AtomicU64,
    is_terminal: bool,
}

impl LayersProgress {
    /// Begins.
    pub fn new(quiet: bool) -> Self {
        let is_terminal = !quiet && io::stderr().is_terminal();
        Self { begun: Monotonic::now(), shown_ms: AtomicU64::new(0), is_terminal }
    }

    /// Shows it, if that was not done just before.
    pub fn show(&self, reading: Reading) {
        if !self.is_terminal {
            return;
        }
        let (now, shown) = (self.begun.elapsed(), self.shown_ms.load(Ordering::Relaxed));
        let now_ms = now.as_millis() as u64;
        let is_due = now_ms >= shown + INTERVAL.as_millis() as u64;
        if is_due
            && self.shown_ms.compare_exchange(shown, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let Reading { layers, layers_total, bytes } = reading;
            let (read, rate) = (size::show(bytes), rate(bytes, now));
            let _ = write!(io::stderr(), "\r\x1b[K{layers} of {layers_total} layers read, {read}, {rate}");
        }
    }
}

impl Drop for LayersProgress {
    fn drop(&mut self) {
        if self.shown_ms.load(Ordering::Relaxed) > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A sink that counts what passes through it.
pub struct Progress<'a> {
    sink: &'a mut dyn Sink,
    total_bytes: Option<u64>,
    entries: u64,
    bytes: u64,
    begun: Monotonic,
    shown: Option<Monotonic>,
    is_terminal: bool,
}

impl<'a> Progress<'a> {
    /// Counts what goes to `sink`; of `total_bytes`, if that is known.
    pub fn new(sink: &'a mut dyn Sink, total_bytes: Option<u64>, quiet: bool) -> Self {
        let is_terminal = !quiet && io::stderr().is_terminal();
        Self { sink, total_bytes, entries: 0, bytes: 0, begun: Monotonic::now(), shown: None, is_terminal }
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
        let rate = rate(self.bytes, self.begun.elapsed());
        let _ =
            write!(io::stderr(), "\r\x1b[K{} files, {}{of}, {rate}", self.entries, size::show(self.bytes));
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
