//! A mounted file system, by path.

use std::path::Path;

use extant_alloc::{MballocStatistics, PreallocStatistics};
use extant_journal::Stats as JournalStatistics;
use extant_ondisk::{GroupNumber, InodeNumber, Structure, Superblock};
use extant_rt::{Arc, Padded};
use extant_writeback::Statistics as WritebackStatistics;

use super::{Dir, DirEntry, File, OpenOptions};
use crate::error::{Error, Location, MmpHolder, Result};
use crate::incore::inode_cache::InodeRef;
use crate::inode::attributes::{Metadata, SetAttributes, Times};
use crate::metadata::Statistics;
use crate::metadata::counting::Descriptors;
use crate::metadata::tables::TableInitialisation;
use crate::mount::{Mounted, Volume};
use crate::namespace::{AccessMask, Credentials, New, NewKind, RenameFlags};

/// A mounted file system. Clones are the same mount; the last one to go unmounts it as well as it can. Paths start
/// at its root, with or without a slash.
#[derive(Clone, Debug)]
pub struct Filesystem {
    view: Arc<Padded<View>>,
}

/// A file system as a user sees it.
#[derive(Clone, Debug)]
struct View {
    mounted: Arc<MountedVolume>,
    user: Option<Credentials>,
}

#[derive(Debug)]
struct MountedVolume {
    volume: Arc<Volume>,
    found: Mounted,
}

impl Drop for MountedVolume {
    fn drop(&mut self) {
        // Drop cannot report an error; `unmount` does.
        let _ = self.volume.unmount();
    }
}

impl Filesystem {
    pub(super) fn new(volume: Arc<Volume>, found: Mounted) -> Self {
        Self::of(View { mounted: Arc::new(MountedVolume { volume, found }), user: None })
    }

    fn of(view: View) -> Self {
        Self { view: Arc::new(Padded(view)) }
    }

    /// The same view with a count of uses of its own: what is opened through one directory and what through another
    /// write no line in common.
    pub(super) fn apart(&self) -> Self {
        Self::of(View::clone(&self.view))
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.view.mounted.volume
    }

    pub(super) fn check_access(&self, inode: &InodeRef, want: AccessMask) -> Result<()> {
        match &self.view.user {
            Some(user) => self.volume().access(inode, user, want),
            None => Ok(()),
        }
    }

    /// Whether this view may use the blocks reserved for root.
    pub(super) fn is_privileged(&self) -> bool {
        self.view.user.as_ref().is_none_or(|user| user.uid == 0)
    }

