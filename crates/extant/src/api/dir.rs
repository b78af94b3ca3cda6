//! An open directory.

use std::ops::Deref;

use extant_ondisk::{FileType, InodeNumber};
use extant_rt::share_work;

use super::file::File;
use super::filesystem::Filesystem;
use crate::directory::DirItem;
use crate::error::{Error, Result};
use crate::incore::inode_cache::InodeRef;
use crate::inode::attributes::Metadata;
use crate::namespace::{AccessMask, New, RenameFlags};

/// An open directory. Names are bytes without slash and NUL.
#[derive(Clone, Debug)]
pub struct Dir {
    file: File,
}

/// An entry of a directory as the directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirent {
    /// Its name, in bytes.
    pub name: Vec<u8>,
    /// Its inode.
    pub inode: InodeNumber,
    /// The kind of its inode, if the directory says so.
    pub file_type: Option<FileType>,
}

/// What of entries is read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// The names in those that are directories.
    Names,
    /// Their inodes, and those of the names in directories among them.
    Inodes,
}

/// Directories whose names are read ahead at most, and inodes of each of them.
const DIRECTORIES_AHEAD_MAX: usize = 1024;
const INODES_AHEAD_MAX: usize = 10_000;

impl Deref for Dir {
    type Target = File;
    fn deref(&self) -> &File {
        &self.file
    }
}

impl File {
    /// The same inode as a directory.
    ///
    /// # Errors
    /// `NotADirectory`.
    pub fn into_dir(self) -> Result<Dir> {
        Dir::new(self.fs(), self.inode().clone())
    }
}

impl Dir {
    pub(super) fn new(fs: &Filesystem, inode: InodeRef) -> Result<Self> {
        if !inode.is_directory() {
            return Err(Error::NotADirectory);
        }
        Ok(Self { file: File::new(fs.apart(), inode) })
    }

    /// The inode of that name; a symbolic link is not followed.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, `Corrupt`, `Io`.
    pub fn lookup(&self, name: &[u8]) -> Result<File> {
        self.fs().check_access(self.inode(), AccessMask::EXECUTE)?;
        let inode = self.fs().finish_operation(self.fs().volume().lookup(self.inode(), name))?;
        Ok(File::new(self.fs().clone(), inode))
    }

    /// What `lstat` reports for that name.
    ///
    /// # Errors
    /// As [`Dir::lookup`].
    pub fn symlink_metadata(&self, name: &[u8]) -> Result<Metadata> {
        self.fs().check_access(self.inode(), AccessMask::EXECUTE)?;
        self.fs().finish_operation(self.fs().volume().attributes_of(self.inode(), name))
    }

    /// The same inode, as a file of whatever type.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }

    /// The directory of that name.
    ///
    /// # Errors
    /// `NotADirectory`; as [`Dir::lookup`].
    pub fn dir(&self, name: &[u8]) -> Result<Self> {
        let file = self.lookup(name)?;
        if file.inode().is_directory() { Ok(Self { file }) } else { Err(Error::NotADirectory) }
    }

    /// Makes an inode and its name, whole or not at all.
    ///
    /// # Errors
    /// `Exists`, `NameTooLong`, `NoSpace`, `NoInodes`, `TooManyLinks`, `PermissionDenied`, `ReadOnly`.
    pub fn create(&self, name: &[u8], new: &New<'_>) -> Result<File> {
        let inode = self.fs().create_in(self.inode(), name, new)?;
        Ok(File::new(self.fs().clone(), inode))
    }

    /// Makes a directory of that name, opened.
    ///
    /// # Errors
    /// As [`Dir::create`].
    pub fn create_dir(&self, name: &[u8], new: &New<'_>) -> Result<Self> {
        let file = self.create(name, new)?;
        if file.inode().is_directory() { Ok(Self { file }) } else { Err(Error::NotADirectory) }
    }

    /// Makes a file without a name; [`Dir::link`] may give it one. Without one it is deleted with its last use.
    ///
    /// # Errors
    /// As [`Dir::create`].
    pub fn create_tmpfile(&self, new: &New<'_>) -> Result<File> {
        let new = self.fs().as_made_by_user(self.inode(), new)?;
        let inode = self.fs().retry_on_no_space(|volume| volume.tmpfile(self.inode(), &new))?;
        Ok(File::new(self.fs().clone(), inode))
    }

    /// Gives a file a further name here.
    ///
    /// # Errors
    /// As [`Filesystem::hard_link`].
    pub fn link(&self, file: &File, name: &[u8]) -> Result<()> {
        self.fs().check_access(self.inode(), AccessMask::WRITE | AccessMask::EXECUTE)?;
        self.fs().retry_on_no_space(|volume| volume.link(file.inode(), self.inode(), name))
    }

