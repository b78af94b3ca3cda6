//! The layouts and numbers of the protocol.
//!
//! Source: `include/uapi/linux/fuse.h`, versions 7.31 to 7.45; names as there, without `fuse_` and `FUSE_`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version that both sides must speak.
pub const MAJOR: u32 = 7;
/// The highest minor version that is spoken.
pub const MINOR: u32 = 45;
/// The lowest minor version that the kernel must speak (Linux 5.4).
pub const MINOR_MIN: u32 = 31;

/// Kinds of requests.
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}

/// Bits of INIT; those from 32 on travel in `flags2`.
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// `flags2` is valid.
    pub const INIT_EXT: u64 = 1 << 30;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Bits of SETATTR: what is to change.
pub mod set {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flag of WRITE: the data comes from the kernel's cache.
pub const WRITE_CACHE: u32 = 1 << 0;
/// Flag of WRITE: the set-id bits are to be cleared.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Mask of STATX: the fields of the older `stat`.
pub const STATX_BASIC_STATS: u32 = 0x7ff;
/// Mask of STATX: the birth time.
pub const STATX_BTIME: u32 = 0x800;
/// Flag of an open file: the kernel keeps its cached pages.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// Flag of IOCTL: the caller is a 32-bit program.
pub const IOCTL_COMPAT: u32 = 1 << 0;
/// Flag of FSYNC: sync only what is needed to read the data back.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;

/// The commands of the rings.
pub mod ring {
    /// Hand over an entry's memory, and fetch a request.
    pub const REGISTER: u32 = 1;
    /// Send the reply, and fetch the next request.
    pub const COMMIT_AND_FETCH: u32 = 2;
}

/// Before what follows in an entry's memory (`fuse_uring_req_header`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RingHeader {
    /// The request's header, then the reply's.
    pub in_out: [u8; 128],
    /// The fixed arguments.
    pub op_in: [u8; 128],
    pub entry: RingEntry,
}

/// Unsolicited notifications (`enum fuse_notify_code`), in the place of an error.
pub mod notify {
    pub const INVAL_INODE: i32 = 2;
}

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name { $(pub $field: $type,)* }
        )*
    };
}

layouts! {
    /// Before each request.
    InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        padding: u16,
    }
    /// Before each reply.
    OutHeader { len: u32, error: i32, unique: u64, }
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11], }
    InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }
    Attr {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    EntryOut {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx, }
    StatxTime { seconds: i64, nanoseconds: u32, reserved: i32, }
    Statx {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: StatxTime,
        btime: StatxTime,
        ctime: StatxTime,
        mtime: StatxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }
    SetattrIn {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    ForgetIn { nlookup: u64, }
    BatchForgetIn { count: u32, dummy: u32, }
    ForgetOne { nodeid: u64, nlookup: u64, }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32, }
    /// Arguments of CREATE and TMPFILE.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    /// Arguments of OPEN and OPENDIR.
    OpenIn { flags: u32, open_flags: u32, }
    OpenOut { fh: u64, open_flags: u32, backing_id: i32, }
    /// Arguments of RELEASE and RELEASEDIR.
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    MkdirIn { mode: u32, umask: u32, }
    RenameIn { newdir: u64, }
    Rename2In { newdir: u64, flags: u32, padding: u32, }
    LinkIn { oldnodeid: u64, }
    /// Arguments of READ, READDIR and READDIRPLUS.
    ReadIn {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    WriteIn {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    WriteOut { size: u32, padding: u32, }
    StatfsOut {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32, }
    SetxattrIn { size: u32, flags: u32, }
    /// Arguments of GETXATTR and LISTXATTR.
    GetxattrIn { size: u32, padding: u32, }
    GetxattrOut { size: u32, padding: u32, }
    /// The request whose caller was sent a signal.
    InterruptIn { unique: u64, }
    BmapIn { block: u64, blocksize: u32, padding: u32, }
    BmapOut { block: u64, }
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    /// Unsolicited: what is known of an inode is old.
    InvalidInodeOut { ino: u64, off: i64, len: i64, }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32, }
    LseekOut { offset: u64, }
    /// The part of an entry's header for io_uring (`fuse_uring_ent_in_out`).
    RingEntry { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64, }
    /// In the command (`fuse_uring_cmd_req`).
    RingCommand { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6], }
    /// Before the name in a listing.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32, }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_sizes_of_the_protocol() {
        let sizes = [
            (size_of::<InHeader>(), 40),
            (size_of::<OutHeader>(), 16),
            (size_of::<InitIn>(), 64),
            (size_of::<InitOut>(), 64),
            (size_of::<Attr>(), 88),
            (size_of::<EntryOut>(), 128),
            (size_of::<AttrOut>(), 104),
            (size_of::<SetattrIn>(), 88),
            (size_of::<ReadIn>(), 40),
            (size_of::<WriteIn>(), 40),
            (size_of::<StatfsOut>(), 80),
            (size_of::<BmapIn>(), 16),
            (size_of::<IoctlIn>(), 32),
            (size_of::<InvalidInodeOut>(), 24),
            (size_of::<FallocateIn>(), 32),
            (size_of::<LseekIn>(), 24),
            (size_of::<Dirent>(), 24),
            (size_of::<StatxOut>(), 288),
            (size_of::<CreateIn>(), 16),
            (size_of::<OpenOut>(), 16),
            (size_of::<ReleaseIn>(), 24),
            (size_of::<RingHeader>(), 288),
            (size_of::<RingCommand>(), 24),
        ];
        for (size, expected) in sizes {
            assert_eq!(size, expected);
        }
    }
}
