//! Which file of the host has the content of an entry.

use std::path::PathBuf;

use crate::entry::DataRange;

/// A file of the host, told from any other that takes its name: its device and its inode.
#[cfg(target_os = "linux")]
pub(crate) type FileId = (u64, u64);
/// A file of the host. It has no mark that tells it from another one.
#[cfg(not(target_os = "linux"))]
pub(crate) type FileId = ();

/// A regular file of the host with content, as a [`Walk`](crate::Walk) found it.
#[derive(Debug)]
pub struct HostFile {
    pub(crate) path: PathBuf,
    pub(crate) id: FileId,
    pub(crate) ranges: Vec<DataRange>,
}

impl HostFile {
    /// The ranges that hold data.
    #[must_use]
    pub fn ranges(&self) -> &[DataRange] {
        &self.ranges
    }
}
