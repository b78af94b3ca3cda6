//! A tree on a disk, in the order of its names.
//!
//! The disk may be hostile: a directory that is met a second time is an error, so that a cycle ends, and names that no
//! directory may hold are refused. Memory is bounded: it holds pieces of one file, and names of the directories above
//! the one that is read.
//!
//! Leaves out: an empty `lost+found` at the disk's root, which every disk has.
//!
//! Test: `tests/disk.rs`.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use extant::{Dir, File, Filesystem, ReadAhead};
use extant_ondisk::{FileType, InodeNumber};

use super::read::{attributes, content, kind, xattrs};
use super::waiting::{Waiting, is_lost_and_found};
use crate::entry::{Entry, EntryKind};
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
        let links = self.hard_links.then(HashMap::new);
        let blocks_count = self.fs.statistics().blocks;
        let mut visit = Visit { sink, extent, blocks_count, links, directories: HashSet::new() };
        let root =
            if self.follow_root { self.fs.lookup(&self.root) } else { self.fs.symlink_lookup(&self.root) };
        let root = root.map_err(|source| Error::disk_at(self.root.display(), source))?;
        let mut open: Vec<Open> = Vec::new();
        open.extend(visit.file(&root, self.at.clone(), || self.fs.dir(&self.root))?);
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
            let names_left = names.len();
            if let Some(below) = visit.file(&file, path, || dir.dir(&name))? {
                waiting.enter(names_left, &below.tree)?;
                open.push(below);
            }
        }
        sink.finish()
    }
}

struct Visit<'a> {
    sink: &'a mut dyn Sink,
    extent: Extent,
    /// Blocks of the disk: no file has more, nor more pieces.
    blocks_count: u64,
    /// Inodes with more names than one, and where their first name was met; none if each name is a file of its own.
    links: Option<HashMap<InodeNumber, TreePath>>,
    directories: HashSet<InodeNumber>,
}

impl Visit<'_> {
    /// Pours one file; gives a directory back, to be gone through.
    fn file(
        &mut self,
        file: &File,
        tree: TreePath,
        open: impl FnOnce() -> extant::Result<Dir>,
    ) -> Result<Option<Open>> {
        let metadata = file.metadata();
        let failed = |source| Error::disk(&tree, source);
        if let Some(links) = &mut self.links
            && metadata.file_type != FileType::Directory
            && metadata.links > 1
        {
            if let Some(first) = links.get(&metadata.inode) {
                let attributes = attributes(&metadata, Vec::new());
                self.sink.entry(Entry {
                    path: tree,
                    kind: EntryKind::HardLink(first.clone()),
                    attributes,
                })?;
                return Ok(None);
            }
            links.insert(metadata.inode, tree.clone());
        }
        let attributes = attributes(&metadata, xattrs(file).map_err(failed)?);
        let kind = kind(file, &metadata, &tree, self.blocks_count)?;
        let is_directory = kind == EntryKind::Directory;
        self.sink.entry(Entry { path: tree.clone(), kind: kind.clone(), attributes })?;
        if self.extent == Extent::Everything {
            content(file, &tree, &kind, self.sink)?;
        }
        if !is_directory {
            return Ok(None);
        }
        if !self.directories.insert(metadata.inode) {
            return Err(Error::Damaged { path: tree, reason: "a directory with two names" });
        }
        let dir = open().map_err(failed)?;
        let entries = dir.entries().map_err(failed)?;
        dir.read_ahead(&entries, ReadAhead::Inodes);
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Some(Open { dir, tree, names }))
    }
}
