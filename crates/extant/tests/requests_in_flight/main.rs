//! How many requests of a file are in flight at once when it is written back and read in order, on devices that take time and on
//! others, and what becomes of files that are read ahead while they change.

mod read_ahead;
mod slow;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use extant::mkfs::Mkfs;
use extant::{Dir, File, FileType, Filesystem, Mount, ReadAhead};
use extant_block::MemoryDevice;
use extant_rt::HAS_THREADS;

use slow::Slow;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Blocks of the file, with a gap behind each.
const BLOCKS: u64 = 64;
const DELAY: Duration = Duration::from_millis(2);

/// An empty file on a disk that is mounted without threads of its own.
fn empty_file(has_latency: bool) -> (Arc<Slow>, Filesystem, File) {
    let memory = MemoryDevice::new(64 * MIB);
    Mkfs::new().format(&memory).expect("format");
    let device = Slow::new(Arc::new(memory), has_latency, DELAY);
    let mount = Mount::new().background(false).page_cache_bytes(16 * MIB);
    let fs = mount.open_device(device.clone()).expect("mount");
    let file = fs.options().read(true).write(true).create(true).open("/file").expect("a file");
    file.sync_all().expect("sync");
    (device, fs, file)
}

/// Writes each second block and syncs: the most requests that were in flight.
fn write_scattered(device: &Slow, file: &File, round: u8) -> u64 {
    for block in 0..BLOCKS {
        file.write_all_at(&[round; BLOCK as usize], 2 * block * BLOCK).expect("write");
    }
    let most = device.most_during(|| file.sync_all().expect("sync"));
    assert_eq!(device.flushed_beside.load(Ordering::SeqCst), 0, "a flush waits for the data");
    most
}

/// As many as `least` to 16 requests at once of a device that takes time; one where the host has no threads that could wait.
fn in_flight(least: u64) -> RangeInclusive<u64> {
    if HAS_THREADS { least..=16 } else { 1..=1 }
}

