//! The programs that the tests ask.

use std::path::{Path, PathBuf};

use extant_block::{DeviceAccess, FileDevice};
pub use extant_testing::assert_clean;
use extant_testing::{Command, scratch};

/// A sparse image that vanishes with the test.
pub struct Image {
    pub path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Image {
    pub fn new(bytes: u64) -> Self {
        // A file in memory may be of any size, one on a disk often not above 16 TiB.
        let directory = scratch();
        let path = directory.path().join("image");
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("a sparse file");
        Self { path, _directory: directory }
    }

    pub fn device(&self) -> FileDevice {
        FileDevice::open(&self.path, DeviceAccess::read_write()).expect("the image")
    }

    /// Bytes that the file takes on its own disk.
    #[cfg(unix)]
    pub fn taken_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(&self.path).expect("the image").blocks() * 512
    }
}

/// Whether a program is installed; says so if not.
pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("-V").output().is_ok();
    if !found {
        println!("skipped: no {program}");
    }
    found
}

/// Runs a program; its output and whether it succeeded.
pub fn run(program: &str, arguments: &[&str], image: &Path) -> (bool, String) {
    let output = Command::new(program).args(arguments).arg(image).output().expect("an installed program");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), text)
}