    /// Takes a name of a file away.
    ///
    /// # Errors
    /// As [`Filesystem::remove_file`].
    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        self.fs().unlink_in(self.inode(), name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Filesystem::remove_dir`].
    pub fn rmdir(&self, name: &[u8]) -> Result<()> {
        self.fs().unlink_in(self.inode(), name, true)
    }

    /// Gives an entry another name, here or in `to`.
    ///
    /// # Errors
    /// As [`Filesystem::rename`]; `Exists` with `no_replace`.
    pub fn rename(&self, name: &[u8], to: &Self, to_name: &[u8], flags: RenameFlags) -> Result<()> {
        self.fs().rename_in(self.inode(), name, to.inode(), to_name, flags)
    }

    /// All entries, without `.` and `..`.
    ///
    /// # Errors
    /// `PermissionDenied`, `Corrupt`, `Io`.
    pub fn entries(&self) -> Result<Vec<Dirent>> {
        let mut entries = Vec::new();
        self.visit(|entry| entries.push(entry))?;
        Ok(entries)
    }

    /// Reads what a walk of the tree needs next into memory, many requests at once, if the device has
    /// [latency](extant_block::BlockDevice::has_latency); else it does nothing. What cannot be read is found when it is needed.
    pub fn read_ahead(&self, entries: &[Dirent], what: ReadAhead) {
        let volume = self.fs().volume();
        let requests = volume.requests_in_flight();
        if requests == 1 {
            return;
        }
        let is_directory = |entry: &&Dirent| entry.file_type == Some(FileType::Directory);
        let read_inodes = |numbers: Vec<InodeNumber>| {
            let chunks = volume.one_of_each_chunk(numbers);
            share_work(requests, chunks.into_iter(), |number| volume.read_ahead_inode(number));
        };
        let directories: Vec<_> = entries.iter().filter(is_directory).map(|entry| entry.inode).collect();
        match what {
            // The inodes between those of directories are not needed.
            ReadAhead::Names => {
                let runs = volume.table_runs(&directories);
                share_work(requests, runs.into_iter(), |run| volume.read_ahead_table(run));
            }
            ReadAhead::Inodes => read_inodes(entries.iter().map(|entry| entry.inode).collect()),
        }
        let names = |number: InodeNumber| {
            let mut numbers = Vec::new();
            // Damage is found when the directory is visited.
            if let Ok(inode) = volume.inode(number) {
                let _ = volume.read_dir(&inode, 0, &mut |item| {
                    numbers.push(item.inode);
                    what == ReadAhead::Inodes && numbers.len() < INODES_AHEAD_MAX
                });
            }
            numbers
        };
        let below = share_work(requests, directories.into_iter().take(DIRECTORIES_AHEAD_MAX), names);
        if what == ReadAhead::Inodes {
            read_inodes(below.into_iter().flatten().collect());
        }
    }

    /// Up to `count_max` entries from `cookie` on, without `.` and `..`; each with the cookie behind it. The first cookie
    /// is 0. Cookies stay good while the directory changes: what is there throughout is seen once.
    ///
    /// # Errors
    /// `PermissionDenied`, `Corrupt`, `Io`.
    pub fn entries_from(&self, cookie: u64, count_max: usize) -> Result<Vec<(Dirent, u64)>> {
        self.fs().check_access(self.inode(), AccessMask::READ)?;
        let mut entries = Vec::new();
        let read = self.fs().volume().read_dir(self.inode(), cookie, &mut |item| {
            if entries.len() == count_max {
                return false;
            }
            if item.name != b"." && item.name != b".." {
                let entry = Dirent { name: item.name.to_vec(), inode: item.inode, file_type: item.file_type };
                entries.push((entry, item.next_cookie));
            }
            true
        });
        self.fs().finish_operation(read)?;
        Ok(entries)
    }

    /// Calls `visit` with each name from `cookie` on, `.` and `..` included, until it says false. The first cookie is
    /// 0, the others are those of the items. A name that is there throughout is seen once, whatever else comes and
    /// goes. A removed directory has no names.
    ///
    /// # Errors
    /// `PermissionDenied`; `Corrupt`, `Io`, perhaps after some items.
    ///
    /// # Locks
    /// None is held while `visit` runs.
    pub fn read_from(&self, cookie: u64, visit: &mut dyn FnMut(DirItem<'_>) -> bool) -> Result<()> {
        self.fs().check_access(self.inode(), AccessMask::READ)?;
        self.fs().finish_operation(self.fs().volume().read_dir(self.inode(), cookie, visit))
    }

    fn visit(&self, mut visit: impl FnMut(Dirent)) -> Result<()> {
        self.fs().check_access(self.inode(), AccessMask::READ)?;
        let read = self.fs().volume().read_dir(self.inode(), 0, &mut |item| {
            if item.name != b"." && item.name != b".." {
                visit(Dirent { name: item.name.to_vec(), inode: item.inode, file_type: item.file_type });
            }
            true
        });
        self.fs().finish_operation(read)
    }
}
