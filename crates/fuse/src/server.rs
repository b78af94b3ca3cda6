//! Answers requests with the engine.
//!
//! The kernel checks permissions (`default_permissions`); what it cannot know is checked here: immutable and append-only inodes, permission
//! for what an `ioctl` does, the name spaces of attributes. Files are not opened, except where each access is noted and where there is a
//! page cache ([`OpenFiles`]): an inode that the kernel knows can be read and written.
//!
//! Locks: only those of the tables of inodes and of open files, and none of them is held over a call of the engine.

mod attributes;
mod content;
mod ioctl;
mod names;
mod xattrs;

use std::ops::Range;
use std::time::Duration;

use extant::{
    AccessTimes, Error, File, FileType, Filesystem, InodeFlags, InodeNumber, Metadata, QuotaScope,
    SetAttributes, Timestamp,
};
use extant_rt::{Arc, LockClass, Mutex, OnceLock, WallClock};
use rustix::io::Errno;

use crate::control::{self, Control, Mounter};
use crate::errno::errno;
use crate::metrics::{Metrics, Request, Timed};
use crate::nodes::{Held, Nodes};
use crate::open_files::OpenFiles;
use crate::ops::*;
use crate::owners::Owners;
use crate::timed_device::DeviceTimes;
use crate::transport::Notifier;

/// How long the kernel may remember what only the kernel changes.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The preferred size of reads and writes that `stat` reports.
const SHOWN_BLOCK_BYTES: u32 = 4096;

/// How to serve.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Whose files they are.
    pub owners: Owners,
    /// Which accesses are noted.
    pub access_times: AccessTimes,
    /// None of directories.
    pub no_dir_access_times: bool,
    /// No control directory.
    pub no_control: bool,
    /// The user who mounts, as the host counts.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// The process that serves.
    pub pid: u32,
    /// The options in force, as `mount` writes them, for the control file.
    pub description: String,
    /// The counts of the disk's device, if it is a [`TimedDevice`](crate::TimedDevice): for the control file `metrics`.
    pub device: Option<DeviceTimes>,
}

/// A served file system.
#[derive(Debug)]
pub struct Server {
    fs: Filesystem,
    nodes: Nodes,
    /// With a page cache: what was written may be lost later.
    open_files: Option<OpenFiles>,
    owners: Owners,
    access_times: AccessTimes,
    dir_access_times: AccessTimes,
    control: Option<Control>,
    mounter: u32,
    metrics: Metrics,
    transport: OnceLock<Transport>,
    notifier: OnceLock<Notifier>,
    /// The error of unmounting the disk, if it failed and is not yet reported.
    failure: Mutex<Option<Error>>,
}

impl Server {
    /// Serves `fs`.
    ///
    /// # Errors
    /// The errors of reading the root directory: a disk whose root cannot be read is not mounted.
    pub fn new(fs: Filesystem, options: ServerOptions) -> Result<Arc<Self>, Error> {
        let nodes = Nodes::new();
        // The kernel knows the root from the beginning and never forgets it.
        let root = fs.root()?;
        root.read_from(0, &mut |_| false)?;
        nodes.hold(NodeId::ROOT, Held::Dir(root));
        let mounter =
            Mounter { uid: options.uid, gid: options.gid, pid: options.pid, options: options.description };
        let access_times = if fs.is_read_only() { AccessTimes::None } else { options.access_times };
        Ok(Arc::new(Self {
            access_times,
            dir_access_times: if options.no_dir_access_times { AccessTimes::None } else { access_times },
            open_files: fs.page_cache_used().map(|_| OpenFiles::new()),
            fs,
            nodes,
            owners: options.owners,
            control: (!options.no_control).then(|| Control::new(mounter)),
            mounter: options.uid,
            metrics: Metrics::new(options.device),
            transport: OnceLock::new(),
            notifier: OnceLock::new(),
            failure: Mutex::new(LockClass::REQUESTS, None),
        }))
    }

    /// Gives all uses back that the kernel did not, and unmounts.
    ///
    /// # Errors
    /// The journal's and the device's.
    pub fn finish(&self) -> Result<(), Error> {
        self.open_files.iter().for_each(OpenFiles::clear);
        self.nodes.clear();
        let unmounted = self.fs.clone().unmount();
        self.failure.lock().take().map_or(unmounted, Err)
    }

