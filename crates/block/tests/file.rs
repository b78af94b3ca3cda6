//! Files and block specials read back what was written, by every way of access.

#[path = "common/loop_device.rs"]
mod loop_device;

use std::io::IoSlice;
use std::path::Path;

use extant_block::{BlockDevice, Create, DeviceAccess, Error, FileDevice, MemoryDevice, Partition, Transfer};
use extant_testing::Random;
use loop_device::Loop;

const BYTES: u64 = 3 << 20;

/// The transfers that the host offers.
const TRANSFERS: &[Transfer] = match cfg!(target_os = "linux") {
    true => &[Transfer::Buffered, Transfer::Direct, Transfer::Mapped],
    false => &[Transfer::Buffered],
};

fn image(dir: &Path, transfer: Transfer) -> FileDevice {
    let access = DeviceAccess { transfer, create: Create::New, ..DeviceAccess::default() };
    let mut device = FileDevice::open(dir.join("image"), access).expect("create");
    device.set_len(BYTES).expect("set_len");
    device
}

/// Whether a host other than Linux makes no holes in files.
fn has_no_holes(error: &std::io::Error) -> bool {
    !cfg!(target_os = "linux") && error.kind() == std::io::ErrorKind::Unsupported
}

/// Random requests, held against the same ones on plain bytes.
fn agrees_with_plain_bytes(device: &dyn BlockDevice, seed: u64) {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let size = device.size();
    let mut expected = vec![0; size as usize];
    for step in 0..400 {
        let offset = random.below(size);
        let bytes = match random.below(4) {
            0 => random.below(10),
            1 => 512 * random.below(16),
            _ => random.below(200_000),
        };
        let offset = if random.below(2) == 0 { offset / 4096 * 4096 } else { offset };
        let bytes = bytes.min(size - offset);
        let (start, end) = (offset as usize, (offset + bytes) as usize);
        match random.below(6) {
            0 => {
                device.write_zeroes(offset, bytes).expect("write_zeroes");
                expected[start..end].fill(0);
            }
            1 => {
                // Discarded bytes may read as anything, so they are written again.
                match device.discard(offset, bytes) {
                    Err(error) if has_no_holes(&error) => {}
                    discarded => discarded.expect("discard"),
                }
                device.write_at(offset, &expected[start..end]).expect("write");
            }
            2 => {
                expected[start..end].fill(step as u8);
                device.write_fua(offset, &expected[start..end]).expect("write_fua");
            }
            3 => {
                (start..end).for_each(|at| expected[at] = (at * step) as u8);
                let (first, second) = expected[start..end].split_at(random.below(bytes + 1) as usize);
                let bufs = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(second)];
                device.write_vectored_at(offset, &bufs).expect("write_vectored_at");
            }
            _ => {
                let mut read = vec![0xee; end - start];
                device.read_at(offset, &mut read).expect("read");
                assert_eq!(read, expected[start..end], "seed {seed}, step {step}: {bytes} bytes at {offset}");
            }
        }
    }
    device.flush().expect("flush");
    let mut read = vec![0; expected.len()];
    device.read_at(0, &mut read).expect("read");
    assert!(read == expected, "seed {seed}: the whole device");
}

#[test]
fn buffered_file_reads_what_was_written() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
    agrees_with_plain_bytes(&image(dir.path(), Transfer::Buffered), 1);
}

#[test]
fn direct_file_reads_what_was_written_at_any_alignment() {
    if !TRANSFERS.contains(&Transfer::Direct) {
        return println!("skipped: direct I/O is offered on Linux only");
    }
    // Not on tmpfs, which takes O_DIRECT but has nothing to bypass.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
    agrees_with_plain_bytes(&image(dir.path(), Transfer::Direct), 2);
}

#[test]
fn mapped_file_reads_what_was_written() {
    if !TRANSFERS.contains(&Transfer::Mapped) {
        return println!("skipped: memory maps of files are offered on Linux only");
    }
    for dir in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let dir = tempfile::tempdir_in(dir).expect("tempdir");
        let device = image(dir.path(), Transfer::Mapped);
        agrees_with_plain_bytes(&device, 3);
        let mut read = vec![0; BYTES as usize];
        device.read_at(0, &mut read).expect("read");
        assert!(std::fs::read(device.path()).expect("read") == read);
    }
}

#[test]
fn transfers_that_the_host_does_not_offer_are_refused_before_a_file_is_made() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
    for transfer in [Transfer::Buffered, Transfer::Direct, Transfer::Mapped] {
        let path = dir.path().join(format!("{transfer:?}"));
        let access = DeviceAccess { transfer, create: Create::New, ..DeviceAccess::default() };
        let opened = FileDevice::open(&path, access);
        let is_offered = TRANSFERS.contains(&transfer);
        assert!(is_offered || matches!(opened, Err(Error::Unsuitable { .. })), "{opened:?}");
        assert_eq!((opened.is_ok(), path.exists()), (is_offered, is_offered), "{transfer:?}");
    }
}

