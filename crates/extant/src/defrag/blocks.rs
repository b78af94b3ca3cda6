//! Moving blocks of one inode's content: the one step of which all moves consist.
//!
//! Content is copied into free blocks, and a new map is written into free blocks, before the transaction that makes the inode use them and
//! frees the old ones. The commit's flush covers what was written before (J3), so a crash leaves the one or the other. Old blocks are
//! allocated again after the commit only.
//!
//! A step holds the content alone, with nothing of it in memory, and looks at the map anew: between two steps other threads read, write,
//! truncate and remove the file.
//!
//! Locks: `INODE` of the file, exclusively, for each step; the journal's.

use std::collections::BTreeSet;

use extant_ondisk::inode::I_BLOCK_SIZE;
use extant_ondisk::{FsBlock, InodeFlags, Run, Structure};
use extant_rt::Arc;

use super::Defrag;
use crate::error::{Error, Location, Result};
use crate::incore::inode::Inode;
use crate::mapping::MapKind;
use crate::metadata::update::{Credits, InodeDirty, RUN_CREDITS};
use crate::resize::shrink::map::{Map, NewMap, Piece, push};
use crate::resize::write_all;

/// Bytes copied at once: what stays in a cache of the CPU between reading and writing.
const COPY_BYTES: usize = 256 << 10;
/// Blocks that a step moves at least, if there are so many: with 4 KiB blocks 16 MiB, for which writers of the file wait.
const STEP_BLOCKS_MIN: u64 = 4096;
/// A step writes the map anew; this many times as many blocks of content pay for it.
const STEP_BLOCKS_PER_NODE: u64 = 64;
/// Blocks of metadata that one update revokes at most.
const REVOKES_MAX: usize = 64;

/// A content that is to take the place of an inode's.
pub(super) struct NewContent {
    pub(super) root: [u8; I_BLOCK_SIZE],
    /// Bytes of blocks that the inode is to count.
    pub(super) bytes: u64,
    /// The size and whether there is an index, of a directory.
    pub(super) directory: Option<(u64, bool)>,
    /// Freed by the update: content past the journal, and metadata.
    pub(super) freed: Vec<Run>,
    pub(super) freed_metadata: Vec<u64>,
}

impl Defrag<'_, '_> {
    /// Moves `len` blocks of a file from block `logical` of it on to `to`, in steps; false if they are not to be moved any more.
    ///
    /// # Errors
    /// `NoSpace`; `Unsupported`; `Interrupted`; `Io`; `Corrupt`; the journal's. The steps before stay done.
    pub(super) fn move_run(&mut self, inode: &Arc<Inode>, logical: u64, len: u64, to: u64) -> Result<bool> {
        let mut done = 0;
        while done < len {
            let moved = match self.is_dry_run {
                true => len,
                false => self.move_step(inode, logical + done, len - done, to + done)?,
            };
            if moved == 0 {
                return Ok(false);
            }
            done += moved;
            self.count_moved(moved)?;
        }
        Ok(true)
    }

    /// Moves the first of `len_max` blocks: how many; none if the file does not map them all, or may not be moved any more.
    fn move_step(&mut self, inode: &Arc<Inode>, logical: u64, len_max: u64, to: u64) -> Result<u64> {
        let volume = self.volume;
        let _content = inode.content.write();
        volume.flush_out(inode)?;
        volume.discard_preallocations(inode);
        let raw = inode.raw();
        if raw.links_count() == 0 || raw.flags().contains(InodeFlags::IMMUTABLE) {
            return Ok(0);
        }
        let map = Map::read(volume, inode.number, &raw)?;
        let least = (map.nodes.len() as u64 * STEP_BLOCKS_PER_NODE).max(STEP_BLOCKS_MIN);
        let mut len = len_max.min(least).min(u64::from(u32::MAX));
        if map.kind == MapKind::Indirect && to.saturating_add(len) > u64::from(u32::MAX) {
            return Ok(0);
        }
        // As many as the journal can free at once.
        let pieces = loop {
            let Some(pieces) = pieces_in(&map, logical, len) else { return Ok(0) };
            let freed = pieces.iter().map(|piece| (piece.start, u64::from(piece.len)));
            if self.credits(freed.chain([(to, len)]), map.nodes.len()).is_ok() {
                break pieces;
            }
            len = (len / 2).max(1);
            if pieces.len() == 1 {
                return Err(journal_too_small());
            }
        };
        if !self.space.take(to, len as u32)? {
            return Ok(0);
        }
        let moved = self.move_pieces(inode, &map, &pieces, to);
        self.space.give_back();
        moved.map(|()| len)
    }

