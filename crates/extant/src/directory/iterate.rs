//! Reading the names of a directory, with cookies that stay valid while it changes.
//!
//! A cookie says after which name to continue. In a directory that is or will be indexed it is made of the name's
//! hash, so that neither a split nor the conversion moves anything: 31 bits of the major and 32 of the minor hash. A
//! directory of several blocks that never will be indexed is read in the order of its bytes, which never move.
//!
//! A name that exists throughout is seen once. Two names with the same 63 bits follow each other; a reader that stops
//! between them does not see the second.
//!
//! Locks: `INODE` of the directory and, of one that is shared, `INDEX`, both shared, for one batch of names at a time; none while `visit` runs.
//!
//! Source: `ext4_readdir`, `ext4_dx_readdir` of `fs/ext4/dir.c`, `ext4_htree_fill_tree` of `fs/ext4/namei.c`.

use std::borrow::Cow;

use extant_ondisk::dir_hash::{DirHasher, NameHash};
use extant_ondisk::dirent::DirEntry;
use extant_ondisk::{
    FileType, InodeFlags, InodeNumber, LogicalBlock, RawInode, Structure, crc32c, dirent, nokey,
};
use extant_rt::{Arc, share_work};

use super::index::{Next, index_place};
use super::place_in;
use crate::directory::Directories;
use crate::error::{Error, Location, Result};
use crate::incore::buffer::BufferKind;
use crate::incore::inode::Inode;

/// A name of a directory, as [`crate::Dir::read_from`] returns it.
#[derive(Clone, Copy, Debug)]
pub struct DirItem<'n> {
    /// The name, in bytes.
    pub name: &'n [u8],
    /// Its inode.
    pub inode: InodeNumber,
    /// Its type, if the directory stores types.
    pub file_type: Option<FileType>,
    /// Where to go on behind it.
    pub next_cookie: u64,
}

/// An item that outlives the lock.
struct Held {
    cookie: u64,
    name: Vec<u8>,
    inode: InodeNumber,
    file_type: u8,
}

/// Names, and the cookie of those to come, if any may.
struct Batch {
    items: Vec<Held>,
    next: Option<u64>,
    /// The damage that kept other names from being read.
    damage: Result<()>,
}

impl Batch {
    fn new(items: Vec<Held>, next: Option<u64>) -> Self {
        Self { items, next, damage: Ok(()) }
    }
}

/// Names to be looked for at a time where an order has to be made by going through all of them.
const SCANNED_COUNT: usize = 1024;

/// Blocks of a directory that are read ahead at most.
const AHEAD_MAX: usize = 512;

/// The cookies of `.` and `..`. Names come behind them.
const DOT: u64 = 0;
const DOTDOT: u64 = 1;

