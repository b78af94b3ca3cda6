//! Servers and clients that send anything: no panic, no hang, no memory beyond a bound.

mod common;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Raw, Served};
use extant_block::{BlockDevice, MemoryDevice};
use extant_nbd::{NbdDevice, Options, Uri};
use extant_testing::Random;

const BYTES: u64 = 1 << 20;
/// Most memory that a run may take beside what it began with.
const MEMORY_BYTES_MAX: u64 = 256 << 20;
/// Longest time of one seed: a few timeouts.
const SEED_TIME_MAX: Duration = Duration::from_secs(10);

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// How many seeds; more by an environment variable.
fn seeds() -> u64 {
    std::env::var("EXTANT_NBD_SEEDS").map_or(200, |text| text.parse().expect("a number"))
}

/// Counts panics of all threads.
fn count_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        default(panic);
    }));
}

/// The most memory that this process has had, in bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Changes some bytes of a stream: to anything, or to numbers that are at a limit.
fn mutate(numbers: &mut Random, bytes: &mut [u8]) {
    const LIMITS: [u32; 8] = [0, 1, 7, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 32 << 20, 0x8000_0001];
    for _ in 0..numbers.below(3) {
        let at = numbers.below(bytes.len().max(1) as u64) as usize;
        match numbers.below(3) {
            0 => {
                let limit = LIMITS[numbers.below(LIMITS.len() as u64) as usize].to_be_bytes();
                bytes.iter_mut().skip(at & !3).zip(limit).for_each(|(byte, limit)| *byte = limit);
            }
            1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << numbers.below(8)),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = numbers.next() as u8),
        }
    }
}

/// Passes one connection on to a server, and changes what the server sends.
fn pass_on(mut client: UnixStream, server: &Path, seed: u64) {
    let Ok(mut upstream) = UnixStream::connect(server) else { return };
    let (mut from, mut to) = (client.try_clone().expect("a copy"), upstream.try_clone().expect("a copy"));
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let mut numbers = Random::new(seed);
    // Some negotiations succeed.
    let mut spared = numbers.below(12);
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = upstream.read(&mut buffer) {
        let bytes = &mut buffer[..count];
        match spared.checked_sub(1) {
            Some(left) => spared = left,
            None => mutate(&mut numbers, bytes),
        }
        if client.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = upstream.shutdown(Shutdown::Both);
}

/// Requests of two threads; whether they succeed is the server's affair.
fn use_export(uri: &str) -> bool {
    let options = Options {
        timeout: Duration::from_millis(100),
        reconnect: Duration::ZERO,
        connections: 2,
        requests_per_connection: 1,
        ..Options::default()
    };
    let Ok(device) = NbdDevice::open(&Uri::parse(uri).expect("a URI"), options) else { return false };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let device = &device;
            scope.spawn(move || {
                let end = device.size();
                for request in 0..6 {
                    let offset = thread * 100_000 + request * 512;
                    if offset + 512 > end {
                        return;
                    }
                    let _ = device.write_at(offset, &[1; 512]);
                    let _ = device.read_at(offset, &mut [0; 512]);
                    let _ = device.flush();
                }
            });
        }
    });
    true
}

#[test]
fn client_survives_servers_that_send_anything() {
    count_panics();
    let served = Served::start(MemoryDevice::new(BYTES), false);
    let before = peak_bytes();
    let mut opened = 0;
    for seed in 0..seeds() {
        let socket = served.path(&format!("hostile-{seed}"));
        let listener = UnixListener::bind(&socket).expect("a socket");
        let server = served.socket.clone();
        std::thread::spawn(move || {
            for (index, client) in listener.incoming().enumerate() {
                let (Ok(client), server) = (client, server.clone()) else { return };
                std::thread::spawn(move || pass_on(client, &server, seed << 8 | index as u64));
            }
        });
        let begun = Instant::now();
        opened += u64::from(use_export(&format!("nbd+unix:///disk?socket={}", socket.display())));
        assert!(begun.elapsed() < SEED_TIME_MAX, "seed {seed} took {:?}", begun.elapsed());
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "seed {seed}");
    }
    assert!(opened > 0 && opened < seeds(), "{opened} negotiations succeeded");
    let grown = peak_bytes() - before;
    assert!(grown < MEMORY_BYTES_MAX, "{grown} bytes");
}

/// A valid session of a client, as bytes.
fn session(numbers: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    let option = |option: u32, payload: &[u8]| {
        [b"IHAVEOPT", &option.to_be_bytes()[..], &(payload.len() as u32).to_be_bytes(), payload].concat()
    };
    bytes.extend(3_u32.to_be_bytes());
    if numbers.below(2) == 0 {
        bytes.extend(option(8, &[]));
    }
    bytes.extend(option(3, &[]));
    let export = [&4_u32.to_be_bytes()[..], b"disk", &1_u16.to_be_bytes(), &3_u16.to_be_bytes()].concat();
    bytes.extend(option(6, &export));
    bytes.extend(option(7, &export));
    for _ in 0..8 {
        let offset = numbers.below(BYTES);
        bytes.extend(match numbers.below(4) {
            0 => Raw::write(offset, &[9; 300]),
            1 => Raw::request(0, offset, 512),
            2 => Raw::request(6, offset, 4096),
            _ => Raw::request(3, 0, 0),
        });
    }
    bytes
}

#[test]
fn server_survives_clients_that_send_anything_and_serves_others_meanwhile() {
    count_panics();
    let served = Served::start(MemoryDevice::new(BYTES), false);
    let before = peak_bytes();
    let mut hanging = Vec::new();
    for seed in 0..seeds() * 4 {
        let mut numbers = Random::new(seed);
        let mut bytes = session(&mut numbers);
        mutate(&mut numbers, &mut bytes);
        let mut stream = UnixStream::connect(&served.socket).expect("connected");
        // The server may have ended the connection.
        let _ = stream.write_all(&bytes);
        match numbers.below(8) {
            // Neither reads the replies nor goes.
            0 => hanging.push(stream),
            1 => drop(stream),
            _ => {
                let _ = stream.shutdown(Shutdown::Write);
                stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            }
        }
        if hanging.len() > 16 {
            hanging.clear();
        }
        if seed % 10 == 0 {
            let begun = Instant::now();
            assert!(use_well(&served), "seed {seed}");
            assert!(begun.elapsed() < Duration::from_secs(2), "seed {seed}: {:?}", begun.elapsed());
        }
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "seed {seed}");
    }
    let grown = peak_bytes() - before;
    assert!(grown < MEMORY_BYTES_MAX, "{grown} bytes");
}

/// Whether a client that keeps to the protocol is served.
fn use_well(served: &Served) -> bool {
    let mut read = [0; 512];
    let device = served.open();
    device.write_at(0, &[5; 512]).and_then(|()| device.read_at(0, &mut read)).is_ok()
}

#[test]
fn further_connections_than_the_most_are_closed_and_places_come_free() {
    let served = Served::start(MemoryDevice::new(BYTES), false);
    let connected: Vec<Raw> = (0..64).map(|_| Raw::connect(&served.socket)).collect();
    let mut refused = UnixStream::connect(&served.socket).expect("connected");
    assert_eq!(refused.read(&mut [0; 8]).expect("closed"), 0);
    drop(connected);
    let begun = Instant::now();
    while NbdDevice::open(&Uri::parse(&served.uri()).expect("a URI"), Options::default()).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(5), "no place came free");
    }
}
