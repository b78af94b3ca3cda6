//! Trees of Linux.
//!
//! A file that the user may not read is an error, never left out silently. Other processes may change the tree meanwhile: a file is read only
//! if it is the one that was looked at, and no link leads out of the tree. Leaves out: owners as other users would see them
//! ([`crate::Adjust`]).
//!
//! Test: `tests/tar.rs`, `tests/host.rs`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use extant_ondisk::Timestamp;
use extant_ondisk::mode::S_IALLUGO;
use rustix::fs::{CWD, Mode, OFlags, major, minor};
use rustix::io::Errno;

use super::Walk;
use super::look::{Name, Place, Seen, names, own_name};
use crate::entry::{Attributes, DataRange, Entry, EntryKind, RANGES_MAX, Shape, TOO_MANY_RANGES, Xattr};
use crate::error::{Error, Result};
use crate::flow::{Extent, Sink};
use crate::host::open_file::OpenFile;
use crate::host::open_path::OpenPath;
use crate::host::pieces::Pieces;
use crate::host_file::FileId;
use crate::path::TreePath;

/// A directory whose entries are not all poured; the next one is last.
struct Open {
    tree: TreePath,
    names: Vec<Name>,
}

impl Walk {
    /// Pours the tree.
    pub(super) fn pour_tree(&self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        let links = self.hard_links.then(HashMap::new);
        let mut visit = Visit { walk: self, sink, extent, links, pieces: Pieces::default() };
        let seen = Seen::at(&self.root, self.follow_root).map_err(self.failed(&self.at))?;
        let id = seen.id();
        if !visit.file(&self.at, self.root_place(), seen)? {
            return visit.sink.finish();
        }
        let mut path = OpenPath::new(self.open_root(id)?);
        // Where the host has none, or does not show it to this process, files are found by their paths.
        let has_proc = own_name(path.directory()).join(".").is_dir();
        let mut open = vec![self.open(self.at.clone(), &path)?];
        while let Some(directory) = open.last_mut() {
            let Some(name) = directory.names.pop() else {
                path.leave().map_err(self.failed(&directory.tree))?;
                open.pop();
                continue;
            };
            let tree = directory.tree.join(&name.bytes)?;
            let here = path.directory();
            let place = Place { directory: here.as_fd(), name: &name.bytes, follow: false };
            let base = || if has_proc { own_name(here) } else { self.host(&directory.tree) };
            let seen = place.look(name.is_regular, base);
            let seen = seen.map_err(self.failed(&tree))?;
            let id = seen.id();
            if self.excluded == Some(id) || !visit.file(&tree, place, seen)? {
                continue;
            }
            let entered = path.enter(&name.bytes).map_err(self.failed(&tree))?;
            if entered != id {
                return Err(Error::Changed { path: self.host(&tree) });
            }
            open.push(self.open(tree, &path)?);
        }
        visit.sink.finish()
    }

    /// The entry of what was seen at a place, and the file, if it was opened.
    pub(super) fn entry(
        &self,
        path: TreePath,
        place: Place<'_>,
        seen: Seen,
    ) -> Result<(Entry, Option<File>)> {
        let id = seen.id();
        let Seen { found, xattrs, mut file } = seen;
        let attributes = attributes(&found, xattrs);
        if !found.is_file() {
            let kind = kind(place, &found).map_err(self.failed(&path))?;
            return Ok((Entry { path, kind, attributes }, None));
        }
        let size = found.len();
        let shape = if found.blocks() < size.div_ceil(512) {
            let host = || self.host(&path);
            let open = file.take().map_or_else(|| open_regular_at(place, id, host), Ok)?;
            let ranges = data_ranges(&open, size).map_err(self.failed(&path))?;
            if ranges.len() > RANGES_MAX {
                return Err(Error::Limit { path, what: TOO_MANY_RANGES });
            }
            file = Some(open);
            Shape::sparse(size, ranges).map_err(|_| Error::Changed { path: host() })?
        } else {
            Shape::dense(size)
        };
        Ok((Entry { path, kind: EntryKind::File(shape), attributes }, file))
    }

    /// The path that messages show for a place.
    pub(super) fn host(&self, tree: &TreePath) -> PathBuf {
        let below = tree.components_from(self.at.depth()).join(&b'/');
        if below.is_empty() { self.root.clone() } else { self.root.join(OsStr::from_bytes(&below)) }
    }

    pub(super) fn failed<E: Into<io::Error>>(&self, tree: &TreePath) -> impl FnOnce(E) -> Error {
        move |error| Error::Host { path: self.host(tree), source: error.into() }
    }

