//! All blocks outside of the inode tables that have checksums, and the tables themselves.
//!
//! They are collected before anything changes; what is followed to them is verified then. Memory: 32 bytes for each block, and 128 KiB for
//! each CPU.
//!
//! Threads share the groups of a slice of the disk, and the blocks. Between two slices the caller is asked whether to go on.

use std::collections::{BTreeMap, BTreeSet};

use extant_block::BlockDevice;
use extant_ondisk::htree::{DxKind, DxNode, RootInfo};
use extant_ondisk::{
    Checksums, CompatFeatures, Entries, ExtentNode, FileType, FsBlock, Geometry, GroupDescriptor, GroupFlags,
    GroupNumber, IncompatFeatures, InodeFlags, InodeNumber, RawInode, Reseed, Structure, Superblock, extent,
    inode,
};
use extant_rt::{available_parallelism, is_interrupted, parallel};

use super::progress::Progress;
use crate::error::{Error, Location, Result};
use crate::incore::buffer::{BufferKind, Owner};
use crate::metadata::verify;
use crate::mount::Volume;

/// Bytes that are read and written at once: they stay in a CPU's cache.
const PIECE_BYTES: usize = 1 << 17;
/// Groups between two looks at whether to go on.
const SLICE_GROUPS: usize = 64;
/// More are limited by the device.
const THREADS_MAX: usize = 8;

/// The blocks with checksums.
#[derive(Default)]
pub(super) struct Summed {
    /// In ascending order, each once.
    pub(super) blocks: Vec<(FsBlock, BufferKind)>,
}

/// What is collected from.
pub(super) struct Collector<'v> {
    pub(super) volume: &'v Volume,
    pub(super) superblock: &'v Superblock,
    pub(super) checksums: &'v Checksums,
    /// As far as they were collected, by number.
    blocks: BTreeMap<FsBlock, BufferKind>,
}

impl<'v> Collector<'v> {
    pub(super) fn new(volume: &'v Volume, superblock: &'v Superblock, checksums: &'v Checksums) -> Self {
        Self { volume, superblock, checksums, blocks: BTreeMap::new() }
    }

    /// Collects from all groups, and checks the checksums of inodes: of all, or of those from which blocks are collected.
    ///
    /// # Errors
    /// `Corrupt` for a wrong checksum or a block with two uses; `Io`; `Interrupted`.
    pub(super) fn collect(
        self,
        device: &dyn BlockDevice,
        descriptors: &[GroupDescriptor],
        checks_all: bool,
        progress: &mut Progress<'_>,
    ) -> Result<Summed> {
        let geometry = self.volume.geometry.clone();
        let (volume, superblock, checksums) = (self.volume, self.superblock, self.checksums);
        let orphan_file = superblock.s_orphan_file_inum();
        let collected = by_slices(descriptors, progress, |groups| {
            let mut part = Collector::new(volume, superblock, checksums);
            for_inodes_of(device, &geometry, groups, |number, bytes| {
                let is_collected = number.0 == orphan_file || inode::names_summed_blocks(bytes);
                if !checks_all && !is_collected {
                    return Ok(false);
                }
                let location = Location::of(Structure::Inode).inode(number);
                let raw = RawInode::parse(bytes).map_err(|e| location.format(e))?;
                if raw.mode() == 0 || raw.links_count() == 0 {
                    return Ok(false);
                }
                if !checksums.verify_inode(number, &raw) {
                    return Err(location.corrupt("bad checksum"));
                }
                part.add_inode(number, &raw)?;
                Ok(false)
            })?;
            Ok(part.blocks)
        })?;
        let mut blocks: Vec<(FsBlock, BufferKind)> = collected.into_iter().flatten().collect();
        blocks.sort_by_key(|(block, _)| *block);
        let mut neighbours = blocks.iter().zip(blocks.iter().skip(1));
        if let Some(((block, kind), _)) =
            neighbours.find(|(left, right)| left.0 == right.0 && !is_shared(left.1, right.1))
        {
            return Err(twice(*block, *kind));
        }
        blocks.dedup();
        Ok(Summed { blocks })
    }

    fn add(&mut self, block: FsBlock, kind: BufferKind) -> Result<()> {
        let location = Location::of(kind.structure()).block(block);
        if !self.volume.geometry.is_valid_block_run(block, 1) {
            return Err(location.corrupt("outside the disk"));
        }
        match self.blocks.insert(block, kind) {
            Some(other) if !is_shared(other, kind) => Err(twice(block, kind)),
            _ => Ok(()),
        }
    }

