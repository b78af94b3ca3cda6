//! An empty file system behind the same transport: names and inodes in plain tables, no disk format, no journal.
//!
//! It answers the requests that [`extant_fuse::Server`] answers, with the same lifetimes and as many copies of what is
//! read and written, so that what Extant takes longer is the engine's and its server's, not the kernel's or the
//! transport's. It leaves out what the loads do not ask for: permissions beyond the kernel's, attributes beyond
//! `stat`, allocation ahead.
//!
//! Locks: an inode's, then that of a name's inode; over them one of the table. The kernel, whose directory locks are
//! held meanwhile, keeps two renames from crossing.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use extant::mode::S_ISGID;
use extant::{FileType, SetAttributes, Timestamp};
use extant_fuse::ops::{
    Attributes, Caller, CreateRequest, EntryReply, FileHandle, InodeType, Ioctl, Listing, NodeId, Rename,
    Reply, SetSize, StatFs, WriteHow,
};
use extant_fuse::{MountOptions, Ops, Session};
use rustix::io::Errno;

use super::store::{Content, Store};
use crate::Result;

/// As Extant's.
const LIFETIME: Duration = Duration::from_secs(3600);
const SHARDS: u64 = 64;
const BLOCK_BYTES: u32 = 4096;
/// Cookies of `.` and `..`; those of names follow.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// What `statfs` tells; nothing is counted.
const BLOCKS: u64 = 1 << 20;

/// Mounts an empty file system at `point` and serves it until it is unmounted. What is written goes to `image`, which
/// is made, or stays in memory.
pub fn serve(point: &Path, image: Option<&Path>) -> Result<()> {
    let options =
        MountOptions { source: "extant-bench".into(), allow_other: true, ..MountOptions::default() };
    Session::mount(Tree::new(Store::new(image)?), point, &options)?.run()?;
    Ok(())
}

/// The names in a directory.
struct DirectoryNames {
    parent: NodeId,
    by_name: HashMap<Vec<u8>, (NodeId, u64)>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
    next_cookie: u64,
}

impl DirectoryNames {
    fn new(parent: NodeId) -> Self {
        let next_cookie = DOT_DOT + 1;
        Self { parent, by_name: HashMap::new(), by_cookie: BTreeMap::new(), next_cookie }
    }

    fn insert(&mut self, name: &[u8], node: NodeId) {
        self.by_name.insert(name.to_vec(), (node, self.next_cookie));
        self.by_cookie.insert(self.next_cookie, name.to_vec());
        self.next_cookie += 1;
    }

    fn remove(&mut self, name: &[u8]) -> Reply<NodeId> {
        let (node, cookie) = self.by_name.remove(name).ok_or(Errno::NOENT)?;
        self.by_cookie.remove(&cookie);
        Ok(node)
    }
}

enum Body {
    Directory(DirectoryNames),
    File(Content),
    Symlink(Vec<u8>),
    Special,
}

/// An inode.
struct Inode {
    attributes: Attributes,
    /// Uses that the kernel has.
    uses: u64,
    body: Body,
}

impl Inode {
    fn names(&mut self) -> Reply<&mut DirectoryNames> {
        match &mut self.body {
            Body::Directory(names) => Ok(names),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn set_size(&mut self, size: u64) {
        self.attributes.size = size;
        self.attributes.blocks_512 = size.div_ceil(u64::from(BLOCK_BYTES)) * u64::from(BLOCK_BYTES / 512);
    }

    fn is_directory(&self) -> bool {
        self.attributes.file_type == FileType::Directory
    }

    /// Notes a change of names or content.
    fn touch(&mut self, now: Timestamp) {
        self.attributes.mtime = now;
        self.attributes.ctime = now;
    }

    /// One more use for the kernel.
    fn give(&mut self, node: NodeId) -> EntryReply {
        self.uses += 1;
        entry_of(node, self.attributes)
    }
}

type Node = Arc<Mutex<Inode>>;

/// A part of the table, on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<HashMap<u64, Node>>);

/// The file system.
struct Tree {
    shards: Vec<Shard>,
    next_node: AtomicU64,
    store: Store,
}

/// The tables are whole between any two statements that could panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
}

fn entry_of(node: NodeId, attributes: Attributes) -> EntryReply {
    EntryReply { node, generation: 0, attributes, name_lifetime: LIFETIME, attributes_lifetime: LIFETIME }
}

fn failed(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn new_attributes(node: NodeId, file_type: FileType, mode: u16, uid: u32, gid: u32) -> Attributes {
    let now = now();
    Attributes {
        inode: node.0,
        file_type,
        mode,
        links: if file_type == FileType::Directory { 2 } else { 1 },
        uid,
        gid,
        size: 0,
        blocks_512: 0,
        atime: now,
        mtime: now,
        ctime: now,
        birth: None,
        device: 0,
        block_size: BLOCK_BYTES,
    }
}

impl Tree {
    fn new(store: Store) -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        let tree = Self { shards, next_node: AtomicU64::new(NodeId::ROOT.0 + 1), store };
        let attributes = new_attributes(NodeId::ROOT, FileType::Directory, 0o755, 0, 0);
        tree.hold(
            NodeId::ROOT,
            Inode { attributes, uses: 1, body: Body::Directory(DirectoryNames::new(NodeId::ROOT)) },
        );
        tree
    }

    fn shard(&self, node: NodeId) -> MutexGuard<'_, HashMap<u64, Node>> {
        lock(&self.shards[(node.0 % SHARDS) as usize].0)
    }

