//! What the tests of several crates share: files of the host, e2fsprogs as judges, the end of a mount, a kernel in a guest, servers of
//! sockets and of HTTP, random numbers, and what is zero.
//!
//! Tests of one program run beside each other, and each starts programs. Between the fork and the exec of one, the child has all files open
//! that this process has open, also those on another test's mount: for that moment the mount is busy.
#![forbid(unsafe_code)]

#[cfg(not(unix))]
mod command;
mod e2fsprogs;
mod files;
#[cfg(unix)]
mod guest;
#[cfg(unix)]
mod http_server;
mod random;
#[cfg(unix)]
mod socket_server;

#[cfg(not(unix))]
pub use command::{Command, Output};
pub use e2fsprogs::{assert_clean, faults, has_e2fsprogs, run, text};
pub use files::{copy, read_at, scratch, symlink, write_at};
#[cfg(unix)]
pub use guest::{Guest, Setup};
#[cfg(unix)]
pub use http_server::{HttpAnswer, HttpRequest, HttpServer, HttpStream};
pub use random::{Random, mix};
#[cfg(unix)]
pub use socket_server::SocketServer;

use std::path::Path;
#[cfg(unix)]
pub use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long a mount may be busy.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// Runs a command that unmounts, again while it says that the mount is busy.
///
/// # Panics
/// If there is no such program.
pub fn run_while_busy(command: &mut Command) -> Output {
    let begun = Instant::now();
    loop {
        let output = command.env("LC_ALL", "C").output().expect("the program");
        let is_busy = String::from_utf8_lossy(&output.stderr).contains("busy");
        if output.status.success() || !is_busy || begun.elapsed() > BUSY_MAX {
            return output;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the host has threads; else says that the test is skipped.
#[must_use]
pub fn has_threads() -> bool {
    let has_threads = cfg!(any(not(target_family = "wasm"), target_feature = "atomics"));
    if !has_threads {
        println!("skipped: the host has no threads");
    }
    has_threads
}

/// How often tests of crashes do their random part, and which share of what else they could do: `EXTANT_CRASH_SCALE`, 1 by default.
#[must_use]
pub fn crash_scale() -> u64 {
    std::env::var("EXTANT_CRASH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// Whether all bytes are zero. Compares whole pages: without optimisation a loop over the bytes of an image takes longer than e2fsck.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    static ZEROES: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROES.len()).all(|page| *page == ZEROES[..page.len()])
}

/// Unmounts what the kernel has mounted.
///
/// # Panics
/// If that fails, and no panic is under way that has more to say.
pub fn unmount(point: &Path) {
    let output = run_while_busy(Command::new("umount").arg(point));
    assert!(
        output.status.success() || std::thread::panicking(),
        "umount: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
