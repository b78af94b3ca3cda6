//! The map of an inode as a list of extents and the blocks of the map itself, and a new map for other extents.
//!
//! A new map is written into blocks of its own, before the transaction that makes the inode use it. So moving costs the transaction
//! one block of an inode table, however deep the map is; a crash before it leaves the old map, and the new one means nothing.
//!
//! Leaves out: content, and which blocks are taken.

use std::collections::BTreeSet;

use extant_ondisk::extent::{self, MAX_LEN, MAX_UNWRITTEN_LEN, ROOT_CAPACITY};
use extant_ondisk::inode::I_BLOCK_SIZE;
use extant_ondisk::{
    Entries, Extent, ExtentIndex, ExtentNode, FsBlock, InodeNumber, LogicalBlock, RawInode, Structure,
    indirect,
};

use crate::error::{Location, Result};
use crate::incore::buffer::{BufferKind, Owner};
use crate::mapping::MapKind;
use crate::metadata::verify;
use crate::mount::Volume;

/// Blocks of a file that lie together on the disk; more than an extent may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) logical: u32,
    pub(crate) start: u64,
    pub(crate) len: u32,
    pub(crate) unwritten: bool,
}

/// An inode's map.
pub(crate) struct Map {
    pub(crate) kind: MapKind,
    /// What it maps, in order.
    pub(crate) pieces: Vec<Piece>,
    /// The blocks of the map itself.
    pub(crate) nodes: Vec<u64>,
}

impl Map {
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn read(volume: &Volume, number: InodeNumber, raw: &RawInode) -> Result<Self> {
        let kind = volume.map_kind(raw);
        let owner = Owner { inode: number, generation: raw.generation() };
        let (nodes, extents) = match kind {
            MapKind::None => (Vec::new(), Vec::new()),
            MapKind::Extents => {
                let (nodes, extents) = volume.whole_tree(owner, raw.i_block())?;
                (nodes.iter().map(|node| node.block.0).collect(), extents)
            }
            MapKind::Indirect => {
                (indirect_nodes(volume, number, raw)?, volume.all_indirect_extents(number, raw)?)
            }
        };
        let location = Location::of(Structure::Inode).inode(number);
        let mut pieces: Vec<Piece> = Vec::with_capacity(extents.len());
        for Extent { logical, len, start, unwritten } in extents {
            if !volume.geometry.is_valid_block_run(start, len.into()) {
                return Err(location.block(start).corrupt("maps blocks outside the disk"));
            }
            push(&mut pieces, Piece { logical: logical.0, start: start.0, len: len.into(), unwritten });
        }
        Ok(Self { kind, pieces, nodes })
    }

    /// Every run of blocks that belongs to the inode.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let pieces = self.pieces.iter().map(|piece| (piece.start, u64::from(piece.len)));
        pieces.chain(self.nodes.iter().map(|node| (*node, 1)))
    }
}

/// Adds a piece behind others, to the last one if it continues that.
pub(crate) fn push(pieces: &mut Vec<Piece>, next: Piece) {
    if let Some(last) = pieces.last_mut()
        && last.logical.checked_add(last.len) == Some(next.logical)
        && last.start + u64::from(last.len) == next.start
        && last.unwritten == next.unwritten
    {
        last.len += next.len;
    } else {
        pieces.push(next);
    }
}

/// The tables of block numbers of a file, each once.
fn indirect_nodes(volume: &Volume, number: InodeNumber, raw: &RawInode) -> Result<Vec<u64>> {
    let location = Location::of(Structure::IndirectBlock).inode(number);
    let mut seen = BTreeSet::new();
    let roots = (1..4).filter_map(|level| {
        let place = indirect::SINGLE + level - 1;
        indirect::pointer(raw.i_block(), place).map(|block| (block, level))
    });
    let mut open: Vec<(u32, u32)> = roots.collect();
    while let Some((block, level)) = open.pop() {
        if block == 0 {
            continue;
        }
        let block = FsBlock(block.into());
        if !volume.geometry.is_valid_block_run(block, 1) || !seen.insert(block.0) {
            return Err(location.block(block).corrupt("outside the disk, or in use twice"));
        }
        if level > 1 {
            let bytes = volume.buffer(block, BufferKind::Indirect, location)?.bytes();
            let tables = (0..volume.geometry.block_size / 4).filter_map(|at| indirect::pointer(&bytes, at));
            open.extend(tables.map(|table| (table, level - 1)));
        }
    }
    Ok(seen.into_iter().collect())
}

/// A map that is to be written.
pub(crate) struct NewMap {
    pub(crate) root: [u8; I_BLOCK_SIZE],
    pub(crate) nodes: Vec<(FsBlock, Vec<u8>)>,
}

impl NewMap {
    /// A map of pieces; `take` gives a free block at each call.
    ///
    /// # Errors
    /// Those of `take`; `Corrupt` for pieces that no such map has.
    pub(crate) fn build(
        volume: &Volume,
        owner: Owner,
        kind: MapKind,
        pieces: &[Piece],
        take: &mut dyn FnMut() -> Result<u64>,
    ) -> Result<Self> {
        let mut map = Self { root: [0; I_BLOCK_SIZE], nodes: Vec::new() };
        let format = |e| Location::of(Structure::ExtentNode).inode(owner.inode).format(e);
        match kind {
            MapKind::None => {}
            MapKind::Extents => {
                let root = map.extents(volume, pieces, take).map_err(|error| match error {
                    Failure::Format(error) => format(error),
                    Failure::Engine(error) => error,
                })?;
                root.write(&mut map.root).map_err(format)?;
                for (block, bytes) in &mut map.nodes {
                    verify::sum(&volume.checksums, BufferKind::Extent(owner), *block, bytes);
                }
            }
            MapKind::Indirect => map.tables(volume.geometry.block_size, owner.inode, pieces, take)?,
        }
        Ok(map)
    }

