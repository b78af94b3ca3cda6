//! Many writes at once, on devices that leave it to threads.

use std::io::{self, IoSlice};

use extant_block::{BlockDevice, MemoryDevice, Partition, REQUESTS_IN_FLIGHT, Write};
use extant_rt::{Arc, AtomicUsize, HAS_THREADS, Ordering, sleep};

const BLOCK: usize = 512;
const WRITES: usize = 100;

/// A device whose writes take a while, and fail from one on.
struct Slow {
    memory: MemoryDevice,
    has_latency: bool,
    failing_from: usize,
    begun: AtomicUsize,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
}

impl Slow {
    fn new(has_latency: bool, failing_from: usize) -> Self {
        let [begun, in_flight, most_in_flight] = [const { AtomicUsize::new(0) }; 3];
        let memory = MemoryDevice::new(((WRITES + 1) * BLOCK) as u64);
        Self { memory, has_latency, failing_from, begun, in_flight, most_in_flight }
    }
}

impl BlockDevice for Slow {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let count = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(count, Ordering::SeqCst);
        if HAS_THREADS {
            sleep(std::time::Duration::from_millis(2));
        }
        let is_failing = self.begun.fetch_add(1, Ordering::SeqCst) >= self.failing_from;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        if is_failing { Err(io::Error::other("broken")) } else { self.memory.write_vectored_at(offset, bufs) }
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn has_latency(&self) -> bool {
        self.has_latency
    }
}

/// Writes each block of a partition that begins at the second block.
fn write(device: &Arc<Slow>) -> io::Result<()> {
    let partition =
        Partition::new(device.clone(), BLOCK as u64, (WRITES * BLOCK) as u64).expect("a partition");
    let bytes: Vec<_> = (0..WRITES).map(|write| [write as u8 + 1; BLOCK]).collect();
    let writes = bytes.iter().enumerate().map(|(write, bytes)| {
        let (left, right) = bytes.split_at(100);
        Write { offset: (write * BLOCK) as u64, bufs: vec![IoSlice::new(left), IoSlice::new(right)] }
    });
    partition.write_many(&writes.collect::<Vec<_>>())
}

#[test]
fn where_requests_take_time_several_are_in_flight() {
    for has_latency in [true, false] {
        let device = Arc::new(Slow::new(has_latency, usize::MAX));
        write(&device).expect("written");
        let mut found = vec![0; device.size() as usize];
        device.read_at(0, &mut found).expect("read");
        assert!(found.chunks(BLOCK).zip(0..).all(|(block, byte)| block == [byte; BLOCK]));
        let most = device.most_in_flight.load(Ordering::SeqCst);
        match has_latency && HAS_THREADS {
            true => assert!((2..=REQUESTS_IN_FLIGHT).contains(&most), "{most}"),
            false => assert_eq!(most, 1),
        }
    }
}

#[test]
fn after_a_failure_no_write_is_begun() {
    for has_latency in [true, false] {
        let device = Arc::new(Slow::new(has_latency, 20));
        let error = write(&device).expect_err("the device fails").to_string();
        assert_eq!(error, "broken");
        let begun = device.begun.load(Ordering::SeqCst);
        assert!((21..=20 + REQUESTS_IN_FLIGHT).contains(&begun), "{begun}");
        assert_eq!(device.in_flight.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn writes_past_the_end_of_a_partition_are_refused() {
    let device = Slow::new(false, usize::MAX);
    let partition = Partition::new(&device, 0, BLOCK as u64).expect("a partition");
    let past = Write { offset: 1, bufs: vec![IoSlice::new(&[1; BLOCK])] };
    partition.write_many(&[past]).expect_err("past the end");
    assert_eq!(device.begun.load(Ordering::SeqCst), 0);
}
