//! Operations on ranges of one file, through the page cache of the kernel and past it (`O_DIRECT`), against a model of its bytes.
//!
//! The operations of fsx, and those that the crate fsx lacks: `O_DIRECT` beside buffered calls, aligned and not, zeroed ranges,
//! allocation beyond the end, and holes. `EXTANT_SEED=N` repeats one file, `EXTANT_RANGES_FILES` and `EXTANT_RANGES_OPERATIONS` say
//! how much is done.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use extant_testing::Random;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::common::{Disk, can_mount, seed};

const SIZE_MAX: u64 = 300_000;
const LEN_MAX: u64 = 70_000;
const FILES: u64 = 2;
const OPERATIONS: u64 = 1500;

/// A file, opened twice, and what its bytes should be.
struct Ranges<'p> {
    path: &'p Path,
    buffered: File,
    direct: File,
    bytes: Vec<u8>,
    random: Random,
}

impl<'p> Ranges<'p> {
    fn new(path: &'p Path, random: Random) -> Self {
        let buffered = File::create_new(path).expect("a new file");
        drop(buffered);
        let (buffered, direct) = Self::open(path);
        Self { path, buffered, direct, bytes: Vec::new(), random }
    }

    fn open(path: &Path) -> (File, File) {
        let open = |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        (open(0).expect("buffered"), open(rustix::fs::OFlags::DIRECT.bits() as i32).expect("direct"))
    }

    /// A range, half of the time of whole blocks.
    fn range(&mut self) -> (u64, u64) {
        let (at, len) = (self.random.below(SIZE_MAX - LEN_MAX), 1 + self.random.below(LEN_MAX));
        if self.random.below(2) == 0 { (at, len) } else { (at / 4096 * 4096, len.next_multiple_of(4096)) }
    }

    /// Either of the two ways to the file.
    fn file(&mut self) -> File {
        let file = if self.random.below(2) == 0 { &self.buffered } else { &self.direct };
        file.try_clone().expect("a descriptor")
    }

    fn grow(&mut self, to: u64) {
        self.bytes.resize(self.bytes.len().max(to as usize), 0);
    }

    /// The part of a range before the end.
    fn within(&mut self, at: u64, len: u64) -> &mut [u8] {
        let size = self.bytes.len();
        &mut self.bytes[(at as usize).min(size)..((at + len) as usize).min(size)]
    }

    fn write(&mut self) {
        let (at, len) = self.range();
        let first = self.random.below(251) as u8;
        let written: Vec<u8> = (0..len).map(|i| first.wrapping_add((i % 249) as u8)).collect();
        self.file().write_all_at(&written, at).expect("a write");
        self.grow(at + len);
        self.within(at, len).copy_from_slice(&written);
    }

    fn read(&mut self) {
        let (at, len) = self.range();
        let mut read = vec![0; len as usize];
        let mut done = 0;
        let file = self.file();
        loop {
            let count = file.read_at(&mut read[done..], at + done as u64).expect("a read");
            done += count;
            if count == 0 {
                break;
            }
        }
        assert!(read[..done] == *self.within(at, len), "{len} bytes from {at}");
    }

    fn set_len(&mut self) {
        let len = self.random.below(SIZE_MAX);
        self.buffered.set_len(len).expect("a new length");
        self.bytes.resize(len as usize, 0);
    }

    fn allocate(&mut self) {
        let (at, len) = self.range();
        let keep_size = self.random.below(2) == 0;
        let flags = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        rustix::fs::fallocate(&self.buffered, flags, at, len).expect("room");
        if !keep_size {
            self.grow(at + len);
        }
    }

    fn zero(&mut self) {
        let (at, len) = self.range();
        let keep_size = self.random.below(2) == 0;
        let keep = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        rustix::fs::fallocate(&self.buffered, FallocateFlags::ZERO_RANGE | keep, at, len).expect("zeroes");
        if !keep_size {
            self.grow(at + len);
        }
        self.within(at, len).fill(0);
    }

