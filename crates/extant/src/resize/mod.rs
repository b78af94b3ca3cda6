//! Growing a file system, mounted or not, and in [`shrink`] making one smaller.
//!
//! New groups lie behind the end of the file system as it was, so their bitmaps and tables are written first, and mean nothing if a
//! crash comes then. One transaction then changes the superblock, the descriptors, the last group's bitmap where the group becomes
//! longer, and the resize inode. A crash leaves the file system as it was, or grown. The copies of the superblock and the descriptors
//! follow.
//!
//! A superblock with more groups is never at its place before their descriptors are, because a mount reads descriptors before the
//! log: a checkpoint places it last ([`extant_journal::Journal::place_last`]). So does a replay.
//!
//! Others may work on the file system meanwhile. They learn of the new size when the transaction is durable
//! ([`crate::metadata::commit`]), and nothing new is allocated before.
//!
//! Where the log is too small for one transaction, or the descriptors have to go elsewhere ([`size`]), several steps follow one
//! another, each of which leaves a file system that is whole.
//!
//! Leaves out: making it smaller ([`shrink`]); disks whose blocks are allocated in clusters (refused).
//!
//! Invariant: blocks inside the file system as it was are written by the transaction only, but for copies of the superblock and the
//! descriptors.
//!
//! Locks: `RESIZE`.
//!
//! Source: `ext4_resize_fs` of `fs/ext4/resize.c`. Tests: `tests/resize`.

mod copies;
mod map;
mod place;
pub(crate) mod shrink;
mod size;

use extant_block::BlockDevice;
use extant_ondisk::{
    CompatFeatures, FsBlock, Geometry, IncompatFeatures, InodeNumber, Structure, Superblock,
};
use extant_rt::Arc;

use self::map::Map;
use crate::error::{Error, Location, Result};
use crate::metadata::growth::Growth;
use crate::metadata::update::{Credits, InodeDirty, RUN_CREDITS};
use crate::mount::{Mounted, Options, Volume, read_superblock};

/// How a file system grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grown {
    /// Bytes of the file system before.
    pub from_bytes: u64,
    /// Bytes of the file system: whole blocks, and no last group that is too short for its own metadata.
    pub to_bytes: u64,
    /// Block groups.
    pub groups: u32,
    /// Inodes.
    pub inodes: u32,
    /// Transactions that it took; 0 if the size was right.
    pub steps: u32,
    /// The findings of mounting.
    pub mounted: Mounted,
}

/// Makes the file system on `device` as large as `bytes`.
///
/// # Errors
/// Those of mounting for writing and of [`Volume::grow`].
pub(crate) fn grow(device: &Arc<dyn BlockDevice>, options: &Options, bytes: u64) -> Result<Grown> {
    let options = Options { background: false, page_cache_bytes: Some(0), ..options.clone() };
    if bytes > device.size() {
        // Before a mount writes anything.
        let superblock = read_superblock(&**device)?;
        check_size(
            bytes,
            superblock.blocks_count().saturating_mul(u64::from(superblock.block_size())),
            &**device,
        )?;
    }
    let (volume, mounted) = Volume::mount(device.clone(), &options)?;
    let grown = volume.grow(bytes)?;
    volume.unmount()?;
    Ok(Grown { mounted, ..grown })
}

/// Refuses a size that is below the file system's or above its device's.
fn check_size(bytes: u64, from_bytes: u64, device: &dyn BlockDevice) -> Result<()> {
    match (from_bytes..=device.size()).contains(&bytes) {
        true => Ok(()),
        false => Err(Error::OutOfRange { what: "size in bytes", min: from_bytes, max: device.size() }),
    }
}

/// Refuses a disk with clusters, whose new groups and moved files would have to lie in whole clusters.
///
/// # Errors
/// `Unsupported`.
fn check_clusters(volume: &Volume) -> Result<()> {
    match volume.geometry.cluster_ratio {
        1 => Ok(()),
        _ => Err(Error::Unsupported(
            "another size of a disk with bigalloc; `resize2fs -f`, and `e2fsck -f` after it, do it",
        )),
    }
}

impl Volume {
    /// Makes the file system as large as `bytes`, while others use it.
    ///
    /// # Errors
    /// `ReadOnly`; `OutOfRange` for a size that is below the file system's or above the device's; `Unsupported` for one that the format
    /// cannot express; `Io`; the journal's. The file system is as it was then, or as large as the last step made it.
    pub(crate) fn grow(&self, bytes: u64) -> Result<Grown> {
        self.writable()?;
        check_clusters(self)?;
        let _one = self.resizing.lock();
        let block_size = u64::from(self.geometry.block_size);
        let from_bytes = self.geometry.blocks_count * block_size;
        check_size(bytes, from_bytes, &*self.device)?;
        let mut steps = 0;
        while let Some(step) = Step::plan(self, bytes / block_size)? {
            step.take(self)?;
            steps += 1;
        }
        let Geometry { blocks_count, group_count: groups, inodes_count: inodes, .. } = *self.geometry;
        let to_bytes = blocks_count * block_size;
        Ok(Grown { from_bytes, to_bytes, groups, inodes, steps, mounted: Mounted::default() })
    }
}

