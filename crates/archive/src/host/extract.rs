//! Writes a tree into a directory of the host.
//!
//! A disk may be hostile: each directory on the way is opened from its parent without following a symbolic link, so
//! no name leads out of the target. A file is written under a temporary name and renamed. Directories get their
//! final modes and times last.
//!
//! Test: `tests/extract.rs`.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use extant_ondisk::Timestamp;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, makedev};
use rustix::io::{Errno, Result as Outcome};

use crate::entry::{Attributes, Entry, Kind, TreePath};
use crate::error::{Error, Result};
use crate::flow::Sink;

/// What files on the host get of what they had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The permissions, as far as the umask allows; else they are new files of the user.
    Permissions,
    /// All of it. What only root may set is left out for other users.
    Everything,
}

/// A directory of the host as a sink.
#[derive(Debug)]
pub struct Extract {
    target: PathBuf,
    root: OwnedFd,
    keep: Keep,
    /// The directory that the last entry was in, and the way to it.
    open: Vec<(Vec<u8>, OwnedFd)>,
    pending: Option<Pending>,
    directories: Vec<(TreePath, Attributes)>,
}

/// A file whose content is coming.
#[derive(Debug)]
struct Pending {
    file: File,
    temporary: Vec<u8>,
    entry: Entry,
    size: u64,
}

