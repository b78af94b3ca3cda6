//! One request that waits, fails or panics leaves all others alone.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::kernel::on_mount_of;
use super::*;

/// A read is held for so long if it is not released, so that a failed test ends.
pub(super) const HELD_MAX: Duration = Duration::from_secs(30);
/// Readers of the held block: more than threads of a class.
const READERS: usize = 120;
const UNIT: u64 = SHOWN_BLOCK_BYTES as u64;

/// A device of which reads of some bytes are held until they are released, or panic; and writes and flushes, if they are to
/// be.
#[derive(Debug)]
pub(super) struct Trapped {
    device: Arc<MemoryDevice>,
    trap: std::ops::Range<u64>,
    panics: bool,
    pub(super) holds_writes: AtomicBool,
    pub(super) holds_flushes: AtomicBool,
    held: AtomicU64,
    is_open: AtomicBool,
}

impl Trapped {
    pub(super) fn let_go(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }

    fn hold(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics, "a fault of the test's device");
        let start = Instant::now();
        while !self.is_open.load(Ordering::SeqCst) && start.elapsed() < HELD_MAX {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn await_held(&self, count: u64) {
        let start = Instant::now();
        while self.held.load(Ordering::SeqCst) < count {
            assert!(start.elapsed() < HELD_MAX, "{} reads are held", self.held.load(Ordering::SeqCst));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl BlockDevice for Trapped {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset < self.trap.end && self.trap.start < offset + buf.len() as u64 {
            self.hold();
        }
        self.device.read_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        if self.holds_writes.load(Ordering::SeqCst) {
            self.hold();
        }
        self.device.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        if self.holds_flushes.load(Ordering::SeqCst) {
            self.hold();
        }
        self.device.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.device.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.device.write_zeroes(offset, bytes)
    }
}

/// A mount point of the test's own.
pub(super) struct Point(pub(super) PathBuf);

impl Point {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("extant-liveness-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A server of a disk with a file `slow` of which the device holds the first block, or panics.
pub(super) fn trapped(panics: bool, mount: &Mount) -> (Arc<Server>, Arc<Trapped>) {
    let device = disk();
    let server = served(&device);
    let node = make(&server, NodeId::ROOT, b"slow", InodeType::File, 0o644).node;
    let bytes = [7; 16 * UNIT as usize];
    assert_eq!(server.write(node, 0, &bytes, WriteHow::default()), Ok(bytes.len()));
    let at = server.find_block(node, 0, SHOWN_BLOCK_BYTES).expect("an answer").expect("a block") * UNIT;
    server.finish().expect("unmounted");
    let trap = at..at + UNIT;
    let trapped = Trapped {
        device,
        trap,
        panics,
        holds_writes: AtomicBool::new(false),
        holds_flushes: AtomicBool::new(false),
        held: AtomicU64::new(0),
        is_open: AtomicBool::new(false),
    };
    let trapped = Arc::new(trapped);
    let fs = mount.clone().open_device(trapped.clone()).expect("a mount");
    (Server::new(fs, ServerOptions::default()).expect("a server"), trapped)
}

/// Whether the test runs as root, which such a mount needs; prints a note if not.
pub(super) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root mounts so");
    }
    is_root
}

/// Runs `act` on a mount of [`trapped`]; false if nothing can be mounted.
pub(super) fn on_trapped(name: &str, panics: bool, act: impl FnOnce(&Path, &Trapped)) -> bool {
    on_trapped_with(name, panics, &Mount::new(), act)
}

/// [`on_trapped`], mounted so.
pub(super) fn on_trapped_with(
    name: &str,
    panics: bool,
    mount: &Mount,
    act: impl FnOnce(&Path, &Trapped),
) -> bool {
    if !is_root() {
        return false;
    }
    let (server, trapped) = trapped(panics, mount);
    let point = Point::new(name);
    on_mount_of(&server, &point.0, || {
        act(&point.0, &trapped);
        trapped.let_go();
    })
}

/// Has the file system make, change and remove names, ask for attributes and sync.
pub(super) fn work(point: &Path, rounds: u32) {
    for round in 0..rounds {
        let (path, other) = (point.join(format!("a{round}")), point.join(format!("b{round}")));
        fs::write(&path, "content").expect("write");
        fs::rename(&path, &other).expect("rename");
        assert_eq!(fs::metadata(&other).expect("stat").len(), 7);
        if round % 10 == 0 {
            File::open(&other).and_then(|file| file.sync_all()).expect("fsync");
        }
        fs::remove_file(&other).expect("unlink");
    }
    assert!(fs::read_dir(point).expect("a listing").count() >= 1);
}

#[test]
fn request_that_waits_for_the_device_holds_up_no_other() {
    on_trapped("wait", false, |point, trapped| {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| fs::read(point.join("slow")).expect("read"));
            trapped.await_held(1);
            work(point, 50);
            assert!(!reader.is_finished(), "the others waited for it");
            trapped.let_go();
            assert_eq!(reader.join().expect("no panic").len(), 16 * UNIT as usize);
        });
    });
}

#[test]
fn more_waiting_requests_than_threads_hold_up_no_other() {
    on_trapped("many", false, |point, trapped| {
        std::thread::scope(|scope| {
            let read = || {
                let mut options = File::options();
                options.read(true).custom_flags(libc::O_DIRECT);
                let file = options.open(point.join("slow")).expect("open");
                let mut buf = vec![0; 2 * UNIT as usize];
                let start = buf.as_ptr().align_offset(UNIT as usize);
                let buf = &mut buf[start..start + UNIT as usize];
                file.read_exact_at(buf, 0).expect("read");
                assert!(buf.iter().all(|byte| *byte == 7));
            };
            let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
            trapped.await_held(READERS as u64 / 2);
            work(point, 20);
            assert!(readers.iter().all(|reader| !reader.is_finished()), "the others waited for them");
            trapped.let_go();
            readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
        });
    });
}

#[test]
fn panic_is_its_callers_error_and_nobody_elses() {
    on_trapped("panic", true, |point, _| {
        for _ in 0..20 {
            let error = File::open(point.join("slow")).and_then(|mut file| file.read_to_end(&mut Vec::new()));
            assert_eq!(error.map_err(|error| error.raw_os_error()), Err(Some(libc::EIO)));
        }
        work(point, 20);
    });
}
