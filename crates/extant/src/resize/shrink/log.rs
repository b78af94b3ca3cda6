//! Moving the journal's own blocks.
//!
//! A recovery finds the log by the journal's inode before it replays anything, and goes on using the blocks that it found. So no
//! transaction changes where the log is. Instead:
//!
//! 1. A transaction appends the new blocks behind the end of the log, where nothing uses them: the journal's inode maps more blocks
//!    than the log has.
//! 2. Unmounting empties the log. The new blocks are zeroed, and the log's superblock is copied if it moves.
//! 3. One write of the inode exchanges old blocks and new ones. Its bytes that change lie in one sector: a crash leaves the old order or
//!    the new one, and under both the log is empty.
//! 4. A transaction in the log at its new place cuts off what lies behind the log's end, which are the old blocks.
//!
//! A map that does not fit the inode has blocks of its own for each order, equally many. Those of the order that is not in use are mapped
//! behind the end, too. A map of block numbers becomes extents if the file system has those.
//!
//! Source: `ext2fs_add_journal_inode`, `jbd2_journal_init_inode`, which take an inode that is longer than the log.

use extant_block::BlockDevice;
use extant_ondisk::inode::I_BLOCK_SIZE;
use extant_ondisk::{Checksums, FsBlock, InodeFlags, InodeNumber, RawInode, Run, Structure, jbd2};

use super::map::{Map, NewMap, Piece, push};
use super::space::Space;
use crate::error::{Error, Location, Result};
use crate::incore::buffer::Owner;
use crate::mapping::MapKind;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate};
use crate::mount::Volume;
use crate::resize::write_all;

/// The exchange of old and new blocks, to be done when the file system is unmounted.
pub(super) struct Exchange {
    number: InodeNumber,
    home: (FsBlock, usize),
    root: [u8; I_BLOCK_SIZE],
    /// Runs of new blocks.
    zeroed: Vec<(u64, u64)>,
    /// The log's superblock, from and to.
    head: Option<(u64, u64)>,
    checksums: Checksums,
    block_size: u32,
    inode_size: u16,
}

/// The journal's inode, its map, and the length of its log in blocks.
fn journal_of(volume: &Volume) -> Result<Option<(InodeNumber, RawInode, Map, u32)>> {
    if volume.log_blocks == 0 {
        return Ok(None);
    }
    let number = InodeNumber(volume.superblock.lock().s_journal_inum());
    let location = Location::of(Structure::Journal).inode(number);
    let raw = volume.special_inode(number)?.raw();
    let map = Map::read(volume, number, &raw)?;
    let head = map.pieces.first().filter(|piece| piece.logical == 0);
    let head = FsBlock(head.ok_or(location.corrupt("has no first block"))?.start);
    let bytes = volume.read_block(head, location)?;
    let log = jbd2::Superblock::parse(&bytes)
        .map_err(|_| location.block(head).corrupt("no superblock of a log"))?;
    Ok(Some((number, RawInode::clone(&raw), map, log.s_maxlen)))
}

/// Gives the part of pieces before a block of the file, and the part behind it.
fn split_at(pieces: &[Piece], at: u32) -> (Vec<Piece>, Vec<Piece>) {
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    for piece in pieces {
        let len = at.saturating_sub(piece.logical).min(piece.len);
        if len > 0 {
            before.push(Piece { len, ..*piece });
        }
        if len < piece.len {
            let (logical, start) = (piece.logical + len, piece.start + u64::from(len));
            behind.push(Piece { logical, start, len: piece.len - len, ..*piece });
        }
    }
    (before, behind)
}

/// Cuts off what the journal's inode maps behind the log's end, and has the nodes of its map lie before the block `end`; durable when it
/// returns. Nothing to do if that is so.
///
/// # Errors
/// `NoSpace`; `Io`; `Corrupt`; the journal's.
pub(super) fn cut_off(volume: &Volume, end: u64) -> Result<()> {
    let Some((number, raw, map, log_len)) = journal_of(volume)? else { return Ok(()) };
    let (kept, cut) = split_at(&map.pieces, log_len);
    if cut.is_empty() && map.nodes.iter().all(|node| *node < end) {
        return Ok(());
    }
    let mut space = Space::new(volume, end)?;
    let owner = Owner { inode: number, generation: raw.generation() };
    let new = NewMap::build(volume, owner, map.kind, &kept, &mut || space.take_one())?;
    let blocks = kept.iter().map(|piece| u64::from(piece.len)).sum::<u64>() + new.nodes.len() as u64;
    replace(volume, number, (&new, map.kind), u64::from(log_len), blocks, &mut space, |update| {
        for piece in &cut {
            let run = Run { start: FsBlock(piece.start), len: piece.len };
            update.free(volume.to_clusters(run))?;
        }
        map.nodes.iter().try_for_each(|node| update.free_unlogged(*node))
    })
}

