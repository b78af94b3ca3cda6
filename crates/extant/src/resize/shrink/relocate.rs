//! Moving one inode: its blocks, the blocks of its map and of its attributes, and if its group goes, its number.
//!
//! Content and a new map are written into free blocks first. Then one update makes the inode use them and frees the old ones; with
//! another number, it also makes the new inode, changes what refers to the old one, and frees that. The commit's flush covers what was
//! written before (J3), so many inodes share a transaction. A crash leaves each inode as it was or moved.
//!
//! Checksums of directory blocks and of map nodes are made with the inode's number. So a directory that gets another number is
//! copied as a whole.
//!
//! Blocks that were in the log are revoked when they are freed. A directory of many blocks has the log checkpointed before instead:
//! records of all of them may not fit.

use std::collections::{BTreeMap, BTreeSet};

use extant_alloc::InodeKind;
use extant_ondisk::xattr::{self, XattrValue, parse_block};
use extant_ondisk::{FileType, FsBlock, Geometry, InodeNumber, RawInode, Run, Structure, dirent, indirect};
use extant_rt::Arc;

use super::Progress;
use super::map::{Map, NewMap, Piece, push};
use super::names::{Ready, Reference, directory_buffer};
use super::space::Space;
use crate::error::{Error, Location, Result};
use crate::incore::buffer::{Buffer, BufferKind, Owner};
use crate::incore::inode::Inode;
use crate::mapping::MapKind;
use crate::metadata::quota::QuotaFile;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate, RUN_CREDITS};
use crate::metadata::verify;
use crate::mount::Volume;
use crate::resize::write_all;

/// Bytes copied at once: what stays in a cache of the CPU between reading and writing.
const COPY_BYTES: usize = 256 << 10;
/// Blocks of metadata that one update revokes at most.
const REVOKES_MAX: usize = 64;

/// Moves inodes.
pub(super) struct Mover<'v, 'r> {
    pub(super) volume: &'v Volume,
    pub(super) space: Space<'v>,
    end: u64,
    inodes_end: u32,
    /// New numbers by the old ones.
    pub(super) renumbered: BTreeMap<InodeNumber, InodeNumber>,
    /// Copies of blocks of attributes that several inodes share.
    xattr_blocks: BTreeMap<u64, u64>,
    /// Where the search for a free inode goes on.
    next_inode: u32,
    buffer: Vec<u8>,
    progress: &'v mut Progress<'r>,
}

/// An inode as it will be.
struct Moved {
    raw: RawInode,
    /// Freed by the update: content past the journal, and metadata.
    freed: Vec<Run>,
    freed_metadata: Vec<u64>,
    xattr: Option<XattrMove>,
    /// Blocks of a quota file by their number in it, and their new places: the update copies them, for a freeze changes them.
    quota_blocks: Vec<(u32, FsBlock)>,
}

/// A block of attributes that moves.
struct XattrMove {
    old: Arc<Buffer>,
    /// Inodes that share the old block.
    sharers: u32,
    new: u64,
    /// The new block is in use by another inode already.
    copy: Option<Arc<Buffer>>,
}

impl<'v, 'r> Mover<'v, 'r> {
    pub(super) fn new(
        volume: &'v Volume,
        geometry: &Geometry,
        progress: &'v mut Progress<'r>,
    ) -> Result<Self> {
        Ok(Self {
            volume,
            space: Space::new(volume, geometry.blocks_count)?,
            end: geometry.blocks_count,
            inodes_end: geometry.inodes_count,
            renumbered: BTreeMap::new(),
            xattr_blocks: BTreeMap::new(),
            next_inode: geometry.first_ino,
            buffer: Vec::new(),
            progress,
        })
    }

    /// Moves an inode, to which `references` refer.
    ///
    /// # Errors
    /// `NoSpace`; `Interrupted`; `Unsupported`; `Io`; `Corrupt`; the journal's. The inode is as it was then.
    pub(super) fn relocate(&mut self, number: InodeNumber, references: &[Reference]) -> Result<()> {
        self.progress.add(0)?;
        let copies = self.xattr_blocks.clone();
        match self.try_relocate(number, references) {
            Err(Error::NoSpace | Error::NoInodes) => {
                // What was freed comes back with the commit.
                self.xattr_blocks = copies;
                self.space.reload()?;
                self.try_relocate(number, references)
            }
            moved => moved,
        }
    }

