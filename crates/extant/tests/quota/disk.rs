//! Disks of mke2fs, and what e2fsprogs says of them.

use std::path::PathBuf;

use extant_ondisk::QuotaType;
use extant_testing::scratch;
pub use extant_testing::{run, text};

/// An image in memory, if the host has such a folder.
pub struct Image {
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Image {
    /// A file of zeroes.
    pub fn blank(bytes: u64) -> Self {
        let folder = scratch();
        let path = folder.path().join("image");
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("an image");
        Self { path, _folder: folder }
    }

    /// A new file system of mke2fs; None, and the reason said, if there is no mke2fs.
    pub fn made(mebibytes: u64, arguments: &[&str]) -> Option<Self> {
        let image = Self::blank(mebibytes << 20);
        let all = [&["-q", "-F", "-t", "ext4"], arguments, &[text(&image.path)]].concat();
        match run("mke2fs", &all) {
            Ok(_) => Some(image),
            Err(why) => {
                println!("skipped: {why}");
                None
            }
        }
    }

    /// Asserts that e2fsck, which counts usage itself, finds nothing.
    pub fn assert_clean(&self, case: &str) {
        let said = run("e2fsck", &["-fn", text(&self.path)]).unwrap_or_else(|said| panic!("{case}: {said}"));
        assert!(
            !said.contains("Fix?") && !said.contains("WARNING") && !said.contains("Update"),
            "{case}: {said}"
        );
    }

    /// Bytes and inodes of an id, by debugfs.
    pub fn usage(&self, quota_type: QuotaType, id: u32) -> Option<(u64, u64)> {
        let request = format!("get_quota {} {id}", quota_type.name());
        let said = run("debugfs", &["-R", &request, text(&self.path)]).expect("debugfs");
        // Columns: the id, bytes with their limits, inodes with theirs.
        let line = said.lines().find(|line| line.split_whitespace().next() == Some(&id.to_string()))?;
        let numbers: Vec<u64> = line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
        Some((*numbers.first()?, *numbers.get(3)?))
    }
}
