//! A tree on a disk, in the order of its names.
//!
//! The disk may be hostile: a directory that is met a second time is an error, so that a cycle ends, and names that no
//! directory may hold are refused. Memory is bounded: it holds names of the directories above the one that is read, and
//! what [`Pouring`] holds.
//!
//! Leaves out: an empty `lost+found` at the disk's root, which every disk has.
//!
//! Test: `tests/disk.rs`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use extant::{Dir, Filesystem, ReadAhead};
use extant_ondisk::InodeNumber;

use super::pouring::Pouring;
use super::waiting::{Waiting, is_lost_and_found};
use crate::error::{Error, Result};
use crate::flow::{Extent, Sink, Source};
use crate::path::TreePath;

/// Reads a tree on a disk: a directory with all below it, or a single file.
#[derive(Debug)]
pub struct DiskWalk {
    fs: Filesystem,
    root: PathBuf,
    at: TreePath,
    follow_root: bool,
    hard_links: bool,
}

impl DiskWalk {
    /// The tree at `root` on the disk, which becomes the root of what is poured. A symbolic link there is followed.
    #[must_use]
    pub fn new(fs: &Filesystem, root: impl AsRef<Path>) -> Self {
        Self {
            fs: fs.clone(),
            root: root.as_ref().to_owned(),
            at: TreePath::root(),
            follow_root: true,
            hard_links: true,
        }
    }

    /// Pours the tree as `path`, not as the root.
    #[must_use]
    pub fn at(mut self, path: TreePath) -> Self {
        self.at = path;
        self
    }

    /// Whether a symbolic link given as the root is followed.
    #[must_use]
    pub fn follow_root(mut self, follow: bool) -> Self {
        self.follow_root = follow;
        self
    }

    /// Whether further names of a file are poured as hard links, not as files of their own.
    #[must_use]
    pub fn hard_links(mut self, are_kept: bool) -> Self {
        self.hard_links = are_kept;
        self
    }
}

/// A directory whose entries are not all poured; the next one is last.
struct Open {
    dir: Dir,
    tree: TreePath,
    names: Vec<Vec<u8>>,
}

impl Source for DiskWalk {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        let mut pouring = Pouring::new(&self.fs, sink, extent, self.hard_links);
        let walked = self.walk(&mut pouring);
        pouring.finish(walked)
    }
}

impl DiskWalk {
    fn walk(&self, pouring: &mut Pouring<'_>) -> Result<()> {
        let mut directories = HashSet::new();
        let root =
            if self.follow_root { self.fs.lookup(&self.root) } else { self.fs.symlink_lookup(&self.root) };
        let root = root.map_err(|source| Error::disk_at(self.root.display(), source))?;
        let mut open: Vec<Open> = Vec::new();
        let is_directory = root.is_dir();
        pouring.file(self.at.clone(), root)?;
        if is_directory {
            open.push(Open::new(self.at.clone(), &mut directories, || self.fs.dir(&self.root))?);
        }
        let mut waiting = Waiting::default();
        while let Some(Open { dir, tree, names }) = open.last_mut() {
            let Some(name) = names.pop() else {
                waiting.leave();
                open.pop();
                continue;
            };
            let path = tree.join(&name)?;
            let file = dir.lookup(&name).map_err(|source| Error::disk(&path, source))?;
            if is_lost_and_found(dir, &name) {
                continue;
            }
            let is_directory = file.is_dir();
            pouring.file(path.clone(), file)?;
            if is_directory {
                waiting.enter(names.len(), &path)?;
                let below = Open::new(path, &mut directories, || dir.dir(&name))?;
                open.push(below);
            }
        }
        Ok(())
    }
}

impl Open {
    /// A directory that is met for the first time.
    fn new(
        tree: TreePath,
        directories: &mut HashSet<InodeNumber>,
        open: impl FnOnce() -> extant::Result<Dir>,
    ) -> Result<Self> {
        let failed = |source| Error::disk(&tree, source);
        let dir = open().map_err(failed)?;
        if !directories.insert(dir.number()) {
            return Err(Error::Damaged { path: tree, reason: "a directory with two names" });
        }
        let entries = dir.entries().map_err(failed)?;
        dir.read_ahead(&entries, ReadAhead::Inodes);
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Self { dir, tree, names })
    }
}
