//! A device that counts its requests and their time, so that a request's wait for it can be separated from the rest of its
//! time.
//!
//! The engine reads, writes and flushes in the thread that wants it: the time that a thread waits for the device between a
//! request's beginning and its end belongs to that request.

use std::cell::Cell;
use std::io;

use extant_block::{BlockDevice, Write};
use extant_rt::{Arc, Monotonic, before_wait};

use crate::latency::LatencyEwma;
use crate::tally::{Tally, Total};

/// The kinds of requests to a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Io {
    Read,
    Write,
    /// A flush, or a write that is durable when it returns.
    Flush,
    /// A discard, or zeroes that the device can make without their being written.
    Discard,
}

/// The labels, in the order of [`Io`].
pub(crate) const IO_NAMES: [&str; 4] = ["read", "write", "flush", "discard"];

/// Nanoseconds by [`Io`].
pub(crate) type Waits = [u64; IO_NAMES.len()];

thread_local! {
    static WAITED: Cell<Waits> = const { Cell::new([0; IO_NAMES.len()]) };
}

/// How long this thread has waited for devices so far.
pub(crate) fn waited() -> Waits {
    WAITED.get()
}

/// The counts and times of requests to a device. Clones share the counts.
#[derive(Clone, Debug)]
pub struct DeviceTimes(Arc<Tally<{ IO_NAMES.len() }>>);

impl DeviceTimes {
    /// Each kind's label and what it comes to.
    #[must_use]
    pub fn totals(&self) -> [(&'static str, Total); IO_NAMES.len()] {
        std::array::from_fn(|io| (IO_NAMES[io], self.0.total(io)))
    }
}

/// See the module.
#[derive(Debug)]
pub struct TimedDevice<D> {
    device: D,
    times: DeviceTimes,
    /// Whether recent operations of each [`Io`] were slow: then a thread that answers requests lets another one receive them.
    latencies: [LatencyEwma; IO_NAMES.len()],
}

impl<D: BlockDevice> TimedDevice<D> {
    /// Counts the requests to `device`.
    pub fn new(device: D) -> Self {
        let latencies =
            [LatencyEwma::default(), LatencyEwma::default(), LatencyEwma::slow(), LatencyEwma::slow()];
        Self { device, times: DeviceTimes(Arc::new(Tally::new())), latencies }
    }

    /// The counts, for [`crate::ServerOptions`].
    #[must_use]
    pub fn times(&self) -> DeviceTimes {
        self.times.clone()
    }

    fn timed(&self, io: Io, bytes: usize, ask: impl FnOnce(&D) -> io::Result<()>) -> io::Result<()> {
        let tally = &self.times.0;
        tally.begin(io as usize);
        let latency = &self.latencies[io as usize];
        if latency.is_slow() {
            before_wait();
        }
        let start = Monotonic::now();
        let done = ask(&self.device);
        let took = start.elapsed();
        latency.note(took, bytes);
        tally.end(io as usize, took, if done.is_ok() { bytes } else { 0 });
        let mut waited = WAITED.get();
        waited[io as usize] += took.as_nanos() as u64;
        WAITED.set(waited);
        done
    }
}

impl<D: BlockDevice> BlockDevice for TimedDevice<D> {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.timed(Io::Read, buf.len(), |device| device.read_at(offset, buf))
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        self.timed(Io::Write, bytes, |device| device.write_vectored_at(offset, bufs))
    }

    /// As one request: the device has them under way at once, and the calling thread waits for all.
    fn write_many(&self, writes: &[Write<'_>]) -> io::Result<()> {
        let bytes = writes.iter().map(Write::bytes).sum::<u64>() as usize;
        self.timed(Io::Write, bytes, |device| device.write_many(writes))
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.timed(Io::Flush, buf.len(), |device| device.write_fua(offset, buf))
    }

    fn flush(&self) -> io::Result<()> {
        self.timed(Io::Flush, 0, |device| device.flush())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.timed(Io::Discard, bytes as usize, |device| device.discard(offset, bytes))
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.timed(Io::Discard, bytes as usize, |device| device.write_zeroes(offset, bytes))
    }

    fn refresh(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.device.refresh(offset, bytes)
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        self.device.grow(bytes)
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn has_latency(&self) -> bool {
        self.device.has_latency()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, IoSlice};

    use extant_block::{BlockDevice, MemoryDevice, Write};
    use extant_rt::{Arc, AtomicUsize, Ordering};

    use super::{IO_NAMES, Io, TimedDevice, waited};

    #[test]
    fn what_is_asked_is_counted_by_kind_and_the_wait_is_the_threads_own() {
        assert_eq!((IO_NAMES[Io::Read as usize], IO_NAMES[Io::Discard as usize]), ("read", "discard"));
        let device = TimedDevice::new(MemoryDevice::new(1 << 20));
        let before = waited();
        device.write_at(0, &[1; 4096]).expect("write");
        device.write_fua(4096, &[2; 512]).expect("write");
        device.flush().expect("flush");
        let mut buf = [0; 4608];
        device.read_at(0, &mut buf).expect("read");
        assert_eq!((buf[0], buf[4096]), (1, 2));
        assert!(device.read_at(1 << 20, &mut buf).is_err());
        let totals = device.times().totals().map(|(_, total)| (total.ended, total.under_way, total.bytes));
        assert_eq!(totals, [(2, 0, 4608), (1, 0, 4096), (2, 0, 512), (0, 0, 0)]);
        let own = waited();
        let times = device.times().totals().map(|(_, total)| total.time.as_nanos() as u64);
        assert_eq!(std::array::from_fn(|io| own[io] - before[io]), times);
        let elsewhere = extant_rt::parallel(1, |_| waited());
        assert_eq!(elsewhere, [[0; 4]]);
    }

    /// A device that takes writes only together, and says how many came so.
    #[derive(Debug)]
    struct Together(Arc<AtomicUsize>);

    impl BlockDevice for Together {
        fn size(&self) -> u64 {
            1 << 20
        }

        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn write_vectored_at(&self, _: u64, _: &[IoSlice<'_>]) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn write_many(&self, writes: &[Write<'_>]) -> io::Result<()> {
            self.0.fetch_add(writes.len(), Ordering::Relaxed);
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }

        fn discard(&self, _: u64, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn writes_that_a_device_takes_together_reach_it_together() {
        let together = Arc::new(AtomicUsize::new(0));
        let device = TimedDevice::new(Together(together.clone()));
        let (first, second) = ([1; 4096], [2; 512]);
        let writes = [(0, &first[..]), (8192, &second)];
        let writes = writes.map(|(offset, bytes)| Write { offset, bufs: vec![IoSlice::new(bytes)] });
        device.write_many(&writes).expect("writes");
        assert_eq!(together.load(Ordering::Relaxed), 2);
        let [_, (_, total), ..] = device.times().totals();
        assert_eq!((total.ended, total.bytes), (1, 4608));
    }
}