#[test]
fn memory_device_and_partition_read_what_was_written() {
    agrees_with_plain_bytes(&MemoryDevice::new(BYTES + 100), 4);
    let inside = Partition::new(MemoryDevice::new(BYTES * 2), 12_345, BYTES).expect("partition");
    agrees_with_plain_bytes(&inside, 5);
}

#[test]
fn block_special_reads_what_was_written() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("tempdir");
    let file = dir.path().join("backing");
    std::fs::write(&file, vec![0; BYTES as usize]).expect("backing file");
    let Some(device) = Loop::attach(&file, &[]) else {
        println!("skipped: no loop device");
        return;
    };
    for (transfer, seed) in [(Transfer::Buffered, 6), (Transfer::Direct, 7)] {
        let access = DeviceAccess { transfer, ..DeviceAccess::default() };
        let special = FileDevice::open(&device.0, access).expect("open");
        assert!(special.is_block_special());
        assert_eq!(special.size(), BYTES);
        special.write_zeroes(0, BYTES).expect("write_zeroes");
        agrees_with_plain_bytes(&special, seed);
    }
    let access = DeviceAccess { transfer: Transfer::Mapped, ..DeviceAccess::default() };
    assert!(matches!(FileDevice::open(&device.0, access), Err(Error::Unsuitable { .. })));
}

#[cfg(target_os = "linux")]
/// The flushes that a loop device's statistics count.
fn flushes(device: &Path) -> u64 {
    let name = device.file_name().expect("name").to_str().expect("text");
    let stat = std::fs::read_to_string(format!("/sys/block/{name}/stat")).expect("stat");
    stat.split_whitespace().nth(15).expect("sixteenth field").parse().expect("number")
}

#[cfg(target_os = "linux")]
#[test]
fn flush_fua_and_discard_reach_the_device() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir_in("/dev/shm").expect("tempdir");
    let file = dir.path().join("backing");
    std::fs::write(&file, vec![1; BYTES as usize]).expect("backing file");
    let Some(device) = Loop::attach(&file, &[]) else {
        println!("skipped: no loop device");
        return;
    };
    for transfer in [Transfer::Buffered, Transfer::Direct] {
        let special =
            FileDevice::open(&device.0, DeviceAccess { transfer, ..DeviceAccess::default() }).expect("open");
        let before = flushes(&device.0);
        special.write_at(0, &[2; 4096]).expect("write");
        assert_eq!(flushes(&device.0), before, "{transfer:?}: a write alone flushes nothing");
        special.flush().expect("flush");
        assert_eq!(flushes(&device.0), before + 1, "{transfer:?}");
        special.write_fua(0, &[3; 4096]).expect("write_fua");
        assert!(flushes(&device.0) > before + 1, "{transfer:?}: a loop device has no FUA but the flush");
        let held = || std::fs::metadata(&file).expect("metadata").blocks() * 512;
        special.write_at(1 << 20, &[4; 1 << 20]).expect("write");
        special.flush().expect("flush");
        let full = held();
        // Both ends lie inside a sector, which stays.
        special.discard((1 << 20) + 1, (1 << 20) - 2).expect("discard");
        assert!(held() + (1 << 19) < full, "{transfer:?}: {} of {full} bytes are held", held());
        let mut ends = [0; 2];
        special.read_at(1 << 20, &mut ends[..1]).expect("read");
        special.read_at((2 << 20) - 1, &mut ends[1..]).expect("read");
        assert_eq!(ends, [4, 4]);
    }
}

#[test]
fn threads_that_write_next_to_each_other_lose_nothing() {
    const THREADS: usize = 4;
    const PIECE: usize = 300;
    if !extant_testing::has_threads() {
        return;
    }
    for transfer in TRANSFERS.iter().copied() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
        let device = image(dir.path(), transfer);
        // Pieces in turn, so that each sector has several writers.
        extant_rt::parallel(THREADS, |thread| {
            for round in 0..200 {
                let offset = (round * THREADS + thread) * PIECE;
                device.write_at(offset as u64, &[thread as u8 + 1; PIECE]).expect("write");
            }
        });
        let mut read = vec![0; 200 * THREADS * PIECE];
        device.read_at(0, &mut read).expect("read");
        for (index, piece) in read.chunks(PIECE).enumerate() {
            assert!(
                piece.iter().all(|byte| usize::from(*byte) == index % THREADS + 1),
                "{transfer:?}: piece {index}"
            );
        }
    }
}

