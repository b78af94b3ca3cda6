//! Writes a tree into a directory of the host.
//!
//! A disk may be hostile: each directory on the way is opened from its parent without following a symbolic link, so
//! no name leads out of the target. Others may change the target meanwhile: attributes are given to open files, never
//! to names. A file is written under a temporary name and renamed. A directory gets its final mode and times when it is
//! left, so entries have to come as [`crate::DiskWalk`] gives them: all that is in a directory behind it, before
//! anything else.
//!
//! Test: `tests/extract.rs`.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use extant_ondisk::Timestamp;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, makedev};
use rustix::io::{Errno, Result as Outcome};

use super::way::Way;
use crate::entry::{Attributes, Entry, Kind};
use crate::error::{Error, Result};
use crate::flow::Sink;
use crate::path::TreePath;

/// What files on the host get of what they had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The permissions, as far as the umask allows; else they are new files of the user.
    Permissions,
    /// All of it. What only root may set is left out for other users.
    Everything,
}

/// Bytes of attributes that directories on the way may keep until they are left. On a damaged disk thousands of them, each
/// in the other, may share one large value.
const HELD_BYTES_MAX: usize = 64 << 20;

/// A directory of the host as a sink.
#[derive(Debug)]
pub struct Extract {
    target: PathBuf,
    keep: Keep,
    /// The way to the directory that the last entry was in.
    way: Way,
    /// What the directories on the way get when they are left, if an entry told of them; first the target.
    held: Vec<Option<Attributes>>,
    held_bytes: usize,
    /// The way to the last file that got a further name.
    originals: Way,
    pending: Option<Pending>,
    random: RandomState,
    temporaries: u64,
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
        let root = root.and_then(|root| Ok((root.try_clone().map_err(|_| Errno::MFILE)?, root)));
        let (again, root) =
            root.map_err(|errno| Error::Host { path: target.to_owned(), source: errno.into() })?;
        Ok(Self {
            target: target.to_owned(),
            keep,
            way: Way::new(root),
            held: vec![None],
            held_bytes: 0,
            originals: Way::new(again),
            pending: None,
            random: RandomState::new(),
            temporaries: 0,
        })
    }

    fn failed(&self, path: &TreePath) -> impl FnOnce(Errno) -> Error + use<> {
        let (target, path) = (self.target.clone(), path.clone());
        move |errno| Error::Host { path: target.join(bytes_path(&path.to_bytes())), source: errno.into() }
    }

    /// Goes to the directory at `path`. Those that are left on the way are complete.
    fn go(&mut self, path: &TreePath) -> Result<()> {
        let shared = self.way.here().shared_depth(path);
        while self.way.here().depth() > shared {
            self.leave()?;
        }
        for name in path.components_from(shared) {
            self.way.enter(name).map_err(self.failed(path))?;
            self.held.push(None);
        }
        self.way.share(path);
        Ok(())
    }

    /// Completes the directory that the way leads to, and leaves it.
    fn leave(&mut self) -> Result<()> {
        let failed = self.failed(self.way.here());
        if let Some(attributes) = self.held.pop().flatten() {
            self.held_bytes -= attributes.memory_bytes();
            if let Err(errno) = complete_directory(self.keep, self.way.directory(), &attributes) {
                return Err(failed(errno));
            }
        }
        self.way.leave().map_err(failed)
    }

    /// Keeps what the directory that the way leads to is to get.
    fn hold(&mut self, mut attributes: Attributes) -> Result<()> {
        if self.keep == Keep::Permissions {
            attributes.xattrs = Vec::new();
        }
        self.held_bytes += attributes.memory_bytes();
        if self.held_bytes > HELD_BYTES_MAX {
            let what = "directories in each other with more than 64 MiB of attributes";
            return Err(Error::Limit { path: self.way.here().clone(), what });
        }
        if let Some(before) = self.held.last_mut().and_then(|held| held.replace(attributes)) {
            self.held_bytes -= before.memory_bytes();
        }
        Ok(())
    }

    fn make_directory(&mut self, name: &[u8], attributes: &Attributes) -> Outcome<()> {
        // Ours to write into until the end, and nobody else's if it is to be kept as it was.
        let mode = if self.keep == Keep::Everything { Mode::RWXU } else { mode(attributes) | Mode::RWXU };
        match rustix::fs::mkdirat(self.way.directory(), name, mode) {
            // What is no directory is not entered.
            Ok(()) | Err(Errno::EXIST) => self.way.enter(name).map(drop),
            Err(errno) => Err(errno),
        }
    }

    fn begin_file(&mut self, entry: &Entry) -> Outcome<(File, Vec<u8>)> {
        let mode = match self.keep {
            Keep::Everything => Mode::RUSR | Mode::WUSR,
            Keep::Permissions => mode(&entry.attributes),
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            // At random, so that names which a crash or somebody else left behind are not tried one by one.
            let mut hasher = self.random.build_hasher();
            hasher.write_u64(self.temporaries);
            self.temporaries += 1;
            let temporary = format!(".extant-{:016x}", hasher.finish()).into_bytes();
            match rustix::fs::openat(self.way.directory(), temporary.as_slice(), flags, mode) {
                Ok(file) => return Ok((File::from(file), temporary)),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Gives the last file its size, its attributes and its name.
    fn complete(&mut self) -> Result<()> {
        let Some(Pending { file, temporary, entry, size }) = self.pending.take() else { return Ok(()) };
        let Some((parent, name)) = entry.path.split_last() else { return Ok(()) };
        self.go(parent)?;
        let finish = || {
            rustix::fs::ftruncate(&file, size)?;
            if self.keep == Keep::Everything {
                set_attributes(&file, &entry.attributes)?;
            }
            let directory = self.way.directory();
            let renamed = rustix::fs::renameat(directory, temporary.as_slice(), directory, name);
            if renamed.is_err() {
                let _ = rustix::fs::unlinkat(directory, temporary.as_slice(), AtFlags::empty());
            }
            renamed
        };
        finish().map_err(self.failed(&entry.path))
    }

    /// Makes what is neither a directory nor a regular file, in place of what had the name.
    fn make_special(&mut self, name: &[u8], entry: &Entry) -> Outcome<()> {
        let directory = self.way.directory();
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let node = |kind, device| {
            rustix::fs::mknodat(directory, name, kind, mode(&entry.attributes), device)
                .map(|()| (kind, device))
        };
        let made = match &entry.kind {
            Kind::HardLink(original) => {
                let (parent, original_name) = original.split_last().ok_or(Errno::PERM)?;
                let from = self.originals.go(parent)?;
                return rustix::fs::linkat(from, original_name, directory, name, AtFlags::empty());
            }
            Kind::Symlink(says) => {
                rustix::fs::symlinkat(says.as_slice(), directory, name).map(|()| (FileType::Symlink, 0))
            }
            Kind::Fifo => node(FileType::Fifo, 0),
            Kind::Socket => node(FileType::Socket, 0),
            Kind::CharDevice(major, minor) => node(FileType::CharacterDevice, makedev(*major, *minor)),
            Kind::BlockDevice(major, minor) => node(FileType::BlockDevice, makedev(*major, *minor)),
            Kind::Directory | Kind::File(_) => return Ok(()),
        };
        let (kind, device) = made?;
        if self.keep == Keep::Everything {
            set_special_attributes(directory, name, (kind, device), &entry.attributes)?;
        }
        Ok(())
    }
}

impl Sink for Extract {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.complete()?;
        let Some((parent, name)) = entry.path.split_last() else {
            if entry.kind != Kind::Directory {
                return Err(Error::UnsafeName(Vec::new()));
            }
            self.go(&entry.path)?;
            return self.hold(entry.attributes);
        };
        self.go(parent)?;
        let failed = self.failed(&entry.path);
        match &entry.kind {
            Kind::Directory => {
                self.make_directory(name, &entry.attributes).map_err(failed)?;
                self.way.share(&entry.path);
                self.held.push(None);
                self.hold(entry.attributes)?;
            }
            Kind::File(shape) => {
                let size = shape.size;
                let (file, temporary) = self.begin_file(&entry).map_err(failed)?;
                self.pending = Some(Pending { file, temporary, entry, size });
            }
            _ => self.make_special(name, &entry).map_err(failed)?,
        }
        Ok(())
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let Some(pending) = &self.pending else {
            return Err(Error::Stream(io::Error::other("content without a file")));
        };
        let path = || self.target.join(bytes_path(&pending.entry.path.to_bytes()));
        pending.file.write_all_at(&bytes, offset).map_err(|source| Error::Host { path: path(), source })?;
        Ok(bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.complete()?;
        self.go(&TreePath::root())?;
        match self.held.first_mut().and_then(Option::take) {
            Some(attributes) => complete_directory(self.keep, self.way.directory(), &attributes)
                .map_err(self.failed(&TreePath::root())),
            None => Ok(()),
        }
    }
}

impl Drop for Extract {
    fn drop(&mut self) {
        // A file that was cut short leaves nothing behind.
        if let Some(pending) = self.pending.take()
            && let Some((parent, _)) = pending.entry.path.split_last()
            && self.way.here() == parent
        {
            let _ =
                rustix::fs::unlinkat(self.way.directory(), pending.temporary.as_slice(), AtFlags::empty());
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

/// Gives a directory that is complete what it is to have.
fn complete_directory(keep: Keep, directory: &OwnedFd, attributes: &Attributes) -> Outcome<()> {
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

/// Gives what was made as `made` under `name` its owner, mode and times, if it is that: somebody else may have put
/// another file in its place.
fn set_special_attributes(
    directory: &OwnedFd,
    name: &[u8],
    made: (FileType, u64),
    attributes: &Attributes,
) -> Outcome<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    let is_new = (FileType::from_raw_mode(found.st_mode), found.st_rdev) == made
        && found.st_nlink == 1
        && found.st_uid == rustix::process::geteuid().as_raw();
    if !is_new {
        return Err(Errno::STALE);
    }
    let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
    allowed(rustix::fs::chownat(&file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH))?;
    if made.0 != FileType::Symlink {
        // A descriptor without access takes no mode but by its own name.
        let own_name = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::chmodat(CWD, own_name, mode(attributes), AtFlags::empty())?;
    }
    rustix::fs::utimensat(&file, "", &times(attributes), AtFlags::EMPTY_PATH)
}

fn set_attributes(file: &impl AsFd, attributes: &Attributes) -> Outcome<()> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn what_took_the_place_of_a_special_file_keeps_its_attributes() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "secret").unwrap();
        rustix::fs::chmod(&victim, Mode::RUSR).unwrap();
        let open = rustix::fs::open(dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let attributes = Attributes { mode: 0o666, uid: 7, ..Attributes::default() };
        symlink(&victim, dir.path().join("link")).unwrap();
        std::fs::hard_link(&victim, dir.path().join("hard")).unwrap();
        for name in [&b"link"[..], b"hard"] {
            let made = (FileType::Fifo, 0);
            assert_eq!(set_special_attributes(&open, name, made, &attributes), Err(Errno::STALE));
        }
        let found = victim.metadata().unwrap();
        assert_eq!((found.mode() & 0o777, found.uid() == 7), (0o400, false));
    }
}
