//! What becomes of files that threads read ahead while they change, go or cannot be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use extant::mkfs::Mkfs;
use extant::{Fallocate, File, Filesystem, Mount};
use extant_block::{BlockDevice, MemoryDevice};
use extant_testing::scratch;

use crate::slow::Slow;
use crate::{BLOCK, MIB};

const CACHE_BYTES: u64 = 16 * MIB;

fn mount(memory: &Arc<MemoryDevice>) -> (Arc<Slow>, Filesystem) {
    mount_with(memory, CACHE_BYTES)
}

fn mount_with(memory: &Arc<MemoryDevice>, cache_bytes: u64) -> (Arc<Slow>, Filesystem) {
    let device = Slow::new(memory.clone(), true, Duration::from_micros(300));
    let fs = Mount::new().page_cache_bytes(cache_bytes).open_device(device.clone()).expect("mount");
    (device, fs)
}

/// A disk with a file of so many blocks, each full of its number.
fn disk(blocks: u64) -> Arc<MemoryDevice> {
    let memory = Arc::new(MemoryDevice::new(64 * MIB));
    Mkfs::new().format(&*memory).expect("format");
    let fs = Mount::new().open_device(memory.clone()).expect("mount");
    let content: Vec<u8> = (0..blocks).flat_map(|block| [number(block); BLOCK as usize]).collect();
    fs.write("/file", content).expect("write");
    fs.unmount().expect("unmount");
    memory
}

fn number(block: u64) -> u8 {
    (block % 251) as u8 + 1
}

fn assert_clean(memory: &MemoryDevice) {
    let scratch = scratch();
    let image = scratch.path().join("disk.img");
    let mut bytes = vec![0; memory.size() as usize];
    memory.read_at(0, &mut bytes).expect("read");
    std::fs::write(&image, bytes).expect("write");
    extant_testing::assert_clean(&image, "read ahead");
}

/// Reads a block, which must be one byte repeated: that byte.
fn read_block(file: &File, block: u64) -> Option<u8> {
    let mut buf = [0; BLOCK as usize];
    let bytes = file.read_at(&mut buf, block * BLOCK).expect("read");
    assert!(buf[..bytes].iter().all(|byte| *byte == buf[0]), "block {block} is of two writes");
    (bytes > 0).then_some(buf[0])
}

#[test]
fn a_reader_in_order_asks_the_device_for_little_itself() {
    if !extant_testing::has_threads() {
        return;
    }
    const BLOCKS: u64 = 4096;
    let memory = disk(BLOCKS);
    let (device, fs) = mount(&memory);
    let file = fs.open("/file").expect("open");
    let own = || device.requests.load(Ordering::SeqCst) - device.ahead.load(Ordering::SeqCst);
    let before = own();
    for block in 0..BLOCKS {
        assert_eq!(read_block(&file, block), Some(number(block)));
    }
    assert!(own() - before <= 3, "{} requests of the reader", own() - before);
    let ahead = device.ahead.load(Ordering::SeqCst);
    assert!(ahead <= BLOCKS * BLOCK / (256 << 10) + 16, "{ahead} requests ahead");
}

