//! What has to move: inodes with blocks behind the new end, and inodes whose group goes.
//!
//! One pass over all inodes finds them. Each block in use behind the end must be claimed once: a file system in which two inodes claim
//! a block, or none does, is refused before anything moves.

use std::collections::{BTreeMap, BTreeSet};

use extant_ondisk::{
    CompatFeatures, FileType, FsBlock, Geometry, IncompatFeatures, InodeFlags, InodeNumber, RawInode,
    Structure, indirect,
};

use super::map::Map;
use super::names::{self, References};
use super::usage::Usage;
use crate::error::{Error, Location, Result};
use crate::mount::Volume;

/// What a step moves.
pub(super) struct Work {
    /// Inodes with blocks behind the end or with numbers behind the last one, in order; not the journal's.
    pub(super) inodes: Vec<InodeNumber>,
    /// Of them, those that get another number.
    pub(super) renumbered: BTreeSet<InodeNumber>,
    /// Blocks behind the end, those of the journal included.
    pub(super) blocks: u64,
    /// The journal has blocks behind the end.
    pub(super) moves_journal: bool,
}

impl Work {
    /// What stands behind the end of `geometry`.
    ///
    /// # Errors
    /// `Unsupported` for what cannot be moved; `Corrupt` for blocks in use that no inode has, or two have; `Io`.
    pub(super) fn find(volume: &Volume, usage: &Usage<'_>, geometry: &Geometry) -> Result<Self> {
        let end = geometry.blocks_count;
        check_movable(volume, end)?;
        let journal = InodeNumber(volume.superblock.lock().s_journal_inum());
        let mut work =
            Self { inodes: Vec::new(), renumbered: BTreeSet::new(), blocks: 0, moves_journal: false };
        let mut claims: Vec<(u64, u64)> = Vec::new();
        let mut xattr_blocks = BTreeSet::new();
        each_inode(volume, &mut |number, raw| {
            let before = claims.len();
            let behind = |(start, len): (u64, u64)| {
                let from = start.max(end);
                (from < start + len).then(|| (from, start + len))
            };
            if number == InodeNumber::RESIZE {
                // What it maps are heads of groups.
                let top = indirect::pointer(raw.i_block(), indirect::DOUBLE).unwrap_or(0);
                claims.extend(behind((top.into(), 1)));
            } else {
                claims.extend(Map::read(volume, number, raw)?.runs().filter_map(behind));
            }
            let is_behind = claims.len() > before;
            if number == journal {
                work.moves_journal = is_behind;
                return Ok(());
            }
            let xattr_block = raw.file_acl().0;
            let has_xattrs_behind = xattr_block >= end;
            if has_xattrs_behind && xattr_blocks.insert(xattr_block) {
                claims.push((xattr_block, xattr_block + 1));
            }
            let goes = number.0 > geometry.inodes_count;
            if goes {
                check_renumbered(volume, number)?;
                work.renumbered.insert(number);
            }
            if goes || is_behind || has_xattrs_behind {
                work.inodes.push(number);
            }
            Ok(())
        })?;
        work.blocks = claims.iter().map(|(from, to)| to - from).sum();
        claims.sort_unstable();
        let is_shared = claims.windows(2).any(|pair| pair[0].1 > pair[1].0);
        if is_shared || work.blocks != usage.content()?.saturating_sub(usage.content_before(end)?) {
            return Err(Location::of(Structure::BlockBitmap).block(FsBlock(end)).corrupt(
                "behind the new end, blocks in use are not those that inodes have; `e2fsck -f` repairs it",
            ));
        }
        Ok(work)
    }

    /// The references to inodes that get other numbers.
    ///
    /// # Errors
    /// `Corrupt` if an inode has another number of names than it counts; `Io`.
    pub(super) fn references(&self, volume: &Volume) -> Result<References> {
        let mut found = BTreeMap::new();
        if self.renumbered.is_empty() {
            return Ok(found);
        }
        let is_wanted = |number| self.renumbered.contains(&number);
        each_inode(volume, &mut |number, _| {
            if volume.special_inodes.contains(number) {
                return Ok(());
            }
            names::collect(volume, volume.inode_if(number, |_| true)?.inode(), &is_wanted, &mut found)
        })?;
        for number in &self.renumbered {
            let inode = volume.inode_if(*number, |_| true)?;
            let raw = inode.raw();
            let names = found.get(number).into_iter().flatten().filter(|found| found.is_name()).count();
            let expected = match raw.file_type() {
                FileType::Directory => 1,
                _ if raw.flags().contains(InodeFlags::EA_INODE) => 0,
                _ => usize::from(raw.links_count()),
            };
            if names != expected {
                let location = Location::of(Structure::Inode).inode(*number);
                return Err(
                    location.corrupt("has another number of names than it counts; `e2fsck -f` repairs it")
                );
            }
        }
        Ok(found)
    }
}

/// Calls `act` with each inode in use.
fn each_inode(volume: &Volume, act: &mut dyn FnMut(InodeNumber, &RawInode) -> Result<()>) -> Result<()> {
    for number in (1..=volume.geometry.inodes_count).map(InodeNumber) {
        if volume.allocator.is_inode_allocated(number)? {
            let raw = volume.read_inode(number)?;
            if raw.mode() != 0 {
                act(number, &raw)?;
            } else if raw.blocks_bytes(volume.geometry.block_size) != 0 {
                return Err(Error::Unsupported("making a disk smaller that has bad blocks"));
            }
        }
    }
    Ok(())
}

/// Refuses what is not moved, if the file system is to have so many blocks.
pub(super) fn check_movable(volume: &Volume, blocks: u64) -> Result<()> {
    let superblock = volume.superblock.lock().clone();
    if superblock.incompat().contains(IncompatFeatures::MMP) && superblock.s_mmp_block() >= blocks {
        return Err(Error::Unsupported(
            "making a disk smaller whose multiple-mount protection lies behind the new end; \
             `extant tune -O ^mmp`, and `-O mmp` after it, move it",
        ));
    }
    Ok(())
}

fn check_renumbered(volume: &Volume, number: InodeNumber) -> Result<()> {
    let superblock = volume.superblock.lock();
    if superblock.compat().contains(CompatFeatures::STABLE_INODES) {
        return Err(Error::Unsupported("other numbers of inodes on a disk with the feature stable_inodes"));
    }
    if volume.special_inodes.contains(number) {
        return Err(Error::Unsupported("another number of an inode that the superblock names"));
    }
    Ok(())
}
