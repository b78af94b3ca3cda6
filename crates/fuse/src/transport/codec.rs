//! Requests as bytes, and the bytes of their replies.
//!
//! A request has a header, fixed arguments and a payload: names, content. The reply takes the place of the payload; so
//! content is written from the buffer that it came in, and read into the buffer that is sent, without a copy.
//!
//! No decoded length is trusted: a field that is missing or too long gives `EINVAL`.

use std::time::Duration;

use extant::mode::S_IALLUGO;
use extant::{FileType, SetAttributes, Timestamp};
use extant_rt::WallClock;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::wire::{self, opcode};
use crate::ops::{
    Attributes, Caller, CreateRequest, EntryReply, FileHandle, InodeType, Ioctl, Listing, NodeId, OpenHow,
    Opened, Ops, Rename, Reply, SetSize, WriteHow, decode_device,
};

const O_ACCMODE: u32 = 3;
const O_APPEND: u32 = 0o2000;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
/// The longest name, for `statfs`.
const NAME_BYTES_MAX: u32 = 255;

/// A request, and the place of its reply.
#[derive(Debug)]
pub(super) struct Message<'m> {
    /// The header that every request has.
    pub header: wire::InHeader,
    /// The fixed arguments, where they come apart; else `body` begins with them.
    pub fixed: Option<&'m [u8]>,
    /// The payload; the reply is written here from its beginning.
    pub body: &'m mut [u8],
    /// Bytes of `body` that are the request's.
    pub body_bytes: usize,
}

/// The result of answering a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// This many bytes of the body.
    Done(usize),
    /// An error.
    Failed(Errno),
    /// The kernel waits for nothing.
    Silent,
}

