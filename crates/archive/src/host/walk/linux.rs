//! Trees of Linux.
//!
//! A file that the user may not read is an error, never left out silently. Owners and modes come through the C library, so that
//! `fakeroot` works. Other processes may change the tree meanwhile: a file is read only if it is the one that was examined, and
//! no link leads out of the tree. Leaves out: owners as other users would see them ([`crate::Adjust`]).
//!
//! Test: `tests/tar.rs`, `tests/host.rs`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use extant_ondisk::Timestamp;
use extant_ondisk::mode::S_IALLUGO;
use extant_rt::share_work;
use rustix::fs::{Mode, OFlags, major, minor};
use rustix::io::Errno;

use super::Walk;
use crate::entry::{Attributes, DataRange, Entry, EntryKind, RANGES_MAX, Shape, TOO_MANY_RANGES, Xattr};
use crate::error::{Error, Result};
use crate::flow::{Extent, Sink};
use crate::host::open_file::OpenFile;
use crate::host::open_path::OpenPath;
use crate::host::pieces::Pieces;
use crate::host_file::FileId;
use crate::path::TreePath;

/// Entries of a directory that are looked at together, and how many of them are worth a second thread.
const BATCH: usize = 256;
const SHARED_BATCH_MIN: usize = 64;
const THREADS: usize = 2;

/// A directory whose entries are not all poured; the next one is last.
struct Open {
    tree: TreePath,
    names: Vec<Vec<u8>>,
    /// The ones before those, which were looked at.
    seen: Vec<(SourceFile, Result<Seen>)>,
}

/// What a look at a file found.
struct Seen {
    found: Metadata,
    xattrs: Vec<Xattr>,
}

impl Walk {
    /// Pours the tree. `files` gets, for each regular file, which one it was.
    pub(in crate::host) fn pour_noting(
        &self,
        sink: &mut dyn Sink,
        extent: Extent,
        files: Option<&mut Vec<FileId>>,
    ) -> Result<()> {
        let mut visit = Visit {
            walk: self,
            sink,
            extent,
            links: self.hard_links.then(HashMap::new),
            pieces: Pieces::default(),
            files,
        };
        let root = SourceFile { access: self.root.clone(), tree: self.at.clone() };
        let Seen { found, xattrs } = self.look(&root, self.follow_root)?;
        if !visit.file(&root, &found, xattrs, self.follow_root)? {
            return visit.sink.finish();
        }
        let mut open_path = self.open_root(&found)?;
        // Where the host has none, or does not show it to this process, files are found by their paths.
        let has_proc = own_name(open_path.directory()).join(".").is_dir();
        let mut open = vec![self.open(self.at.clone(), &open_path)?];
        while let Some(directory) = open.last_mut() {
            if directory.seen.is_empty() {
                self.look_ahead(directory, has_proc.then(|| open_path.directory()))?;
            }
            let Some((source, seen)) = directory.seen.pop() else {
                open_path.leave().map_err(self.failed(&directory.tree))?;
                open.pop();
                continue;
            };
            let Seen { found, xattrs } = seen?;
            let is_excluded = self.excluded == Some((found.dev(), found.ino()));
            if is_excluded || !visit.file(&source, &found, xattrs, false)? {
                continue;
            }
            let name = source.tree.split_last().map_or(&[][..], |(_, name)| name);
            let entered = open_path.enter(name).map_err(self.failed(&source.tree))?;
            if entered != (found.dev(), found.ino()) {
                return Err(Error::Changed { path: self.host(&source.tree) });
            }
            open.push(self.open(source.tree, &open_path)?);
        }
        visit.sink.finish()
    }

    /// Looks at the next entries of a directory, by the name that the open directory has in this process, if the host shows it.
    fn look_ahead(&self, directory: &mut Open, by_name: Option<&OwnedFd>) -> Result<()> {
        let Open { tree, names, seen } = directory;
        let own_name = by_name.map(own_name);
        let batch = names.drain(names.len().saturating_sub(BATCH)..);
        let sources = batch.map(|name| {
            let tree = tree.join(&name)?;
            let access = match &own_name {
                Some(own_name) => own_name.join(OsStr::from_bytes(&name)),
                None => self.host(&tree),
            };
            Ok(SourceFile { access, tree })
        });
        let sources = sources.collect::<Result<Vec<_>>>()?;
        let threads = if sources.len() < SHARED_BATCH_MIN { 1 } else { THREADS };
        let part = sources.len().div_ceil(threads).max(1);
        let look =
            |part: &[SourceFile]| part.iter().map(|source| self.look(source, false)).collect::<Vec<_>>();
        let found = share_work(threads, sources.chunks(part), look).into_iter().flatten();
        *seen = sources.into_iter().zip(found.collect::<Vec<_>>()).collect();
        Ok(())
    }

    fn look(&self, source: &SourceFile, follow: bool) -> Result<Seen> {
        let access = &source.access;
        let found = if follow { fs::metadata(access) } else { fs::symlink_metadata(access) };
        let found = found.map_err(self.failed(&source.tree))?;
        let xattrs = xattrs(access, follow).map_err(self.failed(&source.tree))?;
        Ok(Seen { found, xattrs })
    }

    /// The path that messages show for a place.
    fn host(&self, tree: &TreePath) -> PathBuf {
        let below = tree.components_from(self.at.depth()).join(&b'/');
        if below.is_empty() { self.root.clone() } else { self.root.join(OsStr::from_bytes(&below)) }
    }