    fn add_inode(&mut self, number: InodeNumber, raw: &RawInode) -> Result<()> {
        let owner = Owner { inode: number, generation: raw.generation() };
        if raw.file_acl().0 != 0 {
            self.add(raw.file_acl(), BufferKind::Xattr)?;
        }
        if raw.has_inline_data() {
            return Ok(());
        }
        if raw.flags().contains(InodeFlags::EXTENTS) {
            self.add_tree(owner, raw.i_block())?;
        }
        if number.0 == self.superblock.s_orphan_file_inum() {
            for block in self.blocks_of(number, raw)?.into_values() {
                self.add(block, BufferKind::OrphanFile(owner))?;
            }
        } else if raw.file_type() == FileType::Directory {
            self.add_directory(owner, raw)?;
        }
        Ok(())
    }

    /// Adds the nodes of an extent tree below a root. A node that is in the tree twice is an error, so it ends.
    fn add_tree(&mut self, owner: Owner, root: &[u8]) -> Result<()> {
        if extent::depth(root) == Some(0) {
            return Ok(());
        }
        let location = Location::of(Structure::ExtentNode).inode(owner.inode);
        let mut nodes = vec![ExtentNode::parse(root, None).map_err(|e| location.format(e))?];
        while let Some(node) = nodes.pop() {
            let Entries::Index(children) = &node.entries else { continue };
            for child in children {
                self.add(child.child, BufferKind::Extent(owner))?;
                // The level above the leaves has no other nodes below it.
                let depth = node.depth.saturating_sub(1);
                if depth > 0 {
                    let location = location.block(child.child);
                    let bytes = self.volume.read_block(child.child, location)?;
                    let checked =
                        verify::verify(self.checksums, BufferKind::Extent(owner), child.child, &bytes);
                    checked.map_err(|e| location.format(e))?;
                    nodes.push(ExtentNode::parse(&bytes, Some(depth)).map_err(|e| location.format(e))?);
                }
            }
        }
        Ok(())
    }

    /// The blocks of an inode that its size covers, by their place in it.
    fn blocks_of(&self, number: InodeNumber, raw: &RawInode) -> Result<BTreeMap<u32, FsBlock>> {
        let geometry = &self.volume.geometry;
        let count = raw.size() / u64::from(geometry.block_size);
        if count > geometry.blocks_count {
            return Err(Location::of(Structure::Inode).inode(number).corrupt("larger than the disk"));
        }
        let extents = self.volume.all_extents(number, raw)?;
        let blocks = extents.iter().flat_map(|extent| (0..u32::from(extent.len)).map(move |at| (extent, at)));
        let blocks = blocks.filter_map(|(extent, at)| {
            Some((extent.logical.0.checked_add(at)?, FsBlock(extent.start.0 + u64::from(at))))
        });
        Ok(blocks.take_while(|(logical, _)| u64::from(*logical) < count).collect())
    }

    /// The blocks of a directory's index, by their place in it.
    ///
    /// # Errors
    /// `Corrupt`; `Io`.
    pub(super) fn index_of(&self, number: InodeNumber, raw: &RawInode) -> Result<BTreeMap<u32, FsBlock>> {
        let owner = Owner { inode: number, generation: raw.generation() };
        let mut blocks = self.blocks_of(number, raw)?;
        let index = self.index_blocks(owner, raw, &blocks)?;
        blocks.retain(|logical, _| index.contains(logical));
        Ok(blocks)
    }

    fn add_directory(&mut self, owner: Owner, raw: &RawInode) -> Result<()> {
        let blocks = self.blocks_of(owner.inode, raw)?;
        let index = self.index_blocks(owner, raw, &blocks)?;
        for (logical, block) in blocks {
            let is_index = index.contains(&logical);
            self.add(
                block,
                if is_index { BufferKind::HtreeNode(owner) } else { BufferKind::Directory(owner) },
            )?;
        }
        Ok(())
    }

