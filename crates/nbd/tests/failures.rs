//! Servers that fail a request once and would not do so again.

mod common;

use common::Served;
use extant_block::{BlockDevice, FaultDevice, MemoryDevice, Operation};

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
