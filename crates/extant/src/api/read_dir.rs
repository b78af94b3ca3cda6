//! The entries of a directory by path, in the manner of `std::fs::read_dir`.
//!
//! Invariant: memory is [`BATCH_COUNT`] entries, whatever the size of the directory.
//!
//! Test: `tests/std_like/directories.rs`.

use std::ffi::OsString;
use std::path::PathBuf;

use extant_block::os_string;
use extant_ondisk::{FileType, InodeNumber};
use extant_rt::Arc;

use super::dir::{Dir, Dirent};
use crate::error::{Error, Result};
use crate::inode::attributes::Metadata;

/// Entries that are read of a directory at once.
const BATCH_COUNT: usize = 64;

/// The entries of a directory, without `.` and `..`; made by [`Filesystem::read_dir`](crate::Filesystem::read_dir).
///
/// It reads the directory piece by piece. What is in the directory throughout is seen once; what comes or goes meanwhile may be seen or
/// not. After an error it ends.
#[derive(Debug)]
pub struct ReadDir {
    parent: Arc<Parent>,
    /// Entries that were read, the next one last.
    read: Vec<Dirent>,
    /// Where to read on; none behind the last entry.
    cookie: Option<u64>,
}

/// The directory of entries.
#[derive(Debug)]
struct Parent {
    dir: Dir,
    path: PathBuf,
}

/// An entry that [`ReadDir`] or [`Walk`](crate::Walk) yields.
#[derive(Clone, Debug)]
pub struct DirEntry {
    parent: Arc<Parent>,
    entry: Dirent,
}

impl ReadDir {
    pub(super) fn new(dir: Dir, path: PathBuf) -> Self {
        Self { parent: Arc::new(Parent { dir, path }), read: Vec::new(), cookie: Some(0) }
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.parent.dir
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if self.read.is_empty() {
            let entries = match self.parent.dir.entries_from(self.cookie.take()?, BATCH_COUNT) {
                Ok(entries) => entries,
                Err(error) => return Some(Err(error.at(&self.parent.path))),
            };
            self.cookie = entries.last().map(|(_, behind)| *behind);
            self.read.extend(entries.into_iter().rev().map(|(entry, _)| entry));
        }
        let entry = self.read.pop()?;
        Some(Ok(DirEntry { parent: self.parent.clone(), entry }))
    }
}

impl DirEntry {
    /// Its name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        os_string(self.entry.name.clone())
    }

    /// The path that was given for the directory, with the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        // Not joined as a path of the host, to which a name may mean more, as `C:` and `\` do to Windows.
        let mut path = self.parent.path.as_os_str().to_owned();
        if !path.is_empty() && !path.as_encoded_bytes().ends_with(b"/") {
            path.push("/");
        }
        path.push(self.file_name());
        path.into()
    }

    /// Its inode number.
    #[must_use]
    pub fn inode(&self) -> InodeNumber {
        self.entry.inode
    }

    /// The type of its inode, as the directory says it; where a directory does not say types, as the inode does.
    ///
    /// # Errors
    /// As [`DirEntry::metadata`], in directories that do not say types.
    pub fn file_type(&self) -> Result<FileType> {
        match self.entry.file_type {
            Some(file_type) => Ok(file_type),
            None => Ok(self.metadata()?.file_type),
        }
    }

    /// What `lstat` reports: a symbolic link is not followed.
    ///
    /// # Errors
    /// `NotFound` if it was removed; `PermissionDenied`, `Corrupt`, `Io`.
    pub fn metadata(&self) -> Result<Metadata> {
        self.parent.dir.symlink_metadata(&self.entry.name).map_err(|error| error.at(&self.path()))
    }

    /// It as a directory.
    pub(super) fn open_dir(&self) -> Result<Dir> {
        let open = || {
            let dir = self.parent.dir.dir(&self.entry.name)?;
            dir.check_above(&self.parent.dir)?;
            Ok(dir)
        };
        open().map_err(|error: Error| error.at(&self.path()))
    }
}
