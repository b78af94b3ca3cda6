//! A device that remembers every write, and rebuilds from it the image of any crash, for tests.
//!
//! A crash leaves everything that a flush covered, every `write_fua` that returned, and of the rest any subset, by whole
//! requests or by sectors of 512 bytes. It leaves no write that a failed flush should have covered, even if a later
//! flush succeeds: a device that fails may have dropped its cache.
//!
//! Invariant: the order of the log is the order in which the device below saw the requests; so requests pass one
//! at a time. Of requests that fail only flushes are recorded; bytes of a write that fails may be on the device below.
//!
//! Locks: `DEVICE_LAYER`, held across the request to the device below. Test: `tests/recorder.rs`.

use std::io;

use extant_rt::{Arc, LockClass, Mutex};

use crate::{BlockDevice, MemoryDevice};

/// The unit that a crash does not tear.
const SECTOR_BYTES: u64 = 512;

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes were written; with `fua` they were durable when the write returned.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// The bytes.
        bytes: Arc<[u8]>,
        /// Whether they are durable by themselves.
        fua: bool,
    },
    /// A range was discarded; it reads as zero afterwards.
    Discard {
        /// Where, in bytes.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// A range was zeroed.
    WriteZeroes {
        /// Where, in bytes.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// Everything before is durable.
    Flush,
    /// A flush failed: what is not durable by now never will be.
    FailedFlush,
    /// The caller's own mark.
    Mark(u64),
}

/// A fault built into the recording on purpose: a test that does not notice it proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutation {
    /// The recording is faithful.
    #[default]
    None,
    /// The flush with this index, counted from 0, makes nothing durable.
    DropFlush(u64),
    /// No flush makes anything durable.
    DropAllFlushes,
    /// `write_fua` is an ordinary write.
    DropFua,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    mutation: Mutation,
    flushes: u64,
}

/// A device before another that logs what passes.
#[derive(Debug)]
pub struct Recorder<D> {
    inner: D,
    base: MemoryDevice,
    state: Mutex<State>,
}

impl Recorder<MemoryDevice> {
    /// Records from the present content of a device in memory, which is shared and not copied.
    #[must_use]
    pub fn over(inner: MemoryDevice) -> Self {
        Self::with_base(inner.snapshot(), inner)
    }
}

impl<D: BlockDevice> Recorder<D> {
    /// Records from the present content of any device, which is copied.
    ///
    /// # Errors
    /// As the device's `read_at`.
    pub fn new(inner: D) -> io::Result<Self> {
        Ok(Self::with_base(MemoryDevice::copy_of(&inner)?, inner))
    }

    /// Records from `base`, which is what the device holds now.
    pub fn with_base(base: MemoryDevice, inner: D) -> Self {
        Self { inner, base, state: Mutex::new(LockClass::DEVICE_LAYER, State::default()) }
    }

    /// Chooses the fault from now on.
    pub fn set_mutation(&self, mutation: Mutation) {
        self.state.lock().mutation = mutation;
    }

    /// Puts a mark into the log.
    pub fn mark(&self, value: u64) {
        self.state.lock().events.push(Event::Mark(value));
    }

    /// How many events were logged.
    pub fn event_count(&self) -> usize {
        self.state.lock().events.len()
    }

    /// The recording so far.
    #[must_use]
    pub fn log(&self) -> Log {
        let state = self.state.lock();
        Log { base: self.base.snapshot(), events: state.events.as_slice().into() }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Passes a request on and logs it if it succeeded.
    fn pass(
        &self,
        request: impl FnOnce(&D) -> io::Result<()>,
        event: impl FnOnce(&State) -> Event,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        request(&self.inner)?;
        let event = event(&state);
        state.events.push(event);
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Recorder<D> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        let bytes = bufs.iter().map(|buf| &**buf).collect::<Vec<_>>().concat().into();
        self.pass(|d| d.write_vectored_at(offset, bufs), |_| Event::Write { offset, bytes, fua: false })
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.pass(
            |device| device.write_fua(offset, buf),
            |state| {
                let fua = state.mutation != Mutation::DropFua;
                Event::Write { offset, bytes: buf.into(), fua }
            },
        )
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let flushed = self.inner.flush();
        let index = state.flushes;
        state.flushes += 1;
        let is_dropped = match state.mutation {
            Mutation::DropFlush(which) => which == index,
            Mutation::DropAllFlushes => true,
            Mutation::None | Mutation::DropFua => false,
        };
        match flushed {
            Err(_) => state.events.push(Event::FailedFlush),
            Ok(()) if !is_dropped => state.events.push(Event::Flush),
            Ok(()) => {}
        }
        flushed
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.pass(|device| device.discard(offset, bytes), |_| Event::Discard { offset, bytes })
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.pass(|device| device.write_zeroes(offset, bytes), |_| Event::WriteZeroes { offset, bytes })
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn has_latency(&self) -> bool {
        self.inner.has_latency()
    }
}

/// Whether a crash may leave a part of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tearing {
    /// A request survives as a whole or not at all.
    Requests,
    /// Each sector of 512 bytes survives or is lost independently.
    Sectors,
}

/// A request, or a sector of one, that a crash may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unflushed {
    /// The index of its event in the log.
    pub event: usize,
    /// Its start, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A recording: the content at its begin and what happened since.
#[derive(Debug)]
pub struct Log {
    base: MemoryDevice,
    events: Arc<[Event]>,
}

impl Log {
    /// The recorded events, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// A place in the log, at its begin.
    #[must_use]
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { events: &self.events, durable: self.base.snapshot(), at: 0, flushed: 0 }
    }