#[test]
fn scattered_blocks_are_written_side_by_side_where_the_device_takes_time() {
    for (has_latency, in_flight) in [(true, in_flight(8)), (false, 1..=1)] {
        let (device, fs, file) = empty_file(has_latency);
        let new = write_scattered(&device, &file, 1);
        let over_old = write_scattered(&device, &file, 2);
        assert!(in_flight.contains(&new), "{new} requests of new blocks, latency {has_latency}");
        assert!(in_flight.contains(&over_old), "{over_old} requests over old blocks, latency {has_latency}");
        fs.unmount().expect("unmount");
        let again = Mount::new().open_device(device).expect("mount");
        let content = again.read("/file").expect("read");
        let expected = |at: usize| if (at / BLOCK as usize).is_multiple_of(2) { 2 } else { 0 };
        assert_eq!(content.len() as u64, (2 * BLOCKS - 1) * BLOCK);
        assert!(content.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    }
}

#[test]
fn a_file_read_in_order_is_read_ahead_side_by_side_where_the_device_takes_time() {
    const BYTES: u64 = 12 * MIB + 5000;
    for (has_latency, in_flight) in [(true, in_flight(4)), (false, 1..=1)] {
        let (device, fs, file) = empty_file(has_latency);
        // Each word is its own number, so that no block is like another.
        let words = (0..BYTES / 8 + 1).flat_map(u64::to_le_bytes);
        let content: Vec<u8> = words.take(BYTES as usize).collect();
        // Not aligned to anything.
        file.write_all_at(&content[..3000], 0).expect("write");
        file.write_all_at(&content[3000..], 3000).expect("write");
        drop(file);
        fs.unmount().expect("unmount");
        let again = Mount::new().page_cache_bytes(32 * MIB).open_device(device.clone()).expect("mount");
        let file = again.open("/file").expect("the file");
        let mut read = Vec::new();
        let most = device.most_during(|| {
            let mut buf = vec![0; 60_000];
            while let bytes @ 1.. = file.read_at(&mut buf, read.len() as u64).expect("read") {
                read.extend_from_slice(&buf[..bytes]);
            }
        });
        assert!(read == content, "latency {has_latency}");
        assert!(in_flight.contains(&most), "{most} requests, latency {has_latency}");
    }
}

/// Looks at all attributes of a tree: how many names there are.
fn walk(dir: &Dir, what: ReadAhead) -> u64 {
    let entries = dir.entries().expect("entries");
    dir.read_ahead(&entries, what);
    let below = entries.iter().map(|entry| {
        let found = dir.lookup(&entry.name).expect("an inode");
        assert_eq!(Some(found.metadata().file_type), entry.file_type);
        match entry.file_type {
            Some(FileType::Directory) => 1 + walk(&found.into_dir().expect("a directory"), what),
            _ => 1,
        }
    });
    below.sum()
}

#[test]
fn a_tree_is_walked_and_checked_with_few_requests_many_at_once() {
    const DIRECTORIES: u64 = 40;
    const FILES: u64 = 50;
    let memory = Arc::new(MemoryDevice::new(64 * MIB));
    Mkfs::new().format(&*memory).expect("format");
    let fs = Mount::new().background(false).open_device(memory.clone()).expect("mount");
    for directory in 0..DIRECTORIES {
        fs.create_dir(format!("/{directory}")).expect("mkdir");
        (0..FILES).for_each(|file| fs.write(format!("/{directory}/{file}"), "x").expect("write"));
    }
    // Of more blocks than one, with an index.
    fs.create_dir("/large").expect("mkdir");
    (0..2000).for_each(|file| fs.write(format!("/large/a name of some length {file}"), "").expect("write"));
    fs.unmount().expect("unmount");
    let names = DIRECTORIES * (FILES + 1) + 2000 + ["large", "lost+found"].len() as u64;
    let all_attributes = |fs: &Filesystem| {
        assert_eq!(walk(&fs.dir("/").expect("the root"), ReadAhead::Inodes), names);
    };
    let check = |fs: &Filesystem| assert_eq!(fs.check(&mut |_| {}).expect("a check"), []);
    for (what, least, act) in [("walk", 8, &all_attributes as &dyn Fn(&Filesystem)), ("check", 4, &check)] {
        let requests_of = |has_latency: bool| {
            let slow = Slow::new(memory.clone(), has_latency, DELAY);
            let fs = Mount::new().read_only(true).open_device(slow.clone()).expect("mount");
            let before = slow.requests.load(Ordering::SeqCst);
            let most = slow.most_during(|| act(&fs));
            (slow.requests.load(Ordering::SeqCst) - before, most)
        };
        let (one_by_one, alone) = requests_of(false);
        let (requests, most) = requests_of(true);
        assert_eq!(alone, 1);
        assert!(most >= least || !HAS_THREADS && most == 1, "{what}: {most} requests in flight");
        assert!(requests < one_by_one, "{what}: {requests} requests, {one_by_one} one by one");
        println!(
            "{what} of {names} names: {requests} requests, {most} at once; {one_by_one} without latency"
        );
    }
}

#[test]
fn one_look_up_reads_the_blocks_that_it_needs_and_many_in_a_row_few_times() {
    const FILES: u64 = 4000;
    let memory = Arc::new(MemoryDevice::new(64 * MIB));
    Mkfs::new().format(&*memory).expect("format");
    let fs = Mount::new().background(false).open_device(memory.clone()).expect("mount");
    fs.create_dir("/many").expect("mkdir");
    (0..FILES).for_each(|file| fs.write(format!("/many/{file:04}"), "x").expect("write"));
    fs.unmount().expect("unmount");
    let slow = Slow::new(memory, true, Duration::ZERO);
    let fs = Mount::new().read_only(true).open_device(slow.clone()).expect("mount");
    let dir = fs.dir("/many").expect("a directory");
    // Its blocks are in memory now.
    let mut names: Vec<_> = dir.entries().expect("entries").into_iter().map(|entry| entry.name).collect();
    let counts = || [&slow.requests, &slow.bytes].map(|count| count.load(Ordering::SeqCst));
    let [mut requests, mut bytes] = counts();
    let mut read_since = || {
        let now = counts();
        let read = [now[0] - requests, now[1] - bytes];
        [requests, bytes] = now;
        read
    };
    // The inodes of the first files lie in the block that has the directory's.
    let of_another_block = names.iter().position(|name| name == b"2000").expect("a name");
    dir.lookup(&names.swap_remove(of_another_block)).expect("a file");
    assert_eq!(read_since(), [1, BLOCK], "the block of the table that has its inode");
    names.sort_unstable();
    names.iter().for_each(|name| drop(dir.lookup(name).expect("a file")));
    let [requests, bytes] = read_since();
    let table = FILES * 256;
    assert!(requests <= table / BLOCK / 32 + 16, "{requests} requests");
    assert!(bytes <= table + 32 * BLOCK, "{bytes} bytes of a table with {table}");
}
