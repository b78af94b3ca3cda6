//! A leaf of a shared directory ([`super::leaf_lock`]) and what is to be held with it: the leaf of another name, as a rename changes two, or
//! the inode that a name is of.
//!
//! Which leaves two names belong to is found before either is held, and seen again once both are.
//!
//! Locks: `INODE` of the directories in order of number, then `LEAF` in order of key. Tests: `tests/shared_dirs.rs`.

use extant_rt::{Arc, BiasedReadGuard, BiasedWriteGuard};

use super::leaf_lock::{Candidate, HeldLeaf, LeafGuard, LeafHold};
use super::lookup::Looked;
use crate::directory::Directories;
use crate::error::{Error, Result};
use crate::incore::inode::{Inode, in_order};
use crate::incore::leaf_map::LeafMap;

/// `INODE` of a directory.
pub(crate) enum HeldDirectory<'d> {
    Shared { _guard: BiasedReadGuard<'d, ()> },
    Alone { _guard: BiasedWriteGuard<'d, ()> },
}

/// The leaves of two names, held.
struct Leaves<'a> {
    /// What was found of each name; none where the directory is held alone.
    looked: [Option<Looked>; 2],
    _locks: Vec<LeafGuard<'a>>,
}

/// Two names that no other thread changes, or looks for past what is in memory.
pub(crate) struct HeldPair<'a> {
    leaves: Leaves<'a>,
    _contents: Vec<HeldDirectory<'a>>,
}

impl HeldPair<'_> {
    /// What was found of the first name, 0, or of the second in its leaf; none where the directory is held alone.
    pub(crate) fn looked_at(&self, index: usize) -> Option<&Looked> {
        self.leaves.looked[index].as_ref()
    }
}

/// A name, its directory, and the map of that if it is shared.
type Side<'a, 'n> = (&'a Arc<Inode>, &'n [u8], Option<&'a LeafMap>);

impl Directories {
    /// Holds two names. `None` if no directory of theirs is shared, and where [`Directories::hold_leaf`] gives none: the caller holds `INODE`
    /// of both alone.
    ///
    /// # Errors
    /// `Io`.
    ///
    /// # Locks
    /// Takes `INODE` of both directories, and `LEAF`.
    pub(crate) fn hold_pair<'a>(
        &'a self,
        names: [(&'a Arc<Inode>, &[u8]); 2],
    ) -> Result<Option<HeldPair<'a>>> {
        let dirs = names.map(|(dir, _)| dir);
        if dirs.iter().all(|dir| dir.leaf_map().is_none()) {
            return Ok(None);
        }
        let (mut contents, mut maps) = (Vec::new(), Vec::new());
        for dir in in_order(&dirs) {
            if dir.leaf_map().is_none() {
                contents.push(HeldDirectory::Alone { _guard: self.hold_names(dir) });
                continue;
            }
            contents.push(HeldDirectory::Shared { _guard: dir.content.read() });
            let Some(map) = self.shared_map(dir) else { return Ok(None) };
            maps.push((dir.number, map));
        }
        let map_of = |dir: &Inode| maps.iter().find(|(number, _)| *number == dir.number).map(|(_, map)| *map);
        let sides = names.map(|(dir, name)| (dir, name, map_of(dir)));
        match self.look_in_leaves(sides) {
            Ok(Some(leaves)) => Ok(Some(HeldPair { leaves, _contents: contents })),
            Ok(None) | Err(Error::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Holds an inode alone, and the leaf that a name in a shared directory belongs to. `None` where [`Directories::hold_leaf`] gives none.
    ///
    /// # Errors
    /// `Io`.
    ///
    /// # Locks
    /// Takes `INODE` of both, and `LEAF`.
    pub(crate) fn hold_leaf_with<'a>(
        &'a self,
        inode: &'a Inode,
        dir: &'a Arc<Inode>,
        name: &[u8],
    ) -> Result<Option<(BiasedWriteGuard<'a, ()>, HeldLeaf<'a>)>> {
        if dir.leaf_map().is_none() || dir.number == inode.number {
            return Ok(None);
        }
        let (inode, content) = if dir.number < inode.number {
            let content = dir.content.read();
            (inode.content.write(), content)
        } else {
            (inode.content.write(), dir.content.read())
        };
        let leaf = self.hold_leaf_of(dir, content, name, LeafHold::Alone)?;
        Ok(leaf.map(|leaf| (inode, leaf)))
    }

    fn look_in_leaves<'a>(&self, sides: [Side<'a, '_>; 2]) -> Result<Option<Leaves<'a>>> {
        loop {
            let mut candidates = [None, None];
            for (candidate, (dir, name, map)) in candidates.iter_mut().zip(sides) {
                let Some(map) = map else { continue };
                let Some(found) = self.candidate(dir, map, name)? else { return Ok(None) };
                *candidate = Some(found);
            }
            if let Some(leaves) = self.look_at_both(sides, &candidates)? {
                return Ok(Some(leaves));
            }
        }
    }

    /// `None` if a name may belong to another leaf by now.
    fn look_at_both<'a>(
        &self,
        sides: [Side<'a, '_>; 2],
        candidates: &[Option<Candidate<'a>>; 2],
    ) -> Result<Option<Leaves<'a>>> {
        let both = || sides.into_iter().zip(candidates);
        let place = |((_, _, map), candidate): (Side<'a, '_>, &Option<Candidate<'a>>)| {
            Some((map?, candidate.as_ref()?.logical()))
        };
        let mut places: Vec<_> = both().filter_map(place).collect();
        places.sort_by_key(|(map, leaf)| map.key_of(*leaf));
        // Names of one leaf have one lock, and leaves may share one.
        places.dedup_by_key(|(map, leaf)| map.key_of(*leaf));
        let mut locks: Vec<_> = places
            .into_iter()
            .map(|(map, leaf)| (map.key_of(leaf), LeafGuard::Alone(map.lock_of(leaf).write())))
            .collect();
        let mut looked = [None, None];
        for (looked, (side, candidate)) in looked.iter_mut().zip(both()) {
            let ((dir, name, Some(map)), Some(candidate)) = (side, candidate) else { continue };
            let key = map.key_of(candidate.logical());
            let Some((_, lock)) = locks.iter_mut().find(|(other, _)| *other == key) else { continue };
            let Some((found, _)) = self.look_at(dir, map, name, candidate, lock)? else { return Ok(None) };
            *looked = Some(found);
        }
        Ok(Some(Leaves { looked, _locks: locks.into_iter().map(|(_, lock)| lock).collect() }))
    }
}