impl Message<'_> {
    /// The fixed arguments, and what follows them.
    fn split<T: FromBytes + KnownLayout + Immutable>(&self) -> Reply<(T, &[u8])> {
        let body = self.body.get(..self.body_bytes).ok_or(Errno::INVAL)?;
        let read = T::read_from_prefix;
        match self.fixed {
            Some(fixed) => Ok((read(fixed).map_err(|_| Errno::INVAL)?.0, body)),
            None => read(body).map_err(|_| Errno::INVAL),
        }
    }

    fn fixed<T: FromBytes + KnownLayout + Immutable>(&self) -> Reply<T> {
        Ok(self.split::<T>()?.0)
    }

    const fn node(&self) -> NodeId {
        NodeId(self.header.nodeid)
    }

    const fn caller(&self) -> Caller {
        Caller { uid: self.header.uid, gid: self.header.gid, thread: self.header.pid }
    }

    /// Puts a reply's bytes into the body.
    fn put(&mut self, bytes: &[u8]) -> Reply<usize> {
        self.body.get_mut(..bytes.len()).ok_or(Errno::RANGE)?.copy_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Where up to `bytes` of a reply go.
    fn room(&mut self, bytes: u32) -> Reply<&mut [u8]> {
        self.body.get_mut(..bytes as usize).ok_or(Errno::INVAL)
    }

    /// Has `ops` answer it and writes the reply.
    pub(super) fn answer(&mut self, ops: &impl Ops) -> Outcome {
        match self.header.opcode {
            opcode::FORGET | opcode::BATCH_FORGET => {
                // FORGET has no reply, also if it cannot be read.
                let _ = self.forget(ops);
                Outcome::Silent
            }
            _ => match self.reply(ops) {
                Ok(bytes) => Outcome::Done(bytes),
                Err(error) => Outcome::Failed(error),
            },
        }
    }

    fn forget(&self, ops: &impl Ops) -> Reply<()> {
        if self.header.opcode == opcode::FORGET {
            ops.forget(self.node(), self.fixed::<wire::ForgetIn>()?.nlookup);
            return Ok(());
        }
        let (batch, mut rest) = self.split::<wire::BatchForgetIn>()?;
        for _ in 0..batch.count {
            let (one, behind) = wire::ForgetOne::read_from_prefix(rest).map_err(|_| Errno::INVAL)?;
            ops.forget(NodeId(one.nodeid), one.nlookup);
            rest = behind;
        }
        Ok(())
    }

    fn reply(&mut self, ops: &impl Ops) -> Reply<usize> {
        let node = self.node();
        match self.header.opcode {
            opcode::LOOKUP => self.lookup(ops),
            opcode::GETATTR => {
                let found = ops.attributes(node)?;
                self.put(attributes_out(found).as_bytes())
            }
            opcode::STATX => {
                let found = ops.attributes(node)?;
                self.put(statx_out(found).as_bytes())
            }
            opcode::SETATTR => {
                let (set, size) = changes(&self.fixed()?);
                let changed = ops.set_attributes(self.caller(), node, &set, size)?;
                self.put(attributes_out(changed).as_bytes())
            }
            opcode::READLINK => {
                let target = ops.read_link(node)?;
                self.put(&target)
            }
            opcode::SYMLINK | opcode::MKNOD | opcode::MKDIR => self.mknod(ops),
            opcode::CREATE | opcode::TMPFILE => self.create(ops),
            opcode::UNLINK => ops.unlink(node, self.name()?).map(|()| 0),
            opcode::RMDIR => ops.rmdir(node, self.name()?).map(|()| 0),
            opcode::RENAME => {
                let (fixed, names) = self.split::<wire::RenameIn>()?;
                rename(ops, self.caller(), (node, NodeId(fixed.newdir)), names, 0)
            }
            opcode::RENAME2 => {
                let (fixed, names) = self.split::<wire::Rename2In>()?;
                rename(ops, self.caller(), (node, NodeId(fixed.newdir)), names, fixed.flags)
            }
            opcode::LINK => {
                let (fixed, names) = self.split::<wire::LinkIn>()?;
                let entry = ops.link(self.caller(), NodeId(fixed.oldnodeid), node, name(names)?.0)?;
                self.put(entry_out(&entry).as_bytes())
            }
            opcode::OPEN | opcode::OPENDIR => {
                let fixed: wire::OpenIn = self.fixed()?;
                let how = OpenHow {
                    write: fixed.flags & O_ACCMODE != 0,
                    append: fixed.flags & O_APPEND != 0,
                    directory: self.header.opcode == opcode::OPENDIR,
                };
                let opened = ops.open(node, how)?;
                self.put(open_out(opened).as_bytes())
            }
            opcode::READ => {
                let fixed: wire::ReadIn = self.fixed()?;
                ops.read(node, fixed.offset, self.room(fixed.size)?)
            }
            opcode::WRITE => self.write(ops),
            opcode::STATFS => self.statfs(ops, node),
            opcode::FSYNC | opcode::FSYNCDIR => {
                let fixed: wire::FsyncIn = self.fixed()?;
                let only_data = fixed.fsync_flags & wire::FSYNC_FDATASYNC != 0;
                ops.sync(node, FileHandle(fixed.fh), only_data).map(|()| 0)
            }
            opcode::SYNCFS => ops.sync(NodeId::ROOT, FileHandle::NONE, false).map(|()| 0),
            opcode::SETXATTR => {
                let (fixed, rest) = self.split::<wire::SetxattrIn>()?;
                let (name, value) = name(rest)?;
                let value = value.get(..fixed.size as usize).ok_or(Errno::INVAL)?;
                ops.set_xattr(self.caller(), node, name, value, fixed.flags.cast_signed()).map(|()| 0)
            }
            opcode::GETXATTR => {
                let (fixed, names) = self.split::<wire::GetxattrIn>()?;
                let value = ops.xattr(node, name(names)?.0)?;
                self.put_value(&value, fixed.size)
            }
            opcode::LISTXATTR => {
                let fixed: wire::GetxattrIn = self.fixed()?;
                let names = ops.list_xattrs(self.caller(), node)?;
                self.put_value(&names, fixed.size)
            }
            opcode::REMOVEXATTR => ops.remove_xattr(node, self.name()?).map(|()| 0),
            opcode::READDIR | opcode::READDIRPLUS => self.list(ops),
            opcode::IOCTL => self.ioctl(ops),
            opcode::FALLOCATE => {
                let fixed: wire::FallocateIn = self.fixed()?;
                let mode = fixed.mode.cast_signed();
                ops.allocate(self.caller(), node, mode, fixed.offset, fixed.length).map(|()| 0)
            }
            opcode::LSEEK => self.seek(ops),
            opcode::BMAP => {
                let fixed: wire::BmapIn = self.fixed()?;
                let block = ops.find_block(node, fixed.block, fixed.blocksize)?;
                self.put(wire::BmapOut { block: block.unwrap_or(0) }.as_bytes())
            }
            opcode::DESTROY => {
                ops.end();
                Ok(0)
            }
            opcode::RELEASE => {
                ops.release(FileHandle(self.fixed::<wire::ReleaseIn>()?.fh));
                Ok(0)
            }
            // Open directories are kept nowhere.
            opcode::RELEASEDIR => Ok(0),
            // Among others FLUSH, which the kernel then does without: as on the kernel's ext4, closing reports nothing; and
            // COPY_FILE_RANGE, which it then does itself.
            _ => Err(Errno::NOSYS),
        }
    }

    /// The name of a request that has nothing else.
    fn name(&self) -> Reply<&[u8]> {
        let body = self.body.get(..self.body_bytes).ok_or(Errno::INVAL)?;
        Ok(name(body)?.0)
    }

    fn lookup(&mut self, ops: &impl Ops) -> Reply<usize> {
        let out = match ops.lookup(self.node(), self.name()?)? {
            Ok(entry) => entry_out(&entry),
            Err(Duration::ZERO) => return Err(Errno::NOENT),
            // Node 0 says that there is none, and for how long that is so.
            Err(lifetime) => wire::EntryOut {
                entry_valid: lifetime.as_secs(),
                entry_valid_nsec: lifetime.subsec_nanos(),
                ..wire::EntryOut::default()
            },
        };
        self.put(out.as_bytes())
    }

    fn mknod(&mut self, ops: &impl Ops) -> Reply<usize> {
        let (kind, mode, umask, name) = match self.header.opcode {
            opcode::MKDIR => {
                let (fixed, rest) = self.split::<wire::MkdirIn>()?;
                (InodeType::Directory, fixed.mode, fixed.umask, name(rest)?.0)
            }
            opcode::SYMLINK => {
                let (link, rest) = name(self.body.get(..self.body_bytes).ok_or(Errno::INVAL)?)?;
                (InodeType::Symlink(name(rest)?.0), 0o777, 0, link)
            }
            _ => {
                let (fixed, rest) = self.split::<wire::MknodIn>()?;
                let kind = match FileType::from_mode(fixed.mode as u16) {
                    FileType::Regular => InodeType::File,
                    _ if fixed.mode as u16 & FileType::MODE_MASK == 0 => InodeType::File,
                    file_type => InodeType::Special(file_type, fixed.rdev),
                };
                (kind, fixed.mode, fixed.umask, name(rest)?.0)
            }
        };
        let request = CreateRequest { kind, mode: mode as u16 & S_IALLUGO, umask: umask as u16 };
        let entry = ops.mknod(self.caller(), self.node(), name, &request)?;
        self.put(entry_out(&entry).as_bytes())
    }

    fn create(&mut self, ops: &impl Ops) -> Reply<usize> {
        let (fixed, rest) = self.split::<wire::CreateIn>()?;
        let (mode, umask) = (fixed.mode as u16 & S_IALLUGO, fixed.umask as u16);
        let request = CreateRequest { kind: InodeType::File, mode, umask };
        let (entry, opened) = match self.header.opcode {
            opcode::TMPFILE => ops.create_tmpfile(self.caller(), self.node(), &request)?,
            _ => ops.create(self.caller(), self.node(), name(rest)?.0, &request)?,
        };
        self.put(&[entry_out(&entry).as_bytes(), open_out(opened).as_bytes()].concat())
    }

    fn write(&mut self, ops: &impl Ops) -> Reply<usize> {
        let (fixed, rest) = self.split::<wire::WriteIn>()?;
        let bytes = rest.get(..fixed.size as usize).ok_or(Errno::INVAL)?;
        let how = WriteHow {
            append: fixed.flags & O_APPEND != 0,
            remove_set_id: fixed.write_flags & wire::WRITE_KILL_SUIDGID != 0,
            is_late: fixed.write_flags & wire::WRITE_CACHE != 0,
        };
        let written = ops.write(self.node(), fixed.offset, bytes, how)?;
        // At most the requested size, which has 32 bits.
        self.put(wire::WriteOut { size: written as u32, padding: 0 }.as_bytes())
    }

    fn statfs(&mut self, ops: &impl Ops, node: NodeId) -> Reply<usize> {
        let full = ops.statfs(node)?;
        let out = wire::StatfsOut {
            blocks: full.blocks,
            bfree: full.free_blocks,
            bavail: full.available_blocks,
            files: full.inodes,
            ffree: full.free_inodes,
            bsize: full.block_size,
            namelen: NAME_BYTES_MAX,
            frsize: full.block_size,
            ..wire::StatfsOut::default()
        };
        self.put(out.as_bytes())
    }

    /// Puts a value, its size if 0 bytes were asked for, or `ERANGE`.
    fn put_value(&mut self, value: &[u8], size: u32) -> Reply<usize> {
        if size == 0 {
            let size = u32::try_from(value.len()).map_err(|_| Errno::RANGE)?;
            return self.put(wire::GetxattrOut { size, padding: 0 }.as_bytes());
        }
        if value.len() > size as usize { Err(Errno::RANGE) } else { self.put(value) }
    }

    fn list(&mut self, ops: &impl Ops) -> Reply<usize> {
        let fixed: wire::ReadIn = self.fixed()?;
        let (node, with_attributes) = (self.node(), self.header.opcode == opcode::READDIRPLUS);
        let mut names = Names { room: self.room(fixed.size)?, bytes: 0 };
        ops.list(node, fixed.offset, with_attributes, &mut names)?;
        Ok(names.bytes)
    }

    fn ioctl(&mut self, ops: &impl Ops) -> Reply<usize> {
        let (fixed, rest) = self.split::<wire::IoctlIn>()?;
        let input = rest.get(..fixed.in_size as usize).ok_or(Errno::INVAL)?;
        let request = Ioctl {
            command: fixed.cmd,
            input,
            out_bytes: fixed.out_size,
            is_compat: fixed.flags & wire::IOCTL_COMPAT != 0,
            // A caller's argument is an address, from which the kernel has read; its own requests have none.
            is_permitted: fixed.arg == 0,
        };
        let output = ops.ioctl(self.caller(), self.node(), &request)?;
        let head = self.put(wire::IoctlOut::default().as_bytes())?;
        let place = self.body.get_mut(head..head + output.len()).ok_or(Errno::RANGE)?;
        place.copy_from_slice(&output);
        Ok(head + output.len())
    }

    fn seek(&mut self, ops: &impl Ops) -> Reply<usize> {
        let fixed: wire::LseekIn = self.fixed()?;
        let for_data = match fixed.whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return Err(Errno::INVAL),
        };
        if fixed.offset > i64::MAX as u64 {
            return Err(Errno::NXIO);
        }
        let offset = ops.seek(self.node(), fixed.offset, for_data)?;
        self.put(wire::LseekOut { offset }.as_bytes())
    }
}