#[test]
fn a_file_past_the_hosts_cache_has_latency() {
    for transfer in TRANSFERS.iter().copied() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
        let has_latency = image(dir.path(), transfer).has_latency();
        assert_eq!(has_latency, transfer == Transfer::Direct, "{transfer:?}");
    }
}

#[test]
fn more_buffers_than_one_call_takes_are_all_written() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
    let device = image(dir.path(), Transfer::Buffered);
    let content: Vec<u8> = (0..5000_u32).flat_map(|n| [n as u8, (n >> 8) as u8]).collect();
    let bufs: Vec<_> = content.chunks(2).map(IoSlice::new).collect();
    device.write_vectored_at(77, &bufs).expect("write");
    let mut read = vec![0; content.len()];
    device.read_at(77, &mut read).expect("read");
    assert_eq!(read, content);
}

#[test]
fn range_past_the_end_is_refused_and_the_file_keeps_its_size() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
    for device in [&image(dir.path(), Transfer::Buffered) as &dyn BlockDevice, &MemoryDevice::new(BYTES)] {
        let eof = |result: std::io::Result<()>| {
            assert_eq!(result.expect_err("past the end").kind(), std::io::ErrorKind::UnexpectedEof);
        };
        eof(device.read_at(BYTES - 1, &mut [0; 2]));
        eof(device.write_at(BYTES - 1, &[0; 2]));
        eof(device.write_at(u64::MAX, &[0; 2]));
        eof(device.write_fua(BYTES, &[0]));
        eof(device.write_zeroes(1, BYTES));
        eof(device.discard(u64::MAX, 2));
        assert_eq!(device.size(), BYTES);
    }
    assert_eq!(std::fs::metadata(dir.path().join("image")).expect("metadata").len(), BYTES);
}

#[test]
fn read_only_device_refuses_every_change_and_leaves_the_file_alone() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
    let path = dir.path().join("image");
    std::fs::write(&path, vec![9; 8192]).expect("file");
    let before = std::fs::metadata(&path).expect("metadata").modified().expect("mtime");
    for transfer in [Transfer::Buffered, Transfer::Mapped] {
        let device =
            FileDevice::open(&path, DeviceAccess { transfer, ..DeviceAccess::read_only() }).expect("open");
        assert!(device.is_read_only());
        let denied = |result: std::io::Result<()>| {
            assert_eq!(result.expect_err("read only").kind(), std::io::ErrorKind::PermissionDenied);
        };
        denied(device.write_at(0, &[1]));
        denied(device.write_fua(0, &[1]));
        denied(device.write_zeroes(0, 1));
        denied(device.discard(0, 1));
        device.flush().expect("flush of nothing");
    }
    assert_eq!(std::fs::metadata(&path).expect("metadata").modified().expect("mtime"), before);
    assert_eq!(std::fs::read(&path).expect("read"), vec![9; 8192]);
}

#[cfg(target_os = "linux")]
#[test]
fn size_is_set_sparsely_by_every_way_of_access() {
    use std::os::unix::fs::MetadataExt;
    for transfer in [Transfer::Buffered, Transfer::Direct, Transfer::Mapped] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
        let mut device = image(dir.path(), transfer);
        device.write_at(0, &[1; 4096]).expect("write");
        device.set_len(1 << 30).expect("grow");
        device.write_at((1 << 30) - 4096, &[2; 4096]).expect("write at the new end");
        let held = std::fs::metadata(device.path()).expect("metadata").blocks() * 512;
        assert!(held < 1 << 20, "{transfer:?}: a sparse image holds {held} bytes");
        device.set_len(4096).expect("shrink");
        assert_eq!(device.size(), 4096);
        assert!(device.read_at(4096, &mut [0]).is_err());
        let mut read = [0; 4096];
        device.read_at(0, &mut read).expect("read");
        assert_eq!(read, [1; 4096]);
    }
}

#[test]
fn a_file_becomes_longer_while_it_is_in_use() {
    for transfer in TRANSFERS.iter().copied() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
        let device = image(dir.path(), transfer);
        device.write_at(BYTES - 8192, &[1; 8192]).expect("write");
        device.grow(BYTES - 1).expect("long enough");
        assert_eq!(device.size(), BYTES, "{transfer:?}");
        device.grow(3 * BYTES).expect("grow");
        device.write_at(BYTES - 4096, &[2; 12288]).expect("across the former end");
        device.write_at(3 * BYTES - 4096, &[3; 4096]).expect("at the end");
        match device.discard(BYTES, 4096) {
            Err(error) if has_no_holes(&error) => device.write_zeroes(BYTES, 4096).expect("zeroes"),
            discarded => discarded.expect("discard"),
        }
        let mut bytes = vec![0; 20480];
        device.read_at(BYTES - 8192, &mut bytes).expect("read");
        let expected = [[1; 4096], [2; 4096], [0; 4096], [2; 4096], [0; 4096]].concat();
        assert!(bytes == expected, "{transfer:?}");
        assert_eq!(std::fs::metadata(dir.path().join("image")).expect("the file").len(), 3 * BYTES);
    }
}