impl Extract {
    /// Writes into `target`, a directory that exists.
    ///
    /// # Errors
    /// [`Error::Host`].
    pub fn new(target: impl AsRef<Path>, keep: Keep) -> Result<Self> {
        let target = target.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, target, flags, Mode::empty());
        let root = root.map_err(|errno| Error::Host { path: target.to_owned(), source: errno.into() })?;
        Ok(Self {
            target: target.to_owned(),
            root,
            keep,
            open: Vec::new(),
            pending: None,
            directories: Vec::new(),
        })
    }

    fn failed(&self, path: &TreePath) -> impl FnOnce(Errno) -> Error + use<> {
        let path = self.target.join(bytes_path(&path.to_bytes()));
        move |errno| Error::Host { path, source: errno.into() }
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

    fn make_directory(&mut self, parent: &[Vec<u8>], name: &[u8], attributes: &Attributes) -> Outcome<()> {
        let keep = self.keep;
        let parent = self.directory(parent)?;
        // Ours to write into until the end, and nobody else's if it is to be kept as it was.
        let mode = if keep == Keep::Everything { Mode::RWXU } else { mode(attributes) | Mode::RWXU };
        match rustix::fs::mkdirat(parent, name, mode) {
            Err(Errno::EXIST) => {
                let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
                if is_directory { Ok(()) } else { Err(Errno::NOTDIR) }
            }
            other => other,
        }
    }

    fn begin_file(&mut self, parent: &[Vec<u8>], entry: &Entry) -> Outcome<(File, Vec<u8>)> {
        let mode = match self.keep {
            Keep::Everything => Mode::RUSR | Mode::WUSR,
            Keep::Permissions => mode(&entry.attributes),
        };
        let directory = self.directory(parent)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut number = 0_u32;
        loop {
            let temporary = format!(".extant-{number}").into_bytes();
            match rustix::fs::openat(directory, temporary.as_slice(), flags, mode) {
                Ok(file) => return Ok((File::from(file), temporary)),
                Err(Errno::EXIST) => number = number.wrapping_add(1),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Gives the last file its size, its attributes and its name.
    fn complete(&mut self) -> Result<()> {
        let Some(Pending { file, temporary, entry, size }) = self.pending.take() else { return Ok(()) };
        let Some((parent, name)) = entry.path.split_last() else { return Ok(()) };
        let keep = self.keep;
        let failed = self.failed(&entry.path);
        let mut finish = || {
            rustix::fs::ftruncate(&file, size)?;
            if keep == Keep::Everything {
                set_attributes(&file, &entry.attributes)?;
            }
            let directory = self.directory(parent)?;
            let renamed = rustix::fs::renameat(directory, temporary.as_slice(), directory, name);
            if renamed.is_err() {
                let _ = rustix::fs::unlinkat(directory, temporary.as_slice(), AtFlags::empty());
            }
            renamed
        };
        finish().map_err(failed)
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
        let keep = self.keep;
        let directory = self.directory(parent)?;
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let mode = mode(&entry.attributes);
        let node = |kind, device| rustix::fs::mknodat(directory, name, kind, mode, device);
        match &entry.kind {
            Kind::HardLink(_) => {
                let (from, from_name) = original.as_ref().ok_or(Errno::INVAL)?;
                return rustix::fs::linkat(from, *from_name, directory, name, AtFlags::empty());
            }
            Kind::Symlink(says) => rustix::fs::symlinkat(says.as_slice(), directory, name)?,
            Kind::Fifo => node(FileType::Fifo, 0)?,
            Kind::Socket => node(FileType::Socket, 0)?,
            Kind::CharDevice(major, minor) => node(FileType::CharacterDevice, makedev(*major, *minor))?,
            Kind::BlockDevice(major, minor) => node(FileType::BlockDevice, makedev(*major, *minor))?,
            Kind::Directory | Kind::File(_) => return Ok(()),
        }
        if keep == Keep::Everything {
            let Attributes { uid, gid, .. } = entry.attributes;
            let owner = (Uid::from_raw(uid), Gid::from_raw(gid));
            allowed(rustix::fs::chownat(
                directory,
                name,
                Some(owner.0),
                Some(owner.1),
                AtFlags::SYMLINK_NOFOLLOW,
            ))?;
            if !matches!(entry.kind, Kind::Symlink(_)) {
                rustix::fs::chmodat(directory, name, mode, AtFlags::empty())?;
            }
            rustix::fs::utimensat(directory, name, &times(&entry.attributes), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn complete_directory(&mut self, path: &TreePath, attributes: &Attributes) -> Outcome<()> {
        let keep = self.keep;
        let directory = self.directory(path.components())?;
        match keep {
            Keep::Everything => set_attributes(directory, attributes),
            Keep::Permissions if attributes.mode & 0o700 != 0o700 => {
                let made = rustix::fs::fstat(directory)?.st_mode;
                let missing = 0o700 & !u32::from(attributes.mode);
                rustix::fs::fchmod(directory, Mode::from_raw_mode(made & 0o7777 & !missing))
            }
            Keep::Permissions => Ok(()),
        }
    }
}

impl Sink for Extract {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.complete()?;
        let Some((parent, name)) = entry.path.split_last() else {
            if entry.kind != Kind::Directory {
                return Err(Error::UnsafeName(Vec::new()));
            }
            self.directories.push((entry.path, entry.attributes));
            return Ok(());
        };
        let failed = self.failed(&entry.path);
        match &entry.kind {
            Kind::Directory => {
                self.make_directory(parent, name, &entry.attributes).map_err(failed)?;
                self.directories.push((entry.path, entry.attributes));
            }
            Kind::File(shape) => {
                let size = shape.size;
                let (file, temporary) = self.begin_file(parent, &entry).map_err(failed)?;
                self.pending = Some(Pending { file, temporary, entry, size });
            }
            _ => self.make_special(parent, name, &entry).map_err(failed)?,
        }
        Ok(())
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let Some(pending) = &self.pending else {
            return Err(Error::Stream(io::Error::other("content without a file")));
        };
        let path = self.target.join(bytes_path(&pending.entry.path.to_bytes()));
        pending.file.write_all_at(&bytes, offset).map_err(Error::host(path))?;
        Ok(bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.complete()?;
        let directories = std::mem::take(&mut self.directories);
        for (path, attributes) in directories.iter().rev() {
            let failed = self.failed(path);
            self.complete_directory(path, attributes).map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for Extract {
    fn drop(&mut self) {
        // A file that was cut short leaves nothing behind.
        if let Some(pending) = self.pending.take()
            && let Some((parent, _)) = pending.entry.path.split_last()
            && let Ok(directory) = self.directory(parent)
        {
            let _ = rustix::fs::unlinkat(directory, pending.temporary.as_slice(), AtFlags::empty());
        }
    }
}

fn bytes_path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

fn mode(attributes: &Attributes) -> Mode {
    Mode::from_raw_mode(u32::from(attributes.mode & 0o777))
}

fn times(attributes: &Attributes) -> Timestamps {
    let spec = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let last_modification = spec(attributes.mtime);
    Timestamps { last_access: attributes.atime.map_or(last_modification, spec), last_modification }
}

/// Whether it was done; what only root may do is left out for others.
fn allowed(outcome: Outcome<()>) -> Outcome<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::NOTSUP | Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn set_attributes(file: &impl std::os::fd::AsFd, attributes: &Attributes) -> Outcome<()> {
    let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
    let owned = allowed(rustix::fs::fchown(file, Some(uid), Some(gid)))?;
    for (name, value) in &attributes.xattrs {
        allowed(rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()))?;
    }
    // A program that runs as its owner must not come to run as somebody else.
    let kept = if owned { attributes.mode & 0o7777 } else { attributes.mode & 0o1777 };
    rustix::fs::fchmod(file, Mode::from_raw_mode(kept.into()))?;
    rustix::fs::futimens(file, &times(attributes))
}
