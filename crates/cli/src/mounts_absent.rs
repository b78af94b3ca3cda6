//! The mounts of a host that mounts no disk of Extant.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A mount, of which there is none.
pub struct Mounted {
    /// Where.
    pub point: PathBuf,
}

/// None is served.
pub fn served_by(_pid: u32, _image: &Path) -> Option<PathBuf> {
    None
}

/// Other processes are not looked into.
pub fn command_of(_pid: u32) -> Option<String> {
    None
}

/// None is there.
pub fn ours_around(_path: &Path) -> Result<Option<Mounted>, Failure> {
    Ok(None)
}

/// The failure that disks are mounted on Linux only.
pub fn not_ours(dir: &Path) -> Failure {
    Failure::new("unsupported", dir.display().to_string(), "disks are mounted on Linux only")
}
