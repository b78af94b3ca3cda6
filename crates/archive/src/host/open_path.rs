//! An open path: the directories of the host from one to another below it.
//!
//! Each directory is opened from the one above it and never through a symbolic link, so that a process that changes the
//! tree meanwhile cannot redirect it. Only the last [`OPEN_MAX`] stay open: a tree may be deeper than a process may have
//! descriptors. A closed one is opened again as `..` of the one below it, and has to be the same directory.
//!
//! Test: `tests/extract.rs`, `tests/host.rs`.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result as Outcome};

use crate::host_file::FileId;
use crate::path::TreePath;

/// Directories of the path that are open: few beside the 1,024 that a process may usually have.
const OPEN_MAX: usize = 64;

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[derive(Debug)]
pub(super) struct OpenPath {
    root: OwnedFd,
    here: TreePath,
    /// The directories below the root.
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    id: FileId,
    descriptor: Option<OwnedFd>,
}

impl OpenPath {
    /// The path that begins at `root`.
    pub fn new(root: OwnedFd) -> Self {
        Self { root, here: TreePath::root(), levels: Vec::new() }
    }

    /// The path from its root to the current directory.
    pub fn here(&self) -> &TreePath {
        &self.here
    }

    /// The directory that it leads to.
    pub fn directory(&self) -> &OwnedFd {
        self.levels.last().and_then(|level| level.descriptor.as_ref()).unwrap_or(&self.root)
    }

    /// Goes on into `name`, and returns the identity of that directory.
    pub fn enter(&mut self, name: &[u8]) -> Outcome<FileId> {
        let (descriptor, id) = open_directory(self.directory(), name)?;
        self.here = self.here.clone().below(name);
        self.levels.push(Level { id, descriptor: Some(descriptor) });
        if let Some(behind) = self.levels.len().checked_sub(OPEN_MAX + 1) {
            self.levels[behind].descriptor = None;
        }
        Ok(id)
    }

    /// `path`, where it leads already, shares its names with paths to come: they are compared in no time.
    pub fn share(&mut self, path: &TreePath) {
        debug_assert_eq!(self.here.depth(), path.depth());
        self.here = path.clone();
    }

    /// Goes back to the directory above.
    pub fn leave(&mut self) -> Outcome<()> {
        let (Some(left), Some((above, _))) = (self.levels.pop(), self.here.split_last()) else {
            return Ok(());
        };
        self.here = above.clone();
        if let (Some(level @ Level { descriptor: None, .. }), Some(left)) =
            (self.levels.last_mut(), left.descriptor)
        {
            let (above, id) = open_directory(&left, b"..")?;
            if id != level.id {
                return Err(Errno::STALE);
            }
            level.descriptor = Some(above);
        }
        Ok(())
    }

    /// Goes to the directory at `path`.
    pub fn go(&mut self, path: &TreePath) -> Outcome<&OwnedFd> {
        let shared = self.here.shared_depth(path);
        while self.levels.len() > shared {
            self.leave()?;
        }
        for name in path.components_from(shared) {
            self.enter(name)?;
        }
        self.share(path);
        Ok(self.directory())
    }
}

/// Opens the directory `name` of `above`, through no link, and tells which it is.
pub(super) fn open_directory(above: &OwnedFd, name: &[u8]) -> Outcome<(OwnedFd, FileId)> {
    let descriptor = rustix::fs::openat(above, name, FLAGS, Mode::empty())?;
    let found = rustix::fs::fstat(&descriptor)?;
    Ok((descriptor, (found.st_dev, found.st_ino)))
}