impl Directories {
    /// Calls `visit` with each name from `cookie` on, `.` and `..` included, until it says false. The first cookie is
    /// 0; the others are those of the items. A removed directory has no names.
    ///
    /// # Errors
    /// `NotADirectory`, `Unsupported`; `Corrupt`, `Io`, perhaps after some items: of a damaged directory all names
    /// that can be read come first.
    ///
    /// # Locks
    /// Takes `INODE` of the directory; none is held while `visit` runs.
    pub(crate) fn read_dir(
        &self,
        dir: &Arc<Inode>,
        cookie: u64,
        visit: &mut dyn FnMut(DirItem<'_>) -> bool,
    ) -> Result<()> {
        self.check_directory(&dir.raw())?;
        let mut from = Some(cookie);
        let mut damage = Ok(());
        while let Some(cookie) = from {
            let batch = {
                let _content = dir.content.read();
                // No leaf is divided between the names of one and the hash of the next.
                let _index = self.shared_map(dir).map(|map| map.index.read());
                if dir.raw().links_count() == 0 {
                    return Ok(());
                }
                if cookie == DOT {
                    self.read_ahead_leaves(dir);
                }
                self.read_batch(dir, cookie)?
            };
            for item in &batch.items {
                let item = DirItem {
                    name: &item.name,
                    inode: item.inode,
                    file_type: self.dir_format.file_type(item.file_type),
                    next_cookie: item.cookie + 1,
                };
                if !visit(item) {
                    return Ok(());
                }
            }
            from = batch.next;
            damage = damage.and(batch.damage);
        }
        damage
    }

    /// Reads the blocks of names into memory, where the device takes time: of an indexed directory those under the index's first node. What
    /// cannot be read is found when it is needed.
    fn read_ahead_leaves(&self, dir: &Arc<Inode>) {
        if !self.device.has_latency() {
            return;
        }
        let leaves: Vec<_> = if self.dir_format.is_indexed(&dir.raw()) {
            let path = self.index_root(dir).and_then(|root| self.index_path(dir, &root, 0));
            path.and_then(|path| path.leaves(self, dir)).unwrap_or_default()
        } else {
            (0..self.directory_len(dir).unwrap_or_default()).take(AHEAD_MAX).map(LogicalBlock).collect()
        };
        let is_absent = |leaf: &LogicalBlock| {
            self.directory_block(dir, *leaf).is_ok_and(|block| self.buffers.absent(block.0).is_some())
        };
        let absent: Vec<_> = leaves.into_iter().take(AHEAD_MAX).filter(is_absent).collect();
        let kind = BufferKind::Directory(dir.owner());
        share_work(self.requests_in_flight(), absent.into_iter(), |leaf| {
            drop(self.directory_buffer(dir, leaf, kind));
        });
    }

    fn read_batch(&self, dir: &Arc<Inode>, cookie: u64) -> Result<Batch> {
        let raw = dir.raw();
        let form = Form::of(&raw);
        let mut batch = if self.dir_format.is_indexed(&raw) {
            let read = if self.is_plain(&raw) { self.read_leaves(dir, cookie).map(Some) } else { Ok(None) };
            match read {
                Ok(Some(batch)) => batch,
                Ok(None) | Err(Error::Corrupt { .. }) => {
                    let hasher = self
                        .index_root(dir)
                        .map_or_else(|_| self.dir_format.default_hasher(), |root| root.hasher);
                    self.read_scanned(dir, cookie, &hasher, form)?
                }
                Err(error) => return Err(error),
            }
        } else if self.dir_format.has_index && self.directory_len(dir)? == 1 {
            self.read_block_by_hash(dir, cookie, form)?
        } else {
            return self.read_in_order(dir, cookie, form);
        };
        batch.items.sort_by(|a, b| (a.cookie, &a.name).cmp(&(b.cookie, &b.name)));
        Ok(batch)
    }

    /// The names of one leaf and of those that continue its last hash.
    fn read_leaves(&self, dir: &Arc<Inode>, cookie: u64) -> Result<Batch> {
        let root = self.index_root(dir)?;
        let start = hash_of(cookie);
        let mut path = self.index_path(dir, &root, start)?;
        let mut items = self.dots(dir, cookie)?;
        let usable = self.dir_format.usable;
        loop {
            let leaf = path.leaf(self, dir)?;
            leaf.read(|bytes| collect(bytes, usable, (&root.hasher, Form::Plain), cookie, &mut items))
                .map_err(|e| place_in(dir, &leaf).format(e))?;
            match path.next(self, dir)? {
                Next::End => return Ok(Batch::new(items, None)),
                Next::Leaf(hash) if hash & 1 == 1 => {}
                Next::Leaf(hash) if hash > start => {
                    return Ok(Batch::new(items, Some(cookie_of(hash, 0))));
                }
                Next::Leaf(_) => return Err(index_place(dir, &leaf).corrupt("index hashes are out of order")),
            }
        }
    }

    /// `.` and `..` of an indexed directory.
    fn dots(&self, dir: &Arc<Inode>, cookie: u64) -> Result<Vec<Held>> {
        let mut items = Vec::new();
        if cookie <= DOTDOT {
            let (buffer, usable) = self.first_directory_buffer(dir)?;
            let hasher = self.dir_format.default_hasher();
            buffer
                .read(|bytes| collect(bytes, usable, (&hasher, Form::Plain), cookie, &mut items))
                .map_err(|e| place_in(dir, &buffer).format(e))?;
            items.retain(|item| item.cookie <= DOTDOT);
        }
        Ok(items)
    }

    fn read_block_by_hash(&self, dir: &Arc<Inode>, cookie: u64, form: Form) -> Result<Batch> {
        let buffer = self.directory_buffer(dir, LogicalBlock(0), BufferKind::Directory(dir.owner()))?;
        let mut items = Vec::new();
        let format = &self.dir_format;
        let hasher = format.default_hasher();
        buffer
            .read(|bytes| collect(bytes, format.usable, (&hasher, form), cookie, &mut items))
            .map_err(|e| place_in(dir, &buffer).format(e))?;
        Ok(Batch::new(items, None))
    }

    /// The first names from `cookie` on, found by reading all blocks.
    fn read_scanned(&self, dir: &Arc<Inode>, cookie: u64, hasher: &DirHasher, form: Form) -> Result<Batch> {
        let mut items = Vec::new();
        let mut limit = u64::MAX;
        let mut damage = Ok(());
        let scanned = self.scan_directory(dir, &mut |_, bytes, usable| {
            // The entries of a block before the damage are returned.
            if let Err(error) = collect(bytes, usable, (hasher, form), cookie, &mut items) {
                let location = Location::of(Structure::DirectoryBlock).inode(dir.number);
                damage = std::mem::replace(&mut damage, Ok(())).and(Err(location.format(error)));
            }
            if items.len() > 2 * SCANNED_COUNT {
                items.sort_by_key(|item| item.cookie);
                limit = limit.min(items[SCANNED_COUNT].cookie);
                items.retain(|item| item.cookie <= limit);
            }
            Ok(true)
        });
        match scanned {
            Ok(()) => {}
            Err(error @ Error::Corrupt { .. }) => damage = damage.and(Err(error)),
            Err(error) => return Err(error),
        }
        // Beyond the lowest cut some are missing.
        items.retain(|item| item.cookie <= limit);
        Ok(Batch { items, next: (limit != u64::MAX).then(|| limit + 1), damage })
    }

    /// The names of one block, by their offsets.
    fn read_in_order(&self, dir: &Arc<Inode>, cookie: u64, form: Form) -> Result<Batch> {
        let format = &self.dir_format;
        let block_bytes = format.block_bytes as u64;
        let len = self.directory_len(dir)?;
        let Some(logical) = u32::try_from(cookie / block_bytes).ok().filter(|logical| *logical < len) else {
            return Ok(Batch::new(Vec::new(), None));
        };
        let buffer = self.directory_buffer(dir, LogicalBlock(logical), BufferKind::Directory(dir.owner()))?;
        let base = u64::from(logical) * block_bytes;
        let mut items = Vec::new();
        buffer
            .read(|bytes| {
                for entry in dirent::live_entries(bytes, format.usable) {
                    let entry = entry?;
                    let at = base + entry.offset as u64;
                    if at >= cookie {
                        items.push(held(&entry, at, form.shown(bytes, &entry, NameHash::default()))?);
                    }
                }
                Ok(())
            })
            .map_err(|e: extant_ondisk::Error| place_in(dir, &buffer).format(e))?;
        let next = base + block_bytes;
        Ok(Batch::new(items, (next / block_bytes < u64::from(len)).then_some(next)))
    }
}

/// How names are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As they are stored.
    Plain,
    /// Encrypted, with the hash of the stored bytes.
    NoKey,
    /// Encrypted, with the hash that is stored behind each name, for it is of the folded one.
    NoKeyHashed,
}

