//! Discards of free space: what they give back to the host, and what they must not touch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant::mkfs::Mkfs;
use extant::{Error, Filesystem, Mount};
use extant_block::{BlockDevice, Event, Fault, FaultDevice, MemoryDevice, Operation, Recorder, Tearing};
use extant_testing::{assert_clean, scratch};

const MIB: u64 = 1 << 20;
const ALL: std::ops::Range<u64> = 0..u64::MAX;

/// Bytes that encode their own position.
fn content(seed: u64, bytes: u64) -> Vec<u8> {
    (0..bytes / 8).flat_map(|word| (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed).to_le_bytes()).collect()
}

#[cfg(target_os = "linux")]
fn allocated_bytes(image: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(image).expect("an image").blocks() * 512
}

/// Only on Linux are there holes in image files.
#[cfg(target_os = "linux")]
#[test]
fn trim_gives_the_space_of_removed_files_back_to_the_host() {
    use extant_testing::{run, text};
    // Not in memory, where what the image takes and gives back is counted otherwise.
    let scratch = tempfile::tempdir().expect("scratch");
    let image = scratch.path().join("disk.img");
    run("mke2fs", &["-q", "-F", "-t", "ext4", text(&image), "192M"]).expect("mke2fs");
    let fs = Mount::new().open(&image).expect("mount");
    fs.write("/kept", content(1, 5 * MIB)).expect("write");
    fs.write("/removed", content(2, 40 * MIB)).expect("write");
    fs.write("/kept-too", content(3, 5 * MIB)).expect("write");
    fs.sync().expect("sync");
    let full = allocated_bytes(&image);
    fs.remove_file("/removed").expect("unlink");
    fs.sync().expect("sync");
    assert!(allocated_bytes(&image) >= 50 * MIB, "the host does not know yet");

    let trimmed = fs.trim(ALL, 0).expect("trim");
    let left = allocated_bytes(&image);
    assert!(left + 40 * MIB <= full, "{full} bytes before, {left} after");
    let statistics = fs.statistics();
    let free = statistics.free_blocks * u64::from(statistics.block_size);
    assert_eq!(trimmed, free, "every free block, once");
    assert_eq!(fs.trim(ALL, 0).expect("trim"), 0);
    assert_eq!(fs.read("/kept").expect("read"), content(1, 5 * MIB));
    assert_eq!(fs.read("/kept-too").expect("read"), content(3, 5 * MIB));
    fs.unmount().expect("unmount");
    assert_clean(&image, "trimmed");
}

#[test]
fn ranges_are_the_kernels() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    Mkfs::new().format(&*device).expect("format");
    let fs = Mount::new().open_device(device.clone()).expect("mount");
    for (range, least) in [(64 * MIB..u64::MAX, 0), (0..4095, 0), (5 * MIB..5 * MIB, 0), (ALL, 129 * MIB)] {
        assert!(matches!(fs.trim(range, least), Err(Error::InvalidArgument(_))));
    }
    assert_eq!(fs.trim(40 * MIB..50 * MIB, 11 * MIB).expect("trim"), 0, "the part in the range is shorter");
    assert_eq!(fs.trim(40 * MIB..50 * MIB, 10 * MIB).expect("trim"), 10 * MIB);
    fs.unmount().expect("unmount");
    let fs = Mount::new().read_only(true).open_device(device).expect("mount");
    assert!(matches!(fs.trim(ALL, 0), Err(Error::ReadOnly)));
}

#[test]
fn a_device_that_cannot_discard_is_named_and_one_that_fails_too() {
    for (kind, is_named) in [(std::io::ErrorKind::Unsupported, true), (std::io::ErrorKind::Other, false)] {
        let device = MemoryDevice::new(64 * MIB);
        Mkfs::new().format(&device).expect("format");
        let discards = move |request: &extant_block::Request| {
            if request.operation == Operation::Discard { Fault::Error(kind) } else { Fault::None }
        };
        let device = FaultDevice::new(device, discards);
        let fs = Mount::new().open_device(Arc::new(device)).expect("mount");
        let free = fs.statistics().free_blocks;
        let error = fs.trim(ALL, 0).expect_err("no discard");
        assert_eq!(matches!(error, Error::Unsupported(_)), is_named, "{error}");
        assert_eq!(fs.statistics().free_blocks, free);
        fs.write("/file", b"goes on").expect("write");
        fs.unmount().expect("unmount");
    }
}

/// A disk in memory with two files, recorded from then on.
fn recorded(mount: impl Fn() -> Mount) -> (Arc<Recorder<MemoryDevice>>, Filesystem) {
    let device = MemoryDevice::new(32 * MIB);
    Mkfs::new().format(&device).expect("format");
    let recorder = Arc::new(Recorder::over(device));
    let fs = mount().background(false).open_device(recorder.clone()).expect("mount");
    fs.write("/removed", content(2, 4 * MIB)).expect("write");
    fs.write("/kept", content(1, 4 * MIB)).expect("write");
    fs.sync().expect("sync");
    (recorder, fs)
}

