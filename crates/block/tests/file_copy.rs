//! Image files that begin as copies of others.

use std::path::Path;

use extant_block::{BlockDevice, Copied, Create, DeviceAccess, Error, FileCopy, FileDevice, Transfer};
use extant_rt::{Arc, parallel};
use extant_testing::scratch;

const MIB: u64 = 1 << 20;
const BYTES: u64 = 24 * MIB + 4096;

/// An empty file.
fn new(path: &Path, transfer: Transfer) -> FileDevice {
    let access = DeviceAccess { transfer, create: Create::New, ..DeviceAccess::default() };
    FileDevice::open(path, access).expect("create")
}

/// A base with data in every chunk but the third and the fourth, each block of it another.
fn base(path: &Path) -> Arc<FileDevice> {
    let mut base = new(path, Transfer::Buffered);
    base.set_len(BYTES).expect("a length");
    for at in (0..BYTES).step_by(4096).filter(|at| !(2 * MIB..4 * MIB).contains(at)) {
        base.write_at(at, &[(at / 4096 % 251 + 1) as u8; 4096]).expect("write");
    }
    Arc::new(base)
}

#[test]
fn copy_has_the_content_at_once_and_the_holes_at_the_end() {
    let dir = scratch();
    let paths = ["base", "copy"].map(|name| dir.path().join(name));
    let base = base(&paths[0]);
    let copy = FileCopy::begin(base.clone(), new(&paths[1], Transfer::Buffered)).expect("a copy");
    let mut both = [vec![0; BYTES as usize], vec![0; BYTES as usize]];
    // From the end on, which the copier reaches last, and across the borders of chunks.
    for (piece, into) in both[1].chunks_mut(700_000).enumerate().rev() {
        copy.read_at(piece as u64 * 700_000, into).expect("read");
    }
    base.read_at(0, &mut both[0]).expect("read");
    assert!(both[0] == both[1]);
    match copy.finish().expect("a copy") {
        Copied::Shared => {}
        Copied::Bytes(bytes) => {
            let holes = if cfg!(target_os = "linux") { 2 * MIB } else { 0 };
            assert_eq!(bytes, BYTES - holes);
        }
    }
    assert!(std::fs::read(&paths[1]).expect("read") == both[0]);
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt;
        let blocks = paths.map(|path| std::fs::metadata(path).expect("metadata").blocks());
        assert!(blocks[1] <= blocks[0], "holes stay holes: {blocks:?}");
    }
}

#[test]
fn writes_to_what_is_not_copied_yet_stay() {
    for round in 0..20 {
        let dir = scratch();
        let paths = ["base", "copy"].map(|name| dir.path().join(name));
        let base = base(&paths[0]);
        let copy = FileCopy::begin(base, new(&paths[1], Transfer::Buffered)).expect("a copy");
        let mut expected = std::fs::read(&paths[0]).expect("read");
        // From the end on, against the copier: across the border of two chunks, and within one.
        let pieces: Vec<_> =
            (1..24).rev().flat_map(|mib| [mib * MIB - 512 * round, mib * MIB + 70_000]).collect();
        parallel(2, |half| {
            for at in pieces.iter().skip(half).step_by(2).copied() {
                copy.write_at(at, &[255; 9000]).expect("write");
                let mut bytes = vec![0; 30_000];
                copy.read_at(at - 1000, &mut bytes).expect("read");
                assert!(bytes[1000..10_000].iter().all(|byte| *byte == 255), "{at}");
            }
        });
        copy.write_zeroes(5 * MIB + 10, 5000).expect("zeroes");
        copy.finish().expect("a copy");
        for at in pieces {
            expected[at as usize..][..9000].fill(255);
        }
        expected[(5 * MIB + 10) as usize..][..5000].fill(0);
        assert!(std::fs::read(&paths[1]).expect("read") == expected);
    }
}

#[test]
fn copy_that_cannot_be_made_is_an_error() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name);
    let base = base(&path("base"));
    if cfg!(target_os = "linux") {
        let mapped = FileCopy::begin(base.clone(), new(&path("mapped"), Transfer::Mapped));
        assert!(matches!(mapped, Err(Error::Unsuitable { .. })), "{mapped:?}");
    }
    let mut small = new(&path("small"), Transfer::Buffered);
    small.set_len(MIB).expect("a length");
    let copy = FileCopy::begin(base, small).expect("a longer one");
    assert!(copy.read_at(BYTES, &mut [0]).is_err() && copy.write_at(BYTES, &[0]).is_err());
    assert_eq!(copy.size(), BYTES);
    drop(copy);
}
