//! The transport of the crate fuser: `/dev/fuse`, a descriptor and a thread per worker.
//!
//! Files and directories are not opened (`ENOSYS` to the first OPEN tells the kernel to ask no more), so an open of
//! what the kernel knows costs no request; for that, truncation on open comes as SETATTR. Locks stay in the kernel.
//!
//! Whoever reads a request answers it, unless those of its kind wait for the disk (`transport/pool.rs`).
//!
//! fuser does not pass on: `FATTR_KILL_SUIDGID`, which [`crate::Server`] derives from the caller; TMPFILE, STATX and
//! SYNCFS, which the kernel does without.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType as Kind, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use extant::{FileType, Timestamp};
use extant_rt::{Arc, Monotonic};

use super::pool::{Pace, Pool};
use crate::ops::{
    self, Attributes, Caller, Changes, Entry, Listing, Make, NodeId, Ops, Rename, SetTime, WriteHow,
};

/// Bytes of a write or read at most: what the kernel allows by default (256 pages).
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Requests of read-ahead and asynchronous I/O in flight.
const BACKGROUND_MAX: u16 = 64;

const S_IFMT: u32 = 0o170_000;
const O_APPEND: i32 = 0o2000;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

thread_local! {
    /// What a worker reads into, kept from request to request.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Passes fuser's calls on.
#[derive(Debug)]
pub(super) struct Adapter<T> {
    ops: Arc<T>,
    writeback: bool,
    paces: Arc<Paces>,
    pool: Pool,
}

/// How long what may wait for the disk takes.
#[derive(Debug)]
struct Paces {
    read: Pace,
    write: Pace,
    sync: Pace,
    allocate: Pace,
}

impl<T: Ops> Adapter<T> {
    pub(super) fn new(ops: T, writeback: bool) -> Self {
        let paces = Paces {
            read: Pace::default(),
            write: Pace::default(),
            sync: Pace::slow(),
            allocate: Pace::slow(),
        };
        Self { ops: Arc::new(ops), writeback, paces: Arc::new(paces), pool: Pool::new() }
    }

    /// Answers here, or by the pool if such requests are slow.
    fn answer(&self, pace: fn(&Paces) -> &Pace, bytes: usize, answer: impl FnOnce(&T) + Send + 'static) {
        let (ops, paces) = (self.ops.clone(), self.paces.clone());
        let timed = move || {
            let start = Monotonic::now();
            answer(&ops);
            pace(&paces).note(start.elapsed(), bytes);
        };
        if pace(&self.paces).is_slow() { self.pool.submit(timed) } else { timed() }
    }

    fn sync(&self, ino: INodeNo, datasync: bool, reply: ReplyEmpty) {
        self.answer(|paces| &paces.sync, 0, move |ops| reply_empty(reply, ops.sync(node(ino), datasync)));
    }

    fn make(&self, req: &Request, parent: INodeNo, name: &OsStr, make: &Make<'_>) -> ops::Reply<Entry> {
        self.ops.make(caller(req), node(parent), name.as_bytes(), make)
    }
}

fn node(number: INodeNo) -> NodeId {
    NodeId(number.0)
}

fn caller(req: &Request) -> Caller {
    Caller { uid: req.uid(), gid: req.gid() }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn system_time(time: Timestamp) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds));
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole =
        if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { seconds: after.as_secs().cast_signed(), nanoseconds: after.subsec_nanos() },
        Err(error) => {
            let before = error.duration();
            let seconds = -before.as_secs().cast_signed();
            match before.subsec_nanos() {
                0 => Timestamp { seconds, nanoseconds: 0 },
                below => Timestamp { seconds: seconds - 1, nanoseconds: 1_000_000_000 - below },
            }
        }
    }
}

fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp(time)),
        TimeOrNow::Now => SetTime::Now,
    }
}

fn kind(file_type: FileType) -> Kind {
    match file_type {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::NamedPipe,
        FileType::Socket => Kind::Socket,
        FileType::CharDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        _ => Kind::RegularFile,
    }
}

/// In replies with an entry fuser takes the node's number from here; in others it is what users see.
fn file_attr(number: u64, attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: attributes.size,
        blocks: attributes.blocks_512,
        atime: system_time(attributes.atime),
        mtime: system_time(attributes.mtime),
        ctime: system_time(attributes.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(attributes.file_type),
        perm: attributes.mode,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        blksize: attributes.block_size,
        flags: 0,
    }
}

