//! Disks of mke2fs with a tree on them, and what is asked of them.

use std::fs::File;
use std::path::PathBuf;

use extant::{FileType, Filesystem, Grown, Mount};
use extant_block::{BlockDevice, DeviceAccess, FileDevice, MemoryDevice};
use extant_rt::Arc;
use extant_testing::{Random, is_zero, read_at, scratch, write_at};
pub use extant_testing::{run, text};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// An image in memory, if the host has such a folder.
pub struct Image {
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Image {
    /// A new file system of mke2fs; nothing, and the reason said, if there is no mke2fs.
    pub fn made(bytes: u64, arguments: &[&str]) -> Option<Self> {
        Self::try_made(bytes, arguments).inspect_err(|why| println!("skipped: {why}")).ok()
    }

    /// A new file system of mke2fs.
    ///
    /// # Errors
    /// What mke2fs says, or that there is none.
    pub fn try_made(bytes: u64, arguments: &[&str]) -> Result<Self, String> {
        let folder = scratch();
        let path = folder.path().join("image");
        let size = format!("{}k", bytes / KIB);
        let all = [&["-q", "-F", "-t", "ext4"], arguments, &[text(&path), &size]].concat();
        run("mke2fs", &all)?;
        Ok(Self { path, _folder: folder })
    }

    /// Makes the file longer, and the file system as long.
    pub fn grow(&self, bytes: u64) -> extant::Result<Grown> {
        let mut device = FileDevice::open(&self.path, DeviceAccess::read_write())?;
        if device.size() < bytes {
            device.set_len(bytes)?;
        }
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        Mount::new().grow_device(&device, bytes)
    }

    pub fn mount(&self) -> Filesystem {
        Mount::new().background(false).open(&self.path).expect("mount")
    }

    /// Its bytes, on a device in memory that is larger.
    pub fn load(&self, bytes: u64) -> MemoryDevice {
        let file = File::open(&self.path).expect("the image");
        let device = MemoryDevice::new(bytes);
        let mut piece = vec![0; MIB as usize];
        let size = file.metadata().expect("the image").len();
        for at in (0..size).step_by(piece.len()) {
            let len = (size - at).min(MIB) as usize;
            read_at(&file, &mut piece[..len], at).expect("read");
            if !is_zero(&piece[..len]) {
                device.write_at(at, &piece[..len]).expect("write");
            }
        }
        device
    }

    /// Puts the bytes of a device into it.
    pub fn store(&self, device: &MemoryDevice) {
        let file = File::create(&self.path).expect("the image");
        file.set_len(device.size()).expect("a length");
        let mut piece = vec![0; 64 << 10];
        for at in (0..device.size()).step_by(piece.len()) {
            let len = (device.size() - at).min(piece.len() as u64) as usize;
            device.read_at(at, &mut piece[..len]).expect("read");
            if !is_zero(&piece[..len]) {
                write_at(&file, &piece[..len], at).expect("write");
            }
        }
    }

    /// What is wrong with it by e2fsck, if anything.
    pub fn faults(&self) -> Option<String> {
        extant_testing::faults(&self.path)
    }

    pub fn assert_clean(&self, case: &str) {
        extant_testing::assert_clean(&self.path, case);
    }
}

/// How thoroughly crashes are explored.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Crash images of each place, or how many more than of all or nothing of what was not flushed.
    pub rounds: u64,
    /// One of so many images is judged by e2fsck, which takes most of the time.
    pub judged_of: u64,
    /// The first place.
    pub from: usize,
}

/// Whether something survives a crash: everything, nothing, or what chance decides.
pub fn survives(random: &mut Random, survival: u64) -> bool {
    match survival {
        0 => true,
        1 => false,
        _ => random.below(2) == 0,
    }
}

/// Fills a disk with directories, files, links and attributes.
pub fn fill(fs: &Filesystem, seed: u64, files: u64) {
    let mut random = Random::new(seed);
    fs.create_dir("/a").expect("a directory");
    fs.create_dir("/a/b").expect("a directory");
    for number in 0..files {
        let bytes = vec![number as u8 + 1; random.below(20_000) as usize];
        let folder = ["", "/a", "/a/b"][random.below(3) as usize];
        fs.write(format!("{folder}/f{number}"), &bytes).expect("a file");
    }
    fs.symlink("f0", "/link").expect("a link");
}

/// Everything in a tree: paths, and of files and links the content.
pub fn contents(fs: &Filesystem) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs.dir(format!("{folder}/")).and_then(|dir| dir.entries()).expect("a directory") {
            let path = format!("{folder}/{}", String::from_utf8_lossy(&entry.name));
            if path.ends_with("/.") || path.ends_with("/..") {
                continue;
            }
            let content = match fs.symlink_metadata(&path).expect("metadata").file_type {
                FileType::Regular => fs.read(&path).expect("content"),
                FileType::Symlink => fs.read_link(&path).expect("a target"),
                _ => {
                    folders.push(path.clone());
                    Vec::new()
                }
            };
            found.push((path, content));
        }
    }
    found.sort();
    found
}
