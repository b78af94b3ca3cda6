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

use extant::{Dir, File, Filesystem, Metadata, SeekTo};
use extant_ondisk::{FileType, InodeNumber};

use crate::entry::{Attributes, DataRange, Entry, EntryKind, RANGES_MAX, Shape, TOO_MANY_RANGES, Xattr};
use crate::error::{Error, Result};
use crate::flow::{Extent, PIECE_BYTES, Sink, Source};
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

/// Names that may wait in all directories on the way but the one in which most wait: some 64 MiB of them. One directory
/// may be as large as it will. Many that share their blocks, as only a damaged disk has them, would hold the same names
/// once for each level.
const NAMES_WAITING_MAX: usize = 1 << 20;

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
        let root = root.map_err(|source| Error::Disk { path: self.root.display().to_string(), source })?;
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
            if name == b"lost+found" && dir.number() == InodeNumber::ROOT && is_empty_directory(dir, &name) {
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

/// How many names wait on the way to the directory that is read.
#[derive(Default)]
struct Waiting {
    /// For each directory above: its own, the sum of all down to it, and the most of one of them.
    levels: Vec<(usize, usize)>,
}

impl Waiting {
    /// Goes down to `tree` from a directory in which `names` wait.
    fn enter(&mut self, names: usize, tree: &TreePath) -> Result<()> {
        let (sum, most) = self.levels.last().copied().unwrap_or_default();
        let (sum, most) = (sum + names, most.max(names));
        self.levels.push((sum, most));
        if sum - most > NAMES_WAITING_MAX {
            return Err(Error::Limit {
                path: tree.clone(),
                what: "more than 1048576 names wait in the directories above",
            });
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.levels.pop();
    }
}

fn is_empty_directory(parent: &Dir, name: &[u8]) -> bool {
    parent.dir(name).and_then(|dir| dir.entries()).is_ok_and(|entries| entries.is_empty())
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
        let (major, minor) = metadata.device;
        let kind = match metadata.file_type {
            FileType::Directory => EntryKind::Directory,
            FileType::Regular => EntryKind::File(self.shape(file, &tree, metadata.size)?),
            FileType::Symlink => EntryKind::Symlink(file.read_link().map_err(failed)?),
            FileType::Fifo => EntryKind::Fifo,
            FileType::Socket => EntryKind::Socket,
            FileType::CharDevice => EntryKind::CharDevice(major, minor),
            FileType::BlockDevice => EntryKind::BlockDevice(major, minor),
            FileType::Unknown => {
                return Err(Error::Damaged { path: tree, reason: "an inode of no known type" });
            }
        };
        let ranges = match &kind {
            EntryKind::File(shape) if self.extent == Extent::Everything => shape.ranges.clone(),
            _ => Vec::new(),
        };
        let is_directory = kind == EntryKind::Directory;
        self.sink.entry(Entry { path: tree.clone(), kind, attributes })?;
        for range in ranges {
            self.range(file, &tree, range)?;
        }
        if !is_directory {
            return Ok(None);
        }
        if !self.directories.insert(metadata.inode) {
            return Err(Error::Damaged { path: tree, reason: "a directory with two names" });
        }
        let dir = open().map_err(failed)?;
        let mut names: Vec<_> = dir.entries().map_err(failed)?.into_iter().map(|entry| entry.name).collect();
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Some(Open { dir, tree, names }))
    }

    /// Where the file has data.
    fn shape(&self, file: &File, tree: &TreePath, size: u64) -> Result<Shape> {
        let failed = |source| Error::disk(tree, source);
        let mut shape = Shape { size, ranges: Vec::new() };
        let mut at = 0;
        while at < size {
            let start = match file.seek_to(SeekTo::Data, at) {
                Ok(start) => start,
                // Only a hole up to the end.
                Err(extant::Error::NoSuchOffset) => break,
                Err(error) => return Err(failed(error)),
            };
            let end = file.seek_to(SeekTo::Hole, start).map_err(failed)?.min(size);
            if start >= end {
                break;
            }
            shape.ranges.push(DataRange { offset: start, bytes: end - start });
            if shape.ranges.len() as u64 > self.blocks_count {
                return Err(Error::Damaged {
                    path: tree.clone(),
                    reason: "more pieces than the disk has blocks",
                });
            }
            if shape.ranges.len() > RANGES_MAX {
                return Err(Error::Limit { path: tree.clone(), what: TOO_MANY_RANGES });
            }
            at = end;
        }
        Ok(shape)
    }

    fn range(&mut self, file: &File, tree: &TreePath, range: DataRange) -> Result<()> {
        let mut done = 0;
        while done < range.bytes {
            let mut piece = vec![0; (range.bytes - done).min(PIECE_BYTES as u64) as usize];
            let offset = range.offset + done;
            let read = file.read_at(&mut piece, offset).map_err(|source| Error::disk(tree, source))?;
            if read == 0 {
                return Err(Error::Damaged { path: tree.clone(), reason: "shorter than its size" });
            }
            piece.truncate(read);
            done += read as u64;
            self.sink.content(offset, piece)?;
        }
        Ok(())
    }
}

fn attributes(metadata: &Metadata, xattrs: Vec<Xattr>) -> Attributes {
    let Metadata { mode, uid, gid, mtime, .. } = *metadata;
    Attributes { mode, uid, gid, mtime, atime: None, xattrs }
}

fn xattrs(file: &File) -> extant::Result<Vec<Xattr>> {
    let names = file.list_xattrs()?.into_iter();
    let mut xattrs =
        names.map(|name| file.xattr(&name).map(|value| (name, value))).collect::<Result<Vec<_>, _>>()?;
    xattrs.sort_unstable();
    Ok(xattrs)
}