fn reply_entry(reply: ReplyEntry, result: ops::Reply<Entry>) {
    match result {
        Ok(entry) => reply.entry_with_ttls(
            &entry.attributes_lifetime,
            &entry.name_lifetime,
            &file_attr(entry.node.0, &entry.attributes),
            Generation(entry.generation),
        ),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_empty(reply: ReplyEmpty, result: ops::Reply<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_written(reply: ReplyWrite, result: ops::Reply<usize>) {
    match result {
        Ok(written) => reply.written(u32::try_from(written).unwrap_or(u32::MAX)),
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_attributes(reply: ReplyAttr, result: ops::Reply<(Attributes, Duration)>) {
    match result {
        Ok((attributes, lifetime)) => reply.attr(&lifetime, &file_attr(attributes.inode, &attributes)),
        Err(error) => reply.error(errno(error)),
    }
}

/// Answers with a value, its size if 0 bytes were asked for, or `ERANGE`.
fn reply_value(reply: ReplyXattr, result: ops::Reply<Vec<u8>>, size: u32) {
    match result {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}

struct Names(ReplyDirectory);

impl Listing for Names {
    fn name(&mut self, name: &[u8], inode: u64, file_type: FileType, next_cookie: u64) -> bool {
        !self.0.add(INodeNo(inode), next_cookie, kind(file_type), OsStr::from_bytes(name))
    }

    fn entry(&mut self, name: &[u8], entry: &Entry, next_cookie: u64) -> bool {
        self.name(name, entry.attributes.inode, entry.attributes.file_type, next_cookie)
    }
}

struct Entries(ReplyDirectoryPlus);

impl Listing for Entries {
    fn name(&mut self, _: &[u8], _: u64, _: FileType, _: u64) -> bool {
        false
    }

    fn entry(&mut self, name: &[u8], entry: &Entry, next_cookie: u64) -> bool {
        let attributes = file_attr(entry.node.0, &entry.attributes);
        let lifetime = entry.name_lifetime.min(entry.attributes_lifetime);
        let name = OsStr::from_bytes(name);
        !self.0.add(
            INodeNo(entry.node.0),
            next_cookie,
            name,
            &lifetime,
            &attributes,
            Generation(entry.generation),
        )
    }
}

fn capabilities(writeback: bool) -> InitFlags {
    let mut flags = InitFlags::FUSE_DONT_MASK
        | InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_READDIRPLUS_AUTO
        | InitFlags::FUSE_ASYNC_DIO
        | InitFlags::FUSE_NO_OPEN_SUPPORT
        | InitFlags::FUSE_NO_OPENDIR_SUPPORT
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_POSIX_ACL
        | InitFlags::FUSE_CACHE_SYMLINKS
        | InitFlags::FUSE_EXPLICIT_INVAL_DATA
        | InitFlags::FUSE_HANDLE_KILLPRIV_V2;
    flags.set(InitFlags::FUSE_WRITEBACK_CACHE, writeback);
    flags
}

impl<T: Ops> fuser::Filesystem for Adapter<T> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = capabilities(self.writeback);
        if let Err(unknown) = config.add_capabilities(wanted) {
            // An older kernel: the rest works without.
            let _ = config.add_capabilities(wanted - unknown);
        }
        let _ = config.set_max_write(TRANSFER_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.ops.lookup(node(parent), name.as_bytes()) {
            Ok(Ok(entry)) => reply_entry(reply, Ok(entry)),
            Ok(Err(Duration::ZERO)) => reply.error(Errno::ENOENT),
            // Node 0 says that there is none, and for how long that is so.
            Ok(Err(lifetime)) => reply.entry(&lifetime, &NONE, Generation(0)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.ops.forget(node(ino), nlookup);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply_attributes(reply, self.ops.attributes(node(ino)));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = Changes {
            mode: mode.map(|mode| mode as u16 & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(timestamp),
        };
        reply_attributes(reply, self.ops.set_attributes(caller(req), node(ino), &changes));
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.ops.read_link(node(ino)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let kind = match FileType::from_mode(mode as u16) {
            FileType::Regular => ops::Kind::File,
            _ if mode & S_IFMT == 0 => ops::Kind::File,
            file_type => ops::Kind::Special(file_type, rdev),
        };
        let make = Make { kind, mode: mode as u16 & 0o7777, umask: umask as u16 };
        reply_entry(reply, self.make(req, parent, name, &make));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let make = Make { kind: ops::Kind::Directory, mode: mode as u16 & 0o7777, umask: umask as u16 };
        reply_entry(reply, self.make(req, parent, name, &make));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.ops.unlink(node(parent), name.as_bytes()));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.ops.rmdir(node(parent), name.as_bytes()));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let kind = ops::Kind::Symlink(target.as_os_str().as_bytes());
        reply_entry(reply, self.make(req, parent, link_name, &Make { kind, mode: 0o777, umask: 0 }));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = Rename {
            no_replace: flags.contains(RenameFlags::RENAME_NOREPLACE),
            exchange: flags.contains(RenameFlags::RENAME_EXCHANGE),
            whiteout: flags.contains(RenameFlags::RENAME_WHITEOUT),
        };
        let (from, to) = ((node(parent), name.as_bytes()), (node(newparent), newname.as_bytes()));
        reply_empty(reply, self.ops.rename(from, to, how));
    }

    fn link(&self, _: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        reply_entry(reply, self.ops.link(node(ino), node(newparent), newname.as_bytes()));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = size as usize;
        self.answer(
            |paces| &paces.read,
            size,
            move |ops| {
                BUFFER.with_borrow_mut(|buffer| {
                    if buffer.len() < size {
                        buffer.resize(size, 0);
                    }
                    match ops.read(node(ino), offset, &mut buffer[..size]) {
                        Ok(read) => reply.data(&buffer[..read]),
                        Err(error) => reply.error(errno(error)),
                    }
                });
            },
        );
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data_len = data.len();
        // What the kernel kept was written by an open that was allowed to, whichever that was.
        let is_kept = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let how = WriteHow {
            append: is_kept || flags.0 & O_APPEND != 0,
            remove_set_id: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        if self.paces.write.is_slow() {
            let data = data.to_vec();
            let write = move |ops: &T| reply_written(reply, ops.write(node(ino), offset, &data, how));
            return self.answer(|paces| &paces.write, data_len, write);
        }
        let start = Monotonic::now();
        reply_written(reply, self.ops.write(node(ino), offset, data, how));
        self.paces.write.note(start.elapsed(), data_len);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.sync(ino, datasync, reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectory) {
        let mut names = Names(reply);
        match self.ops.list(node(ino), offset, false, &mut names) {
            Ok(()) => names.0.ok(),
            Err(error) => names.0.error(errno(error)),
        }
    }

    fn readdirplus(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        let mut entries = Entries(reply);
        match self.ops.list(node(ino), offset, true, &mut entries) {
            Ok(()) => entries.0.ok(),
            Err(error) => entries.0.error(errno(error)),
        }
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.sync(ino, datasync, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let full = self.ops.fullness();
        reply.statfs(
            full.blocks,
            full.free_blocks,
            full.available_blocks,
            full.inodes,
            full.free_inodes,
            full.block_size,
            255,
            full.block_size,
        );
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.ops.set_xattr(caller(req), node(ino), name.as_bytes(), value, flags));
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_value(reply, self.ops.xattr(node(ino), name.as_bytes()), size);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        reply_value(reply, self.ops.list_xattrs(caller(req), node(ino)), size);
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.ops.remove_xattr(node(ino), name.as_bytes()));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let make = Make { kind: ops::Kind::File, mode: mode as u16 & 0o7777, umask: umask as u16 };
        match self.make(req, parent, name, &make) {
            Ok(entry) => reply.created(
                &entry.attributes_lifetime.min(entry.name_lifetime),
                &file_attr(entry.node.0, &entry.attributes),
                Generation(entry.generation),
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        match self.ops.ioctl(caller(req), node(ino), cmd, in_data, out_size) {
            Ok(output) => reply.ioctl(0, &output),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let caller = caller(req);
        self.answer(
            |paces| &paces.allocate,
            0,
            move |ops| {
                reply_empty(reply, ops.allocate(caller, node(ino), mode, offset, length));
            },
        );
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let for_data = match whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return reply.error(Errno::EINVAL),
        };
        match self.ops.seek(node(ino), offset, for_data) {
            Ok(at) => reply.offset(at.cast_signed()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The kernel copies by itself then.
        reply.error(Errno::ENOSYS);
    }
}

/// The attributes of no inode.
const NONE: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: UNIX_EPOCH,
    mtime: UNIX_EPOCH,
    ctime: UNIX_EPOCH,
    crtime: UNIX_EPOCH,
    kind: Kind::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 4096,
    flags: 0,
};

#[cfg(test)]
mod tests {
    use super::{Timestamp, system_time, timestamp};

    #[test]
    fn times_come_back_before_1970_too() {
        for (seconds, nanoseconds) in [(0, 0), (1, 5), (-1, 999_999_999), (-1, 0), (-5, 1), (1 << 33, 7)] {
            let time = Timestamp { seconds, nanoseconds };
            assert_eq!(timestamp(system_time(time)), time);
        }
    }
}