    fn failed<E: Into<io::Error>>(&self, tree: &TreePath) -> impl FnOnce(E) -> Error {
        move |error| Error::Host { path: self.host(tree), source: error.into() }
    }

    /// Opens the root, which was `found` before.
    fn open_root(&self, found: &Metadata) -> Result<OpenPath> {
        let follow = if self.follow_root { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
        let root = rustix::fs::openat(rustix::fs::CWD, &self.root, flags, Mode::empty());
        let root = root.map_err(self.failed(&self.at))?;
        let opened = rustix::fs::fstat(&root).map_err(self.failed(&self.at))?;
        if (opened.st_dev, opened.st_ino) != (found.dev(), found.ino()) {
            return Err(Error::Changed { path: self.root.clone() });
        }
        Ok(OpenPath::new(root))
    }

    /// The directory that the open path leads to, which is poured as `tree`.
    fn open(&self, tree: TreePath, open_path: &OpenPath) -> Result<Open> {
        let names = names(open_path.directory()).map_err(self.failed(&tree))?;
        Ok(Open { tree, names, seen: Vec::new() })
    }
}

/// A file that is looked at: a path to it that no other process can change, and where it goes.
struct SourceFile {
    access: PathBuf,
    tree: TreePath,
}

struct Visit<'a> {
    walk: &'a Walk,
    sink: &'a mut dyn Sink,
    extent: Extent,
    /// Files with more names than one, by device and inode, and where their first name was met; none if each name is a
    /// file of its own.
    links: Option<HashMap<FileId, TreePath>>,
    pieces: Pieces,
    files: Option<&'a mut Vec<FileId>>,
}

impl Visit<'_> {
    /// Pours one file; whether it is a directory, to be gone through.
    fn file(
        &mut self,
        source: &SourceFile,
        found: &Metadata,
        xattrs: Vec<Xattr>,
        follow: bool,
    ) -> Result<bool> {
        let mut attributes = attributes(found, xattrs);
        let path = source.tree.clone();
        if let Some(links) = &mut self.links
            && !found.is_dir()
            && found.nlink() > 1
        {
            let id = (found.dev(), found.ino());
            if let Some(first) = links.get(&id) {
                let kind = EntryKind::HardLink(first.clone());
                attributes.xattrs.clear();
                self.sink.entry(Entry { path, kind, attributes })?;
                return Ok(false);
            }
            links.insert(id, path.clone());
        }
        if found.is_file() {
            self.regular(source, found, attributes, follow)?;
            return Ok(false);
        }
        let kind = kind(&source.access, found).map_err(self.walk.failed(&source.tree))?;
        let is_directory = kind == EntryKind::Directory;
        self.sink.entry(Entry { path, kind, attributes })?;
        Ok(is_directory)
    }

    fn regular(
        &mut self,
        source: &SourceFile,
        found: &Metadata,
        attributes: Attributes,
        follow: bool,
    ) -> Result<()> {
        let size = found.len();
        let may_have_holes = found.blocks() < size.div_ceil(512);
        let wants_content = self.extent == Extent::Everything && size > 0;
        let id = (found.dev(), found.ino());
        let host = || self.walk.host(&source.tree);
        let mut file = None;
        if may_have_holes || wants_content {
            file = Some(open_regular(&source.access, follow, id, host)?);
        }
        let shape = match &mut file {
            Some(file) if may_have_holes => {
                let ranges = data_ranges(file, size).map_err(self.walk.failed(&source.tree))?;
                if ranges.len() > RANGES_MAX {
                    return Err(Error::Limit { path: source.tree.clone(), what: TOO_MANY_RANGES });
                }
                Shape::sparse(size, ranges).map_err(|_| Error::Changed { path: host() })?
            }
            _ => Shape::dense(size),
        };
        let ranges = shape.ranges.clone();
        if let Some(files) = &mut self.files {
            files.push(id);
        }
        self.sink.entry(Entry { path: source.tree.clone(), kind: EntryKind::File(shape), attributes })?;
        match file.filter(|_| wants_content) {
            Some(file) => {
                let file = OpenFile { file, path: self.walk.host(&source.tree) };
                self.pieces.read(&file, &ranges, self.sink)
            }
            None => Ok(()),
        }
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

/// The name that an open directory has in this process, which leads to it wherever it is moved to.
fn own_name(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// The names in a directory, the first one last.
fn names(directory: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let entries = rustix::fs::Dir::read_from(directory)?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// Opens the regular file `id` without waiting for a pipe, should it have become one. Another file in its place, which a
/// link may lead to, is not read.
pub(in crate::host) fn open_regular(
    access: &Path,
    follow: bool,
    id: FileId,
    host: impl Fn() -> PathBuf,
) -> Result<File> {
    let link = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | link;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(access);
    let opened = opened.and_then(|file| Ok((file.metadata()?, file)));
    match opened {
        Ok((found, file)) if found.is_file() && (found.dev(), found.ino()) == id => Ok(file),
        Ok(_) => Err(Error::Changed { path: host() }),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            Err(Error::Changed { path: host() })
        }
        Err(error) => Err(Error::Host { path: host(), source: error }),
    }
}

fn kind(access: &Path, found: &Metadata) -> io::Result<EntryKind> {
    let file_type = found.file_type();
    let device = (major(found.rdev()), minor(found.rdev()));
    Ok(if file_type.is_dir() {
        EntryKind::Directory
    } else if file_type.is_symlink() {
        EntryKind::Symlink(fs::read_link(access)?.into_os_string().into_vec())
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
