//! Writes a tree into a directory of the host.
//!
//! A disk may be hostile: each directory on the way is opened from its parent without following a symbolic link, so
//! no name leads out of the target. A new file is written under a temporary name and renamed. An existing regular file is
//! written in place, as `cp` writes it, so that its owner, its mode and its links stay. Symbolic links are followed, and
//! devices and pipes written into, only at the path that the user spelled: inside a tree the names are the disk's
//! choice, and an earlier copy of the same disk may have made the link. Directories get their final modes and times last.
//!
//! Test: `tests/extract.rs`.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use extant_ondisk::Timestamp;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, makedev};
use rustix::io::{Errno, Result as Outcome};

use super::attributes::{mode, set_on_file, set_on_name};
use super::stream::StreamWriter;
use crate::copy::{CopyOptions, Existing};
use crate::entry::{Attributes, Entry, Kind, TreePath};
use crate::error::{Error, Result};
use crate::flow::Sink;

/// A directory of the host as a sink.
#[derive(Debug)]
pub struct Extract {
    target: PathBuf,
    root: OwnedFd,
    options: CopyOptions,
    /// The path that the user spelled.
    spelled: TreePath,
    /// Device and inode of a file that is not written to.
    kept: Option<(u64, u64)>,
    /// The directory that the last entry was in, and the way to it.
    open: Vec<(Vec<u8>, OwnedFd)>,
    pending: Option<Pending>,
    /// The last entry was passed over, and so is its content.
    is_skipping: bool,
    directories: Vec<Directory>,
}

#[derive(Debug)]
struct Directory {
    path: TreePath,
    attributes: Attributes,
    is_new: bool,
}

/// A file whose content is coming.
#[derive(Debug)]
struct Pending {
    goal: Goal,
    entry: Entry,
    size: u64,
}

/// Where content goes.
#[derive(Debug)]
enum Goal {
    /// To a new file of this name, which is renamed in the end.
    New(File, Vec<u8>),
    /// To a regular file that exists.
    Existing(File),
    /// To a device or a pipe.
    Stream(StreamWriter<File>),
}

/// What is in the way of an entry that is no directory.
enum Obstacle {
    /// Nothing, or what is to be removed.
    None,
    /// The entry is passed over.
    Skip,
    /// A file that gets the content; whether it is a regular one.
    File { is_regular: bool },
}

