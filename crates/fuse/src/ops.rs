//! The interface between a transport and the server: synchronous calls with plain types.
//!
//! A transport ([`crate::transport`]) decodes requests, calls [`Ops`] from its worker threads and encodes the
//! results. Leaves out: descriptors, layouts of messages, the mount.

pub(crate) mod node_id;

use std::time::Duration;

use extant_rt::Arc;
use rustix::io::Errno;

use extant::{FileType, SetAttributes, Timestamp};

pub use self::node_id::NodeId;
use crate::transport::Notifier;

/// The result of a request.
pub type Reply<T> = Result<T, Errno>;

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Requests come by reads of `/dev/fuse`.
    Device,
    /// Over io_uring, with a ring for each CPU.
    Rings,
}

impl Transport {
    /// Its name, as control files show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "dev",
            Self::Rings => "io_uring",
        }
    }
}

/// The kernel's handle of an open file (`fh`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileHandle(pub u64);

impl FileHandle {
    /// The server keeps nothing for this open file.
    pub const NONE: Self = Self(0);
}

/// The caller's user and thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user, as the host counts.
    pub uid: u32,
    /// The user's own group.
    pub gid: u32,
    /// The thread, in the namespace of processes in which the mount was made; 0 if it is in none of that.
    pub thread: u32,
}

impl Caller {
    /// Whether it may do what capabilities allow.
    #[must_use]
    pub const fn is_root(self) -> bool {
        self.uid == 0
    }
}

/// What `stat` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode number that users see.
    pub inode: u64,
    /// The type of the inode.
    pub file_type: FileType,
    /// Permission, set-id and sticky bits.
    pub mode: u16,
    /// Names.
    pub links: u32,
    /// The owner, as the host counts.
    pub uid: u32,
    /// The group, as the host counts.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks_512: u64,
    /// The last access.
    pub atime: Timestamp,
    /// The last change of the content.
    pub mtime: Timestamp,
    /// The last change of the inode.
    pub ctime: Timestamp,
    /// When it was made, if that is known.
    pub birth: Option<Timestamp>,
    /// The number of a device, as `st_rdev`.
    pub device: u32,
    /// The preferred size of reads and writes.
    pub block_size: u32,
}

/// A name's inode, with how long the kernel may remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryReply {
    /// The inode. Each one returned counts until [`Ops::forget`] takes it back.
    pub node: NodeId,
    /// Distinguishes this use of the inode number from others.
    pub generation: u64,
    /// Its attributes.
    pub attributes: Attributes,
    /// How long the name stays valid.
    pub name_lifetime: Duration,
    /// How long the attributes stay valid.
    pub attributes_lifetime: Duration,
}

/// A size to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetSize {
    /// Bytes.
    pub bytes: u64,
    /// Set-user-id and set-group-id are to go.
    pub remove_set_id: bool,
}

/// The type of inode to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeType<'n> {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link that says this.
    Symlink(&'n [u8]),
    /// A pipe, a socket or a device; for devices with the number, as `st_rdev`.
    Special(FileType, u32),
}

/// A new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateRequest<'n> {
    /// The type of the new inode.
    pub kind: InodeType<'n>,
    /// Permission, set-id and sticky bits, before the mask.
    pub mode: u16,
    /// Bits that the caller wants off, unless the directory's default access control list decides.
    pub umask: u16,
}

/// How to rename, as `renameat2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rename {
    /// Fail if the new name exists.
    pub no_replace: bool,
    /// Both names change places.
    pub exchange: bool,
    /// Leave a whiteout under the old name.
    pub whiteout: bool,
}

/// How a file or directory is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// To write.
    pub write: bool,
    /// Each write goes to the end.
    pub append: bool,
    /// It is a directory.
    pub directory: bool,
}

/// The reply to an open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The handle by which the kernel names the open file until it releases it.
    pub handle: FileHandle,
    /// The kernel keeps what it has of the content.
    pub keeps_content: bool,
}

/// How a write came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteHow {
    /// The file was opened to append.
    pub append: bool,
    /// Set-user-id and set-group-id are to go.
    pub remove_set_id: bool,
    /// The kernel writes its pages back, some time after they were changed: through a mapping.
    pub is_late: bool,
}

/// An `ioctl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ioctl<'i> {
    /// Its number.
    pub command: u32,
    /// The caller's argument.
    pub input: &'i [u8],
    /// The size of what the caller wants.
    pub out_bytes: u32,
    /// The caller is a program of 32 bits.
    pub is_compat: bool,
    /// The kernel asks on behalf of the caller, and has looked whether that one may (`vfs_fileattr_set`).
    pub is_permitted: bool,
}

/// How full it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// In no use.
    pub free_blocks: u64,
    /// Free blocks that users other than root may allocate.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// In no use.
    pub free_inodes: u64,
}