    fn try_relocate(&mut self, number: InodeNumber, references: &[Reference]) -> Result<()> {
        let volume = self.volume;
        if number == InodeNumber::RESIZE {
            return self.move_resize_map();
        }
        let inode = match volume.special_inodes.contains(number) {
            true => volume.special_inode(number)?,
            false => volume.inode_if(number, |_| true)?,
        };
        let new_number = if number.0 > self.inodes_end { Some(self.free_inode()?) } else { None };
        let moved = self.prepare(&inode, new_number)?;
        let ready: Vec<Ready> = references
            .iter()
            .map(|reference| Ready::new(volume, *reference, &self.renumbered))
            .collect::<Result<_>>()?;
        if moved.freed_metadata.len() > REVOKES_MAX {
            let journal = volume.writable()?;
            journal.commit_running()?;
            journal.checkpoint()?;
        }
        let taken = self.space.taken();
        let credits = self.credits(&taken, &moved, ready.len() + moved.quota_blocks.len())?;
        for run in moved.freed.iter().copied().chain(moved.freed_metadata.iter().map(|block| one(*block))) {
            volume.prepare_free(run)?;
        }
        volume.allocator.prepare_free_inode(number)?;
        let mut update = volume.begin(Credits::new(credits, 0))?;
        taken.iter().try_for_each(|run| update.mark_used(volume.to_clusters(*run)))?;
        if let Some(xattr) = &moved.xattr {
            update.move_xattrs(xattr)?;
        }
        if let Some(file) = volume.quota_file(number) {
            moved.quota_blocks.iter().for_each(|(logical, to)| update.move_quota_block(file, *logical, *to));
        }
        moved.freed.iter().try_for_each(|run| update.free(volume.to_clusters(*run)))?;
        let revokes = moved.freed_metadata.len() <= REVOKES_MAX;
        for block in moved.freed_metadata {
            if revokes { update.free_metadata(FsBlock(block))? } else { update.free_unlogged(block)? }
        }
        match new_number {
            Some(new) => {
                update.renumber(volume, &inode, new, moved.raw)?;
                ready.iter().try_for_each(|ready| update.set_reference(ready, number, new))?;
                self.renumbered.insert(number, new);
            }
            None => update.modify_inode(&inode, InodeDirty::Mapping, |raw| *raw = moved.raw),
        }
        update.finish();
        Ok(())
    }

    /// Moves the top block of the resize inode's map; the others are where descriptors have their place.
    fn move_resize_map(&mut self) -> Result<()> {
        let volume = self.volume;
        let inode = volume.special_inode(InodeNumber::RESIZE)?;
        let location = Location::of(Structure::IndirectBlock).inode(inode.number);
        let old = FsBlock(indirect::pointer(inode.raw().i_block(), indirect::DOUBLE).unwrap_or(0).into());
        let new = self.space.take_one()?;
        let pointer = u32::try_from(new).map_err(|_| location.corrupt("beyond 2^32 blocks"))?;
        write_all(volume, vec![(FsBlock(new), volume.read_block(old, location)?.to_vec())])?;
        volume.prepare_free_block(old)?;
        let mut update = volume.begin(Credits::new(2 * RUN_CREDITS + 1, 0))?;
        self.space.taken().into_iter().try_for_each(|run| update.mark_used(volume.to_clusters(run)))?;
        update.modify_inode(&inode, InodeDirty::Mapping, |raw| {
            indirect::set_pointer(raw.i_block_mut(), indirect::DOUBLE, pointer);
        });
        update.free_metadata(old)?;
        update.finish();
        self.progress.add(1)
    }

