//! Directories into fewer blocks and runs.
//!
//! All names are read, sorted by hash and packed into new blocks under a new index; then one update makes the directory have those
//! ([`super::blocks`]). Names keep their inodes and types. A leaf keeps a fifth free for names to come, as those of `e2fsck -D` do.
//!
//! Leaves out: directories whose names are stored in another form, for the index has hashes of yet another one; and `lost+found`, whose
//! empty blocks are meant.
//!
//! A reader goes on from a cookie. Those of an indexed directory are made of hashes and stay valid. Those of a linear directory of several
//! blocks are offsets, so such a directory is packed only while it has no other user.
//!
//! Locks: `INODE` of the directory, exclusively.
//!
//! Source: `e2fsck_rehash_dir` of e2fsprogs' `e2fsck/rehash.c`.

use extant_ondisk::dir_hash::DirHasher;
use extant_ondisk::dirent::NewEntry;
use extant_ondisk::htree::{Dots, PackedDirectory, RootInfo};
use extant_ondisk::{FsBlock, InodeFlags, InodeNumber, RawInode, Structure, dirent};
use extant_rt::Arc;

use super::blocks::NewContent;
use super::layout::runs_of;
use super::{Changed, Defrag};
use crate::error::{Error, Location, Result};
use crate::incore::buffer::BufferKind;
use crate::incore::inode::Inode;
use crate::mapping::MapKind;
use crate::metadata::verify;
use crate::resize::shrink::map::{Map, NewMap, Piece, push};
use crate::resize::write_all;

/// A larger directory would take too much memory.
const BYTES_MAX: u64 = 256 << 20;
/// Blocks are worth saving that are one part of so many.
const SAVED_PART_MIN: u64 = 4;

/// What became of a directory.
pub(super) enum DirectoryResult {
    /// It needs no fewer blocks.
    Unchanged,
    Changed {
        blocks: Changed,
        runs: Changed,
    },
    Left(&'static str),
}

/// Why a directory has to stay as it is; `None` if it has not.
fn fixed_reason(raw: &RawInode) -> Option<&'static str> {
    match raw.flags() {
        flags if flags.intersects(InodeFlags::ENCRYPT | InodeFlags::CASEFOLD) => {
            Some("its names are encrypted or folded")
        }
        flags if flags.contains(InodeFlags::IMMUTABLE) => Some("it is immutable"),
        _ if raw.size() > BYTES_MAX => Some("it has more than 256 MiB of names"),
        _ => None,
    }
}

/// All names of a directory.
struct Names {
    dots: Dots,
    names: Vec<(InodeNumber, u8, Vec<u8>)>,
}

impl Defrag<'_, '_> {
    /// Packs a directory, if that saves a quarter of its blocks, or a level of its index, or makes one run of several.
    ///
    /// # Errors
    /// `NoSpace`; `Unsupported`; `Interrupted`; `Io`; `Corrupt`; the journal's. The directory is as it was.
    pub(super) fn defrag_directory(&mut self, dir: &Arc<Inode>) -> Result<DirectoryResult> {
        let volume = self.volume;
        let _content = dir.content.write();
        let raw = dir.raw();
        if raw.links_count() == 0 || volume.map_kind(&raw) == MapKind::None {
            return Ok(DirectoryResult::Unchanged);
        }
        let blocks = u64::from(volume.directory_len(dir)?);
        if blocks < 2 {
            return Ok(DirectoryResult::Unchanged);
        }
        if let Some(reason) = fixed_reason(&raw) {
            return Ok(DirectoryResult::Left(reason));
        }
        let map = Map::read(volume, dir.number, &raw)?;
        let runs = runs_of(&map.pieces).len() as u64;
        let format = volume.dir_format;
        let root = if format.is_indexed(&raw) { Some(self.root_of(dir, &map)?) } else { None };
        let default = format.default_hasher();
        let hasher = match root {
            Some(root) => DirHasher::new(root.hash_version(format.unsigned_hash), format.hash_seed),
            None => default,
        };
        let Names { dots, names } = self.read_names(dir)?;
        let entries = names.iter().map(|(inode, file_type, name)| NewEntry {
            inode: *inode,
            name,
            file_type: *file_type,
        });
        let form = (format.block_bytes, format.has_csum);
        let hasher = Some(hasher).filter(|_| format.has_index);
        let Some(packed) = PackedDirectory::plan(dots, entries.collect(), hasher, form, format.has_large_dir)
        else {
            return Ok(DirectoryResult::Unchanged);
        };
        let count = packed.block_count() as u64;
        let saves = count + blocks.div_ceil(SAVED_PART_MIN) <= blocks
            || packed.levels().is_some_and(|levels| root.is_some_and(|root| levels < root.indirect_levels));
        let joins = runs > 1 && count <= blocks && self.space.longest() >= count;
        if !saves && !joins {
            return Ok(DirectoryResult::Unchanged);
        }
        // Cookies of one block are made by the default hash.
        let keeps_cookies = root.is_some()
            && (packed.levels().is_some() || hasher.is_some_and(|it| it.version() == default.version()));
        if !keeps_cookies && dir.user_count() > 1 {
            return Ok(DirectoryResult::Left("it is in use, and cookies of its readers are offsets"));
        }
        let replaced = self.replace(dir, &map, &packed);
        self.space.give_back();
        let after = replaced?;
        self.count_moved(count)?;
        let moved_bytes = self.bytes(count);
        let change = |before, after| Changed { before, after, moved_bytes };
        Ok(DirectoryResult::Changed { blocks: change(blocks, count), runs: change(runs, after) })
    }

