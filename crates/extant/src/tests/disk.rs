//! Disks in memory that `mke2fs` made, and what `e2fsck` and `debugfs` say of them.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use extant_block::{BlockDevice, MemoryDevice, Recorder, Tearing};
use extant_ondisk::InodeNumber;
use extant_rt::Arc;
pub(crate) use extant_testing::{has_e2fsprogs, has_threads, scratch};
use extant_testing::{is_zero, run, text};

use crate::mount::Options;
use crate::mount::Volume;

/// Seeded random numbers (xorshift*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % bound.max(1)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(255) as u8 + 1).collect()
    }
}

/// What a crash leaves after each of 24 parts of the requests to a device, half of those that were not flushed in it: calls `judge` with it,
/// how many requests there were, and when that was. How many images that were.
pub(crate) fn crash_images(
    device: &Recorder<MemoryDevice>,
    round: u64,
    mut judge: impl FnMut(MemoryDevice, usize, &str),
) -> usize {
    const IMAGES: usize = 24;
    let log = device.log();
    let end = log.events().len();
    for place in 0..IMAGES {
        let events = end * (place + 1) / IMAGES;
        let mut cursor = log.cursor();
        cursor.advance_to(events).expect("a log");
        let mut random = Random::new(place as u64);
        let image = cursor.crash_image(Tearing::Requests, |_| random.below(2) == 0).expect("an image");
        judge(image, events, &format!("round {round}, after {events} of {end} requests"));
    }
    IMAGES
}

/// A disk of `kilobytes` with the files `names` in its root, empty, as `mke2fs` makes it; and their inodes.
pub(crate) fn format(arguments: &[&str], kilobytes: u32, names: &[&str]) -> (MemoryDevice, Vec<InodeNumber>) {
    let scratch = scratch();
    let image = scratch.path().join("image");
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for name in names {
        fs::write(tree.join(name), b"").unwrap();
    }
    let size = format!("{kilobytes}k");
    let hash_seed = "lazy_itable_init=0,hash_seed=00000000-0000-4000-8000-000000000001";
    let made = ["-q", "-F", "-t", "ext4", "-E", hash_seed];
    run("mke2fs", &[&made, arguments, &["-d", text(&tree), text(&image), &size]].concat()).unwrap();
    let inodes = names
        .iter()
        .map(|name| {
            let said = run("debugfs", &["-R", &format!("stat /{name}"), text(&image)]).unwrap();
            let number = said.split_whitespace().nth(1).and_then(|word| word.parse().ok());
            InodeNumber(number.unwrap_or_else(|| panic!("no inode in {said}")))
        })
        .collect();
    (load(&image), inodes)
}

/// Images are read and written in pieces: runtimes of WASI refuse to transfer 128 MiB at once.
const PIECE_BYTES: usize = 1 << 16;

/// An image in memory.
pub(crate) fn load(image: &Path) -> MemoryDevice {
    let mut file = fs::File::open(image).unwrap();
    let size = file.metadata().unwrap().len();
    let device = MemoryDevice::new(size);
    let mut buf = vec![0; PIECE_BYTES];
    for at in (0..size).step_by(PIECE_BYTES) {
        let piece = &mut buf[..(size - at).min(PIECE_BYTES as u64) as usize];
        file.read_exact(piece).unwrap();
        if !is_zero(piece) {
            device.write_at(at, piece).unwrap();
        }
    }
    device
}

/// Writes a device into a file of `scratch`.
pub(crate) fn store(device: &dyn BlockDevice, scratch: &tempfile::TempDir) -> PathBuf {
    let path = scratch.path().join("stored");
    let mut file = fs::File::create(&path).unwrap();
    let mut buf = vec![0; PIECE_BYTES];
    for at in (0..device.size()).step_by(PIECE_BYTES) {
        let piece = &mut buf[..(device.size() - at).min(PIECE_BYTES as u64) as usize];
        device.read_at(at, piece).unwrap();
        file.write_all(piece).unwrap();
    }
    path
}

/// Panics unless `e2fsck` finds nothing at all.
pub(crate) fn assert_clean(device: &dyn BlockDevice, what: &str) {
    let scratch = scratch();
    let path = store(device, &scratch);
    extant_testing::assert_clean(&path, what);
}

/// The content that `debugfs` reads from an inode.
pub(crate) fn dumped(device: &dyn BlockDevice, inode: InodeNumber) -> Vec<u8> {
    let scratch = scratch();
    let path = store(device, &scratch);
    let out = scratch.path().join("out");
    run("debugfs", &["-R", &format!("dump <{inode}> {}", out.display()), text(&path)]).unwrap();
    fs::read(out).unwrap()
}

/// Mounts for writing, without a thread in the background.
pub(crate) fn mount(device: &Arc<MemoryDevice>) -> Arc<Volume> {
    mount_with_pages(device, 0, true)
}

/// The same with a page cache.
pub(crate) fn mount_with_pages(device: &Arc<MemoryDevice>, bytes: u64, keep_clean: bool) -> Arc<Volume> {
    let pages = Options { page_cache_bytes: Some(bytes), keep_clean_pages: keep_clean, ..Options::default() };
    let options = Options { background: false, ..pages };
    Volume::mount(device.clone(), &options).expect("a disk that was clean").0
}