/// A name up to its zero, and what follows.
fn name(bytes: &[u8]) -> Reply<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

fn rename(
    ops: &impl Ops,
    caller: Caller,
    (from, to): (NodeId, NodeId),
    names: &[u8],
    flags: u32,
) -> Reply<usize> {
    if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) != 0 {
        return Err(Errno::INVAL);
    }
    let (old, rest) = name(names)?;
    let how = Rename {
        no_replace: flags & RENAME_NOREPLACE != 0,
        exchange: flags & RENAME_EXCHANGE != 0,
        whiteout: flags & RENAME_WHITEOUT != 0,
    };
    ops.rename(caller, (from, old), (to, name(rest)?.0), how).map(|()| 0)
}

fn changes(fixed: &wire::SetattrIn) -> (SetAttributes, Option<SetSize>) {
    let has = |bit| fixed.valid & bit != 0;
    let at = |seconds: u64, nanoseconds| Timestamp { seconds: seconds.cast_signed(), nanoseconds };
    let (seconds, nanoseconds) = WallClock::System.now();
    let now = Timestamp { seconds, nanoseconds };
    let touch = has(wire::set::ATIME_NOW) && has(wire::set::MTIME_NOW);
    let time = |bit, is_now, told| (has(bit) && !touch).then_some(if has(is_now) { now } else { told });
    let set = SetAttributes {
        mode: has(wire::set::MODE).then_some(fixed.mode as u16 & S_IALLUGO),
        uid: has(wire::set::UID).then_some(fixed.uid),
        gid: has(wire::set::GID).then_some(fixed.gid),
        atime: time(wire::set::ATIME, wire::set::ATIME_NOW, at(fixed.atime, fixed.atimensec)),
        mtime: time(wire::set::MTIME, wire::set::MTIME_NOW, at(fixed.mtime, fixed.mtimensec)),
        touch,
        ctime: has(wire::set::CTIME).then_some(at(fixed.ctime, fixed.ctimensec)),
        ..SetAttributes::default()
    };
    let size = SetSize { bytes: fixed.size, remove_set_id: has(wire::set::KILL_SUIDGID) };
    (set, has(wire::set::SIZE).then_some(size))
}