    /// Where the root is.
    pub(super) fn root_place(&self) -> Place<'_> {
        Place { directory: CWD, name: self.root.as_os_str().as_bytes(), follow: self.follow_root }
    }

    /// Opens the root, which was looked at before.
    pub(super) fn open_root(&self, id: FileId) -> Result<OwnedFd> {
        let follow = if self.follow_root { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
        let root = rustix::fs::openat(CWD, &self.root, flags, Mode::empty());
        let root = root.map_err(self.failed(&self.at))?;
        let opened = rustix::fs::fstat(&root).map_err(self.failed(&self.at))?;
        if (opened.st_dev, opened.st_ino) != id {
            return Err(Error::Changed { path: self.root.clone() });
        }
        Ok(root)
    }

    /// The directory that the open path leads to, which is poured as `tree`.
    fn open(&self, tree: TreePath, path: &OpenPath) -> Result<Open> {
        let names = names(path.directory()).map_err(self.failed(&tree))?;
        Ok(Open { tree, names })
    }
}

struct Visit<'a> {
    walk: &'a Walk,
    sink: &'a mut dyn Sink,
    extent: Extent,
    /// Files with more names than one, by device and inode, and where their first name was met; none if each name is a
    /// file of its own.
    links: Option<HashMap<FileId, TreePath>>,
    pieces: Pieces,
}

impl Visit<'_> {
    /// Pours one file; whether it is a directory, to be gone through.
    fn file(&mut self, tree: &TreePath, place: Place<'_>, seen: Seen) -> Result<bool> {
        let (id, path) = (seen.id(), tree.clone());
        if let Some(links) = &mut self.links
            && !seen.found.is_dir()
            && seen.found.nlink() > 1
        {
            if let Some(first) = links.get(&id) {
                let kind = EntryKind::HardLink(first.clone());
                let attributes = attributes(&seen.found, Vec::new());
                self.sink.entry(Entry { path, kind, attributes })?;
                return Ok(false);
            }
            links.insert(id, path.clone());
        }
        let (entry, file) = self.walk.entry(path, place, seen)?;
        let ranges = match &entry.kind {
            EntryKind::File(shape) if self.extent == Extent::Everything => shape.ranges.clone(),
            _ => Vec::new(),
        };
        let is_directory = entry.kind == EntryKind::Directory;
        let host = || self.walk.host(tree);
        let file = match file.filter(|_| !ranges.is_empty()) {
            None if !ranges.is_empty() => Some(open_regular_at(place, id, host)?),
            file => file,
        };
        self.sink.entry(entry)?;
        if let Some(file) = file {
            self.pieces.read(&OpenFile { file, path: host() }, &ranges, self.sink)?;
        }
        Ok(is_directory)
    }
}

fn attributes(found: &Metadata, xattrs: Vec<Xattr>) -> Attributes {
    let nanoseconds = u32::try_from(found.mtime_nsec()).unwrap_or(0);
    Attributes {
        mode: found.mode() as u16 & S_IALLUGO,
        uid: found.uid(),
        gid: found.gid(),
        mtime: Timestamp { seconds: found.mtime(), nanoseconds },
        // The access time changes by this walk, so it is no property of the tree.
        atime: None,
        xattrs,
    }
}

/// Opens the regular file `id` at a path.
pub(in crate::host) fn open_regular(path: &Path, id: FileId) -> Result<File> {
    let place = Place { directory: CWD, name: path.as_os_str().as_bytes(), follow: false };
    open_regular_at(place, id, || path.to_owned())
}

/// Opens the regular file `id`. Another file in its place, which a link may lead to, is not read.
fn open_regular_at(place: Place<'_>, id: FileId, host: impl Fn() -> PathBuf) -> Result<File> {
    let opened = place.open().map_err(io::Error::from).and_then(|file| Ok((file.metadata()?, file)));
    match opened {
        Ok((found, file)) if found.is_file() && (found.dev(), found.ino()) == id => Ok(file),
        Ok(_) => Err(Error::Changed { path: host() }),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            Err(Error::Changed { path: host() })
        }
        Err(error) => Err(Error::Host { path: host(), source: error }),
    }
}

fn kind(place: Place<'_>, found: &Metadata) -> Result<EntryKind, Errno> {
    let file_type = found.file_type();
    let device = (major(found.rdev()), minor(found.rdev()));
    Ok(if file_type.is_dir() {
        EntryKind::Directory
    } else if file_type.is_symlink() {
        EntryKind::Symlink(place.read_link()?)
    } else if file_type.is_fifo() {
        EntryKind::Fifo
    } else if file_type.is_socket() {
        EntryKind::Socket
    } else if file_type.is_char_device() {
        EntryKind::CharDevice(device.0, device.1)
    } else {
        EntryKind::BlockDevice(device.0, device.1)
    })
}

/// The ranges of a file that hold data, one more than [`RANGES_MAX`] at most. A host that does not support holes reports all of
/// it as data.
fn data_ranges(file: &File, size: u64) -> io::Result<Vec<DataRange>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
            Ok(start) => start,
            // Only a hole up to the end.
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start))?.min(size);
        if start >= end {
            break;
        }
        ranges.push(DataRange { offset: start, bytes: end - start });
        if ranges.len() > RANGES_MAX {
            break;
        }
        at = end;
    }
    Ok(ranges)
}
