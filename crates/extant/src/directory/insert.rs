//! Adding and removing names.
//!
//! Source: `ext4_add_entry`, `make_indexed_dir`, `ext4_dx_add_entry`, `do_split`, `ext4_delete_entry` of
//! `fs/ext4/namei.c`.

use extant_ondisk::dir_hash::DirHasher;
use extant_ondisk::dirent::NewEntry;
use extant_ondisk::htree::{DxKind, DxNodeMut, LeafSplit, make_root_from_linear, max_indirect_levels};
use extant_ondisk::{FileType, FsBlock, InodeFlags, InodeNumber, LogicalBlock, RawInode, dirent};
use extant_rt::Arc;

use super::index::{IndexPath, Level, index_place};
use super::leaf_lock::IndexChange;
use super::lookup::Looked;
use super::negative_lookup::Room;
use super::{Found, HeldLeaf, place_in};
use crate::directory::Directories;
use crate::error::{Error, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::Inode;
use crate::incore::leaf_map::Leaf;
use crate::incore::usage::Usage;
use crate::metadata::quota::ids_of;
use crate::metadata::quota::reserve::QuotaReservation;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate};

/// Where a name will go.
pub(crate) struct InsertPlan<'v> {
    location: InsertPlace,
    /// What is taken of the limits of the directory's ids, for the update to hold.
    pub(crate) quota: QuotaReservation<'v>,
    /// The credits of [`MetadataUpdate::insert_entry`], the directory's inode included.
    pub(crate) need: Credits,
}

impl InsertPlan<'_> {
    /// Whether other names stay where they are.
    pub(crate) fn moves_none(&self) -> bool {
        matches!(self.location, InsertPlace::Block(_))
    }
}

enum InsertPlace {
    /// There is room.
    Block(Room),
    /// Into a further block of a linear directory.
    Append,
    /// The only block, which becomes the root of an index.
    Convert(Arc<Buffer>),
    /// Into a leaf that is divided, as are the index blocks above it that are full.
    Split(Split),
}

/// A leaf that is to be divided.
struct Split {
    leaf: Arc<Buffer>,
    halves: Halves,
    path: IndexPath,
    /// How many levels of the path from the lowest up are full.
    full: usize,
}

impl Split {
    /// Blocks that it changes: the leaf and the levels above it, one of which gets an entry and is not full.
    fn changed(&self) -> u32 {
        1 + self.path.levels.len() as u32
    }

    /// Blocks that it adds.
    fn added(&self) -> u32 {
        1 + self.full as u32
    }
}

/// What becomes of a leaf that is divided, with room for a name.
struct Halves {
    lower: Vec<u8>,
    upper: Vec<u8>,
    /// For the index.
    hash: u32,
    is_new_in_upper: bool,
}

/// The content of a new entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Insertion<'n> {
    pub(crate) name: &'n [u8],
    pub(crate) inode: InodeNumber,
    pub(crate) file_type: FileType,
}

/// A placeholder for the inode in a trial.
const ANY_INODE: InodeNumber = InodeNumber::ROOT;

