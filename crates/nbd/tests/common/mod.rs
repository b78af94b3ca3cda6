//! Servers of other projects, and random requests beside a model.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use extant_block::{BlockDevice, Write as Several};
use extant_nbd::{Listener, NbdDevice, Options, Server, ServerOptions, ServerTls, Uri};
use extant_testing::{Random, SocketServer};

/// The URI of an export of a server of another project.
pub fn uri(server: &SocketServer, export: &str) -> Uri {
    let text = format!("nbd+unix:///{export}?socket={}", server.socket().display());
    Uri::parse(&text).expect("a URI")
}

/// Connects to it.
pub fn open(server: &SocketServer, export: &str) -> NbdDevice {
    let options = Options { requests_per_connection: 2, ..Options::default() };
    NbdDevice::open(&uri(server, export), options).expect("an export")
}

/// A server in this process.
pub struct Served {
    pub server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
    pub socket: PathBuf,
    dir: tempfile::TempDir,
}

impl Served {
    pub fn start(device: impl BlockDevice + 'static, read_only: bool) -> Self {
        Self::start_with(device, read_only, None)
    }

    pub fn start_with(device: impl BlockDevice + 'static, read_only: bool, tls: Option<ServerTls>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("socket");
        let listener = Listener::Unix(UnixListener::bind(&socket).expect("a socket"));
        let options = ServerOptions { export: "disk".into(), read_only, tls };
        let server = Arc::new(Server::new(Arc::new(device), options));
        let serving = server.clone();
        let thread = std::thread::spawn(move || serving.serve(&listener).expect("it listens"));
        Self { server, thread: Some(thread), socket, dir }
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.socket.display())
    }

    pub fn open(&self) -> NbdDevice {
        NbdDevice::open(&Uri::parse(&self.uri()).expect("a URI"), Options::default()).expect("an export")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.stop().expect("it stops");
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

/// A connection whose messages the test makes itself.
pub struct Raw(pub UnixStream);

impl Raw {
    /// Negotiates without structured replies.
    pub fn connect(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).expect("connected");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("a greeting");
        stream.write_all(&Self::negotiation()).expect("sent");
        let mut export = [0; 10];
        stream.read_exact(&mut export).expect("an export");
        Self(stream)
    }

    /// What a client sends that takes the default export in the old way.
    pub fn negotiation() -> Vec<u8> {
        [&3_u32.to_be_bytes()[..], b"IHAVEOPT", &1_u32.to_be_bytes(), &0_u32.to_be_bytes()].concat()
    }

    /// A request without a payload.
    pub fn request(command: u16, offset: u64, bytes: u32) -> Vec<u8> {
        let (magic, flags) = (0x2560_9513_u32.to_be_bytes(), 0_u16.to_be_bytes());
        let (command, cookie) = (command.to_be_bytes(), 7_u64.to_be_bytes());
        [&magic[..], &flags, &command, &cookie, &offset.to_be_bytes(), &bytes.to_be_bytes()].concat()
    }

    /// A write.
    pub fn write(offset: u64, payload: &[u8]) -> Vec<u8> {
        [Self::request(1, offset, payload.len() as u32), payload.to_vec()].concat()
    }

    /// Sends a request; the error number of the reply to it.
    pub fn errno_of(&mut self, request: &[u8]) -> u32 {
        self.0.write_all(request).expect("sent");
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).expect("a reply");
        assert_eq!(reply[8..], 7_u64.to_be_bytes(), "the cookie");
        u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]])
    }
}

/// Random requests of every kind by several threads, each in its own part of the device, compared with a model.
pub fn exercise(device: &NbdDevice, seed: u64, threads: u64, requests: u64) {
    let part = device.size() / threads;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || exercise_part(device, seed ^ thread << 32, thread * part, part, requests));
        }
    });
}

fn exercise_part(device: &NbdDevice, seed: u64, start: u64, bytes: u64, requests: u64) {
    let mut numbers = Random::new(seed);
    let mut model = vec![0; bytes as usize];
    device.read_at(start, &mut model).expect("read");
    for request in 0..requests {
        let most = if numbers.below(8) == 0 { bytes / 2 } else { 20_000.min(bytes) };
        let count = numbers.below(most) + 1;
        let from = numbers.below(bytes - count + 1);
        // Half of them aligned, as a file system's are.
        let mask = if numbers.below(2) == 0 { 4095 } else { 0 };
        let (from, count) = (from & !mask, ((count + mask) & !mask).min(bytes - (from & !mask)));
        let range = from as usize..(from + count) as usize;
        let told = || format!("seed {seed} request {request}: {count} bytes at {}", start + from);
        let byte = numbers.next() as u8;
        match numbers.below(10) {
            0..4 => {
                let content: Vec<u8> = (0..count).map(|at| byte.wrapping_add((at % 251) as u8)).collect();
                let (left, right) = content.split_at(content.len() / 3);
                let bufs = [std::io::IoSlice::new(left), std::io::IoSlice::new(right)];
                let written = match numbers.below(2) {
                    0 => device.write_vectored_at(start + from, &bufs),
                    _ => {
                        let right = Several { offset: start + from + left.len() as u64, bufs: vec![bufs[1]] };
                        device.write_many(&[right, Several { offset: start + from, bufs: vec![bufs[0]] }])
                    }
                };
                written.unwrap_or_else(|error| panic!("{}: {error}", told()));
                model[range].copy_from_slice(&content);
            }
            4 => {
                let content = vec![byte; count as usize];
                device
                    .write_fua(start + from, &content)
                    .unwrap_or_else(|error| panic!("{}: {error}", told()));
                model[range].fill(byte);
            }
            5 => {
                device
                    .write_zeroes(start + from, count)
                    .unwrap_or_else(|error| panic!("{}: {error}", told()));
                model[range].fill(0);
            }
            6 => device.flush().unwrap_or_else(|error| panic!("{}: {error}", told())),
            _ => {
                let mut read = vec![0xa5; count as usize];
                device.read_at(start + from, &mut read).unwrap_or_else(|error| panic!("{}: {error}", told()));
                assert!(read == model[range], "{}: other bytes", told());
            }
        }
    }
    let mut read = vec![0; bytes as usize];
    device.read_at(start, &mut read).expect("read");
    assert!(read == model, "seed {seed}");
}
