//! An inode in use: an open file, or anything else that has a name.

mod stream;

use std::ops::Deref;
use std::path::Path;

use extant_block::{Defragmented, Segment};
use extant_ondisk::{InodeFlags, InodeNumber};

use super::filesystem::Filesystem;
use super::options::OpenOptions;
use crate::defrag::{DefragEvent, DefragOptions};
use crate::error::{Error, Result};
use crate::file::fallocate::Fallocate;
use crate::file::seek::{FileExtent, SeekTo};
use crate::incore::errseq::ErrorCursor;
use crate::incore::inode_cache::InodeRef;
use crate::inode::attributes::{AccessTimes, Metadata, SetAttributes, Times};
use crate::inode::xattr::XattrMode;
use crate::metadata::quota::reserve::QuotaScope;
use crate::mount::Volume;
use crate::namespace::AccessMask;
use crate::namespace::access::is_xattr_seen;
use stream::Position;

/// An inode in use. It lives on without a name until the last use is dropped.
///
/// Reading and writing at an offset works from many threads. [`std::io::Read`], [`std::io::Write`] and [`std::io::Seek`], also of `&File`, keep a position;
/// threads that use one position at once may read the same bytes.
#[derive(Clone, Debug)]
pub struct File {
    inode: InodeRef,
    // After `inode`, so that what lost its last use with it is deleted.
    fs: EvictOnDrop,
    position: Position,
    readable: bool,
    writable: bool,
    append: bool,
    /// Writeback errors that it has reported.
    error_cursor: ErrorCursor,
}

/// Deletes on drop what lost its last use.
#[derive(Clone, Debug)]
struct EvictOnDrop(Filesystem);

impl Drop for EvictOnDrop {
    fn drop(&mut self) {
        self.0.volume().evict_unlinked();
    }
}

impl Deref for EvictOnDrop {
    type Target = Filesystem;
    fn deref(&self) -> &Filesystem {
        &self.0
    }
}

impl File {
    /// A use that may read and write, as far as the user may.
    pub(super) fn new(fs: Filesystem, inode: InodeRef) -> Self {
        let readable = fs.check_access(&inode, AccessMask::READ).is_ok();
        let writable = fs.check_access(&inode, AccessMask::WRITE).is_ok();
        let error_cursor = inode.writeback_error.sample();
        Self {
            inode,
            fs: EvictOnDrop(fs),
            position: Position::default(),
            readable,
            writable,
            append: false,
            error_cursor,
        }
    }

    pub(super) fn opened(fs: Filesystem, inode: InodeRef, options: &OpenOptions) -> Self {
        Self {
            error_cursor: inode.writeback_error.sample(),
            inode,
            fs: EvictOnDrop(fs),
            position: Position::default(),
            readable: options.read,
            writable: options.write || options.append,
            append: options.append,
        }
    }

    /// A further open file of the same inode, with the same rights: its position is the beginning, and it reports lost data as a file
    /// that is opened now does. A clone, by contrast, has reported what this one has.
    #[must_use]
    pub fn reopen(&self) -> Self {
        Self {
            position: Position::default(),
            error_cursor: self.inode.writeback_error.sample(),
            ..self.clone()
        }
    }

    pub(super) fn inode(&self) -> &InodeRef {
        &self.inode
    }

    pub(super) fn fs(&self) -> &Filesystem {
        &self.fs
    }

    /// Its inode number.
    #[must_use]
    pub fn number(&self) -> InodeNumber {
        self.inode.number
    }

