//! The mapping of a file's content to blocks, and filling its holes: one interface for files with extents and with block maps.
//!
//! Leaves out: the maps themselves, see `extent` and `indirect`.
//!
//! Locks: the caller holds `INODE` of the file, to fill a hole alone, or shared with `MAPPING` alone ([`crate::incore::content`]). Tests: `tests/files.rs`, `tests/trees.rs`.

pub(crate) mod cluster;
pub(crate) mod extent;
pub(crate) mod indirect;
pub(crate) mod inline;
mod io;
mod limits;
pub(crate) mod prealloc;
pub(crate) mod quota;

use std::ops::{Deref, Range};

use extant_alloc::ClusterRun;
use extant_ondisk::extent::{MAX_LEN, MAX_UNWRITTEN_LEN};
use extant_ondisk::inode::I_BLOCK_SIZE;
use extant_ondisk::{
    Extent, ExtentNode, FileType, FsBlock, InodeFlags, InodeNumber, LogicalBlock, RawInode, Run, Structure,
};
use extant_rt::Arc;

use crate::error::{Error, Location, Result};
use crate::incore::buffer::Owner;
use crate::incore::inode::Inode;
use crate::mapping::cluster::NewBlocks;
use crate::mapping::extent::Path;
use crate::mapping::indirect::IndirectHole;
use crate::metadata::SbInfo;
use crate::metadata::update::{InodeDirty, MetadataUpdate};

/// The number of blocks that a file may have at most; no block has this number.
pub(crate) const LOGICAL_END: u64 = u32::MAX as u64;

/// The mapping of a block of a file and of those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Not mapped: reads as zeroes.
    Hole {
        /// Blocks, at least one.
        len: u32,
    },
    /// Blocks in one run.
    Data {
        /// The first block.
        start: FsBlock,
        /// Blocks, at least one.
        len: u32,
        /// Allocated, but reads as zeroes.
        unwritten: bool,
    },
}

impl Mapping {
    /// Blocks, at least one.
    pub(crate) fn len(&self) -> u32 {
        match *self {
            Self::Hole { len } | Self::Data { len, .. } => len,
        }
    }
}

/// How an inode maps its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// A tree of extents.
    Extents,
    /// Blocks of block numbers.
    Indirect,
    /// It has no blocks: a device, a short symbolic link, content in the inode.
    None,
}

/// The way to a hole of a file, and what it takes to fill it.
#[derive(Debug)]
pub(crate) enum Hole {
    Extents(Path),
    Indirect(IndirectHole),
}

impl Hole {
    /// Blocks for nodes or tables.
    pub(crate) fn growth(&self) -> u32 {
        match self {
            Self::Extents(path) => path.growth(1),
            Self::Indirect(hole) => hole.growth(),
        }
    }

    /// Credits, without those for the blocks themselves.
    pub(crate) fn credits(&self) -> u32 {
        match self {
            Self::Extents(path) => path.credits(path.growth(1)),
            Self::Indirect(hole) => hole.credits(),
        }
    }

    /// Where a block of it would best be, beside those before or behind it, if there are any.
    fn goal(&self, logical: LogicalBlock) -> Option<FsBlock> {
        match self {
            Self::Extents(path) => path.goal(logical),
            Self::Indirect(hole) => hole.goal(),
        }
    }

    /// Blocks that one update can map.
    pub(crate) fn len_max(&self) -> u32 {
        match self {
            Self::Extents(_) => u32::from(MAX_LEN),
            Self::Indirect(hole) => hole.len_max,
        }
    }

    /// Whether the map has room for the number of a block.
    pub(crate) fn can_name(&self, run: Run) -> bool {
        let bits = if matches!(self, Self::Extents(_)) { 48 } else { 32 };
        run.start.checked_add(u64::from(run.len)).is_some_and(|end| end.0 >> bits == 0)
    }
}