    /// Writes content and a map to new places.
    fn prepare(&mut self, inode: &Arc<Inode>, new_number: Option<InodeNumber>) -> Result<Moved> {
        let (volume, block_size) = (self.volume, self.volume.geometry.block_size);
        let raw = inode.raw();
        let map = Map::read(volume, inode.number, &raw)?;
        let owner = Owner { inode: new_number.unwrap_or(inode.number), generation: raw.generation() };
        let is_directory = raw.file_type() == FileType::Directory;
        let is_orphan_file = inode.number.0 == volume.superblock.lock().s_orphan_file_inum();
        let is_quota_file = volume.quota_file(inode.number).is_some();
        let is_metadata = raw.file_type() != FileType::Regular || is_orphan_file || is_quota_file;
        let from = if is_directory && new_number.is_some() { 0 } else { self.end };
        let mut moved = Moved {
            raw: RawInode::clone(&raw),
            freed: Vec::new(),
            freed_metadata: Vec::new(),
            xattr: self.plan_xattrs(inode, &raw)?,
            quota_blocks: Vec::new(),
        };
        if let Some(xattr) = &moved.xattr {
            moved.raw.set_file_acl(FsBlock(xattr.new));
        }
        let mut pieces = Vec::new();
        for piece in &map.pieces {
            for part in split(piece, from) {
                if part.start < from {
                    push(&mut pieces, part);
                    continue;
                }
                if is_metadata {
                    moved.freed_metadata.extend((0..u64::from(part.len)).map(|at| part.start + at));
                } else {
                    moved.freed.push(Run { start: FsBlock(part.start), len: part.len });
                }
                let mut done = 0;
                for run in self.space.take(part.len)? {
                    let old = Piece {
                        logical: part.logical + done,
                        start: part.start + u64::from(done),
                        len: run.len,
                        ..part
                    };
                    if is_quota_file {
                        let places = (0..run.len).map(|at| (old.logical + at, run.start.0 + u64::from(at)));
                        moved.quota_blocks.extend(places.map(|(logical, to)| (logical, FsBlock(to))));
                    } else if is_metadata {
                        self.copy_metadata(inode, owner, &old, run.start.0)?;
                    } else if !part.unwritten {
                        let (location, places) = (Location::of(Structure::Inode), (old.start, run.start.0));
                        let location = location.inode(inode.number);
                        copy_blocks(volume, &mut self.buffer, location, places, old.len.into())?;
                    }
                    self.progress.add(run.len.into())?;
                    push(&mut pieces, Piece { start: run.start.0, ..old });
                    done += run.len;
                }
            }
        }
        let is_node_behind = map.nodes.iter().any(|node| *node >= self.end);
        let is_new = pieces != map.pieces || is_node_behind || new_number.is_some() && !map.nodes.is_empty();
        if is_new && map.kind != MapKind::None {
            let space = &mut self.space;
            let new = NewMap::build(volume, owner, map.kind, &pieces, &mut || space.take_one())?;
            let bytes = raw.blocks_bytes(block_size);
            let nodes = |count: usize| count as u64 * u64::from(block_size);
            let bytes = (bytes + nodes(new.nodes.len())).saturating_sub(nodes(map.nodes.len()));
            let location = Location::of(Structure::Inode).inode(inode.number);
            moved
                .raw
                .set_blocks_bytes(bytes, block_size, volume.geometry.has_huge_file)
                .map_err(|e| location.format(e))?;
            *moved.raw.i_block_mut() = new.root;
            write_all(volume, new.nodes)?;
            moved.freed_metadata.extend(&map.nodes);
        }
        Ok(moved)
    }

