//! Servers that fail a request once and would not do so again, and servers that end in order.

mod common;

use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Served, open};
use extant_block::{BlockDevice, FaultDevice, MemoryDevice, Operation, Write};
use extant_testing::SocketServer;

const BYTES: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// A server of a device of which the first request of a kind fails.
fn served_failing_once(operation: Operation) -> Served {
    Served::start(FaultDevice::failing_once(MemoryDevice::new(BYTES), operation, 0), false)
}

#[test]
fn no_durable_write_succeeds_after_a_failed_flush() {
    let served = served_failing_once(Operation::Flush);
    let device = served.open();
    device.write_at(0, &[1; BLOCK]).expect("written");
    device.flush().expect_err("the device fails it");
    let error = device.write_fua(0, &[2; BLOCK]).expect_err("writes were lost").to_string();
    assert!(error.contains("earlier flush"), "{error}");
}

#[test]
fn no_flush_succeeds_after_a_failed_durable_write() {
    let served = served_failing_once(Operation::WriteFua);
    let device = served.open();
    device.write_at(0, &[1; BLOCK]).expect("written");
    device.write_fua(BLOCK as u64, &[2; BLOCK]).expect_err("the device fails it");
    let error = device.flush().expect_err("writes may be lost").to_string();
    assert!(error.contains("earlier flush"), "{error}");
}

#[test]
fn durable_write_that_is_refused_here_leaves_the_device_usable() {
    let served = Served::start(MemoryDevice::new(BYTES), false);
    let device = served.open();
    device.write_fua(BYTES, &[1; BLOCK]).expect_err("past the end");
    device.write_fua(0, &[1; BLOCK]).expect("written");
    device.flush().expect("flushed");
}

/// A server whose first request of a kind fails with `ESHUTDOWN` though it goes on, as to a client on Ceph's blocklist.
fn fencing(dir: &Path, kind: &str) -> SocketServer {
    let (image, failed) = (dir.join("image"), dir.join("failed"));
    std::fs::File::create(&image).and_then(|file| file.set_len(BYTES)).expect("an image");
    let (image, failed) = (image.display(), failed.display());
    let fails = |own: &str| match own == kind {
        true => format!("mkdir {failed} 2>/dev/null && {{ echo ESHUTDOWN >&2; exit 1; }};"),
        false => String::new(),
    };
    let dd = "iflag=skip_bytes,count_bytes oflag=seek_bytes conv=notrunc status=none";
    let script = [
        format!("get_size=echo {BYTES}"),
        "can_fua=echo native".to_owned(),
        format!("pread=dd if={image} skip=$4 count=$3 {dd}"),
        format!("pwrite={} dd of={image} seek=$4 {dd}", fails("write")),
        format!("flush={} :", fails("flush")),
    ];
    let mut command = vec!["nbdkit", "-f", "-U", "SOCKET", "eval"];
    command.extend(script.iter().map(String::as_str));
    SocketServer::start(dir, &command)
}

#[test]
fn what_the_server_has_failed_is_not_asked_again() {
    let fenced = |kind| {
        let dir = tempfile::tempdir().expect("a directory");
        let server = fencing(dir.path(), kind);
        let device = open(&server, "");
        (device, server, dir)
    };
    let is_shutdown = |error: std::io::Error| {
        assert!(error.to_string().ends_with("(os error 108)"), "{error}");
    };
    let (device, ..) = &fenced("flush");
    device.write_at(0, &[1; BLOCK]).expect("written");
    is_shutdown(device.flush().expect_err("the device failed it"));
    device.flush().expect_err("the failure stays");
    let (device, ..) = &fenced("write");
    is_shutdown(device.write_at(0, &[1; BLOCK]).expect_err("the device failed it"));
    let (device, ..) = &fenced("write");
    is_shutdown(device.write_fua(0, &[1; BLOCK]).expect_err("the device failed it"));
    device.flush().expect_err("the failure stays");
}

#[test]
fn of_many_writes_the_failed_one_is_named_and_none_is_under_way_any_more() {
    let memory = Arc::new(MemoryDevice::new(BYTES));
    let served = Served::start(FaultDevice::failing_once(memory.clone(), Operation::Write, 40), false);
    let device = served.open();
    let all = |bytes: &[u8]| {
        let offsets = (0..BYTES).step_by(BLOCK);
        let writes = offsets.map(|offset| Write { offset, bufs: vec![IoSlice::new(bytes)] });
        device.write_many(&writes.collect::<Vec<_>>())
    };
    let error = all(&[1; BLOCK]).expect_err("the device fails one").to_string();
    assert!(error.contains("write of 4096 bytes at "), "{error}");
    let written = || {
        let mut bytes = vec![0; BYTES as usize];
        memory.read_at(0, &mut bytes).expect("read");
        bytes.chunks(BLOCK).filter(|block| block[0] == 1).count()
    };
    let first = written();
    assert!((24..72).contains(&first), "{first}");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(written(), first);
    all(&[1; BLOCK]).expect("written");
    assert_eq!(written() * BLOCK, BYTES as usize);
    let past = Write { offset: BYTES - 1, bufs: vec![IoSlice::new(&[2; 2])] };
    device.write_many(&[past]).expect_err("past the end");
}

#[test]
fn server_that_ends_in_order_is_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(BYTES)).expect("an image");
    let path = image.to_str().expect("UTF-8");
    let command = ["qemu-nbd", "-t", "-e", "4", "-x", "disk", "-f", "raw", "-k", "SOCKET", path];
    let mut server = SocketServer::start(dir.path(), &command);
    let device = open(&server, "disk");
    let done = AtomicBool::new(false);
    let block = |number: u32| u64::from(number) % (BYTES / BLOCK as u64) * BLOCK as u64;
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !done.load(Ordering::Acquire) {
                number += 1;
                device.write_at(block(number), &number.to_le_bytes()).expect("written");
                device.flush().expect("flushed");
            }
            number
        });
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(50));
            server.terminate();
            server.start_again();
        }
        done.store(true, Ordering::Release);
        writer.join().expect("no panic")
    });
    let mut last = [0; 4];
    std::fs::File::open(&image).and_then(|file| file.read_exact_at(&mut last, block(written))).expect("read");
    assert_eq!(last, written.to_le_bytes());
}