    /// Moves adjacent pieces of a file to `to`, and writes a map for that.
    fn move_pieces(&mut self, inode: &Arc<Inode>, map: &Map, pieces: &[Piece], to: u64) -> Result<()> {
        let (volume, block_size) = (self.volume, u64::from(self.volume.geometry.block_size));
        let Some(first) = pieces.first() else { return Ok(()) };
        let from = u64::from(first.logical);
        let place = |piece: &Piece| to + (u64::from(piece.logical) - from);
        for piece in pieces.iter().filter(|piece| !piece.unwritten) {
            self.copy(inode, piece, place(piece))?;
        }
        let end = from + pieces.iter().map(|piece| u64::from(piece.len)).sum::<u64>();
        let mut new = Vec::with_capacity(map.pieces.len() + 2);
        for piece in &map.pieces {
            for part in [cut(piece, 0, from), cut(piece, from, end), cut(piece, end, u64::MAX)] {
                let Some(part) = part else { continue };
                let is_inside = (from..end).contains(&part.logical.into());
                push(&mut new, if is_inside { Piece { start: place(&part), ..part } } else { part });
            }
        }
        let space = &mut self.space;
        let new = NewMap::build(volume, inode.owner(), map.kind, &new, &mut || space.take_one(map.kind))?;
        let nodes = |count: usize| count as u64 * block_size;
        let bytes = inode.raw().blocks_bytes(block_size as u32) + nodes(new.nodes.len());
        let content = NewContent {
            root: new.root,
            bytes: bytes.saturating_sub(nodes(map.nodes.len())),
            directory: None,
            freed: pieces.iter().map(|it| Run { start: FsBlock(it.start), len: it.len }).collect(),
            freed_metadata: map.nodes.clone(),
        };
        write_all(volume, new.nodes)?;
        self.swap(inode, content)
    }

    /// Copies blocks of a file.
    fn copy(&mut self, inode: &Inode, from: &Piece, to: u64) -> Result<()> {
        let volume = self.volume;
        let block_size = u64::from(volume.geometry.block_size);
        let location = Location::of(Structure::Inode).inode(inode.number);
        let bytes = u64::from(from.len) * block_size;
        self.buffer.resize(COPY_BYTES, 0);
        for at in (0..bytes).step_by(COPY_BYTES) {
            let part = &mut self.buffer[..(bytes - at).min(COPY_BYTES as u64) as usize];
            volume.read_data(FsBlock(from.start), at, part, location)?;
            let place = volume.data_offset(FsBlock(to), at, part.len(), location)?;
            volume.device.write_at(place, part).map_err(|e| location.block(FsBlock(to)).io(e))?;
        }
        Ok(())
    }