    /// Copies blocks that the journal writes, with checksums of the new owner.
    fn copy_metadata(&self, inode: &Arc<Inode>, owner: Owner, from: &Piece, to: u64) -> Result<()> {
        let volume = self.volume;
        let is_directory = inode.is_directory();
        let mut blocks = Vec::with_capacity(from.len as usize);
        for at in 0..u64::from(from.len) {
            let (block, new) = (FsBlock(from.start + at), FsBlock(to + at));
            let (buffer, usable) = match is_directory {
                true => directory_buffer(volume, inode, from.logical + at as u32, block)?,
                false => {
                    let is_link = inode.file_type() == FileType::Symlink;
                    let kind = if is_link { BufferKind::Symlink } else { BufferKind::OrphanFile(owner) };
                    (volume.buffer(block, kind, Location::of(Structure::Inode).inode(inode.number))?, 0)
                }
            };
            let mut bytes = buffer.bytes().to_vec();
            if is_directory && from.logical == 0 && at == 0 && owner.inode != inode.number {
                let byte = volume.dir_format.file_type_byte(FileType::Directory);
                let location = Location::of(Structure::DirectoryBlock).inode(inode.number).block(block);
                dirent::set_inode(&mut bytes, usable, 0, owner.inode, byte)
                    .map_err(|e| location.format(e))?;
            }
            let kind = match buffer.kind() {
                BufferKind::Directory(_) => BufferKind::Directory(owner),
                BufferKind::HtreeNode(_) => BufferKind::HtreeNode(owner),
                kind => kind,
            };
            verify::sum(&volume.checksums, kind, new, &mut bytes);
            blocks.push((new, bytes));
        }
        write_all(volume, blocks)
    }

    /// What becomes of the inode's block of attributes, if it lies behind the end.
    fn plan_xattrs(&mut self, inode: &Inode, raw: &RawInode) -> Result<Option<XattrMove>> {
        let block = raw.file_acl();
        if block.0 < self.end {
            return Ok(None);
        }
        let location = Location::of(Structure::XattrBlock).inode(inode.number).block(block);
        let old = self.volume.buffer(block, BufferKind::Xattr, location)?;
        let sharers = old.read(xattr::refcount).map_err(|e| location.format(e))?;
        if let Some(copy) = self.xattr_blocks.get(&block.0) {
            let copy = self.volume.buffer(FsBlock(*copy), BufferKind::Xattr, location)?;
            return Ok(Some(XattrMove { old, sharers, new: copy.block.0, copy: Some(copy) }));
        }
        let entries = old.read(parse_block).map_err(|e| location.format(e))?;
        if sharers > 1 && entries.iter().any(|entry| matches!(entry.value, XattrValue::Inode { .. })) {
            return Err(Error::Unsupported(
                "moving attributes that several inodes share and whose values are inodes",
            ));
        }
        let new = self.space.take_one()?;
        if sharers > 1 {
            self.xattr_blocks.insert(block.0, new);
        }
        self.progress.add(1)?;
        Ok(Some(XattrMove { old, sharers, new, copy: None }))
    }

    /// The lowest free inode that stays.
    fn free_inode(&mut self) -> Result<InodeNumber> {
        while self.next_inode <= self.inodes_end {
            let number = InodeNumber(self.next_inode);
            if !self.volume.allocator.is_inode_allocated(number)? {
                return Ok(number);
            }
            self.next_inode += 1;
        }
        Err(Error::NoInodes)
    }

    /// The blocks that an update may change: `blocks` with references or of a quota file, and those that say what is in use.
    fn credits(&self, taken: &[Run], moved: &Moved, blocks: usize) -> Result<u32> {
        let group = |block: FsBlock| self.volume.geometry.group_of(block).map_or(0, |(group, _)| group.0);
        let mut groups: BTreeSet<u32> = BTreeSet::new();
        for run in taken.iter().chain(&moved.freed) {
            let last = FsBlock(run.start.0 + u64::from(run.len.saturating_sub(1)));
            groups.extend(group(run.start)..=group(last));
        }
        groups.extend(moved.freed_metadata.iter().map(|block| group(FsBlock(*block))));
        // Two inodes with their bitmaps and descriptors; two blocks of attributes, of which one may be freed.
        let credits = (groups.len() as u64 + 1) * u64::from(RUN_CREDITS) + 6 + 2 + blocks as u64;
        u32::try_from(credits)
            .ok()
            .filter(|credits| *credits < self.volume.journal.as_ref().map_or(u32::MAX, |it| it.max_credits()))
            .ok_or(Error::Unsupported(
                "moving an inode with so many names or parts with a journal this small: the disk needs a larger one \
                 (`tune2fs -O ^has_journal`, then `tune2fs -J size=64`)",
            ))
    }
}