/// How the journal treats the blocks of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentKind {
    /// Written in place, past the journal.
    Data,
    /// Buffers, of a directory or a symbolic link.
    Metadata,
}

impl ContentKind {
    pub(crate) fn of(inode: &Inode) -> Self {
        if inode.file_type() == FileType::Regular { Self::Data } else { Self::Metadata }
    }

    /// Blocks that a step may free: for each block of metadata it writes a revoke record, of which even a small
    /// journal holds so many.
    pub(crate) fn step_blocks_max(self) -> u64 {
        match self {
            Self::Data => u64::MAX,
            Self::Metadata => 64,
        }
    }
}

/// What an inode has to say of a change of its content's map that is done outside it.
#[derive(Debug, Default)]
#[must_use = "the map is as it was until the inode is changed"]
pub(crate) struct ContentChange {
    map: MapChange,
    /// Clusters of the disk, more or less than it counts.
    clusters: i64,
}

/// A change of the part of a map that is in the inode.
#[derive(Debug, Default)]
enum MapChange {
    #[default]
    None,
    /// Another root of the extent tree.
    Root(ExtentNode),
    /// Adjacent blocks for adjacent pointers of a block map.
    Pointers { at: u32, first: u32, len: u32 },
}

impl ContentChange {
    pub(crate) fn of_root(root: ExtentNode) -> Self {
        Self { map: MapChange::Root(root), clusters: 0 }
    }

    pub(crate) fn of_pointers(at: u32, first: u32, len: u32) -> Self {
        Self { map: MapChange::Pointers { at, first, len }, clusters: 0 }
    }

    pub(crate) fn with_clusters(self, clusters: i64) -> Self {
        Self { clusters: self.clusters + clusters, ..self }
    }
}

/// The mapping of content to blocks.
pub(crate) struct BlockMap {
    lower: SbInfo,
}

impl Deref for BlockMap {
    type Target = SbInfo;

    fn deref(&self) -> &SbInfo {
        &self.lower
    }
}

impl BlockMap {
    pub(crate) fn new(lower: SbInfo) -> Self {
        Self { lower }
    }

    /// What mounting has to finish before there is a layer above.
    pub(crate) fn sb_info_mut(&mut self) -> &mut SbInfo {
        &mut self.lower
    }

    /// How an inode maps its content.
    pub(crate) fn map_kind(&self, raw: &RawInode) -> MapKind {
        let flags = raw.flags();
        match raw.file_type() {
            _ if raw.has_inline_data() => MapKind::None,
            FileType::Symlink if self.is_fast_symlink(raw) => MapKind::None,
            FileType::Regular | FileType::Directory | FileType::Symlink
                if flags.contains(InodeFlags::EXTENTS) =>
            {
                MapKind::Extents
            }
            FileType::Regular | FileType::Directory | FileType::Symlink => MapKind::Indirect,
            _ => MapKind::None,
        }
    }

    /// Whether a symbolic link's target is in the inode (`ext4_inode_is_fast_symlink`).
    fn is_fast_symlink(&self, raw: &RawInode) -> bool {
        if self.features.has_value_inodes {
            // The blocks of values count as its own.
            return raw.size() < I_BLOCK_SIZE as u64;
        }
        let block_size = self.geometry.block_size;
        let of_attributes = if raw.file_acl().0 == 0 { 0 } else { u64::from(block_size) };
        raw.blocks_bytes(block_size) <= of_attributes
    }

    /// The way to the hole that begins at or around `logical`, of an inode whose fields are `raw`.
    ///
    /// # Errors
    /// `FileTooLarge`; `Io`; `Corrupt`.
    pub(crate) fn hole(&self, inode: &Inode, raw: &RawInode, logical: LogicalBlock) -> Result<Hole> {
        Ok(match raw.flags().contains(InodeFlags::EXTENTS) {
            true => Hole::Extents(self.extent_path(inode, raw, logical)?),
            false if self.geometry.cluster_ratio > 1 => return Err(self.block_map_of_clusters(inode)),
            false => Hole::Indirect(self.indirect_hole(inode, raw, logical)?),
        })
    }