/// Ends the other threads, also if this one panics.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_reader_ahead_never_brings_back_what_was_written_over() {
    const BLOCKS: u64 = 2048;
    const ROUNDS: u8 = 250;
    let memory = disk(0);
    // Less than the file has, so that much of it is read again and again.
    let (_, fs) = mount_with(&memory, 4 * MIB);
    let file = fs.options().read(true).write(true).open("/file").expect("open");
    file.write_all_at(&vec![1; (BLOCKS * BLOCK) as usize], 0).expect("write");
    // The round whose change of a block has ended, and that whose change has begun. Some leave zeroes.
    let left = |round: u64| if round % 4 < 2 && round > 1 { 0 } else { round };
    let [ended, begun] = [0; 2].map(|_| (0..BLOCKS).map(|_| AtomicU64::new(1)).collect::<Vec<_>>());
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (fs, ended, begun, is_done) = (&fs, &ended, &begun, &is_done);
            scope.spawn(move || {
                let file = fs.open("/file").expect("open");
                while !is_done.load(Ordering::SeqCst) {
                    for block in (reader * 700..BLOCKS).take(1200) {
                        let least = ended[block as usize].load(Ordering::SeqCst);
                        let found = read_block(&file, block).map_or(0, u64::from);
                        let most = begun[block as usize].load(Ordering::SeqCst);
                        assert!(
                            (least..=most).any(|round| left(round) == found),
                            "block {block} has {found} of {least} to {most}"
                        );
                    }
                }
            });
        }
        let _end = EndOnDrop(&is_done);
        let mut state = 7_u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % bound
        };
        for round in 2..=ROUNDS {
            let first = below(BLOCKS);
            let len = 1 + below((BLOCKS - first).min(500));
            let len = if round % 4 == 0 { BLOCKS - first } else { len };
            let range = first as usize..(first + len) as usize;
            begun[range.clone()].iter().for_each(|block| block.store(u64::from(round), Ordering::SeqCst));
            match round % 4 {
                0 => {
                    file.set_len(first * BLOCK).expect("cut");
                    file.set_len(BLOCKS * BLOCK).expect("grow");
                }
                1 => file.allocate(Fallocate::PunchHole, first * BLOCK, len * BLOCK).expect("punch"),
                _ => file.write_all_at(&vec![round; (len * BLOCK) as usize], first * BLOCK).expect("write"),
            }
            ended[range].iter().for_each(|block| block.store(u64::from(round), Ordering::SeqCst));
            if round % 3 == 0 {
                file.sync_all().expect("sync");
            }
        }
    });
    drop(file);
    fs.unmount().expect("unmount");
    assert_clean(&memory);
}

#[test]
fn a_file_that_is_removed_while_it_is_read_ahead_is_deleted() {
    let memory = Arc::new(MemoryDevice::new(64 * MIB));
    Mkfs::new().format(&*memory).expect("format");
    let free = |fs: &Filesystem| fs.statistics().free_blocks;
    let before = free(&mount(&memory).1);
    for _ in 0..20 {
        let (_, fs) = mount(&memory);
        fs.write("/file", vec![1; 2 << 20]).expect("write");
        fs.unmount().expect("unmount");
        let (_, fs) = mount(&memory);
        let file = fs.open("/file").expect("open");
        assert_eq!([0, 1].map(|block| read_block(&file, block)), [Some(1); 2]);
        drop(file);
        fs.remove_file("/file").expect("remove");
        fs.unmount().expect("unmount");
        assert_clean(&memory);
    }
    assert_eq!(free(&mount(&memory).1), before);
}

#[test]
fn a_disk_is_let_go_while_it_is_read_ahead() {
    let memory = disk(2048);
    for round in 0..30 {
        let device = Slow::new(memory.clone(), true, Duration::from_micros(300));
        let fs = Mount::new()
            .read_only(round % 3 == 0)
            .page_cache_bytes(CACHE_BYTES)
            .open_device(device)
            .expect("mount");
        let file = fs.open("/file").expect("open");
        for block in 0..40 {
            assert_eq!(read_block(&file, block), Some(number(block)));
        }
        match round % 2 {
            0 => drop(fs),
            _ => {
                drop(file);
                fs.unmount().expect("unmount");
            }
        }
    }
    assert_clean(&memory);
}

#[test]
fn a_block_that_cannot_be_read_ahead_is_an_error_where_it_is_read() {
    const BLOCKS: u64 = 1024;
    const BAD: u64 = 500;
    let memory = disk(BLOCKS);
    let (device, fs) = mount(&memory);
    let file = fs.open("/file").expect("open");
    let extents = file.extents(BAD * BLOCK, BLOCK).expect("extents");
    let at = extents[0].start.0 + BAD - u64::from(extents[0].logical.0);
    device.bad.store(at * BLOCK, Ordering::SeqCst);
    let mut buf = [0; BLOCK as usize];
    for block in 0..BLOCKS {
        match file.read_at(&mut buf, block * BLOCK) {
            Ok(bytes) => {
                assert!(bytes == buf.len() && block != BAD && buf == [number(block); BLOCK as usize])
            }
            Err(error) => assert!(block == BAD, "block {block}: {error}"),
        }
    }
    device.bad.store(u64::MAX, Ordering::SeqCst);
    assert_eq!(read_block(&file, BAD), Some(number(BAD)), "read again once the device can");
}