impl Form {
    fn of(dir: &RawInode) -> Self {
        match (dir.flags().contains(InodeFlags::ENCRYPT), dir.flags().contains(InodeFlags::CASEFOLD)) {
            (false, _) => Self::Plain,
            (true, false) => Self::NoKey,
            (true, true) => Self::NoKeyHashed,
        }
    }

    fn shown<'b>(self, block: &[u8], entry: &DirEntry<'b>, hash: NameHash) -> Cow<'b, [u8]> {
        match self {
            _ if matches!(entry.name, b"." | b"..") => entry.name.into(),
            Self::Plain => entry.name.into(),
            Self::NoKey => nokey::show(hash, entry.name).into(),
            Self::NoKeyHashed => nokey::show(dirent::stored_hash(block, entry), entry.name).into(),
        }
    }
}

/// Adds the names of a block from `cookie` on.
fn collect(
    bytes: &[u8],
    usable: usize,
    (hasher, form): (&DirHasher, Form),
    cookie: u64,
    items: &mut Vec<Held>,
) -> Result<(), extant_ondisk::Error> {
    for entry in dirent::live_entries(bytes, usable) {
        let entry = entry?;
        let hash = hasher.hash(entry.name);
        let at = match entry.name {
            b"." => DOT,
            b".." => DOTDOT,
            name => {
                // The oldest hash has no minor one.
                let minor = if hash.minor == 0 { crc32c(!0, name) } else { hash.minor };
                cookie_of(hash.hash, minor)
            }
        };
        if at >= cookie {
            items.push(held(&entry, at, form.shown(bytes, &entry, hash))?);
        }
    }
    Ok(())
}

/// An entry to be returned, unless a caller that takes its name for a file name would follow a path
/// (`verify_dirent_name`).
fn held(entry: &DirEntry<'_>, cookie: u64, name: Cow<'_, [u8]>) -> Result<Held, extant_ondisk::Error> {
    if name.contains(&b'/') || name.contains(&0) {
        return Err(extant_ondisk::Error::corrupt(
            Structure::DirectoryBlock,
            "a name contains a slash or NUL",
        ));
    }
    Ok(Held { cookie, name: name.into_owned(), inode: entry.inode, file_type: entry.file_type })
}

/// At most 2⁶³ − 2, so that the one behind fits a signed file offset.
fn cookie_of(hash: u32, minor: u32) -> u64 {
    (u64::from(hash >> 1) << 32 | u64::from(minor)).max(DOTDOT + 1)
}

fn hash_of(cookie: u64) -> u32 {
    ((cookie >> 32) as u32) << 1
}