/// The number of a device as `st_rdev` has it (`new_encode_dev`).
#[must_use]
pub const fn encode_device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Major and minor of a device (`new_decode_dev`).
#[must_use]
pub const fn decode_device(device: u32) -> (u32, u32) {
    ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xf_ff00))
}

/// Takes the entries of a directory.
pub trait Listing {
    /// Takes a name and its inode; false if there is no room for it.
    fn name(&mut self, name: &[u8], inode: u64, file_type: FileType, next_cookie: u64) -> bool;
    /// Takes a name with its attributes; false if there is no room for it.
    fn entry(&mut self, name: &[u8], entry: &EntryReply, next_cookie: u64) -> bool;
}

/// The file system that answers requests. Every method may be called from many threads at once.
pub trait Ops: Send + Sync + 'static {
    /// Called once, before the first request, with the transport of requests and the means to notify the kernel.
    fn begin(&self, transport: Transport, notifier: Notifier) {
        let _ = (transport, notifier);
    }
    /// Called once the mount is gone and before its device can be claimed again, for a mount that claims one.
    fn end(&self) {}
    /// The inode of a name, if there is one, and how long the kernel may remember that there is none.
    ///
    /// # Errors
    /// The engine's, as every method's.
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Reply<Result<EntryReply, Duration>>;
    /// Takes `count` uses back.
    fn forget(&self, node: NodeId, count: u64);
    /// What `stat` reports, and how long the kernel may cache it.
    fn attributes(&self, node: NodeId) -> Reply<(Attributes, Duration)>;
    /// Changes attributes, owners as the host counts, and size. Nothing at all is a change of owner that changes no number; or
    /// it precedes a change of the content by a user whose write clears the file's set-id bits or capabilities.
    fn set_attributes(
        &self,
        caller: Caller,
        node: NodeId,
        set: &SetAttributes,
        size: Option<SetSize>,
    ) -> Reply<(Attributes, Duration)>;
    /// The target of a symbolic link.
    fn read_link(&self, node: NodeId) -> Reply<Vec<u8>>;
    /// Makes an inode and its name.
    fn mknod(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        request: &CreateRequest<'_>,
    ) -> Reply<EntryReply>;
    /// Makes a file and opens it.
    ///
    /// # Errors
    /// `ENOSYS`: the kernel makes files by [`Ops::mknod`] from then on, and opens them afterwards.
    fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        request: &CreateRequest<'_>,
    ) -> Reply<(EntryReply, Opened)> {
        let _ = (caller, parent, name, request);
        Err(Errno::NOSYS)
    }
    /// Makes a file without a name, which [`Ops::link`] may give it, and opens it.
    ///
    /// # Errors
    /// `ENOSYS` if it is not implemented.
    fn create_tmpfile(
        &self,
        caller: Caller,
        parent: NodeId,
        request: &CreateRequest<'_>,
    ) -> Reply<(EntryReply, Opened)> {
        let _ = (caller, parent, request);
        Err(Errno::NOSYS)
    }
    /// Takes a name of a file away.
    fn unlink(&self, parent: NodeId, name: &[u8]) -> Reply<()>;
    /// Removes an empty directory.
    fn rmdir(&self, parent: NodeId, name: &[u8]) -> Reply<()>;
    /// Gives a name another place.
    fn rename(&self, caller: Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: Rename) -> Reply<()>;
    /// Gives a file a further name.
    fn link(&self, caller: Caller, node: NodeId, parent: NodeId, name: &[u8]) -> Reply<EntryReply>;
    /// Opens a file or a directory.
    ///
    /// # Errors
    /// `ENOSYS`: nothing is opened, and the kernel keeps what it has. It does not ask again then, of files or of directories.
    fn open(&self, node: NodeId, how: OpenHow) -> Reply<Opened> {
        let _ = (node, how);
        Err(Errno::NOSYS)
    }
    /// The last descriptor of an open file was closed.
    fn release(&self, handle: FileHandle) {
        let _ = handle;
    }
    /// Reads from `offset`; fewer bytes than asked only at the end.
    fn read(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Reply<usize>;
    /// Writes at `offset`; how much.
    fn write(&self, node: NodeId, offset: u64, bytes: &[u8], how: WriteHow) -> Reply<usize>;
    /// Makes an inode durable, or only what is needed to read its data back. Of the root, everything. The error of data that was
    /// lost before is reported once to each open file.
    fn sync(&self, node: NodeId, handle: FileHandle, only_data: bool) -> Reply<()>;
    /// Lists a directory from `cookie` on, with attributes if `with_attributes`, until `listing` has no room.
    fn list(&self, node: NodeId, cookie: u64, with_attributes: bool, listing: &mut dyn Listing) -> Reply<()>;
    /// How full it is where an inode is.
    fn statfs(&self, node: NodeId) -> Reply<StatFs>;
    /// An extended attribute.
    fn xattr(&self, node: NodeId, name: &[u8]) -> Reply<Vec<u8>>;
    /// The names of the extended attributes that the caller may know of, each ended by a zero.
    fn list_xattrs(&self, caller: Caller, node: NodeId) -> Reply<Vec<u8>>;
    /// Sets an extended attribute; `flags` as of `setxattr`.
    fn set_xattr(&self, caller: Caller, node: NodeId, name: &[u8], value: &[u8], flags: i32) -> Reply<()>;
    /// Removes an extended attribute.
    fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Reply<()>;
    /// As `fallocate(2)`.
    fn allocate(&self, caller: Caller, node: NodeId, mode: i32, offset: u64, bytes: u64) -> Reply<()>;
    /// As `lseek(2)` with `SEEK_DATA` or `SEEK_HOLE`.
    fn seek(&self, node: NodeId, offset: u64, for_data: bool) -> Reply<u64>;
    /// Where on the device a block of a file is, both counted in blocks of `block_size` bytes; none in a hole. What was written
    /// before is there. As long as the kernel swaps to the file, it lets no program change it.
    ///
    /// # Errors
    /// `ENOSYS` if it is not implemented.
    fn find_block(&self, node: NodeId, block: u64, block_size: u32) -> Reply<Option<u64>> {
        let _ = (node, block, block_size);
        Err(Errno::NOSYS)
    }
    /// As `ioctl(2)`: the bytes for the caller, at most `out_bytes` of them.
    fn ioctl(&self, caller: Caller, node: NodeId, request: &Ioctl<'_>) -> Reply<Vec<u8>>;
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        impl<T: Ops> Ops for Arc<T> {
            $(fn $name(&self, $($argument: $type),*) $(-> $result)? { (**self).$name($($argument),*) })*
        }
    };
}