    /// What the root of the index says.
    fn root_of(&self, dir: &Inode, map: &Map) -> Result<RootInfo> {
        let volume = self.volume;
        let location = Location::of(Structure::HtreeNode).inode(dir.number);
        let first = map.pieces.first().filter(|piece| piece.logical == 0);
        let first = first.ok_or(location.corrupt("a hole in the directory"))?;
        let buffer = volume.buffer(FsBlock(first.start), BufferKind::HtreeNode(dir.owner()), location)?;
        let location = location.block(FsBlock(first.start));
        let large_dir = volume.dir_format.has_large_dir;
        buffer.read(|bytes| RootInfo::parse(bytes, large_dir)).map_err(|e| location.format(e))
    }

    fn read_names(&self, dir: &Arc<Inode>) -> Result<Names> {
        let location = Location::of(Structure::DirectoryBlock).inode(dir.number);
        let mut dots: Vec<(InodeNumber, u8, Vec<u8>)> = Vec::new();
        let mut names = Vec::new();
        self.volume.scan_directory(dir, &mut |_, bytes, usable| {
            for entry in dirent::live_entries(bytes, usable) {
                let entry = entry.map_err(|e| location.format(e))?;
                let list = if matches!(entry.name, b"." | b"..") { &mut dots } else { &mut names };
                list.push((entry.inode, entry.file_type, entry.name.to_vec()));
            }
            Ok(true)
        })?;
        match dots.as_slice() {
            [(own, file_type, dot), (parent, _, dotdot)]
                if dot == b"." && dotdot == b".." && *own == dir.number =>
            {
                Ok(Names { dots: Dots { own: *own, parent: *parent, file_type: *file_type }, names })
            }
            _ => Err(location.corrupt("its first entries are not `.` and `..`")),
        }
    }

    /// Writes the blocks and makes the directory have them: in how many runs.
    fn replace(&mut self, dir: &Arc<Inode>, old: &Map, packed: &PackedDirectory<'_>) -> Result<u64> {
        let volume = self.volume;
        let count = packed.block_count() as u32;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut logical = 0;
        while logical < count {
            let left = count - logical;
            let (len, start) = match self.space.fitting(left.into()).next() {
                Some((_, start)) => (left, start),
                None => {
                    let longest = self.space.longest();
                    let (_, start) = self.space.fitting(longest.max(1)).next().ok_or(Error::NoSpace)?;
                    (longest as u32, start)
                }
            };
            if self.space.take(start, len)? {
                push(&mut pieces, Piece { logical, start, len, unwritten: false });
                logical += len;
            }
        }
        let runs = runs_of(&pieces).len() as u64;
        let freed: Vec<u64> = old.runs().flat_map(|(start, len)| start..start + len).collect();
        if self.is_dry_run {
            freed.iter().for_each(|block| self.space.free(*block, 1));
            return Ok(runs);
        }
        if let Some(map) = dir.leaf_map() {
            map.forget();
        }
        let block_size = u64::from(volume.geometry.block_size);
        let space = &mut self.space;
        let map = NewMap::build(volume, dir.owner(), old.kind, &pieces, &mut || space.take_one(old.kind))?;
        let bytes = dir.raw().blocks_bytes(block_size as u32).saturating_sub(freed.len() as u64 * block_size);
        let content = NewContent {
            root: map.root,
            bytes: bytes + (u64::from(count) + map.nodes.len() as u64) * block_size,
            directory: Some((u64::from(count) * block_size, packed.levels().is_some())),
            freed: Vec::new(),
            freed_metadata: freed,
        };
        let format = |e| Location::of(Structure::HtreeNode).inode(dir.number).format(e);
        let places = pieces.iter().flat_map(|piece| piece.start..piece.start + u64::from(piece.len));
        let mut blocks: Vec<_> = places.map(FsBlock).zip(packed.write().map_err(format)?).collect();
        for (at, (block, bytes)) in blocks.iter_mut().enumerate() {
            let kind = match at < packed.index_blocks() {
                true => BufferKind::HtreeNode(dir.owner()),
                false => BufferKind::Directory(dir.owner()),
            };
            verify::sum(&volume.checksums, kind, *block, bytes);
        }
        write_all(volume, blocks)?;
        write_all(volume, map.nodes)?;
        self.swap(dir, content)?;
        Ok(runs)
    }
}
