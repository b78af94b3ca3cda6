//! Files by path: the operations of a [`Filesystem`] in the manner of `std::fs`.

use std::path::Path;

use extant_ondisk::{InodeNumber, Structure};

use super::dir::{Dir, DirEntry};
use super::file::File;
use super::filesystem::Filesystem;
use super::options::OpenOptions;
use crate::error::{Error, Location, Result};
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
        let inode = self.finish_operation(self.walk(path.as_ref(), true))?;
        Ok(File::new(self.clone(), inode))
    }

    /// As [`Filesystem::lookup`], but a symbolic link at the end is not followed.
    ///
    /// # Errors
    /// As [`Filesystem::lookup`].
    pub fn symlink_lookup(&self, path: impl AsRef<Path>) -> Result<File> {
        let inode = self.finish_operation(self.walk(path.as_ref(), false))?;
        Ok(File::new(self.clone(), inode))
    }

    /// The directory at `path`.
    ///
    /// # Errors
    /// `NotADirectory`; as [`Filesystem::lookup`].
    pub fn dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        let inode = self.finish_operation(self.walk(path.as_ref(), true))?;
        Dir::new(self, inode)
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

    pub(super) fn open_with(&self, options: &OpenOptions, path: &Path) -> Result<File> {
        let made = options.create || options.create_new;
        let inode = match self.finish_operation(self.walk(path, true)) {
            Ok(_) if options.create_new => return Err(Error::Exists),
            Ok(inode) => inode,
            Err(Error::NotFound) if made => {
                let (parent, name) = self.finish_operation(self.walk_parent(path))?;
                let new = self.new_inode(NewKind::File, options.mode);
                match self.create_in(&parent, name, &new) {
                    // Someone else was quicker.
                    Err(Error::Exists) if !options.create_new => {
                        self.finish_operation(self.walk(path, true))?
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
        let file = self.open(path)?;
        file.read_to_end_at(0)
    }

    /// Makes a file of this content, in place of what it held.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; `NoSpace`, with part of it written.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let file = self.options().write(true).create(true).truncate(true).open(path)?;
        file.write_all_at(content.as_ref(), 0)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (the parent), `NoSpace`, `NoInodes`, `TooManyLinks`, `PermissionDenied`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (parent, name) = self.finish_operation(self.walk_parent(path.as_ref()))?;
        self.create_in(&parent, name, &self.new_inode(NewKind::Directory, 0o755)).map(drop)
    }

    /// Makes a directory and those above it that are missing.
    ///
    /// # Errors
    /// As [`Filesystem::create_dir`]; `NotADirectory`.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match self.walk(path, true) {
            Ok(inode) if inode.is_directory() => return Ok(()),
            Ok(_) => return Err(Error::NotADirectory),
            Err(Error::NotFound) => {}
            Err(error) => return self.finish_operation(Err(error)),
        }
        if let Some(parent) = path.parent() {
            self.create_dir_all(parent)?;
        }
        match self.create_dir(path) {
            Err(Error::Exists) => Ok(()),
            other => other,
        }
    }

    /// Removes a name of a file; the file is deleted when its last name and its last use are gone.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `PermissionDenied`, `NotPermitted`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let (parent, name) = self.finish_operation(self.walk_parent(path.as_ref()))?;
        self.unlink_in(&parent, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NotEmpty`, `PermissionDenied`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (parent, name) = self.finish_operation(self.walk_parent(path.as_ref()))?;
        self.unlink_in(&parent, name, true)
    }

    /// Removes a directory and all below it. Symbolic links are removed, not followed.
    ///
    /// # Errors
    /// As the removals; what was removed before stays removed. `Corrupt` as [`Dir::remove_all`], and if the directory's own
    /// `..` is not the one it is in.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let (parent, name) = self.finish_operation(self.walk_parent(path.as_ref()))?;
        let parent = Dir::new(self, parent)?;
        let dir = parent.dir(name)?;
        dir.check_above(&parent)?;
        dir.remove_all()?;
        parent.rmdir(name)
    }

    /// Gives a file another name, in place of what had it.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `IsADirectory`, `NotADirectory`, `InvalidArgument` (a directory below itself),
    /// `NoSpace`, `PermissionDenied`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from_dir, from_name) = self.finish_operation(self.walk_parent(from.as_ref()))?;
        let (to_dir, to_name) = self.finish_operation(self.walk_parent(to.as_ref()))?;
        self.rename_in(&from_dir, from_name, &to_dir, to_name, RenameFlags::default())
    }

    /// Gives a file a further name.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `TooManyLinks`, `NotPermitted` (a directory), `NoSpace`, `PermissionDenied`.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let inode = self.finish_operation(self.walk(original.as_ref(), false))?;
        let (parent, name) = self.finish_operation(self.walk_parent(link.as_ref()))?;
        self.check_access(&parent, AccessMask::WRITE | AccessMask::EXECUTE)?;
        self.retry_on_no_space(|volume| volume.link(&inode, &parent, name))
    }

    /// Makes a symbolic link that says `target`.
    ///
    /// # Errors
    /// As [`Filesystem::create_dir`]; `NameTooLong`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let (parent, name) = self.finish_operation(self.walk_parent(link.as_ref()))?;
        let kind = NewKind::Symlink(target.as_ref().as_os_str().as_bytes());
        self.create_in(&parent, name, &self.new_inode(kind, 0o777)).map(drop)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `InvalidArgument` if it is none; as [`Filesystem::lookup`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.symlink_lookup(path)?.read_link()
    }

    /// What `stat` reports, following symbolic links.
    ///
    /// # Errors
    /// As [`Filesystem::lookup`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(self.lookup(path)?.metadata())
    }

    /// What `lstat` reports.
    ///
    /// # Errors
    /// As [`Filesystem::lookup`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(self.symlink_lookup(path)?.metadata())
    }

    /// The entries of a directory, without `.` and `..`.
    ///
    /// # Errors
    /// `NotADirectory`; as [`Filesystem::lookup`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>> {
        self.dir(path)?.entries()
    }

    /// Sets the permission bits, following symbolic links.
    ///
    /// # Errors
    /// As [`File::set_attributes`].
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        self.lookup(path)?.set_attributes(&SetAttributes { mode: Some(mode), ..SetAttributes::default() })
    }

    /// Sets the owner, following symbolic links; a program loses its set-id bits, as with `chown`.
    ///
    /// # Errors
    /// As [`File::set_attributes`].
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: u32, gid: u32) -> Result<()> {
        let set =
            SetAttributes { uid: Some(uid), gid: Some(gid), clear_set_id: true, ..SetAttributes::default() };
        self.lookup(path)?.set_attributes(&set)
    }

    /// Sets the times, following symbolic links.
    ///
    /// # Errors
    /// As [`File::set_attributes`].
    pub fn set_times(&self, path: impl AsRef<Path>, times: Times) -> Result<()> {
        self.lookup(path)?.set_times(times)
    }
}

impl OpenOptions {
    /// Opens the file at `path`, following symbolic links.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `IsADirectory`, `PermissionDenied`, those of the walk, and what creating and
    /// truncating give.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.fs.open_with(self, path.as_ref())
    }
}