    /// Builds a tree from its leaves up; gives its root.
    fn extents(
        &mut self,
        volume: &Volume,
        pieces: &[Piece],
        take: &mut dyn FnMut() -> Result<u64>,
    ) -> Result<ExtentNode, Failure> {
        let block_size = volume.geometry.block_size;
        let capacity = extent::block_capacity(block_size);
        let extents: Vec<Extent> = pieces.iter().flat_map(extents_of).collect();
        let mut level = (0, Entries::Leaf(extents));
        loop {
            let (depth, entries) = level;
            if entries.len() <= usize::from(ROOT_CAPACITY) {
                return Ok(ExtentNode { depth, max_entries: ROOT_CAPACITY, entries });
            }
            let chunks: Vec<(LogicalBlock, Entries)> = match entries {
                Entries::Leaf(all) => all
                    .chunks(capacity.into())
                    .map(|it| (it[0].logical, Entries::Leaf(it.to_vec())))
                    .collect(),
                Entries::Index(all) => all
                    .chunks(capacity.into())
                    .map(|it| (it[0].logical, Entries::Index(it.to_vec())))
                    .collect(),
            };
            let mut indexes = Vec::with_capacity(chunks.len());
            for (logical, entries) in chunks {
                let child = FsBlock(take()?);
                let mut bytes = vec![0; block_size as usize];
                ExtentNode { depth, max_entries: capacity, entries }.write(&mut bytes)?;
                self.nodes.push((child, bytes));
                indexes.push(ExtentIndex { logical, child });
            }
            level = (depth + 1, Entries::Index(indexes));
        }
    }

    /// Fills tables of block numbers. Pieces are in order, so the tables on the way to the last block are those in use.
    fn tables(
        &mut self,
        block_size: u32,
        number: InodeNumber,
        pieces: &[Piece],
        take: &mut dyn FnMut() -> Result<u64>,
    ) -> Result<()> {
        let location = Location::of(Structure::IndirectBlock).inode(number);
        let beyond = location.corrupt("blocks beyond those that block numbers of 32 bits can map");
        // The places on the way to the last block, and the table in `nodes` that each is in; `None` for the inode.
        let mut way: Vec<(u32, Option<usize>)> = Vec::new();
        for piece in pieces {
            for offset in 0..piece.len {
                let logical = LogicalBlock(piece.logical.saturating_add(offset));
                let Some(path) = indirect::path(logical, block_size) else { return Err(beyond) };
                let places = path.offsets();
                let same = way.iter().zip(places).take_while(|((at, _), place)| at == *place).count();
                if way.len() != places.len() || same + 1 < places.len() {
                    way.truncate((same + 1).min(way.len()).min(places.len()));
                }
                for (level, place) in places.iter().enumerate() {
                    let table = match level {
                        0 => None,
                        _ if level < way.len() && level <= same => way[level].1,
                        _ => {
                            let block = take()?;
                            let pointer =
                                u32::try_from(block).map_err(|_| location.corrupt("no block number"))?;
                            self.nodes.push((FsBlock(block), vec![0; block_size as usize]));
                            let (at, above) = way[level - 1];
                            self.set(above, at, pointer);
                            Some(self.nodes.len() - 1)
                        }
                    };
                    if level < way.len() { way[level] = (*place, table) } else { way.push((*place, table)) }
                }
                let pointer = u32::try_from(piece.start + u64::from(offset))
                    .map_err(|_| location.corrupt("no block number"))?;
                if let Some((at, table)) = way.last().copied() {
                    self.set(table, at, pointer);
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, table: Option<usize>, at: u32, pointer: u32) {
        match table.and_then(|table| self.nodes.get_mut(table)) {
            Some((_, bytes)) => indirect::set_pointer(bytes, at, pointer),
            None => indirect::set_pointer(&mut self.root, at, pointer),
        }
    }
}

/// An error of building a tree.
enum Failure {
    Format(extant_ondisk::Error),
    Engine(crate::Error),
}

impl From<extant_ondisk::Error> for Failure {
    fn from(error: extant_ondisk::Error) -> Self {
        Self::Format(error)
    }
}

impl From<crate::Error> for Failure {
    fn from(error: crate::Error) -> Self {
        Self::Engine(error)
    }
}

/// The extents of a piece.
fn extents_of(piece: &Piece) -> impl Iterator<Item = Extent> {
    let Piece { logical, start, len, unwritten } = *piece;
    let most = u32::from(if unwritten { MAX_UNWRITTEN_LEN } else { MAX_LEN });
    (0..len).step_by(most as usize).map(move |at| Extent {
        logical: LogicalBlock(logical + at),
        len: most.min(len - at) as u16,
        start: FsBlock(start + u64::from(at)),
        unwritten,
    })
}