    /// The error of a map of block numbers, which is read and not changed on a disk of clusters: Linux makes none there.
    pub(crate) fn block_map_of_clusters(&self, inode: &Inode) -> Error {
        let location = Location::of(Structure::Inode).inode(inode.number);
        location.corrupt("mapped by block numbers on a disk of clusters")
    }

    /// Where to allocate the blocks of a hole.
    pub(crate) fn goal(&self, inode: &Inode, hole: &Hole, logical: LogicalBlock) -> FsBlock {
        hole.goal(logical).unwrap_or_else(|| self.goal_of_inode(inode.number))
    }

    /// The mapping of up to `len_max` blocks from `logical` on, of an inode whose fields are `raw`. `len_max` is at least 1.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn map(
        &self,
        inode: &Inode,
        raw: &RawInode,
        logical: LogicalBlock,
        len_max: u32,
    ) -> Result<Mapping> {
        match self.map_kind(raw) {
            MapKind::Extents => self.map_extents(inode.owner(), raw.i_block(), logical, len_max),
            MapKind::Indirect => self.map_indirect(inode.number, raw.i_block(), logical, len_max),
            MapKind::None => Ok(Mapping::Hole { len: len_max }),
        }
    }

    /// The blocks of an inode as extents, in order.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn all_extents(&self, number: InodeNumber, raw: &RawInode) -> Result<Vec<Extent>> {
        match self.map_kind(raw) {
            MapKind::Extents => {
                let owner = Owner { inode: number, generation: raw.generation() };
                self.all_tree_extents(owner, raw.i_block())
            }
            MapKind::Indirect => self.all_indirect_extents(number, raw),
            MapKind::None => Ok(Vec::new()),
        }
    }

    /// The extents of a range of a file's blocks, cut to it.
    ///
    /// # Errors
    /// `Unsupported` of a file without extents; `Io`; `Corrupt`.
    pub(crate) fn extents_in(&self, inode: &Inode, range: Range<u64>) -> Result<Vec<Extent>> {
        let raw = inode.raw();
        if self.map_kind(&raw) != MapKind::Extents {
            return Err(Error::Unsupported("extents of a file without"));
        }
        let mut extents = Vec::new();
        let (mut at, end) = (range.start, range.end.min(LOGICAL_END));
        while at < end {
            let logical = LogicalBlock(at as u32);
            let len_max = (end - at).min(u64::from(MAX_UNWRITTEN_LEN)) as u32;
            let mapping = self.map(inode, &raw, logical, len_max)?;
            at += u64::from(mapping.len());
            if let Mapping::Data { start, len, unwritten } = mapping {
                extents.push(Extent { logical, len: len as u16, start, unwritten });
            }
        }
        Ok(extents)
    }

    /// Blocks that bytes up to `bytes` take.
    pub(crate) fn blocks_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.geometry.block_size))
    }

    /// The largest size that an inode may have, by how it maps its blocks.
    pub(crate) fn size_max(&self, raw: &RawInode) -> u64 {
        let moves_to_extents = raw.has_inline_data() && self.features.has_extents;
        self.geometry.max_file_size(raw.flags().contains(InodeFlags::EXTENTS) || moves_to_extents)
    }

    /// Clusters that an inode can count beside those that it counts.
    pub(crate) fn countable_clusters(&self, raw: &RawInode) -> u64 {
        let block_sectors = u64::from(self.geometry.block_size / 512);
        // As `RawInode::set_blocks_512` has it: 32 bits of sectors, or with huge_file 48 bits of blocks.
        let sectors_max =
            if self.geometry.has_huge_file { ((1 << 48) - 1) * block_sectors } else { u64::from(u32::MAX) };
        let blocks = sectors_max.saturating_sub(raw.blocks_512(self.geometry.block_size)) / block_sectors;
        blocks >> self.geometry.cluster_bits
    }

    /// Refuses to give an inode `clusters` more clusters than it can count, before anything is changed.
    ///
    /// # Errors
    /// `FileTooLarge`.
    pub(crate) fn check_countable(&self, raw: &RawInode, clusters: u32) -> Result<()> {
        let is_countable = clusters == 0 || u64::from(clusters) <= self.countable_clusters(raw);
        is_countable.then_some(()).ok_or(Error::FileTooLarge)
    }

    /// Refuses to give a directory or symbolic link without extents `blocks` more blocks on a disk where they may get numbers of
    /// more than 32 bits, before anything is changed.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn check_nameable(&self, raw: &RawInode, blocks: u32) -> Result<()> {
        let has_extents = raw.flags().contains(InodeFlags::EXTENTS);
        let is_nameable = blocks == 0 || has_extents || self.geometry.blocks_count <= 1 << 32;
        is_nameable.then_some(()).ok_or(Error::NoSpace)
    }

    /// Refuses what is not a regular file.
    ///
    /// # Errors
    /// `IsADirectory`; `InvalidArgument`.
    pub(crate) fn check_regular(&self, raw: &RawInode) -> Result<()> {
        match raw.file_type() {
            FileType::Regular
                if self.features.has_encryption && raw.flags().contains(InodeFlags::ENCRYPT) =>
            {
                Err(Error::NoKey)
            }
            FileType::Regular => Ok(()),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::InvalidArgument("not a regular file")),
        }
    }

    /// The block of a directory's (or a symbolic link's) content.
    ///
    /// # Errors
    /// `Corrupt` if there is none, or it was never written; `Io`.
    pub(crate) fn directory_block(&self, inode: &Inode, logical: LogicalBlock) -> Result<FsBlock> {
        let location = Location::of(Structure::DirectoryBlock).inode(inode.number);
        match self.map(inode, &inode.raw(), logical, 1)? {
            Mapping::Data { start, unwritten: false, .. } => Ok(start),
            _ => Err(location.corrupt("a hole in the directory")),
        }
    }
}

