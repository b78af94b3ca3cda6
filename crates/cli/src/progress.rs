//! Shows progress on standard error: a line on a terminal, or with `--json` an event a line.
//!
//! Both come at most every [`INTERVAL`]. Work that takes less shows nothing.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use extant_archive::oci::Reading;
use extant_archive::{Entry, HostFile, Sink};
use extant_rt::{AtomicU64, Monotonic, Ordering};
use serde_json::{Map, Value, json};

use crate::size;

const INTERVAL: Duration = Duration::from_millis(100);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressForm {
    /// Not at all.
    Hidden,
    /// A line that is written again and again.
    Line,
    /// A JSON object a line.
    Events,
}

impl ProgressForm {
    /// Events if JSON is wanted; else a line, if standard error is a terminal and `quiet` is not wanted.
    pub fn new(as_json: bool, quiet: bool) -> Self {
        match (as_json, !quiet && io::stderr().is_terminal()) {
            (true, _) => Self::Events,
            (false, true) => Self::Line,
            (false, false) => Self::Hidden,
        }
    }
}

/// How far a piece of work is.
pub trait Stage {
    /// For people, `elapsed` after it began.
    fn line(&self, elapsed: Duration) -> String;

    /// For programs: what is done, by key.
    fn event(&self) -> Map<String, Value>;
}

/// Shows how far a piece of work is.
pub struct Display {
    form: ProgressForm,
    begun: Monotonic,
    /// When it was last shown, in milliseconds since it began. Orders nothing.
    shown_ms: AtomicU64,
}

impl Display {
    /// Begins.
    pub fn new(form: ProgressForm) -> Self {
        Self { form, begun: Monotonic::now(), shown_ms: AtomicU64::new(0) }
    }

    /// Shows it, if that was not done just before.
    pub fn show(&self, stage: &impl Stage) {
        if self.form == ProgressForm::Hidden {
            return;
        }
        let (elapsed, shown_ms) = (self.begun.elapsed(), self.shown_ms.load(Ordering::Relaxed));
        let now_ms = elapsed.as_millis() as u64;
        if now_ms < shown_ms + INTERVAL.as_millis() as u64
            || self.shown_ms.compare_exchange(shown_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        // Work goes on if standard error is closed.
        let _ = if self.form == ProgressForm::Events {
            let mut event = stage.event();
            event.insert("elapsed_ns".to_owned(), (elapsed.as_nanos() as u64).into());
            writeln!(io::stderr(), "{}", json!({ "progress": event }))
        } else {
            write!(io::stderr(), "\r\x1b[K{}", stage.line(elapsed))
        };
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if self.form == ProgressForm::Line && self.shown_ms.load(Ordering::Relaxed) > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Bytes in a time, as a rate.
pub fn rate(bytes: u64, time: Duration) -> String {
    let per_second = bytes as f64 / time.as_secs_f64().max(INTERVAL.as_secs_f64());
    format!("{}/s", size::show(per_second as u64))
}

/// An event of these values.
pub fn object<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

impl Stage for Reading {
    fn line(&self, elapsed: Duration) -> String {
        let Self { layers, layers_total, bytes } = *self;
        format!("{layers} of {layers_total} layers read, {}, {}", size::show(bytes), rate(bytes, elapsed))
    }

    fn event(&self) -> Map<String, Value> {
        object([
            ("step", "read_layers".into()),
            ("layers", self.layers.into()),
            ("total_layers", self.layers_total.into()),
            ("done_bytes", self.bytes.into()),
        ])
    }
}

impl Stage for extant::Progress {
    fn line(&self, _elapsed: Duration) -> String {
        let percent = self.done.saturating_mul(100).checked_div(self.total).unwrap_or(100);
        format!("{:?} {percent}%", self.pass)
    }

    fn event(&self) -> Map<String, Value> {
        object([
            ("step", format!("{:?}", self.pass).to_lowercase().into()),
            ("done", self.done.into()),
            ("total", self.total.into()),
        ])
    }
}

/// Paths that were compared.
pub struct Compared(pub u64);

impl Stage for Compared {
    fn line(&self, _elapsed: Duration) -> String {
        format!("{} files compared", self.0)
    }

    fn event(&self) -> Map<String, Value> {
        object([("step", "compare".into()), ("files", self.0.into())])
    }
}

/// Files that were copied.
#[derive(Clone, Copy)]
struct Copied {
    entries: u64,
    bytes: u64,
    total_bytes: Option<u64>,
}

impl Stage for Copied {
    fn line(&self, elapsed: Duration) -> String {
        let of = self.total_bytes.map(|total| format!(" of {}", size::show(total))).unwrap_or_default();
        format!("{} files, {}{of}, {}", self.entries, size::show(self.bytes), rate(self.bytes, elapsed))
    }

    fn event(&self) -> Map<String, Value> {
        let mut event = object([
            ("step", "copy".into()),
            ("files", self.entries.into()),
            ("done_bytes", self.bytes.into()),
        ]);
        event.extend(self.total_bytes.map(|total| ("total_bytes".to_owned(), total.into())));
        event
    }
}

/// A sink that counts what passes through it.
pub struct Progress<'a> {
    sink: &'a mut dyn Sink,
    copied: Copied,
    display: Display,
}

impl<'a> Progress<'a> {
    /// Counts what goes to `sink`; of `total_bytes`, if that is known.
    pub fn new(sink: &'a mut dyn Sink, total_bytes: Option<u64>, form: ProgressForm) -> Self {
        let copied = Copied { entries: 0, bytes: 0, total_bytes };
        Self { sink, copied, display: Display::new(form) }
    }

    /// Entries and bytes of content that passed.
    pub fn counted(&self) -> (u64, u64) {
        (self.copied.entries, self.copied.bytes)
    }
}

impl Sink for Progress<'_> {
    fn entry(&mut self, entry: Entry) -> extant_archive::Result<()> {
        self.copied.entries += 1;
        self.display.show(&self.copied);
        self.sink.entry(entry)
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> extant_archive::Result<Vec<u8>> {
        self.copied.bytes += bytes.len() as u64;
        self.display.show(&self.copied);
        self.sink.content(offset, bytes)
    }

    fn host_file(&mut self, file: HostFile) -> extant_archive::Result<Option<HostFile>> {
        let bytes: u64 = file.ranges().iter().map(|range| range.bytes).sum();
        let refused = self.sink.host_file(file)?;
        if refused.is_none() {
            self.copied.bytes += bytes;
            self.display.show(&self.copied);
        }
        Ok(refused)
    }

    fn is_skipping(&self) -> bool {
        self.sink.is_skipping()
    }

    fn finish(&mut self) -> extant_archive::Result<()> {
        self.sink.finish()
    }
}
