//! A directory tree of the host, in an order that depends on nothing but its names.
//!
//! What the user may not read is an error, never left out silently. Owners and modes come through the C library,
//! so that `fakeroot` works. Leaves out: owners as other users would see them ([`crate::Adjust`]).
//!
//! Test: `tests/tar.rs`.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use extant_ondisk::Timestamp;
use rustix::fs::{OFlags, major, minor};
use rustix::io::Errno;

use crate::entry::{Attributes, DataRange, Entry, Kind, Shape, TreePath, Xattr};
use crate::error::{Error, Result};
use crate::flow::{Extent, PIECE_BYTES, REUSED_BYTES, Sink, Source};

/// Reads a tree of the host: a directory with all below it, or a single file.
#[derive(Clone, Debug)]
pub struct Walk {
    root: PathBuf,
    at: TreePath,
    follow_root: bool,
    hard_links: bool,
    excluded: Option<(u64, u64)>,
}

impl Walk {
    /// The tree at `root`, which becomes the root of what is poured. A symbolic link there is followed.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), at: TreePath::root(), follow_root: true, hard_links: true, excluded: None }
    }

    /// Pours the tree as `path`, not as the root.
    #[must_use]
    pub fn at(mut self, path: TreePath) -> Self {
        self.at = path;
        self
    }

    /// Whether a symbolic link given as the root stands for what it names.
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

    /// Leaves one file out, wherever it is met: the image that is being written.
    #[must_use]
    pub fn exclude(mut self, file: &Metadata) -> Self {
        self.excluded = Some((file.dev(), file.ino()));
        self
    }
}

/// A directory whose entries are not all poured; the next one is last.
struct Open {
    host: PathBuf,
    tree: TreePath,
    names: Vec<Vec<u8>>,
}

impl Source for Walk {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        let mut links = HashMap::new();
        let found =
            if self.follow_root { fs::metadata(&self.root) } else { fs::symlink_metadata(&self.root) };
        let found = found.map_err(Error::host(&self.root))?;
        let links = self.hard_links.then_some(&mut links);
        let mut visit = Visit { sink, extent, links, pieces: Pieces::default() };
        let mut open: Vec<Open> = Vec::new();
        open.extend(visit.file(self.root.clone(), self.at.clone(), &found, self.follow_root)?);
        while let Some(directory) = open.last_mut() {
            let Some(name) = directory.names.pop() else {
                open.pop();
                continue;
            };
            let host = directory.host.join(std::ffi::OsStr::from_bytes(&name));
            let found = fs::symlink_metadata(&host).map_err(Error::host(&host))?;
            if self.excluded == Some((found.dev(), found.ino())) {
                continue;
            }
            let tree = directory.tree.join(&name)?;
            open.extend(visit.file(host, tree, &found, false)?);
        }
        sink.finish()
    }
}

struct Visit<'a> {
    sink: &'a mut dyn Sink,
    extent: Extent,
    /// Files with more names than one, by device and inode, and where their first name was met; none if each name is a
    /// file of its own.
    links: Option<&'a mut HashMap<(u64, u64), TreePath>>,
    pieces: Pieces,
}

impl Visit<'_> {
    /// Pours one file; gives a directory back, to be gone through.
    fn file(
        &mut self,
        host: PathBuf,
        tree: TreePath,
        found: &Metadata,
        follow: bool,
    ) -> Result<Option<Open>> {
        let mut attributes = attributes(&host, found, follow)?;
        if let Some(links) = &mut self.links
            && !found.is_dir()
            && found.nlink() > 1
        {
            let id = (found.dev(), found.ino());
            if let Some(first) = links.get(&id) {
                let kind = Kind::HardLink(first.clone());
                attributes.xattrs.clear();
                self.sink.entry(Entry { path: tree, kind, attributes })?;
                return Ok(None);
            }
            links.insert(id, tree.clone());
        }
        if found.is_file() {
            self.regular(&host, tree, found, attributes)?;
            return Ok(None);
        }
        let kind = kind(&host, found)?;
        let is_directory = kind == Kind::Directory;
        self.sink.entry(Entry { path: tree.clone(), kind, attributes })?;
        if !is_directory {
            return Ok(None);
        }
        let names = names(&host).map_err(Error::host(&host))?;
        Ok(Some(Open { host, tree, names }))
    }

    fn regular(
        &mut self,
        host: &Path,
        tree: TreePath,
        found: &Metadata,
        attributes: Attributes,
    ) -> Result<()> {
        let size = found.len();
        let may_have_holes = found.blocks() < size.div_ceil(512);
        let wants_content = self.extent == Extent::Everything && size > 0;
        let mut file = None;
        if may_have_holes || wants_content {
            file = Some(open_regular(host).map_err(Error::host(host))?);
        }
        let shape = match &mut file {
            Some(file) if may_have_holes => {
                let ranges = data_ranges(file, size).map_err(Error::host(host))?;
                Shape::sparse(size, ranges).map_err(|_| Error::Changed { path: host.to_owned() })?
            }
            _ => Shape::dense(size),
        };
        let ranges = shape.ranges.clone();
        self.sink.entry(Entry { path: tree, kind: Kind::File(shape), attributes })?;
        match file.filter(|_| wants_content) {
            Some(mut file) => self.pieces.read(host, &mut file, &ranges, self.sink),
            None => Ok(()),
        }
    }
}