fn discards(recorder: &Recorder<MemoryDevice>, from: usize) -> Vec<(u64, u64)> {
    let log = recorder.log();
    let discards = log.events()[from..].iter().filter_map(|event| match event {
        Event::Discard { offset, bytes } => Some((*offset, *bytes)),
        _ => None,
    });
    discards.collect()
}

/// Crashes after each event from `from` on, with all, none and half of what is not flushed: a file that is there is whole.
fn assert_every_crash_keeps_files(recorder: &Recorder<MemoryDevice>, from: usize) {
    let log = recorder.log();
    let mut cursor = log.cursor();
    for events in from..=log.events().len() {
        cursor.advance_to(events).expect("a log");
        for survivors in 0..3 {
            let survives = |part: &extant_block::Unflushed| match survivors {
                0 => false,
                1 => true,
                _ => part.event.is_multiple_of(2),
            };
            let image = cursor.crash_image(Tearing::Requests, survives).expect("an image");
            let fs = Mount::new().background(false).open_device(Arc::new(image)).expect("mount");
            assert_eq!(fs.read("/kept").expect("read"), content(1, 4 * MIB), "after event {events}");
            match fs.read("/removed") {
                Ok(bytes) => assert!(bytes == content(2, 4 * MIB), "discarded after event {events}"),
                Err(error) => assert!(matches!(error.cause(), Error::NotFound), "{error}"),
            }
        }
    }
}

#[test]
fn a_mount_with_discard_discards_what_a_commit_freed() {
    let (recorder, fs) = recorded(|| Mount::new().discard(true));
    let from = recorder.event_count();
    fs.remove_file("/removed").expect("unlink");
    assert_eq!(discards(&recorder, from), [], "nothing is free for certain");
    fs.sync().expect("sync");
    let done = discards(&recorder, from);
    assert!(done.iter().map(|(_, bytes)| bytes).sum::<u64>() >= 4 * MIB && done.len() < 8, "{done:?}");
    // Freed blocks are used again, and freed again, under more discards.
    for round in 0..3 {
        fs.write("/more", content(round, 20 * MIB)).expect("write");
        fs.sync().expect("sync");
        assert!(fs.read("/more").expect("read") == content(round, 20 * MIB));
        fs.remove_file("/more").expect("unlink");
    }
    fs.sync().expect("sync");
    assert_every_crash_keeps_files(&recorder, from);
    drop(fs);
    let scratch = scratch();
    let image = scratch.path().join("disk.img");
    let mut bytes = vec![0; 32 << 20];
    recorder.inner().read_at(0, &mut bytes).expect("read");
    std::fs::write(&image, bytes).expect("write");
    assert_clean(&image, "discarded");
}

#[test]
fn a_device_that_cannot_discard_is_asked_once_and_one_that_fails_goes_on() {
    for (kind, asked) in [(std::io::ErrorKind::Unsupported, 1), (std::io::ErrorKind::Other, 3)] {
        let device = MemoryDevice::new(64 * MIB);
        Mkfs::new().format(&device).expect("format");
        let requests = Arc::new(AtomicU64::new(0));
        let count = requests.clone();
        let device = FaultDevice::new(device, move |request| match request.operation {
            Operation::Discard => {
                count.fetch_add(1, Ordering::Relaxed);
                Fault::Error(kind)
            }
            _ => Fault::None,
        });
        let fs = Mount::new().background(false).discard(true).open_device(Arc::new(device)).expect("mount");
        let free = fs.statistics().free_blocks;
        for round in 0..3 {
            fs.write("/file", content(round, MIB)).expect("write");
            fs.remove_file("/file").expect("unlink");
            fs.sync().expect("sync");
        }
        assert_eq!((requests.load(Ordering::Relaxed), fs.statistics().free_blocks), (asked, free));
        fs.unmount().expect("unmount");
    }
}

#[test]
fn blocks_are_discarded_only_when_their_release_is_durable() {
    let (recorder, fs) = recorded(Mount::new);
    fs.trim(ALL, 0).expect("trim");
    let from = recorder.event_count();
    fs.remove_file("/removed").expect("unlink");
    assert_eq!(fs.trim(ALL, 0).expect("trim"), 0, "nothing is free for certain");
    fs.sync().expect("sync");
    assert!(fs.trim(ALL, 0).expect("trim") >= 4 * MIB);
    assert!(discards(&recorder, from).iter().any(|(_, bytes)| *bytes >= 4 * MIB));
    assert_every_crash_keeps_files(&recorder, from);
}