impl Directories {
    /// Finds out where a new name goes in a directory of these fields, whose entries move to a block first if they are in its
    /// inode. Stays true while the lock is held.
    ///
    /// # Errors
    /// `Exists` if the directory has the name; `NoSpace` if the index cannot grow; `QuotaExceeded`; `FileTooLarge` if the inode cannot count the
    /// blocks; `Corrupt`, `Io`.
    ///
    /// # Locks
    /// `INODE` of the directory must be held alone.
    pub(crate) fn plan_insert(
        &self,
        dir: &Arc<Inode>,
        raw: &RawInode,
        name: &[u8],
    ) -> Result<InsertPlan<'_>> {
        let moved;
        let raw = if raw.has_inline_data() {
            self.move_to_blocks(dir)?;
            moved = dir.raw();
            &moved
        } else {
            raw
        };
        let location = match self.negative_lookups.room(dir, raw.version(), name) {
            Some(room) => InsertPlace::Block(room),
            None => self.place_of_new(dir, name)?,
        };
        self.plan_at(raw, location)
    }

    /// As [`Directories::plan_insert`] in the leaf that the name belongs to, which is held alone, by what was found there. `None` if there is no
    /// room.
    ///
    /// # Errors
    /// As [`Directories::plan_insert`].
    pub(crate) fn plan_insert_into_leaf(
        &self,
        raw: &RawInode,
        looked: &Looked,
    ) -> Result<Option<InsertPlan<'_>>> {
        match looked {
            Looked::Found(_) => Err(Error::Exists),
            Looked::Missing(Some(room)) => self.plan_at(raw, InsertPlace::Block(room.clone())).map(Some),
            Looked::Missing(None) => Ok(None),
        }
    }

    /// Divides the leaf that a name belongs to, which is held alone and full, in an update of its own, so that others wait for no more than
    /// that. Whether to look for the name's leaf again: not if there is damage or too little space, which is reported under `INODE` held alone.
    ///
    /// # Errors
    /// `NoSpace` if the index cannot grow; `ReadOnly`, `Io`; the journal's.
    ///
    /// # Locks
    /// Takes `LEAF_BLOCK` and `INDEX` of the directory.
    pub(crate) fn divide_leaf(&self, dir: &Arc<Inode>, name: &[u8], held: &HeldLeaf<'_>) -> Result<bool> {
        let Some(map) = dir.leaf_map() else { return Ok(false) };
        let leaf = self.buffer_of(dir, held)?;
        let Ok(halves) = self.halves(dir, &leaf, name, &map.hasher) else { return Ok(false) };
        let hash = halves.hash;
        // As if the index were as deep as can be, and full: how it is is known under its lock, which is taken with the update open.
        let blocks = 2 + u32::from(max_indirect_levels(self.dir_format.has_large_dir));
        let begun = self
            .need_of_blocks(&dir.raw(), blocks, blocks)
            .and_then(|(need, quota)| Ok((need, quota, self.begin(need)?)));
        let (need, quota, mut update) = match begun {
            Err(Error::NoSpace | Error::QuotaExceeded | Error::FileTooLarge) => return Ok(false),
            begun => begun?,
        };
        update.hold_quota(quota);
        update.mark_ineligible();
        let mut last_taken = map.last_taken.lock();
        let mut taken = update.take_leaf_block(self, dir, &mut last_taken)?;
        let index = map.index.write();
        drop(last_taken);
        let planned = self.index_root(dir).and_then(|root| {
            let path = self.index_path(dir, &root, map.hasher.hash(name).hash)?;
            let is_it = path.leaf == held.logical();
            is_it.then(|| self.plan_split(dir, leaf, halves, path)).transpose()
        });
        let divided = match planned {
            // The map of blocks may have become deeper since.
            Ok(Some(split))
                if !self.credits_of_blocks(&dir.raw(), split.changed(), split.added()).are_within(need) =>
            {
                Ok(true)
            }
            Ok(Some(split)) => update.divide(self, dir, split, &mut taken).map(|upper| {
                drop(index);
                map.insert(hash, upper);
                true
            }),
            Ok(None) | Err(Error::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        };
        if let Some(unused) = taken {
            update.free_metadata(unused.block)?;
        }
        update.finish();
        divided
    }

    fn plan_at(&self, raw: &RawInode, location: InsertPlace) -> Result<InsertPlan<'_>> {
        let (need, quota) = match &location {
            InsertPlace::Block(_) => self.need_of_blocks(raw, 1, 0)?,
            InsertPlace::Append => self.need_of_blocks(raw, 0, 1)?,
            InsertPlace::Convert(_) => self.need_of_blocks(raw, 1, 2)?,
            InsertPlace::Split(split) => self.need_of_blocks(raw, split.changed(), split.added())?,
        };
        Ok(InsertPlan { location, quota, need })
    }

    /// What so many changed blocks and new ones take, and the inode.
    fn credits_of_blocks(&self, raw: &RawInode, changed: u32, new: u32) -> Credits {
        let grown = self.grow_need(raw, new);
        Credits { credits: grown.credits + changed + 1, ..grown }
    }

    /// [`Directories::credits_of_blocks`], if the directory may have so many more; and what is taken of limits for them.
    fn need_of_blocks(
        &self,
        raw: &RawInode,
        changed: u32,
        new: u32,
    ) -> Result<(Credits, QuotaReservation<'_>)> {
        let need = self.credits_of_blocks(raw, changed, new);
        self.check_countable(raw, need.blocks)?;
        self.check_nameable(raw, need.blocks)?;
        let space = self.bytes_of(new) as i64;
        let quota = match new {
            0 => QuotaReservation::default(),
            _ => self.reserve_quota(ids_of(raw).map(Some), Usage { space, inodes: 0 })?,
        };
        Ok((need, quota))
    }

    fn place_of_new(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<InsertPlace> {
        match self.find_place(dir, name) {
            // No name can be added; existing names are still found.
            Err(Error::Corrupt { .. })
                if self.dir_format.is_indexed(&dir.raw()) && self.find_scanning(dir, name)?.is_some() =>
            {
                Err(Error::Exists)
            }
            other => other,
        }
    }

    fn find_place(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<InsertPlace> {
        match self.look_for(dir, name)? {
            Looked::Found(_) => Err(Error::Exists),
            Looked::Missing(Some(room)) => Ok(InsertPlace::Block(room)),
            Looked::Missing(None) if self.dir_format.is_indexed(&dir.raw()) => {
                let root = self.index_root(dir)?;
                let path = self.index_path(dir, &root, root.hasher.hash(name).hash)?;
                let leaf = path.leaf(self, dir)?;
                let halves = self.halves(dir, &leaf, name, &root.hasher)?;
                self.plan_split(dir, leaf, halves, path).map(InsertPlace::Split)
            }
            Looked::Missing(None) if self.dir_format.has_index && self.directory_len(dir)? == 1 => {
                let block =
                    self.directory_buffer(dir, LogicalBlock(0), BufferKind::Directory(dir.owner()))?;
                self.try_convert(dir, &block, name)?;
                Ok(InsertPlace::Convert(block))
            }
            Looked::Missing(None) => Ok(InsertPlace::Append),
        }
    }

    /// What becomes of a leaf that has no room for a name. Takes the time of hashing all its names.
    fn halves(&self, dir: &Inode, leaf: &Buffer, name: &[u8], hasher: &DirHasher) -> Result<Halves> {
        let format = &self.dir_format;
        let bytes = leaf.bytes();
        let entry = NewEntry { inode: ANY_INODE, name, file_type: FileType::Unknown.dirent_byte() };
        let split = LeafSplit::plan(&bytes, format.usable, entry, hasher)
            .map_err(|e| place_in(dir, leaf).format(e))?;
        let (mut lower, mut upper) = (vec![0; format.block_bytes], vec![0; format.block_bytes]);
        split.write_with_room(&mut lower, &mut upper);
        Ok(Halves { lower, upper, hash: split.index_hash(), is_new_in_upper: split.is_new_in_upper() })
    }

    /// A leaf that is to be divided, at the end of a path.
    fn plan_split(&self, dir: &Inode, leaf: Arc<Buffer>, halves: Halves, path: IndexPath) -> Result<Split> {
        let above = path.levels.last().ok_or(place_in(dir, &leaf).corrupt("leaf without an index"))?;
        let fits =
            self.read_index(dir, &above.buffer, above.kind, |n| n.accepts_after(above.index, halves.hash))?;
        if !fits {
            return Err(index_place(dir, &above.buffer).corrupt("a leaf holds hashes outside its range"));
        }
        let full = self.full_levels(dir, &path)?;
        if full == path.levels.len() && full > usize::from(max_indirect_levels(self.dir_format.has_large_dir))
        {
            return Err(Error::NoSpace);
        }
        Ok(Split { leaf, halves, path, full })
    }

    /// How many levels from the lowest up are full.
    fn full_levels(&self, dir: &Inode, path: &IndexPath) -> Result<usize> {
        let mut full = 0;
        for level in path.levels.iter().rev() {
            if !self.read_index(dir, &level.buffer, level.kind, |node| node.is_full())? {
                break;
            }
            full += 1;
        }
        Ok(full)
    }

    /// A trial of [`MetadataUpdate::convert`], on copies.
    fn try_convert(&self, dir: &Inode, block: &Buffer, name: &[u8]) -> Result<()> {
        let entry = NewEntry { inode: ANY_INODE, name, file_type: FileType::Unknown.dirent_byte() };
        self.converted(&block.bytes(), entry).map(drop).map_err(|e| place_in(dir, block).format(e))
    }

    /// The root and the two leaves that a linear block and one more name become, with the hash between the leaves.
    fn converted(&self, linear: &[u8], entry: NewEntry<'_>) -> Result<Converted, extant_ondisk::Error> {
        let format = &self.dir_format;
        let hasher = format.default_hasher();
        let (mut root, mut leaf) = (linear.to_vec(), vec![0; linear.len()]);
        make_root_from_linear(&mut root, &mut leaf, LogicalBlock(1), hasher.version(), format.has_csum)?;
        let split = LeafSplit::plan(&leaf, format.usable, entry, &hasher)?;
        let (mut lower, mut upper) = (vec![0; linear.len()], vec![0; linear.len()]);
        split.write(&mut lower, &mut upper);
        DxNodeMut::parse(&mut root, DxKind::Root, format.has_csum)?.insert_after(
            0,
            split.index_hash(),
            LogicalBlock(2),
        )?;
        Ok(Converted { root, lower, upper })
    }
}

struct Converted {
    root: Vec<u8>,
    lower: Vec<u8>,
    upper: Vec<u8>,
}

impl MetadataUpdate<'_> {
    /// Adds a name to a directory as planned under the same lock, and sets the directory's times.
    ///
    /// # Errors
    /// `Corrupt` if the bitmaps are damaged. The name is not there then.
    pub(crate) fn insert_entry(
        &mut self,
        dirs: &Directories,
        dir: &Arc<Inode>,
        plan: InsertPlan<'_>,
        entry: Insertion<'_>,
    ) -> Result<()> {
        let format = self.sbi.dir_format;
        let entry = NewEntry {
            inode: entry.inode,
            name: entry.name,
            file_type: format.file_type_byte(entry.file_type),
        };
        if !matches!(plan.location, InsertPlace::Block(_)) {
            // e2fsck does not make room for a name that it replays.
            self.mark_ineligible();
        }
        match plan.location {
            InsertPlace::Block(room) => self.insert_into(dir, &room, entry)?,
            InsertPlace::Append => {
                let (_, buffer) = self.grow_empty(dirs, dir, &mut None)?;
                self.insert_into(dir, &Room { buffer, offset: 0 }, entry)?;
            }
            InsertPlace::Convert(block) => self.convert(dirs, dir, &block, entry)?,
            InsertPlace::Split(split) => {
                let (leaf, is_upper) = (split.leaf.clone(), split.halves.is_new_in_upper);
                let hash = split.halves.hash;
                let upper = self.divide(dirs, dir, split, &mut None)?;
                if let Some(map) = dir.leaf_map() {
                    map.insert(hash, upper);
                }
                let kind = BufferKind::Directory(dir.owner());
                let half = if is_upper { dirs.directory_buffer(dir, upper.logical, kind)? } else { leaf };
                let location = place_in(dir, &half);
                match dirs.look_in(dir, half, format.usable, entry.name)? {
                    Looked::Missing(Some(room)) => self.insert_into(dir, &room, entry)?,
                    _ => return Err(location.corrupt("a leaf that was divided has no room")),
                }
            }
        }
        self.note_name_changed();
        self.touch_directory(dir);
        Ok(())
    }

    fn insert_into(&mut self, dir: &Arc<Inode>, room: &Room, entry: NewEntry<'_>) -> Result<()> {
        let usable = self.sbi.dir_format.usable;
        let location = place_in(dir, &room.buffer);
        let inserted = self
            .modify_buffer_state(&room.buffer, |state| {
                let are_whole = state.known_entry.take().is_some();
                let bytes = Arc::make_mut(&mut state.bytes);
                let inserted = dirent::insert_at(bytes, usable, room.offset, &entry)?;
                state.known_entry = inserted.filter(|_| are_whole).and_then(|at| u16::try_from(at).ok());
                Ok(inserted)
            })
            .map_err(|e| location.format(e))?;
        // Planned under the same lock.
        inserted.map(drop).ok_or(location.corrupt("room for a name is gone"))
    }

    /// Takes a block for a leaf, behind the one that was taken last.
    fn take_leaf_block(
        &mut self,
        dirs: &Directories,
        dir: &Arc<Inode>,
        last: &mut Option<FsBlock>,
    ) -> Result<Option<Arc<Buffer>>> {
        if self.sbi.geometry.cluster_ratio > 1 {
            // It may lie in the cluster of the last one.
            return Ok(None);
        }
        let goal = match *last {
            Some(last) => FsBlock(last.0 + 1),
            None => {
                let (raw, end) = (dir.raw(), dirs.directory_end(dir)?);
                dirs.goal(dir, &dirs.hole(dir, &raw, end)?, end)
            }
        };
        let buffer = self.take_block(goal, 0, BufferKind::Directory(dir.owner()))?;
        *last = Some(buffer.block);
        Ok(Some(buffer))
    }

    /// A further block of the directory, without names: the one `taken`, if there is such.
    fn grow_empty(
        &mut self,
        dirs: &Directories,
        dir: &Arc<Inode>,
        taken: &mut Option<Arc<Buffer>>,
    ) -> Result<(LogicalBlock, Arc<Buffer>)> {
        let usable = self.sbi.dir_format.usable;
        let kind = BufferKind::Directory(dir.owner());
        let (logical, buffer) = self.grow_directory(dirs, dir, kind, taken)?;
        self.modify_buffer(&buffer, |bytes| dirent::init_empty(bytes, usable));
        Ok((logical, buffer))
    }

    fn convert(
        &mut self,
        dirs: &Directories,
        dir: &Arc<Inode>,
        block: &Arc<Buffer>,
        entry: NewEntry<'_>,
    ) -> Result<()> {
        let location = place_in(dir, block);
        let bytes = block.bytes();
        let converted = dirs.converted(&bytes, entry).map_err(|e| location.format(e))?;
        drop(bytes);
        let (_, lower) = self.grow_empty(dirs, dir, &mut None)?;
        let (_, upper) = self.grow_empty(dirs, dir, &mut None)?;
        self.modify_buffer(&lower, |bytes| bytes.copy_from_slice(&converted.lower));
        self.modify_buffer(&upper, |bytes| bytes.copy_from_slice(&converted.upper));
        self.modify_buffer(block, |bytes| bytes.copy_from_slice(&converted.root));
        self.set_kind(block, BufferKind::HtreeNode(dir.owner()));
        self.modify_inode(dir, InodeDirty::Mapping, |raw| raw.set_flags(raw.flags() | InodeFlags::INDEX));
        Ok(())
    }

    /// Divides a leaf, under `INDEX` of a shared directory; the upper one of the two, in the block `taken` if there is such, is the caller's
    /// to show in the map of leaves.
    fn divide(
        &mut self,
        dirs: &Directories,
        dir: &Arc<Inode>,
        split: Split,
        taken: &mut Option<Arc<Buffer>>,
    ) -> Result<Leaf> {
        let Split { leaf, halves, mut path, full } = split;
        let mut new = Vec::with_capacity(full);
        let (logical, upper) = self.grow_empty(dirs, dir, taken)?;
        for _ in 0..full {
            new.push(self.grow_empty(dirs, dir, &mut None)?);
        }
        let change = dir.leaf_map().map(IndexChange::begin);
        self.make_room(dir, &mut path, full, &mut new)?;
        self.modify_buffer(&leaf, |bytes| bytes.copy_from_slice(&halves.lower));
        self.modify_buffer(&upper, |bytes| bytes.copy_from_slice(&halves.upper));
        let above = path.levels.last().ok_or(place_in(dir, &leaf).corrupt("leaf without an index"))?;
        self.insert_index(dir, above, halves.hash, logical)?;
        if let Some(change) = change {
            change.end();
        }
        Ok(Leaf { logical, block: upper.block })
    }

    /// Splits the `full` lowest levels of the path, from the top, so that the lowest has room for one more entry.
    /// `new` are as many blocks.
    fn make_room(
        &mut self,
        dir: &Arc<Inode>,
        path: &mut IndexPath,
        full: usize,
        new: &mut Vec<(LogicalBlock, Arc<Buffer>)>,
    ) -> Result<()> {
        let mut next = path.levels.len() - full;
        while let (Some(level), Some((logical, buffer))) = (path.levels.get_mut(next), new.pop()) {
            self.set_kind(&buffer, BufferKind::HtreeNode(dir.owner()));
            if level.kind == DxKind::Root {
                // A node has room for three entries more than a root, so that this one need not be split as well.
                self.push_down(dir, level, logical, &buffer)?;
                let lower = Level { buffer, kind: DxKind::Node, index: std::mem::take(&mut level.index) };
                path.levels.insert(1, lower);
                next += 2;
                continue;
            }
            let (hash, kept) = self.split_index(dir, level, &buffer)?;
            if level.index >= kept {
                level.index -= kept;
                level.buffer = buffer;
                let Some(above) = path.levels.get_mut(next - 1) else { break };
                self.insert_index(dir, above, hash, logical)?;
                above.index += 1;
            } else if let Some(above) = path.levels.get(next - 1) {
                self.insert_index(dir, above, hash, logical)?;
            }
            next += 1;
        }
        Ok(())
    }

    fn push_down(
        &mut self,
        dir: &Inode,
        root: &Level,
        logical: LogicalBlock,
        lower: &Arc<Buffer>,
    ) -> Result<()> {
        let format = self.sbi.dir_format;
        let mut node = vec![0; format.block_bytes];
        self.modify_buffer(&root.buffer, |bytes| {
            DxNodeMut::parse(bytes, DxKind::Root, format.has_csum)?.push_down(&mut node, logical)
        })
        .map_err(|e| index_place(dir, &root.buffer).format(e))?;
        self.modify_buffer(lower, |bytes| bytes.copy_from_slice(&node));
        Ok(())
    }

    /// Moves the upper half of a node into `upper`; the hash from which on it is there, and how many entries stay.
    fn split_index(&mut self, dir: &Inode, level: &Level, upper: &Arc<Buffer>) -> Result<(u32, usize)> {
        let format = self.sbi.dir_format;
        let mut node = vec![0; format.block_bytes];
        let split = self
            .modify_buffer(&level.buffer, |bytes| {
                let mut lower = DxNodeMut::parse(bytes, level.kind, format.has_csum)?;
                let hash = lower.split_upper(&mut node)?;
                Ok((hash, lower.as_node().count()))
            })
            .map_err(|e| index_place(dir, &level.buffer).format(e))?;
        self.modify_buffer(upper, |bytes| bytes.copy_from_slice(&node));
        Ok(split)
    }

    fn insert_index(&mut self, dir: &Inode, level: &Level, hash: u32, child: LogicalBlock) -> Result<()> {
        let has_csum = self.sbi.dir_format.has_csum;
        let location = index_place(dir, &level.buffer);
        let inserted = self
            .modify_buffer(&level.buffer, |bytes| {
                DxNodeMut::parse(bytes, level.kind, has_csum)?.insert_after(level.index, hash, child)
            })
            .map_err(|e| location.format(e))?;
        if inserted { Ok(()) } else { Err(location.corrupt("room for an index entry is gone")) }
    }

    /// Takes a name out of a directory and sets the directory's times.
    ///
    /// # Errors
    /// `Corrupt`, and no change, if the entry is not there.
    pub(crate) fn remove_entry(&mut self, dir: &Arc<Inode>, found: &Found) -> Result<()> {
        let Found { buffer, offset, before, usable, .. } = found;
        self.modify_buffer(buffer, |bytes| dirent::remove(bytes, *usable, *offset, *before))
            .map_err(|e| place_in(dir, buffer).format(e))?;
        self.note_name_changed();
        self.touch_directory(dir);
        Ok(())
    }

    /// Makes a name refer to another inode.
    ///
    /// # Errors
    /// `Corrupt`, and no change, if the entry is not there.
    pub(crate) fn replace_entry(
        &mut self,
        dir: &Arc<Inode>,
        found: &Found,
        number: InodeNumber,
        file_type: FileType,
    ) -> Result<()> {
        let byte = self.sbi.dir_format.file_type_byte(file_type);
        self.note_name_changed();
        self.modify_buffer(&found.buffer, |bytes| {
            dirent::set_inode(bytes, found.usable, found.offset, number, byte)
        })
        .map_err(|e| place_in(dir, &found.buffer).format(e))
    }

    /// Makes the first block of a new directory.
    ///
    /// # Errors
    /// `Corrupt` if the bitmaps are damaged.
    pub(crate) fn make_first_block(
        &mut self,
        dirs: &Directories,
        dir: &Arc<Inode>,
        parent: InodeNumber,
    ) -> Result<()> {
        let format = self.sbi.dir_format;
        let (_, buffer) = self.grow_directory(dirs, dir, BufferKind::Directory(dir.owner()), &mut None)?;
        let byte = format.file_type_byte(FileType::Directory);
        self.modify_buffer(&buffer, |bytes| {
            dirent::init_dot_dotdot(bytes, format.usable, dir.number, parent, byte);
        });
        Ok(())
    }
}