    /// The image of a crash after the first `events` events, of whose unflushed writes `survives` chooses.
    /// Costs a replay from the begin; [`Cursor`] goes through many crashes faster.
    ///
    /// # Errors
    /// If the log names a range that the device does not have.
    ///
    /// # Panics
    /// If the log is shorter.
    pub fn crash_image(
        &self,
        events: usize,
        tearing: Tearing,
        survives: impl FnMut(&Unflushed) -> bool,
    ) -> io::Result<MemoryDevice> {
        let mut cursor = self.cursor();
        cursor.advance_to(events)?;
        cursor.crash_image(tearing, survives)
    }
}

/// A place in a log, which moves forwards; the crash happens there.
#[derive(Debug)]
pub struct Cursor<'a> {
    events: &'a [Event],
    /// Everything before `flushed`.
    durable: MemoryDevice,
    at: usize,
    flushed: usize,
}

impl Cursor<'_> {
    /// How many events have happened.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Moves on until `events` events have happened.
    ///
    /// # Errors
    /// If the log names a range that the device does not have.
    ///
    /// # Panics
    /// If the log is shorter, or the place is past it already.
    pub fn advance_to(&mut self, events: usize) -> io::Result<()> {
        assert!(events >= self.at, "the cursor stands at event {} and cannot go back to {events}", self.at);
        for at in self.at..events {
            match self.events[at] {
                Event::Flush => {
                    for event in &self.events[self.flushed..at] {
                        apply(&self.durable, event)?;
                    }
                    self.flushed = at + 1;
                }
                Event::FailedFlush => {
                    for event in &self.events[self.flushed..at] {
                        if pending_range(at, event).is_none() {
                            apply(&self.durable, event)?;
                        }
                    }
                    self.flushed = at + 1;
                }
                _ => {}
            }
        }
        self.at = events;
        Ok(())
    }

    /// The events that a crash here may lose, in order.
    pub fn unflushed(&self, tearing: Tearing) -> impl Iterator<Item = Unflushed> {
        let pending = (self.flushed..self.at).filter_map(|event| pending_range(event, &self.events[event]));
        pending.flat_map(move |range| parts(range, tearing))
    }

    /// The image of a crash here: all that is durable, and of the rest what `survives` accepts. Shares memory with
    /// other images of the log.
    ///
    /// # Errors
    /// If the log names a range that the device does not have.
    pub fn crash_image(
        &self,
        tearing: Tearing,
        mut survives: impl FnMut(&Unflushed) -> bool,
    ) -> io::Result<MemoryDevice> {
        let image = self.durable.snapshot();
        for (index, event) in (self.flushed..).zip(&self.events[self.flushed..self.at]) {
            match pending_range(index, event) {
                None => apply(&image, event)?,
                Some(range) => {
                    for part in parts(range, tearing).filter(|part| survives(part)) {
                        apply_part(&image, event, range.offset, &part)?;
                    }
                }
            }
        }
        Ok(image)
    }
}

/// The range of an event that a crash may lose; `None` if it changes nothing or is durable by itself.
fn pending_range(event: usize, what: &Event) -> Option<Unflushed> {
    let (offset, bytes) = match what {
        Event::Write { offset, bytes, fua: false } => (*offset, bytes.len() as u64),
        Event::Discard { offset, bytes } | Event::WriteZeroes { offset, bytes } => (*offset, *bytes),
        Event::Write { fua: true, .. } | Event::Flush | Event::FailedFlush | Event::Mark(_) => return None,
    };
    Some(Unflushed { event, offset, bytes })
}

fn parts(range: Unflushed, tearing: Tearing) -> impl Iterator<Item = Unflushed> {
    let end = range.offset + range.bytes;
    let mut at = range.offset;
    std::iter::from_fn(move || {
        let stop = match tearing {
            Tearing::Requests => end,
            Tearing::Sectors => end.min((at / SECTOR_BYTES + 1) * SECTOR_BYTES),
        };
        let part = Unflushed { event: range.event, offset: at, bytes: stop - at };
        at = stop;
        (part.bytes > 0).then_some(part)
    })
}

fn apply(image: &MemoryDevice, event: &Event) -> io::Result<()> {
    match event {
        Event::Write { offset, bytes, .. } => image.write_at(*offset, bytes),
        Event::Discard { offset, bytes } | Event::WriteZeroes { offset, bytes } => {
            image.write_zeroes(*offset, *bytes)
        }
        Event::Flush | Event::FailedFlush | Event::Mark(_) => Ok(()),
    }
}

/// Applies the part of an event, which begins at `offset`.
fn apply_part(image: &MemoryDevice, event: &Event, offset: u64, part: &Unflushed) -> io::Result<()> {
    match event {
        Event::Write { bytes, .. } => {
            let start = (part.offset - offset) as usize;
            image.write_at(part.offset, &bytes[start..start + part.bytes as usize])
        }
        _ => image.write_zeroes(part.offset, part.bytes),
    }
}