    fn now() -> Timestamp {
        let (seconds, nanoseconds) = WallClock::System.now();
        Timestamp { seconds, nanoseconds }
    }

    /// Counts a request and the time until what this gives is dropped; none of a control file.
    fn timed(&self, request: Request, node: NodeId) -> Option<Timed<'_>> {
        (!Control::owns(node)).then(|| self.metrics.begin(request))
    }

    /// Has limits of quotas apply to what the caller asks for, unless it is root, on the host or on the disk.
    fn limits(&self, caller: Caller) -> QuotaScope {
        let is_root = caller.is_root() || self.owners.stored(caller.uid, caller.gid).0 == 0;
        QuotaScope::new(!is_root)
    }

    /// The kernel's number of an inode.
    fn node_id(number: InodeNumber) -> NodeId {
        if number == InodeNumber::ROOT { NodeId::ROOT } else { NodeId(u64::from(number.0)) }
    }

    /// Gives the kernel a use of an inode.
    fn give(&self, file: File) -> Reply<EntryReply> {
        let (number, generation) = (file.number(), file.generation());
        let attributes = self.shown(&file.metadata());
        let held = if attributes.file_type == FileType::Directory {
            Held::Dir(file.into_dir().map_err(|error| errno(&error))?)
        } else {
            Held::File(file)
        };
        let node = Self::node_id(number);
        self.nodes.hold(node, held);
        // The kernel knows the root before it can receive a generation, with generation 0: any other value would name another inode.
        let generation = if node == NodeId::ROOT { 0 } else { generation };
        Ok(entry_of(node, generation, attributes))
    }

    /// Gives the kernel a use of a file that is opened as it is made.
    fn give_open(&self, file: File) -> Reply<(EntryReply, Opened)> {
        let open_file = file.reopen();
        let entry = self.give(file)?;
        Ok((entry, self.opened(entry.node, open_file)))
    }

    /// The reply to an open: the file is kept if what is written to it may be lost later.
    fn opened(&self, node: NodeId, open_file: File) -> Opened {
        let handle = self.open_files.as_ref().map(|open_files| open_files.keep(node, open_file));
        Opened { handle: handle.unwrap_or(FileHandle::NONE), keeps_content: self.keeps_content() }
    }

    /// Whether the kernel keeps its cached pages at an open: if each access is noted, it would otherwise serve reads from them without a
    /// request.
    fn keeps_content(&self) -> bool {
        self.access_times != AccessTimes::Strict
    }

    /// Attributes as the host is to see them.
    fn shown(&self, metadata: &Metadata) -> Attributes {
        let (uid, gid) = self.owners.shown(metadata.uid, metadata.gid);
        Attributes {
            inode: u64::from(metadata.inode.0),
            file_type: metadata.file_type,
            mode: metadata.mode,
            links: u32::from(metadata.links),
            uid,
            gid,
            size: metadata.size,
            // Data written through a mapping has no blocks yet, and a program must not take such a file for one hole, as tar does.
            blocks_512: if metadata.size > 0 && metadata.file_type == FileType::Regular {
                metadata.blocks_512.max(1)
            } else {
                metadata.blocks_512
            },
            atime: metadata.atime,
            mtime: metadata.mtime,
            ctime: metadata.ctime,
            birth: metadata.crtime,
            device: encode_device(metadata.device),
            block_size: SHOWN_BLOCK_BYTES,
        }
    }

    /// Has the kernel write back what it holds changed of a range of a file.
    fn have_written_back(&self, node: NodeId, range: Range<u64>) {
        if let Some(notifier) = self.notifier.get()
            && !self.fs.is_read_only()
        {
            notifier.write_back(node, range);
        }
    }

    /// Checks that the content of a file may change; `append` if only by bytes added at its end.
    fn check_changeable(file: &File, append: bool) -> Reply<()> {
        let flags = file.flags();
        if flags.contains(InodeFlags::IMMUTABLE) || (flags.contains(InodeFlags::APPEND) && !append) {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// A control file as it is now, under a number of its own.
    fn control_file(&self, control: &Control, name: &[u8]) -> Option<EntryReply> {
        let known = self.nodes.count();
        // If `begin` was never called, no device is read either.
        let transport = self.transport.get().copied().unwrap_or(Transport::Device);
        let (node, snapshot) =
            control.snapshot(name, Self::now(), &self.fs, &self.metrics, known, transport)?;
        let attributes = control.file(node, &snapshot);
        self.nodes.hold(node, Held::Control(snapshot));
        // The next look-up is to make another.
        Some(EntryReply { name_lifetime: Duration::ZERO, ..entry_of(node, 0, attributes) })
    }

    fn control_directory(&self, control: &Control) -> EntryReply {
        let entry = entry_of(control::DIRECTORY, 0, control.directory(Self::now()));
        EntryReply { name_lifetime: Duration::ZERO, attributes_lifetime: Duration::ZERO, ..entry }
    }
}

fn entry_of(node: NodeId, generation: u32, attributes: Attributes) -> EntryReply {
    EntryReply {
        node,
        generation: u64::from(generation),
        attributes,
        name_lifetime: LIFETIME,
        attributes_lifetime: LIFETIME,
    }
}

impl Ops for Server {
    fn begin(&self, transport: Transport, notifier: Notifier) {
        // The first call counts.
        let _ = self.transport.set(transport);
        let _ = self.notifier.set(notifier);
    }

    fn end(&self) {
        if let Err(error) = self.finish() {
            *self.failure.lock() = Some(error);
        }
    }

    fn lookup(&self, parent: NodeId, name: &[u8]) -> Reply<Result<EntryReply, Duration>> {
        let _timed = self.timed(Request::Lookup, parent);
        self.look_up(parent, name)
    }

    fn forget(&self, node: NodeId, count: u64) {
        if node != NodeId::ROOT {
            self.nodes.forget(node, count);
        }
    }

    fn attributes(&self, node: NodeId) -> Reply<(Attributes, Duration)> {
        let _timed = self.timed(Request::Attributes, node);
        self.stat(node)
    }

    fn set_attributes(
        &self,
        caller: Caller,
        node: NodeId,
        set: &SetAttributes,
        size: Option<SetSize>,
    ) -> Reply<(Attributes, Duration)> {
        let _timed = self.timed(Request::SetAttributes, node);
        let _limits = self.limits(caller);
        self.change(caller, node, set, size)
    }

    fn read_link(&self, node: NodeId) -> Reply<Vec<u8>> {
        let _timed = self.timed(Request::ReadLink, node);
        let served = self.nodes.get(node)?;
        let link = served.file()?;
        let target = link.read_link().map_err(|error| errno(&error))?;
        if self.access_times == AccessTimes::Strict {
            link.touch_atime(self.access_times).map_err(|error| errno(&error))?;
        }
        Ok(target)
    }

    fn mknod(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        request: &CreateRequest<'_>,
    ) -> Reply<EntryReply> {
        let _timed = self.timed(Request::Create, parent);
        let _limits = self.limits(caller);
        self.make_inode(caller, parent, name, request)
    }

    fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        request: &CreateRequest<'_>,
    ) -> Reply<(EntryReply, Opened)> {
        // Nothing is to be released then.
        if self.open_files.is_none() {
            return Err(Errno::NOSYS);
        }
        let _timed = self.timed(Request::Create, parent);
        let _limits = self.limits(caller);
        self.create_file(caller, parent, name, request)
    }

    fn create_tmpfile(
        &self,
        caller: Caller,
        parent: NodeId,
        request: &CreateRequest<'_>,
    ) -> Reply<(EntryReply, Opened)> {
        let _timed = self.timed(Request::Create, parent);
        let _limits = self.limits(caller);
        self.open_tmpfile(caller, parent, request)
    }

    fn unlink(&self, parent: NodeId, name: &[u8]) -> Reply<()> {
        let _timed = self.timed(Request::Unlink, parent);
        self.nodes.get(parent)?.dir()?.unlink(name).map_err(|error| errno(&error))
    }

    fn rmdir(&self, parent: NodeId, name: &[u8]) -> Reply<()> {
        let _timed = self.timed(Request::Rmdir, parent);
        self.nodes.get(parent)?.dir()?.rmdir(name).map_err(|error| errno(&error))
    }

    fn rename(&self, caller: Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: Rename) -> Reply<()> {
        let _timed = self.timed(Request::Rename, from.0);
        let _limits = self.limits(caller);
        self.rename_entry(from, to, how)
    }

    fn link(&self, caller: Caller, node: NodeId, parent: NodeId, name: &[u8]) -> Reply<EntryReply> {
        let _timed = self.timed(Request::Link, parent);
        let _limits = self.limits(caller);
        self.link_inode(node, parent, name)
    }

    fn open(&self, node: NodeId, how: OpenHow) -> Reply<Opened> {
        let is_kept = self.open_files.is_some() && !how.directory;
        if self.keeps_content() && !is_kept {
            return Err(Errno::NOSYS);
        }
        let _timed = self.timed(Request::Open, node);
        self.open_inode(node, how)
    }

    fn release(&self, handle: FileHandle) {
        self.open_files.iter().for_each(|open_files| open_files.release(handle));
    }

    fn read(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Reply<usize> {
        let mut timed = self.timed(Request::Read, node);
        let done = self.read_content(node, offset, buf)?;
        timed.iter_mut().for_each(|timed| timed.moves(done));
        Ok(done)
    }

    fn write(&self, node: NodeId, offset: u64, bytes: &[u8], how: WriteHow) -> Reply<usize> {
        let mut timed = self.timed(Request::Write, node);
        let done = self.write_content(node, offset, bytes, how)?;
        timed.iter_mut().for_each(|timed| timed.moves(done));
        Ok(done)
    }

    fn sync(&self, node: NodeId, handle: FileHandle, only_data: bool) -> Reply<()> {
        let _timed = self.timed(Request::Sync, node);
        self.sync_inode(node, handle, only_data)
    }

    fn list(&self, node: NodeId, cookie: u64, with_attributes: bool, listing: &mut dyn Listing) -> Reply<()> {
        let _timed = self.timed(Request::List, node);
        self.list_directory(node, cookie, with_attributes, listing)
    }

    fn statfs(&self, node: NodeId) -> Reply<StatFs> {
        let _timed = self.metrics.begin(Request::StatFs);
        let full = match Control::owns(node) {
            true => self.fs.statistics(),
            false => self.nodes.get(node)?.file()?.statistics(),
        };
        Ok(StatFs {
            block_size: full.block_size,
            blocks: full.blocks,
            free_blocks: full.free_blocks,
            available_blocks: full.available_blocks,
            inodes: u64::from(full.inodes),
            free_inodes: u64::from(full.free_inodes),
        })
    }

    fn xattr(&self, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        let _timed = self.timed(Request::Xattr, node);
        self.get_xattr(node, name)
    }

    fn list_xattrs(&self, caller: Caller, node: NodeId) -> Reply<Vec<u8>> {
        let _timed = self.timed(Request::Xattr, node);
        self.xattr_names(caller, node)
    }

    fn set_xattr(&self, caller: Caller, node: NodeId, name: &[u8], value: &[u8], flags: i32) -> Reply<()> {
        let _timed = self.timed(Request::SetXattr, node);
        let _limits = self.limits(caller);
        self.put_xattr(caller, node, name, value, flags)
    }

    fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Reply<()> {
        let _timed = self.timed(Request::SetXattr, node);
        self.take_xattr(node, name)
    }

    fn allocate(&self, caller: Caller, node: NodeId, mode: i32, offset: u64, bytes: u64) -> Reply<()> {
        let _timed = self.timed(Request::Allocate, node);
        self.allocate_range(caller, node, mode, offset, bytes)
    }

    fn seek(&self, node: NodeId, offset: u64, for_data: bool) -> Reply<u64> {
        let _timed = self.timed(Request::Seek, node);
        self.seek_content(node, offset, for_data)
    }

    fn find_block(&self, node: NodeId, block: u64, block_size: u32) -> Reply<Option<u64>> {
        let _timed = self.timed(Request::FindBlock, node);
        self.find_block_of(node, block, block_size)
    }

    fn ioctl(&self, caller: Caller, node: NodeId, request: &Ioctl<'_>) -> Reply<Vec<u8>> {
        let _timed = self.timed(Request::Ioctl, node);
        let _limits = self.limits(caller);
        self.control_inode(caller, node, request)
    }
}

#[cfg(test)]
mod tests;
