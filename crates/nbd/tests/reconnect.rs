//! Servers that are killed and started again while the client writes. nbdkit's cache keeps what was written in its memory until a
//! flush, so that a kill loses each write that no flush has covered.

mod common;

use std::io::{IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{open, uri};
use extant_block::{BlockDevice, Write as Several};
use extant_nbd::{NbdDevice, Options, Uri};
use extant_testing::{Random, SocketServer};

const BYTES: u64 = 8 << 20;
const BLOCK: usize = 4096;
const THREADS: u64 = 3;

/// How often the server is killed; more by an environment variable.
fn kills() -> u64 {
    std::env::var("EXTANT_NBD_KILLS").map_or(12, |text| text.parse().expect("a number"))
}

struct Killed {
    server: SocketServer,
    image: std::fs::File,
    _dir: tempfile::TempDir,
}

impl Killed {
    fn start() -> Self {
        Self::start_of(BYTES)
    }

    fn start_of(bytes: u64) -> Self {
        Self::start_with(bytes, &[])
    }

    /// Of so many bytes, with the delays of nbdkit's filter, if any.
    fn start_with(bytes: u64, delays: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("image");
        let image = std::fs::File::create_new(&path).expect("an image");
        image.set_len(bytes).expect("its size");
        let image = std::fs::File::open(&path).expect("an image");
        let path = path.to_str().expect("UTF-8");
        let filters = ["--filter=delay", "--filter=cache"];
        let filters = if delays.is_empty() { &filters[1..] } else { &filters[..] };
        let served = ["file", path, "cache=writeback"];
        let command = [&["nbdkit", "-f", "-U", "SOCKET"], filters, &served, delays].concat();
        let server = SocketServer::start(dir.path(), &command);
        Self { server, image, _dir: dir }
    }
}

/// Kills the server again and again until `done`, and starts it a moment later.
fn kill_again_and_again(server: &mut SocketServer, seed: u64, done: &AtomicBool) {
    let mut numbers = Random::new(seed);
    for _ in 0..kills() {
        std::thread::sleep(Duration::from_millis(numbers.below(120)));
        server.kill();
        std::thread::sleep(Duration::from_millis(numbers.below(30)));
        server.start_again();
    }
    done.store(true, Ordering::Release);
}

/// Writes, one by one and many at once, zeroes, reads and flushes blocks of a part of the device. After each flush the image itself has
/// what was written.
fn write_until(device: &NbdDevice, image: &std::fs::File, start: u64, seed: u64, done: &AtomicBool) -> u64 {
    let blocks = BYTES / THREADS / BLOCK as u64;
    let (mut numbers, mut flushes) = (Random::new(seed), 0);
    // The byte that each block is full of.
    let mut model = vec![0_u8; blocks as usize];
    let offset = |block: usize| start + (block * BLOCK) as u64;
    let mut read = vec![0; BLOCK];
    while !done.load(Ordering::Acquire) {
        let block = numbers.below(blocks) as usize;
        let byte = numbers.next() as u8;
        match numbers.below(42) {
            0 | 3 => {
                device.flush().expect("flushed");
                flushes += 1;
                for (block, byte) in model.iter().enumerate() {
                    image.read_exact_at(&mut read, offset(block)).expect("the image");
                    assert!(
                        read.iter().all(|found| found == byte),
                        "seed {seed}: block {block} after a flush"
                    );
                }
            }
            1 => {
                device.write_fua(offset(block), &[byte; BLOCK]).expect("written");
                image.read_exact_at(&mut read, offset(block)).expect("the image");
                assert!(
                    read.iter().all(|found| *found == byte),
                    "seed {seed}: block {block} written durably"
                );
                model[block] = byte;
            }
            2 => {
                device.write_zeroes(offset(block), BLOCK as u64).expect("zeroed");
                model[block] = 0;
            }
            40.. => {
                let blocks: Vec<usize> = (block..model.len()).step_by(7).take(30).collect();
                let bytes = [byte; BLOCK];
                let writes = blocks
                    .iter()
                    .map(|block| Several { offset: offset(*block), bufs: vec![IoSlice::new(&bytes)] });
                device.write_many(&writes.collect::<Vec<_>>()).expect("written");
                blocks.into_iter().for_each(|block| model[block] = byte);
            }
            4..20 => {
                device.read_at(offset(block), &mut read).expect("read");
                let byte = model[block];
                assert!(read.iter().all(|found| *found == byte), "seed {seed}: block {block} as written");
            }
            _ => {
                device.write_at(offset(block), &[byte; BLOCK]).expect("written");
                model[block] = byte;
            }
        }
    }
    for (block, byte) in model.iter().enumerate() {
        device.read_at(offset(block), &mut read).expect("read");
        assert!(read.iter().all(|found| found == byte), "seed {seed}: block {block} at the end");
    }
    flushes
}

/// Writers on an export whose server is killed again and again.
fn write_while_it_is_killed(seed: u64, delays: &[&str]) {
    println!("seed {seed}");
    let mut killed = Killed::start_with(BYTES, delays);
    let device = NbdDevice::open(
        &uri(&killed.server, ""),
        Options { connections: 3, requests_per_connection: 1, ..Options::default() },
    );
    let device = device.expect("an export");
    let done = AtomicBool::new(false);
    let flushes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (device, image, done, flushes) = (&device, &killed.image, &done, &flushes);
            let start = thread * (BYTES / THREADS / BLOCK as u64) * BLOCK as u64;
            scope.spawn(move || {
                flushes.fetch_add(write_until(device, image, start, seed + thread, done), Ordering::Relaxed);
            });
        }
        kill_again_and_again(&mut killed.server, seed, &done);
    });
    assert!(flushes.into_inner() > 0);
}

