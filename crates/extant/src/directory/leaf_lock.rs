//! Parallel operations in an indexed directory: threads that meet in one look names up, add and remove them side by side.
//!
//! A directory begins as one of a thread's own: a change of its names holds `INODE` alone. Once threads have waited for that a few times it
//! gets a [`LeafMap`], and is shared from then on: a thread that changes one name holds `INODE` shared, beside others, and alone the lock of
//! the leaf that the name's hash belongs to; one that looks a name up shares that lock. What a full leaf is divided into is worked out under its
//! lock; then a block is taken under `LEAF_BLOCK`, and `INDEX` is held while the directory gets that block and the index an entry, so that the
//! next thread takes its block meanwhile. A file is renamed with the leaves of both names held, and an inode is linked, or a directory removed, with
//! the inode itself ([`super::leaf_pair`]). All else holds `INODE` alone: names that the index may have in two leaves, directories that are
//! renamed, exchanges.
//!
//! Invariants: while the lock of a leaf is held, the range of hashes that the index gives it stays the same. A range changes between two
//! increments of a version, before its leaf is let go: [`LeafMap::index_version`], and that of the part of the map. A look at either beside
//! that is seen to be out of date once the leaf's lock is held, and made again. A directory becomes shared under `INODE` held alone.
//!
//! Locks: `INODE`, shared; `LEAF`; `HANDLE`; `LEAF_BLOCK`; `INDEX`. No handle is opened under `INDEX`.
//!
//! Source: parallel operations in a directory of Lustre (`pdirops`), which locks leaves in its form of ext4. Tests: `tests/shared_dirs.rs`.

use std::ops::Deref;

use extant_ondisk::{InodeFlags, LogicalBlock, Structure};
use extant_rt::{
    Arc, BiasedReadGuard, BiasedWriteGuard, LockClass, Ordering, Rank, RwLockReadGuard, RwLockWriteGuard,
};

use super::NAME_FORMS;
use super::index::{IndexPath, Next};
use super::lookup::Looked;
use crate::directory::Directories;
use crate::error::{Error, Location, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::{Inode, in_order};
use crate::incore::leaf_map::{KeptLeaf, Leaf, LeafMap, Seen};

/// After so many waits of threads for each other a directory is shared.
const WAITS: u32 = if cfg!(extant_rt = "shuttle") { 1 } else { 16 };

/// The leaf that alone may hold a name, and whether the map of leaves shows it.
#[derive(Clone, Copy)]
pub(super) struct OnlyLeaf {
    logical: LogicalBlock,
    is_shown: bool,
}

/// Whether a leaf is held to look or to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafHold {
    Shared,
    Alone,
}

pub(super) enum LeafGuard<'a> {
    Shared(RwLockReadGuard<'a, Option<KeptLeaf>>),
    Alone(RwLockWriteGuard<'a, Option<KeptLeaf>>),
}

impl Deref for LeafGuard<'_> {
    type Target = Option<KeptLeaf>;

    fn deref(&self) -> &Option<KeptLeaf> {
        match self {
            Self::Shared(guard) => guard,
            Self::Alone(guard) => guard,
        }
    }
}

/// The leaf that a name belongs to, held by its lock, and what was found there.
pub(crate) struct HeldLeaf<'a> {
    pub(crate) looked: Looked,
    leaf: OnlyLeaf,
    lock: LeafGuard<'a>,
    _content: BiasedReadGuard<'a, ()>,
}

impl HeldLeaf<'_> {
    /// Its place in the directory.
    pub(super) fn logical(&self) -> LogicalBlock {
        self.leaf.logical
    }
}

/// The leaf that a name may belong to, as it was seen before its lock is held.
pub(super) enum Candidate<'m> {
    /// It did not have the name, and had room for it.
    WithRoom(LogicalBlock),
    ByIndex(OnlyLeaf, Seen<'m>),
}

impl Candidate<'_> {
    pub(super) fn logical(&self) -> LogicalBlock {
        match self {
            Self::WithRoom(logical) => *logical,
            Self::ByIndex(leaf, _) => leaf.logical,
        }
    }
}