/// Reads the content of files, into buffers that come back.
#[derive(Default)]
pub(super) struct Pieces(Vec<u8>);

impl Pieces {
    /// Pours these ranges of an open file.
    pub(super) fn read(
        &mut self,
        host: &Path,
        file: &mut File,
        ranges: &[DataRange],
        sink: &mut dyn Sink,
    ) -> Result<()> {
        ranges.iter().try_for_each(|range| self.range(host, file, *range, sink))
    }

    fn range(&mut self, host: &Path, file: &mut File, range: DataRange, sink: &mut dyn Sink) -> Result<()> {
        file.seek(SeekFrom::Start(range.offset)).map_err(Error::host(host))?;
        let mut done = 0;
        while done < range.bytes {
            let wanted = (range.bytes - done).min(PIECE_BYTES as u64);
            let mut piece = match wanted as usize {
                REUSED_BYTES.. => std::mem::take(&mut self.0),
                _ => Vec::new(),
            };
            piece.clear();
            // What is reserved need not be zeroed before it is read into.
            piece.reserve(wanted as usize);
            let read = file.take(wanted).read_to_end(&mut piece).map_err(Error::host(host))?;
            if (read as u64) < wanted {
                return Err(Error::Changed { path: host.to_owned() });
            }
            let offset = range.offset + done;
            done += wanted;
            let used = sink.content(offset, piece)?;
            if used.capacity() >= REUSED_BYTES {
                self.0 = used;
            }
        }
        Ok(())
    }
}

/// The names in a directory, the first one last.
fn names(host: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut names =
        fs::read_dir(host)?.map(|entry| Ok(entry?.file_name().into_vec())).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// Opens without following a link or waiting for a pipe, should the file have become one.
pub(super) fn open_regular(host: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(host)
}

fn kind(host: &Path, found: &Metadata) -> Result<Kind> {
    let file_type = found.file_type();
    let device = (major(found.rdev()), minor(found.rdev()));
    Ok(if file_type.is_dir() {
        Kind::Directory
    } else if file_type.is_symlink() {
        Kind::Symlink(fs::read_link(host).map_err(Error::host(host))?.into_os_string().into_vec())
    } else if file_type.is_fifo() {
        Kind::Fifo
    } else if file_type.is_socket() {
        Kind::Socket
    } else if file_type.is_char_device() {
        Kind::CharDevice(device.0, device.1)
    } else {
        Kind::BlockDevice(device.0, device.1)
    })
}

fn attributes(host: &Path, found: &Metadata, follow: bool) -> Result<Attributes> {
    let nanoseconds = u32::try_from(found.mtime_nsec()).unwrap_or(0);
    Ok(Attributes {
        mode: (found.mode() & 0o7777) as u16,
        uid: found.uid(),
        gid: found.gid(),
        mtime: Timestamp { seconds: found.mtime(), nanoseconds },
        // That it is read now is no property of the tree.
        atime: None,
        xattrs: xattrs(host, follow)
            .map_err(|errno| Error::Host { path: host.to_owned(), source: errno.into() })?,
    })
}

fn xattrs(host: &Path, follow: bool) -> Result<Vec<Xattr>, Errno> {
    let names = grow(|buffer| match follow {
        true => rustix::fs::listxattr(host, buffer),
        false => rustix::fs::llistxattr(host, buffer),
    });
    let names = match names {
        Ok(names) => names,
        // The host's file system has none.
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(errno) => return Err(errno),
    };
    let mut xattrs = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let value = grow(|buffer| match follow {
            true => rustix::fs::getxattr(host, name, buffer),
            false => rustix::fs::lgetxattr(host, name, buffer),
        });
        match value {
            Ok(value) => xattrs.push((name.to_vec(), value)),
            // Gone since it was listed, or not for this user's eyes, as `trusted.*`.
            Err(Errno::NODATA | Errno::PERM | Errno::NOTSUP) => {}
            Err(errno) => return Err(errno),
        }
    }
    xattrs.sort_unstable();
    Ok(xattrs)
}

/// Calls with larger buffers until the answer fits. The host gives no answer beyond 64 KiB.
fn grow(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 256];
    loop {
        match call(&mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 16, 0),
            Err(errno) => return Err(errno),
        }
    }
}

/// The ranges of a file that hold data. A host that cannot tell says that all of it does.
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
        at = end;
    }
    Ok(ranges)
}
