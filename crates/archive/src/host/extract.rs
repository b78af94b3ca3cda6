//! Writes a tree into a directory of the host.
//!
//! A disk may be hostile: each directory on the way is opened from its parent without following a symbolic link, so no
//! name leads out of the target. A new file is written under a temporary name and renamed. An existing regular file is
//! written in place, as `cp` writes it, so that its owner, its mode and its links stay. Symbolic links are followed, and
//! devices and pipes written into, only at the path that the user spelled: inside a tree the names are the disk's choice,
//! and an earlier copy of the same disk may have made the link. Other processes may change the target meanwhile:
//! attributes are given to open files, never to names. A directory gets its final mode and times when it is left, so
//! entries have to come in the order of [`crate::DiskWalk`]: a directory, then all its entries, then anything else.
//!
//! Test: `tests/extract.rs`.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use extant_block::Identity;
use extant_ondisk::Timestamp;
use extant_ondisk::mode::{S_IALLUGO, S_IRWXU};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, makedev};
use rustix::io::{Errno, Result as Outcome};

use super::attributes::{mode, set_on_file, set_on_name};
use super::open_path::OpenPath;
use super::stream::StreamWriter;
use crate::copy::{CopyOptions, Existing};
use crate::entry::{Attributes, Entry, EntryKind};
use crate::error::{Error, Result};
use crate::flow::Sink;
use crate::path::TreePath;

/// Bytes of attributes that directories on the way may keep until they are left. On a damaged disk thousands of them, each
/// in the other, may share one large value.
const HELD_BYTES_MAX: usize = 64 << 20;

/// A directory of the host as a sink.
#[derive(Debug)]
pub struct Extract {
    target: PathBuf,
    options: CopyOptions,
    /// The path that the user spelled.
    spelled: TreePath,
    /// A file that is not written to.
    kept: Option<Identity>,
    /// The open path to the directory that the last entry was in.
    open_path: OpenPath,
    /// The attributes that the directories on the way get when they are left, if an entry listed them; first the target.
    held: Vec<Option<Held>>,
    held_bytes: usize,
    /// The open path to the last file that got a further name.
    originals: OpenPath,
    temporaries: Temporaries,
    pending: Option<Pending>,
    /// The last entry was passed over, and so is its content.
    is_skipping: bool,
}