#[test]
fn what_a_killed_server_forgot_is_written_again() {
    write_while_it_is_killed(1, &[]);
}

/// Most kills find requests under way, which are answered in another order than they were sent.
#[test]
fn what_a_server_was_about_to_do_when_it_was_killed_is_done_again() {
    write_while_it_is_killed(7, &["delay-read=2ms", "delay-write=4ms", "delay-zero=1ms"]);
}

#[test]
fn server_that_does_not_come_back_is_given_up_by_name() {
    let mut killed = Killed::start();
    let text = format!("{}&reconnect=1", uri(&killed.server, ""));
    let device = NbdDevice::open(&Uri::parse(&text).expect("a URI"), Options::default()).expect("an export");
    device.write_at(0, &[1; BLOCK]).expect("written");
    killed.server.kill();
    for request in [device.flush(), device.read_at(0, &mut [0; 1]), device.write_at(0, &[2; BLOCK])] {
        let error = request.expect_err("no server").to_string();
        assert!(error.contains(&text) && error.contains("in 1 s") && error.ends_with("gave up"), "{error}");
    }
}

#[test]
fn durable_write_is_not_overwritten_by_one_before() {
    let mut killed = Killed::start();
    let device = open(&killed.server, "");
    device.write_at(0, &[1; 3 * BLOCK]).expect("written");
    device.write_fua(BLOCK as u64, &[2; BLOCK]).expect("written");
    killed.server.kill();
    killed.server.start_again();
    let mut read = vec![0; 3 * BLOCK];
    device.read_at(0, &mut read).expect("read");
    assert_eq!([read[0], read[BLOCK], read[2 * BLOCK]], [1, 2, 1]);
}

#[test]
fn export_that_changed_meanwhile_is_refused() {
    let mut killed = Killed::start();
    let device = open(&killed.server, "");
    device.write_at(0, &[1; BLOCK]).expect("written");
    killed.server.kill();
    let path = killed._dir.path().join("image");
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| file.set_len(BYTES / 2))
        .expect("shorter");
    killed.server.start_again();
    let error = device.flush().expect_err("another export").to_string();
    assert!(error.contains("has changed"), "{error}");
}

#[test]
fn more_than_may_be_kept_is_flushed() {
    let killed = Killed::start_of(80 << 20);
    let device = open(&killed.server, "");
    let content = vec![7; 1 << 20];
    let first_is_flushed = || {
        let mut first = [0];
        killed.image.read_exact_at(&mut first, 0).expect("the image");
        first == [7]
    };
    for at in (0..10).cycle().take(70) {
        device.write_at(at << 20, &content).expect("written");
    }
    assert!(!first_is_flushed(), "the same ranges again take no more memory");
    for at in 10..70 {
        device.write_at(at << 20, &content).expect("written");
    }
    assert!(first_is_flushed());
}