    /// Which blocks of a directory are its index.
    fn index_blocks(
        &self,
        owner: Owner,
        raw: &RawInode,
        blocks: &BTreeMap<u32, FsBlock>,
    ) -> Result<BTreeSet<u32>> {
        let location = Location::of(Structure::HtreeNode).inode(owner.inode);
        let has_index = self.superblock.compat().contains(CompatFeatures::DIR_INDEX);
        let mut index = BTreeSet::new();
        if !has_index || !raw.flags().contains(InodeFlags::INDEX) {
            return Ok(index);
        }
        let has_csum = self.checksums.has_metadata_checksums();
        let has_large_dir = self.superblock.incompat().contains(IncompatFeatures::LARGEDIR);
        let (mut level, mut kind, mut levels) = (vec![0], DxKind::Root, 0);
        for depth in 0.. {
            let mut next = Vec::new();
            for logical in level {
                let block = *blocks
                    .get(&logical)
                    .ok_or(location.corrupt("index names a block that the directory has not"))?;
                let bytes = self.volume.read_block(block, location)?;
                if !index.insert(logical) {
                    return Err(location.block(block).corrupt("in the index twice"));
                }
                if depth == 0 {
                    levels = RootInfo::parse(&bytes, has_large_dir)
                        .map_err(|e| location.block(block).format(e))?
                        .indirect_levels;
                }
                if depth < u32::from(levels) {
                    let node =
                        DxNode::parse(&bytes, kind, has_csum).map_err(|e| location.block(block).format(e))?;
                    next.extend((0..node.count()).filter_map(|at| node.child(at)).map(|child| child.0));
                }
            }
            if next.is_empty() {
                break;
            }
            (level, kind) = (next, DxKind::Node);
        }
        Ok(index)
    }
}

/// Whether a block may have both uses: inodes share blocks of attributes.
fn is_shared(one: BufferKind, other: BufferKind) -> bool {
    one == BufferKind::Xattr && other == BufferKind::Xattr
}

fn twice(block: FsBlock, kind: BufferKind) -> Error {
    Location::of(kind.structure()).block(block).corrupt("block in use for two things")
}

/// A group's number and its descriptor.
type Group<'g> = (GroupNumber, &'g GroupDescriptor);

/// Has threads share the groups of one slice after the other; what each thread says of each slice.
fn by_slices<T: Send>(
    descriptors: &[GroupDescriptor],
    progress: &mut Progress<'_>,
    work: impl Fn(&mut dyn Iterator<Item = Group<'_>>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let threads = available_parallelism().clamp(1, THREADS_MAX);
    let groups: Vec<Group<'_>> = (0..).map(GroupNumber).zip(descriptors).collect();
    let mut done = Vec::new();
    for slice in groups.chunks(SLICE_GROUPS) {
        progress.add(slice.len())?;
        for part in parallel(threads, |thread| work(&mut slice.iter().skip(thread).step_by(threads).copied()))
        {
            done.push(part?);
        }
    }
    Ok(done)
}

/// Has threads share blocks, which ascend: `each` may change them, and says whether it did.
fn for_blocks(
    device: &dyn BlockDevice,
    block_size: u32,
    blocks: &[(FsBlock, BufferKind)],
    each: impl Fn(FsBlock, BufferKind, &mut [u8]) -> Result<bool> + Sync,
) -> Result<()> {
    let size = block_size as usize;
    let threads = available_parallelism().clamp(1, THREADS_MAX);
    let share = blocks.len().div_ceil(threads).max(1);
    let work = |thread: usize| -> Result<()> {
        let mut bytes = vec![0; PIECE_BYTES.max(size)];
        for run in blocks
            .chunks(share)
            .nth(thread)
            .unwrap_or_default()
            .chunk_by(|left, right| left.0.0 + 1 == right.0.0)
            .flat_map(|run| run.chunks(PIECE_BYTES.max(size) / size))
        {
            let Some((start, kind)) = run.first() else { continue };
            let location = Location::of(kind.structure()).block(*start);
            let piece = bytes.get_mut(..run.len() * size).unwrap_or_default();
            let offset = start.0 * size as u64;
            device.read_at(offset, piece).map_err(|e| location.io(e))?;
            let mut is_changed = false;
            for ((block, kind), bytes) in run.iter().zip(piece.chunks_exact_mut(size)) {
                is_changed |= each(*block, *kind, bytes)?;
            }
            if is_changed {
                device.write_at(offset, piece).map_err(|e| location.io(e))?;
            }
        }
        Ok(())
    };
    parallel(threads, work).into_iter().collect()
}

/// Calls `each` with every reserved inode and every other that is not all zeroes, as far as tables are in use; writes those back that it
/// changed.
///
/// # Errors
/// `Io`; `Interrupted`; those of `each`.
pub(super) fn for_each_inode(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    descriptors: &[GroupDescriptor],
    mut each: impl FnMut(InodeNumber, &mut [u8]) -> Result<bool>,
) -> Result<()> {
    for slice in (0..).map(GroupNumber).zip(descriptors).collect::<Vec<_>>().chunks(SLICE_GROUPS) {
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
        for_inodes_of(device, geometry, &mut slice.iter().copied(), &mut each)?;
    }
    Ok(())
}

/// [`for_each_inode`] of some groups.
fn for_inodes_of(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    groups: &mut dyn Iterator<Item = Group<'_>>,
    mut each: impl FnMut(InodeNumber, &mut [u8]) -> Result<bool>,
) -> Result<()> {
    let inode_size = usize::from(geometry.inode_size);
    let mut bytes = vec![0; PIECE_BYTES];
    for (group, descriptor) in groups {
        if descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
            continue;
        }
        let location = Location::of(Structure::Inode).group(group);
        let used = geometry.inodes_per_group.saturating_sub(descriptor.itable_unused());
        let mut first = 0;
        while first < used {
            let count = (PIECE_BYTES / inode_size).min((used - first) as usize);
            let piece = bytes.get_mut(..count * inode_size).unwrap_or_default();
            let offset = descriptor.inode_table().0 * u64::from(geometry.block_size)
                + u64::from(first) * inode_size as u64;
            device.read_at(offset, piece).map_err(|e| location.io(e))?;
            let mut is_changed = false;
            for (index, inode) in (first..).zip(piece.chunks_exact_mut(inode_size)) {
                if let Some(number) = geometry.inode_number(group, index)
                    && (number.0 < geometry.first_ino || inode.iter().any(|byte| *byte != 0))
                {
                    is_changed |= each(number, inode)?;
                }
            }
            if is_changed {
                device.write_at(offset, piece).map_err(|e| location.io(e))?;
            }
            first += count as u32;
        }
    }
    Ok(())
}