#[derive(Debug)]
struct Held {
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

/// The existing object in the place of an entry that is no directory.
enum Obstacle {
    /// Nothing is in the way, or an object that is to be removed.
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
        let root = root.and_then(|root| Ok((root.try_clone().map_err(|_| Errno::MFILE)?, root)));
        let (again, root) =
            root.map_err(|errno| Error::Host { path: target.to_owned(), source: errno.into() })?;
        Ok(Self {
            target: target.to_owned(),
            options,
            spelled: TreePath::root(),
            kept: None,
            open_path: OpenPath::new(root),
            held: vec![None],
            held_bytes: 0,
            originals: OpenPath::new(again),
            temporaries: Temporaries::default(),
            pending: None,
            is_skipping: false,
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
    pub fn keep(mut self, file: Identity) -> Self {
        self.kept = Some(file);
        self
    }

    fn host_path(&self, path: &TreePath) -> PathBuf {
        self.target.join(bytes_path(&path.to_bytes()))
    }

    fn failed(&self, path: &TreePath) -> impl FnOnce(Errno) -> Error + use<> {
        let (target, path) = (self.target.clone(), path.clone());
        move |errno| Error::Host { path: target.join(bytes_path(&path.to_bytes())), source: errno.into() }
    }

    fn refused<T>(&self, path: &TreePath, reason: &'static str) -> Result<T> {
        Err(Error::Host { path: self.host_path(path), source: io::Error::other(reason) })
    }

    /// Goes to the directory at `path`. Those that are left on the way are complete.
    fn go(&mut self, path: &TreePath) -> Result<()> {
        let shared = self.open_path.here().shared_depth(path);
        while self.open_path.here().depth() > shared {
            self.leave()?;
        }
        for name in path.components_from(shared) {
            self.open_path.enter(name).map_err(self.failed(path))?;
            self.held.push(None);
        }
        self.open_path.share(path);
        Ok(())
    }

    /// Completes the directory that the open path leads to, and leaves it.
    fn leave(&mut self) -> Result<()> {
        let failed = self.failed(self.open_path.here());
        if let Some(held) = self.held.pop().flatten() {
            self.held_bytes -= held.attributes.memory_bytes();
            if let Err(errno) = complete_directory(self.options, self.open_path.directory(), &held) {
                return Err(failed(errno));
            }
        }
        self.open_path.leave().map_err(failed)
    }

    /// Keeps what the directory that the open path leads to is to get.
    fn hold(&mut self, mut attributes: Attributes, is_new: bool) -> Result<()> {
        if !self.options.preserve.times {
            attributes.xattrs = Vec::new();
        }
        self.held_bytes += attributes.memory_bytes();
        if self.held_bytes > HELD_BYTES_MAX {
            let what = "directories in each other with more than 64 MiB of attributes";
            return Err(Error::Limit { path: self.open_path.here().clone(), what });
        }
        let held = Held { attributes, is_new };
        if let Some(before) = self.held.last_mut().and_then(|last| last.replace(held)) {
            self.held_bytes -= before.attributes.memory_bytes();
        }
        Ok(())
    }

    /// Makes a directory, unless there is one, and goes into it: whether it did.
    fn make_directory(&mut self, name: &[u8], attributes: &Attributes) -> Outcome<bool> {
        // Writable by its owner until the end, and closed to others until then if its mode is to be preserved.
        let mode = if self.options.preserve.mode { Mode::RWXU } else { mode(attributes) | Mode::RWXU };
        let is_new = match rustix::fs::mkdirat(self.open_path.directory(), name, mode) {
            // An existing object that is no directory is not entered.
            Err(Errno::EXIST) => false,
            other => other.map(|()| true)?,
        };
        self.open_path.enter(name)?;
        self.held.push(None);
        Ok(is_new)
    }

    /// The existing object in the place of an entry that is no directory.
    fn obstacle(&self, name: &[u8], entry: &Entry) -> Result<Obstacle> {
        let failed = self.failed(&entry.path);
        let stat = |directory: &OwnedFd, flags| match rustix::fs::statat(directory, name, flags) {
            Err(Errno::NOENT) => Ok(None),
            other => other.map(Some),
        };
        let directory = self.open_path.directory();
        let named = stat(directory, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let behind = stat(directory, AtFlags::empty());
        let Some(named) = named else { return Ok(Obstacle::None) };
        let (options, is_spelled) = (self.options, entry.path == self.spelled);
        let is_content = matches!(entry.kind, EntryKind::File(_));
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

    fn begin_file(&mut self, name: &[u8], entry: &Entry) -> Result<Option<Goal>> {
        let obstacle = self.obstacle(name, entry)?;
        let failed = self.failed(&entry.path);
        let is_regular = match obstacle {
            Obstacle::Skip => return Ok(None),
            Obstacle::None => return self.new_file(entry).map(Some).map_err(failed),
            Obstacle::File { is_regular } => is_regular,
        };
        let (path, is_spelled) = (self.host_path(&entry.path), entry.path == self.spelled);
        let mut flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOCTTY | OFlags::CLOEXEC;
        if !is_spelled {
            flags |= OFlags::NOFOLLOW | OFlags::NONBLOCK;
        }
        match rustix::fs::openat(self.open_path.directory(), name, flags, Mode::empty()) {
            Ok(file) if is_regular => Ok(Some(Goal::Existing(file.into()))),
            Ok(file) => Ok(Some(Goal::Stream(StreamWriter::new(file.into(), path)))),
            Err(_) if self.options.force => self.new_file(entry).map(Some).map_err(failed),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn new_file(&mut self, entry: &Entry) -> Outcome<Goal> {
        let keeps_mode = self.options.preserve.mode;
        let mode = if keeps_mode { Mode::RUSR | Mode::WUSR } else { mode(&entry.attributes) };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = self.open_path.directory();
        let (file, temporary) =
            self.temporaries.with(|name| rustix::fs::openat(directory, name, flags, mode))?;
        Ok(Goal::New(File::from(file), temporary))
    }

    /// Gives the last file its size, its attributes and its name.
    fn complete(&mut self) -> Result<()> {
        let Some(Pending { goal, entry, size }) = self.pending.take() else { return Ok(()) };
        let Some((parent, name)) = entry.path.split_last() else { return Ok(()) };
        self.go(parent)?;
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
                let directory = self.open_path.directory();
                let renamed = finished
                    .and_then(|()| rustix::fs::renameat(directory, temporary.as_slice(), directory, name));
                if renamed.is_err() {
                    let _ = rustix::fs::unlinkat(directory, temporary.as_slice(), AtFlags::empty());
                }
                renamed.map_err(failed)
            }
        }
    }

    /// Makes what is neither a directory nor a regular file, in place of what had the name.
    fn make_special(&mut self, name: &[u8], entry: &Entry) -> Outcome<()> {
        let original = match &entry.kind {
            EntryKind::HardLink(original) => {
                let (parent, original_name) = original.split_last().ok_or(Errno::PERM)?;
                Some((self.originals.go(parent)?, original_name))
            }
            _ => None,
        };
        let options = self.options;
        let directory = self.open_path.directory();
        let mode = mode(&entry.attributes);
        let made = match &entry.kind {
            EntryKind::Fifo => (FileType::Fifo, 0),
            EntryKind::Socket => (FileType::Socket, 0),
            EntryKind::CharDevice(major, minor) => (FileType::CharacterDevice, makedev(*major, *minor)),
            EntryKind::BlockDevice(major, minor) => (FileType::BlockDevice, makedev(*major, *minor)),
            _ => (FileType::Symlink, 0),
        };
        let ((), temporary) = self.temporaries.with(|name| match &entry.kind {
            EntryKind::HardLink(_) => {
                let (from, from_name) = original.as_ref().ok_or(Errno::INVAL)?;
                rustix::fs::linkat(from, *from_name, directory, name, AtFlags::empty())
            }
            EntryKind::Symlink(says) => rustix::fs::symlinkat(says.as_slice(), directory, name),
            EntryKind::Directory | EntryKind::File(_) => Err(Errno::INVAL),
            _ => rustix::fs::mknodat(directory, name, made.0, mode, made.1),
        })?;
        let set = match &entry.kind {
            EntryKind::HardLink(_) => Ok(()),
            _ => set_on_name(directory, &temporary, made, &entry.attributes, options),
        };
        let renamed =
            set.and_then(|()| rustix::fs::renameat(directory, temporary.as_slice(), directory, name));
        // Two names of one file are not renamed over each other.
        let _ = rustix::fs::unlinkat(directory, temporary.as_slice(), AtFlags::empty());
        renamed
    }
}

impl Sink for Extract {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.complete()?;
        self.is_skipping = false;
        let Some((parent, name)) = entry.path.split_last() else {
            if entry.kind != EntryKind::Directory {
                return Err(Error::UnsafeName(Vec::new()));
            }
            self.go(&entry.path)?;
            return self.hold(entry.attributes, false);
        };
        self.go(parent)?;
        let failed = self.failed(&entry.path);
        match &entry.kind {
            EntryKind::Directory => {
                let is_new = self.make_directory(name, &entry.attributes).map_err(failed)?;
                self.open_path.share(&entry.path);
                self.hold(entry.attributes, is_new)?;
            }
            EntryKind::File(shape) => {
                let size = shape.size;
                match self.begin_file(name, &entry)? {
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
                self.is_skipping = matches!(self.obstacle(name, &entry)?, Obstacle::Skip);
                if !self.is_skipping {
                    self.make_special(name, &entry).map_err(failed)?;
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
                let path = || self.target.join(bytes_path(&pending.entry.path.to_bytes()));
                file.write_all_at(&bytes, offset).map_err(|source| Error::Host { path: path(), source })?;
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
        self.go(&TreePath::root())?;
        match self.held.first_mut().and_then(Option::take) {
            Some(held) => complete_directory(self.options, self.open_path.directory(), &held)
                .map_err(self.failed(&TreePath::root())),
            None => Ok(()),
        }
    }
}

impl Drop for Extract {
    fn drop(&mut self) {
        // A new file that was cut short leaves nothing behind.
        if let Some(Pending { goal: Goal::New(_, temporary), entry, .. }) = self.pending.take()
            && let Some((parent, _)) = entry.path.split_last()
            && self.open_path.here() == parent
        {
            let _ = rustix::fs::unlinkat(self.open_path.directory(), temporary.as_slice(), AtFlags::empty());
        }
    }
}

/// Names that are free, at random, so that those that a crash or another process left behind are not tried one by one.
#[derive(Debug, Default)]
struct Temporaries {
    random: RandomState,
    count: u64,
}

impl Temporaries {
    /// Creates a file under such a name, and returns the name.
    fn with<T>(&mut self, mut make: impl FnMut(&[u8]) -> Outcome<T>) -> Outcome<(T, Vec<u8>)> {
        loop {
            let mut hasher = self.random.build_hasher();
            hasher.write_u64(self.count);
            self.count += 1;
            let name = format!(".extant-{:016x}", hasher.finish()).into_bytes();
            match make(&name) {
                Ok(made) => return Ok((made, name)),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Gives a directory that is complete what it is to have.
fn complete_directory(options: CopyOptions, directory: &OwnedFd, held: &Held) -> Outcome<()> {
    if options.preserve.times {
        return set_on_file(directory, &held.attributes, options);
    }
    if held.is_new && held.attributes.mode & S_IRWXU != S_IRWXU {
        let made = rustix::fs::fstat(directory)?.st_mode;
        let missing = u32::from(S_IRWXU & !held.attributes.mode);
        return rustix::fs::fchmod(directory, Mode::from_raw_mode(made & u32::from(S_IALLUGO) & !missing));
    }
    Ok(())
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