forward! {
    begin(transport: Transport, notifier: Notifier);
    end();
    lookup(parent: NodeId, name: &[u8]) -> Reply<Result<EntryReply, Duration>>;
    forget(node: NodeId, count: u64);
    attributes(node: NodeId) -> Reply<(Attributes, Duration)>;
    set_attributes(
        caller: Caller,
        node: NodeId,
        set: &SetAttributes,
        size: Option<SetSize>
    ) -> Reply<(Attributes, Duration)>;
    read_link(node: NodeId) -> Reply<Vec<u8>>;
    mknod(caller: Caller, parent: NodeId, name: &[u8], request: &CreateRequest<'_>) -> Reply<EntryReply>;
    create(caller: Caller, parent: NodeId, name: &[u8], request: &CreateRequest<'_>) -> Reply<(EntryReply, Opened)>;
    create_tmpfile(caller: Caller, parent: NodeId, request: &CreateRequest<'_>) -> Reply<(EntryReply, Opened)>;
    unlink(parent: NodeId, name: &[u8]) -> Reply<()>;
    rmdir(parent: NodeId, name: &[u8]) -> Reply<()>;
    rename(caller: Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: Rename) -> Reply<()>;
    link(caller: Caller, node: NodeId, parent: NodeId, name: &[u8]) -> Reply<EntryReply>;
    open(node: NodeId, how: OpenHow) -> Reply<Opened>;
    release(handle: FileHandle);
    read(node: NodeId, offset: u64, buf: &mut [u8]) -> Reply<usize>;
    write(node: NodeId, offset: u64, bytes: &[u8], how: WriteHow) -> Reply<usize>;
    sync(node: NodeId, handle: FileHandle, only_data: bool) -> Reply<()>;
    list(node: NodeId, cookie: u64, with_attributes: bool, listing: &mut dyn Listing) -> Reply<()>;
    statfs(node: NodeId) -> Reply<StatFs>;
    xattr(node: NodeId, name: &[u8]) -> Reply<Vec<u8>>;
    list_xattrs(caller: Caller, node: NodeId) -> Reply<Vec<u8>>;
    set_xattr(caller: Caller, node: NodeId, name: &[u8], value: &[u8], flags: i32) -> Reply<()>;
    remove_xattr(node: NodeId, name: &[u8]) -> Reply<()>;
    allocate(caller: Caller, node: NodeId, mode: i32, offset: u64, bytes: u64) -> Reply<()>;
    seek(node: NodeId, offset: u64, for_data: bool) -> Reply<u64>;
    find_block(node: NodeId, block: u64, block_size: u32) -> Reply<Option<u64>>;
    ioctl(caller: Caller, node: NodeId, request: &Ioctl<'_>) -> Reply<Vec<u8>>;
}

#[cfg(test)]
mod tests {
    use super::{decode_device, encode_device};

    #[test]
    fn device_numbers_come_back() {
        for device in [(1, 3), (8, 300), (0xfff, 0xf_ffff), (0, 0)] {
            assert_eq!(decode_device(encode_device(device)), device);
        }
        assert_eq!(encode_device((8, 1)), 0x801);
    }
}
