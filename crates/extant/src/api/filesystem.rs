//! A mounted file system as a user sees it, without its files.

use std::path::Path;

use extant_alloc::{MballocStatistics, PreallocStatistics};
use extant_block::Defragmented;
use extant_journal::Stats as JournalStatistics;
use extant_ondisk::{GroupNumber, Structure, Superblock};
use extant_rt::{Arc, Padded};
use extant_writeback::Statistics as WritebackStatistics;

#[cfg(feature = "check")]
use crate::check::{Finding, Progress};
use crate::defrag::{DefragEvent, DefragOptions};
use crate::error::{Error, Location, MmpHolder, Result};
use crate::incore::inode_cache::InodeRef;
use crate::metadata::Statistics;
use crate::metadata::changed_inodes::ChangedInodes;
use crate::metadata::counting::Descriptors;
use crate::metadata::quota::reserve::QuotaScope;
use crate::metadata::tables::TableInitialisation;
use crate::mount::{Mounted, Volume};
use crate::namespace::{AccessMask, Credentials, New, NewKind, RenameFlags};
use crate::resize::Grown;

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

    /// Whether permissions are checked.
    pub(super) fn checks_access(&self) -> bool {
        self.view.user.is_some()
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

    /// [`Self::finish_operation`] of what `act` gives, which may be done again if it finds no space. Limits of quotas apply to it if this is
    /// the view of an ordinary user.
    pub(super) fn retry_on_no_space<T>(&self, act: impl Fn(&Volume) -> Result<T>) -> Result<T> {
        let _limits = QuotaScope::new(!self.is_privileged());
        self.finish_operation(self.volume().retry_on_no_space(|| act(self.volume())))
    }

    /// The same file system, as this user sees it: permissions are checked, new files are theirs. Without it
    /// everything is allowed, limits of quotas among it, and new files belong to root.
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

    /// Requests to its device that it pays to have in flight at once, each of another thread: 1 if the device has no
    /// [latency](extant_block::BlockDevice::has_latency).
    #[must_use]
    pub fn requests_in_flight(&self) -> usize {
        self.volume().requests_in_flight()
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
            for run in self.finish_operation(volume.free_runs(group))? {
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

    /// Makes the file system as large as `bytes` while it is used, its device too where that is a file. A crash leaves it as it was or
    /// grown; without a journal it may damage it. Writeback contexts and the goals of streams are those of the groups at mount until the
    /// next one.
    ///
    /// # Errors
    /// `OutOfRange` for a size below the file system's or above what the device can have; `Unsupported` for one that the format cannot
    /// express; `ReadOnly`; `Io`. The file system is as it was then, or as large as the last step made it.
    pub fn grow(&self, bytes: u64) -> Result<Grown> {
        let volume = self.volume();
        match volume.writable().map(|_| volume.device.grow(bytes))? {
            // The size that it has says which sizes the file system may have.
            Err(error) if error.kind() != std::io::ErrorKind::Unsupported => {
                return Err(Location::of(Structure::Superblock).io(error));
            }
            _ => {}
        }
        self.finish_operation(volume.grow(bytes))
    }

    /// Brings files into fewer extents and directories into fewer blocks, at `path` and below it, while the file system is used; of the
    /// root also free space into longer runs. Symbolic links are followed to `path` only. Content, times, attributes and inode numbers
    /// stay; a directory may become smaller. Each move is a transaction, so a crash leaves the old place or the new one; on a disk without
    /// a journal it may damage the file system. A writer waits while some of its file moves, 16 MiB of it at a time in most cases.
    ///
    /// `report` is called after each move and each file, and says whether to go on. Files that lack room, that must stay in their place,
    /// or that an error keeps from being moved, are reported and left as they are.
    ///
    /// ```
    /// use extant::{DefragOptions, Mount, device::MemoryDevice, mkfs::Mkfs};
    ///
    /// let device = MemoryDevice::new(64 << 20);
    /// Mkfs::new().format(&device)?;
    /// let fs = Mount::new().open_device(device)?;
    /// // Two files that are written in turn lie in many parts.
    /// let [one, two] = ["/one", "/two"].map(|path| fs.options().write(true).create(true).open(path));
    /// let (one, two) = (one?, two?);
    /// for part in 0..100 {
    ///     one.write_all_at(&[1; 4096], part << 12)?;
    ///     two.write_all_at(&[2; 4096], part << 12)?;
    /// }
    /// let done = fs.defrag("/", &DefragOptions::default(), &mut |_| true)?;
    /// assert!(done.runs_after <= done.runs_before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` and others of a path; `ReadOnly`, unless it is a dry run; `Interrupted` if `report` says so; `Unsupported`; `Io` and
    /// `Corrupt` of what is not a single file's. What was done stays done, and the file system is whole.
    pub fn defrag(
        &self,
        path: impl AsRef<Path>,
        options: &DefragOptions,
        report: &mut dyn FnMut(DefragEvent<'_>) -> bool,
    ) -> Result<Defragmented> {
        let path = path.as_ref();
        let start = self.lookup(path)?.number();
        self.finish_operation(self.volume().defrag(start, path, *options, report))
    }

    /// Zeroes the inode tables that mkfs left to be initialised lazily, as a long mount does in the background. Where the device can make
    /// zeroes without writing them, that gives their space back. Gives how many bytes were zeroed; 0 if all tables were.
    ///
    /// # Errors
    /// `ReadOnly`; `Io`; `Interrupted`. Tables zeroed before the error stay zeroed.
    pub fn zero_unused_tables(&self) -> Result<u64> {
        self.finish_operation(self.volume().zero_unused_tables())
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

    /// Compares everything on the disk with everything else and lists what does not agree, in the order of the
    /// passes; empty for a consistent disk. Changes nothing. A dirty journal counts as replayed, as it is in memory.
    /// Stops after [`FINDINGS_MAX`](crate::FINDINGS_MAX) findings. `progress` is called many times.
    ///
    /// A disk to be checked is best mounted for reading. Of one mounted for writing the check sees what is committed, so no other thread
    /// may change it meanwhile, and the caller calls `sync` first.
    ///
    /// # Errors
    /// `Io` where the device cannot be read; `Incompatible` for features that may give the disk structures which the check does not
    /// know. Damage that a mount refuses is never seen here: it is the mount's error.
    #[cfg(feature = "check")]
    pub fn check(&self, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
        self.volume().check(progress)
    }

    /// The inodes that may differ from those of `base`, a disk of which this one was once a copy, or the other way round. An inode
    /// that is not among them has the same number, bytes, content and names on both. None if bytes do not say it: the disks have other
    /// UUIDs or inode tables, one of them was not unmounted, or one is open for writing.
    ///
    /// Among them are all inodes whose last change has a time in whole seconds: a fixed clock gives each change the same. Reads both
    /// inode tables as far as they were ever used.
    ///
    /// # Errors
    /// `Io`; `Corrupt` for a descriptor; `Interrupted`.
    pub fn changed_inodes(&self, base: &Self) -> Result<Option<ChangedInodes>> {
        self.finish_operation(self.volume().changed_inodes(base.volume()))
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

    /// Bytes of files in memory, and of those that are to be written; None without a page cache.
    #[must_use]
    pub fn page_cache_used(&self) -> Option<(u64, u64)> {
        self.volume().pages.as_ref().map(|pages| pages.used())
    }

    /// How many writeback contexts there are, and how many there can be: one for each range of block groups, of four groups at least
    /// and 64 ranges at most. None without a page cache.
    #[must_use]
    pub fn writeback_contexts(&self) -> Option<(usize, usize)> {
        let writeback = self.volume().pages.as_ref()?.writeback();
        Some((writeback.contexts(), writeback.contexts_max()))
    }

    /// Changes the count of writeback contexts; no writer is stopped and no page dropped for it.
    ///
    /// # Errors
    /// `OutOfRange` if it is 0 or more than there can be; `InvalidArgument` without a page cache; `Io` if the host gives no threads.
    /// The count is as before.
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
}