/// Blocks that the journal's inode maps behind the log's end, because moving the log was not completed.
///
/// # Errors
/// `Io`; `Corrupt`.
pub(super) fn blocks_behind(volume: &Volume) -> Result<u64> {
    let Some((_, _, map, log_len)) = journal_of(volume)? else { return Ok(0) };
    Ok(split_at(&map.pieces, log_len).1.iter().map(|piece| u64::from(piece.len)).sum())
}

/// Writes the nodes of a map and makes the journal's inode use it.
fn replace(
    volume: &Volume,
    number: InodeNumber,
    (new, kind): (&NewMap, MapKind),
    len: u64,
    blocks: u64,
    space: &mut Space<'_>,
    free: impl FnOnce(&mut MetadataUpdate<'_>) -> Result<()>,
) -> Result<()> {
    let block_size = volume.geometry.block_size;
    write_all(volume, new.nodes.clone())?;
    let journal = volume.writable()?;
    // No copy of a node that is freed is in the log.
    journal.commit_running()?;
    journal.checkpoint()?;
    let inode = volume.special_inode(number)?;
    let mut update = volume.begin(Credits::new(journal.max_credits() - 1, 0))?;
    space.taken().into_iter().try_for_each(|run| update.mark_used(volume.to_clusters(run)))?;
    free(&mut update)?;
    let bytes = len * u64::from(block_size);
    update.modify_inode(&inode, InodeDirty::Mapping, |raw| {
        // As many bytes as a log may have fit.
        let _ =
            raw.set_blocks_bytes(blocks * u64::from(block_size), block_size, volume.geometry.has_huge_file);
        *raw.i_block_mut() = new.root;
        raw.set_size(bytes);
        let mut flags = raw.flags();
        flags.set(InodeFlags::EXTENTS, kind == MapKind::Extents);
        raw.set_flags(flags);
    });
    update.modify_superblock(|superblock| {
        let mut copy = superblock.s_jnl_blocks();
        let (words, _) = new.root.as_chunks::<4>();
        for (field, word) in copy.iter_mut().zip(words) {
            *field = u32::from_le_bytes(*word);
        }
        copy[15] = (bytes >> 32) as u32;
        copy[16] = bytes as u32;
        superblock.set_s_jnl_blocks(copy);
    });
    update.finish();
    journal.commit_running()?;
    // A recovery looks for the log by the inode in its table: until that is the new one, nodes of the old map must not be reused.
    Ok(journal.checkpoint()?)
}

/// Appends new blocks before `end` for those of the log behind it; durable when it returns. `None` if there are none.
///
/// # Errors
/// `NoSpace`; `Io`; `Corrupt`; the journal's.
pub(super) fn append(volume: &Volume, end: u64) -> Result<Option<Exchange>> {
    let Some((number, raw, map, log_len)) = journal_of(volume)? else { return Ok(None) };
    let kind = if volume.features.has_extents { MapKind::Extents } else { map.kind };
    let mut space = Space::new(volume, end)?;
    let (mut appended, mut exchanged, mut old) = (map.pieces.clone(), Vec::new(), Vec::new());
    let mut next = log_len;
    let mut zeroed = Vec::new();
    for piece in &map.pieces {
        for part in super::relocate::split(piece, end) {
            if part.start < end {
                push(&mut exchanged, part);
                continue;
            }
            let mut done = 0;
            for run in space.take(part.len)? {
                push(
                    &mut appended,
                    Piece { logical: next, start: run.start.0, len: run.len, unwritten: false },
                );
                push(
                    &mut exchanged,
                    Piece { logical: part.logical + done, start: run.start.0, len: run.len, ..part },
                );
                zeroed.push((run.start.0, u64::from(run.len)));
                done += run.len;
                next += run.len;
            }
            old.push(part);
        }
    }
    let mut at = log_len;
    for part in old {
        push(&mut exchanged, Piece { logical: at, ..part });
        at += part.len;
    }
    if zeroed.is_empty() {
        return Ok(None);
    }
    let owner = Owner { inode: number, generation: raw.generation() };
    // Equally many extents make equally many nodes, so that the file is as long in both orders.
    let count = extents(&appended).max(extents(&exchanged));
    split_to(&mut appended, count);
    split_to(&mut exchanged, count);
    let [one, other] = &node_places(volume, (owner, kind), &appended, next, &mut space)?;
    let build = |pieces: &mut Vec<Piece>, own: &[u64], others: &[u64]| -> Result<NewMap> {
        map_nodes(pieces, next, others);
        let mut own = own.iter().copied();
        NewMap::build(volume, owner, kind, pieces, &mut || own.next().ok_or(Error::NoSpace))
    };
    let mut before = build(&mut appended, one, other)?;
    let after = build(&mut exchanged, other, one)?;
    before.nodes.extend(after.nodes);
    let len = u64::from(next) + other.len() as u64;
    let blocks = len + one.len() as u64;
    replace(volume, number, (&before, kind), len, blocks, &mut space, |update| {
        map.nodes.iter().try_for_each(|node| update.free_unlogged(*node))
    })?;
    let first = |pieces: &[Piece]| pieces.first().map_or(0, |piece| piece.start);
    let head = (first(&map.pieces), first(&exchanged));
    Ok(Some(Exchange {
        number,
        home: volume.inode_table_location(number)?,
        root: after.root,
        zeroed,
        head: (head.0 != head.1).then_some(head),
        checksums: volume.checksums,
        block_size: volume.geometry.block_size,
        inode_size: volume.geometry.inode_size,
    }))
}

/// Maps blocks behind a file of `next` blocks, each by itself.
fn map_nodes(pieces: &mut Vec<Piece>, next: u32, nodes: &[u64]) {
    let piece = |(logical, start): (u32, &u64)| Piece { logical, start: *start, len: 1, unwritten: false };
    pieces.extend((next..).zip(nodes).map(piece));
}

/// Takes blocks for the nodes of two maps, each of which maps `pieces`, and behind them the nodes of the other one.
fn node_places(
    volume: &Volume,
    (owner, kind): (Owner, MapKind),
    pieces: &[Piece],
    next: u32,
    space: &mut Space<'_>,
) -> Result<[Vec<u64>; 2]> {
    let mut count = 0;
    loop {
        let mut all = pieces.to_vec();
        map_nodes(&mut all, next, &vec![0; count]);
        let mut needed = 0;
        NewMap::build(volume, owner, kind, &all, &mut || {
            needed += 1;
            Ok(0)
        })?;
        // More pieces never need fewer nodes.
        if needed == count {
            break;
        }
        count = needed;
    }
    let mut take = || (0..count).map(|_| space.take_one()).collect::<Result<Vec<_>>>();
    Ok([take()?, take()?])
}

/// Splits pieces until they make at least so many extents.
fn split_to(pieces: &mut Vec<Piece>, count: usize) {
    while extents(pieces) < count {
        let Some(at) = (0..pieces.len()).max_by_key(|at| pieces[*at].len) else { break };
        let Piece { logical, start, len, unwritten } = pieces[at];
        if len < 2 {
            break;
        }
        pieces[at].len -= 1;
        let last = len - 1;
        let rest = Piece { logical: logical + last, start: start + u64::from(last), len: 1, unwritten };
        pieces.insert(at + 1, rest);
    }
}

/// Extents of pieces.
fn extents(pieces: &[Piece]) -> usize {
    pieces.iter().map(|piece| piece.len.div_ceil(u32::from(extant_ondisk::extent::MAX_LEN)) as usize).sum()
}

impl Exchange {
    /// Blocks of the log that get another place.
    pub(super) fn moved_blocks(&self) -> u64 {
        self.zeroed.iter().map(|(_, len)| len).sum()
    }

    /// Makes the log be at its new place; durable when it returns. The file system is unmounted.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if the inode is not there any more.
    pub(super) fn perform(self, device: &dyn BlockDevice) -> Result<()> {
        let location = Location::of(Structure::Journal).inode(self.number);
        let size = u64::from(self.block_size);
        for (start, len) in self.zeroed {
            device
                .write_zeroes(start * size, len * size)
                .map_err(|e| location.block(FsBlock(start)).io(e))?;
        }
        let mut bytes = vec![0; self.block_size as usize];
        if let Some((from, to)) = self.head {
            device.read_at(from * size, &mut bytes).map_err(|e| location.block(FsBlock(from)).io(e))?;
            device.write_at(to * size, &bytes).map_err(|e| location.block(FsBlock(to)).io(e))?;
        }
        // Before the inode says that the log is there.
        device.flush().map_err(|e| location.io(e))?;
        let (block, offset) = self.home;
        let location = location.block(block);
        device.read_at(block.0 * size, &mut bytes).map_err(|e| location.io(e))?;
        let field = bytes.get_mut(offset..offset + usize::from(self.inode_size));
        let field = field.ok_or(location.corrupt("past the end of the table"))?;
        let mut raw = RawInode::parse(field).map_err(|e| location.format(e))?;
        *raw.i_block_mut() = self.root;
        self.checksums.update_inode(self.number, &mut raw);
        field.copy_from_slice(raw.as_bytes());
        device.write_at(block.0 * size, &bytes).map_err(|e| location.io(e))?;
        device.flush().map_err(|e| location.io(e))
    }
}