    fn get(&self, node: NodeId) -> Reply<Node> {
        self.shard(node).get(&node.0).cloned().ok_or(Errno::STALE)
    }

    fn hold(&self, node: NodeId, inode: Inode) {
        self.shard(node).insert(node.0, Arc::new(Mutex::new(inode)));
    }

    /// Removes an inode that has neither names nor uses.
    fn drop_unused(&self, node: NodeId, inode: MutexGuard<'_, Inode>) {
        if inode.attributes.links == 0 && inode.uses == 0 {
            drop(inode);
            let gone = self.shard(node).remove(&node.0);
            drop(gone);
        }
    }

    /// Takes a name's link away from its inode; of a directory, all.
    fn unname(&self, parent: &mut Inode, child: NodeId, now: Timestamp) -> Reply<()> {
        let held = self.get(child)?;
        let mut inode = lock(&held);
        inode.attributes.links -= 1;
        inode.attributes.ctime = now;
        if inode.is_directory() {
            inode.attributes.links = 0;
            parent.attributes.links -= 1;
        }
        self.drop_unused(child, inode);
        Ok(())
    }

    /// The kernel has checked whether it is a directory.
    fn remove_name(&self, parent: NodeId, name: &[u8]) -> Reply<()> {
        let dir = self.get(parent)?;
        let mut dir = lock(&dir);
        let child = dir.names()?.by_name.get(name).ok_or(Errno::NOENT)?.0;
        self.check_removable(child)?;
        dir.names()?.remove(name)?;
        let now = now();
        dir.touch(now);
        self.unname(&mut dir, child, now)
    }

    /// That it is no directory with names in it.
    fn check_removable(&self, node: NodeId) -> Reply<()> {
        match &lock(&*self.get(node)?).body {
            Body::Directory(names) if !names.by_name.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }
}

impl Ops for Tree {
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Reply<Result<EntryReply, Duration>> {
        let found = lock(&*self.get(parent)?).names()?.by_name.get(name).copied();
        let Some((child, _)) = found else { return Ok(Err(LIFETIME)) };
        let held = self.get(child)?;
        let entry = lock(&held).give(child);
        Ok(Ok(entry))
    }

    fn forget(&self, node: NodeId, count: u64) {
        let Ok(held) = self.get(node) else { return };
        let mut inode = lock(&held);
        inode.uses = inode.uses.saturating_sub(count);
        if node != NodeId::ROOT {
            self.drop_unused(node, inode);
        }
    }

    fn attributes(&self, node: NodeId) -> Reply<(Attributes, Duration)> {
        let held = self.get(node)?;
        let attributes = lock(&held).attributes;
        Ok((attributes, LIFETIME))
    }

