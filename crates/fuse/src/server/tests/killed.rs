//! A killed caller does not wait for the device.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::liveness::{HELD_MAX, Trapped, on_trapped, on_trapped_with, work};
use super::rings::on_rings;
use super::*;

/// How long a killed process may take to end: far below [`HELD_MAX`], and long on a machine that others use.
const END_MAX: Duration = Duration::from_secs(5);
const PAGE_CACHE_BYTES: u64 = 2 << 20;

fn start(program: &str, arguments: &[&str]) -> Child {
    assert!(END_MAX * 4 < HELD_MAX);
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect(program)
}

/// Kills a process that waits in the mount, and has it end.
fn kill(mut child: Child) {
    assert!(child.try_wait().expect("its state").is_none(), "it did not wait");
    child.kill().expect("kill");
    let start = Instant::now();
    while child.try_wait().expect("its state").is_none() {
        assert!(start.elapsed() < END_MAX, "a killed process waits in the mount");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn path(point: &Path, name: &str) -> String {
    point.join(name).display().to_string()
}

#[test]
fn killed_reader_does_not_wait_for_the_device() {
    on_trapped("killed-reader", false, |point, trapped| {
        let input = format!("if={}", path(point, "slow"));
        let reader = start("dd", &[&input, "of=/dev/null", "bs=4096", "count=1", "iflag=direct"]);
        trapped.await_held(1);
        kill(reader);
        // The server's thread still waits; no caller receives its reply at last.
        work(point, 20);
    });
}

#[test]
fn killed_caller_of_fsync_does_not_wait_for_the_device() {
    on_trapped("killed-fsync", false, |point, trapped| {
        fs::write(point.join("file"), "content").expect("write");
        trapped.holds_flushes.store(true, Ordering::SeqCst);
        let syncer = start("sync", &[&path(point, "file")]);
        trapped.await_held(1);
        kill(syncer);
        assert_eq!(fs::read(point.join("file")).expect("read"), b"content");
    });
}

fn kill_throttled_writer(point: &Path, trapped: &Trapped) {
    trapped.holds_writes.store(true, Ordering::SeqCst);
    let output = format!("of={}", path(point, "large"));
    let writer = start("dd", &["if=/dev/zero", &output, "bs=64k", "count=128"]);
    trapped.await_held(1);
    // Until nothing more may be dirty. Over rings others may wait behind the writer, so the mount is not asked.
    let written = || {
        let text = fs::read_to_string(format!("/proc/{}/io", writer.id())).expect("what it wrote");
        text.lines().find_map(|line| line.strip_prefix("wchar: ").map(str::to_owned)).expect("a count")
    };
    let mut before = String::new();
    while written() == "0" || written() != before {
        before = written();
        std::thread::sleep(Duration::from_millis(500));
    }
    kill(writer);
}

fn throttling() -> Mount {
    Mount::new().page_cache_bytes(PAGE_CACHE_BYTES)
}

#[test]
fn killed_writer_is_slowed_no_longer() {
    on_trapped_with("killed-writer", false, &throttling(), kill_throttled_writer);
}

#[test]
fn killed_writer_is_slowed_no_longer_over_rings() {
    on_rings("killed-ring", &throttling(), kill_throttled_writer);
}