/// Copies blocks that no transaction writes.
pub(super) fn copy_blocks(
    volume: &Volume,
    buffer: &mut Vec<u8>,
    location: Location,
    (from, to): (u64, u64),
    len: u64,
) -> Result<()> {
    let block_size = u64::from(volume.geometry.block_size);
    let bytes = len * block_size;
    buffer.resize(COPY_BYTES.min(bytes as usize).max(buffer.len()), 0);
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(COPY_BYTES as u64) as usize;
        let (device, part) = (&volume.device, &mut buffer[..len]);
        let place = |block: u64| location.block(FsBlock(block + at / block_size));
        device.read_at(from * block_size + at, part).map_err(|e| place(from).io(e))?;
        device.write_at(to * block_size + at, part).map_err(|e| place(to).io(e))?;
        at += len as u64;
    }
    Ok(())
}

/// A piece in parts that lie wholly before or behind a block.
pub(super) fn split(piece: &Piece, at: u64) -> impl Iterator<Item = Piece> {
    let before = at.saturating_sub(piece.start).min(piece.len.into()) as u32;
    let first = Piece { len: before, ..*piece };
    let second = Piece {
        logical: piece.logical + before,
        start: piece.start + u64::from(before),
        len: piece.len - before,
        ..*piece
    };
    [first, second].into_iter().filter(|part| part.len > 0)
}

fn one(block: u64) -> Run {
    Run { start: FsBlock(block), len: 1 }
}

impl MetadataUpdate<'_> {
    /// Frees a block of metadata of which the log has no copy.
    pub(crate) fn free_unlogged(&mut self, block: u64) -> Result<()> {
        self.free(self.sbi.to_clusters(one(block)))?;
        self.forget(FsBlock(block));
        Ok(())
    }

    /// Makes an inode use another block of attributes; what refers to it is the caller's to change.
    fn move_xattrs(&mut self, xattr: &XattrMove) -> Result<()> {
        let location = Location::of(Structure::XattrBlock).block(xattr.old.block);
        let damaged = location.corrupt("no block of attributes");
        let count = match &xattr.copy {
            Some(copy) => self.modify_buffer(copy, |bytes| {
                let count = xattr::refcount(bytes)?;
                xattr::set_refcount(bytes, count.saturating_add(1))
            }),
            None => {
                let bytes = xattr.old.bytes();
                let copy = self.new_buffer(FsBlock(xattr.new), BufferKind::Xattr);
                self.modify_buffer(&copy, |into| {
                    into.copy_from_slice(&bytes);
                    xattr::set_refcount(into, 1)
                })
            }
        };
        count.map_err(|_| damaged)?;
        if xattr.sharers <= 1 {
            return self.free_metadata(xattr.old.block);
        }
        let left = xattr.sharers - 1;
        self.modify_buffer(&xattr.old, |bytes| xattr::set_refcount(bytes, left))
            .map_err(|e| location.format(e))
    }

    /// Copies a block of a quota file to another place, where its entries change from then on.
    fn move_quota_block(&mut self, file: &QuotaFile, logical: u32, to: FsBlock) {
        let Some(old) = file.file_system_block(logical) else { return };
        let bytes = old.bytes();
        let new = self.new_buffer(to, BufferKind::Quota);
        self.modify_buffer(&new, |into| into.copy_from_slice(&bytes));
        file.replace_block(logical, new);
    }

    /// Makes an inode of another number out of one, which is freed.
    fn renumber(&mut self, volume: &Volume, old: &Arc<Inode>, new: InodeNumber, raw: RawInode) -> Result<()> {
        let kind = match raw.file_type() {
            FileType::Directory => InodeKind::Directory,
            _ => InodeKind::Other,
        };
        self.allocate_inode_at(new, kind)?;
        let inode = volume.inodes.replace(Inode::new(new, volume.inode_table_location(new)?, raw));
        self.add_inode(&inode);
        let now = self.now();
        self.delete_inode(old, |raw| {
            raw.set_dtime(u32::try_from(now.seconds).unwrap_or(u32::MAX));
            raw.set_size(0);
            raw.set_links_count(0);
            raw.set_mode(0);
            raw.set_file_acl(FsBlock(0));
            if let Some(region) = raw.xattr_region_mut() {
                region.fill(0);
            }
        });
        self.free_inode(old, kind)
    }
}
