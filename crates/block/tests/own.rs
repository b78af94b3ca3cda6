//! Storage of a program's own as devices: bytes behind a lock, and what is read and written at offsets.

use std::io::{ErrorKind, IoSlice};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use extant_block::{BlockDevice, FileExtDevice};

const BYTES: u64 = 200_000;

/// Writes, zeroes and reads at both ends and across 64 KiB, and reaches past the end.
fn check_device(device: &dyn BlockDevice) {
    assert_eq!(device.size(), BYTES);
    let bufs = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cd")];
    device.write_vectored_at(BYTES - 4, &bufs).expect("a write up to the end");
    device.write_at(0, &[7; 150_000]).expect("a write");
    device.write_zeroes(10, 140_000).expect("zeroes");
    device.flush().expect("a flush");
    let mut all = vec![0xFF; BYTES as usize];
    device.read_at(0, &mut all).expect("a read of all");
    let mut expected = vec![0; BYTES as usize];
    expected[..10].fill(7);
    expected[140_010..150_000].fill(7);
    expected[BYTES as usize - 4..].copy_from_slice(b"abcd");
    assert!(all == expected);
    for offset in [BYTES - 3, BYTES, u64::MAX - 1] {
        let kinds = [
            device.read_at(offset, &mut [0; 4]),
            device.write_at(offset, &[0; 4]),
            device.write_zeroes(offset, 4),
        ]
        .map(|result| result.expect_err("past the end").kind());
        assert_eq!(kinds, [ErrorKind::UnexpectedEof; 3], "{offset}");
    }
}

#[test]
fn bytes_behind_a_lock_are_a_device() {
    let bytes = Mutex::new(vec![0; BYTES as usize]);
    check_device(&bytes);
    bytes.grow(BYTES + 5).expect("more bytes");
    bytes.grow(BYTES).expect("nothing to do");
    assert!(bytes.grow(u64::MAX).is_err());
    let bytes = bytes.into_inner().expect("the bytes");
    assert_eq!(bytes[BYTES as usize - 4..], *b"abcd\0\0\0\0\0");
}

#[test]
fn what_is_written_at_offsets_is_a_device() {
    let scratch = extant_testing::scratch();
    let path = scratch.path().join("file");
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(path).expect("a file");
    file.set_len(BYTES + 1).expect("room");
    let syncs = AtomicU32::new(0);
    let device = FileExtDevice::new(file, BYTES, |file: &std::fs::File| {
        syncs.fetch_add(1, Ordering::Relaxed);
        file.sync_data()
    });
    check_device(&device);
    assert_eq!(syncs.load(Ordering::Relaxed), 1);
    device.write_fua(0, b"x").expect("a durable write");
    assert_eq!(syncs.load(Ordering::Relaxed), 2);
    assert_eq!(device.discard(0, 4096).expect_err("no way to discard").kind(), ErrorKind::Unsupported);
    assert!(device.grow(BYTES + 1).is_err());
}