    fn set_attributes(
        &self,
        _: Caller,
        node: NodeId,
        set: &SetAttributes,
        size: Option<SetSize>,
    ) -> Reply<(Attributes, Duration)> {
        let held = self.get(node)?;
        let mut inode = lock(&held);
        let now = now();
        if let Some(SetSize { bytes: size, .. }) = size {
            let Body::File(content) = &mut inode.body else { return Err(Errno::INVAL) };
            self.store.set_len(content, size).map_err(failed)?;
            inode.set_size(size);
            inode.touch(now);
        }
        let attributes = &mut inode.attributes;
        attributes.mode = set.mode.unwrap_or(attributes.mode);
        attributes.uid = set.uid.unwrap_or(attributes.uid);
        attributes.gid = set.gid.unwrap_or(attributes.gid);
        attributes.atime = set.atime.unwrap_or(attributes.atime);
        attributes.mtime = set.mtime.unwrap_or(attributes.mtime);
        attributes.ctime = set.ctime.unwrap_or(now);
        Ok((*attributes, LIFETIME))
    }

    fn read_link(&self, node: NodeId) -> Reply<Vec<u8>> {
        match &lock(&*self.get(node)?).body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    fn mknod(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        request: &CreateRequest<'_>,
    ) -> Reply<EntryReply> {
        let dir = self.get(parent)?;
        let mut dir = lock(&dir);
        if dir.names()?.by_name.contains_key(name) {
            return Err(Errno::EXIST);
        }
        // Alone a source of numbers.
        let node = NodeId(self.next_node.fetch_add(1, Ordering::Relaxed));
        let (file_type, body, device, size) = match request.kind {
            InodeType::File => (FileType::Regular, Body::File(Content::default()), 0, 0),
            InodeType::Directory => (FileType::Directory, Body::Directory(DirectoryNames::new(parent)), 0, 0),
            InodeType::Symlink(target) => {
                (FileType::Symlink, Body::Symlink(target.to_vec()), 0, target.len() as u64)
            }
            InodeType::Special(file_type, device) => (file_type, Body::Special, device, 0),
        };
        let inherits = dir.attributes.mode & S_ISGID != 0;
        let gid = if inherits { dir.attributes.gid } else { caller.gid };
        let mut mode = request.mode & !request.umask;
        if file_type == FileType::Directory {
            mode |= dir.attributes.mode & S_ISGID;
            dir.attributes.links += 1;
        }
        let mut attributes = new_attributes(node, file_type, mode, caller.uid, gid);
        attributes.device = device;
        attributes.size = size;
        dir.touch(attributes.ctime);
        let mut inode = Inode { attributes, uses: 0, body };
        let entry = inode.give(node);
        self.hold(node, inode);
        dir.names()?.insert(name, node);
        Ok(entry)
    }

    fn unlink(&self, parent: NodeId, name: &[u8]) -> Reply<()> {
        self.remove_name(parent, name)
    }

    fn rmdir(&self, parent: NodeId, name: &[u8]) -> Reply<()> {
        self.remove_name(parent, name)
    }

    fn rename(&self, _: Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: Rename) -> Reply<()> {
        if how.exchange || how.whiteout {
            return Err(Errno::INVAL);
        }
        let (source, target) = (self.get(from.0)?, self.get(to.0)?);
        let mut source = lock(&source);
        let mut target = if from.0 == to.0 { None } else { Some(lock(&target)) };
        let child = source.names()?.by_name.get(from.1).ok_or(Errno::NOENT)?.0;
        let names = target.as_deref_mut().unwrap_or(&mut *source).names()?;
        let replaced = names.by_name.get(to.1).map(|(node, _)| *node);
        if how.no_replace && replaced.is_some() {
            return Err(Errno::EXIST);
        }
        if replaced == Some(child) {
            // Two names of one file stay.
            return Ok(());
        }
        if let Some(replaced) = replaced {
            self.check_removable(replaced)?;
        }
        let now = now();
        source.names()?.remove(from.1)?;
        source.touch(now);
        let held = self.get(child)?;
        let mut inode = lock(&held);
        inode.attributes.ctime = now;
        if let Body::Directory(names) = &mut inode.body {
            names.parent = to.0;
            source.attributes.links -= 1;
        }
        let is_directory = inode.is_directory();
        drop(inode);
        let dir = target.as_deref_mut().unwrap_or(&mut *source);
        dir.attributes.links += u32::from(is_directory);
        if let Some(replaced) = replaced {
            dir.names()?.remove(to.1)?;
            self.unname(dir, replaced, now)?;
        }
        dir.names()?.insert(to.1, child);
        dir.touch(now);
        Ok(())
    }

    fn link(&self, _: Caller, node: NodeId, parent: NodeId, name: &[u8]) -> Reply<EntryReply> {
        let dir = self.get(parent)?;
        let mut dir = lock(&dir);
        if dir.names()?.by_name.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let held = self.get(node)?;
        let mut inode = lock(&held);
        let now = now();
        dir.names()?.insert(name, node);
        dir.touch(now);
        inode.attributes.links += 1;
        inode.attributes.ctime = now;
        Ok(inode.give(node))
    }

    fn read(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Reply<usize> {
        let held = self.get(node)?;
        let inode = lock(&held);
        let Body::File(content) = &inode.body else { return Err(Errno::INVAL) };
        let left = inode.attributes.size.saturating_sub(offset);
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        if bytes > 0 {
            self.store.read(content, offset, &mut buf[..bytes]).map_err(failed)?;
        }
        Ok(bytes)
    }

    fn write(&self, node: NodeId, offset: u64, bytes: &[u8], _: WriteHow) -> Reply<usize> {
        let held = self.get(node)?;
        let mut inode = lock(&held);
        let end = offset + bytes.len() as u64;
        let Body::File(content) = &mut inode.body else { return Err(Errno::INVAL) };
        self.store.write(content, offset, bytes).map_err(failed)?;
        if end > inode.attributes.size {
            inode.set_size(end);
        }
        inode.touch(now());
        Ok(bytes.len())
    }

    fn sync(&self, _: NodeId, _: FileHandle, _: bool) -> Reply<()> {
        Ok(())
    }

    fn list(&self, node: NodeId, cookie: u64, with_attributes: bool, listing: &mut dyn Listing) -> Reply<()> {
        let held = self.get(node)?;
        let mut dir = lock(&held);
        let own = dir.attributes;
        let names = dir.names()?;
        for (name, inode, next) in [(".", node, DOT), ("..", names.parent, DOT_DOT)] {
            // The kernel takes neither attributes nor a use of these.
            let entry = entry_of(inode, Attributes { inode: inode.0, ..own });
            let has_room = cookie >= next
                || if with_attributes {
                    listing.entry(name.as_bytes(), &entry, next)
                } else {
                    listing.name(name.as_bytes(), inode.0, FileType::Directory, next)
                };
            if !has_room {
                return Ok(());
            }
        }
        for (next, name) in names.by_cookie.range((Bound::Excluded(cookie.max(DOT_DOT)), Bound::Unbounded)) {
            let child = names.by_name[name].0;
            let held = self.get(child)?;
            let mut inode = lock(&held);
            let has_room = if with_attributes {
                let entry = inode.give(child);
                let has_room = listing.entry(name, &entry, *next);
                inode.uses -= u64::from(!has_room);
                has_room
            } else {
                listing.name(name, child.0, inode.attributes.file_type, *next)
            };
            if !has_room {
                break;
            }
        }
        Ok(())
    }

    fn statfs(&self, _: NodeId) -> Reply<StatFs> {
        Ok(StatFs {
            block_size: BLOCK_BYTES,
            blocks: BLOCKS,
            free_blocks: BLOCKS,
            available_blocks: BLOCKS,
            inodes: BLOCKS,
            free_inodes: BLOCKS,
        })
    }

    fn xattr(&self, node: NodeId, _: &[u8]) -> Reply<Vec<u8>> {
        self.get(node)?;
        Err(Errno::NODATA)
    }

    fn list_xattrs(&self, _: Caller, node: NodeId) -> Reply<Vec<u8>> {
        self.get(node)?;
        Ok(Vec::new())
    }

    fn set_xattr(&self, _: Caller, _: NodeId, _: &[u8], _: &[u8], _: i32) -> Reply<()> {
        Err(Errno::OPNOTSUPP)
    }

    fn remove_xattr(&self, _: NodeId, _: &[u8]) -> Reply<()> {
        Err(Errno::NODATA)
    }

    fn allocate(&self, _: Caller, _: NodeId, _: i32, _: u64, _: u64) -> Reply<()> {
        Err(Errno::OPNOTSUPP)
    }

    fn seek(&self, node: NodeId, offset: u64, for_data: bool) -> Reply<u64> {
        let size = lock(&*self.get(node)?).attributes.size;
        if offset >= size {
            return Err(Errno::NXIO);
        }
        Ok(if for_data { offset } else { size })
    }

    fn ioctl(&self, _: Caller, _: NodeId, _: &Ioctl<'_>) -> Reply<Vec<u8>> {
        Err(Errno::NOTTY)
    }
}
