//! Mounts over io_uring, which root switches on for the moment in which they begin.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::thread::gettid;

use super::kernel::serve_while;
use super::liveness::{Point, Trapped, is_root, trapped, work};
use super::*;
use crate::transport::FAILS_AT;

/// Whether the kernel offers rings to mounts.
const OFFERED: &str = "/sys/module/fuse/parameters/enable_uring";
/// How long what a failed ring serves may wait.
const END_MAX: Duration = Duration::from_secs(10);

/// Has the kernel offer rings until it is dropped; one at a time in this process.
struct Offered {
    before: String,
    _one: MutexGuard<'static, ()>,
}

impl Offered {
    fn new() -> Option<Self> {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let offered = fs::read_to_string(OFFERED).and_then(|before| {
            fs::write(OFFERED, "Y")?;
            Ok(Self { before, _one: one })
        });
        offered.inspect_err(|error| println!("skipped: {OFFERED}: {error}")).ok()
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        let _ = fs::write(OFFERED, &self.before);
    }
}

/// Runs `act` on a mount of `server` over rings: how serving ended; None, and says so, if there are none here.
fn serve_over_rings(server: &Arc<Server>, point: &Path, act: impl FnOnce()) -> Option<io::Result<()>> {
    let offered = Offered::new()?;
    let mut has_rings = false;
    let end = serve_while(server, point, || {
        let transport = fs::read_to_string(point.join(".extant/transport")).expect("a control file");
        drop(offered);
        has_rings = transport.trim() == "io_uring";
        if has_rings {
            act();
        }
    })?;
    if !has_rings {
        println!("skipped: the host forbids io_uring");
    }
    has_rings.then_some(end)
}

/// Runs `act` on a mount over rings of a disk that can be held, mounted so.
pub(super) fn on_rings(name: &str, mount: &Mount, act: impl FnOnce(&Path, &Trapped)) {
    if !is_root() {
        return;
    }
    let (server, trapped) = trapped(false, mount);
    let point = Point::new(name);
    let end = serve_over_rings(&server, &point.0, || {
        act(&point.0, &trapped);
        trapped.let_go();
    });
    trapped.let_go();
    end.into_iter().for_each(|end| end.expect("served"));
    server.finish().expect("a clean disk");
}

/// Runs a request in a thread; returns its result, which must arrive in time. A thread that hangs is left behind.
fn ask(point: &Path, act: impl FnOnce(&Path) -> io::Result<()> + Send + 'static) -> Option<i32> {
    let (sender, answers) = channel();
    let point = point.to_owned();
    std::thread::spawn(move || sender.send(act(&point).map_err(|error| error.raw_os_error())));
    let answer = answers.recv_timeout(END_MAX).expect("an answer from a mount whose ring failed");
    answer.expect_err("the mount is at its end")
}

/// Has the thread of a ring fail at a request: its caller gets an error, and so does one that comes later. How serving ended.
fn fail_ring(name: &str, panics: bool) -> Option<String> {
    let (server, trapped) = trapped(false, &Mount::new());
    let point = Point::new(name);
    let end = serve_over_rings(&server, &point.0, || {
        work(&point.0, 20);
        let failed = ask(&point.0, move |point| {
            let own = i64::from(gettid().as_raw_pid());
            FAILS_AT.store(if panics { -own } else { own }.cast_unsigned(), Ordering::SeqCst);
            fs::write(point.join("new"), "content")
        });
        FAILS_AT.store(0, Ordering::SeqCst);
        let later = ask(&point.0, |point| fs::metadata(point).map(drop));
        for error in [failed, later] {
            assert!(matches!(error, Some(libc::ENOTCONN | libc::ECONNABORTED)), "{error:?}");
        }
    });
    trapped.let_go();
    server.finish().expect("a clean disk");
    end.map(|end| end.expect_err("the ring failed").to_string())
}

#[test]
fn ring_that_fails_ends_the_mount_with_its_error() {
    if !is_root() {
        return;
    }
    if let Some(error) = fail_ring("ring-fails", false) {
        assert_eq!(error, "a fault of the test's");
    }
    if let Some(error) = fail_ring("ring-panics", true) {
        assert_eq!(error, "a thread that serves a CPU has ended");
    }
}