/// The bits of `st_mode` that say what an inode is.
const fn type_bits(file_type: FileType) -> u32 {
    // An unknown type is shown as a regular file.
    let shown = if matches!(file_type, FileType::Unknown) { FileType::Regular } else { file_type };
    shown.mode_bits() as u32
}

fn attr(attributes: &Attributes) -> wire::Attr {
    wire::Attr {
        ino: attributes.inode,
        size: attributes.size,
        blocks: attributes.blocks_512,
        atime: attributes.atime.seconds.cast_unsigned(),
        mtime: attributes.mtime.seconds.cast_unsigned(),
        ctime: attributes.ctime.seconds.cast_unsigned(),
        atimensec: attributes.atime.nanoseconds,
        mtimensec: attributes.mtime.nanoseconds,
        ctimensec: attributes.ctime.nanoseconds,
        mode: type_bits(attributes.file_type) | u32::from(attributes.mode),
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        blksize: attributes.block_size,
        flags: 0,
    }
}

fn attributes_out((attributes, lifetime): (Attributes, Duration)) -> wire::AttrOut {
    wire::AttrOut {
        attr_valid: lifetime.as_secs(),
        attr_valid_nsec: lifetime.subsec_nanos(),
        dummy: 0,
        attr: attr(&attributes),
    }
}