    /// Makes an inode have another content, in the blocks that were taken, and frees the blocks of the old one.
    ///
    /// # Errors
    /// `Unsupported` if the journal is too small; `FileTooLarge` if the inode cannot count so many blocks; `Corrupt`; `ReadOnly`; the
    /// journal's. The inode has its old content, unless the journal was aborted.
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(super) fn swap(&mut self, inode: &Arc<Inode>, content: NewContent) -> Result<()> {
        let NewContent { root, bytes, directory, freed, freed_metadata } = content;
        let volume = self.volume;
        let (block_size, huge) = (volume.geometry.block_size, volume.geometry.has_huge_file);
        let mut counted = (*inode.raw()).clone();
        counted.set_blocks_bytes(bytes, block_size, huge).map_err(|_| Error::FileTooLarge)?;
        let blocks = freed_metadata.iter().map(|block| Run { start: FsBlock(*block), len: 1 });
        let runs: Vec<Run> = freed.iter().copied().chain(blocks).collect();
        let all = runs.iter().chain(self.space.taken());
        let credits = self.credits(all.map(|run| (run.start.0, run.len.into())), 0)?;
        runs.iter().try_for_each(|run| volume.prepare_free(*run))?;
        let is_revoked = freed_metadata.len() <= REVOKES_MAX;
        if !is_revoked {
            // Then the log has no copy of them.
            let journal = volume.writable()?;
            journal.commit_running()?;
            journal.checkpoint()?;
        }
        let mut update = volume.begin(Credits::new(credits, 0))?;
        self.space.taken().iter().try_for_each(|run| update.mark_used(volume.to_clusters(*run)))?;
        freed.iter().try_for_each(|run| update.free(volume.to_clusters(*run)))?;
        for block in freed_metadata {
            if is_revoked { update.free_metadata(FsBlock(block))? } else { update.free_unlogged(block)? }
        }
        update.modify_inode(inode, InodeDirty::Mapping, |raw| {
            *raw.i_block_mut() = root;
            // Tried before on a copy of the same inode.
            let _ = raw.set_blocks_bytes(bytes, block_size, huge);
            if let Some((size, is_indexed)) = directory {
                raw.set_size(size);
                let mut flags = raw.flags();
                flags.set(InodeFlags::INDEX, is_indexed);
                raw.set_flags(flags);
            }
        });
        update.finish();
        self.space.marked();
        runs.iter().for_each(|run| self.space.free(run.start.0, run.len.into()));
        Ok(())
    }

    /// The blocks that an update may change that marks and frees these runs and `nodes` blocks elsewhere and as many again.
    fn credits(&self, runs: impl Iterator<Item = (u64, u64)>, nodes: usize) -> Result<u32> {
        let geometry = &self.volume.geometry;
        let group = |block: u64| geometry.group_of(FsBlock(block)).map_or(0, |(group, _)| group.0);
        let mut groups = BTreeSet::new();
        for (start, len) in runs {
            groups.extend(group(start)..=group(start + len.saturating_sub(1)));
        }
        // With the inode.
        let credits = (groups.len() + 2 * nodes) as u64 * u64::from(RUN_CREDITS) + 1;
        let max = self.volume.journal.as_ref().map_or(u32::MAX, |journal| journal.max_credits());
        u32::try_from(credits).ok().filter(|credits| *credits < max).ok_or_else(journal_too_small)
    }
}

fn journal_too_small() -> Error {
    Error::Unsupported("moving blocks of a file in so many parts with a journal this small")
}

/// The part of a piece between two blocks of its file.
fn cut(piece: &Piece, from: u64, end: u64) -> Option<Piece> {
    let logical = u64::from(piece.logical);
    let (from, end) = (from.max(logical), end.min(logical + u64::from(piece.len)));
    (from < end).then(|| Piece {
        logical: from as u32,
        start: piece.start + (from - logical),
        len: (end - from) as u32,
        unwritten: piece.unwritten,
    })
}

/// The pieces of some blocks of a file; None if some of those are not mapped.
fn pieces_in(map: &Map, logical: u64, len: u64) -> Option<Vec<Piece>> {
    let end = logical + len;
    let first =
        map.pieces.partition_point(|piece| u64::from(piece.logical) + u64::from(piece.len) <= logical);
    let pieces: Vec<Piece> = map.pieces[first..].iter().map_while(|piece| cut(piece, logical, end)).collect();
    let mapped: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
    (mapped == len).then_some(pieces)
}
