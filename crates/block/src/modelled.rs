//! A wrapper that delays the requests to another device as a model of a real one says.
//!
//! The bytes go to the other device at once; then the caller waits until the modelled request ends. In virtual time
//! the wait is exact; in real time a thread sleeps for all but its last microseconds.
//!
//! Solid state: each request has its latency and transfers at the rate of a single stream; all share one channel of
//! the whole device's rate; at most the queue's depth are served at once. Rotating: a write-back cache that the heads
//! empty in sweeps, and a seek time that grows with the square root of the distance.
//!
//! Leaves out: garbage collection and write amplification, the loss of cached writes in a crash (which a recorder
//! models), the reordering of reads by a disk's queue, zones of different density.
//!
//! Locks: `DEVICE_LAYER`, never across a request to the device below or a wait. Tests: `tests/modelled.rs` in real and
//! in virtual time.

mod model;
mod service;

use std::io;
use std::time::Duration;

use extant_rt::{LockClass, Monotonic, Mutex, sleep, yield_now};

use crate::{BlockDevice, total_bytes};
pub use model::{Model, Rotating};
use service::{Service, Work};

/// The host wakes a sleeper late by about this much; virtual time does not.
const LATE: Duration = if cfg!(extant_rt = "virtual") { Duration::ZERO } else { Duration::from_micros(60) };

/// A device that is as slow as another kind would be.
#[derive(Debug)]
pub struct ModelledDevice<D> {
    inner: D,
    made: Monotonic,
    service: Mutex<Service>,
}

impl<D: BlockDevice> ModelledDevice<D> {
    /// A device with the content of `inner` and the manner of `model`. Its clock is that of the simulation in which it
    /// is made, or the host's.
    pub fn new(inner: D, model: Model) -> Self {
        let service = Mutex::new(LockClass::DEVICE_LAYER, Service::new(model));
        Self { inner, made: Monotonic::now(), service }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Says that work comes now, does what `request` does, and waits for the end of both.
    fn serve<T>(&self, work: Work, request: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let end = {
            let mut service = self.service.lock();
            service.end_of(nanoseconds(self.made.elapsed()), work)
        };
        let result = request()?;
        self.wait_until(Duration::from_nanos(end));
        Ok(result)
    }

    fn wait_until(&self, end: Duration) {
        loop {
            let left = end.saturating_sub(self.made.elapsed());
            if left.is_zero() {
                return;
            }
            match left.checked_sub(LATE) {
                Some(long) if !long.is_zero() => sleep(long),
                _ => yield_now(),
            }
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl<D: BlockDevice> BlockDevice for ModelledDevice<D> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let work = Work::Read { offset, bytes: buf.len() as u64 };
        self.serve(work, || self.inner.read_at(offset, buf))
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        let work = Work::Write { offset, bytes: total_bytes(bufs) };
        self.serve(work, || self.inner.write_vectored_at(offset, bufs))
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let work = Work::WriteThrough { offset, bytes: buf.len() as u64 };
        self.serve(work, || self.inner.write_fua(offset, buf))
    }

    fn flush(&self) -> io::Result<()> {
        self.serve(Work::Flush, || self.inner.flush())
    }

    /// As the device below, and as long as an empty write.
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.serve(Work::Write { offset, bytes: 0 }, || self.inner.discard(offset, bytes))
    }

    /// As long as if the zeroes were written.
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.serve(Work::Write { offset, bytes }, || self.inner.write_zeroes(offset, bytes))
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn has_latency(&self) -> bool {
        true
    }
}