    fn punch(&mut self) {
        let (at, len) = self.range();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.buffered, flags, at, len).expect("a hole");
        self.within(at, len).fill(0);
    }

    /// The kernel keeps these from every FUSE server.
    fn shift(&mut self) {
        let (at, len) = self.range();
        let collapses = self.random.below(2) == 0;
        let flags = if collapses { FallocateFlags::COLLAPSE_RANGE } else { FallocateFlags::INSERT_RANGE };
        assert_eq!(rustix::fs::fallocate(&self.buffered, flags, at, len), Err(Errno::OPNOTSUPP));
    }

    fn copy(&mut self) {
        let (from, len) = self.range();
        let to = self.random.below(SIZE_MAX - LEN_MAX);
        if from.abs_diff(to) < len {
            return;
        }
        // No more than there is now: what is copied to behind it would follow.
        let copied = self.within(from, len).to_vec();
        let (mut source, mut target, mut left) = (from, to, copied.len());
        let file = self.file();
        while left > 0 {
            let count = rustix::fs::copy_file_range(&file, Some(&mut source), &file, Some(&mut target), left);
            match count.expect("a copy") {
                0 => break,
                count => left -= count,
            }
        }
        assert_eq!(left, 0, "of {len} bytes from {from}");
        if !copied.is_empty() {
            self.grow(to + copied.len() as u64);
            self.within(to, copied.len() as u64).copy_from_slice(&copied);
        }
    }

    /// A range reported as a hole has no data.
    fn seek(&mut self) {
        let from = self.random.below(SIZE_MAX);
        let size = self.bytes.len() as u64;
        let data = match rustix::fs::seek(&self.buffered, SeekFrom::Data(from)) {
            Ok(data) => data,
            Err(error) => {
                assert_eq!(error, Errno::NXIO);
                size.max(from)
            }
        };
        assert!(
            self.within(from, data - from).iter().all(|byte| *byte == 0),
            "data between {from} and {data}"
        );
        if from < size {
            let hole = rustix::fs::seek(&self.buffered, SeekFrom::Hole(from)).expect("a hole");
            assert!(hole >= from && hole <= size, "a hole at {hole} of {size}");
        }
    }

    fn forget_pages(&mut self) {
        self.buffered.sync_all().expect("a sync");
        rustix::fs::fadvise(&self.buffered, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=4 => self.write(),
            5..=8 => self.read(),
            9 => self.set_len(),
            10 => self.allocate(),
            11 | 12 => self.zero(),
            13 | 14 => self.punch(),
            15 => self.shift(),
            16 => self.copy(),
            17 => self.seek(),
            18 => self.forget_pages(),
            _ => (self.buffered, self.direct) = Self::open(self.path),
        }
        assert_eq!(self.buffered.metadata().expect("stat").len(), self.bytes.len() as u64);
    }
}

fn number_of(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
fn ranges_of_a_file_are_as_in_a_model_buffered_and_direct() {
    if !can_mount() {
        return;
    }
    let (first, files) = (seed(), number_of("EXTANT_RANGES_FILES", FILES));
    let operations = number_of("EXTANT_RANGES_OPERATIONS", OPERATIONS);
    for (number, seed) in (first..).take(files as usize).enumerate() {
        let disk = Disk::new("64M");
        let options = ["rw", "page_cache=16M"][number % 2];
        disk.mount(options);
        let path = disk.point.join("file");
        let mut ranges = Ranges::new(&path, Random::new(seed));
        for operation in 0..operations {
            let step = std::panic::AssertUnwindSafe(|| ranges.step());
            if let Err(panic) = std::panic::catch_unwind(step) {
                println!("EXTANT_SEED={seed}, -o {options}, operation {operation}");
                std::panic::resume_unwind(panic);
            }
        }
        let Ranges { bytes, buffered, direct, .. } = ranges;
        drop((buffered, direct));
        assert!(fs::read(&path).expect("the file") == bytes, "EXTANT_SEED={seed}: the whole file");
        disk.umount();
        disk.mount("ro");
        assert!(fs::read(&path).expect("the file") == bytes, "EXTANT_SEED={seed}: after unmounting");
        disk.finish();
    }
    println!("ranges: {files} files, {operations} operations on each, as in the model");
}
