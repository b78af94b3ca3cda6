//! A small disk with everything that has a checksum, and its judge.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use extant::mkfs::Mkfs;
use extant::{FileType, Filesystem, InodeNumber, Mount, Tune, XattrMode};
use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::{Structure, Superblock};
use extant_testing::{Command, is_zero, scratch, write_at};

/// The UUID that tests give.
pub const UUID: [u8; 16] = [0x5A; 16];

/// What is on a disk: the content of every file, and the names of every directory.
pub type Tree = BTreeMap<String, Vec<u8>>;

/// A disk of four groups, one of which was never used: directories with and without an index, a file with a tree of extents, attributes
/// in a block.
pub fn disk(features: &str) -> (Arc<MemoryDevice>, Tree) {
    let device = Arc::new(MemoryDevice::new(28 << 20));
    let made = Mkfs::new().block_size(1024).features(features).expect("features").format(&*device);
    made.expect("format");
    let fs = Mount::new().background(false).open_device(device.clone()).expect("mount");
    fs.create_dir("/indexed").expect("mkdir");
    for file in 0..150 {
        fs.write(format!("/indexed/a name that takes some room {file}"), format!("{file}")).expect("write");
    }
    fs.create_dir("/linear").expect("mkdir");
    fs.write("/linear/file", b"content").expect("write");
    let file = fs.options().write(true).create(true).open("/holes").expect("create");
    for hole in 0..40 {
        file.write_at(&[hole as u8; 1024], hole * 4096).expect("write");
    }
    file.set_xattr(b"user.long", &[b'x'; 700], XattrMode::default()).expect("setxattr");
    drop(file);
    fs.unmount().expect("unmount");
    let tree = tree(&Mount::new().read_only(true).open_device(device.clone()).expect("mount"));
    assert!(tree.len() > 150, "{}", tree.len());
    (device, tree)
}

/// Everything on a disk.
pub fn tree(fs: &Filesystem) -> Tree {
    try_tree(fs).expect("a tree")
}

/// As [`tree`].
///
/// # Errors
/// Those of the calls.
pub fn try_tree(fs: &Filesystem) -> extant::Result<Tree> {
    let mut tree = Tree::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for entry in fs.dir(format!("{dir}/")).and_then(|dir| dir.entries())? {
            let path = format!("{dir}/{}", String::from_utf8_lossy(&entry.name));
            assert_ne!(entry.inode, InodeNumber(0));
            if fs.metadata(&path)?.file_type == FileType::Directory {
                tree.insert(path.clone(), Vec::new());
                dirs.push(path);
            } else {
                let file = fs.open(&path)?;
                let mut content = fs.read(&path)?;
                for name in file.list_xattrs()? {
                    content.extend(file.xattr(&name)?);
                }
                tree.insert(path, content);
            }
        }
    }
    Ok(tree)
}

pub fn superblock(device: &dyn BlockDevice) -> Superblock {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).expect("read");
    Superblock::parse(&bytes).expect("a superblock")
}

/// Asserts that a disk has this tree and is clean to Extant and to e2fsck, which replays the journal first.
pub fn assert_whole(device: &MemoryDevice, expected: &Tree, when: &str) {
    assert_clean(device, when);
    let copy = Arc::new(device.snapshot());
    let fs =
        Mount::new().background(false).open_device(copy.clone()).unwrap_or_else(|e| panic!("{when}: {e}"));
    assert!(tree(&fs) == *expected, "{when}: another tree");
    fs.unmount().expect("unmount");
    let fs = Mount::new().read_only(true).open_device(copy).expect("mount");
    let mut findings = fs.check(&mut |_| ()).expect("check");
    // Copies of the superblock follow at the end; e2fsck puts them right in silence.
    findings
        .retain(|found| found.location.structure != Structure::Superblock || found.location.group.is_none());
    assert_eq!(findings, [], "{when}");
}

/// Asserts that e2fsck finds nothing to mend when it has replayed the journal.
fn assert_clean(device: &MemoryDevice, when: &str) {
    let file = ImageFile::of(device);
    let e2fsck = |option: &str| {
        let output =
            Command::new("e2fsck").arg(option).arg(&file.0).env("LC_ALL", "C").output().expect("e2fsck");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code().unwrap_or(-1), said)
    };
    let is_dirty = superblock(device).incompat().contains(extant_ondisk::IncompatFeatures::RECOVER);
    if is_dirty {
        let (code, said) = e2fsck("-p");
        assert!(code <= 1, "{when}: e2fsck -p exits {code}: {said}");
    }
    let (code, said) = e2fsck("-fn");
    assert!(
        code == 0 && !said.contains("Fix?") && !said.contains("WARNING"),
        "{when}: e2fsck -fn exits {code}: {said}"
    );
}

/// The disk as e2fsck leaves it that replays the journal and takes the note of an error away; it finds nothing else to mend.
pub fn without_noted_errors(device: &MemoryDevice, when: &str) -> MemoryDevice {
    let file = ImageFile::of(device);
    let output = Command::new("e2fsck").arg("-fy").arg(&file.0).env("LC_ALL", "C").output().expect("e2fsck");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() <= Some(1) && !said.contains("? yes"), "{when}: {said}");
    file.device()
}

/// An image in a file, on memory where there is such a place.
pub struct ImageFile(pub PathBuf, #[expect(dead_code, reason = "removes the directory")] tempfile::TempDir);

impl ImageFile {
    pub fn of(device: &MemoryDevice) -> Self {
        let dir = scratch();
        let path = dir.path().join("disk.img");
        let file = std::fs::File::create(&path).expect("create");
        file.set_len(device.size()).expect("size");
        // What is zero stays a hole.
        let mut chunk = vec![0; 64 << 10];
        for at in (0..device.size()).step_by(chunk.len()) {
            device.read_at(at, &mut chunk).expect("read");
            if !is_zero(&chunk) {
                write_at(&file, &chunk, at).expect("write");
            }
        }
        Self(path, dir)
    }

    pub fn device(&self) -> MemoryDevice {
        let bytes = std::fs::read(&self.0).expect("read");
        let device = MemoryDevice::new(bytes.len() as u64);
        for (at, chunk) in (0..).step_by(64 << 10).zip(bytes.chunks(64 << 10)) {
            if !is_zero(chunk) {
                device.write_at(at, chunk).expect("write");
            }
        }
        device
    }
}

/// Another UUID on a disk.
pub fn new_uuid() -> Tune {
    Tune::new().uuid(UUID)
}

pub fn new_features(words: &str) -> Tune {
    Tune::new().features(words).expect("known features")
}