impl MetadataUpdate<'_> {
    /// Frees clusters of an inode's content, which is no longer mapped to the blocks `unmapped`; of files those need not be named.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn free_content(
        &mut self,
        kind: ContentKind,
        unmapped: &[Run],
        clusters: &[ClusterRun],
    ) -> Result<()> {
        clusters.iter().try_for_each(|run| self.free(*run))?;
        if kind == ContentKind::Metadata {
            for run in unmapped {
                let blocks = (0..u64::from(run.len)).filter_map(|index| run.start.checked_add(index));
                blocks.for_each(|block| self.revoke(block));
            }
        }
        Ok(())
    }

    /// Marks clusters that were taken from the allocator as used, and maps a hole to blocks in them, all but what the inode says of it.
    /// Takes the hole's credits, and those for marking the run.
    ///
    /// # Errors
    /// `NoSpace` if a table of a block map would get a number of more than 32 bits: the run is free again, and nothing was changed.
    /// `Corrupt`.
    pub(crate) fn map_run(
        &mut self,
        inode: &Arc<Inode>,
        hole: Hole,
        logical: LogicalBlock,
        blocks: NewBlocks,
        unwritten: bool,
    ) -> Result<ContentChange> {
        let NewBlocks { run, taken } = blocks;
        let refused = |_: &Error| {
            taken.into_iter().for_each(|clusters| self.sbi.allocator.free_unmarked(clusters));
        };
        let tables = self.take_tables(&hole, run).inspect_err(refused)?;
        if let Some(clusters) = taken {
            self.mark_used(clusters)?;
        }
        let change = self.map_to(inode, (hole, tables), logical, run, unwritten)?;
        Ok(change.with_clusters(taken.map_or(0, |clusters| i64::from(clusters.len))))
    }

    /// [`MetadataUpdate::map_run`] of blocks whose clusters are marked and counted by the caller.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn map_marked(
        &mut self,
        inode: &Arc<Inode>,
        hole: Hole,
        logical: LogicalBlock,
        run: Run,
        unwritten: bool,
    ) -> Result<ContentChange> {
        let tables = self.take_tables(&hole, run)?;
        self.map_to(inode, (hole, tables), logical, run, unwritten)
    }

    /// Takes the blocks of a block map's missing tables, near the run that they are to name.
    fn take_tables(&mut self, hole: &Hole, run: Run) -> Result<Vec<Run>> {
        let Hole::Indirect(indirect) = hole else { return Ok(Vec::new()) };
        let mut tables = Vec::new();
        for _ in 0..indirect.growth() {
            let refused = match self.take_metadata(run.start) {
                Ok(table) => {
                    let table = self.sbi.to_blocks(table);
                    tables.push(table);
                    (!hole.can_name(table)).then_some(Error::NoSpace)
                }
                Err(error) => Some(error),
            };
            if let Some(error) = refused {
                let tables = tables.into_iter().map(|table| self.sbi.to_clusters(table));
                tables.for_each(|table| self.sbi.allocator.free_unmarked(table));
                return Err(error);
            }
        }
        Ok(tables)
    }

    fn map_to(
        &mut self,
        inode: &Arc<Inode>,
        (hole, tables): (Hole, Vec<Run>),
        logical: LogicalBlock,
        run: Run,
        unwritten: bool,
    ) -> Result<ContentChange> {
        match hole {
            Hole::Extents(path) => self.insert_extent(inode, path, logical, run, unwritten),
            Hole::Indirect(hole) => {
                self.mark_ineligible();
                self.fill_indirect(hole, tables, run)
            }
        }
    }

    /// Changes the map in an inode and what it counts, and in the same step its other `fields`.
    ///
    /// # Errors
    /// `FileTooLarge` if the inode cannot count so many blocks; `Corrupt` if it would have fewer than none, or has no map.
    pub(crate) fn change_content(
        &mut self,
        inode: &Arc<Inode>,
        change: ContentChange,
        fields: impl FnOnce(&mut RawInode),
    ) -> Result<()> {
        let geometry = &self.sbi.geometry;
        let (block_size, huge) = (geometry.block_size, geometry.has_huge_file);
        let cluster_sectors = (geometry.cluster_bytes() / 512) as i64;
        let ContentChange { map, clusters } = change;
        self.modify_inode(inode, InodeDirty::Mapping, |raw| {
            match map {
                MapChange::None => {}
                MapChange::Root(root) => root
                    .write(raw.i_block_mut())
                    .map_err(|e| Location::of(Structure::ExtentNode).inode(inode.number).format(e))?,
                MapChange::Pointers { at, first, len } => (0..len).for_each(|index| {
                    extant_ondisk::indirect::set_pointer(raw.i_block_mut(), at + index, first + index);
                }),
            }
            if clusters != 0 {
                let sectors = raw
                    .blocks_512(block_size)
                    .checked_add_signed(clusters.saturating_mul(cluster_sectors))
                    .ok_or(
                        Location::of(Structure::Inode)
                            .inode(inode.number)
                            .corrupt("counts fewer blocks than it has"),
                    )?;
                raw.set_blocks_512(sectors, block_size, huge).map_err(|_| Error::FileTooLarge)?;
            }
            fields(raw);
            Ok(())
        })
    }

    /// Counts clusters of the disk in or out of an inode.
    ///
    /// # Errors
    /// As [`MetadataUpdate::change_content`].
    pub(crate) fn count_clusters(&mut self, inode: &Arc<Inode>, clusters: i64) -> Result<()> {
        if clusters == 0 {
            return Ok(());
        }
        self.change_content(inode, ContentChange::default().with_clusters(clusters), |_| ())
    }
}
