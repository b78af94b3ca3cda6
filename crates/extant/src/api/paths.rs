//! Files by path: the operations of a [`Filesystem`] in the manner of `std::fs`.
//!
//! Their errors say the path that the caller gave ([`Error::Path`]).
//!
//! Tests: `tests/std_like`.

use std::path::{Path, PathBuf};

use extant_ondisk::{InodeNumber, Structure};

use super::dir::Dir;
use super::file::File;
use super::filesystem::Filesystem;
use super::options::OpenOptions;
use super::read_dir::ReadDir;
use super::walk::Walk;
use crate::error::{Error, Location, Result};
use crate::file::seek::SeekTo;
use crate::incore::inode_cache::InodeRef;
use crate::inode::attributes::{Metadata, SetAttributes, Times};
use crate::namespace::{AccessMask, NewKind, RenameFlags};

impl Filesystem {
    /// The root directory.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn root(&self) -> Result<Dir> {
        let inode = self.volume().inode(InodeNumber::ROOT).map_err(|error| match error {
            Error::Stale => Location::of(Structure::Inode)
                .inode(InodeNumber::ROOT)
                .corrupt("the root directory is free or no directory; e2fsck makes another"),
            other => other,
        });
        Dir::new(self, self.finish_operation(inode)?)
    }

    /// The inode of that number, if it has a name; for callers that remember numbers.
    ///
    /// # Errors
    /// `Stale` if it is free or has no name, `Corrupt`, `Io`.
    pub fn inode(&self, number: InodeNumber) -> Result<File> {
        let inode = self.finish_operation(self.volume().inode(number))?;
        if inode.raw().links_count() == 0 {
            return Err(Error::Stale);
        }
        Ok(File::new(self.clone(), inode))
    }

    /// The inode of a number that a client claims to remember, perhaps from an earlier mount, as a file handle does. Any number
    /// is safe; [`File::generation`] says whether it is still the same inode.
    ///
    /// # Errors
    /// `Stale` if there is no such number, or if it is free, without a name or the file system's own; `Corrupt`, `Io`.
    pub fn open_by_handle(&self, number: InodeNumber) -> Result<File> {
        let inode = self.finish_operation(self.volume().open_by_handle(number))?;
        Ok(File::new(self.clone(), inode))
    }

    /// The file or directory at `path`, following symbolic links.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied`, `Loop`, `Corrupt`, `Io`.
    pub fn lookup(&self, path: impl AsRef<Path>) -> Result<File> {
        Ok(File::new(self.clone(), self.find(path.as_ref(), true)?))
    }

    /// As [`Filesystem::lookup`], but a symbolic link at the end is not followed.
    ///
    /// # Errors
    /// As [`Filesystem::lookup`].
    pub fn symlink_lookup(&self, path: impl AsRef<Path>) -> Result<File> {
        Ok(File::new(self.clone(), self.find(path.as_ref(), false)?))
    }

    /// The directory at `path`.
    ///
    /// # Errors
    /// `NotADirectory`; as [`Filesystem::lookup`].
    pub fn dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        let path = path.as_ref();
        Dir::new(self, self.find(path, true)?).map_err(at(path))
    }

    /// The inode at `path`; an error says the path.
    fn find(&self, path: &Path, follow: bool) -> Result<InodeRef> {
        self.finish_operation(self.resolve(path, follow)).map_err(at(path))
    }

    /// The directory that holds the last component of `path`, and that component; an error says the path.
    fn find_parent<'p>(&self, path: &'p Path) -> Result<(InodeRef, &'p [u8])> {
        self.finish_operation(self.resolve_parent(path)).map_err(at(path))
    }

    /// How to open a file.
    #[must_use]
    pub fn options(&self) -> OpenOptions {
        OpenOptions::new(self.clone())
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.options().read(true).open(path)
    }

    /// Opens a file for writing: makes it, or cuts it to nothing.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        self.options().write(true).create(true).truncate(true).open(path)
    }

    /// Makes a file and opens it for reading and writing.
    ///
    /// # Errors
    /// `Exists`; as [`OpenOptions::open`].
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File> {
        self.options().read(true).write(true).create_new(true).open(path)
    }

    fn open_with(&self, options: &OpenOptions, path: &Path) -> Result<File> {
        let made = options.create || options.create_new;
        let inode = match self.finish_operation(self.resolve(path, true)) {
            Ok(_) if options.create_new => return Err(Error::Exists),
            Ok(inode) => inode,
            Err(Error::NotFound) if made => {
                let (parent, name) = self.finish_operation(self.resolve_parent(path))?;
                let new = self.new_inode(NewKind::File, options.mode);
                match self.create_in(&parent, name, &new) {
                    // Someone else was quicker.
                    Err(Error::Exists) if !options.create_new => {
                        self.finish_operation(self.resolve(path, true))?
                    }
                    other => return Ok(File::opened(self.clone(), other?, options)),
                }
            }
            Err(error) => return Err(error),
        };
        if options.write || options.append || options.truncate {
            if inode.is_directory() {
                return Err(Error::IsADirectory);
            }
            self.check_access(&inode, AccessMask::WRITE)?;
        }
        if options.read {
            self.check_access(&inode, AccessMask::READ)?;
        }
        if options.truncate {
            let cut = self.volume().set_size(&inode, 0).and_then(|()| self.volume().sync_if_marked(&inode));
            self.finish_operation(cut)?;
        }
        Ok(File::opened(self.clone(), inode, options))
    }

    /// The whole content of a file.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; `Io`, `Corrupt`.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        self.open(path)?.read_to_end_at(0).map_err(at(path))
    }

    /// The whole content of a file of text.
    ///
    /// # Errors
    /// `NotUtf8`; as [`Filesystem::read`].
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|_| Error::NotUtf8.at(path))
    }

    /// Makes a file of this content, in place of what it held.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; `NoSpace`, with part of it written.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        self.create(path)?.write_all_at(content.as_ref(), 0).map_err(at(path))
    }

    /// Copies the content and the permission bits of a file to another, in place of what that one held; gives its size. Holes stay holes.
    ///
    /// # Errors
    /// `InvalidArgument` if both are one file, or if the first is not a regular one; as [`Filesystem::read`] and [`Filesystem::write`].
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.open(from)?;
        let found = source.metadata();
        if !found.is_file() {
            return Err(Error::InvalidArgument("not a regular file").at(from));
        }
        // Cut after it is known to be another file.
        let target = self.options().write(true).create(true).mode(found.mode).open(to)?;
        if target.number() == source.number() {
            return Err(Error::InvalidArgument("the copy of a file is another file").at(to));
        }
        let copy = || {
            target.set_len(0)?;
            let size = copy_content(&source, &target)?;
            target.set_attributes(&SetAttributes { mode: Some(found.mode), ..SetAttributes::default() })?;
            Ok(size)
        };
        copy().map_err(at(to))
    }

    /// Whether there is something at `path`, following symbolic links.
    ///
    /// # Errors
    /// As [`Filesystem::lookup`], but for `NotFound`.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        match self.finish_operation(self.resolve(path, true)) {
            Ok(_) => Ok(true),
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error.at(path)),
        }
    }

    /// The path of what is at `path`, from the root, through no symbolic link, `.` or `..`.
    ///
    /// # Errors
    /// As [`Filesystem::lookup`].
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.finish_operation(self.resolve_names(path)).map_err(at(path))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (the parent), `NoSpace`, `NoInodes`, `TooManyLinks`, `PermissionDenied`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (parent, name) = self.find_parent(path)?;
        self.create_in(&parent, name, &self.new_inode(NewKind::Directory, 0o755)).map(drop).map_err(at(path))
    }

    /// Makes a directory and those above it that are missing.
    ///
    /// # Errors
    /// As [`Filesystem::create_dir`]; `NotADirectory`.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match self.resolve(path, true) {
            Ok(inode) if inode.is_directory() => return Ok(()),
            Ok(_) => return Err(Error::NotADirectory.at(path)),
            Err(Error::NotFound) => {}
            Err(error) => return self.finish_operation(Err(error)).map_err(at(path)),
        }
        if let Some(parent) = path.parent() {
            self.create_dir_all(parent)?;
        }
        match self.create_dir(path) {
            Err(error) if matches!(error.cause(), Error::Exists) => Ok(()),
            other => other,
        }
    }

    /// Removes a name of a file; the file is deleted when its last name and its last use are gone.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `PermissionDenied`, `NotPermitted`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (parent, name) = self.find_parent(path)?;
        self.unlink_in(&parent, name, false).map_err(at(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NotEmpty`, `PermissionDenied`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (parent, name) = self.find_parent(path)?;
        self.unlink_in(&parent, name, true).map_err(at(path))
    }

    /// Removes a directory and all below it. Symbolic links are removed, not followed.
    ///
    /// # Errors
    /// As the removals; what was removed before stays removed. `Corrupt` as [`Dir::remove_all`], and if the directory's own
    /// `..` is not the one it is in.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (parent, name) = self.find_parent(path)?;
        let remove = || {
            let parent = Dir::new(self, parent)?;
            let dir = parent.dir(name)?;
            dir.check_above(&parent)?;
            dir.remove_all()?;
            parent.rmdir(name)
        };
        remove().map_err(at(path))
    }

    /// Gives a file another name, in place of what had it.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `IsADirectory`, `NotADirectory`, `InvalidArgument` (a directory below itself),
    /// `NoSpace`, `PermissionDenied`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let from = from.as_ref();
        let (from_dir, from_name) = self.find_parent(from)?;
        let (to_dir, to_name) = self.find_parent(to.as_ref())?;
        self.rename_in(&from_dir, from_name, &to_dir, to_name, RenameFlags::default()).map_err(at(from))
    }

    /// Gives a file a further name.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `TooManyLinks`, `NotPermitted` (a directory), `NoSpace`, `PermissionDenied`.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let link = link.as_ref();
        let inode = self.find(original.as_ref(), false)?;
        let (parent, name) = self.find_parent(link)?;
        self.check_access(&parent, AccessMask::WRITE | AccessMask::EXECUTE).map_err(at(link))?;
        self.retry_on_no_space(|volume| volume.link(&inode, &parent, name)).map_err(at(link))
    }

    /// Makes a symbolic link that says `target`.
    ///
    /// # Errors
    /// As [`Filesystem::create_dir`]; `NameTooLong`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let link = link.as_ref();
        let (parent, name) = self.find_parent(link)?;
        let kind = NewKind::Symlink(target.as_ref().as_os_str().as_encoded_bytes());
        self.create_in(&parent, name, &self.new_inode(kind, 0o777)).map(drop).map_err(at(link))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `InvalidArgument` if it is none; as [`Filesystem::lookup`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        self.symlink_lookup(path)?.read_link().map_err(at(path))
    }

    /// What `stat` reports, following symbolic links.
    ///
    /// # Errors
    /// As [`Filesystem::lookup`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        self.finish_operation(self.attributes_at(path, true)).map_err(at(path))
    }

    /// What `lstat` reports.
    ///
    /// # Errors
    /// As [`Filesystem::lookup`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        self.finish_operation(self.attributes_at(path, false)).map_err(at(path))
    }

    /// The entries of a directory, without `.` and `..`, which are read piece by piece.
    ///
    /// # Errors
    /// `NotADirectory`; as [`Filesystem::lookup`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        Ok(ReadDir::new(self.dir(path)?, path.to_owned()))
    }

    /// All entries below a directory, a directory before what is in it. Symbolic links are not followed.
    ///
    /// # Errors
    /// As [`Filesystem::read_dir`].
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        Ok(Walk::new(self.read_dir(path)?))
    }

    /// Sets the permission bits, following symbolic links.
    ///
    /// # Errors
    /// As [`File::set_attributes`].
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        let path = path.as_ref();
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.lookup(path)?.set_attributes(&set).map_err(at(path))
    }

    /// Sets the owner, following symbolic links; a program loses its set-id bits, as with `chown`.
    ///
    /// # Errors
    /// As [`File::set_attributes`].
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: u32, gid: u32) -> Result<()> {
        let path = path.as_ref();
        let set =
            SetAttributes { uid: Some(uid), gid: Some(gid), clear_set_id: true, ..SetAttributes::default() };
        self.lookup(path)?.set_attributes(&set).map_err(at(path))
    }

    /// Sets the times, following symbolic links.
    ///
    /// # Errors
    /// As [`File::set_attributes`].
    pub fn set_times(&self, path: impl AsRef<Path>, times: Times) -> Result<()> {
        let path = path.as_ref();
        self.lookup(path)?.set_times(times).map_err(at(path))
    }
}

/// Adds the path that the caller gave to an error.
fn at(path: &Path) -> impl Fn(Error) -> Error {
    move |error| error.at(path)
}

/// Copies what is data of a file to an empty one, and its size.
fn copy_content(source: &File, target: &File) -> Result<u64> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    loop {
        at = match source.seek_to(SeekTo::Data, at) {
            Ok(data) => data,
            Err(Error::NoSuchOffset) => break,
            Err(error) => return Err(error),
        };
        let end = source.seek_to(SeekTo::Hole, at)?;
        let wanted = PIECE_BYTES.min((end - at) as usize);
        let read = source.read_at(&mut piece[..wanted], at)?;
        if read == 0 {
            break;
        }
        target.write_all_at(&piece[..read], at)?;
        at += read as u64;
    }
    let size = source.metadata().size.max(at);
    target.set_len(size)?;
    Ok(size)
}

impl OpenOptions {
    /// Opens the file at `path`, following symbolic links.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `IsADirectory`, `PermissionDenied`, those of the walk, and what creating and
    /// truncating give.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        self.fs.open_with(self, path).map_err(at(path))
    }
}