#[test]
fn many_writes_that_are_not_copied_are_durable_and_follow_those_before() {
    const MIB: usize = 1 << 20;
    const WRITES: u64 = 40;
    let mut killed = Killed::start_with(WRITES << 20, &["delay-write=1ms"]);
    let device = open(&killed.server, "");
    for round in 1..4_u8 {
        // A copy of it is there, which is not to be written over what follows.
        device.write_at(0, &[100 + round; MIB]).expect("written");
        device.write_at((WRITES - 1) << 20, &[200 + round; MIB]).expect("written");
        let bytes: Vec<_> = (0..WRITES as u8).map(|write| vec![write + round; MIB]).collect();
        let writes = (0..)
            .zip(&bytes)
            .map(|(write, bytes)| Several { offset: write << 20, bufs: vec![IoSlice::new(bytes)] });
        let writes: Vec<_> = writes.collect();
        std::thread::scope(|scope| {
            scope.spawn(|| device.write_many(&writes).expect("written"));
            std::thread::sleep(Duration::from_millis(5 * u64::from(round)));
            killed.server.kill();
            killed.server.start_again();
        });
        let in_image = |write: u64| {
            let mut found = vec![0; MIB];
            killed.image.read_exact_at(&mut found, write << 20).expect("the image");
            found == bytes[write as usize]
        };
        assert!((0..WRITES).all(in_image), "round {round}: flushed");
        killed.server.kill();
        killed.server.start_again();
        let mut found = vec![0; MIB];
        for write in 0..WRITES {
            device.read_at(write << 20, &mut found).expect("read");
            assert!(found == bytes[write as usize], "round {round}: {write} after another start");
        }
    }
}

/// Passes connections on to a server. One that is frozen is neither passed on any more nor closed, as when a cable is pulled.
struct Cable {
    socket: std::path::PathBuf,
    is_frozen: Arc<[AtomicBool; 8]>,
}

impl Cable {
    fn to(server: &Path) -> Self {
        let socket = server.with_file_name("cable");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (server, is_frozen) = (server.to_owned(), Arc::new([const { AtomicBool::new(false) }; 8]));
        let frozen = is_frozen.clone();
        std::thread::spawn(move || {
            for (index, client) in listener.incoming().flatten().enumerate() {
                let Ok(server) = UnixStream::connect(&server) else { continue };
                for (mut from, mut to) in [
                    (client.try_clone().expect("a copy"), server.try_clone().expect("a copy")),
                    (server, client),
                ] {
                    let frozen = frozen.clone();
                    std::thread::spawn(move || {
                        let mut buffer = [0; 4096];
                        while let Ok(count @ 1..) = from.read(&mut buffer) {
                            if frozen[index].load(Ordering::Acquire)
                                || to.write_all(&buffer[..count]).is_err()
                            {
                                break;
                            }
                        }
                        if frozen[index].load(Ordering::Acquire) {
                            // Until the test ends.
                            std::thread::park();
                        }
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { socket, is_frozen }
    }
}

#[test]
fn new_connection_is_used_only_if_the_server_is_the_same() {
    let mut killed = Killed::start();
    let cable = Cable::to(&killed._dir.path().join("socket"));
    let uri = Uri::parse(&format!("nbd+unix:///?socket={}", cable.socket.display())).expect("a URI");
    let options = Options {
        timeout: Duration::from_secs(1),
        connections: 2,
        requests_per_connection: 1,
        ..Options::default()
    };
    let device = NbdDevice::open(&uri, options).expect("an export");
    device.write_at(0, &[9; BLOCK]).expect("written");
    // The server loses its memory, and the client's first connection does not notice.
    cable.is_frozen[0].store(true, Ordering::Release);
    killed.server.kill();
    killed.server.start_again();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut read = [0; 1];
            device.read_at(0, &mut read).expect("read");
            read
        });
        std::thread::sleep(Duration::from_millis(200));
        // The first connection is busy.
        device.flush().expect("flushed");
        assert_eq!(reader.join().expect("no panic"), [9]);
    });
    let mut written = [0; BLOCK];
    killed.image.read_exact_at(&mut written, 0).expect("the image");
    assert_eq!(written, [9; BLOCK], "flushed before the server lost its memory");
}
