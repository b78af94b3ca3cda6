//! The modelled device keeps its figures: to the nanosecond in virtual time, to a few percent in real time.
//!
//! In virtual time: `RUSTFLAGS='--cfg extant_rt="virtual"' cargo test -p extant-block --test modelled --target-dir
//! target/virtual`.

use extant_block::{BlockDevice, MemoryDevice, Model, ModelledDevice};
use extant_rt::{Arc, Monotonic, parallel};

const MIB: u64 = 1 << 20;

fn kept(name: &str) -> Model {
    Model::kept(name).expect("kept")
}

fn time_of(amount: u64, per_second: u64) -> u64 {
    (u128::from(amount) * 1_000_000_000).div_ceil(u128::from(per_second)) as u64
}

/// The time of a request alone, and its share of the whole device's time at full load.
fn alone_and_share(model: &Model, writes: bool, bytes: u64) -> (u64, u64) {
    let (latency, stream, all, requests) = if writes {
        (
            model.write_latency_ns,
            model.stream_write_bytes_per_s,
            model.write_bytes_per_s,
            model.write_requests_per_s,
        )
    } else {
        (
            model.read_latency_ns,
            model.stream_read_bytes_per_s,
            model.read_bytes_per_s,
            model.read_requests_per_s,
        )
    };
    let share = time_of(bytes, all).max(time_of(1, requests));
    ((latency + time_of(bytes, stream)).max(share), share)
}

/// Threads that each make `count` requests of `bytes`, one after the other, in places of their own; nanoseconds.
fn run(device: &impl BlockDevice, depth: usize, count: u64, bytes: u64, writes: bool) -> u64 {
    let begun = Monotonic::now();
    parallel(depth, |thread| {
        let mut buf = vec![thread as u8; bytes as usize];
        for index in 0..count {
            let offset = (thread as u64 * count + index) * bytes;
            let done = if writes { device.write_at(offset, &buf) } else { device.read_at(offset, &mut buf) };
            done.expect("a request");
        }
    });
    begun.elapsed().as_nanos() as u64
}

/// Calls it in a simulation whose operations cost nothing if time is virtual, else directly.
fn in_time<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    #[cfg(extant_rt = "virtual")]
    {
        let result = std::rc::Rc::new(std::cell::Cell::new(None));
        let place = std::rc::Rc::clone(&result);
        let costs = extant_rt::Costs { read_ns: 0, write_ns: 0, wake_ns: 0, ..Default::default() };
        let topology = extant_rt::Topology::new(&[extant_rt::Level { cpus: 1, transfer_ns: 0 }]);
        extant_rt::Machine { costs, topology, ..Default::default() }
            .run(vec![Box::new(move || place.set(Some(body())))]);
        result.take().expect("an end")
    }
    #[cfg(not(extant_rt = "virtual"))]
    body()
}

#[cfg(extant_rt = "virtual")]
#[test]
fn throughput_at_every_depth_is_what_the_figures_say() {
    for name in ["bm1743", "pm9a3", "pmem"] {
        for (writes, bytes) in [(true, 4096), (true, MIB), (false, 4096), (false, 128 << 10)] {
            for depth in [1, 2, 3, 4, 8, 12] {
                let model = kept(name);
                let (alone, share) = alone_and_share(&model, writes, bytes);
                let count = 50;
                let took = in_time(move || {
                    let device = ModelledDevice::new(MemoryDevice::new(1 << 30), model);
                    run(&device, depth, count, bytes, writes)
                });
                let expected = (alone * count).max(share * count * depth as u64);
                // The thread that joins them polls once per microsecond.
                let error = took.checked_sub(expected).expect("not early");
                assert!(
                    error <= 1000,
                    "{name}, writes {writes}, {bytes} bytes, depth {depth}: {took} {expected}"
                );
            }
        }
    }
}

#[cfg(not(extant_rt = "virtual"))]
#[test]
fn throughput_in_real_time_is_within_five_percent_and_never_above() {
    // A program for WASI that is not optimised copies more slowly than a fast device.
    let bytes_per_s = if cfg!(target_os = "wasi") { 20_000_000 } else { 200_000_000 };
    let model = Model {
        queue_depth: 4,
        write_latency_ns: 2_000_000,
        write_bytes_per_s: 2 * bytes_per_s,
        stream_write_bytes_per_s: bytes_per_s,
        ..kept("bm1743")
    };
    let device = ModelledDevice::new(MemoryDevice::new(1 << 28), model);
    // Requests are in flight together where threads are.
    let depths: &[usize] = if extant_rt::HAS_THREADS { &[1, 2, 4] } else { &[1] };
    for depth in depths.iter().copied() {
        let (alone, share) = alone_and_share(&model, true, MIB);
        let expected = (alone * 8).max(share * 8 * depth as u64);
        // Beside other programs few runs get their CPUs in time.
        let runs = (0..200).map(|_| run(&device, depth, 8, MIB, true));
        let within = |took: u64| {
            assert!(took >= expected, "depth {depth}: {took} ns are less than {expected}");
            took < expected / 20 * 21
        };
        assert!({ runs }.any(within), "depth {depth}: never within 5 % of {expected} ns");
    }
}

#[test]
fn no_more_requests_than_the_depth_are_worked_on_at_once() {
    let model = Model { queue_depth: 3, write_latency_ns: 1_000_000, ..kept("pmem") };
    let took = in_time(move || run(&ModelledDevice::new(MemoryDevice::new(MIB), model), 12, 5, 512, true));
    // Sixty requests, three at a time, a millisecond each.
    assert!(took >= 20_000_000, "{took}");
}

#[test]
fn flush_waits_for_the_writes_before_it() {
    for name in ["bm1743", "disk-7200"] {
        let model = kept(name);
        let media = time_of(16 << 20, model.write_bytes_per_s);
        let run = || {
            in_time(move || {
                let device = Arc::new(ModelledDevice::new(MemoryDevice::new(1 << 30), model));
                let begun = Monotonic::now();
                let bytes = vec![7; 16 << 20];
                // The flush comes while the write is under way, unless the writer was kept from its CPU.
                let ends = parallel(2, |thread| {
                    if thread == 0 {
                        device.write_at(0, &bytes).expect("a write");
                    } else {
                        extant_rt::sleep(std::time::Duration::from_millis(1));
                        device.flush().expect("a flush");
                    }
                    begun.elapsed().as_nanos() as u64
                });
                ends[1]
            })
        };
        let waits = |flushed: u64| flushed >= media + model.flush_latency_ns;
        assert!((0..20).any(|_| waits(run())), "{name}: no flush waited");
    }
}

#[test]
fn content_is_that_of_the_device_below() {
    in_time(|| {
        let device = ModelledDevice::new(MemoryDevice::new(MIB), kept("pmem"));
        device.write_at(100, &[1, 2, 3]).expect("a write");
        device.write_fua(103, &[4]).expect("a write");
        device.write_zeroes(101, 1).expect("zeroes");
        let mut read = [9; 6];
        device.read_at(99, &mut read).expect("a read");
        assert_eq!(read, [0, 1, 0, 3, 4, 0]);
        let error = device.write_at(MIB - 1, &[1, 2]).expect_err("past the end");
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        assert_eq!(device.size(), MIB);
        let mut below = [9; 6];
        device.inner().read_at(99, &mut below).expect("a read");
        assert_eq!(below, read);
    });
}