/// What one transaction adds.
struct Step {
    superblock: Superblock,
    growth: Growth,
    map: Option<Map>,
    /// New groups' block and inode bitmaps, and blocks of descriptors outside of the file system as it was.
    outside: Vec<(FsBlock, Vec<u8>)>,
    /// Runs of blocks to be zeroed, there too.
    zeroed: Vec<(FsBlock, u64)>,
}

impl Step {
    /// The next step towards so many blocks; `None` if the file system has them.
    fn plan(volume: &Volume, blocks: u64) -> Result<Option<Self>> {
        // The counts of the superblock grow, and must be right for that.
        volume.allocator.count_exactly();
        let old = &volume.geometry;
        let superblock = volume.superblock.lock().clone();
        let credits = volume.writable()?.max_credits().saturating_sub(Map::CREDITS + RUN_CREDITS + 1);
        let Some((superblock, geometry)) = size::next(&superblock, old, blocks, credits)? else {
            return Ok(None);
        };
        let map = Map::read(volume, &geometry, &superblock)?;
        let placed = place::place(volume, &geometry)?;
        let growth = Growth {
            old_groups: old.group_count,
            old_blocks: old.blocks_count,
            descriptors: placed.descriptors,
            blocks: map.as_ref().map_or(Vec::new(), Map::blocks),
            geometry,
        };
        let mut outside = placed.bitmaps;
        copies::add_outside(&growth, &superblock, &mut outside)?;
        Ok(Some(Self { superblock, growth, map, outside, zeroed: placed.zeroed }))
    }

    /// Takes the step; durable when it returns.
    fn take(self, volume: &Volume) -> Result<()> {
        let Self { superblock, growth, map, outside, zeroed } = self;
        let block_size = u64::from(volume.geometry.block_size);
        for (start, len) in zeroed {
            volume
                .device
                .write_zeroes(start.0 * block_size, len * block_size)
                .map_err(|e| Location::of(Structure::Inode).block(start).io(e))?;
        }
        write_all(volume, outside)?;
        let inode = match &map {
            Some(map) => {
                volume.prepare_free_block(map.top)?;
                Some(volume.special_inode(InodeNumber::RESIZE)?)
            }
            None => None,
        };
        let old = volume.geometry.clone();
        let indices = growth.indices();
        let journal = volume.writable()?;
        // Stays so after an error: what is committed then is to be placed in this order too.
        journal.place_last(Some(volume.superblock_location().0));
        let mut update = volume.begin(Credits::new(growth.credits() + Map::CREDITS + RUN_CREDITS, 0))?;
        update.grow(growth)?;
        update.modify_superblock(|running| copy_sizes(&superblock, running));
        if let Some((map, inode)) = map.as_ref().zip(inode.as_ref()) {
            update.modify_inode(inode, InodeDirty::Mapping, |raw| {
                // It is no larger than a disk, so its count of blocks fits.
                let _ = raw.set_blocks_bytes(map.bytes, volume.geometry.block_size, true);
                if map.is_emptied {
                    // It keeps its link: without one it would be deleted as a file is.
                    raw.i_block_mut().fill(0);
                    raw.set_size(0);
                }
            });
            if map.is_emptied {
                update.free_metadata(map.top)?;
            }
        }
        update.finish();
        journal.commit_running()?;
        copies::write(volume, &volume.geometry, &old, indices)?;
        journal.checkpoint()?;
        // A commit that came meanwhile may have kept the blocks of this step in the log, with newer bytes.
        while read_superblock(&*volume.device)?.blocks_count() < volume.geometry.blocks_count {
            journal.checkpoint()?;
        }
        journal.place_last(None);
        Ok(journal.flush()?)
    }
}

/// Sets the fields of a superblock that a growth changes as another one has them.
fn copy_sizes(from: &Superblock, to: &mut Superblock) {
    to.set_blocks_count(from.blocks_count());
    to.set_r_blocks_count(from.r_blocks_count());
    to.set_s_inodes_count(from.s_inodes_count());
    to.set_s_reserved_gdt_blocks(from.s_reserved_gdt_blocks());
    to.set_s_first_meta_bg(from.s_first_meta_bg());
    to.set_s_overhead_clusters(from.s_overhead_clusters());
    if from.incompat().contains(IncompatFeatures::META_BG) {
        to.set_incompat(to.incompat() | IncompatFeatures::META_BG);
        to.set_compat(to.compat() - CompatFeatures::RESIZE_INODE);
    }
}

/// Writes blocks that no transaction writes, adjacent ones at once.
pub(crate) fn write_all(volume: &Volume, mut blocks: Vec<(FsBlock, Vec<u8>)>) -> Result<()> {
    /// Blocks written at once.
    const RUN_MAX: usize = 256;
    blocks.sort_by_key(|(block, _)| *block);
    let is_next = |a: &(FsBlock, Vec<u8>), b: &(FsBlock, Vec<u8>)| a.0.0 + 1 == b.0.0;
    for run in blocks.chunk_by(is_next).flat_map(|run| run.chunks(RUN_MAX)) {
        let Some((start, _)) = run.first() else { continue };
        let bytes: Vec<&[u8]> = run.iter().map(|(_, bytes)| &bytes[..]).collect();
        volume
            .device
            .write_at(start.0 * u64::from(volume.geometry.block_size), &bytes.concat())
            .map_err(|e| Location::of(Structure::GroupDescriptor).block(*start).io(e))?;
    }
    Ok(())
}
