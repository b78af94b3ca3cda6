//! A device whose requests take a while.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use extant_block::{BlockDevice, MemoryDevice};

/// Over memory; counts requests.
#[derive(Debug)]
pub struct Slow {
    pub memory: Arc<MemoryDevice>,
    has_latency: bool,
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
    writes_in_flight: AtomicU64,
    /// Writes that were in flight when a flush began. Where one thread writes, none may be: a flush waits for the data.
    pub flushed_beside: AtomicU64,
    pub requests: AtomicU64,
    /// Bytes that were read.
    pub bytes: AtomicU64,
    /// Those of threads that read ahead.
    pub ahead: AtomicU64,
    /// A read of this byte of the disk fails.
    pub bad: AtomicU64,
    /// How long a request takes.
    delay: Duration,
}

impl BlockDevice for Slow {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.wait();
        self.bytes.fetch_add(buf.len() as u64, Ordering::SeqCst);
        if (offset..offset + buf.len() as u64).contains(&self.bad.load(Ordering::SeqCst)) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.memory.read_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.writes_in_flight.fetch_add(1, Ordering::SeqCst);
        self.wait();
        self.writes_in_flight.fetch_sub(1, Ordering::SeqCst);
        self.memory.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        let writes = self.writes_in_flight.load(Ordering::SeqCst);
        self.flushed_beside.fetch_add(writes, Ordering::SeqCst);
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.memory.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.memory.write_zeroes(offset, bytes)
    }

    fn has_latency(&self) -> bool {
        self.has_latency
    }
}

impl Slow {
    pub fn new(memory: Arc<MemoryDevice>, has_latency: bool, delay: Duration) -> Arc<Self> {
        let [in_flight, most_in_flight, writes_in_flight, flushed_beside, requests, bytes, ahead] =
            [const { AtomicU64::new(0) }; 7];
        let bad = AtomicU64::new(u64::MAX);
        Arc::new(Self {
            memory,
            has_latency,
            in_flight,
            most_in_flight,
            writes_in_flight,
            flushed_beside,
            requests,
            bytes,
            ahead,
            bad,
            delay,
        })
    }

    fn wait(&self) {
        let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(in_flight, Ordering::SeqCst);
        self.requests.fetch_add(1, Ordering::SeqCst);
        if std::thread::current().name() == Some("read-ahead") {
            self.ahead.fetch_add(1, Ordering::SeqCst);
        }
        std::thread::sleep(self.delay);
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// The most requests in flight at once during `act`.
    pub fn most_during(&self, act: impl FnOnce()) -> u64 {
        self.most_in_flight.store(0, Ordering::SeqCst);
        act();
        self.most_in_flight.load(Ordering::SeqCst)
    }
}