fn statx_out((attributes, lifetime): (Attributes, Duration)) -> wire::StatxOut {
    let time = |time: Timestamp| wire::StatxTime {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
        reserved: 0,
    };
    let (major, minor) = decode_device(attributes.device);
    let birth = if attributes.birth.is_some() { wire::STATX_BTIME } else { 0 };
    let stat = wire::Statx {
        mask: wire::STATX_BASIC_STATS | birth,
        blksize: attributes.block_size,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        mode: type_bits(attributes.file_type) as u16 | attributes.mode,
        ino: attributes.inode,
        size: attributes.size,
        blocks: attributes.blocks_512,
        atime: time(attributes.atime),
        btime: attributes.birth.map_or_else(Default::default, time),
        ctime: time(attributes.ctime),
        mtime: time(attributes.mtime),
        rdev_major: major,
        rdev_minor: minor,
        ..wire::Statx::default()
    };
    wire::StatxOut {
        attr_valid: lifetime.as_secs(),
        attr_valid_nsec: lifetime.subsec_nanos(),
        stat,
        ..wire::StatxOut::default()
    }
}

fn entry_out(entry: &EntryReply) -> wire::EntryOut {
    wire::EntryOut {
        nodeid: entry.node.0,
        generation: entry.generation,
        entry_valid: entry.name_lifetime.as_secs(),
        attr_valid: entry.attributes_lifetime.as_secs(),
        entry_valid_nsec: entry.name_lifetime.subsec_nanos(),
        attr_valid_nsec: entry.attributes_lifetime.subsec_nanos(),
        attr: attr(&entry.attributes),
    }
}

fn open_out(opened: Opened) -> wire::OpenOut {
    let open_flags = if opened.keeps_content { wire::FOPEN_KEEP_CACHE } else { 0 };
    wire::OpenOut { fh: opened.handle.0, open_flags, ..wire::OpenOut::default() }
}

/// Writes a listing.
struct Names<'b> {
    room: &'b mut [u8],
    bytes: usize,
}

impl Names<'_> {
    /// Adds a record, whose length is a multiple of 8; false if it does not fit.
    fn add(&mut self, before: &[u8], dirent: wire::Dirent, name: &[u8]) -> bool {
        let bytes = (before.len() + size_of::<wire::Dirent>() + name.len()).next_multiple_of(8);
        let Some(mut place) = self.room.get_mut(self.bytes..self.bytes + bytes) else { return false };
        for part in [before, dirent.as_bytes(), name] {
            let (here, behind) = place.split_at_mut(part.len());
            here.copy_from_slice(part);
            place = behind;
        }
        place.fill(0);
        self.bytes += bytes;
        true
    }
}

fn dirent(name: &[u8], ino: u64, file_type: FileType, off: u64) -> wire::Dirent {
    // The kernel takes names of 255 bytes at most, as the disk does.
    wire::Dirent { ino, off, namelen: name.len() as u32, kind: type_bits(file_type) >> 12 }
}

impl Listing for Names<'_> {
    fn name(&mut self, name: &[u8], inode: u64, file_type: FileType, next_cookie: u64) -> bool {
        self.add(&[], dirent(name, inode, file_type, next_cookie), name)
    }

    fn entry(&mut self, name: &[u8], entry: &EntryReply, next_cookie: u64) -> bool {
        let attributes = &entry.attributes;
        let dirent = dirent(name, attributes.inode, attributes.file_type, next_cookie);
        self.add(entry_out(entry).as_bytes(), dirent, name)
    }
}

#[cfg(test)]
mod tests;
