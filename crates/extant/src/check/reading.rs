//! A directory while its entries are read: its blocks, the names seen, and what its index says of each block.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use extant_ondisk::dir_hash::DirHasher;
use extant_ondisk::{FsBlock, InodeNumber, Structure};

use super::maps::Run;
use crate::error::Location;

/// The hashes of a leaf's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HashRange {
    pub(super) start: u32,
    /// The hash of the next leaf; its lowest bit says that this leaf may hold names of that hash too.
    pub(super) next: Option<u32>,
}

impl HashRange {
    pub(super) const ALL: Self = Self { start: 0, next: None };

    pub(super) fn contains(&self, hash: u32) -> bool {
        let below_next = self.next.is_none_or(|next| hash < next & !1 || next & 1 == 1 && hash == next & !1);
        hash >= self.start & !1 && below_next
    }
}

/// The role of a block of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Root,
    Inode,
    Leaf(HashRange),
}

impl Role {
    /// The role of a block without an index over it.
    pub(super) const fn linear() -> Self {
        Self::Leaf(HashRange::ALL)
    }
}

/// An index as far as it could be read.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) hasher: DirHasher,
    /// The role of each block, by its logical number in the directory.
    pub(super) roles: BTreeMap<u64, Role>,
}

impl Index {
    /// The role of a block; `None` if the index does not name it.
    pub(super) fn take_role(&mut self, logical: u64) -> Option<Role> {
        self.roles.remove(&logical)
    }

    /// Blocks that were named but not taken.
    pub(super) fn missing(&self) -> impl Iterator<Item = u64> + '_ {
        self.roles.keys().copied()
    }
}

/// A directory whose entries are being read.
pub(super) struct Reading<'d> {
    pub(super) number: InodeNumber,
    pub(super) generation: u32,
    pub(super) folds_case: bool,
    pub(super) is_encrypted: bool,
    pub(super) runs: &'d [Run],
    pub(super) index: Option<Index>,
    /// Names seen: of the whole directory, or of one block of an indexed one, where equal names share a block.
    pub(super) names: BTreeSet<Box<[u8]>>,
}

impl Reading<'_> {
    pub(super) fn location(&self) -> Location {
        Location::of(Structure::DirectoryBlock).inode(self.number)
    }

    /// The form of a name that is hashed, and that no two names have; none where it depends on the version of Unicode.
    pub(super) fn compared<'n>(&self, name: &'n [u8]) -> Option<Cow<'n, [u8]>> {
        match self.folds_case {
            false => Some(name.into()),
            true => name.is_ascii().then(|| name.to_ascii_lowercase().into()),
        }
    }

    /// The block on the disk of a block of the directory.
    pub(super) fn block(&self, logical: u64) -> Option<FsBlock> {
        let at = self.runs.partition_point(|run| run.logical <= logical).checked_sub(1)?;
        let run = self.runs.get(at)?;
        let offset = logical - run.logical;
        (offset < run.len).then(|| FsBlock(run.start.0 + offset))
    }
}