    /// Distinguishes this use of its number from earlier and later ones.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.inode.generation
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.inode.is_directory()
    }

    /// What `fstat` reports.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        self.fs.volume().attributes(&self.inode)
    }

    /// Reads from `offset` until `buf` is full or the file ends: how many bytes. Holes read as zero.
    ///
    /// # Errors
    /// `PermissionDenied` if not opened for reading; `IsADirectory`; `Io`, `Corrupt`.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if !self.readable {
            return Err(Error::PermissionDenied);
        }
        self.fs.finish_operation(self.fs.volume().read_at(&self.inode, offset, buf))
    }

    /// Everything from `offset` to the end.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_to_end_at(&self, offset: u64) -> Result<Vec<u8>> {
        const PIECE_BYTES: u64 = 1 << 20;
        let mut content = Vec::new();
        loop {
            // The size is the disk's word only: grow by what is really read. One byte more shows that it ends.
            let start = content.len();
            let left = self.inode.size().saturating_sub(offset.saturating_add(start as u64));
            content.resize(start + left.saturating_add(1).min(PIECE_BYTES) as usize, 0);
            let read = self.read_at(&mut content[start..], offset + start as u64)?;
            content.truncate(start + read);
            if read == 0 {
                return Ok(content);
            }
        }
    }

    /// As [`Filesystem::defrag`] of this file, or of this directory and what is below it; paths begin there.
    ///
    /// # Errors
    /// As there.
    pub fn defrag(
        &self,
        options: &DefragOptions,
        report: &mut dyn FnMut(DefragEvent<'_>) -> bool,
    ) -> Result<Defragmented> {
        let start = self.inode.number;
        self.fs.finish_operation(self.fs.volume().defrag(start, Path::new(""), *options, report))
    }

    /// Writes at `offset`, or at the end if opened to append; how much was written.
    ///
    /// # Errors
    /// `PermissionDenied` if not opened for writing; `NoSpace` and `QuotaExceeded` if nothing could be written; `FileTooLarge`,
    /// `ReadOnly`, `Io`.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        if !self.writable {
            return Err(Error::PermissionDenied);
        }
        let offset = if self.append { None } else { Some(offset) };
        self.changed(
            self.fs.retry_on_no_space(|volume| {
                volume.write_at(&self.inode, offset, buf, self.fs.is_privileged())
            }),
        )
    }

    /// Writes at `offset` for a user other than root, no matter which user opened it: without the blocks that are kept for root, within limits of
    /// quotas, and taking the file's set-user-id and set-group-id away.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_unprivileged_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        if !self.writable {
            return Err(Error::PermissionDenied);
        }
        let _limits = QuotaScope::new(true);
        self.changed(
            self.fs.retry_on_no_space(|volume| volume.write_at(&self.inode, Some(offset), buf, false)),
        )
    }

    /// Writes all of `buf` at `offset`.
    ///
    /// # Errors
    /// As [`File::write_at`]; part may be written.
    pub fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.write_at(&buf[done..], offset + done as u64)? {
                0 => return Err(Error::NoSpace),
                written => done += written,
            }
        }
        Ok(())
    }

    /// Gives it blocks for `bytes` bytes from `offset` on, where a block begins, and leaves their content to the caller: where they lie on
    /// the device, as whole blocks in the order of the file. The file has the bytes from now on, and they are anything until the
    /// caller has written them to the device, with zeroes behind the last byte. That may be on another thread while the file system is used,
    /// as long as the file keeps its blocks. For makers of images.
    ///
    /// # Errors
    /// As [`File::write_at`]; `InvalidArgument` for a start or an end in the middle of a block, but for the end of the file. Part may have
    /// its blocks.
    pub fn place_at(&self, offset: u64, bytes: usize) -> Result<Vec<Segment>> {
        if !self.writable || self.append {
            return Err(Error::PermissionDenied);
        }
        let (mut segments, mut done) = (Vec::new(), 0);
        while done < bytes {
            let placed = self.changed(self.fs.retry_on_no_space(|volume| {
                let rest = bytes - done;
                volume.place_at(&self.inode, offset + done as u64, rest, self.fs.is_privileged())
            }))?;
            done += placed.iter().map(|segment| segment.bytes as usize).sum::<usize>();
            segments.extend(placed);
        }
        Ok(segments)
    }

    /// Cuts it or extends it with a hole.
    ///
    /// # Errors
    /// `PermissionDenied`, `FileTooLarge`, `IsADirectory`, `ReadOnly`, `Io`.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        if !self.writable {
            return Err(Error::PermissionDenied);
        }
        self.changed(self.fs.finish_operation(self.fs.volume().set_size(&self.inode, bytes)))
    }

    /// Exchanges the whole content with that of another regular file of the same disk, in one transaction: after a crash
    /// each file has its own content or the other's. Owners, modes, names and extended attributes stay; both files get
    /// the time of the exchange. Content that was written before is durable whenever the exchange is.
    ///
    /// Written into a file of [`Dir::create_tmpfile`](crate::Dir::create_tmpfile) and exchanged, new content replaces old content as
    /// `rename` would, but with inode number, hard links and attributes kept.
    ///
    /// # Errors
    /// `PermissionDenied` if one was not opened for writing; `InvalidArgument` if both are one file; `NotPermitted` for an
    /// immutable, append-only or verity file; `Unsupported` for a file that is encrypted or has no extents, and for more
    /// extents than a transaction holds; `IsADirectory`, `NoSpace`, `ReadOnly`, `Io`, `Corrupt`. Nothing is exchanged then.
    pub fn exchange_content(&self, other: &Self) -> Result<()> {
        if !self.writable || !other.writable {
            return Err(Error::PermissionDenied);
        }
        self.fs.retry_on_no_space(|volume| volume.exchange_content(&self.inode, &other.inode))
    }

    /// Fixes the content for good, as `FS_IOC_ENABLE_VERITY` does. `metadata` is what Linux keeps of fs-verity behind the end, at the
    /// next multiple of 64 KiB: the Merkle tree, and in blocks of its own the descriptor, whose size in bytes ends the last one. It
    /// is taken as it is: a wrong one makes the file unreadable to Linux.
    ///
    /// # Errors
    /// `Exists` if the file is a verity file; `NotPermitted` for an immutable or append-only file; `Unsupported` for a disk without the
    /// feature `verity`, and for a file that is encrypted or has no extents; `FileTooLarge`, `NoSpace`, `ReadOnly`, `Io`,
    /// `Corrupt`. The file is as it was then.
    pub fn enable_verity(&self, metadata: &[u8]) -> Result<()> {
        if !self.writable {
            return Err(Error::PermissionDenied);
        }
        self.changed(self.fs.retry_on_no_space(|volume| volume.enable_verity(&self.inode, metadata)))
    }

    /// Allocates, zeroes, punches, collapses or inserts a range, in bytes.
    ///
    /// # Errors
    /// As `fallocate(2)`: `InvalidArgument`, `NoSpace`, `FileTooLarge`, `Unsupported`. `Io` in place of `InvalidArgument` if data that
    /// was written before was lost, for the file may have become shorter; the next sync reports that too.
    pub fn allocate(&self, what: Fallocate, offset: u64, bytes: u64) -> Result<()> {
        self.fallocate(what, offset, bytes, self.fs.is_privileged())
    }

    /// As [`File::allocate`], for a user other than root, no matter which user opened it: without the blocks that are kept for root, and
    /// within limits of quotas.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn allocate_unprivileged(&self, what: Fallocate, offset: u64, bytes: u64) -> Result<()> {
        let _limits = QuotaScope::new(true);
        self.fallocate(what, offset, bytes, false)
    }

    fn fallocate(&self, what: Fallocate, offset: u64, bytes: u64, privileged: bool) -> Result<()> {
        if !self.writable {
            return Err(Error::PermissionDenied);
        }
        let allocate = |volume: &Volume| volume.fallocate(&self.inode, what, offset, bytes, privileged);
        match self.fs.retry_on_no_space(allocate) {
            Err(Error::InvalidArgument(_)) if self.inode.writeback_error.is_news_to(&self.error_cursor) => {
                self.fs.finish_operation(Err(self.fs.volume().lost(&self.inode)))
            }
            done => self.changed(done),
        }
    }

    /// The first offset from `offset` on that is data, or a hole.
    ///
    /// # Errors
    /// `NoSuchOffset` past the end.
    pub fn seek_to(&self, to: SeekTo, offset: u64) -> Result<u64> {
        self.fs.finish_operation(self.fs.volume().seek(&self.inode, offset, to))
    }

    /// The parts of a range, in bytes, that blocks are mapped to, as `FIEMAP` reports.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<FileExtent>> {
        let mut extents = Vec::new();
        self.visit_extents(offset, bytes, &mut |extent| extents.push(extent))?;
        Ok(extents)
    }

    /// Calls `visit` with what [`File::extents`] lists, in order. No memory is needed for them.
    ///
    /// # Errors
    /// `Corrupt`, also for more blocks than the disk has; `Io`.
    ///
    /// # Locks
    /// The file's content is locked while `visit` runs, which must not change it.
    pub fn visit_extents(&self, offset: u64, bytes: u64, visit: &mut dyn FnMut(FileExtent)) -> Result<()> {
        self.fs.finish_operation(self.fs.volume().fiemap(&self.inode, offset, bytes, visit))
    }

    /// The position of a range on the device, in bytes: none if part of it is in a hole or in the inode, or if its blocks do not
    /// follow each other. Blocks that were allocated but not written count: bytes that another program wrote there are not read here.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn device_offset(&self, offset: u64, bytes: u64) -> Result<Option<u64>> {
        self.fs.finish_operation(self.fs.volume().device_offset(&self.inode, offset, bytes))
    }

    /// Sets the flags that `chattr` can set; those that say how the content is kept stay.
    ///
    /// # Errors
    /// `NotPermitted` if the user is neither the owner nor root, or if other flags of an immutable inode are to change and it is to
    /// stay so; `ReadOnly`.
    pub fn set_flags(&self, flags: InodeFlags) -> Result<()> {
        if let Some(user) = self.fs.user() {
            self.fs.volume().check_set_flags(&self.inode, user, flags)?;
        }
        self.changed(self.fs.finish_operation(self.fs.volume().set_flags(&self.inode, flags)))
    }

    /// Sets mode, owner, project and times.
    ///
    /// # Errors
    /// `NotPermitted` if the user is neither the owner nor root, or the inode is immutable; `Unsupported` for a project on a disk
    /// without the feature `project`; `ReadOnly`.
    pub fn set_attributes(&self, set: &SetAttributes) -> Result<()> {
        let set = match self.fs.user() {
            Some(user) => self.fs.volume().check_set_attributes(&self.inode, user, set)?,
            None => *set,
        };
        self.changed(self.fs.retry_on_no_space(|volume| volume.set_attributes(&self.inode, &set)))
    }

    /// Its flags as `chattr` shows them.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        self.inode.raw().flags() & InodeFlags::USER_VISIBLE
    }

    /// Notes that it was read, if that is one of the reads to note. On a disk that cannot be written, nothing.
    ///
    /// # Errors
    /// The journal's.
    pub fn touch_atime(&self, which: AccessTimes) -> Result<()> {
        self.fs.finish_operation(self.fs.volume().touch_atime(&self.inode, which))
    }

    /// Clears what a change of content by a user other than root clears: set-user-id, the set-group-id of what its group may execute;
    /// and file capabilities, which any change does, if only those are to go.
    ///
    /// # Errors
    /// `ReadOnly`, `NoSpace`, `Corrupt`, `Io`.
    pub fn remove_privileges(&self, only_capabilities: bool) -> Result<()> {
        self.fs.finish_operation(self.fs.volume().remove_privileges(&self.inode, only_capabilities))
    }

    /// Whether it may have extended attributes; true in doubt. Costs no I/O.
    #[must_use]
    pub fn may_have_xattrs(&self) -> bool {
        self.fs.volume().may_have_xattrs(&self.inode.raw())
    }

    /// Sets the times of access and change.
    ///
    /// # Errors
    /// As [`File::set_attributes`].
    pub fn set_times(&self, times: Times) -> Result<()> {
        let set =
            SetAttributes { atime: Some(times.atime), mtime: Some(times.mtime), ..SetAttributes::default() };
        self.set_attributes(&set)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `InvalidArgument` if it is none.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        self.fs.finish_operation(self.fs.volume().read_link(&self.inode))
    }

    /// An extended attribute by its full name, as `b"user.origin"`.
    ///
    /// # Errors
    /// `NoAttribute`, `Corrupt`, `Io`.
    pub fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        if let Some(user) = self.fs.user() {
            self.fs.volume().check_get_xattr(&self.inode, user, name)?;
        }
        self.fs.finish_operation(self.fs.volume().get_xattr(&self.inode, name))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `NoSpace` (the attributes of an inode share one block), `Exists` and `NoAttribute` by `mode`, `ReadOnly`.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let mode = self.check_set_xattr(name, mode)?;
        self.changed(self.fs.retry_on_no_space(|volume| volume.set_xattr(&self.inode, name, value, mode)))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `ReadOnly`.
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.check_set_xattr(name, XattrMode::default())?;
        self.changed(self.fs.finish_operation(self.fs.volume().remove_xattr(&self.inode, name)))
    }

    fn check_set_xattr(&self, name: &[u8], mode: XattrMode) -> Result<XattrMode> {
        match self.fs.user() {
            Some(user) => self.fs.volume().check_set_xattr(&self.inode, user, name, mode),
            None => Ok(mode),
        }
    }

    /// The full names of all extended attributes that the user may see.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        let mut names = self.fs.finish_operation(self.fs.volume().list_xattrs(&self.inode))?;
        if let Some(user) = self.fs.user() {
            names.retain(|name| is_xattr_seen(user, name));
        }
        Ok(names)
    }

    /// Makes its data and its fields durable.
    ///
    /// # Errors
    /// The journal's and the device's; once also that data written before was lost since.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(true)
    }

    /// Makes a finished change durable if the file is marked as synchronous, and returns its result.
    fn changed<T>(&self, done: Result<T>) -> Result<T> {
        let done = done?;
        self.fs.finish_operation(self.fs.volume().sync_if_marked(&self.inode))?;
        Ok(done)
    }

    fn sync(&self, attributes: bool) -> Result<()> {
        let volume = self.fs.volume();
        let synced = volume.sync_inode(&self.inode, attributes);
        // Whatever it was, it is reported now.
        let is_lost = volume.inodes.unreported_errors.check_and_advance(&self.inode, &self.error_cursor);
        self.fs.finish_operation(synced)?;
        if is_lost { Err(volume.lost(&self.inode)) } else { Ok(()) }
    }

    /// Makes its data durable, and of its fields what is needed to read the data back.
    ///
    /// # Errors
    /// The journal's and the device's.
    pub fn sync_data(&self) -> Result<()> {
        self.sync(false)
    }
}