impl Directories {
    /// Holds inodes alone, in order; directories as [`Directories::hold_names`] does.
    ///
    /// # Locks
    /// Takes `INODE` of each.
    pub(crate) fn hold_all<'n>(&self, inodes: &[&'n Arc<Inode>]) -> Vec<BiasedWriteGuard<'n, ()>> {
        let hold = |inode: &'n Arc<Inode>| match inode.is_directory() {
            true => self.hold_names(inode),
            false => inode.content.write(),
        };
        in_order(inodes).into_iter().map(hold).collect()
    }

    /// Holds the names of a directory alone. Notes if it had to wait for others.
    ///
    /// # Locks
    /// Takes `INODE`, alone.
    pub(crate) fn hold_names<'d>(&self, dir: &'d Arc<Inode>) -> BiasedWriteGuard<'d, ()> {
        // The order is checked whether or not the lock is free: it is waited for if not.
        let _ = Rank::enter(LockClass::INODE, u64::from(dir.number.0));
        if let Some(held) = dir.content.try_write() {
            return held;
        }
        let held = dir.content.write();
        if dir.note_wait() >= WAITS {
            self.share_directory(dir);
        }
        held
    }

    /// Makes a directory, which is held alone, one whose names threads change side by side, if it has an index and few others are such.
    pub(crate) fn share_directory(&self, dir: &Arc<Inode>) {
        if dir.is_directory()
            && self.has_leaves(dir)
            && dir.leaf_map().is_none()
            && let Ok(root) = self.index_root(dir)
            && let Some(map) = self.leaf_maps_left.take(root.hasher)
        {
            dir.set_leaf_map(map);
        }
    }

    /// Holds the leaf that a name belongs to, and looks for the name. `None` if the directory is not shared, if the name is not in one leaf
    /// alone, and if there is damage: the caller holds `INODE` instead, which tells it.
    ///
    /// # Errors
    /// `Io`.
    ///
    /// # Locks
    /// Takes `INODE` of the directory, shared, and `LEAF`.
    pub(crate) fn hold_leaf<'a>(
        &'a self,
        dir: &'a Arc<Inode>,
        name: &[u8],
        hold: LeafHold,
    ) -> Result<Option<HeldLeaf<'a>>> {
        match dir.leaf_map() {
            Some(_) => self.hold_leaf_of(dir, dir.content.read(), name, hold),
            None => Ok(None),
        }
    }

    /// As [`Directories::hold_leaf`] in a directory that is held.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Locks
    /// Takes `LEAF`.
    pub(crate) fn hold_leaf_of<'a>(
        &'a self,
        dir: &'a Arc<Inode>,
        content: BiasedReadGuard<'a, ()>,
        name: &[u8],
        hold: LeafHold,
    ) -> Result<Option<HeldLeaf<'a>>> {
        let Some(map) = self.shared_map(dir).filter(|_| !matches!(name, b"." | b"..")) else {
            return Ok(None);
        };
        match self.look_in_leaf(dir, map, name, hold) {
            Ok(Some((looked, leaf, lock))) => Ok(Some(HeldLeaf { looked, leaf, lock, _content: content })),
            Ok(None) | Err(Error::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The leaves of a directory, whose lock is held, if threads change its names side by side.
    pub(crate) fn shared_map<'d>(&self, dir: &'d Inode) -> Option<&'d LeafMap> {
        dir.leaf_map().filter(|_| self.has_leaves(dir))
    }

    fn has_leaves(&self, dir: &Inode) -> bool {
        let flags = dir.flags();
        self.dir_format.has_index
            && flags.contains(InodeFlags::INDEX)
            && !flags.intersects(NAME_FORMS | InodeFlags::INLINE_DATA)
    }

    fn look_in_leaf<'m>(
        &self,
        dir: &Arc<Inode>,
        map: &'m LeafMap,
        name: &[u8],
        hold: LeafHold,
    ) -> Result<Option<(Looked, OnlyLeaf, LeafGuard<'m>)>> {
        while let Some(candidate) = self.candidate(dir, map, name)? {
            let mut lock = lock_leaf(map, candidate.logical(), hold);
            if let Some((looked, leaf)) = self.look_at(dir, map, name, &candidate, &mut lock)? {
                return Ok(Some((looked, leaf, lock)));
            }
        }
        Ok(None)
    }

    /// The leaf that a name may belong to; `None` if it may be in two.
    pub(super) fn candidate<'m>(
        &self,
        dir: &Arc<Inode>,
        map: &'m LeafMap,
        name: &[u8],
    ) -> Result<Option<Candidate<'m>>> {
        if let Some((_, logical)) = self.negative_lookups.room_in_leaf(dir, name) {
            return Ok(Some(Candidate::WithRoom(logical)));
        }
        let (leaf, seen) = self.only_leaf(dir, map, name)?;
        Ok(leaf.map(|leaf| Candidate::ByIndex(leaf, seen)))
    }

    /// Looks for a name in a leaf whose lock is held; `None` if the name may belong to another one by now.
    pub(super) fn look_at(
        &self,
        dir: &Arc<Inode>,
        map: &LeafMap,
        name: &[u8],
        candidate: &Candidate<'_>,
        lock: &mut LeafGuard<'_>,
    ) -> Result<Option<(Looked, OnlyLeaf)>> {
        let (leaf, seen) = match candidate {
            Candidate::WithRoom(logical) => {
                let leaf = OnlyLeaf { logical: *logical, is_shown: false };
                let room = self.negative_lookups.room_in_leaf(dir, name).filter(|(_, now)| now == logical);
                return Ok(room.map(|(room, _)| (Looked::Missing(Some(room)), leaf)));
            }
            Candidate::ByIndex(leaf, seen) => (*leaf, seen),
        };
        if !seen.is_current() {
            return Ok(None);
        }
        let buffer = self.leaf_buffer(dir, map, leaf, lock)?;
        let looked = self.look_in(dir, buffer, self.dir_format.usable, name)?;
        if let Looked::Missing(Some(room)) = &looked {
            self.negative_lookups.keep(dir, name, room.clone(), Some(leaf.logical));
        }
        Ok(Some((looked, leaf)))
    }

    /// The leaf that a name belongs to by the index as it was seen; `None` if the name may be in the next one, too.
    fn only_leaf<'m>(
        &self,
        dir: &Arc<Inode>,
        map: &'m LeafMap,
        name: &[u8],
    ) -> Result<(Option<OnlyLeaf>, Seen<'m>)> {
        while !map.is_void() {
            if let Some((leaf, seen)) = map.find(map.hasher.hash(name).hash) {
                return Ok((leaf.map(|logical| OnlyLeaf { logical, is_shown: true }), seen));
            }
            self.fill_leaf_map(dir, map)?;
        }
        let seen = Seen::of(&map.index_version);
        let root = self.index_root(dir)?;
        let hash = root.hasher.hash(name).hash;
        let path = self.index_path(dir, &root, hash)?;
        let is_next_too = path.end.is_some_and(|end| end & !1 == hash);
        Ok(((!is_next_too).then_some(OnlyLeaf { logical: path.leaf, is_shown: false }), seen))
    }

    /// Shows the index in the map of its leaves.
    fn fill_leaf_map(&self, dir: &Arc<Inode>, map: &LeafMap) -> Result<()> {
        let _index = map.index.write();
        if !map.is_to_fill() {
            return Ok(());
        }
        let root = self.index_root(dir)?;
        if root.hasher != map.hasher {
            map.void();
            return Ok(());
        }
        let mut path = self.index_path(dir, &root, 0)?;
        let leaf = |path: &IndexPath| -> Result<Leaf> {
            Ok(Leaf { logical: path.leaf, block: self.directory_block(dir, path.leaf)? })
        };
        let mut leaves = vec![(0, leaf(&path)?)];
        while let Next::Leaf(hash) = path.next(self, dir)? {
            leaves.push((hash, leaf(&path)?));
        }
        map.fill(&leaves);
        Ok(())
    }

    /// The block of a leaf that is held.
    pub(super) fn buffer_of(&self, dir: &Arc<Inode>, held: &HeldLeaf<'_>) -> Result<Arc<Buffer>> {
        match self.kept_buffer(dir, held.leaf, &held.lock) {
            Some(buffer) => Ok(buffer),
            None => self.directory_buffer(dir, held.leaf.logical, BufferKind::Directory(dir.owner())),
        }
    }

    /// The block of a leaf that its lock keeps.
    fn kept_buffer(&self, dir: &Inode, leaf: OnlyLeaf, lock: &LeafGuard<'_>) -> Option<Arc<Buffer>> {
        let kind = BufferKind::Directory(dir.owner());
        let is_it = |kept: &&KeptLeaf| kept.logical == leaf.logical && kept.buffer.is_valid(kind);
        lock.as_ref().filter(is_it).map(|kept| kept.buffer.clone())
    }

    /// The block of a leaf whose lock is held.
    fn leaf_buffer(
        &self,
        dir: &Arc<Inode>,
        map: &LeafMap,
        leaf: OnlyLeaf,
        lock: &mut LeafGuard<'_>,
    ) -> Result<Arc<Buffer>> {
        if let Some(buffer) = self.kept_buffer(dir, leaf, lock) {
            return Ok(buffer);
        }
        let kind = BufferKind::Directory(dir.owner());
        let buffer = if leaf.is_shown {
            let location = Location::of(Structure::DirectoryBlock).inode(dir.number);
            self.buffer(map.block_of(leaf.logical), kind, location)?
        } else {
            self.directory_buffer(dir, leaf.logical, kind)?
        };
        if let LeafGuard::Alone(lock) = lock {
            map.keep(lock, KeptLeaf { logical: leaf.logical, buffer: buffer.clone() });
        }
        Ok(buffer)
    }
}

fn lock_leaf(map: &LeafMap, leaf: LogicalBlock, hold: LeafHold) -> LeafGuard<'_> {
    let lock = map.lock_of(leaf);
    match hold {
        LeafHold::Shared => LeafGuard::Shared(lock.read()),
        LeafHold::Alone => LeafGuard::Alone(lock.write()),
    }
}

/// A change of which leaf of a shared directory holds which hashes, under `INDEX`, or `INODE`, held alone. Dropping it ends it.
pub(super) struct IndexChange<'a> {
    map: &'a LeafMap,
    is_whole: bool,
}

impl<'a> IndexChange<'a> {
    pub(super) fn begin(map: &'a LeafMap) -> Self {
        map.index_version.fetch_add(1, Ordering::AcqRel);
        Self { map, is_whole: false }
    }

    /// Ends it; the map has yet to show it, before the leaf that was divided is let go.
    pub(super) fn end(mut self) {
        self.is_whole = true;
    }
}

impl Drop for IndexChange<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            self.map.forget();
        }
        self.map.index_version.fetch_add(1, Ordering::AcqRel);
    }
}