    /// Notes damage, deletes what lost its last use, and passes the result on.
    pub(super) fn finish_operation<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.volume().handle_error(error);
        }
        self.volume().evict_unlinked();
        result
    }

    /// [`Self::finish_operation`] of what `act` gives, which may be done again if it finds no space.
    pub(super) fn retry_on_no_space<T>(&self, act: impl Fn(&Volume) -> Result<T>) -> Result<T> {
        self.finish_operation(self.volume().retry_on_no_space(|| act(self.volume())))
    }

    /// The same file system, as this user sees it: permissions are checked, new files are theirs. Without it
    /// everything is allowed and new files belong to root.
    #[must_use]
    pub fn as_user(&self, user: Credentials) -> Self {
        Self::of(View { mounted: self.view.mounted.clone(), user: Some(user) })
    }

    /// The findings of mounting: replayed blocks, orphans.
    #[must_use]
    pub fn mounted(&self) -> Mounted {
        self.view.mounted.found
    }

    /// A copy of the superblock as it is now, without the free counts, which [`Filesystem::statistics`] gives.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        self.volume().superblock.lock().clone()
    }

    /// How full it is.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.volume().statistics()
    }

    /// Statistics of the block allocator's searches since mounting.
    #[must_use]
    pub fn mballoc_statistics(&self) -> MballocStatistics {
        self.volume().allocator.statistics()
    }

    /// How far its free blocks and inodes are counted by descriptors, where a large disk is not read wholly by mounting.
    #[must_use]
    pub fn descriptors(&self) -> Descriptors {
        self.volume().descriptors()
    }

    /// The files' preallocations, and the look-ups in them since mounting.
    #[must_use]
    pub fn prealloc_statistics(&self) -> PreallocStatistics {
        self.volume().allocator.prealloc_statistics()
    }

    /// How far the inode tables are zeroed that mkfs left to be initialised lazily.
    #[must_use]
    pub fn table_initialisation(&self) -> TableInitialisation {
        self.volume().table_initialisation()
    }

    /// Calls `each` with the first block and the length of every run of free blocks, in order. Runs end with their
    /// group.
    ///
    /// # Errors
    /// `Corrupt`, `Io`, naming the group's bitmap.
    pub fn free_runs(&self, mut each: impl FnMut(u64, u32)) -> Result<()> {
        let volume = self.volume();
        for group in (0..volume.geometry.group_count).map(GroupNumber) {
            for run in self.finish_operation(volume.allocator.free_runs(group).map_err(Error::from))? {
                each(run.start.0, run.len);
            }
        }
        Ok(())
    }

    /// Informs the device that free blocks are not needed (`FITRIM`): each run of at least `least` bytes in the bytes `range`
    /// of the disk, group by group; a group that was done already is passed over until blocks come back to it. Blocks whose
    /// freeing is not committed yet are left out. Gives how many bytes were discarded.
    ///
    /// No block is allocated again before its discard has ended.
    ///
    /// # Errors
    /// `InvalidArgument` if the range begins behind the disk or is shorter than a block, or if `least` is longer than a group;
    /// `Unsupported` if the device cannot discard; `ReadOnly`; `Io`; `Corrupt`. Ranges discarded before the error stay
    /// discarded.
    pub fn trim(&self, range: std::ops::Range<u64>, least: u64) -> Result<u64> {
        self.finish_operation(self.volume().trim(range, least))
    }

    /// Whether writes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.volume().is_read_only()
    }

    /// The holder of the disk's multiple-mount protection, which may be this mount; none if the disk has no such protection.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and [`Error::Io`] of its block.
    pub fn mmp_holder(&self) -> Result<Option<MmpHolder>> {
        self.volume().mmp_holder()
    }

    /// Makes everything done so far durable.
    ///
    /// # Errors
    /// The journal's and the device's; `Io` once if data of any file was lost since the last sync.
    pub fn sync(&self) -> Result<()> {
        self.volume().sync()
    }

    /// Makes everything durable and the disk clean. Other clones and open files give `ReadOnly` afterwards when
    /// they write.
    ///
    /// # Errors
    /// The journal's and the device's: the disk then is as after a crash. `Io`, on a clean disk, if data of any file was lost
    /// since the last sync.
    pub fn unmount(self) -> Result<()> {
        self.volume().unmount()
    }

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

    /// Bytes of files in memory, and of those that are to be written; None without a page cache.
    #[must_use]
    pub fn page_cache_used(&self) -> Option<(u64, u64)> {
        self.volume().pages.as_ref().map(|pages| pages.used())
    }

    /// How many writeback contexts there are, and how many there can be; None without a page cache.
    #[must_use]
    pub fn writeback_contexts(&self) -> Option<(usize, usize)> {
        let writeback = self.volume().pages.as_ref()?.writeback();
        Some((writeback.contexts(), writeback.contexts_max()))
    }

    /// Changes the count of writeback contexts; no writer is stopped and no page dropped for it.
    ///
    /// # Errors
    /// `InvalidArgument` without a page cache, and if it is 0 or more than there can be; `Io` if the host gives no
    /// threads. The count is as before.
    pub fn set_writeback_contexts(&self, count: usize) -> Result<()> {
        self.volume().set_writeback_contexts(count)
    }

    /// The state of all writeback contexts; None without a page cache.
    #[must_use]
    pub fn writeback_statistics(&self) -> Option<WritebackStatistics> {
        self.volume().pages.as_ref().map(|pages| pages.writeback().statistics())
    }

    /// Statistics of the journal since mounting; none if opened for reading.
    #[must_use]
    pub fn journal_statistics(&self) -> Option<JournalStatistics> {
        self.volume().journal.as_ref().map(|journal| journal.stats())
    }

    /// Sets the label: up to 16 bytes.
    ///
    /// # Errors
    /// `InvalidArgument` if it is longer; `ReadOnly`.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        self.finish_operation(self.volume().set_label(label))
    }

    /// Stops all writing at once, as `EXT4_IOC_SHUTDOWN`: what `commit` makes durable first is kept, the rest is lost
    /// as in a crash.
    ///
    /// # Errors
    /// The commit's; it is stopped all the same.
    pub fn force_shutdown(&self, commit: bool) -> Result<()> {
        self.volume().force_shutdown(commit)
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

    pub(super) fn new_inode<'n>(&self, kind: NewKind<'n>, mode: u16) -> New<'n> {
        let (uid, gid) = self.view.user.as_ref().map_or((0, 0), |user| (user.uid, user.gid));
        New { kind, mode, uid, gid, times: None, xattrs: &[] }
    }

    pub(super) fn create_in(&self, parent: &InodeRef, name: &[u8], new: &New<'_>) -> Result<InodeRef> {
        let new = self.as_made_by_user(parent, new)?;
        self.retry_on_no_space(|volume| volume.create(parent, name, &new))
    }

    /// Something new as it comes out when this view's user makes it.
    pub(super) fn as_made_by_user<'n>(&self, parent: &InodeRef, new: &New<'n>) -> Result<New<'n>> {
        match &self.view.user {
            Some(user) => self.volume().check_new(parent, user, new),
            None => Ok(*new),
        }
    }

    pub(super) fn unlink_in(&self, parent: &InodeRef, name: &[u8], directory: bool) -> Result<()> {
        self.may_delete(parent, name)?;
        let volume = self.volume();
        self.finish_operation(if directory {
            volume.rmdir(parent, name)
        } else {
            volume.unlink(parent, name)
        })
    }

    /// Write and search in the directory and, where it is sticky, ownership.
    fn may_delete(&self, parent: &InodeRef, name: &[u8]) -> Result<()> {
        let Some(user) = &self.view.user else { return Ok(()) };
        self.check_access(parent, AccessMask::EXECUTE)?;
        let child = self.volume().lookup(parent, name)?;
        self.volume().may_delete(parent, &child, user)
    }

    /// The permissions beside [`Self::may_delete`] that a user needs to move the entry of this name.
    fn may_move(&self, from: &InodeRef, name: &[u8], to: &InodeRef) -> Result<()> {
        let Some(user) = &self.view.user else { return Ok(()) };
        let child = self.volume().lookup(from, name)?;
        self.volume().check_move(from, &child, to, user)
    }

    /// The user, if this is a user's view.
    pub(super) fn user(&self) -> Option<&Credentials> {
        self.view.user.as_ref()
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

    pub(super) fn rename_in(
        &self,
        from_dir: &InodeRef,
        from_name: &[u8],
        to_dir: &InodeRef,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.may_delete(from_dir, from_name)?;
        self.may_move(from_dir, from_name, to_dir)?;
        match self.may_delete(to_dir, to_name) {
            Err(Error::NotFound) => {}
            other => other?,
        }
        if flags.exchange {
            self.may_move(to_dir, to_name, from_dir)?;
        }
        self.retry_on_no_space(|volume| volume.rename(from_dir, from_name, to_dir, to_name, flags))
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