impl Extract {
    /// Writes into `target`, a directory that exists.
    ///
    /// # Errors
    /// [`Error::Host`].
    pub fn new(target: impl AsRef<Path>, options: CopyOptions) -> Result<Self> {
        let target = target.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, target, flags, Mode::empty());
        let root = root.map_err(|errno| Error::Host { path: target.to_owned(), source: errno.into() })?;
        Ok(Self {
            target: target.to_owned(),
            root,
            options,
            spelled: TreePath::root(),
            kept: None,
            open: Vec::new(),
            pending: None,
            is_skipping: false,
            directories: Vec::new(),
        })
    }

    /// Follows a symbolic link and writes into a device or a pipe at `path`, which the user spelled.
    #[must_use]
    pub fn spelled(mut self, path: TreePath) -> Self {
        self.spelled = path;
        self
    }

    /// Refuses to write to this file: the image that is being read.
    #[must_use]
    pub fn keep(mut self, file: &Metadata) -> Self {
        self.kept = Some((file.dev(), file.ino()));
        self
    }

    fn host_path(&self, path: &TreePath) -> PathBuf {
        self.target.join(bytes_path(&path.to_bytes()))
    }

    fn failed(&self, path: &TreePath) -> impl FnOnce(Errno) -> Error + use<> {
        let path = self.host_path(path);
        move |errno| Error::Host { path, source: errno.into() }
    }

    fn refused<T>(&self, path: &TreePath, reason: &'static str) -> Result<T> {
        Err(Error::Host { path: self.host_path(path), source: io::Error::other(reason) })
    }

    /// The open directory at `components`.
    fn directory(&mut self, components: &[Vec<u8>]) -> Outcome<&OwnedFd> {
        let same = self.open.iter().zip(components).take_while(|((name, _), wanted)| name == *wanted).count();
        self.open.truncate(same);
        for name in &components[same..] {
            let parent = self.open.last().map_or(&self.root, |(_, directory)| directory);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = rustix::fs::openat(parent, name.as_slice(), flags, Mode::empty())?;
            self.open.push((name.clone(), directory));
        }
        Ok(self.open.last().map_or(&self.root, |(_, directory)| directory))
    }

    /// Makes a directory, unless there is one: whether it did.
    fn make_directory(&mut self, parent: &[Vec<u8>], name: &[u8], attributes: &Attributes) -> Outcome<bool> {
        let keeps_mode = self.options.preserve.mode;
        let parent = self.directory(parent)?;
        // Ours to write into until the end, and nobody else's if it is to be kept as it was.
        let mode = if keeps_mode { Mode::RWXU } else { mode(attributes) | Mode::RWXU };
        match rustix::fs::mkdirat(parent, name, mode) {
            Err(Errno::EXIST) => {
                let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
                if is_directory { Ok(false) } else { Err(Errno::NOTDIR) }
            }
            other => other.map(|()| true),
        }
    }

    /// What is in the way of an entry that is no directory.
    fn obstacle(&mut self, parent: &[Vec<u8>], name: &[u8], entry: &Entry) -> Result<Obstacle> {
        let failed = self.failed(&entry.path);
        let stat = |directory: &OwnedFd, flags| match rustix::fs::statat(directory, name, flags) {
            Err(Errno::NOENT) => Ok(None),
            other => other.map(Some),
        };
        let directory = self.directory(parent).and_then(|directory| {
            stat(directory, AtFlags::SYMLINK_NOFOLLOW).map(|found| (found, stat(directory, AtFlags::empty())))
        });
        let (named, behind) = directory.map_err(failed)?;
        let Some(named) = named else { return Ok(Obstacle::None) };
        let (options, is_spelled) = (self.options, entry.path == self.spelled);
        let is_content = matches!(entry.kind, Kind::File(_));
        let mut found = named;
        if is_content && file_type(&named) == FileType::Symlink && options.existing != Existing::Remove {
            if !is_spelled {
                return self.refused(
                    &entry.path,
                    "a symbolic link, which is not followed inside a tree; --remove-destination replaces it",
                );
            }
            let Some(behind) = behind.map_err(self.failed(&entry.path))? else {
                return self.refused(
                    &entry.path,
                    "a symbolic link to nothing, which is not written through; --remove-destination replaces it",
                );
            };
            found = behind;
        }
        let kind = file_type(&found);
        if kind == FileType::Directory {
            return self.refused(
                &entry.path,
                "a directory, and what is none does not take its place; remove it first",
            );
        }
        if self.kept == Some((found.st_dev, found.st_ino)) {
            return self.refused(&entry.path, "the disk that is being read, which the copy would destroy");
        }
        if options.skips(mtime(&found), entry.attributes.mtime) {
            return Ok(Obstacle::Skip);
        }
        if !is_content || options.removes(found.st_nlink) {
            return Ok(Obstacle::None);
        }
        let is_regular = kind == FileType::RegularFile;
        if !is_regular && !is_spelled {
            return self.refused(
                &entry.path,
                "a device, pipe or socket, which is not written into inside a tree; --remove-destination replaces it",
            );
        }
        Ok(Obstacle::File { is_regular })
    }

    fn begin_file(&mut self, parent: &[Vec<u8>], name: &[u8], entry: &Entry) -> Result<Option<Goal>> {
        let obstacle = self.obstacle(parent, name, entry)?;
        let failed = self.failed(&entry.path);
        let is_regular = match obstacle {
            Obstacle::Skip => return Ok(None),
            Obstacle::None => return self.new_file(parent, entry).map(Some).map_err(failed),
            Obstacle::File { is_regular } => is_regular,
        };
        let (path, is_spelled) = (self.host_path(&entry.path), entry.path == self.spelled);
        let directory = match self.directory(parent) {
            Ok(directory) => directory,
            Err(errno) => return Err(failed(errno)),
        };
        let mut flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOCTTY | OFlags::CLOEXEC;
        if !is_spelled {
            flags |= OFlags::NOFOLLOW | OFlags::NONBLOCK;
        }
        match rustix::fs::openat(directory, name, flags, Mode::empty()) {
            Ok(file) if is_regular => Ok(Some(Goal::Existing(file.into()))),
            Ok(file) => Ok(Some(Goal::Stream(StreamWriter::new(file.into(), path)))),
            Err(_) if self.options.force => self.new_file(parent, entry).map(Some).map_err(failed),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn new_file(&mut self, parent: &[Vec<u8>], entry: &Entry) -> Outcome<Goal> {
        let keeps_mode = self.options.preserve.mode;
        let mode = if keeps_mode { Mode::RUSR | Mode::WUSR } else { mode(&entry.attributes) };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = self.directory(parent)?;
        let (file, temporary) = with_temporary(|name| rustix::fs::openat(directory, name, flags, mode))?;
        Ok(Goal::New(File::from(file), temporary))
    }

    /// Gives the last file its size, its attributes and its name.
    fn complete(&mut self) -> Result<()> {
        let Some(Pending { goal, entry, size }) = self.pending.take() else { return Ok(()) };
        let Some((parent, name)) = entry.path.split_last() else { return Ok(()) };
        let options = self.options;
        let failed = self.failed(&entry.path);
        let finish = |file: &File| {
            rustix::fs::ftruncate(file, size)?;
            set_on_file(file, &entry.attributes, options)
        };
        match goal {
            Goal::Stream(mut stream) => stream.finish(),
            Goal::Existing(file) => finish(&file).map_err(failed),
            Goal::New(file, temporary) => {
                let finished = finish(&file);
                let renamed = self.directory(parent).and_then(|directory| {
                    let renamed = finished.and_then(|()| {
                        rustix::fs::renameat(directory, temporary.as_slice(), directory, name)
                    });
                    if renamed.is_err() {
                        let _ = rustix::fs::unlinkat(directory, temporary.as_slice(), AtFlags::empty());
                    }
                    renamed
                });
                renamed.map_err(failed)
            }
        }
    }

    /// Makes what is neither a directory nor a regular file, in place of what had the name.
    fn make_special(&mut self, parent: &[Vec<u8>], name: &[u8], entry: &Entry) -> Outcome<()> {
        let original = match &entry.kind {
            Kind::HardLink(original) => {
                let (original_parent, original_name) = original.split_last().ok_or(Errno::PERM)?;
                Some((self.directory(original_parent)?.try_clone().map_err(|_| Errno::MFILE)?, original_name))
            }
            _ => None,
        };
        let options = self.options;
        let directory = self.directory(parent)?;
        let mode = mode(&entry.attributes);
        let ((), temporary) = with_temporary(|name| {
            let node = |kind, device| rustix::fs::mknodat(directory, name, kind, mode, device);
            match &entry.kind {
                Kind::HardLink(_) => {
                    let (from, from_name) = original.as_ref().ok_or(Errno::INVAL)?;
                    rustix::fs::linkat(from, *from_name, directory, name, AtFlags::empty())
                }
                Kind::Symlink(says) => rustix::fs::symlinkat(says.as_slice(), directory, name),
                Kind::Fifo => node(FileType::Fifo, 0),
                Kind::Socket => node(FileType::Socket, 0),
                Kind::CharDevice(major, minor) => node(FileType::CharacterDevice, makedev(*major, *minor)),
                Kind::BlockDevice(major, minor) => node(FileType::BlockDevice, makedev(*major, *minor)),
                Kind::Directory | Kind::File(_) => Err(Errno::INVAL),
            }
        })?;
        let set = match &entry.kind {
            Kind::HardLink(_) => Ok(()),
            kind => {
                let is_symlink = matches!(kind, Kind::Symlink(_));
                set_on_name(directory, &temporary, is_symlink, &entry.attributes, options)
            }
        };
        let renamed =
            set.and_then(|()| rustix::fs::renameat(directory, temporary.as_slice(), directory, name));
        // Two names of one file are not renamed over each other.
        let _ = rustix::fs::unlinkat(directory, temporary.as_slice(), AtFlags::empty());
        renamed
    }

    fn complete_directory(&mut self, directory: &Directory) -> Outcome<()> {
        let Directory { path, attributes, is_new } = directory;
        let options = self.options;
        let file = self.directory(path.components())?;
        if options.preserve.times {
            return set_on_file(file, attributes, options);
        }
        if *is_new && attributes.mode & 0o700 != 0o700 {
            let made = rustix::fs::fstat(file)?.st_mode;
            let missing = 0o700 & !u32::from(attributes.mode);
            return rustix::fs::fchmod(file, Mode::from_raw_mode(made & 0o7777 & !missing));
        }
        Ok(())
    }
}

impl Sink for Extract {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.complete()?;
        self.is_skipping = false;
        let Some((parent, name)) = entry.path.split_last() else {
            if entry.kind != Kind::Directory {
                return Err(Error::UnsafeName(Vec::new()));
            }
            self.directories.push(Directory {
                path: entry.path,
                attributes: entry.attributes,
                is_new: false,
            });
            return Ok(());
        };
        let failed = self.failed(&entry.path);
        match &entry.kind {
            Kind::Directory => {
                let is_new = self.make_directory(parent, name, &entry.attributes).map_err(failed)?;
                self.directories.push(Directory { path: entry.path, attributes: entry.attributes, is_new });
            }
            Kind::File(shape) => {
                let size = shape.size;
                match self.begin_file(parent, name, &entry)? {
                    Some(mut goal) => {
                        if let Goal::Stream(stream) = &mut goal {
                            stream.entry(entry.clone())?;
                        }
                        self.pending = Some(Pending { goal, entry, size });
                    }
                    None => self.is_skipping = true,
                }
            }
            _ => {
                self.is_skipping = matches!(self.obstacle(parent, name, &entry)?, Obstacle::Skip);
                if !self.is_skipping {
                    self.make_special(parent, name, &entry).map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if self.is_skipping {
            return Ok(bytes);
        }
        let Some(pending) = &mut self.pending else {
            return Err(Error::Stream(io::Error::other("content without a file")));
        };
        match &mut pending.goal {
            Goal::Stream(stream) => return stream.content(offset, bytes),
            Goal::New(file, _) | Goal::Existing(file) => {
                let path = self.target.join(bytes_path(&pending.entry.path.to_bytes()));
                file.write_all_at(&bytes, offset).map_err(Error::host(path))?;
                // A stream does not say its size.
                pending.size = pending.size.max(offset + bytes.len() as u64);
            }
        }
        Ok(bytes)
    }

    fn is_skipping(&self) -> bool {
        self.is_skipping
    }

    fn finish(&mut self) -> Result<()> {
        self.complete()?;
        let directories = std::mem::take(&mut self.directories);
        for directory in directories.iter().rev() {
            let failed = self.failed(&directory.path);
            self.complete_directory(directory).map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for Extract {
    fn drop(&mut self) {
        // A new file that was cut short leaves nothing behind.
        if let Some(Pending { goal: Goal::New(_, temporary), entry, .. }) = self.pending.take()
            && let Some((parent, _)) = entry.path.split_last()
            && let Ok(directory) = self.directory(parent)
        {
            let _ = rustix::fs::unlinkat(directory, temporary.as_slice(), AtFlags::empty());
        }
    }
}

/// Makes something under a name that is free, and tells the name.
fn with_temporary<T>(mut make: impl FnMut(&[u8]) -> Outcome<T>) -> Outcome<(T, Vec<u8>)> {
    let mut number = 0_u32;
    loop {
        let name = format!(".extant-{number}").into_bytes();
        match make(&name) {
            Ok(made) => return Ok((made, name)),
            Err(Errno::EXIST) => number = number.wrapping_add(1),
            Err(errno) => return Err(errno),
        }
    }
}

fn file_type(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

fn mtime(found: &Stat) -> Timestamp {
    Timestamp { seconds: found.st_mtime, nanoseconds: found.st_mtime_nsec as u32 }
}

fn bytes_path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}