impl Summed {
    /// Checks the checksums of the blocks.
    ///
    /// # Errors
    /// `Corrupt` for a wrong one; `Io`.
    pub(super) fn verify(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        checksums: &Checksums,
    ) -> Result<()> {
        for_blocks(device, geometry.block_size, &self.blocks, |block, kind, bytes| {
            let location = Location::of(kind.structure()).block(block);
            verify::verify(checksums, kind, block, bytes).map_err(|e| location.format(e))?;
            Ok(false)
        })
    }

    /// Writes other checksums into inodes and blocks, in place, but those of indexes: how many. With `reseed` wrong ones stay wrong.
    ///
    /// # Errors
    /// `Io`; `Corrupt`; `Interrupted`.
    pub(super) fn rewrite(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        descriptors: &[GroupDescriptor],
        checksums: &Checksums,
        reseed: Option<&Reseed>,
        progress: &mut Progress<'_>,
    ) -> Result<u64> {
        let inodes = by_slices(descriptors, progress, |groups| {
            let mut rewritten = 0;
            for_inodes_of(device, geometry, groups, |number, bytes| {
                rewritten += 1;
                // A reserved inode of zeroes has no checksum.
                if let Some(reseed) = reseed.filter(|_| bytes.iter().any(|byte| *byte != 0)) {
                    reseed.inode(bytes);
                    return Ok(true);
                }
                let location = Location::of(Structure::Inode).inode(number);
                let mut raw = RawInode::parse(bytes).map_err(|e| location.format(e))?;
                checksums.update_inode(number, &mut raw);
                bytes.copy_from_slice(raw.as_bytes());
                Ok(true)
            })?;
            Ok(rewritten)
        })?;
        let blocks: Vec<(FsBlock, BufferKind)> = self
            .blocks
            .iter()
            .filter(|(_, kind)| !matches!(kind, BufferKind::HtreeNode(_)))
            .copied()
            .collect();
        for_blocks(device, geometry.block_size, &blocks, |block, kind, bytes| {
            match reseed {
                Some(reseed) => verify::reseed(reseed, kind, bytes),
                None => verify::sum(checksums, kind, block, bytes),
            }
            Ok(true)
        })?;
        Ok(inodes.iter().sum::<u64>() + blocks.len() as u64)
    }
}