#[test]
fn full_file_system_is_an_error_and_no_signal_through_a_map() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(dir.path())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        println!("skipped: no tmpfs can be mounted");
        return;
    }
    let result = std::panic::catch_unwind(|| {
        let device = image(dir.path(), Transfer::Mapped);
        device.write_at(0, &[1; 512 << 10]).expect("half of the space");
        let error = device.write_at(1 << 20, &[1; 1 << 20]).expect_err("more than there is");
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    });
    extant_testing::unmount(dir.path());
    result.expect("the test under the mount");
}

#[test]
fn files_are_made_only_as_asked() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
    let path = dir.path().join("image");
    let with = |create, truncate| {
        FileDevice::open(&path, DeviceAccess { create, truncate, ..DeviceAccess::default() })
    };
    assert!(matches!(with(Create::Never, false), Err(Error::Io { .. })));
    assert_eq!(with(Create::IfMissing, false).expect("made").size(), 0);
    assert!(matches!(with(Create::New, false), Err(Error::Io { .. })));
    std::fs::write(&path, b"content").expect("file");
    assert_eq!(with(Create::IfMissing, false).expect("open").size(), 7);
    assert_eq!(with(Create::Never, true).expect("truncated").size(), 0);
}

#[test]
fn what_is_not_a_device_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
    // Windows has no file of Unix's kinds.
    let others = if cfg!(windows) { &[][..] } else { &[Path::new("/dev/null")] };
    for path in [dir.path()].iter().chain(others) {
        for access in [DeviceAccess::read_only(), DeviceAccess::read_write()] {
            let error = FileDevice::open(path, access).expect_err("not a device");
            assert!(matches!(error, Error::NotADevice { .. }), "{error}");
        }
    }
}

/// A second way to a loop device's bytes is the file below it: what is written there is not in the device's cache.
#[test]
fn refreshed_bytes_come_from_the_device_itself() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("scratch");
    let below = scratch.path().join("below");
    std::fs::write(&below, vec![b'a'; 1 << 20]).expect("a file");
    let Some(device) = Loop::attach(&below, &[]) else {
        println!("skipped: no loop device");
        return;
    };
    let device_file = FileDevice::open(&device.0, DeviceAccess::read_write()).expect("open");
    let read = || {
        let mut bytes = [0; 16];
        device_file.read_at(70_000, &mut bytes).expect("read");
        bytes
    };
    assert_eq!(read(), [b'a'; 16]);
    let file = std::fs::OpenOptions::new().write(true).open(&below).expect("open");
    extant_block::FileExt::write_all_at(&file, &[b'b'; 1 << 10], 70_000).expect("write");
    assert_eq!(read(), [b'a'; 16], "nothing was kept, so that the test shows nothing");
    device_file.refresh(70_000, 16).expect("refresh");
    assert_eq!(read(), [b'b'; 16]);
}

#[cfg(not(windows))]
#[test]
fn canonical_paths_lead_through_no_link() {
    use extant_testing::symlink;
    use std::io::ErrorKind;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let dir = extant_block::canonicalize(dir.path()).expect("a directory");
    std::fs::create_dir_all(dir.join("a/b")).expect("directories");
    std::fs::write(dir.join("a/b/file"), "").expect("a file");
    symlink("b/../b", &dir.join("a/relative"));
    // WASI follows no absolute link.
    let file = if cfg!(target_os = "wasi") { "a/relative/file".into() } else { dir.join("a/relative/file") };
    symlink(extant_testing::text(&file), &dir.join("outer"));
    symlink("loop", &dir.join("loop"));
    let found = |path: &str| extant_block::canonicalize(dir.join(path));
    for path in ["a/./b/../b/file", "a/relative/file", "outer", "a/relative/../../outer"] {
        assert_eq!(found(path).expect(path), dir.join("a/b/file"), "{path}");
    }
    assert_eq!(extant_block::canonicalize(Path::new("/..")).expect("the root"), Path::new("/"));
    assert_eq!(found("a/none").expect_err("nothing").kind(), ErrorKind::NotFound);
    assert_eq!(found("a/b/file/..").expect_err("a file").kind(), ErrorKind::NotADirectory);
    assert!(found("loop").is_err());
}
